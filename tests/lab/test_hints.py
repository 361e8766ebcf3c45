from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from samples import EVERY_FLAG
from webnorm.gpu.buffers import POISON
from webnorm.lab.diagnose.hints import Hint, WrongResult, hints
from webnorm.lab.verify.deviations import rounded_to
from webnorm.op.dtypes import DTYPES, NARROWING, STORAGE, Array
from webnorm.op.op import Task, ToleranceFactors
from webnorm.op.registry import OPS
from webnorm.ops.copy.problem import draw_playground, playground_tasks
from webnorm.ops.norms.mistakes import rows_of, wrong_formulas
from webnorm.ops.norms.op import complete_inputs, has_mean
from webnorm.ops.norms.problem import NormOptions, NormProblem

NORM = OPS["layer_norm"]
ALLOWED = ToleranceFactors(2e-6, 0.0, 0.0, 0.999, "test")


def small(
    rows: int = 7,
    cols: int = 61,
    dtype: str = "float32",
    options: NormOptions | None = None,
    op: str = "layer_norm",
) -> Task:
    return Task(OPS[op], OPS[op].problem(rows, cols, dtype=dtype, options=options, distribution="given"))


def failure_of(
    task: Task, changed: Mapping[str, Array], arrays: Mapping[str, Array] | None = None, intact: bool = True
) -> WrongResult:
    """Return right outputs, rounded to their types; `changed` ones replace them."""
    arrays = draw_playground(task) if arrays is None else arrays
    h = {"h": np.asarray(changed["h"])} if "h" in changed else {}
    if h:
        h = {"h": rounded_to(h["h"], task.problem.dtype).astype(DTYPES[task.problem.dtype])}
    answers = task.op.reference({**arrays, **h}, task.problem)
    outputs = {}
    for tensor in task.op.outputs(task.problem):
        dtype = tensor.dtype(task.problem)
        value = changed.get(tensor.name, answers[tensor.name].value)
        if value.dtype == np.float64:
            with np.errstate(over="ignore", invalid="ignore"):
                value = rounded_to(value, dtype).astype(DTYPES[dtype])
        if tensor.name == "stats" and has_mean(task.op):
            value = np.stack([value[:, 0], np.zeros_like(value[:, 0]), value[:, 1]], axis=1)
        outputs[tensor.name] = value, intact
    return WrongResult(task, arrays, outputs, answers, ALLOWED)


def right(task: Task, arrays: Mapping[str, Array] | None = None) -> Array:
    """Return the right y in float64."""
    return task.op.reference(draw_playground(task) if arrays is None else arrays, task.problem)["y"].value


def only(task: Task, y: Array, arrays: Mapping[str, Array] | None = None) -> Hint:
    """Return the only hint about a y."""
    (hint,) = hints(failure_of(task, {"y": y}, arrays))
    return hint


@pytest.mark.parametrize("out_dtype", NARROWING)
def test_right_outputs_give_no_hints(out_dtype: str) -> None:
    assert hints(failure_of(small(options=NormOptions(out_dtype=out_dtype)), {})) == ()
    assert (
        hints(failure_of(small(dtype="bfloat16", options=replace(EVERY_FLAG, out_dtype=out_dtype)), {})) == ()
    )


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("options", [None, EVERY_FLAG], ids=str)
def test_every_formula_is_named(options: NormOptions | None, op: str) -> None:
    task = small(options=options, op=op)
    arrays = draw_playground(task)
    every = list(wrong_formulas(task, arrays).items())
    for name, outputs in every[:: 1 if op == "layer_norm" and options is None else 4]:
        whole = {key: np.where(np.isnan(value), 0.25, value) for key, value in outputs.items()}
        found = hints(failure_of(task, whole, arrays))
        assert found and found[0] == Hint("formula", f"{next(iter(outputs))} fits a kernel that {name}"), (
            found
        )


@pytest.mark.parametrize("out_dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8"])
def test_narrow_types_never_name_another_formula(out_dtype: str) -> None:
    task = small(options=NormOptions(out_dtype=out_dtype))
    arrays = draw_playground(task)
    named = 0
    for name, outputs in list(wrong_formulas(task, arrays).items())[::6]:
        whole = {key: np.where(np.isnan(value), 0.25, value) for key, value in outputs.items()}
        formulas = [hint.text for hint in hints(failure_of(task, whole, arrays)) if hint.kind == "formula"]
        assert all(name in text for text in formulas), (name, formulas)
        named += len(formulas)
    assert named > 6


