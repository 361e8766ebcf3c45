"""Sessions on a test's own file, and functions that wait for their attempts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from patience import HANG_S, hang
from webnorm.gpu.device import Device
from webnorm.kernels.headers.drafts import draft
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.lab.process import worker as workers
from webnorm.lab.run.evaluation import (
    EvaluationJob,
    LiveResult,
    LiveTimingJob,
    ProblemVerdict,
    evaluate,
    time_live,
)
from webnorm.play.attempt_store import FOLDER_VARIABLE
from webnorm.play.session import PlaygroundSession
from webnorm.play.state import AttemptState, Settings, Snapshot

TWO_PASS = (wgsl_root() / "layer_norm" / "two_pass.wgsl").read_text(encoding="utf-8")


def changed(*changes: tuple[str, str]) -> str:
    """Return the text of two_pass with some parts replaced."""
    text = TWO_PASS
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def drafted(name: str) -> str:
    """Return a copy of a built-in kernel, as `webnorm new` writes it."""
    return draft(load(wgsl_root() / "layer_norm" / f"{name}.wgsl"), [wgsl_root()])


def evaluate_without_subgroups(device: Device, job: EvaluationJob) -> Iterator[Any]:
    """Run the worker's task as on an adapter without subgroups."""
    own = device.traits
    device.traits = replace(own, features=own.features - {"subgroups"})
    try:
        yield from evaluate(device, job)
    finally:
        device.traits = own


def silent(device: Device, job: EvaluationJob) -> Iterator[Any]:
    """Hang like a worker's task on a busy machine."""
    hang()
    yield


def evaluate_silently(device: Device, job: EvaluationJob) -> Iterator[Any]:
    """Evaluate, and hang after the first verdict."""
    for event in evaluate(device, job):
        yield event
        if isinstance(event, ProblemVerdict):
            yield from silent(device, job)


def time_silently(device: Device, job: LiveTimingJob) -> Iterator[Any]:
    """Run the timing task, and hang after the first result."""
    for event in time_live(device, job):
        yield event
        if isinstance(event, LiveResult):
            hang()


def peak(pid: int) -> int:
    """Return the peak memory of a process in bytes; 0 if the system does not report it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def saved(path: Path, text: str | bytes) -> None:
    """Save as most editors do: write a temporary file and rename it."""
    temporary = path.with_suffix(".swp")
    temporary.write_bytes(text if isinstance(text, bytes) else text.encode())
    os.replace(temporary, path)


@contextmanager
def session(folder: Path, text: str = TWO_PASS, **settings: Any) -> Iterator[PlaygroundSession]:
    """Open a session on a new file; only the verdict runs unless `settings` request more."""
    path = folder / "layer_norm" / "mine.wgsl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    with PlaygroundSession(path, Settings(**{"time": False, "corpus": False, **settings})) as found:
        yield found


@contextmanager
def shared(folders: pytest.TempPathFactory) -> Iterator[PlaygroundSession]:
    """Open a session for all tests of a module, with its own attempts, that has evaluated two_pass."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(folders.mktemp("attempts")))
        # A stopped task leaves its process alive, even if the process answers slowly.
        patch.setattr(workers, "_GRACE_S", HANG_S)
        with session(folders.mktemp("played")) as found:
            ended(found, TWO_PASS)
            yield found


def until(found: PlaygroundSession, condition: Callable[[Snapshot], object]) -> Snapshot:
    """Return the first snapshot that meets a condition."""
    now = found.state.until(condition, HANG_S)
    assert now is not None, f"not seen: {found.state.now}"
    return now


def ended(found: PlaygroundSession, text: str) -> AttemptState:
    """Return the attempt at a text, once all its steps have ended."""
    now = until(
        found, lambda now: now.file.text == text and now.attempt and now.attempt.hash == now.file.base
    )
    assert found.idle(HANG_S)
    now = found.state.now
    assert now.attempt is not None and now.attempt.hash == now.file.base
    return now.attempt


def evaluated(found: PlaygroundSession, text: str) -> AttemptState:
    """Save a text and return the finished attempt at it."""
    saved(found.path, text)
    return ended(found, text)
