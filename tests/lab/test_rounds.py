"""Detection of endless loops on every adapter, even if the driver ends them and the answer is right."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from testbed import KERNELS, suited
from webnorm.choice.defaults import default_variant
from webnorm.gpu.device import Device
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.kernels.rendering.render import render_shader
from webnorm.kernels.wgsl.tokens import CannotInstrument
from webnorm.lab.run import evaluation
from webnorm.lab.run.check import with_expectation
from webnorm.lab.run.evaluation import EvaluationJob
from webnorm.lab.verify import races, trial
from webnorm.lab.verify.instrumentation import LOOP_WORDS, LoopInstrumentation
from webnorm.lab.verify.problem_buffers import ProblemBuffers
from webnorm.lab.verify.races import RaceOrLoopFault, find_fault
from webnorm.lab.verify.trial import try_variant
from webnorm.op.op import Task, make_inputs
from webnorm.ops.norms.corpus import CASES
from webnorm.ops.norms.problem import NormProblem

PROBLEM = NormProblem(rows=7, cols=40)
# Places for insertions, in a kernel with workgroup memory and in one without.
PLACES = {"two_pass": "    let pivot = pivot_of(row);\n", "naive": "    // The mean of x.\n"}
NEVER = "params.eps == 12345.678"
ENDLESS = {
    "loop": f"loop {{ if ({NEVER}) {{ break; }} }}",
    "while": "var w = 0u; while w < 4u { w *= 2u; }",
    "for that stands": "var q = 0u; for (var i = 0u; i < 4u; i += 0u) { q += 1u; }",
    "for without a condition": f"var i = 0u; for (;;) {{ i += 1u; if ({NEVER}) {{ break; }} }}",
    "a bound below 0": "var o = 0u; for (var i = 0u; i < row * 0u - 1u; i++) { o += i; }",
    "continuing": "var c = 0u; loop { if (c == 5u) { continue; } c += 1u; continuing { break if c > 9u; } }",
    "a switch's break": f"loop {{ switch row {{ default: {{ break; }} }} if ({NEVER}) {{ break; }} }}",
    "around a long one": f"var o = 0.0; loop {{ // it\n"
    f"for (var i = 0u; i < 2000u; i++) {{ o += 1.0; }} if ({NEVER}) {{ break; }} }}",
    "inside of others": "var o = 0.0; for (var i = 0u; i < 20u; i++) {\n"
    f"loop {{ /* it */ o += 1.0; if ({NEVER}) {{ break; }} }} }}",
    "of one row": f"loop {{ if (row != 3u || {NEVER}) {{ break; }} }}",
}
ENDING = """
    var o = 0u;
    for (var i = 0u; i < 20000u; i++) { o += i; if (i == 19990u) { break; } }
    for (var i = 9u; i < 4u; i++) { o += 1u; }
    loop { o += 1u; continuing { break if o > 3u; } }
    while o > 3u { o -= o / 2u; }
    switch o {
        case 1u: { break; }
        default: { loop { switch o { case 0u: { break; } default: { o = 0u; continue; } } break; } }
    }
    o += early(row);
