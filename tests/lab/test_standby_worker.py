"""A worker with a spare child: cancelled tasks, dying children, and cleanup after both."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from patience import HANG_S, all_end, at_least, hang, until
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.kernels.rendering import sandbox
from webnorm.lab.process import worker as workers
from webnorm.lab.process.worker import TaskCancelled, TaskFailed, WorkerDied
from webnorm.lab.run import jobs
from webnorm.lab.run import standby_worker as hot_workers
from webnorm.lab.run.standby_worker import StandbyWorker


@pytest.fixture(scope="module")
def hot(device: Device) -> Iterator[StandbyWorker]:
    with StandbyWorker() as worker:
        yield worker


def both(hot: StandbyWorker) -> tuple[int, int]:
    """Return the process ids of the active child and the spare."""
    hot.start()
    first, second = until(lambda: pids if len(pids := hot.pids) == 2 else None)
    return first, second


def pid_of(hot: StandbyWorker) -> int:
    """Return the process id of the child that runs the next task."""
    (pid,) = hot.stream(_pid, None, HANG_S)
    assert isinstance(pid, int)
    return pid


def test_a_cancelled_task_ends_and_the_child_continues(
    hot: StandbyWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_GRACE_S", HANG_S)
    pid, deaths = pid_of(hot), hot.deaths
    hot.leave()
    events = hot.stream(_counts, None, HANG_S)
    assert next(events) == 0
    threading.Thread(target=hot.leave).start()
    with pytest.raises(TaskCancelled):
        list(events)
    # Closing the stream cancels the task too.
    events = hot.stream(_counts, None, HANG_S)
    assert [next(events), next(events)] == [0, 1]
    with pytest.raises(RuntimeError, match="one at a time"):
        next(hot.stream(_pid, None, HANG_S))
    del events
    assert pid_of(hot) == pid and hot.deaths == deaths
    assert hot.opened()[0] == next(hot.stream(jobs.describe_device, None, HANG_S))[0]


def test_errors_in_a_task_are_raised_and_the_child_continues(hot: StandbyWorker) -> None:
    pid = pid_of(hot)
    with pytest.raises(WebnormError, match="a mistake"):
        list(hot.stream(_fails, WebnormError("a mistake"), HANG_S))
    with pytest.raises(TaskFailed, match="ZeroDivisionError"):
        list(hot.stream(_fails, ZeroDivisionError(), HANG_S))
    assert pid_of(hot) == pid


def test_rendering_has_tighter_limits(hot: StandbyWorker) -> None:
    ((time_s, text),) = hot.stream(_bounds, None, HANG_S)
    assert time_s == 2.0 < sandbox.limits.time_s and text == 2 << 20 < sandbox.limits.text


@pytest.mark.skipif(sys.platform != "linux", reason="Linux bounds what a process fills")
def test_memory_is_not_taken_from_others(hot: StandbyWorker) -> None:
    pid = pid_of(hot)
    with pytest.raises(TaskFailed, match="MemoryError"):
        list(hot.stream(_takes, 0.6, HANG_S))
    assert list(hot.stream(_takes, 0.1, HANG_S)) == ["taken"] and pid_of(hot) == pid


@pytest.mark.slow
def test_the_spare_takes_over(hot: StandbyWorker, tmp_path: Path) -> None:
    first, second = both(hot)
    deaths = hot.deaths
    # A child without a task dies without an effect.
    os.kill(first, signal.SIGKILL)
    assert pid_of(hot) == second
    second, third = both(hot)
    # A child that does not react is killed, without an error for the cancelled stream.
    begun = tmp_path / "begun"
    events = hot.stream(_sleeps, begun, HANG_S)
    assert next(events) == second
    until(begun.exists)
    threading.Thread(target=hot.leave).start()
    with pytest.raises(TaskCancelled):
        next(events)
    assert pid_of(hot) == third
    # The next one dies before the spare is ready: the following task waits for it.
    with pytest.raises(WorkerDied, match="the process crashed with SIGKILL"):
        list(hot.stream(_dies, None, HANG_S))
    fourth = pid_of(hot)
    assert fourth not in (first, second, third) and hot.deaths == deaths + 3
    with pytest.raises(WorkerDied, match=r"no sign of life for 0.2 s: stopped"):
        list(hot.stream(_sleeps, None, 0.2))
    all_end((first, second, third, fourth))


def test_waiting_for_a_child_can_be_cancelled(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child never opens its device."""
    monkeypatch.setattr(hot_workers, "_open", _silent)
    with StandbyWorker() as hot:
        events = hot.stream(_pid, None, HANG_S)

        def leave() -> None:
            until(lambda: hot._limits)
            hot.leave()

        threading.Thread(target=leave).start()
        with pytest.raises(TaskCancelled):
            next(events)
        threading.Thread(target=hot.stop).start()
        with pytest.raises(TaskCancelled):
            hot.opened()


def test_no_such_adapter(device: Device) -> None:
    with StandbyWorker("no-such-adapter") as hot:
        for _ in range(2):
            with pytest.raises(WebnormError, match="no adapter 'no-such-adapter'"):
                list(hot.stream(_pid, None, HANG_S))


PARENT = """
import sys, threading
import patience, test_standby_worker
from webnorm.lab.run.standby_worker import StandbyWorker

def report(hot):
    known = set()
    while True:
        for pid in {*hot.pids, *([hot._opening.pid] if hot._opening else [])} - known - {None}:
            known.add(pid)
            print(pid, flush=True)
        patience.at_least(0.001)

with StandbyWorker() as hot:
    threading.Thread(target=report, args=(hot,), daemon=True).start()
    list(hot.stream(test_standby_worker._sleeps, None, test_standby_worker.HANG_S))
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("end", "after"), [(signal.SIGKILL, 1), (signal.SIGINT, 2)])
def test_nothing_is_left_of_a_parent_that_ends(device: Device, end: signal.Signals, after: int) -> None:
    """The parent ends at the start of its first child, or at a task while the spare starts."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PARENT]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=environment) as parent:
        assert parent.stdout is not None and parent.stderr is not None
        children = [int(parent.stdout.readline()) for _ in range(after)]
        parent.send_signal(end)
        parent.wait(HANG_S)
        assert (b"KeyboardInterrupt" in parent.stderr.read()) == (end == signal.SIGINT)
    all_end(children)


def _pid(device: object, job: object) -> Iterator[Any]:
    yield os.getpid()


def _counts(device: object, job: object) -> Iterator[Any]:
    for count in range(10**6):
        yield count
        at_least(0.001)


def _fails(device: object, error: Exception) -> Iterator[Any]:
    raise error
    yield


def _bounds(device: object, job: object) -> Iterator[Any]:
    yield sandbox.limits.time_s, sandbox.limits.text


def _takes(device: object, share: float) -> Iterator[Any]:
    # The parent writes nothing there.
    np.empty(int(share * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")), np.uint8)
    yield "taken"


def _sleeps(device: object, begun: Path | None) -> Iterator[Any]:
    yield os.getpid()
    # A child checks for orders right after each event. After this one it never does.
    hang(begun)


def _silent(device: object, job: object) -> Iterator[Any]:
    hang()
    yield


def _dies(device: object, job: object) -> Iterator[Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    yield
