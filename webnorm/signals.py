"""Deferred signal handlers: an exception that a handler raises leaves a call unchanged and nothing half done.

Ctrl-C, a soft time limit or a test's timeout may raise any exception between any two instructions. A broad
`except` could swallow it, and a lock that was just acquired would stay locked. So handlers are deferred while
a call works, and run at points where nothing is half done.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from types import FrameType, TracebackType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# The wrappers of `signal` take ten times as long, because they return enums.
_signal: Any = sys.modules.get("_signal", signal)
# SIGKILL and SIGSTOP cannot be handled. The others report a fault, which cannot be deferred.
_NEVER = ("SIGKILL", "SIGSTOP", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS")
_NUMBERS = tuple(
    sorted({int(one) for one in signal.valid_signals()} - {int(getattr(signal, n, 0)) for n in _NEVER})
)


class _Process:
    """The state of the main thread: its nesting depth of deferred sections and of waits within them.

    `handlers` maps signals to the deferred handlers, and `noted` lists the signals that arrived. `raised` is
    an exception of a handler that has not left the call yet.
    """

    def __init__(self) -> None:
        self.main = threading.main_thread().ident
        self.depth = self.waits = 0
        self.handlers: dict[int, Any] = {}
        self.noted: list[int] = []
        self.raised: BaseException | None = None
        self.known: tuple[Any, ...] = ()
        self.callable: tuple[int, ...] = ()


_process = _Process()
# Called after a handler raised immediately because its signal arrived a second time.
forced: list[Callable[[], None]] = []
# The globals of modules that must not be interrupted: there a second signal is deferred, too.
protected: list[dict[str, Any]] = [globals()]


class DeferredHandlers:
    """A context that defers signal handlers in the main thread. It may be nested.

    A second signal of the same number is not deferred, so that Ctrl-C can end a kernel that never returns.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        enter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave(error)


deferred = DeferredHandlers()


def deferring(function: Callable[P, R]) -> Callable[P, R]:
    """Defer signal handlers until a function returns."""

    @wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        with deferred:
            return function(*arguments, **named)

    return call


def deferring_steps(function: Callable[P, Iterator[R]]) -> Callable[P, Iterator[R]]:
    """Defer signal handlers until each step of a generator ends."""

    @wraps(function)
    def steps(*arguments: P.args, **named: P.kwargs) -> Iterator[R]:
        events: Any = function(*arguments, **named)
        try:
            while True:
                with deferred:
                    try:
                        event = next(events)
                    except StopIteration:
                        return
                yield event
        finally:
            with deferred:
                events.close()

    return steps


def enter() -> None:
    """Begin to defer signal handlers; `leave` must follow."""
    if threading.get_ident() != _process.main:
        return
    if _process.depth:
        _process.depth += 1
        return
    try:
        _install()
        _process.depth = 1
    except BaseException:
        _process.depth = 1
        _end()
        raise


def leave(error: BaseException | None = None) -> None:
    """Stop deferring, and call the deferred handlers; `error` is the exception that is being raised."""
    if threading.get_ident() != _process.main:
        return
    if _process.depth > 1:
        _process.depth -= 1
        return
    raised, _process.raised = _process.raised, None
    _end()
    if raised is not None and raised is not error:
        # An `except` in between swallowed it.
        raise raised


def _end() -> None:
    """Restore all handlers before any of them is called."""
    try:
        _restore()
    finally:
        _process.depth = 0
        _deliver()


@contextmanager
def interruptible() -> Iterator[None]:
    """Call handlers at once within this context: the call waits there and nothing is half done."""
    if threading.get_ident() != _process.main or not _process.depth:
        yield
        return
    _process.waits += 1
    try:
        call_deferred()
        yield
    finally:
        _process.waits -= 1


def call_deferred() -> None:
    """Call the handlers that are deferred so far."""
    if _process.noted and threading.get_ident() == _process.main:
        _deliver()


def is_deferring() -> bool:
    """Return whether handlers are deferred for this thread."""
    return _process.depth > 0 and threading.get_ident() == _process.main


def discard() -> list[int]:
    """Discard the signals that arrived, and return their numbers."""
    noted, _process.noted = _process.noted, []
    return noted


def is_from_handler(error: BaseException) -> bool:
    """Return whether a signal handler raised this exception."""
    return number_of(error) is not None


def number_of(error: BaseException) -> int | None:
    """Return the signal whose handler raised an exception: 0 if unknown, None for any other exception.

    Only handlers receive a frame as an argument, together with the signal's number. So the traceback has a
    frame whose arguments contain an earlier frame.
    """
    found: int | None = None
    before: list[FrameType] = []
    trace = error.__traceback__
    while trace is not None:
        code, given = trace.tb_frame.f_code, trace.tb_frame.f_locals
        # One more name for the arguments of `*args`.
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + 1]
        values: list[object] = []
        for value in (given.get(name) for name in names):
            values += value if isinstance(value, tuple) else (value,)
        if any(value is one for one in before for value in values):
            number = next((one for one in values if isinstance(one, int) and one in _NUMBERS), 0)
            found = found or number
        before.append(trace.tb_frame)
        trace = trace.tb_next
    return found


def let_through(error: BaseException) -> None:
    """Raise an exception again if a signal handler raised it."""
    if error is _process.raised or is_from_handler(error):
        raise error


class ignored(suppress):
    """`contextlib.suppress` that lets exceptions of signal handlers through."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Return whether the exception is suppressed."""
        foreign = error is not None and (error is _process.raised or is_from_handler(error))
        return bool(super().__exit__(kind, error, trace)) and not foreign


def _install() -> None:
    found = tuple(map(_signal.getsignal, _NUMBERS))
    if found != _process.known:
        able = (
            number for number, one in zip(_NUMBERS, found, strict=True) if callable(one) and one is not _note
        )
        _process.callable = tuple(able)
        _process.known = found
    for number in _process.callable:
        _process.handlers[number] = _signal.getsignal(number)
        _signal.signal(number, _note)


def _restore() -> None:
    """Restore the handlers of all signals, even if a handler raises meanwhile."""
    handlers = _process.handlers
    try:
        for number in [*handlers]:
            _signal.signal(number, handlers[number])
            del handlers[number]
    finally:
        if handlers:
            _restore()


def _note(number: int, frame: FrameType | None) -> None:
    """Record a signal in place of its handler."""
    waits = not _process.depth or _process.waits
    second = number in _process.noted and (
        frame is None or not any(frame.f_globals is one for one in protected)
    )
    if waits or second:
        if second:
            _process.noted.remove(number)
        _call(number, frame, second and not waits)
    elif number not in _process.noted:
        _process.noted.append(number)


def _deliver() -> None:
    noted = _process.noted
    try:
        while noted:
            _call(noted.pop(0), sys._getframe(), False)
    finally:
        if noted:
            _deliver()


def _call(number: int, frame: FrameType | None, is_forced: bool) -> None:
    """Call a handler, and keep the exception it raises until that has left the call."""
    handler = _process.handlers.get(number) or _signal.getsignal(number)
    if not callable(handler):
        return
    try:
        handler(number, frame)
    except BaseException as error:
        if _process.depth:
            _process.raised = error
        if is_forced:
            for notify in forced:
                notify()
        raise


def _after_fork() -> None:
    """Reset the state in a child process, and restore its handlers."""
    handlers = _process.handlers
    vars(_process).update(vars(_Process()))
    for number, handler in handlers.items():
        _signal.signal(number, handler)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
