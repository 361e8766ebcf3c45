"""The playground with kernels of a user's op."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playing import ended

import user_folders
from commands import webnorm as command
from webnorm.cli.work.jobs import BAD_USAGE, INCONCLUSIVE, OK
from webnorm.gpu.device import Device
from webnorm.lab.run.evaluation import EvaluationJob, ProblemVerdict, evaluate
from webnorm.op.corpus import steady_cases
from webnorm.op.fitting_problem import fitting_task
from webnorm.op.op import Op
from webnorm.op.registry import OPS, load_op
from webnorm.op.small_problems import playground_tasks
from webnorm.play.attempt_store import FOLDER_VARIABLE
from webnorm.play.session import PlaygroundSession
from webnorm.play.stages import timed_problem
from webnorm.play.state import AttemptState, Settings, StageTime

ROOT = Path(__file__).parents[1]
OP = '''"""A number times the input."""
from webnorm.op import define_op, scalar, tensor

op = define_op(
    sizes={"rows": 6, "cols": [12, 20]},
    inputs=[tensor("x", "rows cols")],
    outputs=[tensor("y", "rows cols")],
    scalars=[scalar("factor", 2.0)],
)


@op.reference
def times(x, factor):
    return factor * x
'''
FOUR = '''"""The sum of each plane."""
from webnorm.op import define_op, tensor

op = define_op(
    sizes={"batch": 2, "channels": 3, "height": [8, 9], "width": 16},
    inputs=[tensor("x", "batch channels height width")],
    outputs=[tensor("y", "batch channels")],
)


@op.reference
def summed(x):
    return x.sum((2, 3))
'''
KERNEL = user_folders.KERNEL.replace("2.0 *", "params.factor *")
PLANES = """// /// webnorm
// summary = "One invocation per plane."
// [[pass]]
// entry_point = "main"
// workgroup_size = 64
// workgroup_count = "ceil_div(batch * channels, 64)"
// iterations = "height * width"
// [accuracy]
// serial_terms = "height * width"
// ///
{% include "lib/tensors.wgsl" %}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) invocation: u32) {
    let plane = (group.y * groups.x + group.x) * 64u + invocation;
    if (plane >= params.batch * channels) { return; }
    var sum = 0.0;
    for (var i = 0u; i < height * width; i++) {
        sum += load_x(plane * height * width + i);
    }
    store_y(plane, sum);
}
"""


def requiring(rule: str, text: str = KERNEL) -> str:
    """Return a kernel with a requirement."""
    return text.replace(
        "// [[pass]]", f'// [[require]]\n// rule = "{rule}"\n// why = "it needs it"\n// [[pass]]'
    )


def write(folder: Path, text: str = KERNEL, op: str = OP) -> Path:
    """Write an op with one kernel, and return the kernel's path."""
    return user_folders.write_op(folder, op, mine=text) / "mine.wgsl"


@contextmanager
def attempt(path: Path, **settings: Any) -> Iterator[AttemptState]:
    """Yield the finished attempt at a kernel."""
    load_op(path.parent)
    with PlaygroundSession(path, Settings(**{"time": False, "corpus": False, **settings})) as found:
        yield ended(found, path.read_text())


def stage(found: AttemptState, name: str) -> StageTime:
    return next(one for one in found.stages if one.name == name)


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "attempts"))


# --- the problems


@pytest.mark.parametrize("folder", ["examples/ops", "tests/op/kernelbench"])
def test_problems_are_small_however_many_sizes_there_are(folder: str) -> None:
    for path in sorted((ROOT.parent / folder).glob("*/op.py")):
        op: Op = load_op(path.parent)
        for task in playground_tasks(op):
            assert op.elements(task.problem) <= 64 * 65 * 4, task
            sizes = task.problem.sizes.values()
            assert len(set(sizes)) == len(sizes), task


@pytest.mark.parametrize("count", range(1, 6))
def test_sizes_differ_and_an_aligned_problem_has_multiples_of_4(count: int, tmp_path: Path) -> None:
    names = "abcde"[:count]
    text = OP.replace('{"rows": 6, "cols": [12, 20]}', str(dict.fromkeys(names, 3)))
    op: Op = load_op(write(tmp_path / "many", op=text.replace("rows cols", " ".join(names))).parent)
    aligned, odd = (task.problem for task in playground_tasks(op))
    for problem in (aligned, odd):
        assert len(set(problem.sizes.values())) == count and op.elements(problem) <= 64 * 65 * 4
    *_, last = aligned.sizes.values()
    assert last % 4 == 0 and any(size % 4 for size in odd.sizes.values())


