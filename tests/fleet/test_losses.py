"""A lost worker or adapter loses no finished result, and no result is reported twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import spans
from clusters import BENCH, Fleet, before

from commands import webnorm
from patience import until
from webnorm.fleet import cluster, dispatcher
from webnorm.fleet.adapters import AdapterPool
from webnorm.fleet.work_items import WorkItem
from webnorm.gpu.device import find_adapter

if TYPE_CHECKING:
    from distributed import Client

pytestmark = pytest.mark.xdist_group("fleet")

COLS = ("--cols", "64,96")


@contextmanager
def meanwhile(do: Callable[[], None]) -> Iterator[None]:
    """Call a function in a thread during the block, and wait for it at the end."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            do()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    yield
    thread.join()
    assert not failed


def pids(fleet: Fleet) -> dict[str, int]:
    """Wait until a Dask worker has a task; return the workers' process ids by name."""
    from distributed import Client

    with Client(fleet.address, set_as_default=False) as client:
        until(lambda: any(client.processing().values()))
        workers = client.scheduler_info()["workers"]
        return {str(workers[address]["name"]): pid for address, pid in client.run(os.getpid).items()}


def problems(found: list[dict[str, Any]]) -> list[tuple[int, str]]:
    return [(one["problem"]["cols"], one["status"]) for one in found if one["op"] != "copy"]


def outcomes(fleet: Fleet, meantime: Callable[[], None], folder: Path) -> list[tuple[int, Any]]:
    """Return the outcomes of items that wait until `meantime` has added or ended workers."""

    def happen() -> None:
        meantime()
        (folder / "happened").touch()

    with cluster.connected(fleet.address, None, pytest.fail) as client:
        having, _ = cluster.members(client)
        work = [spans.Waiting(file=folder / "happened") for _ in range(3)]
        pool = AdapterPool(tuple(one.card for one in having), {})
        with meanwhile(happen):
            heard = dispatcher.run_items(client, [(pool, work)])
            return [(event.at, event.value) for event in heard if isinstance(event, dispatcher.ItemResult)]


@pytest.fixture(scope="module")
def left(fleet: Fleet) -> subprocess.Popen[bytes]:
    """Start the worker that remains. No nanny restarts it."""
    return fleet.worker("--no-nanny")


@pytest.mark.slow
def test_a_killed_worker_loses_no_result_and_repeats_none(
    fleet: Fleet, left: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    process = fleet.worker()

    def kill() -> None:
        (pid,) = (pid for pid in pids(fleet).values() if pid != left.pid)
        os.kill(pid, signal.SIGKILL)

    assert sorted(outcomes(fleet, kill, tmp_path)) == [(0, "awake"), (1, "awake"), (2, "awake")]
    fleet.end(process)


@pytest.mark.slow
def test_items_of_a_lost_adapter_go_to_an_equal_one(
    fleet: Fleet, left: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    if find_adapter().backend != "Vulkan":
        pytest.skip("only a Vulkan driver has a file that a test can remove")
    driver = next(Path("/usr/share/vulkan/icd.d").glob("lvp*.json"), None)
    if driver is None:
        pytest.skip("no software driver with such a file")
    going = tmp_path / "driver.json"
    going.write_text(driver.read_text())
    lost = fleet.worker(VK_DRIVER_FILES=str(going))

    def take_away() -> None:
        pids(fleet)
        going.unlink()

    assert sorted(outcomes(fleet, take_away, tmp_path)) == [(0, "awake"), (1, "awake"), (2, "awake")]
    with cluster.connected(fleet.address, None, pytest.fail) as client:
        having, without = cluster.members(client)
    equal = [one.name for one in having if one.card.description["backend"] == "Vulkan"]
    assert len(equal) == 1 and len(having) + len(without) == 2
    fleet.end(lost)


@pytest.mark.slow
def test_without_an_equal_adapter_the_rest_is_skipped(
    fleet: Fleet, left: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker dies after the first problem; the second would never end."""
    own = dispatcher.run_items

    def gathered(client: Client, work: Sequence[tuple[AdapterPool, Sequence[WorkItem]]]) -> Iterator[Any]:
        ((pool, (first, _)),) = work
        for event in own(client, [(pool, [first, spans.Waiting(file=tmp_path / "nothing")])]):
            yield event
            if isinstance(event, dispatcher.ItemResult):
                left.kill()
                # The patience ends only now. Earlier, a late heartbeat on a busy machine would count as a
                # loss.
                monkeypatch.setattr(dispatcher, "_PATIENCE_S", 0.0)

    monkeypatch.setattr(dispatcher, "run_items", gathered)
    done = webnorm([*BENCH, *COLS, "--cluster", fleet.address, "--json", "out.json"], tmp_path)
    assert done.returncode == 3 and "not timed: 1 problem, because no worker was left" in done.stderr
    report = json.loads((tmp_path / "out.json").read_text())
    assert problems(report["results"]) == [(64, "pass"), (96, "skip")] and report["complete"] is False
    lost = report["results"][-1]
    assert lost["reason"] == f"no worker with {find_adapter()} is left"
    fleet.end(left)


@pytest.mark.slow
def test_another_version_is_refused_by_name(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "webnorm").mkdir()
    (tmp_path / "webnorm" / "__init__.py").touch()
    (tmp_path / "webnorm" / "_version.py").write_text('__version__ = "9.9.9"\n')
    process = fleet.worker("--no-nanny", PYTHONPATH=before(tmp_path))
    done = webnorm([*BENCH, *COLS, "--cluster", fleet.address, "--json", "out.json"], tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("webnorm: worker plain-") and "has webnorm 9.9.9; it must " in done.stderr
    assert not (tmp_path / "out.json").exists()
    fleet.end(process)
