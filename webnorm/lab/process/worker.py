"""A child process that owns the device.

A shader that makes the compiler panic aborts its process, and a shader without end hangs its device. A run
has to survive both. The parent sends a generator function and a job, and the child sends back the generator's
values. A silence longer than the time limit ends the child. Work on arrays sends signs of life, so that only
a kernel or its compiler can be silent for long. A task can be cancelled between two signs of life, and the
child stays alive.

The child is not started by `multiprocessing`. Daemonic processes can therefore start one, and a script needs
a main guard only if it defines its own tasks.
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
from webnorm.gpu.backend_names import BACKEND_VARIABLE, BACKENDS
from webnorm.lab.process.channel import Channel, ChannelClosed, ChannelSilent
from webnorm.op.blocks import on_progress
from webnorm.op.registry import unregister_others, user_ops

# Seconds that a child has to end by itself after its end of the channel is closed.
_END_S = 5.0
# The reason for the end of a child that lost its device. wgpu panics if that happens during a submission.
LOST = "the device was lost"
# The part at the end of the child's output that is searched for a panic.
_LAST_WORDS = 1 << 16
# The child uses the parent's module path.
_CODE = (
    "import sys; handle, nice, *sys.path[:] = sys.argv[1:]; sys.argv[1:] = []; "
    "from webnorm.lab.process.worker import serve; serve(int(handle), int(nice))"
)
TIME_LIMIT_S = 60.0
# Seconds between two signs of life of a working child.
_ALIVE_S = 0.2
# A child that gets the order to cancel its task and gives no sign of life is killed after these seconds.
_GRACE_S = 0.25
_numbers = itertools.count()
Work = Callable[[Any, Any], Iterator[Any]]  # run in the child: (device, job) -> events, all picklable


class ChildProcess:
    """The child process as seen by its parent."""

    def __init__(self, nice: int, backend: str | None = None) -> None:
        # The child's output.
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
                env=None if backend is None else {**os.environ, BACKEND_VARIABLE: backend},
                **handed_on,
            )
        except OSError as error:
            self._close()
            raise WebnormError(f"cannot start a worker process: {error.strerror}") from error
        finally:
            theirs.close()

    def send(self, message: bytes, limit: float) -> None:
        """Send a message as a whole; threads take turns."""
        with self._sending:
            self.channel.send(message, limit)

    def end(self, patience_s: float) -> None:
        """Kill the process and close its channel and output."""
        self.process.kill()
        try:
            self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            # The system cannot end the process yet, so that a thread waits for it.
            threading.Thread(target=self.process.wait, daemon=True).start()
        self._close()

    def _close(self) -> None:
        self.channel.close()
        self._stderr.close()

    def last_words(self) -> str:
        """Return the reason why the child ended: the panic that it printed, or its exit status."""
        try:
            code = self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return "the process was stopped: it closed its end of the channel"
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
            guess = ", perhaps because memory ran out" if name == "SIGKILL" else ""
            return f"the process crashed with {name}{guess}"
        return f"the process ended with exit status {code}"


class WorkerDied(Exception):
    """The child crashed, or was killed because it was silent; the message is one line."""


class WorkerTimedOut(WorkerDied):
    """The child was killed because it exceeded a time limit; the machine may have been busy."""


class TaskFailed(Exception):
    """A task raised an unexpected exception, including exhausted memory; the child stays alive.

    The message is one line: the exception's type and text. `details` is its traceback.
    """

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message, details)
        self.message, self.details = message, details

    def __str__(self) -> str:
        return self.message


class TaskCancelled(Exception):
    """The task was cancelled on request."""


class TaskLimits:
    """A task's time limits in seconds, for silence and for the whole task, and a way to cancel it."""

    def __init__(self, time_limit_s: float | None = None, whole_limit_s: float | None = None) -> None:
        self.time_limit_s = TIME_LIMIT_S if time_limit_s is None else time_limit_s
        self.whole_limit_s = whole_limit_s
        self.left = False
        self._ends = float("inf")
        self._lock = threading.Lock()
        self._task: tuple[ChildProcess, int] | None = None
        # True if the child has the task, if its stream waits, and if the child was killed during that wait.
        self.answered = self._waits = self.killed = False

    def leave(self) -> None:
        """Cancel the task at its next sign of life, from any thread, even before it starts.

        Without a sign of life within a short time the child is killed.
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
        # A stream that does not wait gets no sign of life either. Its grace period starts when it waits.
        with self._lock:
            if self._waits and self._task is not None:
                self.killed = True
                self._task[0].process.kill()

    def begin(self, child: ChildProcess, number: int) -> None:
        """Assign the task to a child; raise TaskCancelled if it was cancelled before."""
        with self._lock:
            if self.left:
                raise TaskCancelled
            self._task = child, number
            if self.whole_limit_s is not None:
                self._ends = time.monotonic() + self.whole_limit_s

    @contextmanager
    def waiting(self) -> Iterator[float]:
        """Provide the seconds to wait for the child now; raise ChannelSilent if that time is over."""
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
        """Return a sentence about the exceeded limit."""
        if time.monotonic() >= self._ends:
            return f"not done within {self.whole_limit_s:g} s: stopped"
        return f"no sign of life for {self.time_limit_s:g} s: stopped"


@contextmanager
def explain_worker_failure(what: str, hint: str = "") -> Iterator[None]:
    """Raise a worker's failure as a WebnormError that says what failed."""
    try:
        yield
    except (WorkerDied, TaskFailed) as failure:
        raise WebnormError(f"{what} failed: {failure}{hint}") from failure


