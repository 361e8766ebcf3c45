"""The gradient in one dispatch, for what the walk over all kernels takes seldom or never."""

from __future__ import annotations

import pytest

from testbed import compute, kernel_named, run
from webnorm.choice.defaults import default_variant
from webnorm.gpu.device import Device
from webnorm.kernels.render import render_shader
from webnorm.kernels.variants import Variant
from webnorm.norms.ops import make_inputs
from webnorm.norms.problem import STORAGE, Problem

OPS = ("layer_norm_backward", "rms_norm_backward")
# Rows and columns that no workgroup, tile or batch divides, and fewer of both than one of them takes.
SHAPES = ((1, 4), (2, 260), (37, 68), (131, 12), (67, 1028), (1001, 20))
# Threads and rows of a workgroup, chunks of a tile, rows that are loaded together.
LAYOUTS = ((64, 4, 4, 4), (64, 1, 8, 8), (8, 2, 16, 2), (32, 1, 1, 4))
OPTIONS = (
    (),
    ("bias", "dh"),
    ("weight=false", "bias"),
    ("weight=false", "bias=false", "dh"),
    ("zero_centered_weight", "weight_dtype=float32"),
)
# Of workgroups; they take turns over shapes and types.
CAPS = (0, 1, 5)
AXES = ("threads_per_row", "rows_per_workgroup", "column_chunks", "batch")


def variant_of(op: str, problem: Problem, device: Device, layout: tuple[int, ...], **more: int) -> Variant:
    kernel = kernel_named("one_dispatch", op)
    constants = dict(default_variant(kernel, problem, device.traits).constants)
    return Variant(kernel, {**constants, **dict(zip(AXES, layout, strict=True)), **more})


@pytest.mark.parametrize("dtype", STORAGE)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_against_float64(layout: tuple[int, ...], dtype: str, device: Device) -> None:
    for at, (rows, cols) in enumerate(SHAPES):
        op = OPS[(at + LAYOUTS.index(layout) + STORAGE.index(dtype)) % len(OPS)]
        cap = CAPS[(at + STORAGE.index(dtype)) % len(CAPS)]
        pairs = (*OPTIONS[at % len(OPTIONS)], f"max_workgroups={cap}")
        options = kernel_named("one_dispatch", op).op.defaults.changed(pairs)
        problem = Problem(rows=rows, cols=cols, dtype=dtype, distribution="mean1000", options=options)
        variant = variant_of(op, problem, device, layout)
        if cols > 32 * layout[0]:
            assert "registers" in (variant.refusal(problem, device.traits) or "")
            continue
        assert variant.refusal(problem, device.traits) is None
        _, accuracy = run(device, variant, problem)
        assert accuracy.ok, f"{variant} {problem}: {accuracy.reason}"


@pytest.mark.opengl
@pytest.mark.parametrize("pairs", OPTIONS, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_every_option(op: str, pairs: tuple[str, ...], device: Device) -> None:
    options = kernel_named("one_dispatch", op).op.defaults.changed(pairs)
    for dtype, subgroups in (("float32", 0), ("float16", int("subgroups" in device.traits.features))):
        problem = Problem(rows=23, cols=132, dtype=dtype, options=options)
        _, accuracy = run(
            device, variant_of(op, problem, device, (16, 4, 4, 2), subgroups=subgroups), problem
        )
        assert accuracy.ok, accuracy.reason


@pytest.mark.parametrize("op", OPS)
def test_the_same_input_gives_the_same_bits(op: str, device: Device) -> None:
    problem = Problem(rows=131, cols=68, options=kernel_named("one_dispatch", op).op.defaults)
    variant = variant_of(op, problem, device, (16, 4, 4, 4))
    shader = render_shader(variant, problem, "native", device.traits)
    arrays = make_inputs(variant.kernel.op, problem)
    first = compute(device, shader, arrays)
    again = compute(device, shader, arrays)
    assert {name: array.tobytes() for name, (array, _) in first.items()} == {
        name: array.tobytes() for name, (array, _) in again.items()
    }


@pytest.mark.parametrize(
    ("rows", "cols", "pairs", "reason"),
    [
        (64, 64, ("saved_stats=false",), "saved_stats"),
        (64, 64, ("residual_bias",), "dresidual_bias"),
        (64, 63, (), "fours of columns"),
        (4097, 1024, (), "4194304 elements"),
    ],
)
@pytest.mark.parametrize("op", OPS)
def test_what_it_leaves_to_others(
    op: str, rows: int, cols: int, pairs: tuple[str, ...], reason: str, device: Device
) -> None:
    options = kernel_named("one_dispatch", op).op.defaults.changed(pairs)
    problem = Problem(rows=rows, cols=cols, options=options)
    variant = variant_of(op, problem, device, LAYOUTS[0])
    assert reason in (variant.refusal(problem, device.traits) or "")
