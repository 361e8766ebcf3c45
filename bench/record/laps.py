"""The time that each part of a record takes."""

from __future__ import annotations

from webnorm.gpu import timing

# Shorter times are not shown.
_SHORT_S = 0.05


class Laps:
    """Seconds by activity, in order of their start."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = timing.clock()

    def mark(self, what: str) -> None:
        """Add the time since the last mark to an activity."""
        now = timing.clock()
        self.add(what, now - self._since)
        self._since = now

    def add(self, what: str, seconds: float) -> None:
        """Add seconds to an activity, such as another process's."""
        self.seconds[what] = self.seconds.get(what, 0.0) + seconds

    def __str__(self) -> str:
        parts = [f"{what} {spent:.2f}" for what, spent in self.seconds.items() if spent >= _SHORT_S]
        return f"{sum(self.seconds.values()):.2f} s" + (f" ({', '.join(parts)})" if parts else "")
