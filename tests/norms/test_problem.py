from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from webnorm.errors import WebnormError
from webnorm.op.corpus import Overrides
from webnorm.op.dtypes import Array
from webnorm.op.op import Op, UnsupportedProblem
from webnorm.op.op import make_inputs as make_op_inputs
from webnorm.op.registry import OPS
from webnorm.ops.copy.problem import DISTRIBUTIONS
from webnorm.ops.norms.corpus import CASES
from webnorm.ops.norms.problem import NormOptions, NormProblem


def make_inputs(problem: NormProblem) -> dict[str, Array]:
    return make_op_inputs(OPS["layer_norm"], problem)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"rows": -1}, "rows is -1; expected 0 or more"),
        ({"cols": 0}, "cols is 0; expected 1 or more"),
        ({"eps": -1e-5}, "eps is -1e-05"),
        ({"eps": float("nan")}, "eps is nan"),
        ({"eps": float("inf")}, "eps is inf"),
        ({"dtype": "flaot32"}, "unknown dtype 'flaot32'; did you mean 'float32'"),
        ({"distribution": "norml"}, "did you mean 'normal'"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_mistakes(field: dict[str, Any], message: str) -> None:
    with pytest.raises(WebnormError) as caught:
        NormProblem(**{"rows": 2, "cols": 3, **field})
    assert message in str(caught.value)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_inputs(distribution: str) -> None:
    problem = NormProblem(rows=4, cols=9, distribution=distribution, seed=5)
    arrays = make_inputs(problem)
    assert {name: array.shape for name, array in arrays.items()} == {
        "x": (4, 9),
        "weight": (9,),
        "bias": (9,),
    }
    assert all(array.dtype == np.float32 and np.isfinite(array).all() for array in arrays.values())
    again = make_inputs(problem)
    other = make_inputs(NormProblem(rows=4, cols=9, distribution=distribution, seed=6))
    assert np.array_equal(arrays["x"], again["x"])
    assert not np.array_equal(arrays["x"], other["x"])


def test_a_swapped_or_dropped_weight_is_far_off() -> None:
    arrays = make_inputs(NormProblem(rows=1, cols=4096))
    for name, low in (("weight", 0.5), ("bias", -0.5)):
        assert low <= arrays[name].min() < low + 0.01 and low + 0.99 < arrays[name].max() <= low + 1


@pytest.mark.parametrize(
    ("distribution", "mean", "deviation"),
    [
        ("normal", 0.0, 1.0),
        ("uniform", 0.5, 12**-0.5),
        ("mean100", 1e2, 1.0),
        ("mean1000", 1e3, 1.0),
        ("mean1e4", 1e4, 1.0),
        ("mean1e6", 1e6, 1.0),
        ("triton", -2.3, 0.5),
    ],
)
def test_mean_and_deviation(distribution: str, mean: float, deviation: float) -> None:
    x = make_inputs(NormProblem(rows=64, cols=1024, distribution=distribution))["x"].astype(np.float64)
    assert x.mean() == pytest.approx(mean, abs=0.02)
    assert x.std() == pytest.approx(deviation, rel=0.02)


def test_outlier_and_row_scales() -> None:
    outlier = make_inputs(NormProblem(rows=3, cols=9, distribution="outlier"))["x"]
    assert (np.argmax(outlier, axis=1) == 4).all() and (outlier[:, 4] == 1e4).all()
    scales = make_inputs(NormProblem(rows=5, cols=4096, distribution="row_scales"))["x"].std(axis=1)
    np.testing.assert_allclose(scales, [1e-6, 1e-3, 1.0, 1e3, 1e6], rtol=0.1)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_no_rows(distribution: str) -> None:
    assert make_inputs(NormProblem(rows=0, cols=3, distribution=distribution))["x"].shape == (0, 3)


@pytest.mark.parametrize("foreign", [{"colour": 1}, {"options": {"colour": True}}, {"cols": 0}])
def test_foreign_json(foreign: dict[str, Any]) -> None:
    with pytest.raises((TypeError, WebnormError)):
        NormProblem.from_json({**NormProblem(rows=1, cols=2).as_json(), **foreign})


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["residual", "residual=false"], "option residual is true and false; expected one of them"),
        (["max_workgroups=3", "max_workgroups=4"], "option max_workgroups is 3 and 4; expected one of them"),
        (["out_dtype=int8", "bias", "out_dtype=float16"], "option out_dtype is int8 and float16"),
        (["weight=false", "zero_centered_weight"], "zero_centered_weight is True, but there is no weight"),
        (["weight=false", "weight_offset=2"], "weight_offset is 2.0, but there is no weight; pass a weight"),
        (
            ["zero_centered_weight", "weight_offset=2"],
            "weight_offset is 2.0 and zero_centered_weight is True",
        ),
        (["residual_dtype=int8"], "residual_dtype 'int8' is a type of y alone: option out_dtype=int8"),
        (["scale_block=16"], "scale_block is 16; expected 32, 64, 128, or 0 for a scale per row"),
        (["rounding=after"], "unknown rounding 'after'"),
        (["weight_offset=nan"], "option weight_offset is 'nan'; expected a number"),
        (["weight_offset=1e20"], "weight_offset is 1e+20; expected a number from -1.8e+19 to 1.8e+19"),
        (["max_workgroups=٣"], "option max_workgroups is '٣'; expected a whole number"),
    ],
)
def test_options_that_contradict_each_other(pairs: list[str], message: str) -> None:
    with pytest.raises(WebnormError) as caught:
        NormOptions().changed(pairs)
    assert message in str(caught.value)


