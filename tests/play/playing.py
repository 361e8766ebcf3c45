"""A session on a file of a test's own, and waiting for what becomes of it."""

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
    """The text of two_pass with some of it replaced."""
    text = TWO_PASS
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def drafted(name: str) -> str:
    """A copy of a built-in kernel, as a person begins with."""
    return draft(load(wgsl_root() / "layer_norm" / f"{name}.wgsl"), [wgsl_root()])


def judge_without_subgroups(device: Device, job: EvaluationJob) -> Iterator[Any]:
    """The worker's task on an adapter that has none."""
    own = device.traits
    device.traits = replace(own, features=own.features - {"subgroups"})
    try:
        yield from evaluate(device, job)
    finally:
        device.traits = own


def silent(device: Device, job: EvaluationJob) -> Iterator[Any]:
    """A worker's task on a machine that has no time for it."""
    hang()
    yield


def judge_silently(device: Device, job: EvaluationJob) -> Iterator[Any]:
    """The same after the first verdict."""
    for event in evaluate(device, job):
        yield event
        if isinstance(event, ProblemVerdict):
            yield from silent(device, job)


def time_silently(device: Device, job: LiveTimingJob) -> Iterator[Any]:
    """The worker's task of timing on a machine that has no time for it after the first time is known."""
    for event in time_live(device, job):
        yield event
        if isinstance(event, LiveResult):
            hang()


def peak(pid: int) -> int:
    """The bytes that a process had in memory at most; 0 where the system does not tell."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def saved(path: Path, text: str | bytes) -> None:
    """Save as most editors do: beside, then renamed."""
    beside = path.with_suffix(".swp")
    beside.write_bytes(text if isinstance(text, bytes) else text.encode())
    os.replace(beside, path)


@contextmanager
def session(folder: Path, text: str = TWO_PASS, **settings: Any) -> Iterator[PlaygroundSession]:
    """A session on a new file; nothing but the verdict unless `settings` say more."""
    path = folder / "layer_norm" / "mine.wgsl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    with PlaygroundSession(path, Settings(**{"time": False, "corpus": False, **settings})) as found:
        yield found


@contextmanager
def shared(folders: pytest.TempPathFactory) -> Iterator[PlaygroundSession]:
    """A session for all tests of a module, with attempts of its own, that has judged two_pass."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(folders.mktemp("attempts")))
        # A child that is given up lives on, also where it is slow to say a word.
        patch.setattr(workers, "_GRACE_S", HANG_S)
        with session(folders.mktemp("played")) as found:
            ended(found, TWO_PASS)
            yield found


def until(found: PlaygroundSession, holds: Callable[[Snapshot], object]) -> Snapshot:
    """The first snapshot that is so."""
    now = found.state.until(holds, HANG_S)
    assert now is not None, f"not seen: {found.state.now}"
    return now


def ended(found: PlaygroundSession, text: str) -> AttemptState:
    """The attempt at a text, once nothing more is done with it."""
    now = until(
        found, lambda now: now.file.text == text and now.attempt and now.attempt.hash == now.file.base
    )
    assert found.idle(HANG_S)
    now = found.state.now
    assert now.attempt is not None and now.attempt.hash == now.file.base
    return now.attempt


def judged(found: PlaygroundSession, text: str) -> AttemptState:
    """Save a text, and give the attempt at it."""
    saved(found.path, text)
    return ended(found, text)
