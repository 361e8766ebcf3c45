"""`webnorm` as a user runs it, in the tests' own process.

Starting Python, importing wgpu and opening an adapter take longer than most commands, and so does starting a
browser. So consecutive commands share the worker process and the browser.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import tiers
from patience import HANG_S
from webnorm.cli import app as cli
from webnorm.cli.work.jobs import OK
from webnorm.gpu.backend_names import BACKEND_VARIABLE
from webnorm.gpu.device import ADAPTER_VARIABLE
from webnorm.lab.process import worker
from webnorm.lab.process.worker import TaskLimits, Work, Worker
from webnorm.op import registry
from webnorm.web import verify
from webnorm.web.browser import visits
from webnorm.web.browser.visits import PageVisitor

# The default limits of a worker and of a page. The tests replace them, since a busy machine may take longer.
_USUAL_LIMIT_S, _USUAL_PAGE_LIMIT_S = worker.TIME_LIMIT_S, visits.TIME_LIMIT_S


def _surroundings() -> tuple[str, dict[str, str]]:
    """Return the folder and environment of a process, without a variable that pytest sets in every test."""
    return os.getcwd(), {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


def _move(_: object, surroundings: tuple[str, dict[str, str]]) -> Iterator[None]:
    """Move a worker to another folder and environment."""
    folder, environment = surroundings
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    yield None


# The variables that decide which adapter a worker opens.
_OF_ADAPTERS = (
    "VK_",
    "WGPU_",
    "MESA_",
    "GALLIVM_",
    "LP_",
    "LIBGL_",
    "EGL_",
    ADAPTER_VARIABLE,
    BACKEND_VARIABLE,
)


class _SharedWorker(Worker):
    """A worker that passes its process on to the next worker of the same adapter."""

    _left: _SharedWorker | None = None

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        if self.time_limit_s == _USUAL_LIMIT_S:
            self.time_limit_s = HANG_S
        self._surroundings = _surroundings()
        chosen = {name: value for name, value in os.environ.items() if name.startswith(_OF_ADAPTERS)}
        self._key = (self.adapter, self.engine, chosen, tuple(sys.path))
        self._at_rest = True

    def stream(self, work: Work, job: Any, limits: TaskLimits | None = None) -> Iterator[Any]:
        self._at_rest = False
        if self._child is None:
            self._adopt()
        yield from super().stream(work, job, limits)
        self._at_rest = True

    def _adopt(self) -> None:
        left, _SharedWorker._left = _SharedWorker._left, None
        if left is None:
            return
        if left._key != self._key:
            left.stop()
            return
        self._child = left._child
        if left._surroundings != self._surroundings:
            list(super().stream(_move, self._surroundings))

    def __exit__(self, *_: object) -> None:
        if self._at_rest and self._child is not None and _SharedWorker._left is None:
            _SharedWorker._left = self
        else:
            super().__exit__()


class _SharedBrowser(PageVisitor):
    """A browser that passes itself on to the next visitor with the same name and environment."""

    _left: _SharedBrowser | None = None

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        if self.time_limit_s == _USUAL_PAGE_LIMIT_S:
            self.time_limit_s = HANG_S
        self._key = (str(self.opener), _surroundings()[1])
        left, _SharedBrowser._left = _SharedBrowser._left, None
        if left is not None and left._key == self._key:
            self._thread, self._loop, self._playwright = left._thread, left._loop, left._playwright
            self._opened = left._opened
        elif left is not None:
            PageVisitor.__exit__(left)

    def __exit__(self, *_: object) -> None:
        _SharedBrowser._left = self


def end() -> None:
    """End the processes that no command uses any more."""
    if _SharedWorker._left is not None:
        _SharedWorker._left.stop()
    if _SharedBrowser._left is not None:
        PageVisitor.__exit__(_SharedBrowser._left)
    _SharedWorker._left = _SharedBrowser._left = None


@contextlib.contextmanager
def heeding_interrupts() -> Iterator[None]:
    """Restore the handler of Ctrl-C, which a command ignores at its end."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def webnorm(arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder, and return its output and exit status."""
    out, err = io.StringIO(), io.StringIO()
    # Unregister the ops of an earlier command.
    for name in registry.user_ops():
        registry.unregister(name)
    with (
        heeding_interrupts(),
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        patch.object(sys, "argv", ["webnorm", *arguments]),
        patch.object(worker, "Worker", _SharedWorker),
        patch.object(verify, "PageVisitor", _SharedBrowser),
        pytest.raises(SystemExit) as ended,
    ):
        cli.run()
    assert isinstance(ended.value.code, int)
    if ended.value.code == OK:
        tiers.meet_verb(arguments)
    return subprocess.CompletedProcess([*arguments], ended.value.code, out.getvalue(), err.getvalue())


def webnorm_process(arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the command in its own process, for tests of signals, tracebacks and startup."""
    command = [sys.executable, "-m", "webnorm", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=HANG_S, check=False)
    if done.returncode == OK:
        tiers.meet_verb(arguments)
    return done


# Ctrl-C goes to the whole process group, as from a terminal, once the named file exists.
_INTERRUPTED = """
import os, signal, sys
from pathlib import Path
from webnorm.files import atomic as files
from webnorm.cli import app

name, *sys.argv[1:] = sys.argv[1:]
write = files.write_text

def interrupted(path: Path, text: str) -> None:
    write(path, text)
    if path.name == name:
        files.write_text = write
        os.killpg(0, signal.SIGINT)

files.write_text = interrupted
app.run()
"""


def webnorm_interrupted(
    arguments: Sequence[str], folder: Path, after: str
) -> subprocess.CompletedProcess[str]:
    """Run the command in its own process, and send Ctrl-C once it has written the file `after`."""
    return subprocess.run(
        [sys.executable, "-c", _INTERRUPTED, after, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
        start_new_session=True,
    )
