"""A child process that owns the device.

A shader that panics the compiler aborts its process, and one that never ends hangs its device; neither may
take a run down. The parent sends a generator function and a job, the child sends back what it yields, and
every silence longer than the time limit ends the child.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from webnorm.errors import WebnormError

TIME_LIMIT_S = 60.0

# Run in the child: (device, job) -> events, all of them picklable.
Task = Callable[[Any, Any], Iterator[Any]]


class WorkerDied(Exception):
    """The child crashed or was killed for its silence; the message says which in one line."""


class TaskFailed(Exception):
    """A task ended with an unforeseen exception, told in one line; `details` is its traceback."""

    def __init__(self, message: str, details: str) -> None:
        super().__init__(message)
        self.details = details


@dataclass(frozen=True)
class _Event:
    value: Any


@dataclass(frozen=True)
class _Failed:
    """`mistake` tells a user's mistake from a bug, whose traceback goes along."""

    message: str
    mistake: bool


class Worker:
    """Runs tasks in a child that is started when needed and again after it died."""

    def __init__(self, adapter: str | None = None, time_limit_s: float = TIME_LIMIT_S) -> None:
        self.adapter, self.time_limit_s = adapter, time_limit_s
        self._process: Any = None
        self._connection: Connection | None = None
        self._stderr = Path(tempfile.mkstemp(prefix="webnorm-", suffix=".stderr")[1])

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._stderr.unlink(missing_ok=True)

    def stream(self, task: Task, job: Any) -> Iterator[Any]:
        """Yield what `task(device, job)` yields in the child.

        Raises WorkerDied when the child crashes or is silent for longer than the time limit, WebnormError
        for a mistake found there, RuntimeError with the child's traceback for a bug.
        """
        connection = self._connection or self._start()
        connection.send((task, job))
        while True:
            if not connection.poll(self.time_limit_s):
                self.stop()
                raise WorkerDied(f"no sign of life for {self.time_limit_s:g} s: stopped")
            try:
                message = connection.recv()
            except (EOFError, ConnectionError):
                raise WorkerDied(self._last_words()) from None
            match message:
                case _Event(value):
                    yield value
                case _Failed(text, True):
                    raise WebnormError(text)
                case _Failed(text, False):
                    raise TaskFailed(text.strip().splitlines()[-1], text)
                case None:
                    return

    def _start(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, self.adapter, str(self._stderr)), daemon=True
        )
        self._process.start()
        theirs.close()
        self._connection = ours
        return ours

    def stop(self) -> None:
        """End the child; the next task has a fresh one."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None

    def _last_words(self) -> str:
        """Why the child ended: the panic it printed, else its exit status."""
        self._process.join()
        code = self._process.exitcode
        self.stop()
        text = self._stderr.read_text(errors="replace")
        panic = re.search(r"panicked at [^\n]*\n([^\n]+)", text)
        if panic:
            return f"the shader compiler panicked: {panic[1].strip()}"
        if code is not None and code < 0:
            return f"the process crashed with {signal.Signals(-code).name}"
        return f"the process ended with exit status {code}"


def _serve(connection: Connection, adapter: str | None, stderr: str) -> None:
    """The child's loop: open the device with the first task, answer until the parent is gone."""
    # The parent decides what Ctrl-C means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stderr.flush()
    os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    device = None
    while True:
        try:
            task, job = connection.recv()
        except EOFError:
            return
        try:
            if device is None:
                from webnorm.device import find_adapter, open_device

                device = open_device(find_adapter(adapter))
            for value in task(device, job):
                connection.send(_Event(value))
            connection.send(None)
        except WebnormError as error:
            connection.send(_Failed(str(error), mistake=True))
        except MemoryError as error:
            connection.send(_Failed(f"not enough memory: {error}", mistake=True))
        except Exception:
            connection.send(_Failed(traceback.format_exc(), mistake=False))
