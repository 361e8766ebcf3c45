"""The numbers that docs/numerics.md promises."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from lab import kernel_named, rows_around, run_shader
from webnorm.device import Device
from webnorm.kernel import Variant, all_variants, default_variant
from webnorm.problem import Options, Problem
from webnorm.reference import Float64Array, normalise
from webnorm.render import render_shader

MEANS = (0.0, *np.logspace(0, 6, 20))
PLAIN = Options(weight=False, bias=False)


@lru_cache(maxsize=2)
def rows(cols: int, means: tuple[float, ...]) -> tuple[np.ndarray, Float64Array]:
    x = rows_around(means, cols)
    return x, normalise(x, 1e-5, has_mean=True).xhat


def worst(
    device: Device, variant: Variant, cols: int, means: tuple[float, ...] = MEANS
) -> tuple[float, float]:
    """Largest |error| and largest |error| / max(1, |y|)."""
    x, expected = rows(cols, means)
    problem = Problem(rows=len(x), cols=cols, distribution="given", options=PLAIN)
    y, _ = run_shader(device, render_shader(variant, problem, "native", device.traits), {"x": x})
    error = np.abs(y - expected)
    return float(error.max()), float((error / np.maximum(1, np.abs(expected))).max())


def of(name: str, cols: int, device: Device, **constants: int) -> Variant:
    kernel = kernel_named(name)
    return Variant(
        kernel, {**default_variant(kernel, Problem(rows=1, cols=cols), device.traits).constants, **constants}
    )


@pytest.mark.parametrize("cols", [5, 199, 768, 1023, 4096, 8192, 16384])
def test_registers_hold_2e_6_for_any_mean(cols: int, device: Device) -> None:
    absolute, relative = worst(device, of("registers", cols, device), cols)
    assert absolute <= 2e-6
    assert relative <= 2e-6


@pytest.mark.parametrize("cols", [300, 2048])
def test_registers_hold_2e_6_for_every_constant(cols: int, device: Device) -> None:
    problem = Problem(rows=1, cols=cols)
    tried = 0
    for variant in all_variants(kernel_named("registers")):
        constants = variant.constants
        wide = constants["threads_per_row"] * constants["rows_per_workgroup"] > 128
        if (
            not constants["hi_lo_mean"]
            or constants["native_f16"]
            or wide
            or variant.refusal(problem, device.traits) is not None
        ):
            continue
        absolute, _ = worst(device, variant, cols, (0.0, 1e4, 1e6))
        assert absolute <= 2e-6, str(variant)
        tried += 1
    assert tried > 10


def test_without_the_second_word_the_mean_rounds(device: Device) -> None:
    for name in ("registers", "two_pass"):
        assert worst(device, of(name, 4096, device, hi_lo_mean=0), 4096, (1e4,))[0] > 1e-4
        assert worst(device, of(name, 4096, device, hi_lo_mean=0), 4096, (1e6,))[0] > 1e-3
        assert worst(device, of(name, 4096, device), 4096, (1e6,))[0] < 2e-6
    assert worst(device, of("welford", 4096, device), 4096, (1e6,))[0] > 1e-3


def test_one_pass_gives_nonsense(device: Device) -> None:
    assert worst(device, of("one_pass", 4096, device), 4096, (0.0,))[0] < 1e-5
    assert worst(device, of("one_pass", 4096, device), 4096, (1e4,))[0] > 1.0
