"""Gradients in one dispatch and in two. Tests of all kernels reach these combinations seldom or never."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from testbed import compute, kernel_named, run
from webnorm.choice.defaults import default_variant
from webnorm.gpu.device import Device
from webnorm.kernels.headers.variants import Variant
from webnorm.kernels.rendering.render import render_shader
from webnorm.op.dtypes import STORAGE
from webnorm.op.op import make_inputs
from webnorm.op.registry import OPS as ALL_OPS
from webnorm.ops.norms.problem import NormProblem

OPS = ("layer_norm_backward", "rms_norm_backward")
# No workgroup, tile, block or batch divides these rows and columns. Some shapes are smaller than one of them.
SHAPES = ((1, 4), (2, 260), (37, 68), (131, 12), (67, 1028), (1001, 20), (3, 8204))
OPTIONS = (
    (),
    ("bias", "dh"),
    ("weight=false", "bias"),
    ("weight=false", "bias=false", "dh"),
    ("zero_centered_weight", "weight_dtype=float32"),
    ("weight_offset=-0.375",),
)
# The maxima of workgroups. They take turns over shapes and types.
CAPS = (0, 1, 5)


@dataclass(frozen=True)
class Subject:
    """A kernel, and sets of values of its axes.

    All options use the last set. `most` is a number of elements.
    """

    kernel: str
    axes: tuple[str, ...]
    layouts: tuple[tuple[int, ...], ...]
    most: int

    def variant(self, op: str, problem: NormProblem, device: Device, layout: tuple[int, ...]) -> Variant:
        kernel = kernel_named(self.kernel, op)
        constants = dict(default_variant(kernel, problem, device.traits).constants)
        return Variant(kernel, {**constants, **dict(zip(self.axes, layout, strict=True))})


ONE = Subject(
    "one_dispatch",
    ("threads_per_row", "rows_per_workgroup", "column_chunks", "batch"),
    ((64, 4, 4, 4), (64, 1, 8, 8), (8, 2, 16, 2), (32, 1, 1, 4), (16, 4, 4, 2)),
    8388608,
)
TWO = Subject(
    "two_dispatch",
    ("threads_per_row", "rows_per_workgroup", "batch", "block_steps"),
    ((64, 4, 2, 1), (32, 8, 1, 2), (8, 2, 2, 4), (32, 1, 1, 8), (16, 4, 2, 2)),
    16777216,
)
SUBJECTS = (ONE, TWO)
LAYOUTS = [(one, layout) for one in SUBJECTS for layout in one.layouts]
subjects = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda one: one.kernel)


@pytest.mark.sampled(30)
@pytest.mark.parametrize("dtype", STORAGE)
@pytest.mark.parametrize(("subject", "layout"), LAYOUTS, ids=str)
def test_against_float64(subject: Subject, layout: tuple[int, ...], dtype: str, device: Device) -> None:
    for at, (rows, cols) in enumerate(SHAPES):
        op = OPS[(at + subject.layouts.index(layout) + STORAGE.index(dtype)) % len(OPS)]
        cap = CAPS[(at + STORAGE.index(dtype)) % len(CAPS)]
        pairs = (*OPTIONS[at % len(OPTIONS)], f"max_workgroups={cap}")
        options = ALL_OPS[op].defaults.changed(pairs)
        problem = NormProblem(rows=rows, cols=cols, dtype=dtype, distribution="mean1000", options=options)
        variant = subject.variant(op, problem, device, layout)
        if subject is ONE and cols > 32 * layout[0]:
            assert "registers" in (variant.refusal(problem, device.traits) or "")
            continue
        assert variant.refusal(problem, device.traits) is None
        _, accuracy = run(device, variant, problem)
        assert accuracy.ok, f"{variant} {problem}: {accuracy.reason}"


@pytest.mark.slow
@pytest.mark.opengl
@pytest.mark.parametrize("pairs", OPTIONS, ids=str)
@pytest.mark.parametrize("op", OPS)
@subjects
def test_every_option(subject: Subject, op: str, pairs: tuple[str, ...], device: Device) -> None:
    options = ALL_OPS[op].defaults.changed(pairs)
    for dtype, subgroups in (("float32", 0), ("float16", int("subgroups" in device.traits.features))):
        problem = NormProblem(rows=23, cols=132, dtype=dtype, options=options)
        variant = subject.variant(op, problem, device, subject.layouts[-1])
        variant = Variant(variant.kernel, {**variant.constants, "subgroups": subgroups})
        _, accuracy = run(device, variant, problem)
        assert accuracy.ok, accuracy.reason


@pytest.mark.parametrize("op", OPS)
@subjects
def test_the_same_input_gives_the_same_bits(subject: Subject, op: str, device: Device) -> None:
    problem = NormProblem(rows=131, cols=68, options=ALL_OPS[op].defaults)
    variant = subject.variant(op, problem, device, subject.layouts[-1])
    shader = render_shader(variant, problem, "native", device.traits)
    arrays = make_inputs(variant.kernel.op, problem)
    first = compute(device, shader, arrays)
    again = compute(device, shader, arrays)
    assert {name: array.tobytes() for name, (array, _) in first.items()} == {
        name: array.tobytes() for name, (array, _) in again.items()
    }


@pytest.mark.parametrize(
    ("cols", "pairs", "reason"),
    [
        (64, ("saved_stats=false",), "saved_stats"),
        (64, ("residual_bias",), "dresidual_bias"),
        (63, (), "multiple of 4"),
        (1024, (), " elements"),
    ],
)
@pytest.mark.parametrize("op", OPS)
@subjects
def test_problems_left_to_other_kernels(
    subject: Subject, op: str, cols: int, pairs: tuple[str, ...], reason: str, device: Device
) -> None:
    rows = subject.most // 1024 + (cols == 1024)
    problem = NormProblem(rows=rows, cols=cols, options=ALL_OPS[op].defaults.changed(pairs))
    variant = subject.variant(op, problem, device, subject.layouts[0])
    assert reason in (variant.refusal(problem, device.traits) or "")


def test_a_vector_holds_what_a_batch_needs(device: Device) -> None:
    for op, allowed in (("layer_norm_backward", False), ("rms_norm_backward", True)):
        problem = NormProblem(rows=64, cols=1024, options=ALL_OPS[op].defaults)
        refusal = TWO.variant(op, problem, device, (32, 1, 4, 1)).refusal(problem, device.traits)
        assert (refusal is None) == allowed