def test_all_fitting_formulas_are_named() -> None:
    task = small()
    arrays = complete_inputs(task, {"x": np.float32(1e-3) * rows_of_normal(task)}, np.random.default_rng(0))
    arrays["bias"] = arrays["weight"] * np.float32(0.5)
    y = wrong_formulas(task, arrays)["takes weight for bias"]["y"]
    hint = only(task, y, arrays)
    assert hint.text == "y fits a kernel that adds bias twice, or takes weight for bias"


def rows_of_normal(task: Task) -> Array:
    drawn = np.random.default_rng(3).standard_normal((task.problem.rows, task.problem.cols))
    return drawn.astype(np.float32)


def test_a_formula_may_fit_but_for_rounding() -> None:
    task = small()
    y = wrong_formulas(task, draw_playground(task))["leaves bias out"]["y"]
    hint = only(task, y + 8e-6)
    assert hint.kind == "formula" and "leaves bias out, but for rounding (at most" in hint.text


EPS: dict[str, tuple[Callable[[Any, int, float], Any], str]] = {
    "1e-3": (lambda v, n, eps: np.sqrt(v + 1e-3), "takes 0.001 for eps in place of 1e-05"),
    "1e-8": (lambda v, n, eps: np.sqrt(v + 1e-8), "takes 1e-08 for eps in place of 1e-05"),
    "squared": (lambda v, n, eps: np.sqrt(v + eps**2), "takes 1e-10 for eps in place of 1e-05 (eps squared)"),
    "its root": (
        lambda v, n, eps: np.sqrt(v + np.sqrt(eps)),
        "takes 0.00316 for eps in place of 1e-05 (the root of eps)",
    ),
    "times N": (
        lambda v, n, eps: np.sqrt(v + eps * n),
        "takes 0.00768 for eps in place of 1e-05 (eps times N)",
    ),
    "outside": (
        lambda v, n, eps: np.sqrt(v) + 1e-3,
        "takes 0.001 for eps in place of 1e-05 outside of the root",
    ),
    "N - 1": (
        lambda v, n, eps: np.sqrt(v * n / (n - 1) + 1e-3),
        "takes 0.001 for eps in place of 1e-05 and divides the variance by N - 1",
    ),
    "none": (lambda v, n, eps: np.sqrt(v), "leaves eps out"),
}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("which", EPS)
def test_the_eps_that_rstd_fits_is_named(which: str, dtype: str) -> None:
    """Rows with several variances show it, and so do other errors after the root."""
    task = playground_tasks(NORM, dtype)[0]
    arrays = draw_playground(task)
    rows = rows_of(task, arrays)
    divisor, said = EPS[which]
    y = rows.y(rows.d / divisor(rows.variance, rows.cols, task.problem.eps)).astype(DTYPES[dtype])
    found = [hint.text for hint in hints(failure_of(task, {"y": y}, arrays))]
    if dtype == "float16" and which in ("squared", "its root", "times N"):
        assert not any(name in text for text in found for name in ("N - 1", "never written")), found
    else:
        assert found == [f"y fits a kernel that {said}"]


def test_rows_of_equal_variance_do_not_show_an_eps() -> None:
    """A factor explains these errors as well."""
    task = Task(NORM, NormProblem(rows=8, cols=768, options=NormOptions()))
    x = rows_of_normal(task)
    x = ((x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)).astype(np.float32)
    arrays = complete_inputs(task, {"x": x}, np.random.default_rng(0))
    rows = rows_of(task, arrays)
    found = hints(failure_of(task, {"y": rows.y(rows.d / np.sqrt(rows.variance + 0.1))}, arrays))
    assert not any("eps" in hint.text for hint in found), found


