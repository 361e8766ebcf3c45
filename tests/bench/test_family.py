"""`python -m bench.family`: its problems, and runs with and without a comparison with float64."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from bench.family import __main__ as script
from bench.family.problems import PROBLEMS, FamilyProblem
from bench.record import side_by_side
from bench.record.variants import own_variants
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.kernels.headers.traits import Traits
from webnorm.lab.verify.problem_buffers import RepeatedRows
from webnorm.op.dtypes import STORAGE

GPU = Traits(
    features=frozenset({"shader-f16", "subgroups"}),
    max_invocations=1024,
    workgroup_storage=49152,
    software=False,
    subgroup_min_size=32,
    subgroup_max_size=32,
)
SMALL = FamilyProblem("l2_norm", (64, 32), (), "a small model", False)
GRADIENT = FamilyProblem("modulated_norm_backward", (4, 8, 16), (), "a small model", True)


def started(monkeypatch: pytest.MonkeyPatch, device: Device, *arguments: str) -> None:
    """Run the script on small problems."""
    monkeypatch.setattr(script, "PROBLEMS", (SMALL, GRADIENT))
    monkeypatch.setattr(script, "open_device", lambda: device)
    # Few rounds suffice, since nothing here depends on the times.
    monkeypatch.setattr(side_by_side, "rule_of", lambda rounds, rule=side_by_side.rule_of: rule(2))
    monkeypatch.setattr(sys, "argv", ["bench.family", *arguments])
    script.main()


def no_answers(*_: Any) -> NoReturn:
    raise AssertionError("the answers in float64 were computed")


@pytest.mark.parametrize("steps", ["0", pytest.param("1", marks=pytest.mark.slow)])
def test_an_unchecked_run_says_so(
    steps: str, device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RepeatedRows, "answers", no_answers)
    monkeypatch.setattr(side_by_side, "libraries", no_answers)
    monkeypatch.setattr(side_by_side, "make_inputs", no_answers)
    started(monkeypatch, device, "--unchecked", "--out", str(tmp_path), "--steps", steps)
    report = (tmp_path / "family.md").read_text()
    assert report.startswith("# The norm family, in percent of the best copy (UNCHECKED: not compared with")
    assert "No result of this run was compared with float64" in report
    found = json.loads((tmp_path / "family.json").read_text())
    assert [one["op"] for one in found] == ["l2_norm", "modulated_norm_backward"]
    for one in found:
        assert {result["status"] for result in one["results"]} <= {"unchecked", "skip"}
        assert any(result["us"] > 0 for result in one["results"]) and one["unchecked"]


def test_named_kernels_are_timed_next_to_the_choice_of_auto(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--unchecked", "--out", str(tmp_path), "--op", "l2_norm", "--kernel", "streaming"]
    started(monkeypatch, device, *words)
    (found,) = json.loads((tmp_path / "family.json").read_text())
    times = [one["us"] for one in found["results"] if one["kernel"] == "streaming"]
    assert len(times) > 1 and all(times)


def test_a_checked_run_compares(device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started(monkeypatch, device, "--out", str(tmp_path), "--op", "l2_norm", "--dtype", "float32")
    assert "UNCHECKED" not in (tmp_path / "family.md").read_text()
    (found,) = json.loads((tmp_path / "family.json").read_text())
    assert "float32" in found["problem"] and not found["unchecked"]
    statuses = {one["kernel"]: one["status"] for one in found["results"]}
    assert statuses["torch eager"] == "skip" and "unchecked" not in statuses.values()
    assert statuses["copy"] == "pass"


def test_unchecked_results_are_not_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.family", "--unchecked", "--write", "--out", str(tmp_path)])
    with pytest.raises(WebnormError, match="--write and --unchecked cannot be combined"):
        script.main()
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dtype", "float64"], "invalid choice: 'float64'"),
        (["--op", "layer"], "invalid choice: 'layer'"),
        (["--kernel", "fast"], "invalid choice: 'fast'"),
    ],
)
def test_unknown_names_of_a_family_run(
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.family", "--out", "unused", *arguments])
    with pytest.raises(SystemExit):
        script.main()
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda one: f"{one.op}-{'x'.join(map(str, one.sizes))}")
def test_every_problem_of_the_family_has_variants(problem: FamilyProblem) -> None:
    for dtype in STORAGE:
        task = problem.task(dtype)
        own = own_variants(task, GPU)
        assert own.auto.variant.refusal(task.problem, GPU) is None


def test_each_op_has_problems_that_tuned_nothing() -> None:
    ops = {one.op for one in PROBLEMS}
    assert {"group_norm_backward", "qk_norm_backward", "modulated_norm_backward"} < ops
    for op in ops:
        assert {one.tuned for one in PROBLEMS if one.op == op} == {True, False}
    assert len({(one.op, one.sizes, one.options) for one in PROBLEMS}) == len(PROBLEMS)
