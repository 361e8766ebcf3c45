"""A child process that owns the device.

A shader that panics the compiler aborts its process, and one that never ends hangs its device; neither may
take a run down. The parent sends a generator function and a job, the child sends back what it yields, and
every silence longer than the time limit ends the child. Work on its own arrays is none: only a kernel, or its
compiler, can be silent for long. A task can be given up between two signs of life, and the child lives on.

The child is no child of `multiprocessing`: a daemonic process may have it, and a script needs no main guard
where its tasks are not its own.
"""

from __future__ import annotations

import itertools
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import process, spawn
from pathlib import Path
from typing import Any

from webnorm import signals
from webnorm.errors import LimitReached, WebnormError, sentence
from webnorm.files.atomic import unnamed
from webnorm.lab.process.channel import Channel, ChannelClosed, ChannelSilent
from webnorm.op.blocks import on_progress
from webnorm.op.registry import user_ops

# A child whose end of the channel is closed has so long to end by itself.
_END_S = 5.0
# Why a child ends whose device is gone; wgpu panics where that happens to it in the middle of a submission.
LOST = "the device was lost"
# The last of what the child printed, in which its panic is looked for.
_LAST_WORDS = 1 << 16
# The child finds modules where its parent does.
_CODE = (
    "import sys; handle, nice, *sys.path[:] = sys.argv[1:]; sys.argv[1:] = []; "
    "from webnorm.lab.process.worker import serve; serve(int(handle), int(nice))"
)
TIME_LIMIT_S = 60.0
# Between two signs of life of a child that is at work; time limits are seconds.
_ALIVE_S = 0.2
# A child that is told to leave its task, and gives no sign of life, is killed after so long.
_GRACE_S = 0.25
_numbers = itertools.count()
Work = Callable[[Any, Any], Iterator[Any]]  # run in the child: (device, job) -> events, all picklable


class ChildProcess:
    """The process, from the parent's side."""

    def __init__(self, nice: int) -> None:
        # What the child prints.
        self._stderr = unnamed()
        self.channel, theirs = Channel.pair()
        handle, handed_on = theirs.for_child()
        self._sending = threading.Lock()
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        try:
            self.process = subprocess.Popen(
                [sys.executable, *flags, "-P", "-c", _CODE, str(handle), str(nice), *map(str, sys.path)],
                stdin=subprocess.DEVNULL,
                stderr=self._stderr,
                **handed_on,
            )
        except OSError as error:
            self._close()
            raise WebnormError(f"cannot start a worker process: {error.strerror}") from error
        finally:
            theirs.close()

    def send(self, message: bytes, limit: float) -> None:
        """Send a message, whole; threads take turns."""
        with self._sending:
            self.channel.send(message, limit)

    def end(self, patience_s: float) -> None:
        """Kill it, and leave nothing of it."""
        self.process.kill()
        try:
            self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            # One that the system cannot end is left to it.
            threading.Thread(target=self.process.wait, daemon=True).start()
        self._close()

    def _close(self) -> None:
        self.channel.close()
        self._stderr.close()

    def last_words(self) -> str:
        """Why the child ended: the panic it printed, else its exit status."""
        try:
            code = self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return "the process closed its end of the channel: stopped"
        size = self._stderr.seek(0, 2)
        self._stderr.seek(max(0, size - _LAST_WORDS))
        text = self._stderr.read().decode(errors="replace")
        panic = re.search(r"panicked at [^\n]*\n([^\n]+)", text)
        if panic and "device is lost" in text:
            return LOST
        if panic:
            return f"the shader compiler panicked: {sentence(panic[1])}"
        if code < 0:
            known = {each.value: each.name for each in signal.Signals}
            name = known.get(-code, f"signal {-code}")
            guess = ", as where memory runs out" if name == "SIGKILL" else ""
            return f"the process crashed with {name}{guess}"
        return f"the process ended with exit status {code}"


class WorkerDied(Exception):
    """The child crashed or was killed for its silence; the message says which in one line."""


class WorkerTimedOut(WorkerDied):
    """The child was killed for its silence, or for not being done: a machine may be busy."""


class TaskFailed(Exception):
    """A task went wrong in a way that nobody foresaw, memory that ran out included; the child lives on.

    The message is one line: the exception's type and text. `details` is its traceback.
    """

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message, details)
        self.message, self.details = message, details

    def __str__(self) -> str:
        return self.message


class TaskCancelled(Exception):
    """The task was given up because somebody asked for it."""


