"""The corpus on every kernel in wgsl/. The tests find kernels by themselves, so a new file needs no test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from testbed import (
    FAMILIES,
    KERNELS,
    NORMS,
    STABLE,
    answers,
    assess_rows,
    compute,
    covering,
    kernel_named,
    nearest,
    needs,
    of_one_file,
    rows_of,
    run,
    suited,
    widened,
)
from webnorm.choice.defaults import default_variant
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.variants import Variant, runnable_variants
from webnorm.kernels.rendering.render import render_shader
from webnorm.lab.run.check import is_meant_to_fail
from webnorm.op.corpus import problems
from webnorm.op.dtypes import DTYPES, STORAGE, Array
from webnorm.op.op import Op, Task, make_inputs
from webnorm.op.registry import OPS
from webnorm.ops.copy.problem import draw_x
from webnorm.ops.norms.case import OPTION_CASES, OPTION_GRID, NormCase
from webnorm.ops.norms.corpus import CASES
from webnorm.ops.norms.op import OPS as NORM_OPS
from webnorm.ops.norms.op import complete_inputs
from webnorm.ops.norms.problem import NormOptions, NormProblem


# All kernels of an op have the same stacks. Each test process needs all stacks when it starts.
@cache
def stacked(op: str, dtype: str) -> tuple[tuple[tuple[NormCase, ...], NormProblem], ...]:
    """Return the corpus without cases of options. Cases with equal options become rows of one array.

    So one compiled text serves many values, and each row has neighbours that may leak into it.
    """
    stacks: dict[object, list[tuple[NormCase, NormProblem]]] = {}
    for case, problem in widened([case for case in CASES if case not in OPTION_CASES], OPS[op], dtype):
        stacks.setdefault((case.options, case.eps, problem.cols), []).append((case, problem))
    return tuple(
        (
            tuple(case for case, _ in stack),
            replace(stack[0][1], rows=sum(problem.rows for _, problem in stack)),
        )
        for stack in stacks.values()
    )


def option_turns(kernel: Kernel, turn: int) -> Iterator[tuple[NormCase, NormProblem]]:
    """Yield one case of each option that a kernel supports.

    Row lengths and types take turns, so that nine kernels try all combinations.
    """
    lengths = len({case.shape for case in OPTION_GRID})
    options = [OPTION_GRID[at : at + lengths] for at in range(0, len(OPTION_GRID), lengths)]
    options += [(case,) for case in OPTION_CASES if case not in OPTION_GRID]
    for at, cases in enumerate(options, turn):
        layouts = [*itertools.product(cases, STORAGE)]
        found = problems_in_turn(kernel, layouts[at % len(layouts) :] + layouts[: at % len(layouts)])
        yield from itertools.islice(found, 1)


def problems_in_turn(
    kernel: Kernel, layouts: Sequence[tuple[NormCase, str]]
) -> Iterator[tuple[NormCase, NormProblem]]:
    """Yield the problems that the kernel supports unchanged."""
    for case, dtype in layouts:
        for found in problems([case], kernel.op, [dtype]):
            if suited(kernel, found[1]) == found[1]:
                yield case, found[1]


def value_turns(
    family: Sequence[Kernel], turn: int
) -> Iterator[tuple[Kernel, tuple[NormCase, ...], NormProblem]]:
    """Yield the cases of values for the kernels of one file.

    Every kernel gets the float32 arrays of several cases. The kernels take turns over the rest, because they
    read rows alike. The rest are single cases in float32, arrays of several cases in narrower types, and
    every fourth single case in these.
    """
    for at, kernel in enumerate(family):
        whole = stacked(kernel.op.name, "float32")
        shared = [one for one in whole if len(one[0]) == 1]
        for dtype, first in (("float16", turn + 1), ("bfloat16", turn + 3)):
            narrow = stacked(kernel.op.name, dtype)
            shared += [one for i, one in enumerate(narrow) if len(one[0]) > 1 or i % 4 == first % 4]
        for stack, problem in [one for one in whole if len(one[0]) > 1] + shared[at :: len(family)]:
            yield kernel, stack, problem


def cases() -> list[Any]:
    """Return the corpus of each kernel: its cases of values, and its cases of options."""
    trials = list[tuple[Kernel, tuple[NormCase, ...], NormProblem]]()
    for backward in (False, True):
        kernels = [kernel for kernel in KERNELS if not kernel.op.is_copy and kernel.op.gradient == backward]
        for turn, family in enumerate(of_one_file(kernels)):
            trials += value_turns(family, turn)
        for turn, kernel in enumerate(kernels):
            trials += [(kernel, (case,), problem) for case, problem in option_turns(kernel, turn)]
    found = []
    for kernel, stack, problem in sorted(trials, key=lambda trial: trial[0].label):
        name = stack[0].name + (f"+{len(stack) - 1}" if len(stack) > 1 else "")
        # The first tier takes the texts that serve many values.
        marks = () if len(stack) > 8 and problem.dtype == "float32" else pytest.mark.slow
        found.append(
            pytest.param(kernel, stack, problem, id=f"{kernel.label}-{name}-{problem.dtype}", marks=marks)
        )
    return found


@pytest.mark.parametrize(("kernel", "stack", "problem"), cases())
def test_corpus(kernel: Kernel, stack: tuple[NormCase, ...], problem: NormProblem, device: Device) -> None:
    variant = default_variant(kernel, problem, device.traits)
    refusal = variant.refusal(problem, device.traits)
    if refusal is not None:
        pytest.skip(refusal)
    shader = render_shader(variant, problem, "native", device.traits)
    arrays = rows_of(stack, kernel.op, problem)
    outputs = compute(device, shader, arrays)
    expected = answers(shader, arrays, outputs)
    wrong = {}
    first = 0
    for case in stack:
        rows = slice(first, first := first + case.shape[0])
        accuracy = assess_rows(shader, outputs, expected, rows)
        if kernel.unstable is None and not accuracy.ok:
            wrong[case.name] = accuracy.reason
        elif is_meant_to_fail(kernel, case, problem):
            assert not accuracy.ok, f"one_pass passed {case.name}, which its formula cannot"
    assert first == problem.rows
    assert not wrong


def test_the_corpus_is_sound() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert sum(case.breaks_one_pass for case in CASES) >= 8
    for op in NORM_OPS:
        for case, problem in problems(CASES, op, ("float32", "float16")):
            first, again = case.draw(Task(op, problem)), case.draw(Task(op, problem))
            read = {tensor.name for tensor in op.present(problem) if tensor.access == "read"}
            assert set(first) == read
            for tensor in op.present(problem):
                if tensor.access == "read":
                    assert first[tensor.name].shape == tensor.shape_in(problem)
                    assert np.array_equal(first[tensor.name], again[tensor.name], equal_nan=True)


def test_every_option_of_every_op_has_a_case() -> None:
    for op in NORM_OPS:
        asked = [problem.options for _, problem in problems(CASES, op, ("float16",))]
        for name in op.options:
            assert len({getattr(options, name) for options in asked}) > 1, f"{op.name}: {name}"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", STORAGE)
@pytest.mark.parametrize("name", ["layer_norm/registers", "layer_norm_backward/registers"])
def test_a_row_of_one_value_bears_a_division_that_rounds(name: str, dtype: str, device: Device) -> None:
    """A row of one value is right although the division by the number of columns rounds.

    WGSL allows a quotient to be wrong by 2.5 units in the last place. Such an error could reach the mean's
    second word. Then spread - low² of a row of one value would be about 1e8 instead of 0, and rstd almost 0.
    The test replaces the quotient by a product with the reciprocal. In float32, 188 times the reciprocal of
    188 is not 1.
    """
    op, path = name.split("/")
    kernel = kernel_named(path, op)
    values = [3.3, 1234.0, 12345.0, 40000.0] if dtype == "float16" else [1e15, 3.7e14, 1.7e15, 123456.7]
    for cols in (188, 8092):
        options = NormOptions(weight=False, bias=False, return_stats=not kernel.op.gradient)
        problem = NormProblem(rows=4, cols=cols, dtype=dtype, distribution="given", options=options, eps=1e-7)
        x = np.broadcast_to(np.array(values)[:, None], (4, cols)).astype(DTYPES[dtype])
        arrays = complete_inputs(Task(kernel.op, problem), {"x": x}, np.random.default_rng(0))
        shader = render_shader(
            default_variant(kernel, problem, device.traits), problem, "native", device.traits
        )
        quotient, product = "deviation / f32(COLS)", "deviation * PER_COLUMN"
        assert quotient in shader.text
        outputs = compute(device, replace(shader, text=shader.text.replace(quotient, product)), arrays)
        accuracy = assess_rows(shader, outputs, answers(shader, arrays, outputs), slice(0, 4))
        assert accuracy.ok, f"{cols}: {accuracy.reason}"


@pytest.mark.opengl
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("kernel", NORMS, ids=lambda kernel: kernel.name)
def test_healthy_rows_keep_their_bits_next_to_a_poisoned_one(
    kernel: Kernel, value: float, device: Device
) -> None:
    problem = NormProblem(rows=9, cols=70)
    variant = default_variant(kernel, problem, device.traits)
    needs(device, variant.features(problem, device.traits))
    arrays = make_inputs(kernel.op, problem)
    healthy, _ = run(device, variant, problem, arrays)
    arrays["x"][4, 33] = value
    poisoned, _ = run(device, variant, problem, arrays)
    others = np.arange(9) != 4
    np.testing.assert_array_equal(poisoned[others], healthy[others])
    assert not np.isfinite(poisoned[4]).all()


@pytest.mark.parametrize("name", ["naive", "registers"])
def test_every_nan_stays_nan(name: str, device: Device) -> None:
    """Rounding to bfloat16 adds to the bits. In NVIDIA's NaN, 0x7fffffff, a carry would give -0."""
    options = NormOptions(weight=False, bias=False, out_dtype="bfloat16")
    patterns: dict[str, Array] = {
        "float32": np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0xFFC00000], np.uint32),
        "float16": np.array([0x7FFF, 0xFFFF, 0x7C01, 0xFE00], np.uint16),
        "bfloat16": np.array([0x7FFF, 0xFFFF, 0x7F81, 0xFFC0], np.uint16),
    }
    for dtype, bits in patterns.items():
        problem = NormProblem(rows=4, cols=64, dtype=dtype, options=options)
        x = draw_x(problem)
        x[:, 5] = bits.view(x.dtype)
        variant = default_variant(kernel_named(name), problem, device.traits)
        outputs, _ = run(device, variant, problem, {"x": x})
        assert np.isnan(outputs.astype(np.float32)).all(), dtype