def poisoned(like: Array) -> Array:
    words = np.full(-(-like.nbytes // 4), POISON)
    return words.view(np.uint8)[: like.nbytes].view(like.dtype).reshape(like.shape)


@pytest.mark.parametrize("dtype", STORAGE)
def test_unwritten_elements(dtype: str) -> None:
    task = small(dtype=dtype)
    y = right(task).astype(DTYPES[dtype])
    for at, words in (
        (np.s_[5:], "rows 5 to 6 of 7 of y were never written"),
        (np.s_[:, 60:], "column 60 of 61 of y was never written"),
        (
            np.s_[::2, 1::3],
            "80 of 427 elements of y were never written, in rows 0, 2, ..., 6 (every 2nd)",
        ),
        (np.s_[:], "y was never written"),
    ):
        got = y.copy()
        got[at] = poisoned(y)[at]
        hint = only(task, got)
        assert hint.kind == "poison" and hint.text.startswith(words), hint


def test_writes_past_the_end() -> None:
    (hint,) = hints(failure_of(small(), {}, intact=False))
    assert hint.kind == "guard" and "after the end of y" in hint.text


def test_two_runs_that_differ() -> None:
    first, again = failure_of(small(), {}), failure_of(small(), {})
    again.outputs["y"][0][3, 4] += 1.0
    (hint,) = hints(replace(first, again=again.outputs))
    assert hint.kind == "unsteady" and "1 of 427 elements of y differ between runs" in hint.text
    assert "y[3, 4]" in hint.text


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (np.s_[:, 56:], "only in columns 56 to 60 of 61, the last: fits a tail (35 of 427 elements)"),
        (np.s_[4, :], "only in row 4 of 7 (61 of 427 elements)"),
        (np.s_[:, 3::4], "only in columns 3, 7, ..., 59 (every 4th) of 61 (105 of 427 elements)"),
        (
            np.s_[2:5, 60:],
            "only in rows 2 to 4 of 7 and column 60 of 61, the last: fits a tail (3 of 427 elements)",
        ),
    ],
)
@pytest.mark.parametrize("dtype", STORAGE)
def test_places(where: tuple[slice, ...], words: str, dtype: str) -> None:
    task = small(dtype=dtype)
    y = right(task)
    y[where] = y[where] ** 2 + 3.0
    hint = only(task, y)
    assert (hint.kind, hint.text) == ("place", f"y is wrong {words}")
    y[where] = np.nan
    assert only(task, y).text == f"y is NaN or Inf {words}"


def test_errors_everywhere_without_a_known_formula() -> None:
    task = small()
    text = only(task, np.sin(right(task) * 9.0)).text
    assert "in all rows and columns, and fits no known formula" in text
    y = right(task)
    y[np.arange(7), np.arange(7) ** 2] += np.linspace(-1.0, 1.5, 7)
    assert only(task, y).text.startswith("y is wrong in 7 of 427 elements, scattered")


def test_answers_of_one_sign_or_size() -> None:
    task = small()
    y = right(task)
    assert "only where the answer is negative" in only(task, np.abs(y)).text
    assert "is wrong only where the answer is at least 1" in only(task, np.clip(y, -1.0, 1.0)).text


def test_the_last_digits() -> None:
    task = small()
    noise = np.random.default_rng(0).uniform(5e-6, 2e-5, right(task).shape)
    hint = only(task, right(task) + noise)
    assert hint.kind == "precision" and "only the last digits of y are wrong, by at most" in hint.text


def test_a_formula_that_is_close_to_the_right_one_is_not_named() -> None:
    """If bias equals weight, swapping them is no mistake."""
    task = small()
    arrays = draw_playground(task)
    arrays["bias"] = arrays["weight"]
    noise = np.random.default_rng(0).uniform(3e-6, 6e-6, right(task).shape)
    found = hints(failure_of(task, {"y": right(task, arrays) + noise}, arrays))
    assert found[0].kind == "precision", found


@pytest.mark.parametrize("out_dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8"])
def test_values_cut_off_instead_of_rounded(out_dtype: str) -> None:
    task = small(options=NormOptions(out_dtype=out_dtype))
    y = right(task)
    nearest = rounded_to(y, out_dtype).astype(DTYPES[out_dtype])
    codes = nearest.view(f"u{nearest.itemsize}").copy()
    # One step away from 0: the previous code is the one closer to 0.
    codes[np.abs(nearest.astype(np.float64)) > np.abs(y)] -= 1
    got = np.trunc(y).astype(np.int8) if out_dtype == "int8" else codes.view(nearest.dtype)
    hint = only(task, got)
    assert hint == Hint("precision", f"y fits values that are cut off instead of rounded to {out_dtype}")


def with_statistics(task: Task, arrays: Mapping[str, Array], mean: Array, variance: Array) -> Array:
    x = arrays["x"].astype(np.float64)
    y = (x - mean) / np.sqrt(variance + task.problem.eps)
    return np.asarray(y * arrays["weight"] + arrays["bias"])


