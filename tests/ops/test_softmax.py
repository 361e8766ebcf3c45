"""softmax and its gradient: the meaning of its options, mutants, choices of kernels, and bad sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_mutants import cases_of_op, difference_quotient, failure, survivors
from softmax_mutants import CASES, GRADIENT_CASES, GRADIENT_MUTANTS, MUTANTS

import commands
from testbed import GPU, needs
from webnorm.choice.defaults import choose
from webnorm.gpu.device import Device
from webnorm.kernels.headers.library import discover
from webnorm.op.dtypes import STORAGE, Array
from webnorm.op.op import Task
from webnorm.op.registry import OPS, options_of

KERNELS = [kernel for kernel in discover() if kernel.op.name in ("softmax", "softmax_backward")]


def softmax_of(x: Any, *options: str, **given: Any) -> Array:
    """Return the reference's y of x (batch, queries, cols)."""
    op = OPS["softmax"]
    arrays = {"x": np.asarray(x, np.float64)}
    scalars = {name: value for name, value in given.items() if name == "scale"}
    arrays |= {name: value for name, value in given.items() if name != "scale"}
    problem = op.problem(*arrays["x"].shape, options=options_of(op, options), **scalars)
    return op.reference(arrays, problem)["y"].value


def exact(z: Array) -> Array:
    """Return softmax of rows, one row after another, without the columns that are -inf."""
    y = np.zeros_like(z)
    for at in np.ndindex(z.shape[:-1]):
        kept = z[at] > -np.inf
        e = np.exp(z[at][kept])
        y[at][kept] = e / e.sum()
    return y


def test_scale_and_masks_come_before_the_softmax() -> None:
    rng = np.random.default_rng(3)
    x, mask, more = (rng.standard_normal(shape) for shape in ((2, 5, 7), (5, 7), (2, 5, 7)))
    mask[0, 2:] = -np.inf
    y = softmax_of(x, "mask", mask=mask, scale=0.25)
    np.testing.assert_allclose(y, exact(0.25 * x + mask), rtol=1e-12)
    y = softmax_of(x, "mask", "batch_mask", mask=mask, batch_mask=more)
    np.testing.assert_allclose(y, exact(x + mask + more), rtol=1e-12)
    np.testing.assert_allclose(np.exp(softmax_of(x, "log")), exact(x), rtol=1e-12)


@pytest.mark.parametrize(("corner", "diagonal"), [("upper_left", 0), ("lower_right", 2)])
def test_a_causal_mask_is_torchs_tril_from_a_corner(corner: str, diagonal: int) -> None:
    x = np.random.default_rng(3).standard_normal((2, 5, 7))
    z = np.where(np.tril(np.ones((5, 7), bool), diagonal), x, -np.inf)
    np.testing.assert_allclose(softmax_of(x, f"causal={corner}"), exact(z), rtol=1e-12)


def test_a_fully_masked_row_is_nan_or_zeros() -> None:
    x = np.zeros((1, 3, 2))
    assert np.isnan(softmax_of(x, "causal=lower_right")[0, 0]).all()
    y = softmax_of(x, "causal=lower_right", "fully_masked=zeros")
    np.testing.assert_array_equal(y, [[[0.0, 0.0], [1.0, 0.0], [0.5, 0.5]]])
    y = softmax_of(x, "causal=lower_right", "fully_masked=zeros", "log")
    assert (y[0, 0] == -np.inf).all()


