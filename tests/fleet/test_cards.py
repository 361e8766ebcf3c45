"""Pools of cards, and the files that are sent with work items, without a cluster or an adapter."""

from __future__ import annotations

import logging
import os
import signal
import sys
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from commands import webnorm
from webnorm.cli.work.cluster import _DividedJob
from webnorm.cli.work.jobs import AfterInterrupt
from webnorm.errors import WebnormError
from webnorm.fleet import cluster
from webnorm.fleet.adapters import AdapterPool, FleetAdapter, agreeing_adapters
from webnorm.fleet.cluster import ClusterWorker, is_local
from webnorm.fleet.dispatcher import ItemLost, ItemResult, run_items
from webnorm.fleet.shipped_files import ShippedFiles
from webnorm.fleet.work_items import CopyItem
from webnorm.fleet.worker import dask_setup, options, quieten, root_cause
from webnorm.kernels.headers.traits import BROWSER


@pytest.mark.parametrize(
    ("gbps", "pools"),
    (
        ({"a": 100.0}, [["a"]]),
        ({"a": 100.0, "b": 97.1}, [["a", "b"]]),
        ({"a": 100.0, "b": 97.0}, [["a"], ["b"]]),
        # A chain whose ends do not agree forms no pool.
        ({"a": 100.0, "b": 98.0, "c": 96.0}, [["a", "b"], ["c"]]),
        ({"a": 100.0, "b": 90.0, "c": 89.0}, [["b", "c"], ["a"]]),
        ({}, []),
    ),
)
def test_cards_with_similar_copies_are_pooled(gbps: dict[str, float], pools: list[list[str]]) -> None:
    found = agreeing_adapters({(host, 0): rate for host, rate in gbps.items()})
    assert [sorted(host for host, _ in pool) for pool in found] == pools


@pytest.mark.parametrize(
    ("choice", "meant"),
    (
        ("1", True),
        ("0", False),
        pytest.param("9" * 5000, False, id="digits"),
        ("vulkan", True),
        ("some gpu (vul", True),
        ("x", False),
    ),
)
def test_a_card_is_chosen_like_an_adapter(choice: str, meant: bool) -> None:
    description = {"adapter": "Some GPU", "backend": "Vulkan", "type": "CPU", "driver": "1.2"}
    assert FleetAdapter("here", 1, description, BROWSER).fits(choice) == meant


def test_a_worker_has_its_card_before_it_gets_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    card = FleetAdapter("here", 1, {"adapter": "Some GPU"}, BROWSER)
    monkeypatch.setattr(os, "environ", {**os.environ, **options(1, card)["env"]})
    monkeypatch.setattr(signal, "signal", lambda *given: None)
    started: Any = SimpleNamespace()
    dask_setup(started)
    assert started.webnorm == card


def test_the_root_cause_names_no_object_of_dask() -> None:
    refused, outer = OSError("in <a.Connector object at 0x7f>: refused"), OSError("Timed out")
    outer.__cause__ = refused
    assert root_cause(outer) == "refused"
    outer.__cause__ = TimeoutError()
    assert root_cause(outer) == "Timed out"
    nanny, process = RuntimeError("Nanny failed to start."), RuntimeError("Worker failed to start.")
    nanny.__cause__, process.__cause__ = process, ValueError("name taken, a-0")
    assert root_cause(nanny) == "name taken, a-0"


def test_a_card_whose_copy_cannot_be_timed_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = (FleetAdapter(host, 0, {"adapter": "Some GPU"}, BROWSER) for host in ("here", "there"))
    pool = AdapterPool((here,), {here.device: 5.0}, ("here",))
    monkeypatch.setattr("webnorm.fleet.dispatcher.pooled", lambda *given: [pool])
    group = [ClusterWorker("tcp://", card.host, card) for card in (here, there)]
    job: Any = SimpleNamespace(times=True, for_cards=True)
    client: Any = SimpleNamespace()
    assert _DividedJob(job, 1.0)._pools(client, group, lambda *given: None) == [pool]
    assert capsys.readouterr().err == (
        "webnorm: adapter 0 of there is left out: its copy could not be timed\n"
    )


def test_a_scheduler_that_ends_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    card, done = FleetAdapter("here", 1, {"adapter": "Some GPU"}, BROWSER), Future[Any]()
    done.cancel()
    client: Any = SimpleNamespace(scheduler_info=lambda: {"workers": {}}, submit=lambda *given, **more: done)
    monkeypatch.setattr("webnorm.fleet.dispatcher.Future", Future)
    client.subscribe_topic = client.processing = lambda *given: {}
    found = [
        one.value
        for one in run_items(client, [(AdapterPool((card,), {}), [CopyItem(time_limit_s=1)])])
        if isinstance(one, ItemResult)
    ]
    assert found == [ItemLost("the scheduler no longer answers")]
    # Dask's client logs nothing about it.
    monkeypatch.setattr(os, "environ", dict(os.environ))
    quieten()
    assert not logging.getLogger("distributed.client").isEnabledFor(logging.ERROR)


