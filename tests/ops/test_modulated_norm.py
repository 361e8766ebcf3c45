"""The op `modulated_norm` and its gradient."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_mutants import cases_of_op, failure, survivors
from loss_differences import gradients
from modulated_norm_mutants import CASES, GRADIENT_CASES, GRADIENT_MUTANTS, MUTANTS

import commands
from testbed import GPU
from webnorm.choice.defaults import choose
from webnorm.gpu.device import Device
from webnorm.kernels.headers.library import discover
from webnorm.op.dtypes import STORAGE
from webnorm.op.op import Task
from webnorm.op.registry import OPS
from webnorm.ops.modulated_norm.op import modulated_norm
from webnorm.ops.modulated_norm_backward.op import modulated_norm_backward
from webnorm.ops.rows import ACTIVATIONS

BATCH, ROWS, COLS = 2, 3, 5
OPTIONAL = ("scale", "shift", "weight", "bias")
KERNELS = [kernel for kernel in discover() if kernel.op.name in ("modulated_norm", "modulated_norm_backward")]
GRADIENT = ("modulated_norm_backward",)


def drawn(without: tuple[str, ...] = ()) -> dict[str, Any]:
    rng = np.random.default_rng(4)
    whole, element = (BATCH, ROWS * COLS), (BATCH, COLS)
    shapes: dict[str, Any] = {"x": whole, "scale": element, "shift": element, "weight": COLS, "bias": COLS}
    return {name: None if name in without else rng.normal(0.3, 1.0, shape) for name, shape in shapes.items()}


def answer(arrays: Any, **given: Any) -> Any:
    return modulated_norm(
        **{"residual": None, "gate": None, **arrays}, eps=1e-3, rows=ROWS, dtype="float32", **given
    )


@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_gradient_equals_differences(norm: str, activation: str | None) -> None:
    without = ("shift", "weight") if activation == "gelu" else ()
    inputs = drawn(without)
    dy = np.random.default_rng(5).standard_normal(inputs["x"].shape)
    names = [name for name, array in inputs.items() if array is not None]
    found = modulated_norm_backward(
        **inputs, dy=dy, dh=None, residual=None, gate=None, eps=1e-3, norm=norm, activation=activation,
        rows=ROWS, dtype="float32",
    )  # fmt: skip
    expected = gradients(
        lambda arrays: float((answer(arrays, norm=norm, activation=activation) * dy).sum()), inputs, names
    )
    for name, gradient in zip(names, found, strict=True):
        np.testing.assert_allclose(gradient, expected[name], rtol=1e-6, atol=1e-7, err_msg=name)


def test_a_gate_divides_the_gradient_of_h() -> None:
    inputs = drawn()
    rng = np.random.default_rng(6)
    dy, dh, residual = (rng.standard_normal(inputs["x"].shape) for _ in range(3))
    gate = rng.standard_normal((BATCH, COLS))
    given = {**inputs, "residual": residual, "gate": gate}

    def loss(arrays: Any) -> float:
        spread = np.repeat(arrays["gate"][:, None], ROWS, axis=1).reshape(residual.shape)
        h = arrays["x"] + spread * arrays["residual"]
        plain = {name: arrays[name] for name in inputs} | {"x": h}
        return float((answer(plain, norm="layer_norm", activation="silu") * dy + h * dh).sum())

    spread = np.repeat(gate[:, None], ROWS, axis=1).reshape(residual.shape)
    found = modulated_norm_backward(
        **{**given, "x": inputs["x"] + spread * residual}, dy=dy, dh=dh, eps=1e-3, norm="layer_norm",
        activation="silu", rows=ROWS, dtype="float32",
    )  # fmt: skip
    names = ["x", "residual", "gate", *OPTIONAL]
    expected = gradients(loss, given, names)
    for name, gradient in zip(names, found, strict=True):
        np.testing.assert_allclose(gradient, expected[name], rtol=1e-6, atol=1e-7, err_msg=name)


def test_without_modulation_it_is_a_norm_with_an_activation() -> None:
    inputs = drawn(("scale", "shift"))
    x = inputs["x"].reshape(-1, COLS)
    xhat = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-3)
    z = xhat * inputs["weight"] + inputs["bias"]
    expected = (z / (1.0 + np.exp(-z))).reshape(inputs["x"].shape)
    np.testing.assert_allclose(answer(inputs, norm="layer_norm", activation="silu"), expected, rtol=1e-12)


def test_each_batch_element_has_its_own_scale() -> None:
    inputs = drawn(("weight", "bias", "shift"))
    plain = answer({**inputs, "scale": None}, norm="rms_norm", activation=None).reshape(BATCH, ROWS, COLS)
    found = answer(inputs, norm="rms_norm", activation=None).reshape(BATCH, ROWS, COLS)
    for b, row in itertools.product(range(BATCH), range(ROWS)):
        np.testing.assert_allclose(found[b, row], plain[b, row] * (1.0 + inputs["scale"][b]), rtol=1e-12)


@pytest.mark.opengl
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.label)
def test_every_type_and_option(kernel: Any, device: Device) -> None:
    names = ["activation=*-8", "norm=*-8", "weight-8", "bias-8", "weight_dtype=*-8", "cols-64", "cols-257"]
    names += ["modulation_dtype=*-8", "no-scale-8", "no-shift-8"]
    own = (
        ["all*", "many-*", "dh-8", "gate-8"]
        if kernel.op.name in GRADIENT
        else ["residual-8", "gated-residual-*"]
    )
    assert failure(device, kernel, cases_of_op(kernel.op.name, [*names, *own]), STORAGE) is None


@pytest.mark.slow
@pytest.mark.parametrize("op", ["modulated_norm", "modulated_norm_backward"])
def test_mutants_die(op: str, device: Device, tmp_path: Path) -> None:
    mutants, names = (GRADIENT_MUTANTS, GRADIENT_CASES) if op in GRADIENT else (MUTANTS, CASES)
    cases = cases_of_op(op, names)
    assert [failure(device, kernel, cases) for kernel in KERNELS if kernel.op.name == op] == [None] * 3
    assert [*survivors(op, mutants, cases, device, tmp_path)] == []


@pytest.mark.parametrize(
    ("op", "longest", "other"),
    [("modulated_norm", 65536, "streaming"), ("modulated_norm_backward", 32768, "tiles")],
)
def test_auto_takes_registers_while_a_row_fits(op: str, longest: int, other: str) -> None:
    for cols in (1, 7, 64, 1000, 1152, 3072, 5001, 16384):
        task = Task(OPS[op], OPS[op].problem(2, 8, cols))
        assert choose(KERNELS, task, GPU).variant.kernel.name == "registers", cols
    for cols in (longest + 4, 3 * longest + 1):
        task = Task(OPS[op], OPS[op].problem(2, 8, cols))
        assert choose(KERNELS, task, GPU).variant.kernel.name == other, cols


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--size", "cols=0"], "cols"),
        (["--size", "heads=4"], "no size heads"),
        (["--option", "gate"], "gate multiplies the residual"),
        (["--option", "norm=group_norm"], "group_norm"),
        (["--scalar", "eps=nan"], "eps"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, tmp_path: Path) -> None:
    done = commands.webnorm(["bench", "--op", "modulated_norm", *words], tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and message in done.stderr