@pytest.mark.parametrize("log", [[], ["log"]], ids=["probabilities", "logarithms"])
@pytest.mark.parametrize("causal", [None, "lower_right", "upper_left"])
def test_the_gradient_is_that_of_the_reference(log: list[str], causal: str | None) -> None:
    rng = np.random.default_rng(4)
    options = [*log, *([f"causal={causal}"] if causal else [])]
    forward, backward = OPS["softmax"], OPS["softmax_backward"]
    sizes, scale = (2, 4, 6), 0.7
    x, dy, along = (rng.standard_normal(sizes) for _ in range(3))
    problem = forward.problem(*sizes, options=options_of(forward, options), scale=scale)
    y = forward.reference({"x": x}, problem)["y"].value
    with np.errstate(invalid="ignore"):
        change = difference_quotient("softmax", {"x": x}, along, problem)
    seen = np.isfinite(change)
    given = backward.problem(*sizes, options=options_of(backward, options), scale=scale)
    dx = backward.reference({"y": y, "dy": dy}, given)["dx"].value
    # In log mode, hidden columns are -inf, whatever x is. Their dy has no effect.
    assert (dx * along).sum() == pytest.approx((dy * np.where(seen, change, 0.0)).sum(), rel=1e-7)


@pytest.mark.opengl
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.label)
def test_every_type_and_option(kernel: Any, device: Device) -> None:
    needs(device, [feature for feature in kernel.features if feature not in ("subgroups",)])
    names = {
        "softmax": (
            "mask-8",
            "batch_mask-8",
            "log-8",
            "causal=*-61",
            "fully_masked=zeros-8",
            "cols-257",
            "cols-64",
        ),
        "softmax_backward": ("log-8", "causal=*-61", "cols-257", "cols-64"),
    }[kernel.op.name]
    assert failure(device, kernel, cases_of_op(kernel.op.name, names), STORAGE) is None


@pytest.mark.slow
@pytest.mark.parametrize("op", ["softmax", "softmax_backward"])
def test_mutants_die(op: str, device: Device, tmp_path: Path) -> None:
    mutants, names = (MUTANTS, CASES) if op == "softmax" else (GRADIENT_MUTANTS, GRADIENT_CASES)
    cases = cases_of_op(op, names)
    assert [failure(device, kernel, cases) for kernel in KERNELS if kernel.op.name == op] == [None] * 3
    assert [*survivors(op, mutants, cases, device, tmp_path)] == []


@pytest.mark.parametrize(("op", "longest"), [("softmax", 65536), ("softmax_backward", 32768)])
def test_auto_takes_registers_while_a_row_fits(op: str, longest: int) -> None:
    for cols in (1, 7, 64, 1000, 4096, 5001, 16384):
        task = Task(OPS[op], OPS[op].problem(8, 1, cols))
        assert choose(KERNELS, task, GPU).variant.kernel.name == "registers", cols
    for cols in (longest + 4, 3 * longest + 1):
        task = Task(OPS[op], OPS[op].problem(8, 1, cols))
        assert choose(KERNELS, task, GPU).variant.kernel.name == "streaming", cols


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--size", "cols=0"], "cols"),
        (["--size", "keys=4"], "no size keys"),
        (["--option", "causal=lower_left"], "lower_left"),
        (["--option", "fully_masked=ones"], "ones"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, tmp_path: Path) -> None:
    done = commands.webnorm(["bench", "--op", "softmax", *words], tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and message in done.stderr


def test_a_users_folder_takes_the_place_of_softmax(tmp_path: Path) -> None:
    """The docs' tutorials write an op softmax with other sizes."""
    assert commands.webnorm(["new-op", "softmax"], tmp_path).returncode == 0
    words = ["--op", "kernels/softmax", "--case", "softmax-rows-1"]
    done = commands.webnorm(["check", *words, "--json", "-"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert {one["kernel"] for one in json.loads(done.stdout)["results"]} == {"naive"}
    # The same worker forgets the user's op for a command without it.
    (tmp_path / "other").mkdir()
    words = ["check", "--op", "softmax", "--case", "softmax-hidden-rows"]
    done = commands.webnorm(words, tmp_path / "other")
    assert done.returncode == 0, done.stdout
    done = commands.webnorm(["new-op", "layer_norm"], tmp_path)
    assert done.returncode == 2 and "NAME is 'layer_norm', an op of webnorm" in done.stderr
