"""qk_norm and its gradient: strides, layouts and weights, mutants, choices of kernels, and bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_mutants import cases_of_op, failure, survivors
from qk_norm_mutants import CASES, GRADIENT_CASES, GRADIENT_MUTANTS, MUTANTS

import commands
from testbed import GPU
from webnorm.choice.defaults import choose
from webnorm.gpu.device import Device
from webnorm.kernels.headers.library import discover
from webnorm.op.dtypes import STORAGE, Array
from webnorm.op.op import Task
from webnorm.op.registry import OPS, options_of

KERNELS = [kernel for kernel in discover() if kernel.op.name in ("qk_norm", "qk_norm_backward")]
SIZES = {"batch": 2, "tokens": 3, "q_heads": 3, "k_heads": 2, "q_gap": 2, "k_gap": 1, "dim": 5}
NORMS = ("rms_norm", "layer_norm", "l2_norm")


def problem_of(op: str, *options: str, **given: Any) -> Any:
    """Return a problem of small sizes."""
    sizes = {name: given.pop(name, size) for name, size in SIZES.items()}
    return OPS[op].problem(*sizes.values(), options=options_of(OPS[op], options), **given)


def outputs(problem: Any, **arrays: Array) -> dict[str, Array]:
    """Return the reference's outputs of qk_norm."""
    return {name: one.value for name, one in OPS["qk_norm"].reference(arrays, problem).items()}


def drawn(op: str, problem: Any) -> dict[str, Array]:
    """Return random inputs in float64."""
    rng = np.random.default_rng(5)
    return {one.name: rng.standard_normal(one.shape_in(problem)) for one in OPS[op].inputs(problem)}


def test_heads_are_normalized_alone_wherever_they_lie() -> None:
    problem = problem_of("qk_norm", eps=0.25, weight_offset=1.0)
    given = drawn("qk_norm", problem)
    found = outputs(problem, **given)
    for name, heads, stride in (("q", 3, 17), ("k", 2, 11)):
        for at in np.ndindex(2, 3, heads):
            begin = at[1] * stride + at[2] * 5
            x = given[name][at[0], begin : begin + 5]
            y = x / np.sqrt(np.mean(x * x) + 0.25) * (1.0 + given[f"weight_{name}"][0])
            np.testing.assert_allclose(found[f"y{name}"].reshape(2, 3, heads, 5)[at], y, rtol=1e-12)


@pytest.mark.parametrize("norm", NORMS)
def test_one_buffer_and_two_give_the_same(norm: str) -> None:
    options = (f"norm={norm}", "bias", "weight_per_head")
    problem = problem_of("qk_norm", *options, "qkv")
    given = drawn("qk_norm", problem)
    rows = given["q"].reshape(2, 3, 27)
    apart = {**given, "q": rows[:, :, :15].reshape(2, -1), "k": rows[:, :, 15:25].reshape(2, -1)}
    packed = outputs(problem, **given)
    separate = outputs(problem_of("qk_norm", *options, q_gap=0, k_gap=0), **apart)
    for name, y in packed.items():
        np.testing.assert_array_equal(y, separate[name])


def test_heads_first_is_a_transposition() -> None:
    given = drawn("qk_norm", problem_of("qk_norm"))
    found = outputs(problem_of("qk_norm"), **given)
    moved = outputs(problem_of("qk_norm", "layout=heads_first"), **given)
    for name, heads in (("yq", 3), ("yk", 2)):
        y = found[name].reshape(2, 3, heads, 5).swapaxes(1, 2)
        np.testing.assert_array_equal(moved[name].reshape(y.shape), y)


