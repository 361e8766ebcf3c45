"""The one way to wgpu, whose objects are not for several threads or forked processes, nor to be interrupted.

Python's locks are not enough against Ctrl-C: it may come when one has just been taken, or leave wgpu-py in
the middle of a call.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import wgpu

from webnorm.errors import WebnormError, sentence

_FORKED = (
    "this process was forked from one that uses the GPU, and cannot use it; "
    "expected start method spawn, or first use after the fork"
)
_INTERRUPTED = "the device was interrupted at work; expected another from webnorm.open_device"
_LOST = "the device is lost; expected another from webnorm.open_device"
# How often someone who waits for another thread looks for an interrupt.
_LOOK_S = 0.05
# Without `signal`'s wrappers, which take ten times as long: they make an enum of what they hand back.
_signal: Any = sys.modules.get("_signal", signal)


class _Process:
    """What all gates share.

    `depth` counts the gates that the main thread is in, and `inside` those of the thread that has the lock.
    `handler` is who is told of Ctrl-C outside, and `noted` tells that there was one.
    """

    def __init__(self) -> None:
        self.main = threading.main_thread().ident
        self.lock = threading.RLock()
        self.inside = self.depth = 0
        self.outermost: Gate | None = None
        self.handler: Any = None
        self.noted = False
        self.uses_wgpu = False
        self.refusal: str | None = None


_process = _Process()


class Gate:
    """What touches wgpu does so inside, `with gate:`; one thread at a time is, as often as it likes.

    Ctrl-C waits until the main thread has left. A second one does not, for a kernel that never ends: then
    this gate is shut for good (where it `shuts`), since nobody knows in what wgpu was interrupted. Each
    device has a gate; the lock is common to all.

    Raises WebnormError on entering a gate that is shut, and for what wgpu refuses inside.
    """

    __slots__ = ("refusal", "shuts")

    def __init__(self, shuts: bool = True) -> None:
        self.refusal: str | None = None
        self.shuts = shuts

    def check(self) -> None:
        """Raise WebnormError where nobody may enter any more."""
        refusal = _process.refusal or self.refusal
        if refusal is not None:
            raise WebnormError(refusal)

    def __enter__(self) -> Gate:
        self.check()
        if threading.get_ident() != _process.main:
            _process.lock.acquire()
        elif _process.depth:
            _process.lock.acquire()
            _process.depth += 1
        else:
            _defer()
            if not _process.lock.acquire(blocking=False):
                _wait()
            _process.outermost = self
            _process.depth = 1
        _process.inside += 1
        if self.refusal is not None:  # while this thread waited
            _leave()
            self.check()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        _leave()
        if _process.noted and not _process.depth and threading.get_ident() == _process.main:
            _deliver()
        if isinstance(error, Exception):
            self._translate(error)

    def _translate(self, error: Exception) -> None:
        text = sentence(str(error))
        if "device is lost" in text and self.shuts:
            self.refusal = self.refusal or _LOST
            raise WebnormError(self.refusal) from error
        if isinstance(error, wgpu.GPUError) or text.startswith("Could not map buffer"):
            raise WebnormError(f"the device refused: {text}") from error

    def tidy(self, work: Callable[[], object]) -> None:
        """Do something where nobody is inside, this thread neither; else leave it be.

        For what the garbage collector starts, which must not wait.
        """
        if self.refusal is not None or _process.refusal is not None:
            return
        main = threading.get_ident() == _process.main
        if main and _process.depth:
            return
        if main:
            _defer()
        try:
            if _process.lock.acquire(blocking=False):
                try:
                    if not _process.inside:
                        work()
                finally:
                    _process.lock.release()
        finally:
            if main:
                _restore()
        if main and _process.noted:
            _process.noted = False
            interrupt_later()


def interrupt_later() -> None:
    """Have the main thread interrupted in a moment, for where Python drops what is raised: in a callback."""
    if hasattr(signal, "pthread_kill") and _process.main is not None:
        threading.Timer(_LOOK_S, signal.pthread_kill, (_process.main, signal.SIGINT)).start()
    else:
        threading.Timer(_LOOK_S, _thread.interrupt_main).start()


def uses_wgpu() -> None:
    """Say that wgpu is used from now on: a process that is forked has to keep off it."""
    _process.uses_wgpu = True


def forked() -> bool:
    """Whether this process was forked from one that used wgpu."""
    return _process.refusal is not None


def _defer() -> None:
    """From here on Ctrl-C is noted, where somebody in Python is told of it."""
    handler = _signal.getsignal(signal.SIGINT)
    if callable(handler) and handler is not _note:
        _process.handler = handler
        _signal.signal(signal.SIGINT, _note)


def _restore() -> None:
    if _process.handler is not None:
        handler, _process.handler = _process.handler, None
        _signal.signal(signal.SIGINT, handler)


def _wait() -> None:
    """Take the lock from another thread when it is done; an interrupt ends the wait."""
    while not _process.lock.acquire(timeout=_LOOK_S):
        if _process.noted:
            _restore()
            _deliver()
            _defer()


def _leave() -> None:
    last = False
    if threading.get_ident() == _process.main:
        _process.depth -= 1
        last = _process.depth == 0
    _process.inside -= 1
    _process.lock.release()
    if last:
        _process.outermost = None
        _restore()


def _note(number: int, frame: FrameType | None) -> None:
    """Stands in for the handler of Ctrl-C; not where this module itself would be left halfway."""
    if not _process.noted or frame is None or frame.f_globals is globals():
        _process.noted = True
        return
    gate, handler = _process.outermost, _process.handler
    if gate is None or handler is None:
        return
    _process.noted = False
    try:
        handler(number, frame)
    except BaseException:
        if gate.shuts:
            gate.refusal = _INTERRUPTED
        raise


def _deliver() -> None:
    """Tell of the interrupt that was noted."""
    _process.noted = False
    handler = _signal.getsignal(signal.SIGINT)
    if callable(handler):
        handler(signal.SIGINT, sys._getframe())


def _after_fork() -> None:
    """In the child: threads that held a lock are gone, and so are those that wgpu waits for."""
    child = _Process()
    child.uses_wgpu, child.refusal = _process.uses_wgpu, _FORKED if _process.uses_wgpu else None
    handler = _process.handler
    vars(_process).update(vars(child))
    if handler is not None:
        _signal.signal(signal.SIGINT, handler)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
