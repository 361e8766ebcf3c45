"""Runs on a Dask cluster: who does what, what a death costs, and what a run without would have said, too."""

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
from webnorm.fleet import cluster, dispatcher, errands, worker
from webnorm.fleet.adapters import AdapterPool
from webnorm.gpu.device import Device, find_adapter

pytestmark = pytest.mark.xdist_group("fleet")


@pytest.fixture(scope="module")
def plain(fleet: Fleet) -> Iterator[Fleet]:
    """A cluster with one plain `dask worker`, which knows nothing of adapters and has four threads."""
    process = fleet.worker("--nthreads", "4")
    yield fleet
    if process.poll() is None:
        fleet.end(process)


@pytest.mark.slow
def test_a_plain_dask_worker_does_it(plain: Fleet, tmp_path: Path) -> None:
    command = [*BENCH, "--cols", "64,96", "--cluster", str(plain.file), "--json", "out.json"]
    done = webnorm(command, tmp_path)
    assert done.returncode == 0, done.stderr
    # On loopback nobody is warned.
    assert done.stderr == ""
    found = results(tmp_path / "out.json")
    named = [(one["kernel"], one["problem"]["cols"]) for one in found if one["op"] != "copy"]
    assert named == [("naive", 64), ("naive", 96)]
    assert all(one["status"] == "pass" and one["percent_of_copy"] for one in found)


def test_a_process_that_takes_long_to_end_is_no_failure(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask waits some seconds for a worker's process that it has killed: on a busy machine too few."""
    kill = Nanny.kill

    async def late(self: Nanny, *arguments: Any, **named: Any) -> None:
        await kill(self, *arguments, **named)
        raise TimeoutError

    monkeypatch.setattr(Nanny, "kill", late)
    with cluster.connected("local", None, pytest.fail) as client:
        assert len(client.scheduler_info()["workers"]) == 1


@pytest.mark.slow
def test_a_check_says_what_one_without_a_cluster_says(tmp_path: Path, device: Device) -> None:
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
        asked = worker.resources(having[0].card)
        tasks = [client.submit(spans.alone, resources=asked, pure=False) for _ in range(10)]
        assert client.gather(tasks) == [True] * 10


@pytest.mark.slow
def test_an_errand_that_hangs_costs_no_other(plain: Fleet, tmp_path: Path) -> None:
    with cluster.connected(plain.address, None, pytest.fail) as client:
        having, _ = cluster.members(client)
        (tmp_path / "there").touch()
        work = [spans.Hanging(time_limit_s=0.5), spans.Waiting(file=tmp_path / "there")]
        heard = dispatcher.run_items(client, [(AdapterPool((having[0].card,), {}), work)])
        found = {event.at: event.value for event in heard if isinstance(event, dispatcher.ItemResult)}
    assert found == {0: dispatcher.ItemLost("WorkerTimedOut: no sign of life for 0.5 s: stopped"), 1: "awake"}


def test_a_kernel_that_hangs_costs_no_other(
    plain: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "layer_norm"
    folder.mkdir()
    # An empty loop is taken away by most drivers, and llvmpipe ends any after 65,535 rounds: each takes long.
    steps = "{% for _ in range(1000) %}spin = sin(spin) + 2.0; {% endfor %}"
    loop = f"var spin = 2.0;\n    for (; spin > 0.0;) {{ {steps} }}"
    text = broken.HONEST.replace("let pivot = ", f"{loop}\n    let pivot = spin + ")
    assert text != broken.HONEST
    (folder / "endless.wgsl").write_text(text)
    (folder / "honest.wgsl").write_text(broken.HONEST)
    monkeypatch.setattr(errands, "CheckItem", spans.Strict)
    command = ["check", "--wgsl", ".", "--kernel", "endless,honest", "--case", "normal", "--time-limit", "1"]
    done = webnorm([*command, "--cluster", plain.address, "--json", "out.json"], tmp_path)
    reasons = {one["kernel"]: one.get("reason", "") for one in results(tmp_path / "out.json")}
    assert reasons.keys() == {"endless", "honest"} and reasons["honest"] == ""
    assert reasons["endless"] == "no sign of life for 1 s: stopped" and done.returncode == 1


def test_a_kernel_runs_where_its_file_is_not(plain: Fleet, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "more.wgsl").write_text("// a snippet that only this machine has\n")
    mine = tmp_path / "mine.wgsl"
    mine.write_text(broken.HONEST.replace("let pivot", '{% include "lib/more.wgsl" %}\n    let pivot'))
    (tmp_path / "wrong.wgsl").write_text(broken.HONEST.replace("let pivot", "{{ nothing }} let pivot"))
    command = ["check", "--kernel", "mine.wgsl", "--kernel", "wrong.wgsl", "--case", "normal"]
    done = webnorm([*command, "--cluster", plain.address, "--json", "out.json"], tmp_path)
    mine_found, wrong_found = results(tmp_path / "out.json")
    assert mine_found["status"] == "pass", done.stdout
    # As if it had been read here.
    assert wrong_found["status"] == "error" and wrong_found["reason"].startswith("wrong.wgsl:")
    assert done.returncode == 1


@pytest.mark.slow
def test_a_cluster_that_fails_at_its_end_takes_nothing_from_what_was_found(
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
def test_what_was_tuned_before_an_interruption_is_not_tuned_again(tmp_path: Path, device: Device) -> None:
    command = ["tune", "--op", "rms_norm", "--dtype", "float32", "--rows", "64", "--cols", "64,96"]
    command += ["--budget", "0.2", "--out", "tuned.json", "--cluster", "local:1"]
    # Dask's workers hear Ctrl-C, too.
    run = webnorm_interrupted(command, tmp_path, "tuned.json")
    assert run.returncode == 130 and run.stderr == "webnorm: interrupted; finished results are kept\n"
    kept = (tmp_path / "tuned.json").read_text()
    again = webnorm([*command, "--cols", "64"], tmp_path)
    assert again.returncode == 0, again.stderr
    assert "\n1 of 1 problems are recorded and not tuned again\n" in again.stdout
    assert (tmp_path / "tuned.json").read_text() == kept
