from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webnorm.errors import WebnormError
from webnorm.problem import DISTRIBUTIONS, Options, Problem, make_inputs


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"rows": -1}, "rows is -1; expected 0 or more"),
        ({"cols": 0}, "cols is 0; expected 1 or more"),
        ({"eps": -1e-5}, "eps is -1e-05"),
        ({"eps": float("nan")}, "eps is nan"),
        ({"eps": float("inf")}, "eps is inf"),
        ({"dtype": "float31"}, "unknown dtype 'float31'; did you mean 'float32'"),
        ({"distribution": "norml"}, "did you mean 'normal'"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_mistakes(field: dict[str, Any], message: str) -> None:
    with pytest.raises(WebnormError) as caught:
        Problem(**{"rows": 2, "cols": 3, **field})
    assert message in str(caught.value)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_inputs(distribution: str) -> None:
    problem = Problem(rows=4, cols=9, distribution=distribution, seed=5)
    arrays = make_inputs(problem)
    assert {name: array.shape for name, array in arrays.items()} == {
        "x": (4, 9),
        "weight": (9,),
        "bias": (9,),
    }
    assert all(array.dtype == np.float32 and np.isfinite(array).all() for array in arrays.values())
    again = make_inputs(problem)
    other = make_inputs(Problem(rows=4, cols=9, distribution=distribution, seed=6))
    assert np.array_equal(arrays["x"], again["x"])
    assert not np.array_equal(arrays["x"], other["x"])


def test_options_leave_arrays_out() -> None:
    problem = Problem(rows=1, cols=2, options=Options(weight=False))
    assert set(make_inputs(problem)) == {"x", "bias"}
    assert str(problem) == "1x2 float32, no weight"
    assert Problem.from_json(problem.as_json()) == problem