class TaskLimits:
    """A task's time limits, in seconds, of silence and of the whole; and a way to give it up."""

    def __init__(self, time_limit_s: float | None = None, whole_limit_s: float | None = None) -> None:
        self.time_limit_s = TIME_LIMIT_S if time_limit_s is None else time_limit_s
        self.whole_limit_s = whole_limit_s
        self.left = False
        self._ends = float("inf")
        self._lock = threading.Lock()
        self._task: tuple[ChildProcess, int] | None = None
        # Whether the child has the task; whether its stream waits, and the child was killed meanwhile.
        self.answered = self._waits = self.killed = False

    def leave(self) -> None:
        """Have the task end at its next sign of life; from any thread, and before it began, too.

        Where none comes within a short grace, the child is killed.
        """
        with self._lock:
            first, self.left = not self.left, True
        if first and self._task is not None:
            child, number = self._task
            late = threading.Timer(_GRACE_S, self._kill)
            late.daemon = True
            late.start()
            with suppress(ChannelClosed, ChannelSilent):
                child.send(pickle.dumps(number), _GRACE_S)

    def _kill(self) -> None:
        # Who does not wait has no answer because it did not ask: then the grace begins when it does.
        with self._lock:
            if self._waits and self._task is not None:
                self.killed = True
                self._task[0].process.kill()

    def begin(self, child: ChildProcess, number: int) -> None:
        """The task is going to be the child's; raises TaskCancelled where it was given up before."""
        with self._lock:
            if self.left:
                raise TaskCancelled
            self._task = child, number
            if self.whole_limit_s is not None:
                self._ends = time.monotonic() + self.whole_limit_s

    @contextmanager
    def waiting(self) -> Iterator[float]:
        """How long to wait for the child now; raises ChannelSilent where that time is over."""
        with self._lock:
            self._waits = True
        try:
            limit = min(self.time_limit_s, self._ends - time.monotonic())
            if limit <= 0:
                raise ChannelSilent
            yield min(limit, _GRACE_S) if self.left else limit
        finally:
            with self._lock:
                self._waits = False

    def exceeded(self) -> str:
        """Which limit was."""
        if time.monotonic() >= self._ends:
            return f"not done within {self.whole_limit_s:g} s: stopped"
        return f"no sign of life for {self.time_limit_s:g} s: stopped"


@contextmanager
def explain_worker_failure(what: str, hint: str = "") -> Iterator[None]:
    """Have a WebnormError say that something failed because a worker inside did."""
    try:
        yield
    except (WorkerDied, TaskFailed) as failure:
        raise WebnormError(f"{what} failed: {failure}{hint}") from failure


class Worker:
    """Runs tasks in a child that is started when needed and again after it died.

    A child that does not end within `patience_s` of being killed is waited for beside the work.
    """

    def __init__(
        self,
        adapter: str | None = None,
        time_limit_s: float | None = None,
        patience_s: float = 5.0,
    ) -> None:
        self.adapter, self.patience_s = adapter, patience_s
        self.time_limit_s = TIME_LIMIT_S if time_limit_s is None else time_limit_s
        self._child: ChildProcess | None = None
        # Tells the tasks apart: who leaves off in the middle of one leaves its child in the middle, too.
        self._running: int | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The child's number, where there is one."""
        return None if self._child is None else self._child.process.pid

    @signals.deferring_steps
    def stream(self, work: Work, job: Any, limits: TaskLimits | None = None) -> Iterator[Any]:
        """Yield what `work(device, job)` yields in the child.

        Raises WorkerDied when the child crashes or exceeds a time limit, of the limits or else the worker's;
        TaskCancelled when it was given up; WebnormError for a mistake found there, TaskFailed for whatever
        else happens to the work, its job or its events.
        """
        if getattr(process.current_process(), "_inheriting", False):
            raise WebnormError(
                "the worker process reads a script again whose tasks are its own; "
                'expected it to start a worker below `if __name__ == "__main__":` only'
            )
        if self._running is not None:
            self.stop()
        number, limits = next(_numbers), limits or TaskLimits(self.time_limit_s)
        message = _packed(number, work, job, self.adapter)
        child = self.start()
        limits.begin(child, number)
        self._running = number
        try:
            with limits.waiting() as limit:
                child.send(message, limit)
            yield from self._events(child, number, limits)
        except (ChannelSilent, ChannelClosed) as end:
            if limits.left:
                raise TaskCancelled from None
            if isinstance(end, ChannelSilent):
                raise WorkerTimedOut(limits.exceeded()) from None
            raise WorkerDied(child.last_words()) from None
        finally:
            if self._running == number or limits.killed:
                self.stop()

    def _events(self, child: ChildProcess, number: int, limits: TaskLimits) -> Iterator[Any]:
        """The events of a task until its end; none after it was given up."""
        while self._running == number:
            kind, value = self._next(child, limits)
            if kind == "end":
                # A child that says itself that it is of no use any more is stopped as one in the middle is.
                if not isinstance(value, WorkerDied):
                    self._running = None
                if limits.left:
                    raise TaskCancelled
                if value is not None:
                    raise value
            elif kind == "event" and not limits.left:
                yield value
                if self._running != number:
                    raise WorkerDied("the worker was given another task")

    def _next(self, child: ChildProcess, limits: TaskLimits) -> Any:
        """The next message of the child: an "event", "alive" while it is at work on arrays of its own, or the
        "end" with what was raised, if anything.
        """
        try:
            with limits.waiting() as limit, signals.interruptible():
                message = child.channel.receive(limit)
            limits.answered = True
            return pickle.loads(message)
        except (ChannelClosed, ChannelSilent):
            raise
        except Exception as error:  # of the event's own code
            signals.let_through(error)
            raise _failure(error, "an event cannot be read: ") from None

    def start(self, nice: int = 0) -> ChildProcess:
        """The child, started where there is none: so much nicer to others than this process."""
        if self._child is None:
            self._child = ChildProcess(nice)
        return self._child

    def kill(self) -> None:
        """Kill the child, from any thread; a stream that waits for it raises WorkerDied."""
        child = self._child
        if child is not None:
            child.process.kill()

    def stop(self) -> None:
        """End the child; the next task has a fresh one."""
        child, self._child, self._running = self._child, None, None
        if child is not None:
            child.end(self.patience_s)


