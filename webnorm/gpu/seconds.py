"""Bounds, in seconds, of time budgets and time limits, for the command and for Python."""

from __future__ import annotations

from webnorm.errors import WebnormError, check_kind, shown

LEAST_BUDGET = 0.01
LEAST_SILENCE = 0.1
# The longest accepted time. The clocks of operating systems support it.
MOST = 1e6


def check_seconds(name: str, value: float, least: float) -> None:
    """Raise WebnormError unless a time is a number of seconds from `least` to `MOST`."""
    check_kind(name, value, float | int, "seconds")  # type: ignore[arg-type]
    if not least <= value <= MOST:
        raise WebnormError(f"{name} is {shown(value)}; expected seconds from {least:g} to {MOST:.0f}")
