from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from samples import EVERY_FLAG
from webnorm.op.op import Op
from webnorm.op.registry import OPS
from webnorm.ops.copy.problem import draw_playground, playground_tasks
from webnorm.ops.norms.mistakes import rows_of, wrong_formulas
from webnorm.ops.norms.op import has_mean
from webnorm.ops.norms.problem import NormOptions

FORWARD = [OPS["layer_norm"], OPS["rms_norm"]]
SOME_OPTIONS = (NormOptions(), EVERY_FLAG, NormOptions(weight=False, bias=False))


@pytest.mark.parametrize("options", SOME_OPTIONS, ids=str)
@pytest.mark.parametrize("op", FORWARD, ids=lambda op: op.name)
def test_mistakes_are_made_in_the_right_formula(op: Op, options: NormOptions) -> None:
    for task in playground_tasks(op, "float32", options):
        arrays = draw_playground(task)
        rows = rows_of(task, arrays)
        right = op.reference(arrays, task.problem)["y"].value
        np.testing.assert_allclose(rows.y(rows.xhat), right, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("options", SOME_OPTIONS, ids=str)
@pytest.mark.parametrize("op", FORWARD, ids=lambda op: op.name)
def test_every_formula_differs_from_the_right_one_and_from_the_others(op: Op, options: NormOptions) -> None:
    """On the problems of the playground, they differ by far more than rounding."""
    for task in playground_tasks(op, "float32", options):
        arrays = draw_playground(task)
        answers = op.reference(arrays, task.problem)
        right = {name: answer.value for name, answer in answers.items()}
        named = wrong_formulas(task, arrays)
        assert len(named) > 15
        seen = [("the right one", right), *named.items()]
        for at, (name, outputs) in enumerate(seen[1:], start=1):
            for other, values in seen[:at]:
                shared = [each for each in outputs if each in values]
                with np.errstate(invalid="ignore"):
                    apart = [
                        np.nanmax(np.abs(outputs[each] - values[each]) / (1.0 + np.abs(values[each])))
                        for each in shared
                    ]
                assert not apart or max(apart) > 1e-4, f"{name}; {other}"


@pytest.mark.parametrize("op", FORWARD, ids=lambda op: op.name)
def test_rows_that_are_filled_up_with_zeros(op: Op) -> None:
    """The expected values come from padded rows.

    1061 columns become 1064 for a step of 4, and 1280 for 256.
    """
    task = playground_tasks(op, "float32", NormOptions(weight=False, bias=False))[1]
    arrays = draw_playground(task)
    named = wrong_formulas(task, arrays)
    for count, step in ((1064, 4), (1280, 256), (2048, 1024)):
        filled = np.pad(arrays["x"].astype(np.float64), ((0, 0), (0, count - 1061)))
        d = filled - filled.mean(axis=1, keepdims=True) if has_mean(op) else filled
        y = d / np.sqrt((d * d).mean(axis=1, keepdims=True) + task.problem.eps)
        rounded = f"divides the mean of squares by N rounded up to a multiple of {step} ({count})"
        zeros = f"takes rows for {count} elements long, the last {count - 1061} of them zeros"
        found = named[zeros if has_mean(op) else rounded]["y"]
        np.testing.assert_allclose(found, y[:, :1061], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("out_dtype", ["int8", "float8_e4m3fn"])
def test_what_is_worked_out_from_a_wrong_y_goes_with_it(out_dtype: str) -> None:
    task = playground_tasks(OPS["layer_norm"], "float32", NormOptions(out_dtype=out_dtype))[1]
    named = wrong_formulas(task, draw_playground(task))
    other = {"int8": "y_scale", "float8_e4m3fn": "amax"}[out_dtype]
    assert set(named["leaves eps out"]) == {"y", other}


def test_the_h_that_was_written_is_what_y_is_made_of() -> None:
    task = playground_tasks(OPS["layer_norm"], "float16", NormOptions(residual=True))[1]
    arrays = draw_playground(task)
    written = (arrays["x"] + np.float16(1.0)).astype(np.float16)
    named = wrong_formulas(task, {**arrays, "h": written})
    np.testing.assert_array_equal(named["gives h back as it is"]["y"], written)


def test_gradients_and_copies_have_none() -> None:
    for name in ("copy", "layer_norm_backward"):
        task = playground_tasks(OPS[name])[1]
        assert wrong_formulas(task, draw_playground(task)) == {}


def test_the_problems_are_small_and_the_same_each_time() -> None:
    aligned, odd = playground_tasks(OPS["layer_norm_backward"], "bfloat16")
    assert aligned.problem.cols % 256 == 0 and odd.problem.cols % 2 and odd.problem.rows % 2
    assert aligned.problem.rows * aligned.problem.cols < 10_000
    first, again = draw_playground(odd), draw_playground(odd)
    assert {"x", "dy", "weight", "stats"} <= set(first)
    for name, array in first.items():
        np.testing.assert_array_equal(array, again[name])
    none = replace(odd, problem=replace(odd.problem, rows=0))
    assert draw_playground(none)["x"].shape == (0, odd.problem.cols)
