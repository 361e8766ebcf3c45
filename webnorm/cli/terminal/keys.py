"""Keys of a terminal, one at a time, without Enter; the terminal is left as it was."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from webnorm.cli.terminal import modes

# What Ctrl-D sends, and what is given where the terminal has gone.
END = "\x04"


@contextmanager
def keys(number: int | None) -> Iterator[Callable[[float], str]]:
    """Give a function that waits so many seconds for a key of a terminal, known by its descriptor, and
    returns it, or "" where none was pressed. Without a terminal to read, there are none.
    """
    if number is None:
        yield _wait
        return
    with modes.unbuffered(number):

        def pressed(timeout_s: float) -> str:
            ready, _, _ = select.select([number], [], [], timeout_s)
            if not ready:
                return ""
            try:
                return os.read(number, 1).decode(errors="replace") or END
            except OSError:
                return END

        yield pressed


def _wait(timeout_s: float) -> str:
    time.sleep(timeout_s)
    return ""