RULES = (
    "cols % 4 == 0",
    "cols % 128 == 0",
    "rows % 64 == 0 and cols % 64 == 0",
    "rows % 4 == 0 and cols == 4096",
    "cols >= 20000",
    "cols <= 32",
    "rows == 1",
)


@pytest.mark.parametrize("rule", RULES)
def test_a_problem_is_found_that_meets_a_rule(rule: str, tmp_path: Path) -> None:
    op: Op = load_op(write(tmp_path / "times").parent)
    numbers = [number for number in map(int, re.findall(r"\d+", rule)) if number > 2]
    found = {
        fitting_task(task, lambda problem: bool(eval(rule, {}, problem.sizes)), numbers)
        for task in playground_tasks(op, "float16")
    }
    for task in found:
        assert eval(rule, {}, task.problem.sizes) and op.elements(task.problem) <= 1 << 18
        assert (task.problem.dtype, task.problem.seed) == ("float16", 16)


def test_the_first_problem_is_used_if_none_fits(tmp_path: Path) -> None:
    op: Op = load_op(write(tmp_path / "times").parent)
    task = playground_tasks(op)[0]
    assert fitting_task(task, lambda problem: False) is task


def verdicts(device: Device, path: Path, **job: Any) -> list[tuple[str, str]]:
    events = evaluate(device, EvaluationJob(path, None, (), **job))
    return [(one.result.status, one.problem) for one in events if isinstance(one, ProblemVerdict)]


def test_a_kernel_is_evaluated_on_problems_that_it_accepts(device: Device, tmp_path: Path) -> None:
    path = write(tmp_path / "times", requiring("cols % 4 == 0"))
    load_op(path.parent)
    assert verdicts(device, path) == [("pass", "64x68 float32"), ("pass", "37x40 float32")]
    # The rule contains a number that is not a default size.
    path.write_text(requiring("cols == 771"))
    assert verdicts(device, path) == [("pass", "64x771 float32"), ("pass", "37x771 float32")]
    wrong = requiring("cols % 4 == 0").replace("params.factor *", "3.0 *")
    path.write_text(wrong)
    assert [status for status, _ in verdicts(device, path)] == ["fail", "fail"]
    assert [status for status, _ in verdicts(device, path, scalars={"factor": 3.0})] == ["pass", "pass"]


def test_a_norm_kernel_is_evaluated_on_problems_that_it_accepts(device: Device, tmp_path: Path) -> None:
    from playing import TWO_PASS

    (tmp_path / "layer_norm").mkdir()
    path = tmp_path / "layer_norm" / "mine.wgsl"
    path.write_text(requiring("cols == 64", TWO_PASS))
    assert {status for status, _ in verdicts(device, path)} == {"pass"}


# --- the playground


def test_a_kernel_that_takes_no_problem_is_skipped_with_the_reason(device: Device, tmp_path: Path) -> None:
    with attempt(write(tmp_path / "times", requiring("rows * cols < 0"))) as found:
        assert (found.ok, found.status, found.mistakes) == (None, "unjudged", ())
        verdict = stage(found, "verdict")
        assert (verdict.state, verdict.note) == ("skipped", "the kernel cannot be checked here: it needs it")


def test_the_exit_status_of_a_kernel_that_cannot_be_checked_is_inconclusive(
    device: Device, tmp_path: Path
) -> None:
    path = write(tmp_path / "times", requiring("rows * cols < 0"))
    done = command(["play", str(path), "--once", "--quick"], tmp_path)
    assert done.returncode == INCONCLUSIVE and "verdict: the kernel cannot be checked here" in done.stdout
    path.write_text(requiring("cols % 4 == 0"))
    done = command(["play", str(path), "--once", "--quick"], tmp_path)
    # Tint may be missing.
    assert done.returncode in (OK, INCONCLUSIVE) and "pass 37x40 float32" in done.stdout


