"""Preparation before a record, tuning, and their use by the measuring process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.contenders import Contender, installed
from bench.contenders.installed import COMPILING, ContenderLibrary
from bench.contenders.samplers import WallClock
from bench.record import (
    preparing,
    side_by_side,
)
from bench.record import (
    tuning as tuned,
)
from bench.record.laps import Laps
from bench.record.preparing import (
    ContenderFault,
    PreparePool,
    PrepareUnit,
    TriedVariant,
    TryingVariant,
    share_caches,
)
from bench.record.side_by_side import KnownResults
from bench.record.variants import TunedVariants, own_variants
from patience import hang
from webnorm.choice.tuning import Platform, TunedChoice, Tuning
from webnorm.gpu import timing
from webnorm.gpu.device import Device
from webnorm.lab.process.worker import Worker, WorkerDied
from webnorm.lab.verify import trial
from webnorm.op.op import Task, make_inputs
from webnorm.op.presets import tasks
from webnorm.op.registry import OPS


def task_of(op: str = "layer_norm", rows: int = 32, cols: int = 128) -> Task:
    (task,) = tasks(op, ((rows, cols),), OPS[op].defaults)
    return task


def test_compilers_share_a_folder_and_set_variables_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dict(os.environ)
    monkeypatch.setattr(os, "environ", {**before, "TRITON_CACHE_DIR": "mine"})
    os.environ.pop("QUACK_CACHE_DIR", None)
    share_caches(tmp_path / "cache")
    assert os.environ["TRITON_CACHE_DIR"] == "mine"
    assert Path(os.environ["QUACK_CACHE_DIR"]).is_dir()
    assert os.environ["QUACK_CACHE_DIR"].startswith(str(tmp_path))


@pytest.mark.slow
def test_variants_are_checked_against_float64_in_another_process(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "COMPILING", ())
    task = task_of()
    own = own_variants(task, device.traits)
    with PreparePool(str(device.adapter.index), 1, tmp_path) as pool:
        prepared = pool.prepare([task], [], device.traits)
    known = prepared.known[task.problem]
    assert {str(variant) for variant in own.variants} == set(known.results)
    assert {result.status for result in known.results.values()} == {"pass"} and not known.faults
    assert prepared.seconds.seconds["own"] > 0

    # Known variants are not tried again, and those known to be wrong are not timed.
    tried: list[str] = []

    def try_variant(board: Any, variant: Any) -> Any:
        tried.append(str(variant))
        return trial.try_variant(board, variant)

    monkeypatch.setattr(side_by_side, "try_variant", try_variant)
    other = next(index for index in range(len(own.variants)) if index not in own.whole)
    wrong = str(own.variants[other])
    known.results[wrong] = replace(known.results[wrong], status="fail", reason="it was wrong there")
    results = side_by_side.measure(device, task, 2, alone=True, known=known)
    assert set(tried) == {str(own.variants[index]) for index in own.whole}
    assert len(results) == len(own.variants)
    assert (results[other].status, results[other].reason) == ("fail", "it was wrong there")
    timed = [result for index, result in enumerate(results) if index != other]
    # If a disturbed copy makes a variant seem faster, the variant has a reason, although it was timed.
    reasons = [result.reason for result in timed if not result.timed]
    assert all(reason and "% of copy" in reason for reason in reasons), reasons


def test_a_variant_that_killed_a_process_is_not_tried_again(device: Device) -> None:
    task, traits = task_of(), device.traits
    own = own_variants(task, traits)
    culprit = str(own.variants[3])
    known = KnownResults()
    died = WorkerDied("the process crashed with SIGSEGV")
    preparing._note(
        known,
        PrepareUnit(task, "own", Path("lock")),
        [TryingVariant("other"), TryingVariant(culprit), died],
        traits,
    )
    assert {name: result.status for name, result in known.results.items()} == {culprit: "error"}
    assert known.results[culprit].reason == str(died)

    preparing._note(
        known, PrepareUnit(task, "QuACK", Path("lock")), [ContenderFault("it broke the card")], traits
    )
    preparing._note(known, PrepareUnit(task, "Triton", Path("lock")), [died], traits)
    assert known.faults == {"QuACK": "it broke the card", "Triton": str(died)}
    # A crash in a search does not affect a contender, and the variants of a search have no results here.
    preparing._note(known, PrepareUnit(task, "search", Path("lock")), [TryingVariant(culprit), died], traits)
    assert len(known.faults) == 2 and len(known.results) == 1

    arrays = make_inputs(task.op, task.problem)
    answers = {"layer_norm": task.op.reference(arrays, task.problem)}
    library = ContenderLibrary((), [arrays], WallClock, lambda outputs, rows: outputs)
    never = Contender("QuACK", lambda t: pytest.fail("it was tried"))
    result = side_by_side.enter(never, library, task, answers, known.faults["QuACK"]).result
    assert (result.status, result.reason) == ("error", "it broke the card")


def test_only_a_contender_that_breaks_the_card_is_reported(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rehearse(name: str, task: Task, sets: int) -> None:
        raise RuntimeError("an illegal memory access was encountered\nand more")

    monkeypatch.setattr(installed, "rehearse", rehearse)
    monkeypatch.setattr(preparing, "take_turns", lambda lock: None)
    unit = PrepareUnit(task_of(), "QuACK", Path("lock"))
    found = []
    for is_broken in (False, True):
        monkeypatch.setattr(installed, "broken", lambda name, is_broken=is_broken: is_broken)
        found.append(list(preparing.prepare(device, unit)))
    assert found[0] == []
    (fault,) = found[1]
    assert (
        isinstance(fault, ContenderFault)
        and "illegal memory access" in fault.reason
        and "\n" not in fault.reason
    )


def test_the_slowest_units_start_first(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    def run(self: PreparePool, unit: PrepareUnit) -> tuple[PrepareUnit, list[Any], float]:
        begun.append(unit.what)
        return unit, [TriedVariant("one", trial.blank_result(variant, unit.task.problem))], 1.0

    variant = own_variants(task_of(), device.traits).variants[0]
    monkeypatch.setattr(PreparePool, "_run", run)
    both = [task_of(), task_of(cols=256)]
    found = PreparePool("0", 1, tmp_path).prepare(both, both[:1], device.traits)
    assert begun == [what for what in (*COMPILING, "own") for _ in both] + ["search"]
    assert set(found.known) == {task.problem for task in both}
    assert found.seconds.seconds["own"] == 2.0


def never_done(device: Device, unit: PrepareUnit) -> Iterator[TryingVariant]:
    yield TryingVariant(unit.what)
    # The interrupt comes once the parent has something to wait for.
    os.kill(os.getppid(), signal.SIGINT)
    hang()


def test_ctrl_c_does_not_wait_for_preparation(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "prepare", never_done)
    # An interrupted import would leave a half-imported library for all later tests.
    monkeypatch.setattr(installed, "start", lambda: None)
    with PreparePool(str(device.adapter.index), 1, tmp_path) as pool, pytest.raises(KeyboardInterrupt):
        pool.prepare([task_of()], [], device.traits)


# --- tuning


@pytest.mark.slow
def test_the_finalists_of_a_search_are_timed_with_the_choice(device: Device) -> None:
    task = task_of()
    with Worker(str(device.adapter.index)) as worker:
        found = tuned.searched(task, device.traits, worker, 0.3)
    assert found.tried >= 2
    own = own_variants(task, device.traits, found)
    assert {str(one) for one in found.variants} <= {str(one) for one in own.variants}
    results = side_by_side.measure(device, task, 2, alone=True, known=KnownResults(tuned=found))
    (auto,) = (result for result in results if result.auto)
    assert auto.tried == found.tried and auto.timed
    assert len(results) == len(own.variants)


def test_a_tuning_replaces_a_search(device: Device) -> None:
    task, traits = task_of(), device.traits
    own = own_variants(task, traits)
    other = next(one for one in own.variants if one.kernel.op is task.op and one != own.auto.variant)
    choice = TunedChoice(
        op=task.op.name,
        problem=task.problem,
        kernel=other.kernel.name,
        constants=other.constants,
        speedup=1.1,
        percent_of_copy=None,
        tried=77,
    )
    tuning = Tuning(platform=Platform.of(device.description()), date="2026-11-25", choices=(choice,))
    found = tuned.recorded(task, traits, tuning)
    assert found and [str(one) for one in found.variants] == [str(other)] and found.tried == 77
    assert tuned.recorded(task_of(cols=512), traits, tuning) is None
    # Tuning does not affect webnorm's own choice.
    assert own_variants(task, traits, TunedVariants((other,), 77)).auto == own.auto


# --- time


def test_laps_show_the_time_of_each_activity(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(timing, "clock", lambda: now)
    laps = Laps()
    for what, at in (("own", 100.5), ("Triton", 100.52), ("own", 101.0), ("proof", 102.0)):
        now = at
        laps.mark(what)
    assert str(laps) == "2.00 s (own 0.98, proof 1.00)"


def test_all_processes_are_killed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may take long to free a card, and the others must not wait for it."""
    calls: list[str] = []
    for name in ("kill", "stop"):
        monkeypatch.setattr(Worker, name, lambda worker, name=name: calls.append(name))
    with PreparePool("0", 2, tmp_path):
        pass
    assert calls == ["kill", "kill", "stop", "stop"]
