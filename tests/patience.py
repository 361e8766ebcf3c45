"""Waiting for what is to come, for as long as it takes.

A machine may be slow, busy, or stand still for seconds: no test may depend on that. Tests wait for what they
need, and the one limit here ends what hangs. tests/test_house.py checks that no test has a limit of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

# Long enough for the longest step of any test on a slow machine: thirteen minutes with twenty other
# processes.
HANG_S = 3600.0
HANG_MS = 1000 * HANG_S
_GLANCE_S = 0.01

Found = TypeVar("Found")


def until(holds: Callable[[], Found | None]) -> Found:
    """Wait until something holds, and return it."""
    ends = time.monotonic() + HANG_S
    while not (found := holds()):
        assert time.monotonic() < ends, f"{holds} is {found!r} for good"
        time.sleep(_GLANCE_S)
    return found


def at_least(seconds: float) -> None:
    """Let time pass, where more of it changes nothing: a limit that must not count is over then."""
    time.sleep(seconds)


def write_later(path: Path, text: str) -> None:
    """Write a file so that its time is another: a file system's clock ticks every few milliseconds."""
    before = path.stat().st_mtime_ns if path.exists() else None

    def written() -> bool:
        path.write_text(text)
        return path.stat().st_mtime_ns != before

    until(written)


def hang(begun: Path | None = None) -> None:
    """Never return, as part of a fake. If a file is given, it is created at the begin."""
    if begun is not None:
        begun.touch()
    time.sleep(HANG_S)


def effort(work: Callable[[], object]) -> float:
    """Seconds of the processor that this thread spends on some work: others' work and pauses do not count."""
    began = time.thread_time()
    work()
    return time.thread_time() - began


def lives(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def all_end(pids: Iterable[int]) -> None:
    """Wait until no process of these runs. The system may take long to end one that has a GPU's driver."""
    left = tuple(pids)
    until(lambda: not any(map(lives, left)))