@pytest.mark.opengl
@pytest.mark.parametrize("out_dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_a_poisoned_row_stays_nan_in_narrow_types(out_dtype: str, device: Device) -> None:
    """Healthy rows that share words with the poisoned row keep their bits."""
    kernel = kernel_named("registers")
    problem = NormProblem(rows=9, cols=61, options=NormOptions(out_dtype=out_dtype))
    variant = default_variant(kernel, problem, device.traits)
    arrays = make_inputs(kernel.op, problem)
    healthy, _ = run(device, variant, problem, arrays)
    arrays["x"][4, 33] = np.nan
    poisoned, _ = run(device, variant, problem, arrays)
    assert np.isnan(poisoned[4].astype(np.float32)).all()
    others = np.arange(9) != 4
    np.testing.assert_array_equal(poisoned[others].view(np.uint8), healthy[others].view(np.uint8))


@pytest.mark.opengl
@pytest.mark.parametrize("name", ["naive", "two_pass", "registers"])
def test_int8_of_a_poisoned_row_has_no_scale(name: str, device: Device) -> None:
    kernel = kernel_named(name)
    problem = NormProblem(rows=3, cols=61, options=NormOptions(out_dtype="int8", bias=False))
    arrays = make_inputs(kernel.op, problem)
    arrays["x"][1, 7] = np.nan
    variant = default_variant(kernel, problem, device.traits)
    outputs = compute(device, render_shader(variant, problem, "native", device.traits), arrays)
    assert np.isfinite(outputs["y_scale"][0][:, 0]).tolist() == [True, False, True]


@pytest.mark.sampled(3)
@pytest.mark.opengl
@pytest.mark.parametrize(
    "name", ["naive", "two_pass", "registers", "split_row", "streaming", "workgroup_cache"]
)
def test_rows_whose_squares_overflow_become_0(name: str, device: Device) -> None:
    kernel = kernel_named(name)
    problem = NormProblem(rows=4, cols=2048, options=NormOptions(weight=False, bias=False))
    variant = default_variant(kernel, problem, device.traits)
    for size in (1e21, 1e28, 1e35):
        y, _ = run(device, variant, problem, {"x": draw_x(problem) * np.float32(size)})
        assert not y.any()
    # One huge value hides the others, also in a column from which a pivot comes.
    for column in (0, 1, 2047):
        x = draw_x(problem)
        x[:, column] = -3e38
        y, _ = run(device, variant, problem, {"x": x})
        assert not y.any()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("op", ["layer_norm_backward", "rms_norm_backward"])
def test_the_gradient_of_rows_whose_squares_overflow_is_0(op: str, dtype: str, device: Device) -> None:
    kernel = kernel_named("registers", op)
    problem = NormProblem(rows=4, cols=2048, dtype=dtype, options=NormOptions(weight=False, bias=False))
    text = render_shader(default_variant(kernel, problem, device.traits), problem, "native", device.traits)
    arrays = make_inputs(kernel.op, problem)
    masked = arrays["x"].copy()
    masked[:, 1] = -3e38
    for x in (arrays["x"] * np.float32(1e35), masked):
        given = {"x": x.astype(masked.dtype), "dy": arrays["dy"] * np.float32(1e4).astype(masked.dtype)}
        assert not compute(device, text, given)["dx"][0].any()


@pytest.mark.opengl
@pytest.mark.parametrize("op", ["layer_norm", "rms_norm"])
def test_an_h_that_overflows_float16_is_infinite_for_y_too(op: str, device: Device) -> None:
    kernel = kernel_named("registers", op)
    problem = NormProblem(rows=2, cols=8, dtype="float16", options=kernel.op.defaults.changed(["residual"]))
    arrays = make_inputs(kernel.op, problem)
    arrays["x"][0, 3] = arrays["residual"][0, 3] = 60000.0
    variant = default_variant(kernel, problem, device.traits)
    outputs = compute(device, render_shader(variant, problem, "native", device.traits), arrays)
    assert np.isinf(outputs["h"][0][0, 3]) and np.isnan(outputs["y"][0][0, 3])
    assert np.isfinite(outputs["y"][0][1]).all()


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
def test_all_pairs_of_constants(family: tuple[Kernel, ...], device: Device) -> None:
    trials = []
    for kernel in family:
        for cols, dtype in ((64, "float32"), (77, "float32"), (72, "float16"), (77, "bfloat16")):
            far = kernel.unstable is None and dtype == "float32"
            distribution = "mean1000" if far else "normal"
            problem = suited(kernel, NormProblem(rows=13, cols=cols, dtype=dtype, distribution=distribution))
            needs(device, default_variant(kernel, problem, device.traits).features(problem, device.traits))
            variants = runnable_variants(kernel, problem, device.traits)
            trials += [(variant, problem) for variant in variants if threads(variant) <= 256]
    assert {variant.kernel.label for variant, _ in trials} == {kernel.label for kernel in family}
    for variant, problem in covering(trials):
        _, accuracy = run(device, variant, problem)
        assert accuracy.ok, f"{variant}, {problem}: {accuracy.reason}"


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    ("cols", "dtype", "wanted", "width"),
    [
        (768, "float32", 96, 4),
        (1920, "float16", 160, 4),
        (1536, "bfloat16", 192, 8),
        (2304, "float32", 192, 1),
        (1100, "float32", 96, 4),
        (1104, "bfloat16", 96, 8),
        (1061, "float16", 160, 4),
    ],
)
@pytest.mark.parametrize("op", ["layer_norm", "rms_norm", "layer_norm_backward", "rms_norm_backward"])
def test_invocations_that_are_no_power_of_two(
    op: str, cols: int, dtype: str, wanted: int, width: int, device: Device
) -> None:
    needs(device, ["subgroups"])
    kernel = kernel_named("registers", op)
    own = {"threads_per_row": wanted, "rows_per_workgroup": 1, "vector_width": width}
    outs = ["int8", None] if "out_dtype" in kernel.op.options and width > 1 else [None]
    for out, cap in itertools.product(outs, (0, 2)):
        options = replace(kernel.op.defaults, out_dtype=out, max_workgroups=cap)
        problem = NormProblem(rows=5, cols=cols, dtype=dtype, distribution="mean1000", options=options)
        variant = nearest(kernel, problem, device.traits, **own)
        constants = variant.constants
        _, accuracy = run(device, variant, problem)
        assert accuracy.ok, f"{constants} {out} {cap}: {accuracy.reason}"
        for change, value in (("subgroups", 0), ("rows_per_workgroup", 2)):
            refusal = Variant(kernel, {**constants, change: value}).refusal(problem, device.traits)
            assert refusal is not None and "power of two" in refusal


