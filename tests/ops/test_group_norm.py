"""group_norm and its gradient: layouts, InstanceNorm and MeanVarianceNormalization, choices, bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from group_norm_mutants import CASES, FALLBACK_MUTANTS, GRADIENT_CASES, GRADIENT_MUTANTS, MUTANTS
from kernel_mutants import cases_of_op, failure, survivors
from loss_differences import gradients

import commands
from testbed import GPU, nearest, run
from webnorm.choice.defaults import choose, default_variant
from webnorm.gpu.device import Device
from webnorm.kernels.headers.library import discover
from webnorm.op.dtypes import STORAGE, Array
from webnorm.op.op import Task
from webnorm.op.registry import OPS, options_of

NAMES = ("group_norm", "group_norm_backward")
KERNELS = [kernel for kernel in discover() if kernel.op.name in NAMES]
LAST = "layout=channels_last"


def problem_of(op: str, sizes: tuple[int, ...], *options: str, **given: Any) -> Any:
    """Return a problem of sizes (batch, channels, spatial, groups)."""
    return OPS[op].problem(*sizes, options=options_of(OPS[op], options), **given)


def drawn(problem: Any, op: str = "group_norm") -> dict[str, Array]:
    """Return random inputs in float64."""
    rng = np.random.default_rng(5)
    return {one.name: rng.standard_normal(one.shape_in(problem)) for one in OPS[op].inputs(problem)}


def outputs(problem: Any, arrays: dict[str, Array]) -> dict[str, Array]:
    """Return the reference's outputs of group_norm."""
    return {name: one.value for name, one in OPS["group_norm"].reference(arrays, problem).items()}


def test_each_group_of_each_batch_element_is_normalized_alone() -> None:
    problem = problem_of("group_norm", (2, 6, 5, 3), eps=0.25)
    given = drawn(problem)
    y = outputs(problem, given)["y"].reshape(2, 6, 5)
    for n, group in np.ndindex(2, 3):
        own = slice(2 * group, 2 * group + 2)
        x = given["x"].reshape(2, 6, 5)[n, own]
        xhat = (x - x.mean()) / np.sqrt(x.var() + 0.25)
        expected = xhat * given["weight"][own, None] + given["bias"][own, None]
        np.testing.assert_allclose(y[n, own], expected, rtol=1e-12)


def test_channels_last_is_a_transposition() -> None:
    given = drawn(problem_of("group_norm", (2, 6, 5, 3)))
    y = outputs(problem_of("group_norm", (2, 6, 5, 3)), given)["y"]
    x = given["x"].reshape(2, 6, 5).swapaxes(1, 2).reshape(2, -1)
    moved = outputs(problem_of("group_norm", (2, 6, 5, 3), LAST), {**given, "x": x})["y"]
    np.testing.assert_array_equal(moved.reshape(2, 5, 6).swapaxes(1, 2).reshape(2, -1), y)


@pytest.mark.parametrize(("channels", "groups"), [(4, 4), (2048, 2048)])
def test_instance_norm_has_as_many_groups_as_channels(channels: int, groups: int) -> None:
    problem = problem_of("group_norm", (2, channels, 6, groups), "weight=false", "bias=false")
    x = drawn(problem)["x"]
    rows = x.reshape(2, channels, 6)
    expected = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + problem.eps)
    np.testing.assert_allclose(outputs(problem, {"x": x})["y"], expected.reshape(2, -1), rtol=1e-10)


def mean_variance(op: str, x: Array) -> tuple[Any, Array]:
    """Return the problem that normalizes x (N, C, S) over N and S, and its x."""
    n, channels, spatial = x.shape
    sizes = (1, channels * spatial, n, channels)
    return problem_of(op, sizes, LAST, "weight=false", "bias=false"), x.reshape(1, -1)


def test_mean_variance_normalization_is_channels_last() -> None:
    x = np.random.default_rng(1).normal(3.0, 2.0, (4, 3, 10))
    problem, rows = mean_variance("group_norm", x)
    expected = (x - x.mean((0, 2), keepdims=True)) / np.sqrt(x.var((0, 2), keepdims=True) + problem.eps)
    np.testing.assert_allclose(outputs(problem, {"x": rows})["y"].reshape(x.shape), expected, rtol=1e-10)


@pytest.mark.parametrize(
    "options", [(), (LAST,), ("activation=silu",), ("activation=gelu_tanh", "bias=false")]
)
def test_the_gradient_is_that_of_the_reference(options: tuple[str, ...]) -> None:
    sizes = (2, 6, 3, 2)
    forward = problem_of("group_norm", sizes, *options, eps=1e-2)
    backward = problem_of("group_norm_backward", sizes, *options, eps=1e-2)
    given = drawn(backward, "group_norm_backward")
    inputs = {name: one for name, one in given.items() if name != "dy"}

    def loss(arrays: Any) -> float:
        return float((outputs(forward, arrays)["y"] * given["dy"]).sum())

    answers = OPS["group_norm_backward"].reference(given, backward)
    for name, expected in gradients(loss, inputs, [*inputs]).items():
        np.testing.assert_allclose(answers[f"d{name}"].value, expected, rtol=1e-6, atol=1e-8, err_msg=name)


