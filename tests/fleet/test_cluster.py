"""Runs on a Dask cluster: distribution, lost workers, and the same results as without a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import spans
from clusters import BENCH, Fleet, results
from distributed import Nanny

import broken
import tiers
from commands import webnorm, webnorm_interrupted
from webnorm.errors import WebnormError
from webnorm.fleet import cluster, dispatcher, work_items, worker
from webnorm.fleet.adapters import AdapterPool
from webnorm.gpu.device import Device, find_adapter

pytestmark = pytest.mark.xdist_group("fleet")


@pytest.fixture(scope="module")
def plain(fleet: Fleet) -> Iterator[Fleet]:
    """Yield a cluster with one plain `dask worker` of four threads, started without webnorm."""
    process = fleet.worker("--nthreads", "4")
    yield fleet
    if process.poll() is None:
        fleet.end(process)


@pytest.mark.slow
def test_a_plain_dask_worker_runs_a_bench(plain: Fleet, tmp_path: Path) -> None:
    command = [*BENCH, "--cols", "64,96", "--cluster", str(plain.file), "--json", "out.json"]
    done = webnorm(command, tmp_path)
    assert done.returncode == 0, done.stderr
    # A loopback address causes no warning.
    assert done.stderr == ""
    found = results(tmp_path / "out.json")
    named = [(one["kernel"], one["problem"]["cols"]) for one in found if one["op"] != "copy"]
    assert named == [("naive", 64), ("naive", 96)]
    assert all(one["status"] == "pass" and one["percent_of_copy"] for one in found)


def test_a_process_that_ends_slowly_is_no_failure(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask waits some seconds for a killed worker process, which is too short on a busy machine."""
    kill = Nanny.kill

    async def late(self: Nanny, *arguments: Any, **named: Any) -> None:
        await kill(self, *arguments, **named)
        raise TimeoutError

    monkeypatch.setattr(Nanny, "kill", late)
    with cluster.connected("local", None, pytest.fail) as client:
        assert len(client.scheduler_info()["workers"]) == 1


@pytest.mark.slow
def test_a_check_has_the_same_results_without_a_cluster(tmp_path: Path, device: Device) -> None:
    command = [
        "check",
        "--kernel",
        "naive",
        "--kernel",
        "one_pass",
        "--case",
        "shift*,cols-1*",
        "--seed",
        "5",
    ]
    alone = webnorm([*command, "--json", "alone.json"], tmp_path)
    spread = webnorm([*command, "--json", "spread.json", "--cluster", "local:2"], tmp_path)
    assert spread.returncode == alone.returncode
    reports = [results(tmp_path / name) for name in ("alone.json", "spread.json")]
    keys = ("op", "kernel", "constants", "problem", "case", "status", "expected", "max_abs_error", "watched")
    one, other = ([{key: entry.get(key) for key in keys} for entry in report] for report in reports)
    assert one == other and len(one) > 8
    assert spread.stdout.splitlines()[1:] == alone.stdout.splitlines()[1:]


def test_a_worker_of_webnorms_is_listed(fleet: Fleet, tmp_path: Path) -> None:
    process = fleet.adapter("0")
    tiers.meet("verb", "cluster worker")
    listed = webnorm(["cluster", "--cluster", fleet.address], tmp_path)
    assert listed.returncode == 0, listed.stderr
    assert str(find_adapter("0").name) in listed.stdout
    fleet.end(process)


@pytest.mark.slow
def test_ten_tasks_of_a_worker_never_overlap(plain: Fleet) -> None:
    with cluster.connected(plain.address, None, pytest.fail) as client:
        having, without = cluster.members(client)
        assert len(having) == 1 and not without
        resources = worker.resources(having[0].card)
        tasks = [client.submit(spans.alone, resources=resources, pure=False) for _ in range(10)]
        assert client.gather(tasks) == [True] * 10


@pytest.mark.slow
def test_a_hanging_item_affects_no_other(plain: Fleet, tmp_path: Path) -> None:
    with cluster.connected(plain.address, None, pytest.fail) as client:
        having, _ = cluster.members(client)
        (tmp_path / "there").touch()
        work = [spans.Hanging(time_limit_s=0.5), spans.Waiting(file=tmp_path / "there")]
        heard = dispatcher.run_items(client, [(AdapterPool((having[0].card,), {}), work)])
        found = {event.at: event.value for event in heard if isinstance(event, dispatcher.ItemResult)}
    assert found == {0: dispatcher.ItemLost("WorkerTimedOut: no sign of life for 0.5 s: stopped"), 1: "awake"}