@pytest.mark.parametrize("threads", [96, 128])
def test_nan_in_a_row_reaches_its_scale(threads: int, device: Device) -> None:
    """The kernel takes the maximum of a row from floats, whose max() may drop NaN, and from bits."""
    needs(device, ["subgroups"])
    kernel = kernel_named("registers")
    options = replace(kernel.op.defaults, out_dtype="int8")
    problem = NormProblem(rows=5, cols=1100, options=options)
    variant = nearest(kernel, problem, device.traits, threads_per_row=threads, rows_per_workgroup=1)
    shader = render_shader(variant, problem, "native", device.traits)
    arrays = make_inputs(kernel.op, problem)
    healthy = compute(device, shader, arrays)["y_scale"][0]
    arrays["x"][2, 1099] = np.nan
    poisoned = compute(device, shader, arrays)["y_scale"][0]
    assert np.isnan(poisoned[2]).all()
    others = np.arange(5) != 2
    np.testing.assert_array_equal(poisoned[others], healthy[others])


def threads(variant: Variant) -> int:
    """Return the invocations of a workgroup. llvmpipe takes seconds for wide workgroups with barriers."""
    return variant.constants.get("threads_per_row", 1) * variant.constants.get("rows_per_workgroup", 1)


@pytest.mark.opengl
@pytest.mark.parametrize("name", ["registers", "row_in_registers", "welford_subgroup", "two_pass"])
def test_the_same_input_gives_the_same_bits(name: str, device: Device) -> None:
    problem = NormProblem(rows=33, cols=1023, distribution="mean1000")
    variant = default_variant(kernel_named(name), problem, device.traits)
    needs(device, variant.features(problem, device.traits))
    first, _ = run(device, variant, problem)
    for _ in range(3):
        again, _ = run(device, variant, problem)
        np.testing.assert_array_equal(first.view(np.uint32), again.view(np.uint32))