def _packed(number: int, work: Work, job: Any, adapter: str | None) -> bytes:
    """The first message of a task; what of it is the script's own has the script read again."""
    try:
        # Kernels' files name ops; those of the user's are loaded in the child before it reads the job.
        sources = [op.source for op in user_ops().values()]
        packed = pickle.dumps((sources, pickle.dumps((work, job))))
        main = spawn.get_preparation_data("") if b"__main__" in packed else {}
    except Exception as error:
        signals.let_through(error)
        raise _failure(error, "the task cannot be sent: ") from None
    return pickle.dumps(
        (number, adapter, {k: v for k, v in main.items() if k.startswith("init_main")}, packed)
    )


def _unpacked(packed: bytes) -> Any:
    """What `_packed` packed, once the ops of the user's are loaded."""
    sources, rest = pickle.loads(packed)
    for source in sources:
        # One whose files have changed since matters to a job that is about it, which says so.
        with suppress(WebnormError):
            source.op()
    return pickle.loads(rest)


def _failure(error: BaseException, before: str = "") -> TaskFailed:
    """What the parent is told of an exception, whatever its own code does."""
    try:
        said = sentence(str(error))
    except Exception:
        said = ""
    try:
        details = "".join(traceback.format_exception(error))
    except Exception:
        details = ""
    return TaskFailed(f"{before}{type(error).__name__}{': ' if said else ''}{said}", details)


class _Leaving(BaseException):
    """Ends a task that the parent gave up, in the middle of work that nobody waits for."""


class _Orders:
    """What the parent says, in the child: a task, or the number of one that is given up."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._number = self._left = -1

    def task(self) -> tuple[str | None, dict[str, str], bytes]:
        """The next task: the adapter, what of it is the script's own, and the work with its job."""
        while isinstance(message := self._receive(), int):
            self._left = message
        self._number, *task = message
        return tuple(task)

    def heed(self) -> None:
        """Raise _Leaving where the parent has given the task up."""
        while self._channel.waits():
            self._left = self._receive()
        if self._left == self._number:
            raise _Leaving

    def _receive(self) -> Any:
        return pickle.loads(self._channel.receive())


def serve(handle: int, nice: int) -> None:
    """The child's loop: open the device with the first task, answer until the parent is gone."""
    # The parent decides what Ctrl-C means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _come_last(nice)
    channel = Channel.inherited(handle)
    channel.end_with_it()
    orders = _Orders(channel)

    def send(kind: str, value: Any = None) -> None:
        channel.send(pickle.dumps((kind, value)))
        if kind != "end":
            orders.heed()

    on_progress(_now_and_then(lambda: send("alive")))
    device = None
    while True:
        try:
            adapter, main, packed = orders.task()
            raised: Exception | None = None
            # Whatever ends this process from here on, the task did it.
            send("alive")
            if main:
                _read_main(main)
            work, job = _unpacked(packed)
            if device is None:
                device = _opened(adapter)
            for value in work(device, job):
                # What is found on a device that is gone says nothing of a kernel.
                if device.lost:
                    break
                send("event", value)
        except ChannelClosed:
            return
        except _Leaving:
            pass
        except BaseException as error:
            raised = _told(error)
        work = job = value = None
        if device is not None and device.lost:
            raised = WorkerDied(LOST)
        send("end", raised)


def _opened(adapter: str | None) -> Any:
    from webnorm.gpu.device import find_adapter, open_device

    return open_device(find_adapter(adapter))


def _told(error: BaseException) -> Exception:
    """What is raised in the parent for what was raised here."""
    if not isinstance(error, WebnormError):
        return _failure(error)
    kind = LimitReached if isinstance(error, LimitReached) else WebnormError
    return kind(sentence(str(error)), error.place)


def _come_last(nice: int) -> None:
    """Leave processor and memory to others where they are short."""
    if hasattr(os, "nice"):
        os.nice(nice)
    # Where a compiler takes all memory, the system ends this process and no other of the user's.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _now_and_then(do: Callable[[], None]) -> Callable[[], None]:
    """Do something at most every few tenths of a second, however often it is asked for."""
    last = 0.0

    def ask() -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _ALIVE_S:
            last = now
            do()

    return ask


def _read_main(main: dict[str, str]) -> None:
    """Read the parent's script, as `multiprocessing` does; it must not start workers meanwhile."""
    current: Any = process.current_process()
    current._inheriting = True
    try:
        spawn.prepare(main)
    finally:
        del current._inheriting
