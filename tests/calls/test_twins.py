"""Messages show the type of a value that looks valid but has the wrong type."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import webnorm
from webnorm.errors import described, shown
from webnorm.gpu.device import Device
from webnorm.kernels.headers.library import discover, select
from webnorm.lab.run import requests
from webnorm.op.corpus import Overrides
from webnorm.ops.norms.corpus import CASES

NAIVE = select(discover(), "naive", "layer_norm")
CHECK = requests.check_request(["naive"], ["layer_norm"])
PROBLEM = webnorm.Problem(rows=2, cols=4)
X = np.ones((2, 4), np.float32)


def twins(value: Any) -> Iterator[Any]:
    """Yield values that look like a value but have another type, and some other values."""
    yield from (str(value), str(value).encode(), [value], (value,), {"value": value}, np.str_(str(value)))
    yield from (
        None,
        True,
        "",
        b"",
        [],
        -1,
        1.5,
        3j,
        math.nan,
        np.float64(2.5),
        range(1, 3),
        object,
        Path("x"),
    )
    yield value.tolist() if isinstance(value, np.ndarray) else np.array(value)


# A call with valid arguments. The test replaces each argument by its twins in turn.
CALLS: Mapping[str, tuple[Callable[..., Any], Mapping[str, Any]]] = {
    "layer_norm": (
        lambda **given: webnorm.layer_norm(**given),
        {
            "x": X,
            "normalized_shape": 4,
            "weight": X[0],
            "eps": 1e-5,
            "residual": X,
            "return_stats": False,
            "zero_centered_weight": False,
            "out_dtype": "float16",
            "max_workgroups": 1,
            "kernel": "naive",
            "device": None,
        },
    ),
    "LayerNorm": (webnorm.LayerNorm, {"normalized_shape": 4, "eps": 1e-5, "bias": True, "dtype": "float32"}),
    "Problem": (
        webnorm.Problem,
        {"rows": 4, "cols": 8, "dtype": "float32", "eps": 1e-5, "distribution": "normal", "seed": 0},
    ),
    "Options": (webnorm.Options, {"weight": True, "weight_dtype": "float16", "max_workgroups": 3}),
    "from_numpy": (webnorm.GpuArray.from_numpy, {"array": X, "device": None}),
    "find_adapter": (webnorm.find_adapter, {"choice": "no such adapter"}),
    "open_device": (webnorm.open_device, {"adapter": None, "without": {"subgroups"}, "limits": {}}),
    "select": (partial(select, [NAIVE]), {"name": "naive", "op": "layer_norm"}),
    "make_inputs": (webnorm.make_inputs, {"op": NAIVE.op, "problem": PROBLEM}),
    "layer_normalization": (
        webnorm.layer_normalization,
        {"X": X, "Scale": X[0], "axis": -1, "stash_type": 1},
    ),
    "compare": (webnorm.compare, {"old": "no-such-baseline", "new": "no-such-baseline"}),
    # Every such call is refused, before a worker starts.
    "bench": (partial(webnorm.bench, "none"), {"rows": 4, "cols": 8, "budget": 1.0, "seed": 1, "eps": 1e-5}),
    "check": (
        lambda input, cases, dtype: requests.with_cases(CHECK, CASES, cases, input, dtype, Overrides()),
        {"input": X, "cases": "normal", "dtype": "float16"},
    ),
    "names": (
        lambda kernels="none", **given: webnorm.bench(kernels, rows=4, cols=8, **given),
        {
            "kernels": "none",
            "op": "layer_norm",
            "dtype": "float32",
            "options": "residual",
            "distribution": "a",
            "runs": 3,
            "constants": {"threads": 64},
            "wgsl": [],
        },
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_messages_show_the_type_of_what_they_refuse(name: str, device: Device) -> None:
    call, right = CALLS[name]
    for argument, value in right.items():
        for twin in twins(value):
            try:
                call(**{**right, argument: twin})
            except webnorm.WebnormError as error:
                said = str(error)
            else:
                continue
            if not re.match(rf"{argument} is (?!not )", said):
                # The message is about another argument, about one of several values, or about an unknown
                # name.
                continue
            assert shown(twin) in said or described(twin) in said, f"{argument}={twin!r}: {said}"
            # The message must not show the text "4" as a number: "rows is 4; expected an int" does not help.
            assert f"{argument} is {twin!s};" not in said or shown(twin) == str(twin), said


def test_messages_show_large_values_by_their_type() -> None:
    class Big(list[int]):
        pass

    Big.__module__ = "torch.nn"
    assert described(Big()) == "a torch.Big" and described(np.ones(3)) == "a numpy.ndarray"
    assert described("4") == "'4'" and described(4) == "4" and described(np.int64(4)) == "np.int64(4)"
