"""The op `gated_norm` and its gradient."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gated_norm_mutants import CASES, GRADIENT_CASES, GRADIENT_MUTANTS, MUTANTS
from kernel_mutants import cases_of_op, failure, survivors
from loss_differences import gradients

import commands
from testbed import GPU
from webnorm.choice.defaults import choose
from webnorm.gpu.device import Device
from webnorm.kernels.headers.library import discover
from webnorm.op.dtypes import STORAGE
from webnorm.op.op import Task
from webnorm.op.registry import OPS
from webnorm.ops.gated_norm.op import GATES, NORMS, ORDERS, gated_norm
from webnorm.ops.gated_norm_backward.op import gated_norm_backward

ROWS, HEADS, COLS = 3, 2, 5
KERNELS = [kernel for kernel in discover() if kernel.op.name in ("gated_norm", "gated_norm_backward")]


def drawn() -> dict[str, Any]:
    rng = np.random.default_rng(4)
    shapes: dict[str, Any] = {name: (ROWS, HEADS * COLS) for name in ("x", "z")}
    shapes |= {name: HEADS * COLS for name in ("weight", "bias")}
    return {name: rng.normal(0.3, 1.0, shape) for name, shape in shapes.items()}


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("activation", GATES)
def test_the_gradient_equals_differences(norm: str, order: str, activation: str) -> None:
    inputs = drawn()
    dy = np.random.default_rng(5).standard_normal(inputs["x"].shape)
    options: Any = {"eps": 1e-3, "norm": norm, "order": order, "activation": activation, "heads": HEADS}
    found = gated_norm_backward(**inputs, dy=dy, **options)
    expected = gradients(
        lambda arrays: float((gated_norm(**arrays, **options) * dy).sum()), inputs, [*inputs]
    )
    for (name, one), gradient in zip(expected.items(), found, strict=True):
        np.testing.assert_allclose(gradient, one, rtol=1e-6, atol=1e-7, err_msg=name)


def test_the_orders_are_those_of_qwen3_next_and_mamba2() -> None:
    """Both formulas are written out here, for one group."""
    inputs = drawn()
    x, z, weight = inputs["x"], inputs["z"], inputs["weight"]
    silu = z / (1.0 + np.exp(-z))

    def rms(h: Any) -> Any:
        return h / np.sqrt((h * h).mean(1, keepdims=True) + 1e-6)

    options: Any = {"bias": None, "eps": 1e-6, "norm": "rms_norm", "activation": "silu", "heads": 1}
    for order, expected in (("norm_first", rms(x) * weight * silu), ("gate_first", rms(x * silu) * weight)):
        found = gated_norm(x, z, weight, order=order, **options)
        np.testing.assert_allclose(found, expected, rtol=1e-12, err_msg=order)


def test_heads_are_normalized_alone() -> None:
    inputs = drawn()
    options: Any = {"eps": 1e-6, "norm": "layer_norm", "order": "gate_first", "activation": "gelu"}
    whole = gated_norm(**inputs, **options, heads=HEADS)
    for head in range(HEADS):
        part = slice(head * COLS, (head + 1) * COLS)
        alone = gated_norm(**{name: one[..., part] for name, one in inputs.items()}, **options, heads=1)
        np.testing.assert_allclose(whole[:, part], alone, rtol=1e-12)


@pytest.mark.opengl
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.label)
def test_every_type_and_option(kernel: Any, device: Device) -> None:
    names = ["activation=*-8", "norm=*-8", "order=*-8", "bias-8", "weight_dtype=*-8", "cols-64", "cols-257"]
    names += ["no-weight-8"]
    assert failure(device, kernel, cases_of_op(kernel.op.name, names), STORAGE) is None


@pytest.mark.slow
@pytest.mark.parametrize("op", ["gated_norm", "gated_norm_backward"])
def test_mutants_die(op: str, device: Device, tmp_path: Path) -> None:
    mutants, names = (MUTANTS, CASES) if op == "gated_norm" else (GRADIENT_MUTANTS, GRADIENT_CASES)
    cases = cases_of_op(op, names)
    assert [failure(device, kernel, cases) for kernel in KERNELS if kernel.op.name == op] == [None] * 3
    assert [*survivors(op, mutants, cases, device, tmp_path)] == []


@pytest.mark.parametrize(
    ("op", "longest", "other"), [("gated_norm", 65536, "streaming"), ("gated_norm_backward", 32768, "tiles")]
)
def test_auto_takes_registers_while_a_head_fits(op: str, longest: int, other: str) -> None:
    for cols in (1, 7, 64, 128, 1000, 5001, 16384):
        task = Task(OPS[op], OPS[op].problem(8, 2, cols))
        assert choose(KERNELS, task, GPU).variant.kernel.name == "registers", cols
    for cols in (longest + 4, 3 * longest + 1):
        task = Task(OPS[op], OPS[op].problem(8, 2, cols))
        assert choose(KERNELS, task, GPU).variant.kernel.name == other, cols


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--size", "heads=0"], "heads"),
        (["--size", "batch=4"], "no size batch"),
        (["--option", "order=last"], "last"),
        (["--option", "activation=relu"], "relu"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, tmp_path: Path) -> None:
    done = commands.webnorm(["bench", "--op", "gated_norm", *words], tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and message in done.stderr
