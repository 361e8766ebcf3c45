"""Waits of tests, with one time limit.

A machine may be slow, busy, or stand still for seconds, and no test may depend on that. Tests wait for what
they need, and the limit here ends a test that hangs. tests/test_house.py checks that no test has its own
limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

# The longest step of any test on a slow machine fits in this limit. It took thirteen minutes next to twenty
# other processes.
HANG_S = 3600.0
HANG_MS = 1000 * HANG_S
_GLANCE_S = 0.01

Found = TypeVar("Found")


def until(holds: Callable[[], Found | None]) -> Found:
    """Wait until a function returns a true value, and return that value."""
    ends = time.monotonic() + HANG_S
    while not (found := holds()):
        assert time.monotonic() < ends, f"{holds} is {found!r} for good"
        time.sleep(_GLANCE_S)
    return found


def at_least(seconds: float) -> None:
    """Sleep for at least some seconds, so that a limit that must not count has passed.

    A longer sleep must not matter.
    """
    time.sleep(seconds)


def write_later(path: Path, text: str) -> None:
    """Write a file so that its time changes, because a file system's clock ticks every few milliseconds."""
    before = path.stat().st_mtime_ns if path.exists() else None

    def written() -> bool:
        path.write_text(text)
        return path.stat().st_mtime_ns != before

    until(written)


def hang(begun: Path | None = None) -> None:
    """Never return, as part of a fake. Create the given file first, if there is one."""
    if begun is not None:
        begun.touch()
    time.sleep(HANG_S)


def effort(work: Callable[[], object]) -> float:
    """Return the processor seconds of this thread for some work. They exclude other processes and pauses."""
    began = time.thread_time()
    work()
    return time.thread_time() - began


def lives(pid: int) -> bool:
    """Return True if a process runs. A zombie does not run."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def all_end(pids: Iterable[int]) -> None:
    """Wait until all these processes have ended.

    The system may need long to end a process with a GPU's driver.
    """
    left = tuple(pids)
    until(lambda: not any(map(lives, left)))