@pytest.mark.opengl
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.label)
def test_every_type_and_option(kernel: Any, device: Device) -> None:
    names = [
        "no-weight-3",
        "no-bias-8",
        "weight_dtype=*-3",
        "activation=*-8",
        "layout=channels_last-3",
        "layout=channels_last-8",
        "groups-channels-last",
        "mean-1e6-last",
        "pairs",
    ]
    if kernel.op.name == "group_norm":
        names.append("residual-3")
    assert failure(device, kernel, cases_of_op(kernel.op.name, names), STORAGE) is None


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.label)
@pytest.mark.parametrize(
    ("sizes", "options"),
    [((1, 64, 1024, 32), ()), ((1, 320, 64, 32), (LAST,)), ((2, 60, 66, 4), (LAST,)), ((1, 30, 49, 3), ())],
)
def test_shapes_of_models_with_the_constants_of_a_gpu(
    kernel: Any, sizes: tuple[int, ...], options: tuple[str, ...], device: Device
) -> None:
    problem = problem_of(kernel.op.name, sizes, *options)
    variant = default_variant(kernel, problem, GPU)
    if variant.refusal(problem, device.traits) is not None:
        pytest.skip("this adapter cannot run the constants of a GPU")
    _, accuracy = run(device, variant, problem)
    assert accuracy.ok, accuracy.reason


@pytest.mark.opengl
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_cooperative_workgroups_give_the_same_bits_with_and_without_waiting(
    dtype: str, device: Device
) -> None:
    """With few trials, workgroups compute missing records. With many, they get more of them from others."""
    kernel = next(kernel for kernel in KERNELS if kernel.label == "group_norm/cooperative")
    problem = problem_of("group_norm", (3, 20, 1003, 2), "activation=silu", dtype=dtype)
    found = []
    for tries in (4, 256):
        variant = nearest(kernel, problem, device.traits, threads_per_row=32, part_steps=8, tries=tries)
        y, accuracy = run(device, variant, problem)
        assert accuracy.ok, accuracy.reason
        found.append(y.tobytes())
    assert len(set(found)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("op", NAMES)
def test_mutants_die(op: str, device: Device, tmp_path: Path) -> None:
    mutants, names = (MUTANTS, CASES) if op == "group_norm" else (GRADIENT_MUTANTS, GRADIENT_CASES)
    cases = cases_of_op(op, names)
    more = FALLBACK_MUTANTS if op == "group_norm" and device.traits.software else ()
    assert [*survivors(op, [*mutants, *more], cases, device, tmp_path)] == []


@pytest.mark.parametrize(
    ("sizes", "options", "kernel"),
    [
        ((2, 1280, 64, 32), (), "registers"),
        ((2, 1280, 256, 32), (), "registers"),
        ((2, 320, 4096, 32), (), "split_row"),
        ((1, 512, 4096, 32), (), "split_row"),
        ((1, 128, 512 * 512, 32), (), "split_row"),
        ((64, 320, 4096, 32), (), "split_row"),
        ((64, 640, 1024, 32), (), "registers"),
        ((64, 1280, 4096, 32), (), "split_row"),
        ((2, 320, 64, 32), (LAST,), "tiles"),
        ((2, 640, 64, 32), (LAST,), "registers"),
        ((1, 128, 512 * 512, 32), (LAST,), "tiles"),
        ((2, 2048, 49, 2048), (), "registers"),
        ((1, 1, 1, 1), (), "registers"),
    ],
)
def test_auto_fits_the_shape(sizes: tuple[int, ...], options: tuple[str, ...], kernel: str) -> None:
    task = Task(OPS["group_norm"], problem_of("group_norm", sizes, *options))
    assert choose(KERNELS, task, GPU).variant.kernel.name == kernel


@pytest.mark.parametrize(
    ("sizes", "options", "kernel"),
    [
        ((2, 1280, 64, 32), (), "registers"),
        ((2, 320, 4096, 32), (), "tiles"),
        ((64, 1280, 4096, 32), (), "tiles"),
        ((2, 640, 64, 32), (LAST,), "tiles"),
    ],
)
def test_auto_fits_the_shape_of_a_gradient(
    sizes: tuple[int, ...], options: tuple[str, ...], kernel: str
) -> None:
    task = Task(OPS["group_norm_backward"], problem_of("group_norm_backward", sizes, *options))
    assert choose(KERNELS, task, GPU).variant.kernel.name == kernel


@pytest.mark.parametrize("op", NAMES)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--size", "groups=7"], "groups must divide channels"),
        (["--size", "spatial=0"], "spatial is 0; expected 1 or more"),
        (["--size", "groups=0"], "groups is 0; expected 1 or more"),
        (["--size", "height=8"], "no size height"),
        (["--option", "layout=nhwc"], "nhwc"),
    ],
)
def test_bad_input_is_one_line(op: str, words: list[str], message: str, tmp_path: Path) -> None:
    done = commands.webnorm(["bench", "--op", op, *words], tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and message in done.stderr
