"""What a caller's signal handlers raise: it comes out of a call unchanged, and leaves nothing half done.

Ctrl-C, a soft time limit or a test's timeout may raise any exception between any two instructions. Caught by
code that means another error it would be lost, and a lock that has just been taken would stay taken. So while
a call is at work handlers wait, and are called where nothing is half done.
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

# Without `signal`'s wrappers, which take ten times as long: they make an enum of what they hand back.
_signal: Any = sys.modules.get("_signal", signal)
# The first two cannot be handled; the others report a fault where it happens.
_NEVER = ("SIGKILL", "SIGSTOP", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS")
_NUMBERS = tuple(
    sorted({int(one) for one in signal.valid_signals()} - {int(getattr(signal, n, 0)) for n in _NEVER})
)


class _Process:
    """How deep the main thread is in what is not to be interrupted, and in waits within that.

    `handlers` has those that wait, `noted` the signals that they wait with. `raised` is what one raised that
    has not come out of the call yet.
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
# Called after an exception of a handler that did not wait, since it was the second signal.
forced: list[Callable[[], None]] = []
# Modules that must not be left halfway, by their globals: there a second signal waits, too.
closed: list[dict[str, Any]] = [globals()]


class Held:
    """Have the handlers of signals wait meanwhile, in the main thread; as often nested as one likes.

    A second signal of a number does not wait, for a kernel that never ends.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        enter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave(error)


held = Held()


def holding(function: Callable[P, R]) -> Callable[P, R]:
    """Have the handlers of signals wait for the end of a function."""

    @wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        with held:
            return function(*arguments, **named)

    return call


def holding_steps(function: Callable[P, Iterator[R]]) -> Callable[P, Iterator[R]]:
    """Have the handlers of signals wait for the end of each step of a generator."""

    @wraps(function)
    def steps(*arguments: P.args, **named: P.kwargs) -> Iterator[R]:
        events: Any = function(*arguments, **named)
        try:
            while True:
                with held:
                    try:
                        event = next(events)
                    except StopIteration:
                        return
                yield event
        finally:
            with held:
                events.close()

    return steps


def enter() -> None:
    """Begin what is not to be interrupted; `leave` has to follow."""
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
    """End it, and call the handlers that have waited; `error` is what is raised otherwise."""
    if threading.get_ident() != _process.main:
        return
    if _process.depth > 1:
        _process.depth -= 1
        return
    raised, _process.raised = _process.raised, None
    _end()
    if raised is not None and raised is not error:
        # Code in between took it for an error of its own.
        raise raised


def _end() -> None:
    """Call no handler before all of them have their signals back."""
    try:
        _restore()
    finally:
        _process.depth = 0
        _deliver()


@contextmanager
def waiting() -> Iterator[None]:
    """Have the handlers called at once meanwhile: where a call waits, and nothing of it is half done."""
    if threading.get_ident() != _process.main or not _process.depth:
        yield
        return
    _process.waits += 1
    try:
        answer()
        yield
    finally:
        _process.waits -= 1


def answer() -> None:
    """Call the handlers that have waited so far."""
    if _process.noted and threading.get_ident() == _process.main:
        _deliver()


def is_held() -> bool:
    """Whether handlers wait for this thread."""
    return _process.depth > 0 and threading.get_ident() == _process.main


def drop() -> list[int]:
    """The signals that were noted, which are forgotten."""
    noted, _process.noted = _process.noted, []
    return noted


def is_from_handler(error: BaseException) -> bool:
    """Whether a signal's handler raised an exception."""
    return number_of(error) is not None


def number_of(error: BaseException) -> int | None:
    """The signal whose handler raised an exception, 0 where it is not known; None for any other exception.

    A frame of the traceback was given one of those before it: only handlers are, with the signal's number.
    """
    found: int | None = None
    before: list[FrameType] = []
    trace = error.__traceback__
    while trace is not None:
        code, given = trace.tb_frame.f_code, trace.tb_frame.f_locals
        # With one more, for what is behind a *.
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
    """Raise an exception again that a signal's handler raised: no error of what was tried."""
    if error is _process.raised or is_from_handler(error):
        raise error


class ignored(suppress):
    """As contextlib.suppress, of what no signal's handler raised."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Whether the exception goes no further."""
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
    """Give the handlers their signals back, whatever they raise meanwhile."""
    handlers = _process.handlers
    try:
        for number in [*handlers]:
            _signal.signal(number, handlers[number])
            del handlers[number]
    finally:
        if handlers:
            _restore()


def _note(number: int, frame: FrameType | None) -> None:
    """Stands in for a handler."""
    waits = not _process.depth or _process.waits
    second = number in _process.noted and (frame is None or not any(frame.f_globals is one for one in closed))
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
    """Call a handler, and remember what it raises until that has come out of the call."""
    handler = _process.handlers.get(number) or _signal.getsignal(number)
    if not callable(handler):
        return
    try:
        handler(number, frame)
    except BaseException as error:
        if _process.depth:
            _process.raised = error
        if is_forced:
            for tell in forced:
                tell()
        raise


def _after_fork() -> None:
    """In the child: nothing is at work, and handlers are who they were."""
    handlers = _process.handlers
    vars(_process).update(vars(_Process()))
    for number, handler in handlers.items():
        _signal.signal(number, handler)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