def test_rows_whose_statistics_are_wrong() -> None:
    task = small()
    arrays = draw_playground(task)
    x = arrays["x"].astype(np.float64)
    mean, variance = x.mean(1, keepdims=True), x.var(1, keepdims=True)
    hint = only(task, with_statistics(task, arrays, mean + np.sqrt(variance + 1e-5), variance), arrays)
    assert hint.kind == "statistics" and "the mean is off by 1 standard deviations in all rows" in hint.text
    left = ((x - mean) ** 2)[:, :-5].sum(1, keepdims=True) / 61
    hint = only(task, with_statistics(task, arrays, mean, left), arrays)
    assert "rstd is off by a factor of" in hint.text
    assert "as if the sum of squares left out the last 5 of 61 columns" in hint.text
    flat = {**arrays, "x": np.repeat(arrays["x"][:, :1], 61, axis=1)}
    # Rows of one value do not show rstd.
    assert only(task, right(task, flat) + 0.25, flat).kind == "place"
    narrow = small(dtype="float16")
    hint = only(narrow, right(narrow) * np.linspace(1.1, 1.4, 7)[:, None], draw_playground(narrow))
    assert hint.kind in ("statistics", "place")


def test_statistics_that_differ_from_one_invocation_to_the_next() -> None:
    task = playground_tasks(NORM)[0]
    arrays = draw_playground(task)
    factor = np.random.default_rng(0).uniform(0.8, 1.2, (8, 192)).repeat(4, axis=1)
    y = (right(task, arrays) - arrays["bias"]) * factor + arrays["bias"]
    hint = only(task, y, arrays)
    assert hint.kind == "statistics" and "statistics that differ within a row" in hint.text


def test_roundings_that_grow_with_the_mean() -> None:
    task = small(cols=512)
    means = 10.0 ** np.arange(-1, 6)[:, None]
    x = (rows_of_normal(task) + means).astype(np.float32)
    arrays = complete_inputs(task, {"x": x}, np.random.default_rng(0))
    wide = x.astype(np.float64)
    rounded = wide.mean(1, keepdims=True).astype(np.float32)
    found = hints(
        failure_of(task, {"y": with_statistics(task, arrays, rounded, wide.var(1, keepdims=True))}, arrays)
    )
    assert found[0].kind == "precision" and "a mean that is rounded to float32" in found[0].text
    x = (rows_of_normal(task) + np.linspace(1.0, 500.0, 7)[:, None]).astype(np.float32)
    arrays = complete_inputs(task, {"x": x}, np.random.default_rng(0))
    mean = x.astype(np.float64).mean(1, keepdims=True)
    one_pass = (x * x).mean(1, keepdims=True) - x.mean(1, keepdims=True) ** 2
    found = hints(
        failure_of(task, {"y": with_statistics(task, arrays, mean, one_pass.astype(np.float64))}, arrays)
    )
    assert found[0].kind == "precision" and "E[x²] - E[x]² in float32" in found[0].text


def test_int8_by_the_scale_that_was_written() -> None:
    task = small(options=NormOptions(out_dtype="int8"))
    arrays = draw_playground(task)
    answers = task.op.reference(arrays, task.problem)
    factor = np.linspace(1.2, 1.9, 7)[:, None]
    changed = {"y": answers["y"].value / factor, "y_scale": answers["y_scale"].value * factor}
    found = hints(failure_of(task, changed, arrays))
    assert [hint.kind for hint in found] == ["statistics"] and "the y_scale that was written" in found[0].text


def test_gradients_have_places() -> None:
    task = playground_tasks(OPS["layer_norm_backward"])[1]
    answers = task.op.reference(draw_playground(task), task.problem)
    dweight = answers["dweight"].value.copy()
    dweight[1058:] = 40.0
    (hint,) = hints(failure_of(task, {"dweight": dweight}))
    assert hint.text == "dweight is wrong only in elements 1058 to 1060 of 1061, the last: fits a tail"


def test_formulas_are_tried_on_some_of_many_rows() -> None:
    """The first wrong row comes after the rows that formulas are computed for."""
    problem = NormProblem(rows=3000, cols=64, options=NormOptions())
    task = Task(NORM, problem)
    x = np.random.default_rng(0).standard_normal((3000, 64)).astype(np.float32)
    arrays = complete_inputs(task, {"x": x}, np.random.default_rng(0))
    y = right(task, arrays)
    y[2000:] = wrong_formulas(task, arrays)["leaves weight out"]["y"][2000:]
    found = hints(failure_of(task, {"y": y}, arrays))
    assert found[-1].text.startswith("y is wrong only in rows 2000 to 2999 of 3000")
    whole = wrong_formulas(task, arrays)["leaves weight out"]["y"]
    assert only(task, whole, arrays).text == "y fits a kernel that leaves weight out"


def test_outputs_without_rows_only_have_guards() -> None:
    task = small(rows=0)
    assert hints(failure_of(task, {})) == ()
    assert [hint.kind for hint in hints(failure_of(task, {}, intact=False))] == ["guard"]
