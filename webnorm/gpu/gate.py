"""The one way to wgpu, whose objects are not for several threads or forked processes, nor to be interrupted.

Python's locks are not enough against Ctrl-C: it may come when one has just been taken, or leave wgpu-py in
the middle of a call.
"""

from __future__ import annotations

import _thread
import os
import signal
import threading
from collections.abc import Callable

import wgpu

from webnorm import signals
from webnorm.errors import WebnormError, sentence

_FORKED = (
    "this process was forked from one that uses the GPU, and cannot use it; "
    "expected start method spawn, or first use after the fork"
)
_INTERRUPTED = "the device was interrupted at work; expected another from webnorm.open_device"
_LOST = "the device is lost; expected another from webnorm.open_device"
# How often someone who waits for another thread looks for an interrupt.
_LOOK_S = 0.05


class _Process:
    """What all gates share: `depth` counts the gates that the main thread is in, and `inside` those of the
    thread that has the lock.
    """

    def __init__(self) -> None:
        self.main = threading.main_thread().ident
        self.lock = threading.RLock()
        self.inside = self.depth = 0
        self.outermost: Gate | None = None
        self.uses_wgpu = False
        self.refusal: str | None = None


_process = _Process()


class Gate:
    """What touches wgpu does so inside, `with gate:`; one thread at a time is, as often as it likes.

    Handlers of signals, that of Ctrl-C too, wait until the main thread has left. At a second signal they do
    not, for a kernel that never ends: where one raises, this gate is shut for good (where it `shuts`), since
    it is unknown in what wgpu was interrupted. Each device has a gate; the lock is common to all.

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
        signals.enter()
        try:
            if threading.get_ident() != _process.main:
                _process.lock.acquire()
            elif _process.depth:
                _process.lock.acquire()
                _process.depth += 1
            else:
                if not _process.lock.acquire(blocking=False):
                    _wait()
                _process.outermost = self
                _process.depth = 1
            _process.inside += 1
            if self.refusal is not None:  # while this thread waited
                _leave()
                self.check()
        except BaseException as error:
            signals.leave(error)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        _leave()
        raised = error
        try:
            if isinstance(error, Exception):
                self._translate(error)
        except WebnormError as translated:
            raised = translated
            raise
        finally:
            signals.leave(raised)

    def _translate(self, error: Exception) -> None:
        signals.let_through(error)
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
        outermost = main and not signals.is_held()
        if outermost:
            signals.enter()
        noted: list[int] = []
        try:
            if _process.lock.acquire(blocking=False):
                try:
                    if not _process.inside:
                        work()
                finally:
                    _process.lock.release()
        finally:
            if outermost:
                noted = signals.drop()
                signals.leave()
        for number in noted:
            interrupt_later(number)


def interrupt_later(number: int) -> None:
    """Have the main thread interrupted in a moment, for where Python drops what is raised: in a callback."""
    if hasattr(signal, "pthread_kill") and _process.main is not None:
        threading.Timer(_LOOK_S, signal.pthread_kill, (_process.main, number)).start()
    else:
        threading.Timer(_LOOK_S, _thread.interrupt_main, (number,)).start()


def uses_wgpu() -> None:
    """Say that wgpu is used from now on: a process that is forked has to keep off it."""
    _process.uses_wgpu = True


def forked() -> bool:
    """Whether this process was forked from one that used wgpu."""
    return _process.refusal is not None


def _wait() -> None:
    """Take the lock from another thread when it is done; a signal's handler may end the wait."""
    while not _process.lock.acquire(timeout=_LOOK_S):
        signals.answer()


def _leave() -> None:
    last = False
    if threading.get_ident() == _process.main:
        _process.depth -= 1
        last = _process.depth == 0
    _process.inside -= 1
    _process.lock.release()
    if last:
        _process.outermost = None


def _shut() -> None:
    """Shut the gate that a second signal has broken into: it is unknown in what wgpu was interrupted."""
    gate = _process.outermost
    if gate is not None and gate.shuts:
        gate.refusal = _INTERRUPTED


signals.forced.append(_shut)
signals.closed.append(globals())


def _after_fork() -> None:
    """In the child: threads that held a lock are gone, and so are those that wgpu waits for."""
    child = _Process()
    child.uses_wgpu, child.refusal = _process.uses_wgpu, _FORKED if _process.uses_wgpu else None
    vars(_process).update(vars(child))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