"""
EARLY = """fn early(row: u32) -> u32 {
    for (var i = 0u; i < 8u; i++) { loop { if (i == 3u) { return i; } break; } }
    return row;
}
@compute"""


def with_text(folder: Path, text: str, kernel: str = "two_pass") -> Kernel:
    whole = (wgsl_root() / "layer_norm" / f"{kernel}.wgsl").read_text()
    place = PLACES[kernel]
    assert place in whole
    path = folder / "layer_norm" / "looping.wgsl"
    path.parent.mkdir(exist_ok=True)
    path.write_text(whole.replace(place, f"    {text}\n{place}").replace("@compute", EARLY, 1))
    return load(path)


def fault_of(kernel: Kernel, device: Device, problem: NormProblem = PROBLEM) -> RaceOrLoopFault | None:
    variant = default_variant(kernel, problem, device.traits)
    return find_fault(device, variant, problem, make_inputs(kernel.op, problem), ())


@pytest.mark.opengl
@pytest.mark.parametrize(
    "which",
    # Each round counts towards the limit of 65,535.
    [
        pytest.param(name, marks=() if name in ("while", "inside of others") else pytest.mark.slow)
        for name in ENDLESS
    ],
)
def test_a_loop_that_does_not_end_is_named_by_its_line(which: str, device: Device, tmp_path: Path) -> None:
    kernel = with_text(tmp_path, ENDLESS[which], "naive" if which == "while" else "two_pass")
    found = fault_of(kernel, device)
    assert found is not None and found.kind == "loop", found
    lines = kernel.path.read_text().splitlines()
    marked = [number for number, line in enumerate(lines, 1) if "// it" in line or "/* it" in line]
    first = ENDLESS[which].partition("\n")[0]
    expected = marked or [number for number, line in enumerate(lines, 1) if first in line]
    assert found.place.file.endswith("looping.wgsl") and [found.place.line] == expected
    assert "a loop that does not end: it was stopped after" in str(found)


def test_loops_that_end_are_not_reported(device: Device, tmp_path: Path) -> None:
    assert fault_of(with_text(tmp_path, ENDING), device) is None


def test_long_rows_are_not_endless_loops(device: Device) -> None:
    """These are the longest rows that this adapter runs."""
    naive = next(kernel for kernel in KERNELS if kernel.label == "layer_norm/naive")
    most = 1 << 20
    problem = NormProblem(rows=1, cols=most)
    variant = default_variant(naive, problem, device.traits)
    while variant.refusal(problem, device.traits) is not None:
        problem = replace(problem, cols=problem.cols // 2)
        variant = default_variant(naive, problem, device.traits)
    assert problem.cols >= 1 << 15
    assert fault_of(naive, device, problem) is None


def test_the_limit_allows_any_order_of_work() -> None:
    """One invocation may loop over all elements several times."""
    for rows, cols in ((1, 1), (7, 40), (1, 1 << 20)):
        text = LoopInstrumentation("fn main() { loop { break; } }").library(rows * cols, "notes", 0, "native")
        most = re.search(r"rounds_most = (\d+)u", text)
        assert most is not None and int(most[1]) >= 65_536 + 8 * rows * cols


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.label)
def test_loops_of_webnorms_kernels_are_understood(kernel: Kernel, device: Device) -> None:
    for cols in (1, 199, 4096):
        problem = suited(kernel, kernel.op.problem(7, cols))
        variant = default_variant(kernel, problem, device.traits)
        if variant.refusal(problem, device.traits) is None:
            rounds = LoopInstrumentation(render_shader(variant, problem, "native", device.traits).text)
            assert rounds.text().count("\n") == rounds._code.text.count("\n")


def test_a_right_answer_with_an_endless_loop_is_a_failure(device: Device, tmp_path: Path) -> None:
    if not device.traits.software:
        pytest.skip("a GPU hangs in it")
    kernel = with_text(tmp_path, ENDLESS["loop"])
    problem = PROBLEM
    board = ProblemBuffers(device, Task(kernel.op, problem), make_inputs(kernel.op, problem), ())
    variant = default_variant(kernel, problem, device.traits)
    assert try_variant(board, variant)[0].status == "pass"
    result = try_variant(board, variant, watch=True)[0]
    assert (result.status, result.fault) == ("fail", "loop")
    assert "a loop that does not end" in (result.reason or "")
    found = [one.fault for one in evaluation.check_races(device, EvaluationJob(kernel.path, None, ()))]
    assert {one and one.kind for one in found} == {"loop"}


def test_a_wrong_answer_names_its_endless_loop(device: Device, tmp_path: Path) -> None:
    if not device.traits.software:
        pytest.skip("a GPU hangs in it")
    kernel = with_text(tmp_path, f"{ENDLESS['loop']} if (row == 0u) {{ return; }}", "naive")
    board = ProblemBuffers(device, Task(kernel.op, PROBLEM), make_inputs(kernel.op, PROBLEM), ())
    result = try_variant(board, default_variant(kernel, PROBLEM, device.traits), watch=True)[0]
    (line,) = (at for at, text in enumerate(kernel.path.read_text().splitlines(), 1) if "return; }" in text)
    assert (result.status, result.watched, result.fault) == ("fail", True, "loop")
    assert re.search(rf"never written.*looping\.wgsl:{line}: a loop that does not end", result.reason or "")


def test_an_unsupported_text_does_not_pass(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`check` skips it with the reason, and so does `play`'s step."""
    for text in ("let rounds_end = 1u;", "@diagnostic(off, derivative_uniformity) loop { break; }"):
        with pytest.raises(CannotInstrument):
            LoopInstrumentation(f"fn main() {{ {text} }}")
    kernel = with_text(tmp_path, "let rounds_end = 1u;")
    problem = PROBLEM
    board = ProblemBuffers(device, Task(kernel.op, problem), make_inputs(kernel.op, problem), ())
    result = try_variant(board, default_variant(kernel, problem, device.traits), watch=True)[0]
    skipped = with_expectation(result, kernel, CASES[0])
    assert skipped.status == "skip" and "it is unknown whether its loops end" in (skipped.reason or "")
    (*_, unclear) = evaluation.check_races(device, EvaluationJob(kernel.path, None, ()))
    assert unclear.unwatched is not None and "rounds_end" in unclear.unwatched
    # Errors of the driver in the instrumented text are not the kernel's fault either.
    monkeypatch.setattr(LoopInstrumentation, "library", lambda *_: "fn broken(")
    kernel = with_text(tmp_path, ENDING)
    with pytest.raises(races.LoopsNotInstrumented):
        fault_of(kernel, device)
    assert trial.try_variant(board, default_variant(kernel, problem, device.traits), watch=True)[0].reason


def test_the_longest_of_several_loops_is_named() -> None:
    text = "fn f() {\nloop { break; }\nloop {\nloop { break; } break; }\nloop { break; } }"
    rounds = LoopInstrumentation(text)
    assert rounds.lines == (2, 3, 4, 5)
    once = [1, 1, 1, 1]
    right = [*once, 1, 1, 64, 64, 64, 64, 32, 40, *once]
    assert rounds.endless(right) is None and len(right) == LOOP_WORDS * 4
    # The outer loop is endless; the inner one and the loop after it are interrupted.
    outer = [*once, 1, 0, 32, 0, 33, 32, 1024, 2000, 1, 0, 1, 0]
    assert rounds.endless(outer) == (3, 32)
    inner = [*once, 1, 0, 1, 0, 1, 0, 32768, 0, 1, 0, 1, 0]
    assert rounds.endless(inner) == (4, 32768)
