"""The gate that guards all use of wgpu against other threads, forked processes and interrupts.

Python's locks do not protect against Ctrl-C: it may arrive just after a lock was acquired, or leave wgpu-py
in the middle of a call.
"""

from __future__ import annotations

import _thread
import os
import re
import signal
import threading
import traceback
from collections.abc import Callable

from webnorm import signals
from webnorm.errors import WebnormError, sentence
from webnorm.gpu.backend import IS_DAWN, wgpu

_FORKED = (
    "this process was forked from one that uses the GPU and cannot use it; "
    "use the start method spawn, or fork before the first use"
)
_INTERRUPTED = "the device was interrupted at work; open another with webnorm.open_device"
_LOST = "the device is lost; open another with webnorm.open_device"
# wgpu's message, and Dawn's: "[Device] is lost".
_IS_LOST = re.compile(r"[Dd]evice\]? is lost")
# Seconds between the checks for interrupts of a thread that waits for another.
_LOOK_S = 0.05


class _Process:
    """The state that all gates share.

    `depth` counts the gates that the main thread is in, `inside` the gates of the thread with the lock.
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
    """A reentrant lock: all code that uses wgpu runs inside `with gate:`, one thread at a time.

    Signal handlers, such as that for Ctrl-C, are deferred until the main thread leaves the gate. A second
    signal is not deferred, so that it can end a kernel that never returns. If its handler raises, the gate
    closes permanently (if it `shuts`), because wgpu's state is unknown. Each device has a gate; all gates
    share one lock.

    Entering a closed gate raises WebnormError, and wgpu's errors inside become WebnormErrors.
    """

    __slots__ = ("refusal", "shuts")

    def __init__(self, shuts: bool = True) -> None:
        self.refusal: str | None = None
        self.shuts = shuts

    def check(self) -> None:
        """Raise WebnormError if the gate is closed."""
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
            if self.refusal is not None:  # the gate closed while this thread waited
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
        if IS_DAWN and isinstance(error, wgpu.GPUError):
            # wgpudawn's errors are in a reference cycle with frames, and the frames of a write have a view of
            # the array. Python 3.11 crashes when its garbage collector clears such a view. `let_through`
            # would copy the references of the frames.
            traceback.clear_frames(error.__traceback__)
        signals.let_through(error)
        text = sentence(str(error))
        if _IS_LOST.search(text) and self.shuts:
            self.refusal = self.refusal or _LOST
            raise WebnormError(self.refusal) from error
        if isinstance(error, wgpu.GPUError) or text.startswith("Could not map buffer"):
            raise WebnormError(f"the device refused: {text}") from error

    def run_if_idle(self, work: Callable[[], object]) -> None:
        """Do some work if no thread is inside, including this one; otherwise skip it.

        This is for callbacks of the garbage collector, which must not wait.
        """
        if self.refusal is not None or _process.refusal is not None:
            return
        main = threading.get_ident() == _process.main
        if main and _process.depth:
            return
        outermost = main and not signals.is_deferring()
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
                noted = signals.discard()
                signals.leave()
        for number in noted:
            interrupt_later(number)


def interrupt_later(number: int) -> None:
    """Send the main thread a signal in a moment. It is for callbacks, whose exceptions Python drops."""
    if hasattr(signal, "pthread_kill") and _process.main is not None:
        threading.Timer(_LOOK_S, signal.pthread_kill, (_process.main, number)).start()
    else:
        threading.Timer(_LOOK_S, _thread.interrupt_main, (number,)).start()


def uses_wgpu() -> None:
    """Record that this process uses wgpu, so that forked processes must not."""
    _process.uses_wgpu = True


def forked() -> bool:
    """Return whether this process was forked from one that used wgpu."""
    return _process.refusal is not None


def _wait() -> None:
    """Wait for the lock of another thread; an exception of a signal handler may end the wait."""
    while not _process.lock.acquire(timeout=_LOOK_S):
        signals.call_deferred()


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
    """Close the gate that a second signal interrupted, because wgpu's state is unknown."""
    gate = _process.outermost
    if gate is not None and gate.shuts:
        gate.refusal = _INTERRUPTED


signals.forced.append(_shut)
signals.protected.append(globals())


def _after_fork() -> None:
    """Reset the state in a child process, where the other threads do not exist, and close all gates."""
    child = _Process()
    child.uses_wgpu, child.refusal = _process.uses_wgpu, _FORKED if _process.uses_wgpu else None
    vars(_process).update(vars(child))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