def test_values_of_a_kernel_are_traced(device: Device, tmp_path: Path) -> None:
    """Records have a row if the kernel sets it. A user's op has no float64 values for them."""
    traced = """let value = params.factor * load_x(i);
{% if tracing %}
        traced_row = i / cols;
{% endif %}
        {{ trace("value") }}
        store_y(i, value);"""
    text = KERNEL.replace("store_y(i, params.factor * load_x(i));", traced)
    with attempt(write(tmp_path / "times", text)) as found:
        assert found.ok and found.trace is not None and found.trace.count == 64 * 68
        assert {record.row for record in found.trace.records} <= {*range(64)}
        assert {record.expected for record in found.trace.records} == {None}
    with attempt(tmp_path / "times" / "mine.wgsl", trace="row == 3u") as found:
        assert found.trace is not None and {record.row for record in found.trace.records} == {3}


def test_the_op_s_cases_are_tried(device: Device, tmp_path: Path) -> None:
    path = write(tmp_path / "times")
    with attempt(path, corpus=True) as found:
        assert found.corpus is not None and stage(found, "corpus").state == "done"
        assert found.corpus.of == found.corpus.done == len(steady_cases(OPS["times"])) > 20
    # This kernel is right on the small problems and wrong on a long row.
    path.write_text(
        KERNEL.replace("params.factor *", "select(params.factor, 0.0, i == 900u && cols == 1000u) *")
    )
    with attempt(path, corpus=True) as found:
        assert found.ok is False and found.corpus is not None
        assert [one["case"] for one in found.corpus.failed] == ["times-cols-1000"]


def test_an_op_without_cases_has_no_tick(device: Device, tmp_path: Path) -> None:
    text = (ROOT / "op" / "doubled" / "op.py").read_text()
    kernel = next((ROOT / "op" / "doubled").glob("*.wgsl")).read_text()
    with attempt(write(tmp_path / "doubled", kernel, text), corpus=True) as found:
        corpus = stage(found, "corpus")
        assert (corpus.state, found.corpus) == ("skipped", None)
        assert corpus.note == "the corpus of doubled has no case for float32 that can run here"


def test_the_default_sizes_of_the_op_are_timed(tmp_path: Path) -> None:
    op: Op = load_op(write(tmp_path / "planes", PLANES, FOUR).parent)

    def timed(software: bool, **settings: Any) -> str:
        return str(timed_problem(op, Settings(**settings), software))

    assert timed(True) == timed(False) == "2x3x8x16 float32"
    assert timed(True, sizes={"height": 9}, dtype="float16") == "2x3x9x16 float16"
    # A software adapter gets a smaller batch unless the batch is requested.
    assert timed(True, sizes={"width": 1 << 16}) == "1x3x8x65536 float32"
    assert timed(True, sizes={"width": 1 << 16, "batch": 2}) == "2x3x8x65536 float32"
    assert timed(False, sizes={"width": 1 << 16}) == "2x3x8x65536 float32"
    norm = timed_problem(OPS["layer_norm"], Settings(cols=64), True)
    assert (norm.rows, norm.cols) == (256, 64)


def test_an_op_of_four_sizes_is_timed_and_counted(device: Device, tmp_path: Path) -> None:
    path = write(tmp_path / "planes", PLANES, FOUR)
    with attempt(path, time=True, sizes={"channels": 5}) as found:
        assert [stage(found, name).state for name in ("verdict", "time", "cost")] == ["done"] * 3
        assert found.time is not None and str(found.time.problem) == "2x5x8x16 float32"
        assert found.cost is not None


def test_scalars_apply_to_every_problem(device: Device, tmp_path: Path) -> None:
    with attempt(write(tmp_path / "times"), corpus=True, time=True, scalars={"factor": 5.0}) as found:
        assert found.ok and {one.result.problem.factor for one in found.shapes} == {5.0}
        assert found.time is not None and found.time.problem.factor == 5.0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--size", "height=4"], "times has no size height; its sizes are rows, cols"),
        (["--size", "cols=4,8"], "--size cols has several values; expected one"),
        (["--size", "cols"], "--size is 'cols'; expected NAME=N"),
        (["--size", "cols=4", "--cols", "8"], "--cols and --size cols cannot be combined"),
        (["--scalar", "eps=4"], "times has no argument eps; its scalars are factor"),
        (["--scalar", "factor=x"], "--scalar is 'factor=x'; expected NAME=X"),
    ],
)
def test_unknown_sizes_and_scalars_are_refused(words: list[str], said: str, tmp_path: Path) -> None:
    done = command(["play", str(write(tmp_path / "times")), "--once", *words], tmp_path)
    assert done.returncode == BAD_USAGE and said in done.stderr