def test_an_option_may_be_said_twice() -> None:
    assert NormOptions().changed(["residual", "residual=true"]) == NormOptions(residual=True)


def test_options_leave_arrays_out() -> None:
    problem = NormProblem(rows=1, cols=2, options=NormOptions(weight=False))
    assert set(make_inputs(problem)) == {"x", "bias"}
    assert str(problem) == "1x2 float32, no weight"
    assert NormProblem.from_json(problem.as_json()) == problem


def test_an_op_fills_in_what_its_problem_does_not_say() -> None:
    rms, layer = OPS["rms_norm"], OPS["layer_norm_backward"]
    assert rms.problem(2, 3) == NormProblem(rows=2, cols=3, eps=2.0**-23, options=NormOptions(bias=False))
    assert layer.problem(2, 3) == NormProblem(rows=2, cols=3, eps=1e-5, options=NormOptions(saved_stats=True))
    given = rms.problem(2, 3, dtype="float16", eps=0.0, options=NormOptions(residual=True), seed=7)
    assert given == NormProblem(
        rows=2, cols=3, dtype="float16", eps=0.0, options=NormOptions(residual=True), seed=7
    )
    with pytest.raises(
        UnsupportedProblem, match="layer_norm_backward has no option residual; its options are weight, bias, "
    ):
        layer.problem(2, 3, options=NormOptions(residual=True))
    with pytest.raises(UnsupportedProblem, match="it needs the option residual"):
        rms.problem(2, 3, options=NormOptions(residual_bias=True))


def test_an_op_without_a_cases_options_has_no_such_problem_but_a_wrong_eps_is_an_error() -> None:
    case = next(case for case in CASES if case.name == "saved-stats-70")
    assert case.problem(OPS["layer_norm"]) is None
    assert case.problem(OPS["layer_norm_backward"]) is not None
    with pytest.raises(WebnormError, match="eps is -1"):
        case.problem(OPS["layer_norm_backward"], overrides=Overrides(scalars={"eps": -1.0}))


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_an_op_is_the_same_in_every_process(op: Op) -> None:
    assert pickle.loads(pickle.dumps(op)) is op