class Worker:
    """Runs tasks in a child process, which is started when needed, and again after it died.

    The child opens an adapter, of the backend `engine` if that is one, or starts an engine such as "firefox",
    which ends with it.
    If a killed child does not end within `patience_s` seconds, a thread waits for it.
    """

    def __init__(
        self,
        adapter: str | None = None,
        time_limit_s: float | None = None,
        patience_s: float = 5.0,
        engine: str | None = None,
    ) -> None:
        self.adapter, self.engine, self.patience_s = adapter, engine, patience_s
        self.time_limit_s = TIME_LIMIT_S if time_limit_s is None else time_limit_s
        self._child: ChildProcess | None = None
        # The number of the child's task. A stream that is abandoned leaves its child in the middle of a task.
        self._running: int | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The child's process id, or None."""
        return None if self._child is None else self._child.process.pid

    @signals.deferring_steps
    def stream(self, work: Work, job: Any, limits: TaskLimits | None = None) -> Iterator[Any]:
        """Yield the values that `work(device, job)` yields in the child.

        Raises WorkerDied if the child crashes or exceeds a time limit of `limits` or the worker. Raises
        TaskCancelled after a cancellation, WebnormError if the work raises it, and TaskFailed for all other
        exceptions in the work, the job or the events.
        """
        if getattr(process.current_process(), "_inheriting", False):
            raise WebnormError(
                "the worker process imports the script that defines its tasks, and the script started "
                'another worker; start workers only below `if __name__ == "__main__":`'
            )
        if self._running is not None:
            self.stop()
        number, limits = next(_numbers), limits or TaskLimits(self.time_limit_s)
        message = _packed(number, work, job, (self.adapter, self.engine))
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
        """Yield the events of a task until it ends or is cancelled."""
        while self._running == number:
            kind, value = self._next(child, limits)
            if kind == "end":
                # A child that reports itself unusable is stopped like one in the middle of a task.
                if not isinstance(value, WorkerDied):
                    self._running = None
                if limits.left:
                    raise TaskCancelled
                if value is not None:
                    raise value
            elif kind == "event" and not limits.left:
                yield value
                if self._running != number:
                    raise WorkerDied("the worker started another task")

    def _next(self, child: ChildProcess, limits: TaskLimits) -> Any:
        """Return the child's next message: an "event", "alive", or "end" with an exception or None."""
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
        """Return the child; start it if necessary, with `nice` added to this process' niceness."""
        if self._child is None:
            self._child = ChildProcess(nice, self.engine if self.engine in BACKENDS else None)
        return self._child

    def kill(self) -> None:
        """Kill the child, from any thread; a stream that waits for it then raises WorkerDied."""
        child = self._child
        if child is not None:
            child.process.kill()

    def stop(self) -> None:
        """End the child; the next task starts a new one."""
        child, self._child, self._running = self._child, None, None
        if child is not None:
            child.end(self.patience_s)


