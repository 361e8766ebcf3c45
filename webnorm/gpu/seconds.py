"""How long may be asked for: the bounds of a budget and of a silence, for the command and for Python."""

from __future__ import annotations

from webnorm.errors import WebnormError, check_kind, shown

LEAST_BUDGET = 0.01
LEAST_SILENCE = 0.1
# The longest time that may be waited for: the clocks of operating systems take it, and nobody means more.
MOST = 1e6


def check_seconds(name: str, value: float, least: float) -> None:
    """Raise WebnormError unless a time is a number from `least` to MOST."""
    check_kind(name, value, float | int, "seconds")  # type: ignore[arg-type]
    if not least <= value <= MOST:
        raise WebnormError(f"{name} is {shown(value)}; expected seconds from {least:g} to {MOST:.0f}")