def options_of(op: Op) -> st.SearchStrategy[NormOptions]:
    """Draw any valid combination of an op's options."""
    choices: dict[str, st.SearchStrategy[Any]] = {
        "weight_dtype": st.sampled_from([None, "float32", "float16", "bfloat16"]),
        "out_dtype": st.sampled_from([None, "float32", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8"]),
        "max_workgroups": st.sampled_from([0, 1, 4]),
        "weight_offset": st.sampled_from([0.0, 1.0, -0.375]),
        "rounding": st.sampled_from([None, "before_weight"]),
        "scale_block": st.sampled_from([0, 0, 32, 64, 128]),
        "residual_dtype": st.sampled_from([None, "float32", "float16", "bfloat16"]),
    }
    fields = {name: choices.get(name, st.booleans()) for name in op.options}

    def go_together(given: dict[str, Any]) -> bool:
        try:
            op.problem(1, 4, options=NormOptions(**given))
        except WebnormError:
            return False
        return True

    return st.fixed_dictionaries(fields).filter(go_together).map(lambda given: NormOptions(**given))


@pytest.mark.slow
@settings(max_examples=50)
@given(data=st.data())
def test_any_shape_any_values_and_any_options(data: st.DataObject, device: Device) -> None:
    kernel = data.draw(st.sampled_from(STABLE), "kernel")
    options = data.draw(options_of(kernel.op), "options")
    float8 = (options.out_dtype or "").startswith("float8")
    problem = NormProblem(
        rows=data.draw(st.integers(1, 70), "rows that the defaults are for"),
        # Blocks need a multiple of four columns.
        cols=data.draw(st.one_of(st.integers(1, 80), st.integers(1, 1300)), "cols")
        * (4 if options.scale_block else 1),
        dtype=data.draw(st.sampled_from(["float32", "float16", "bfloat16"]), "dtype"),
        options=options,
        scale=data.draw(st.floats(1e-3, 1e3), "scale") if float8 else 1.0,
    )
    text_of = suited(kernel, problem)
    variant = default_variant(kernel, text_of, device.traits)
    assume(variant.refusal(text_of, device.traits) is None)
    # Compiling a text takes long, and other rows and values need no other text.
    for _ in range(3):
        rows, seed = data.draw(st.integers(1, 70), "rows"), data.draw(st.integers(0, 2**32), "seed")
        problem = replace(text_of, rows=rows, seed=seed)
        mean, size = data.draw(st.floats(-1e4, 1e4), "mean"), data.draw(st.floats(1e-3, 1e3), "size")
        x = (draw_x(problem).astype(np.float64) * size + mean).astype(DTYPES[problem.dtype])
        arrays = complete_inputs(Task(kernel.op, problem), {"x": x}, np.random.default_rng(0))
        _, accuracy = run(device, variant, problem, arrays)
        assert accuracy.ok, f"{kernel.label} {problem}: {accuracy.reason}"
