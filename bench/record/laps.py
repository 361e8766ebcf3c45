"""Where the seconds of a record go."""

from __future__ import annotations

from webnorm.gpu import timing

# Less is not worth a word.
_SHORT_S = 0.05


class Laps:
    """Seconds by what they were spent on, in the order in which that began."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = timing.clock()

    def mark(self, what: str) -> None:
        """What was done since the last mark."""
        now = timing.clock()
        self.add(what, now - self._since)
        self._since = now

    def add(self, what: str, seconds: float) -> None:
        """Seconds that were spent elsewhere."""
        self.seconds[what] = self.seconds.get(what, 0.0) + seconds

    def __str__(self) -> str:
        told = [f"{what} {spent:.2f}" for what, spent in self.seconds.items() if spent >= _SHORT_S]
        return f"{sum(self.seconds.values()):.2f} s" + (f" ({', '.join(told)})" if told else "")
