"""Kernels that break are reported, and the others go on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import broken
from webnorm import bench, check, timing
from webnorm.corpus import CASES
from webnorm.device import Device
from webnorm.errors import WebnormError
from webnorm.kernel import discover, select
from webnorm.presets import tasks
from webnorm.results import Result
from webnorm.worker import Worker, WorkerDied

RULE = timing.Rule(least=2, most=2, budget_s=1.0)


def test_check_survives_every_kind_of_broken_kernel(tmp_path: Path, device: Device) -> None:
    root = broken.write(tmp_path, *broken.REPLACED)
    known = discover([root])
    deadly, died = broken.deadly(device)
    harmless = {"panics", "overflows"} - {deadly}
    kernels = tuple(select(known, name) for name in ("naive", *broken.REPLACED) if name not in harmless)
    case = next(case for case in CASES if case.name == "rows-1")
    with Worker(time_limit_s=60.0) as worker:
        results = list(check.run(check.Request(kernels, (case,), roots=(root,)), worker, device.traits))
    found = {result.kernel: result for result in results}
    assert found["naive"].status == "pass" and found["naive"].deterministic
    assert found["wrong"].status == "fail" and "expected" in (found["wrong"].reason or "")
    assert found["unparsable"].status == "error" and "unparsable.wgsl:" in (found["unparsable"].reason or "")
    assert found["undefined"].status == "error" and "'nothing' is undefined" in (
        found["undefined"].reason or ""
    )
    assert found["unbound"].status == "error" and "unbound.wgsl" in (found["unbound"].reason or "")
    assert found[deadly].status == "error" and died in (found[deadly].reason or "")
    assert all("\n" not in (result.reason or "") for result in results)
    assert bench.failed(results)


@pytest.mark.opengl
def test_bench_goes_on_without_the_culprits(tmp_path: Path, device: Device) -> None:
    deadly, died = broken.deadly(device)
    root = broken.write(tmp_path, deadly, "wrong")
    found = discover([root])
    kernels = tuple(select(found, name) for name in (deadly, "wrong", "naive"))
    copies = (select(found, "copy"),)
    request = bench.Request(tasks("layer_norm", ((8, 32),)), kernels, copies, RULE, (root,))
    results: dict[str, Result] = {}
    with Worker(time_limit_s=20.0) as worker:
        for event in bench.run(request, worker, device.traits):
            if isinstance(event, list):
                results = {result.kernel: result for result in event}
    assert results["naive"].status == "pass" and results["naive"].median_ns
    assert results["naive"].deterministic and results["naive"].percent_of_copy
    assert results["copy"].max_abs_error == 0.0
    assert results["wrong"].status == "fail" and results["wrong"].median_ns is None
    assert died in (results[deadly].reason or "")


def test_a_bug_and_a_mistake_in_the_worker(device: Device) -> None:
    with Worker() as worker:
        with pytest.raises(RuntimeError, match="in the worker process"):
            list(worker.stream(_bug, None))
        with pytest.raises(WebnormError, match="a mistake"):
            list(worker.stream(_mistake, None))
        with pytest.raises(WebnormError, match="not enough memory"):
            list(worker.stream(_too_much, None))
        assert list(worker.stream(_fine, 3)) == [0, 1, 2]


def test_a_worker_that_falls_silent_is_stopped_and_started_again(device: Device) -> None:
    with Worker(time_limit_s=3.0) as worker:
        with pytest.raises(WorkerDied, match="no sign of life for 3 s"):
            list(worker.stream(_silent, None))
        # A busy machine takes longer than that to start a process.
        worker.time_limit_s = 60.0
        assert list(worker.stream(_fine, 2)) == [0, 1]


def test_no_such_adapter(device: Device) -> None:
    with (
        Worker("no-such-adapter") as worker,
        pytest.raises(WebnormError, match="no adapter 'no-such-adapter'; there is 0: "),
    ):
        list(worker.stream(_fine, 1))


def _bug(device: object, job: object):  # type: ignore[no-untyped-def]
    raise ZeroDivisionError
    yield


def _mistake(device: object, job: object):  # type: ignore[no-untyped-def]
    raise WebnormError("a mistake")
    yield


def _too_much(device: object, job: object):  # type: ignore[no-untyped-def]
    raise MemoryError("763 GiB")
    yield


def _silent(device: object, job: object):  # type: ignore[no-untyped-def]
    time.sleep(60)
    yield


def _fine(device: object, job: int):  # type: ignore[no-untyped-def]
    yield from range(job)
