"""The numbers that docs/numerics.md promises."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from testbed import GPU, KERNELS, compute, covering, kernel_named, needs, rows_around, run_shader, suited
from webnorm.choice.defaults import default_variant
from webnorm.gpu.device import Device
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.variants import Variant, runnable_variants
from webnorm.kernels.rendering.render import render_shader
from webnorm.op.op import Float64Array, Task, make_inputs
from webnorm.ops.norms.op import complete_inputs, has_mean
from webnorm.ops.norms.problem import NormOptions, NormProblem
from webnorm.ops.rows import normalize

MEANS = (0.0, *np.logspace(0, 6, 20))
PLAIN = NormOptions(weight=False, bias=False)


@lru_cache(maxsize=2)
def rows(cols: int, means: tuple[float, ...]) -> tuple[np.ndarray, Float64Array]:
    x = rows_around(means, cols)
    return x, normalize(x, 1e-5, has_mean=True).xhat


def worst(
    device: Device, variant: Variant, cols: int, means: tuple[float, ...] = MEANS
) -> tuple[float, float]:
    """Return the largest |error| and the largest |error| / max(1, |y|)."""
    x, expected = rows(cols, means)
    problem = NormProblem(rows=len(x), cols=cols, distribution="given", options=PLAIN)
    y, _ = run_shader(device, render_shader(variant, problem, "native", device.traits), {"x": x})
    error = np.abs(y - expected)
    return float(error.max()), float((error / np.maximum(1, np.abs(expected))).max())


MEAN = re.compile(r"let (?:part_)?mean = (.+?);")


@pytest.mark.parametrize("cols", [96, 199])
@pytest.mark.parametrize(
    "kernel", [one for one in KERNELS if has_mean(one.op)], ids=lambda kernel: kernel.label
)
def test_a_mean_comes_out_of_an_addition(kernel: Kernel, cols: int) -> None:
    """A mean must not be the direct result of a multiplication.

    A compiler may fuse such a product with x - mean in one place and not in another, as NVIDIA's does. The
    mean then has two values, and its second word fits only one of them.
    """
    options = replace(kernel.op.defaults, saved_stats=False)
    problem = suited(kernel, NormProblem(rows=8, cols=cols, options=options))
    text = render_shader(default_variant(kernel, problem, GPU), problem, "native", GPU).text
    # For a mean of one word, the declared cost of its rounding covers two values.
    for made in MEAN.findall(text) if kernel.accuracy.rounded_mean == 0 else ():
        outside = made
        while outside != (without := re.sub(r"\([^()]*\)", "", outside)):
            outside = without
        assert "+" in outside or not re.search("[*/]", outside), made


def of(name: str, cols: int, device: Device, **constants: int) -> Variant:
    kernel = kernel_named(name)
    return Variant(
        kernel,
        {**default_variant(kernel, NormProblem(rows=1, cols=cols), device.traits).constants, **constants},
    )


@pytest.mark.parametrize("cols", [5, 199, 768, 1023, 4096, 8192, 16384])
def test_registers_hold_2e_6_for_any_mean(cols: int, device: Device) -> None:
    absolute, relative = worst(device, of("registers", cols, device), cols)
    assert absolute <= 2e-6
    assert relative <= 2e-6


@pytest.mark.slow
@pytest.mark.parametrize("cols", [300, 2048])
def test_registers_hold_2e_6_for_every_pair_of_constants(cols: int, device: Device) -> None:
    problem = NormProblem(rows=1, cols=cols)

    def fits(variant: Variant) -> bool:
        return variant.constants["threads_per_row"] * variant.constants["rows_per_workgroup"] <= 128

    variants = runnable_variants(kernel_named("registers"), problem, device.traits)
    chosen = covering((variant, problem) for variant in variants if fits(variant))
    assert len(chosen) > 10
    for variant, _ in chosen:
        absolute, _ = worst(device, variant, cols, (0.0, 1e4, 1e6))
        assert absolute <= 2e-6, str(variant)


def test_without_the_second_word_the_mean_rounds(device: Device) -> None:
    assert worst(device, of("two_pass", 4096, device, hi_lo_mean=0), 4096, (1e4,))[0] > 1e-4
    assert worst(device, of("two_pass", 4096, device, hi_lo_mean=0), 4096, (1e6,))[0] > 1e-3
    for name in ("registers", "two_pass"):
        assert worst(device, of(name, 4096, device), 4096, (1e6,))[0] < 2e-6
    assert worst(device, of("welford", 4096, device), 4096, (1e6,))[0] > 1e-3


def test_the_first_word_of_a_saved_mean_is_the_mean(device: Device) -> None:
    """The first word alone has float32's precision, even if the parts of a row are far apart."""
    kernel = kernel_named("split_row")
    problem = NormProblem(rows=9, cols=2817, options=NormOptions(return_stats=True))
    arrays = make_inputs(kernel.op, problem)
    arrays["x"][:, 1500:] += 3.0
    variant = default_variant(kernel, problem, device.traits)
    stats = compute(device, render_shader(variant, problem, "native", device.traits), arrays)["stats"][0]
    mean = arrays["x"].astype(np.float64).mean(axis=1)
    np.testing.assert_allclose(stats[:, 0], mean, rtol=3e-7)
    np.testing.assert_allclose(stats[:, 0].astype(np.float64) + stats[:, 1], mean, rtol=2e-7)


