"""Keys of a terminal, one at a time, without Enter; the terminal is left as it was."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def keys() -> Iterator[Callable[[float], str]]:
    """Give a function that waits so many seconds for a key and gives it, or "" where none was pressed.

    Where standard input is no terminal, or the system has no `termios`, nobody presses any.
    """
    try:
        import termios
        import tty

        number = sys.stdin.fileno()
        before = termios.tcgetattr(number)
    except (ImportError, OSError, ValueError, AttributeError):
        yield _wait
        return
    try:
        tty.setcbreak(number)

        def pressed(timeout_s: float) -> str:
            ready, _, _ = select.select([number], [], [], timeout_s)
            return os.read(number, 1).decode(errors="replace") if ready else ""

        yield pressed
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def _wait(timeout_s: float) -> str:
    import time

    time.sleep(timeout_s)
    return ""
