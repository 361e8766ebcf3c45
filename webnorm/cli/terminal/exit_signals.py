"""Signals that end a command: it cleans up as after Ctrl-C and then dies of the signal."""

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

# Batch systems and service managers send SIGTERM, a closing terminal sends SIGHUP, and Ctrl-\ sends SIGQUIT.
SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name))
# A shell reports a command that died of a signal as this number plus the signal's number.
DIED = 128
# Seconds after which a signal is sent again if Python dropped its exception.
_AGAIN_S = 0.05


class EndedBySignal(KeyboardInterrupt):
    """A signal asks the command to end. Code that cleans up after Ctrl-C also cleans up after this."""


class _State:
    """The signal that ends the command, if any, and a mark that `_die` is registered."""

    received: int | None = None
    arranged = False


_state = _State()


@contextmanager
def watched() -> Iterator[None]:
    """Make `SIGNALS` raise EndedBySignal in the main thread instead of killing the process at once.

    An ignored signal, such as SIGHUP under nohup, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _state.received = None
    if not _state.arranged:
        # The function that is registered first runs last, after all other clean-up at exit.
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
    """Ignore Ctrl-C from now on: the command ends anyway, and a key held down sends it many times."""
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
    """Return the exit status of a command that a signal ends, or None without a signal."""
    return None if _state.received is None else DIED + _state.received


def cause() -> str:
    """Return the reason why the command ended early, for a message."""
    return "interrupted" if _state.received is None else f"ended by {signal.Signals(_state.received).name}"


def _end(number: int, frame: FrameType | None) -> None:
    """End the command. More signals during the clean-up have no effect: a closing terminal sends two.

    A second SIGQUIT ends the command at once, in case the clean-up hangs.
    """
    if _state.received is None:
        _state.received = number
        raise EndedBySignal
    if number == getattr(signal, "SIGQUIT", None):
        _die()


def _again(dropped: Any) -> None:
    """Send the signal again if Python drops the handler's exception, as in a finalizer."""
    number = _state.received
    if not isinstance(dropped.exc_value, EndedBySignal) or number is None:
        sys.__unraisablehook__(dropped)
        return
    _state.received = None
    timer = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()


def _die() -> None:
    """Kill the process with the signal that ended the command, if there is one."""
    if _state.received is None:
        return
    modes.restore()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    signal.signal(_state.received, signal.SIG_DFL)
    os.kill(os.getpid(), _state.received)


def _after_fork() -> None:
    """Restore the default handlers in a forked child, where signals kill at once; its parent cleans up."""
    for number in SIGNALS:
        if signal.getsignal(number) is _end:
            signal.signal(number, signal.SIG_DFL)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