def test_one_pass_gives_nonsense(device: Device) -> None:
    assert worst(device, of("one_pass", 4096, device), 4096, (0.0,))[0] < 1e-5
    assert worst(device, of("one_pass", 4096, device), 4096, (1e4,))[0] > 1.0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("saved_stats", [True, False])
@pytest.mark.parametrize("name", ["naive", "tiles", "registers"])
def test_dweight_far_from_0(name: str, saved_stats: bool, device: Device) -> None:
    """The mean is 1e4 standard deviations, where rounding it to float32 alone changes x̂ by 5e-4."""
    kernel = kernel_named(name, "layer_norm_backward")
    options = NormOptions(saved_stats=saved_stats)
    problem = NormProblem(rows=1024, cols=4096, distribution="mean1e4", options=options)
    arrays = make_inputs(kernel.op, problem)
    variant = default_variant(kernel, problem, device.traits)
    got = compute(device, render_shader(variant, problem, "native", device.traits), arrays)["dweight"][0]
    expected = kernel.op.reference(arrays, problem)["dweight"].value
    assert float(np.abs(got - expected).max()) <= 1e-5 * float(np.abs(expected).max())


@pytest.mark.parametrize("name", ["welford_subgroup", "registers"])
def test_amax_is_the_largest_float32_y(name: str, device: Device) -> None:
    kernel = kernel_named(name)
    for cols in (61, 256):
        plain = NormProblem(rows=33, cols=cols)
        float8 = replace(plain, scale=4.0, options=NormOptions(out_dtype="float8_e4m3fn"))
        arrays = make_inputs(kernel.op, plain)
        variant = default_variant(kernel, float8, device.traits)
        needs(device, variant.features(float8, device.traits))
        constants = {**variant.constants, "vector_width": 4}
        outputs = {
            problem: compute(
                device,
                render_shader(Variant(kernel, constants), problem, "native", device.traits),
                arrays,
            )
            for problem in (plain, float8)
        }
        amax, scale_inv = outputs[float8]["amax"][0]
        assert amax == pytest.approx(np.abs(outputs[plain]["y"][0]).max(), rel=2.0**-23)
        assert scale_inv == 0.25


def small_rows(kernel: Kernel, device: Device, cols: int, deviation: float, eps: float) -> str | None:
    """Return the errors of a kernel on rows with small standard deviations."""
    options = replace(kernel.op.defaults, saved_stats=False)
    problem = suited(kernel, NormProblem(rows=4, cols=cols, eps=eps, distribution="given", options=options))
    variant = default_variant(kernel, problem, device.traits)
    needs(device, variant.features(problem, device.traits))
    x = deviation * np.random.default_rng(0).standard_normal((4, problem.cols))
    arrays = complete_inputs(Task(kernel.op, problem), {"x": x.astype(np.float32)}, np.random.default_rng(1))
    _, accuracy = run_shader(device, render_shader(variant, problem, "native", device.traits), arrays)
    return None if accuracy.ok else accuracy.reason


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(one, marks=() if one.name == "registers" else pytest.mark.slow, id=one.label)
        for one in KERNELS
        if not one.op.is_copy
    ],
)
def test_rows_down_to_the_lower_limit_are_right(kernel: Kernel, device: Device) -> None:
    for cols in (768, 4096):
        limit = 1e-17 * cols**0.5
        assert small_rows(kernel, device, cols, limit, 0.0) is None
        assert small_rows(kernel, device, cols, limit * 1e-8, 1e-32) is None


def test_below_the_lower_limit_rows_lose_their_digits(device: Device) -> None:
    """The test checks the documented limits and the points where they begin and end."""
    registers = kernel_named("registers")
    if device.traits.software:
        assert small_rows(registers, device, 768, 3e-20 * 768**0.5, 0.0) is None
    assert small_rows(registers, device, 768, 1e-20, 0.0) is not None
    assert "NaN or Inf" in (small_rows(registers, device, 768, 1e-22, 0.0) or "")