def test_an_l2_norm_has_length_1() -> None:
    problem = problem_of("qk_norm", "norm=l2_norm", "weight=false", eps=0.0)
    y = outputs(problem, **drawn("qk_norm", problem))["yk"].reshape(-1, 5)
    np.testing.assert_allclose((y * y).sum(axis=1), 1.0, rtol=1e-12)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    "options", [(), ("qkv",), ("weight_per_head", "layout=heads_first"), ("key=false",), ("weight=false",)]
)
def test_the_gradient_is_that_of_the_reference(norm: str, options: tuple[str, ...]) -> None:
    chosen = ("bias", f"norm={norm}", *options)
    scalars = {"eps": 1e-2, "weight_offset": 0.5}
    forward = problem_of("qk_norm", *chosen, **scalars)
    backward = problem_of("qk_norm_backward", *chosen, **scalars)
    given = drawn("qk_norm", forward)
    dys = {name: one for name, one in drawn("qk_norm_backward", backward).items() if name.startswith("dy")}

    def loss(arrays: dict[str, Array]) -> float:
        return sum(float((y * dys[f"d{name}"]).sum()) for name, y in outputs(forward, **arrays).items())

    inputs = {name: one for name, one in given.items() if not name.startswith("bias")}
    answers = OPS["qk_norm_backward"].reference({**inputs, **dys}, backward)
    for name, array in given.items():
        along = np.random.default_rng(6).standard_normal(array.shape)
        ends = [loss({**given, name: array + step * along}) for step in (1e-5, -1e-5)]
        found = gradient_of(name, answers, options, array.shape)
        assert (found * along).sum() == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6, abs=1e-7), name


def gradient_of(name: str, answers: Any, options: tuple[str, ...], shape: tuple[int, ...]) -> Array:
    """Return the gradient of an input of qk_norm, which is 0 in gaps."""
    found = answers[f"d{name}"].value
    if name not in ("q", "k"):
        return np.asarray(found)
    parts = [found, answers["dk"].value] if "qkv" in options else [found]
    together = np.concatenate([one.reshape(2, 3, -1) for one in parts], axis=2)
    rows = np.zeros((2, 3, shape[1] // 3))
    rows[:, :, : together.shape[2]] = together
    return rows.reshape(shape)


@pytest.mark.opengl
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.label)
def test_every_type_and_option(kernel: Any, device: Device) -> None:
    names = (
        "no-key-3",
        "no-weight-3",
        "bias-mean-100-vectors",
        "qkv-3",
        "weight_per_head-mean-100-vectors",
        "weight_dtype=*-3",
        "norm=*-mean-100-vectors",
        "layout=*-mean-100-vectors",
        "gaps-of-*",
    )
    assert failure(device, kernel, cases_of_op(kernel.op.name, names), STORAGE) is None


@pytest.mark.slow
@pytest.mark.parametrize("op", ["qk_norm", "qk_norm_backward"])
def test_mutants_die(op: str, device: Device, tmp_path: Path) -> None:
    mutants, names = (MUTANTS, CASES) if op == "qk_norm" else (GRADIENT_MUTANTS, GRADIENT_CASES)
    cases = cases_of_op(op, names)
    assert [failure(device, kernel, cases) for kernel in KERNELS if kernel.op.name == op] == [None] * 2
    assert [*survivors(op, mutants, cases, device, tmp_path)] == []


@pytest.mark.parametrize(("op", "longest"), [("qk_norm", 65536), ("qk_norm_backward", 32768)])
def test_auto_takes_registers_while_a_head_fits(op: str, longest: int) -> None:
    for dim in (1, 5, 64, 72, 80, 96, 128, 256, 1000, 4096, longest):
        task = Task(OPS[op], problem_of(op, q_gap=4, k_gap=4, dim=dim))
        assert choose(KERNELS, task, GPU).variant.kernel.name == "registers", dim
    task = Task(OPS[op], problem_of(op, q_gap=4, k_gap=4, dim=longest + 4))
    assert choose(KERNELS, task, GPU).variant.kernel.name == "naive"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--size", "dim=0"], "dim is 0; expected 1 or more"),
        (["--size", "q_gap=-4"], "--size q_gap is '-4'; expected 0 or more"),
        (["--size", "q_stride=8"], "no size q_stride"),
        (["--option", "norm=batch_norm"], "batch_norm"),
        (["--scalar", "weight_offset=nan"], "weight_offset"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, tmp_path: Path) -> None:
    done = commands.webnorm(["bench", "--op", "qk_norm", *words], tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and message in done.stderr