def test_a_host_named_localhost_is_no_local_cluster() -> None:
    assert [is_local(where) for where in ("local", "local:2", "localhost:8786", "local:")] == [
        True,
        True,
        False,
        False,
    ]


def test_files_are_sent_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "layer_norm").mkdir()
    (tmp_path / "lib").mkdir()
    mine, snippet = tmp_path / "layer_norm" / "mine.wgsl", tmp_path / "lib" / "more.wgsl"
    mine.write_text("mine")
    snippet.write_text("more")
    (tmp_path / "secret").write_text("not a kernel")
    os.symlink(tmp_path / "secret", tmp_path / "lib" / "link.wgsl")
    monkeypatch.chdir(tmp_path)
    carried = ShippedFiles.of(["auto", "layer_norm/mine.wgsl"], [tmp_path])
    mine.unlink()
    snippet.unlink()
    with carried.unpacked() as here:
        assert here.names is not None and here.names[0] == "auto"
        path = Path(here.names[1])
        assert path.read_text() == "mine" and path.parent.name == "layer_norm"
        assert (path.parents[1] / "lib" / "more.wgsl").read_text() == "more"
        assert here.roots == [path.parents[1]]
        # Messages contain the path that the user typed, and not the temporary one.
        assert here.restored_text(f"{path}:3: wrong") == "layer_norm/mine.wgsl:3: wrong"
        assert here.restored_text(f"{here.roots[0]}: empty") == f"{tmp_path}: empty"
    assert not path.exists()


def test_an_unreadable_file_is_reported_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(WebnormError, match=r"gone\.wgsl: cannot be read: No such file"):
        ShippedFiles.of([str(tmp_path / "gone.wgsl")])


@pytest.mark.parametrize(
    ("where", "reason"),
    (
        ("local:0", "expected from 1 to 64 workers"),
        ("local:99", "expected from 1 to 64 workers"),
        ("here", "expected local, local:N, the address of a Dask scheduler"),
        ("ftp://head:8786", "expected local, local:N"),
        ("tcp://head", "expected local, local:N"),
        ("tcp://head:port", "expected local, local:N"),
        ("gone.json", "cannot be read: No such file"),
        ("wrong.json", "not a scheduler file: it has no address"),
        ("tcp://127.0.0.1:9", "no scheduler answers: "),
    ),
)
def test_an_invalid_cluster_is_one_line(
    where: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A short limit is enough, because no scheduler answers there.
    monkeypatch.setattr(cluster, "_PATIENCE_S", 0.5)
    (tmp_path / "wrong.json").write_text("[1]")
    done = webnorm(["check", "--case", "normal", "--kernel", "naive", "--cluster", where], tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and reason in done.stderr, done.stderr
    assert done.stderr.endswith("; start one with `dask scheduler`\n") == (reason == "no scheduler answers: ")


def test_without_dask_a_cluster_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    for command in (
        ["check", "--cluster", "local"],
        ["cluster", "--cluster", "local"],
        ["cluster", "worker", "a:1"],
    ):
        done = webnorm(command, tmp_path)
        assert done.returncode == 2 and done.stderr.count("\n") == 1
        assert done.stderr.endswith("pip install 'webnorm[cluster]'\n")


def test_settings_that_dask_cannot_use_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import dask

    monkeypatch.setattr(cluster, "_PATIENCE_S", 0.5)
    words = ["check", "--case", "normal", "--kernel", "naive", "--cluster", "tcp://127.0.0.1:9"]
    for name in ("distributed.comm.timeouts.connect", "distributed.scheduler.idle-timeout"):
        with dask.config.set({name: "garbage"}):
            done = webnorm(words, tmp_path)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr


def test_results_are_shown_if_the_cluster_fails_later() -> None:
    found, nothing = Mock(left=AfterInterrupt.SHOWN), Mock(left=AfterInterrupt.NOTHING)
    work = _DividedJob(found, 1.0)
    work.jobs = [found, nothing]
    with pytest.raises(WebnormError, match="the cluster failed"):
        work.finish_what_is_found(WebnormError("the cluster failed"))
    found.finish.assert_called_once_with(False)
    nothing.finish.assert_not_called()


def test_dask_is_not_imported_without_a_cluster(tmp_path: Path) -> None:
    import subprocess

    modules = "webnorm, webnorm.cli.verbs.bench, webnorm.fleet.work_items"
    code = f"import sys, {modules}; sys.exit('dask' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False).returncode == 0
