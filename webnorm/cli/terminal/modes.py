"""Changes to a terminal, which are undone when the command ends or while it is stopped."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

_SHOW_CURSOR, _HIDE_CURSOR = b"\x1b[?25h", b"\x1b[?25l"
_LEAVE_ALTERNATE, _ENTER_ALTERNATE = b"\x1b[?1049l", b"\x1b[?1049h"


class _State:
    """The current changes, each as functions that undo and redo it, and the number of continues after a
    stop.
    """

    def __init__(self) -> None:
        self.changes: list[tuple[Callable[[], None], Callable[[], None]]] = []
        self.continued = 0
        self.handlers: dict[int, Any] = {}


_state = _State()


def continued() -> int:
    """Return how often the command continued after a stop (Ctrl-Z), which clears the screen."""
    return _state.continued


def restore() -> None:
    """Undo the remaining changes. There are some only if a clean-up was interrupted."""
    for undo, _ in reversed(_state.changes):
        undo()
    _state.changes.clear()


@contextmanager
def drawn_on(number: int, alternate: bool = False) -> Iterator[None]:
    """Guard a terminal while something hides its cursor or takes its alternate screen."""
    leave = _LEAVE_ALTERNATE * alternate + _SHOW_CURSOR
    enter = _ENTER_ALTERNATE * alternate + _HIDE_CURSOR
    with _changed(lambda: _write(number, leave), lambda: _write(number, enter)):
        try:
            yield
        finally:
            # The clean-up of the drawing code may have been interrupted. Sending the codes twice does no
            # harm.
            _write(number, leave)


@contextmanager
def unbuffered(number: int) -> Iterator[None]:
    """Make a terminal return each key at once and echo none. Raises OSError or termios.error if it cannot."""
    import termios
    import tty

    before = termios.tcgetattr(number)

    def undo() -> None:
        # A closed terminal has nothing to restore. TCSANOW, because waiting for output to drain could hang.
        with suppress(termios.error):
            termios.tcsetattr(number, termios.TCSANOW, before)

    def redo() -> None:
        with suppress(termios.error):
            tty.setcbreak(number)

    with _changed(undo, redo):
        tty.setcbreak(number)
        try:
            yield
        finally:
            undo()


@contextmanager
def _changed(undo: Callable[[], None], redo: Callable[[], None]) -> Iterator[None]:
    change = undo, redo
    if not _state.changes:
        _watch()
    _state.changes.append(change)
    try:
        yield
    finally:
        _state.changes.remove(change)
        if not _state.changes:
            _unwatch()


def _watch() -> None:
    """Handle stops and continues; only the main thread can set signal handlers."""
    if not hasattr(signal, "SIGTSTP") or threading.current_thread() is not threading.main_thread():
        return
    for number, handler in ((signal.SIGTSTP, _stop), (signal.SIGCONT, _continue)):
        if signal.getsignal(number) == signal.SIG_DFL:
            _state.handlers[number] = signal.signal(number, handler)


def _unwatch() -> None:
    for number, before in _state.handlers.items():
        signal.signal(number, before)
    _state.handlers.clear()


def _stop(number: int, frame: FrameType | None) -> None:
    """Restore the terminal and stop."""
    for undo, _ in reversed(_state.changes):
        undo()
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
    # The process continues here after SIGCONT.
    signal.signal(number, _stop)


def _continue(number: int, frame: FrameType | None) -> None:
    for _, redo in _state.changes:
        redo()
    _state.continued += 1


def _write(number: int, codes: bytes) -> None:
    """Write to a terminal without buffers, because a signal handler must not wait for a lock."""
    with suppress(OSError):
        os.write(number, codes)
