"""A worker whose successor stands ready: for kernels that are being written, which take theirs down.

Two children have their device open. The first does the tasks; when it dies the second is the first at once,
and another is opened in the background.
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

# What is edited is rendered with every save: a text that takes long is a mistake.
_RENDERING = sandbox.RenderLimits(time_s=2.0, text=2 << 20)
# Nobody waits for a child that was killed; the system may take long to end one that hangs in its driver.
_PATIENCE_S = 0.05
# Opening a device takes cores from the task that runs: a spare waits until none has run for a moment, though
# not for ever.
_QUIET_S, _AT_LATEST_S = 0.5, 5.0
# It comes behind the first one then, but not far: it stays as nice when it is the hot one.
_NICE = 5
# Of the machine's memory, the share that a child may fill.
_SHARE = 0.5


# A task goes to so many children that had died before they heard of it.
_ATTEMPTS = 3


class _Unheard(WorkerDied):
    """The child died before it took the task, which is not to blame."""


class StandbyWorker:
    """Runs tasks, one at a time, in the first of two children that have their device open. The second has
    read the snippets in `roots`, where the kernels that are judged find theirs.

    `deaths` counts the children that were lost, those that did not let themselves be interrupted included.
    """

    def __init__(self, adapter: str | None = None, roots: tuple[Path, ...] = ()) -> None:
        self.adapter, self.roots, self.deaths = adapter, roots, 0
        self._changed = threading.Condition()
        # The hot one first, then the spare.
        self._ready: list[Worker] = []
        self._opening: Worker | None = None
        self._keeper: threading.Thread | None = None
        self._described: tuple[dict[str, Any], Traits] | None = None
        # Why the last one could not be opened.
        self._failure: Exception | None = None
        # Of the task that runs; and when the last one ended.
        self._limits: TaskLimits | None = None
        self._rests_since = 0.0
        self._stopped = False

    def __enter__(self) -> StandbyWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pids(self) -> tuple[int, ...]:
        """The numbers of the children that are ready, the hot one's first."""
        with self._changed:
            return tuple(worker.pid for worker in self._ready if worker.pid is not None)

    def start(self) -> None:
        """Begin to open the device in two children, one after the other, and return at once."""
        with self._changed:
            if self._keeper is None and not self._stopped:
                self._keeper = threading.Thread(target=self._keep, name="hot worker", daemon=True)
                self._keeper.start()

    def opened(self) -> tuple[dict[str, Any], Traits]:
        """The device's description and traits, as soon as it is open; WebnormError where it cannot be."""
        self._wait(TaskLimits())
        assert self._described is not None
        return self._described

    def stream(
        self, work: Work, job: Any, time_limit_s: float, whole_limit_s: float | None = None
    ) -> Iterator[Any]:
        """Yield what `work(device, job)` yields in the hot child.

        The limits are of silence, and of the whole task from its sending on. Raises what `Worker.stream`
        raises; TaskCancelled after `leave` or `stop`. Who leaves off in the middle leaves the task.
        """
        limits = TaskLimits(time_limit_s, whole_limit_s)
        with self._changed:
            if self._limits is not None:
                raise RuntimeError("a task runs already; expected one at a time")
            self._limits = limits
        try:
            for _ in range(_ATTEMPTS - 1):
                with suppress(_Unheard):
                    yield from self._attempt(work, job, limits)
                    return
            yield from self._attempt(work, job, limits)
        finally:
            with self._changed:
                self._limits = None
                self._rests_since = time.monotonic()

    def _attempt(self, work: Work, job: Any, limits: TaskLimits) -> Iterator[Any]:
        """The events from the hot child; raises _Unheard where that had died before."""
        worker = self._wait(limits)
        events = worker.stream(work, job, limits)
        try:
            for event in events:  # noqa: UP028 - who closes this one leaves the task, not the child
                yield event
        except GeneratorExit:
            limits.leave()
            with signals.ignored(Exception):
                next(events)
            raise
        except WorkerDied as death:
            raise death if limits.answered else _Unheard(str(death)) from None
        finally:
            with self._changed:
                if self._stopped or worker.pid is None:
                    self._drop(worker)

    def allow(self, time_limit_s: float) -> None:
        """From now on the task that runs may be silent for so long."""
        with self._changed:
            if self._limits is not None:
                self._limits.time_limit_s = time_limit_s

    def leave(self) -> None:
        """Give up the task that runs, from any thread and without waiting: its stream raises TaskCancelled.

        The child lives on where it gives a sign of life within a short grace. Where no task runs nothing
        happens.
        """
        with self._changed:
            limits = self._limits
        if limits is not None:
            limits.leave()
            with self._changed:
                self._changed.notify_all()

    def stop(self) -> None:
        """End all children, from any thread; no task begins any more."""
        with self._changed:
            self._stopped = True
            if self._limits is not None:
                self._limits.left = True
            busy = self._ready[0] if self._ready and self._limits is not None else None
            for worker in (busy, self._opening):
                # Its own thread clears it away.
                if worker is not None:
                    worker.kill()
            for worker in self._ready:
                if worker is not busy:
                    worker.stop()
            self._ready = [worker for worker in self._ready if worker is busy]
            self._changed.notify_all()

    def _wait(self, limits: TaskLimits) -> Worker:
        """The hot worker, as soon as there is one."""
        self.start()
        with self._changed:
            if not self._ready:
                # What failed before may do better now.
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
        """Have two children ready, until nobody wants any."""
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
        """The next worker that has to be opened, its child started; None where no more are."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or (len(self._ready) < 2 and self._failure is None))
            self._wait_for_quiet()
            if self._stopped:
                return None
            self._opening = worker = Worker(self.adapter, patience_s=_PATIENCE_S)
            # What hinders it is told by the stream, which tries again.
            with suppress(WebnormError):
                worker.start(_NICE if self._ready else 0)
            return worker

    def _wait_for_quiet(self) -> None:
        """Where one is ready, leave it alone with its task for a while."""
        latest = time.monotonic() + _AT_LATEST_S
        while self._ready and not self._stopped and (now := time.monotonic()) < latest:
            rest = 0.0 if self._limits is not None else now - self._rests_since
            if rest >= _QUIET_S:
                return
            self._changed.wait(min(_QUIET_S - rest, latest - now))


def _open(device: Device, roots: tuple[Path, ...] | None) -> Iterator[Any]:
    """The first task of a child: to be ready for the others. With `roots`, a spare's, it has the time to
    rehearse.
    """
    sandbox.limits = _RENDERING
    sandbox.start()
    _bound_memory()
    if roots is not None:
        warm_up(device, roots)
    yield from jobs.describe_device(device, None)


def _bound_memory() -> None:
    """Have this process take no more than a share of the machine's memory, where the system knows of that.

    Drivers map far more address space than there is memory: what counts is data, beyond what it has by now.
    """
    with suppress(AttributeError, ValueError, OSError):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        (now,) = re.findall(r"^VmData:\s*(\d+) kB$", status, re.MULTILINE)
        sandbox.set_limit("RLIMIT_DATA", int(now) * 1024 + int(_SHARE * memory))
