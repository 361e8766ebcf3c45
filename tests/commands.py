"""`webnorm` as a person runs it, in the tests' own process.

To start Python, import wgpu and open an adapter takes longer than most commands, so those that follow
one another in a folder share the worker process too.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from webnorm.cli import app as cli
from webnorm.lab import worker
from webnorm.lab.worker import Task, Worker


class _Shared(Worker):
    """A worker that leaves its child to the next one of the same adapter, folder and environment."""

    _left: _Shared | None = None

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._key = (self.adapter, os.getcwd(), dict(os.environ))
        self._at_rest = True

    def stream(self, task: Task, job: Any) -> Iterator[Any]:
        self._at_rest = False
        yield from super().stream(task, job)
        self._at_rest = True

    def _start(self) -> Any:
        left = _Shared._left
        if left is None or left._key != self._key:
            end()
            return super()._start()
        _Shared._left = None
        self._process, self._connection, self._stderr = left._process, left._connection, left._stderr
        return self._connection

    def __exit__(self, *_: object) -> None:
        if self._at_rest and self._connection is not None and _Shared._left is None:
            _Shared._left = self
        else:
            super().__exit__()


def end() -> None:
    """End the child that no command took."""
    if _Shared._left is not None:
        Worker.__exit__(_Shared._left)
        _Shared._left = None


def webnorm(arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """What the command writes and how it ends, called in a folder."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        patch.object(sys, "argv", ["webnorm", *arguments]),
        patch.object(worker, "Worker", _Shared),
        pytest.raises(SystemExit) as ended,
    ):
        cli.run()
    assert isinstance(ended.value.code, int)
    return subprocess.CompletedProcess([*arguments], ended.value.code, out.getvalue(), err.getvalue())


def webnorm_process(
    arguments: Sequence[str], folder: Path, timeout: float = 240
) -> subprocess.CompletedProcess[str]:
    """The same in a process of its own, for what a process is needed: signals, tracebacks, help at once."""
    command = [sys.executable, "-m", "webnorm", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout, check=False)