def _packed(number: int, work: Work, job: Any, opened: tuple[str | None, str | None]) -> bytes:
    """Return the first message of a task. The child imports the script if the task refers to it."""
    try:
        # Kernel files name ops. The child loads user ops before it reads the job.
        sources = [op.source for op in user_ops().values()]
        packed = pickle.dumps((sources, pickle.dumps((work, job))))
        main = spawn.get_preparation_data("") if b"__main__" in packed else {}
    except Exception as error:
        signals.let_through(error)
        raise _failure(error, "the task cannot be sent: ") from None
    return pickle.dumps(
        (number, opened, {k: v for k, v in main.items() if k.startswith("init_main")}, packed)
    )


def _unpacked(packed: bytes) -> Any:
    """Load the parent's user ops and no others, and return the contents of a packed message."""
    sources, rest = pickle.loads(packed)
    unregister_others(source.name for source in sources)
    for source in sources:
        # An op whose files have changed is reported by the jobs that use it.
        with suppress(WebnormError):
            source.op()
    return pickle.loads(rest)


def _failure(error: BaseException, before: str = "") -> TaskFailed:
    """Return the failure that reports an exception to the parent, even if the exception's own code fails."""
    try:
        text = sentence(str(error))
    except Exception:
        text = ""
    try:
        details = "".join(traceback.format_exception(error))
    except Exception:
        details = ""
    return TaskFailed(f"{before}{type(error).__name__}{': ' if text else ''}{text}", details)


class _Leaving(BaseException):
    """Ends a cancelled task in the middle of its work."""


class _Orders:
    """The parent's orders, in the child: a task, or the number of a cancelled one."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._number = self._left = -1

    def task(self) -> tuple[tuple[str | None, str | None], dict[str, str], bytes]:
        """Return the next task: adapter and engine, data to import the script, and the work with its job."""
        while isinstance(message := self._receive(), int):
            self._left = message
        self._number, *task = message
        return tuple(task)

    def heed(self) -> None:
        """Raise _Leaving if the parent has cancelled the task."""
        while self._channel.waits():
            self._left = self._receive()
        if self._left == self._number:
            raise _Leaving

    def _receive(self) -> Any:
        return pickle.loads(self._channel.receive())


def serve(handle: int, nice: int) -> None:
    """Run the child's loop: open the device with the first task, and answer until the parent ends."""
    # The parent handles Ctrl-C.
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
            (adapter, engine), main, packed = orders.task()
            raised: Exception | None = None
            # If this process dies after this message, the task is the cause.
            send("alive")
            if main:
                _read_main(main)
            work, job = _unpacked(packed)
            if device is None:
                device = _opened(adapter, engine)
            for value in work(device, job):
                # Results from a lost device say nothing about a kernel.
                if device.lost:
                    break
                send("event", value)
        except ChannelClosed:
            return
        except _Leaving:
            pass
        except BaseException as error:
            raised = _for_parent(error)
        work = job = value = None
        if device is not None and device.lost:
            raised = WorkerDied(LOST)
        send("end", raised)


def _opened(adapter: str | None, engine: str | None) -> Any:
    if engine is not None and engine not in BACKENDS:
        from webnorm.lab.process.engine_device import open_engine

        return open_engine(engine)
    from webnorm.gpu.device import find_adapter, open_device

    return open_device(find_adapter(adapter))


def _for_parent(error: BaseException) -> Exception:
    """Return the exception that the parent raises for an exception in the child."""
    if not isinstance(error, WebnormError):
        return _failure(error)
    kind = LimitReached if isinstance(error, LimitReached) else WebnormError
    return kind(sentence(str(error)), error.place)


def _come_last(nice: int) -> None:
    """Leave scarce processor time and memory to other processes."""
    if hasattr(os, "nice"):
        os.nice(nice)
    # If a compiler uses up the memory, the system ends this process and no other of the user's.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _now_and_then(do: Callable[[], None]) -> Callable[[], None]:
    """Return a function that calls `do` at most every _ALIVE_S seconds."""
    last = 0.0

    def ask() -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _ALIVE_S:
            last = now
            do()

    return ask


def _read_main(main: dict[str, str]) -> None:
    """Import the parent's script as `multiprocessing` does; it must not start workers during that."""
    current: Any = process.current_process()
    current._inheriting = True
    try:
        spawn.prepare(main)
    finally:
        del current._inheriting
