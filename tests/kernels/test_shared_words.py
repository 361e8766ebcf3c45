"""Rows that share words, in such numbers that a GPU's workgroups write one word at the same time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from testbed import assess_outputs, compute, kernel_named, nearest
from webnorm.choice.defaults import default_variant
from webnorm.gpu.device import Device
from webnorm.kernels.rendering.render import render_shader
from webnorm.op.op import make_inputs
from webnorm.ops.norms.problem import NormProblem

# No row has a whole number of words. Rows have one element, fewer or more than a word, and far more.
COLS = (1, 3, 5, 61, 1023)


OPTIONS = ("", "out_dtype=int8", "out_dtype=float8_e4m3fn", "residual")
# Every option meets every row length. The norms and the rows of a workgroup take turns, so all pairs occur.
TRIALS = [
    (("layer_norm", "rms_norm")[(i + j) % 2], options, cols, (1, 4)[(i + j // 2) % 2])
    for (i, options), (j, cols) in itertools.product(enumerate(OPTIONS), enumerate(COLS))
] + [("layer_norm_backward", "", cols, 1) for cols in COLS]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("op", "options", "cols", "rows_per_workgroup"), TRIALS)
def test_no_write_is_lost(op: str, options: str, cols: int, rows_per_workgroup: int, device: Device) -> None:
    kernel = kernel_named("registers", op)
    rows = max(2000, (100_000 if device.traits.software else 4_000_000) // cols)
    problem = NormProblem(
        rows=rows,
        cols=cols,
        dtype="float16",
        options=kernel.op.defaults.changed(options.split(",") if options else []),
    )
    arrays = make_inputs(kernel.op, problem)
    # Kernels store four columns at a time with atomics. With a GPU's default of two, a workgroup joins the
    # words.
    axes = {"vector_width": 4, "rows_per_workgroup": rows_per_workgroup}
    atomic = nearest(kernel, problem, device.traits, **axes)
    default = default_variant(kernel, problem, device.traits)
    for variant in [atomic] if device.traits.software else [atomic, default]:
        shader = render_shader(variant, problem, "native", device.traits)
        assert ("atomicOr(" in shader.text) == (variant.constants["vector_width"] == 4)
        first = compute(device, shader, arrays)
        accuracy = assess_outputs(shader, arrays, first)
        assert accuracy.ok, accuracy.reason
        for _ in range(3):
            again = compute(device, shader, arrays)
            for name, (array, _) in first.items():
                assert np.array_equal(array.view(np.uint8), again[name][0].view(np.uint8)), name
