"""A child process that owns the device.

A shader that panics the compiler aborts its process, and one that never ends hangs its device; neither may
take a run down. The parent sends a generator function and a job, the child sends back what it yields, and
every silence longer than the time limit ends the child. Work on its own arrays is none: only a kernel, or its
compiler, can be silent for long.

The child is no child of `multiprocessing`: a daemonic process may have it, and a script needs no main guard
where its tasks are not its own.
"""

from __future__ import annotations

import pickle
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import process, spawn
from pathlib import Path
from typing import IO, Any

from webnorm.errors import WebnormError, sentence
from webnorm.lab.channel import Channel, Closed, Silent
from webnorm.norms.parts import tell

TIME_LIMIT_S = 60.0
# A child whose end of the channel is closed has so long to end by itself.
_END_S = 5.0
# Between two signs of life of a child that is at work; time limits are seconds.
_ALIVE_S = 0.2
# The last of what the child printed, in which its panic is looked for.
_LAST_WORDS = 1 << 16

# Run in the child: (device, job) -> events, all of them picklable.
Work = Callable[[Any, Any], Iterator[Any]]


class WorkerDied(Exception):
    """The child crashed or was killed for its silence; the message says which in one line."""


class TaskFailed(Exception):
    """A task went wrong in a way that nobody foresaw, memory that ran out included; the child lives on.

    The message is one line: the exception's type and text. `details` is its traceback.
    """

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message, details)
        self.message, self.details = message, details

    def __str__(self) -> str:
        return self.message


@contextmanager
def failing(what: str, hint: str = "") -> Iterator[None]:
    """Have a WebnormError say that something failed because a worker inside did."""
    try:
        yield
    except (WorkerDied, TaskFailed) as failure:
        raise WebnormError(f"{what} failed: {failure}{hint}") from failure


class Worker:
    """Runs tasks in a child that is started when needed and again after it died."""

    def __init__(self, adapter: str | None = None, time_limit_s: float = TIME_LIMIT_S) -> None:
        self.adapter, self.time_limit_s = adapter, time_limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Channel | None = None
        # What the child prints: a file without a name, which nobody has to remove.
        self._stderr: IO[bytes] | None = None
        # Tells the tasks apart: who leaves off in the middle of one leaves its child in the middle, too.
        self._running: object = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stream(self, work: Work, job: Any) -> Iterator[Any]:
        """Yield what `work(device, job)` yields in the child.

        Raises WorkerDied when the child crashes or is silent for longer than the time limit, WebnormError
        for a mistake found there, TaskFailed for whatever else happens to the work, its job or its events.
        """
        if getattr(process.current_process(), "_inheriting", False):
            raise WebnormError(
                "the worker process reads a script again whose tasks are its own; "
                'expected it to start a worker below `if __name__ == "__main__":` only'
            )
        if self._running is not None:
            self.stop()
        message = _packed(work, job, self.adapter)
        connection = self._connection or self._start()
        self._running = mine = object()
        try:
            connection.send(message, self.time_limit_s)
            while self._running is mine:
                kind, value = self._next(connection)
                if kind == "event":
                    yield value
                    if self._running is not mine:
                        raise WorkerDied("the worker was given another task")
                elif kind == "end":
                    self._running = None
                    if value is not None:
                        raise value
        except Silent:
            raise WorkerDied(f"no sign of life for {self.time_limit_s:g} s: stopped") from None
        except Closed:
            raise WorkerDied(self._last_words()) from None
        finally:
            if self._running is mine:
                self.stop()

    def _next(self, connection: Channel) -> Any:
        """The next message of the child: an "event", "alive" while it is at work on arrays of its own, or the
        "end" with what was raised, if anything.
        """
        try:
            return pickle.loads(connection.receive(self.time_limit_s))
        except (Closed, Silent):
            raise
        except Exception as error:  # of the event's own code
            raise _failure(error, "an event cannot be read: ") from None

    def _start(self) -> Channel:
        ours, theirs = Channel.pair()
        handle, handed_on = theirs.for_child()
        self._connection = ours
        self._stderr = tempfile.TemporaryFile(prefix="webnorm-")  # noqa: SIM115 - closed by stop
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        try:
            self._process = subprocess.Popen(
                [sys.executable, *flags, "-P", "-c", _CHILD, str(handle), *map(str, sys.path)],
                stdin=subprocess.DEVNULL,
                stderr=self._stderr,
                **handed_on,
            )
        except OSError as error:
            raise WebnormError(f"cannot start a worker process: {error.strerror}") from error
        finally:
            theirs.close()
        return ours

    def stop(self) -> None:
        """End the child; the next task has a fresh one."""
        process, connection, stderr = self._process, self._connection, self._stderr
        self._process = self._connection = self._stderr = self._running = None
        if process is not None:
            process.kill()
            # One that the system cannot end is left to it.
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)
        if connection is not None:
            connection.close()
        if stderr is not None:
            stderr.close()

    def _last_words(self) -> str:
        """Why the child ended: the panic it printed, else its exit status."""
        assert self._process is not None and self._stderr is not None
        try:
            code = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return "the process closed its end of the channel: stopped"
        size = self._stderr.seek(0, 2)
        self._stderr.seek(max(0, size - _LAST_WORDS))
        text = self._stderr.read().decode(errors="replace")
        panic = re.search(r"panicked at [^\n]*\n([^\n]+)", text)
        if panic:
            return f"the shader compiler panicked: {sentence(panic[1])}"
        if code < 0:
            known = {each.value: each.name for each in signal.Signals}
            name = known.get(-code, f"signal {-code}")
            guess = ", as where memory runs out" if name == "SIGKILL" else ""
            return f"the process crashed with {name}{guess}"
        return f"the process ended with exit status {code}"


# The child finds modules where its parent does.
_CHILD = (
    "import sys; handle, *sys.path[:] = sys.argv[1:]; sys.argv[1:] = []; "
    "from webnorm.lab.worker import serve; serve(int(handle))"
)


def _packed(work: Work, job: Any, adapter: str | None) -> bytes:
    """The first message of a task; what of it is the script's own has the script read again."""
    try:
        packed = pickle.dumps((work, job))
        main = spawn.get_preparation_data("") if b"__main__" in packed else {}
    except Exception as error:
        raise _failure(error, "the task cannot be sent: ") from None
    return pickle.dumps((adapter, {k: v for k, v in main.items() if k.startswith("init_main")}, packed))


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


def serve(handle: int) -> None:
    """The child's loop: open the device with the first task, answer until the parent is gone."""
    # The parent decides what Ctrl-C means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Where a compiler takes all memory, the system ends this process and no other of the user's.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    channel = Channel.inherited(handle)
    channel.end_with_it()
    tell(_now_and_then(lambda: channel.send(pickle.dumps(("alive", None)))))
    device = None
    while True:
        try:
            adapter, main, packed = pickle.loads(channel.receive())
        except Closed:
            return
        try:
            if main:
                _read_main(main)
            work, job = pickle.loads(packed)
            if device is None:
                from webnorm.gpu.device import find_adapter, open_device

                device = open_device(find_adapter(adapter))
            for value in work(device, job):
                channel.send(pickle.dumps(("event", value)))
            raised: Exception | None = None
        except Closed:
            return
        except WebnormError as error:
            raised = WebnormError(sentence(str(error)))
        except BaseException as error:
            raised = _failure(error)
        work = job = value = None
        channel.send(pickle.dumps(("end", raised)))


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
