from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from webnorm.choice.defaults import default_variant
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.kernels.rendering import render
from webnorm.kernels.rendering.render import Shader
from webnorm.lab.diagnose.examination import Examination, examine
from webnorm.lab.run.evaluation import (
    CaseJob,
    EvaluationJob,
    HeaderRead,
    ProblemVerdict,
    TextsCompiled,
    evaluate,
    try_case,
    warm_up,
)
from webnorm.lab.verify.problem_buffers import ProblemBuffers
from webnorm.op.corpus import problems
from webnorm.op.op import Task
from webnorm.op.registry import OPS
from webnorm.ops.copy.problem import draw_playground, playground_tasks
from webnorm.ops.norms.corpus import CASES


@pytest.fixture(autouse=True)
def trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Render these templates in this process."""
    monkeypatch.setattr(render, "trusted_roots", [tmp_path.resolve()])


def changed(folder: Path, name: str, old: str, new: str) -> Path:
    """Write a built-in kernel with a changed text as a user's file."""
    text = (wgsl_root() / "layer_norm" / f"{name}.wgsl").read_text()
    assert old in text
    path = folder / "layer_norm" / "mine.wgsl"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text.replace(old, new))
    return path


def events_of(device: Device, path: Path) -> list[Any]:
    return list(evaluate(device, EvaluationJob(path, None, ())))


def found_in(events: list[Any]) -> Examination:
    (found,) = (event for event in events if isinstance(event, Examination))
    return found


def test_a_right_kernel_is_rendered_compiled_and_passes(device: Device, tmp_path: Path) -> None:
    path = changed(tmp_path, "naive", "The mean of x.", "The mean of the row.")
    events = events_of(device, path)
    assert [type(event) for event in events] == [
        HeaderRead,
        Shader,
        TextsCompiled,
        ProblemVerdict,
        ProblemVerdict,
    ]
    assert [event.result.status for event in events if isinstance(event, ProblemVerdict)] == ["pass", "pass"]
    assert "The mean of the row." in events[1].text
    again = pickle.loads(pickle.dumps(events))
    assert again[1].text == events[1].text and again[2:] == events[2:]


def test_a_wrong_one_is_examined_once(device: Device, tmp_path: Path) -> None:
    events = events_of(device, changed(tmp_path, "naive", " + params.eps", ""))
    assert [type(event) for event in events] == [
        HeaderRead,
        Shader,
        TextsCompiled,
        ProblemVerdict,
        ProblemVerdict,
        Examination,
    ]
    found = found_in(events)
    assert found.hints[0].text == "y fits a kernel that leaves eps out"
    assert found.worst is not None and found.worst.output == "y" and found.map is not None
    # Every fourth row is so large that eps has no effect.
    wrong = [max(row) > 1.0 for row in found.map.cells]
    assert wrong == [True, True, False, True] * 2


def test_an_unstable_kernel_may_fail_only_on_difficult_values(device: Device, tmp_path: Path) -> None:
    path = changed(tmp_path, "one_pass", "rung = 2", "rung = 2")
    hard = EvaluationJob(path, None, (), x=(1e5, 1.0))

    def verdicts() -> list[tuple[str, bool | None]]:
        events = [event for event in evaluate(device, hard) if isinstance(event, ProblemVerdict)]
        return [(event.result.status, event.result.expected) for event in events]

    assert verdicts() == [("pass", None), ("pass", None), ("fail", True)]
    changed(tmp_path, "one_pass", "moments.y - mean", "2.0 * moments.y - mean")
    assert verdicts() == [("fail", None), ("fail", None), ("fail", True)]


def test_an_unwritten_output_is_reported_before_outputs_compared_with_it(
    device: Device, tmp_path: Path
) -> None:
    path = changed(tmp_path, "naive", "{{ write_extras() }}\n", "")
    events = evaluate(device, EvaluationJob(path, None, (), options=("residual",)))
    reasons = [event.result.reason for event in events if isinstance(event, ProblemVerdict)]
    assert reasons and all("of h are NaN or Inf or were never written" in str(reason) for reason in reasons)


def test_mistakes_in_a_text_are_raised(device: Device, tmp_path: Path) -> None:
    for old, new, said in (
        ("rung = 1", "rung = ", "mine.wgsl"),
        ("{% call each_row() %}", "{% call no_row() %}", "mine.wgsl:23"),
        ("total(sum) * PER_COLUMN", "total(sum) * PER_ROW", "mine.wgsl:30"),
    ):
        with pytest.raises(WebnormError, match=said):
            events_of(device, changed(tmp_path, "naive", old, new))


def test_sizes_that_a_kernel_refuses_are_replaced(device: Device, tmp_path: Path) -> None:
    rule = 'layout = "row_per_invocation"\n// [[require]]\n// rule = "cols % 2 == 0"\n// why = "pairs"'
    events = events_of(device, changed(tmp_path, "naive", 'layout = "row_per_invocation"', rule))
    results = [event.result for event in events if isinstance(event, ProblemVerdict)]
    assert [(str(one.problem), one.status) for one in results] == [
        ("8x768 float32", "pass"),
        ("7x1064 float32", "pass"),
    ]


def test_a_race_has_a_place(device: Device, tmp_path: Path) -> None:
    old = "        workgroupBarrier();\n        if (thread < left)"
    path = changed(tmp_path, "two_pass", old, "        if (thread < left)")
    task = playground_tasks(OPS["layer_norm"])[0]
    # The effect of the race depends on the adapter.
    variant = default_variant(load(path), task.problem, device.traits)
    board = ProblemBuffers(device, task, draw_playground(task), ())
    found = examine(board, board.prepare(variant))
    (hint,) = (hint for hint in found.hints if hint.kind == "race")
    lines = path.read_text().splitlines()
    assert hint.place is not None and hint.place.file.endswith("mine.wgsl")
    assert "partials[" in lines[hint.place.line - 1]


def test_a_kernel_that_is_right_at_first(device: Device, tmp_path: Path) -> None:
    """Row 0 has another mean after every row is shifted."""
    new = "affine((h - mean) * rstd * select(1.0, 1.5, row == 0u && mean > 0.0)"
    found = found_in(events_of(device, changed(tmp_path, "naive", "affine((h - mean) * rstd", new)))
    assert found.hints[0].kind == "unsteady" and "wrong after every row was shifted" in found.hints[0].text
    assert found.worst is not None and found.worst.index[0] == 7


def test_a_race_is_found_where_it_does_no_harm(device: Device, tmp_path: Path) -> None:
    path = changed(tmp_path, "two_pass", "        workgroupBarrier();\n        if", "        if")
    op = OPS["layer_norm"]
    task = next(Task(op, own) for case, own in problems(CASES, op, ["float32"]) if case.name == "normal")
    (result,) = try_case(device, CaseJob(EvaluationJob(path, None, ()), "normal", task))
    assert result.status == "fail"
    # On a GPU its output is wrong, and no search for races follows.
    assert not device.traits.software or "a race: partials[" in str(result.reason)


def test_constants_have_to_be_the_kernels(device: Device, tmp_path: Path) -> None:
    path = changed(tmp_path, "two_pass", "rung = 3", "rung = 3")
    with pytest.raises(WebnormError, match="did you mean 'threads_per_row'"):
        list(evaluate(device, EvaluationJob(path, None, (), constants={"threads_row": (8,)})))


def test_a_warm_up_ignores_broken_snippets(device: Device, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    for text in ("{% nothing %}", "{{ 'x' * 100000000 }}", "fn broken("):
        (tmp_path / "lib" / "norm.wgsl").write_text(text)
        warm_up(device, (tmp_path,))
