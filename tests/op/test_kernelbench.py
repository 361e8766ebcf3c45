"""The ops of KernelBench's first level, written with `define_op`: their references and tolerances."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webnorm.op import op_trial, registry
from webnorm.op.built_op import BuiltOp, small_problem
from webnorm.op.dtypes import INTEGERS, Array
from webnorm.op.op import Expected, HeaderTerms, Op, Task, make_inputs

FOLDERS = sorted(path.parent for path in Path(__file__).with_name("kernelbench").glob("*/op.py"))
# A second problem, whose sizes differ from each other. One size is longer than a workgroup.
LONGER = {
    "rows": 5,
    "cols": 257,
    "classes": 257,
    "samples": 2,
    "channels": 12,
    "positions": 257,
    "groups": 3,
    "length": 257,
    "depth": 13,
    "height": 40,
    "width": 37,
}
# The smallest normal float32 number. A GPU may replace smaller numbers by 0.
NORMAL = 2.0**-126


@pytest.fixture(scope="module", autouse=True)
def own_registry() -> Iterator[None]:
    """Hide these ops from other tests of this process, and load them without a child process for each."""
    caches: Any = (
        registry.computing_ops,
        registry.problem_types,
        registry.flag_names,
        registry._options_types,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_users", {})
        patch.setenv(op_trial._INSIDE, "1")
        yield
    for cache in caches:
        cache.cache_clear()


@pytest.fixture(params=FOLDERS, ids=lambda folder: str(folder.name))
def op(request: pytest.FixtureRequest) -> Op:
    return registry.load_op(request.param)


def problems(op: Op, distribution: str = "normal") -> list[Any]:
    sizes = {name: LONGER[name] for name in op.problem_type.SIZES}
    return [
        small_problem(op, 8, distribution=distribution),
        op.problem(*sizes.values(), distribution=distribution),
    ]


def built(op: Op) -> BuiltOp:
    found: BuiltOp = op.draw.__self__  # type: ignore[attr-defined]
    return found


def narrow(array: Array) -> Array:
    """Return floats in float32, and integers unchanged. float32 times a wide integer would be float64."""
    return array if array.dtype.kind in "iu" else array.astype(np.float32)


def within(got: Array, answer: Expected, base: float) -> bool:
    """Return True if an output is within the tolerance of a kernel that declares no serial terms."""
    checked = np.isfinite(answer.value)
    if answer.beyond_float32 is not None:
        checked = checked & ~answer.beyond_float32
    with np.errstate(all="ignore"):
        error = np.abs(got.astype(np.float64) - answer.value)[checked]
        limit = np.broadcast_to(base * answer.error_scale + NORMAL, answer.value.shape)[checked]
    return bool((error <= limit).all())


def passes(op: Op, problem: Any, outputs: Mapping[str, Array], answers: Mapping[str, Expected]) -> bool:
    base = op.hooks["tolerance"](HeaderTerms(0, 0, 0), problem).base  # type: ignore[operator]
    return all(within(outputs[name], answer, base) for name, answer in answers.items())


def test_most_ops_of_these_families_are_there() -> None:
    assert len(FOLDERS) >= 35


def test_the_reference_in_float32_is_within_the_tolerance(op: Op) -> None:
    function = built(op).definition.reference_function
    assert function is not None
    for problem in problems(op):
        arrays = make_inputs(op, problem)
        answers = op.reference(arrays, problem)
        with np.errstate(all="ignore"):
            found = built(op).call(function, {name: narrow(one) for name, one in arrays.items()}, problem)
        # If a reference converts its inputs to float64, this check finds nothing.
        storage = [tensor.dtype(problem) for tensor in op.outputs(problem)]
        assert all(
            one.dtype == np.float32
            for one, dtype in zip(found, storage, strict=True)
            if dtype not in INTEGERS
        )
        assert passes(op, problem, dict(zip(answers, found, strict=True)), answers), problem


def test_every_mistake_is_outside_of_the_tolerance_on_some_values(op: Op) -> None:
    left = set(built(op).definition.mistakes)
    assert left
    for distribution in op.problem_type.DISTRIBUTIONS:
        problem = problems(op, distribution)[-1]
        arrays = make_inputs(op, problem)
        answers = op.reference(arrays, problem)
        with np.errstate(all="ignore"):
            wrong = built(op).mistakes(Task(op, problem), arrays)
        left -= {what for what in left if not passes(op, problem, wrong[what], answers)}
        if not left:
            break
    assert not left


@pytest.mark.sampled(8)
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.name))
def test_a_child_process_finds_no_fault(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(op_trial._INSIDE)
    # A copy with another name is loaded again.
    shutil.copytree(folder, tmp_path / f"{folder.name}_copy")
    found = registry.load_op(tmp_path / f"{folder.name}_copy")
    assert found.summary.endswith(".")