def test_a_hanging_kernel_affects_no_other(
    plain: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "layer_norm"
    folder.mkdir()
    # Most drivers remove an empty loop, and llvmpipe ends any loop after 65,535 rounds. So each round takes
    # long.
    steps = "{% for _ in range(1000) %}spin = sin(spin) + 2.0; {% endfor %}"
    loop = f"var spin = 2.0;\n    for (; spin > 0.0;) {{ {steps} }}"
    text = broken.HONEST.replace("let pivot = ", f"{loop}\n    let pivot = spin + ")
    assert text != broken.HONEST
    (folder / "endless.wgsl").write_text(text)
    (folder / "honest.wgsl").write_text(broken.HONEST)
    monkeypatch.setattr(work_items, "CheckItem", spans.Strict)
    command = ["check", "--wgsl", ".", "--kernel", "endless,honest", "--case", "normal", "--time-limit", "1"]
    done = webnorm([*command, "--cluster", plain.address, "--json", "out.json"], tmp_path)
    reasons = {one["kernel"]: one.get("reason", "") for one in results(tmp_path / "out.json")}
    assert reasons.keys() == {"endless", "honest"} and reasons["honest"] == ""
    assert reasons["endless"] == "no sign of life for 1 s: stopped" and done.returncode == 1


def test_a_kernel_runs_on_a_machine_without_its_file(plain: Fleet, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "more.wgsl").write_text("// a snippet that only this machine has\n")
    mine = tmp_path / "mine.wgsl"
    mine.write_text(broken.HONEST.replace("let pivot", '{% include "lib/more.wgsl" %}\n    let pivot'))
    (tmp_path / "wrong.wgsl").write_text(broken.HONEST.replace("let pivot", "{{ nothing }} let pivot"))
    command = ["check", "--kernel", "mine.wgsl", "--kernel", "wrong.wgsl", "--case", "normal"]
    done = webnorm([*command, "--cluster", plain.address, "--json", "out.json"], tmp_path)
    mine_found, wrong_found = results(tmp_path / "out.json")
    assert mine_found["status"] == "pass", done.stdout
    # The reason has the path that the user gave.
    assert wrong_found["status"] == "error" and wrong_found["reason"].startswith("wrong.wgsl:")
    assert done.returncode == 1


@pytest.mark.slow
def test_a_cluster_that_fails_at_its_end_loses_no_result(
    plain: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = cluster.connected

    @contextmanager
    def failing(*given: Any) -> Iterator[Any]:
        with own(*given) as client:
            yield client
        raise WebnormError("the cluster failed: OSError: too late")

    monkeypatch.setattr(cluster, "connected", failing)
    command = ["check", "--kernel", "naive", "--case", "normal", "--json", "out.json"]
    done = webnorm([*command, "--cluster", plain.address], tmp_path)
    assert (done.returncode, done.stderr) == (0, "webnorm: the cluster failed: OSError: too late\n")
    assert "naive" in done.stdout and json.loads((tmp_path / "out.json").read_text())["complete"]


@pytest.mark.slow
def test_tunings_before_an_interruption_are_kept(tmp_path: Path, device: Device) -> None:
    command = ["tune", "--op", "rms_norm", "--dtype", "float32", "--rows", "64", "--cols", "64,96"]
    command += ["--budget", "0.2", "--out", "tuned.json", "--cluster", "local:1"]
    # Dask's workers also receive Ctrl-C.
    run = webnorm_interrupted(command, tmp_path, "tuned.json")
    assert run.returncode == 130 and run.stderr == "webnorm: interrupted; finished results are kept\n"
    kept = (tmp_path / "tuned.json").read_text()
    again = webnorm([*command, "--cols", "64"], tmp_path)
    assert again.returncode == 0, again.stderr
    assert "\n1 of 1 problems are recorded and not tuned again\n" in again.stdout
    assert (tmp_path / "tuned.json").read_text() == kept
