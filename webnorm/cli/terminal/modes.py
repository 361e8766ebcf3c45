"""Changes to a terminal, which are taken back however the command ends, and while it is stopped."""

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
    """The changes that are in place (what takes each back, and what makes it again), and how often the
    command was continued after a stop.
    """

    def __init__(self) -> None:
        self.changes: list[tuple[Callable[[], None], Callable[[], None]]] = []
        self.continued = 0
        self.handlers: dict[int, Any] = {}


_state = _State()


def continued() -> int:
    """How often the command went on after a stop (Ctrl-Z): what was on the screen is gone then."""
    return _state.continued


def restore() -> None:
    """Take back what is still changed: nothing, but where clean-up was cut short."""
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
            # What draws may have been cut short in its own clean-up. The same codes again change nothing.
            _write(number, leave)


@contextmanager
def unbuffered(number: int) -> Iterator[None]:
    """Have a terminal give each key at once and show none. Raises OSError, or termios.error, where it does
    not.
    """
    import termios
    import tty

    before = termios.tcgetattr(number)

    def undo() -> None:
        # A terminal that is gone has nothing to restore. Waiting for output to drain might wait for ever.
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
    """Hear of stops and of their end, which this thread can only if it is the main one."""
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
    """Stop with the terminal as it was found."""
    for undo, _ in reversed(_state.changes):
        undo()
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
    # Here it goes on, after SIGCONT.
    signal.signal(number, _stop)


def _continue(number: int, frame: FrameType | None) -> None:
    for _, redo in _state.changes:
        redo()
    _state.continued += 1


def _write(number: int, codes: bytes) -> None:
    """Write to a terminal past all buffers: a signal's handler must not wait for anybody's lock."""
    with suppress(OSError):
        os.write(number, codes)
