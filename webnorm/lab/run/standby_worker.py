"""A worker with a spare child process, for kernels under development that may crash theirs.

Two children have the device open. The first one runs the tasks. When it dies the second one replaces it at
once, and another child starts in the background.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from webnorm import signals
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.kernels.headers.traits import Traits
from webnorm.kernels.rendering import sandbox
from webnorm.lab.process.worker import (
    TaskCancelled,
    TaskLimits,
    Work,
    Worker,
    WorkerDied,
    explain_worker_failure,
)
from webnorm.lab.run import jobs
from webnorm.lab.run.evaluation import warm_up

# A file is rendered at every save, so that a text that takes longer is a mistake.
_RENDERING = sandbox.RenderLimits(time_s=2.0, text=2 << 20)
# The time to wait for a killed child. The system may need long to end one that hangs in its driver.
_PATIENCE_S = 0.05
# Opening a device takes cores from a running task. The spare therefore waits for a moment without tasks, but
# not longer than the second time.
_QUIET_S, _AT_LATEST_S = 0.5, 5.0
# The spare's niceness. It is small, because the spare keeps it when it becomes the first child.
_NICE = 5
# The share of the machine's memory that a child may fill.
_SHARE = 0.5


# The number of children that a task is sent to if they die before they receive it.
_ATTEMPTS = 3


class _TaskNotReceived(WorkerDied):
    """The child died before it received the task, so that the task is not the cause."""


class StandbyWorker:
    """Runs tasks, one at a time, in the first of two children that have the device open.

    The second child has read the snippets in `roots`, which kernels include. `deaths` counts the lost
    children, including those that had to be killed because a cancellation failed.
    """

    def __init__(self, adapter: str | None = None, roots: tuple[Path, ...] = ()) -> None:
        self.adapter, self.roots, self.deaths = adapter, roots, 0
        self._changed = threading.Condition()
        # The active child first, then the spare.
        self._ready: list[Worker] = []
        self._opening: Worker | None = None
        self._keeper: threading.Thread | None = None
        self._described: tuple[dict[str, Any], Traits] | None = None
        # The reason why the last child could not open the device.
        self._failure: Exception | None = None
        # The limits of the running task, and the time at which the last one ended.
        self._limits: TaskLimits | None = None
        self._rests_since = 0.0
        self._stopped = False

    def __enter__(self) -> StandbyWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of the ready children, the active one first."""
        with self._changed:
            return tuple(worker.pid for worker in self._ready if worker.pid is not None)

    def start(self) -> None:
        """Start to open the device in two children, one after the other, in the background."""
        with self._changed:
            if self._keeper is None and not self._stopped:
                self._keeper = threading.Thread(target=self._keep, name="hot worker", daemon=True)
                self._keeper.start()

    def opened(self) -> tuple[dict[str, Any], Traits]:
        """Wait for the device and return its description and traits; raise WebnormError if that fails."""
        self._wait(TaskLimits())
        assert self._described is not None
        return self._described

    def stream(
        self, work: Work, job: Any, time_limit_s: float, whole_limit_s: float | None = None
    ) -> Iterator[Any]:
        """Yield the values that `work(device, job)` yields in the active child.

        `time_limit_s` limits silence, and `whole_limit_s` the whole task after it is sent. Raises the
        exceptions of `Worker.stream`, and TaskCancelled after `leave` or `stop`. Closing the iterator cancels
        the task.
        """
        limits = TaskLimits(time_limit_s, whole_limit_s)
        with self._changed:
            if self._limits is not None:
                raise RuntimeError("a task is running already; run one at a time")
            self._limits = limits
        try:
            for _ in range(_ATTEMPTS - 1):
                with suppress(_TaskNotReceived):
                    yield from self._attempt(work, job, limits)
                    return
            yield from self._attempt(work, job, limits)
        finally:
            with self._changed:
                self._limits = None
                self._rests_since = time.monotonic()

    def _attempt(self, work: Work, job: Any, limits: TaskLimits) -> Iterator[Any]:
        """Yield the events from the active child; raise _TaskNotReceived if it died before the task."""
        worker = self._wait(limits)
        events = worker.stream(work, job, limits)
        try:
            for event in events:  # noqa: UP028 - closing this generator cancels the task, not the child
                yield event
        except GeneratorExit:
            limits.leave()
            with signals.ignored(Exception):
                next(events)
            raise
        except WorkerDied as death:
            raise death if limits.answered else _TaskNotReceived(str(death)) from None
        finally:
            with self._changed:
                if self._stopped or worker.pid is None:
                    self._drop(worker)

    def allow(self, time_limit_s: float) -> None:
        """Set the time limit for silence of the running task."""
        with self._changed:
            if self._limits is not None:
                self._limits.time_limit_s = time_limit_s

    def leave(self) -> None:
        """Cancel the running task, if any, from any thread and without waiting.

        Its stream raises TaskCancelled. The child stays alive if it gives a sign of life within a short time.
        """
        with self._changed:
            limits = self._limits
        if limits is not None:
            limits.leave()
            with self._changed:
                self._changed.notify_all()

    def stop(self) -> None:
        """End all children, from any thread; no more tasks start."""
        with self._changed:
            self._stopped = True
            if self._limits is not None:
                self._limits.left = True
            busy = self._ready[0] if self._ready and self._limits is not None else None
            for worker in (busy, self._opening):
                # Its own thread cleans up.
                if worker is not None:
                    worker.kill()
            for worker in self._ready:
                if worker is not busy:
                    worker.stop()
            self._ready = [worker for worker in self._ready if worker is busy]
            self._changed.notify_all()

    def _wait(self, limits: TaskLimits) -> Worker:
        """Wait for the active worker and return it."""
        self.start()
        with self._changed:
            if not self._ready:
                # An earlier failure may not happen again.
                self._failure = None
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._ready or self._failure or self._stopped or limits.left)
            if self._stopped or limits.left:
                raise TaskCancelled
            if self._ready:
                return self._ready[0]
            assert self._failure is not None
            raise self._failure

    def _drop(self, worker: Worker) -> None:
        self.deaths += not self._stopped
        self._ready.remove(worker)
        worker.stop()
        self._changed.notify_all()

    def _keep(self) -> None:
        """Keep two children ready until the worker is stopped."""
        while (worker := self._next()) is not None:
            failure: Exception | None = None
            described = None
            try:
                with explain_worker_failure("opening the adapter"):
                    (described,) = worker.stream(_open, self.roots if self._ready else None)
            except Exception as error:
                signals.let_through(error)
                failure = error
            with self._changed:
                self._opening = None
                if failure is None and not self._stopped:
                    self._described = described
                    self._ready.append(worker)
                else:
                    self._failure = failure
                    worker.stop()
                self._changed.notify_all()

    def _next(self) -> Worker | None:
        """Wait until a worker has to be opened, and start its child; return None after a stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or (len(self._ready) < 2 and self._failure is None))
            self._wait_for_quiet()
            if self._stopped:
                return None
            self._opening = worker = Worker(self.adapter, patience_s=_PATIENCE_S)
            # The stream tries again and raises the error.
            with suppress(WebnormError):
                worker.start(_NICE if self._ready else 0)
            return worker

    def _wait_for_quiet(self) -> None:
        """Wait until the ready child has had no task for a moment."""
        latest = time.monotonic() + _AT_LATEST_S
        while self._ready and not self._stopped and (now := time.monotonic()) < latest:
            rest = 0.0 if self._limits is not None else now - self._rests_since
            if rest >= _QUIET_S:
                return
            self._changed.wait(min(_QUIET_S - rest, latest - now))


def _open(device: Device, roots: tuple[Path, ...] | None) -> Iterator[Any]:
    """Prepare a child, as its first task. A spare child gets `roots` and has time to warm up."""
    sandbox.limits = _RENDERING
    sandbox.start()
    _bound_memory()
    if roots is not None:
        warm_up(device, roots)
    yield from jobs.describe_device(device, None)


def _bound_memory() -> None:
    """Limit this process to a share of the machine's memory, if the system supports that.

    The limit applies to data beyond their current size, because drivers map more address space than memory.
    """
    with suppress(AttributeError, ValueError, OSError):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        (now,) = re.findall(r"^VmData:\s*(\d+) kB$", status, re.MULTILINE)
        sandbox.set_limit("RLIMIT_DATA", int(now) * 1024 + int(_SHARE * memory))
