"""Signals that end a command: it cleans up as after Ctrl-C, and then dies of the signal."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from webnorm.cli.terminal import modes

# A batch system or a service manager sends SIGTERM, a terminal that closes SIGHUP, Ctrl-\ SIGQUIT.
SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name))
# A shell reports the death of a command by a signal as this plus the number.
DIED = 128
# How soon a signal is sent again whose exception Python dropped.
_AGAIN_S = 0.05


class EndedBySignal(KeyboardInterrupt):
    """A signal asks the command to end. Whatever cleans up after Ctrl-C cleans up after this, too."""


class _State:
    """The signal that ends the command, if any has come; whether its death is already arranged."""

    received: int | None = None
    arranged = False


_state = _State()


@contextmanager
def watched() -> Iterator[None]:
    """Have `SIGNALS` raise EndedBySignal in the main thread, where they would kill the process at once.

    A signal that is ignored, as SIGHUP is under nohup, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _state.received = None
    if not _state.arranged:
        # The first to be registered is the last to run: what others clean up at exit is cleaned up by then.
        atexit.register(_die)
        _state.arranged = True
    watched = [number for number in SIGNALS if signal.getsignal(number) == signal.SIG_DFL]
    unraisable = sys.unraisablehook
    sys.unraisablehook = _again
    for number in watched:
        signal.signal(number, _end)
    try:
        yield
    finally:
        sys.unraisablehook = unraisable
        if _state.received is None:
            for number in watched:
                signal.signal(number, signal.SIG_DFL)


def ignore_interrupts() -> None:
    """Have Ctrl-C change nothing any more: the command ends anyway, and a key held down sends many."""
    if threading.current_thread() is not threading.main_thread():
        return
    ignored = False
    while not ignored:
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            ignored = True
        except KeyboardInterrupt:
            continue


def status() -> int | None:
    """The exit status of a command that a signal ends; None where none has come."""
    return None if _state.received is None else DIED + _state.received


def cause() -> str:
    """What ended the command before its time."""
    return "interrupted" if _state.received is None else f"ended by {signal.Signals(_state.received).name}"


def _end(number: int, frame: FrameType | None) -> None:
    """End the command. While it cleans up, more signals change nothing: a terminal that closes sends two.

    A second SIGQUIT ends it at once, for a clean-up that hangs.
    """
    if _state.received is None:
        _state.received = number
        raise EndedBySignal
    if number == getattr(signal, "SIGQUIT", None):
        _die()


def _again(dropped: Any) -> None:
    """Where Python drops what a handler raises, as in a finalizer, send the signal again."""
    number = _state.received
    if not isinstance(dropped.exc_value, EndedBySignal) or number is None:
        sys.__unraisablehook__(dropped)
        return
    _state.received = None
    timer = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()


def _die() -> None:
    """Die of the signal that ended the command, if one did."""
    if _state.received is None:
        return
    modes.restore()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    signal.signal(_state.received, signal.SIG_DFL)
    os.kill(os.getpid(), _state.received)


def _after_fork() -> None:
    """In a forked child the signals kill at once, as in any other program: its parent cleans up."""
    for number in SIGNALS:
        if signal.getsignal(number) is _end:
            signal.signal(number, signal.SIG_DFL)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
