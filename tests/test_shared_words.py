"""Rows that share words, enough of them that a GPU's workgroups write the same word at the same time."""

from __future__ import annotations

import numpy as np
import pytest

from lab import compute, judge, kernel_named, nearest
from webnorm.device import Device
from webnorm.kernel import default_variant
from webnorm.ops import make_inputs
from webnorm.problem import Problem
from webnorm.render import render_shader

# No whole number of words in a row; one element more, less, and far more than a word holds.
COLS = (1, 3, 5, 61, 1023)


@pytest.mark.parametrize("cols", COLS)
@pytest.mark.parametrize("options", ["", "out_dtype=int8", "out_dtype=float8_e4m3fn", "residual"])
@pytest.mark.parametrize("op", ["layer_norm", "rms_norm", "layer_norm_backward"])
def test_no_write_is_lost(op: str, options: str, cols: int, device: Device) -> None:
    kernel = kernel_named("registers", op)
    if kernel.op.backward and options:
        pytest.skip("a gradient has no such output")
    rows = max(2000, (100_000 if device.traits.software else 4_000_000) // cols)
    problem = Problem(
        rows=rows,
        cols=cols,
        dtype="float16",
        options=kernel.op.defaults.changed(options.split(",") if options else []),
    )
    arrays = make_inputs(kernel.op, problem)
    # Four columns at a time are stored with atomics; of two, a GPU's default, a workgroup joins the words.
    atomic = [
        nearest(kernel, problem, device.traits, vector_width=4, rows_per_workgroup=each)
        for each in ((1,) if kernel.op.backward else (1, 4))
    ]
    default = default_variant(kernel, problem, device.traits)
    for variant in atomic if default in atomic else [*atomic, default]:
        shader = render_shader(variant, problem, "native", device.traits)
        assert ("atomicOr(" in shader.text) == (variant.constants["vector_width"] == 4)
        first = compute(device, shader, arrays)
        accuracy = judge(shader, arrays, first)
        assert accuracy.ok, accuracy.reason
        for _ in range(3):
            again = compute(device, shader, arrays)
            for name, (array, _) in first.items():
                assert np.array_equal(array.view(np.uint8), again[name][0].view(np.uint8)), name
