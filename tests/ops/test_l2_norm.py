"""l2_norm and its gradient: the meaning of its options, mutants, choices of kernels, and bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_mutants import cases_of_op, difference_quotient, failure, survivors
from l2_norm_mutants import CASES, GRADIENT_CASES, GRADIENT_MUTANTS, MUTANTS

import commands
from testbed import GPU
from webnorm.choice.defaults import choose
from webnorm.gpu.device import Device
from webnorm.kernels.headers.library import discover
from webnorm.op.dtypes import STORAGE, Array
from webnorm.op.op import Task
from webnorm.op.registry import OPS, options_of

KERNELS = [kernel for kernel in discover() if kernel.op.name in ("l2_norm", "l2_norm_backward")]
MODES = ("clamp", "add", "none")


def normalized(x: Any, *options: str, eps: float = 1e-12) -> Array:
    """Return the reference's y of rows."""
    op, x = OPS["l2_norm"], np.asarray(x, np.float64)
    problem = op.problem(*x.shape, options=options_of(op, options), eps=eps)
    return op.reference({"x": x}, problem)["y"].value


def test_the_modes_of_eps() -> None:
    x = [[3.0, 4.0]]
    np.testing.assert_allclose(normalized(x), [[0.6, 0.8]])
    np.testing.assert_allclose(normalized(x, eps=10.0), [[0.3, 0.4]])
    np.testing.assert_allclose(normalized(x, "eps_mode=add", eps=11.0), [[0.5, 4.0 / 6.0]])
    np.testing.assert_allclose(normalized(x, "eps_mode=none", eps=10.0), [[0.6, 0.8]])
    np.testing.assert_allclose(normalized(x, "p=1"), [[3.0 / 7.0, 4.0 / 7.0]])
    np.testing.assert_allclose(normalized(x, "p=1", "eps_mode=add", eps=1.0), [[0.375, 0.5]])


@pytest.mark.parametrize("p", ["1", "2"])
def test_rows_of_zeros_stay_zeros(p: str) -> None:
    for mode in MODES:
        np.testing.assert_array_equal(normalized([[0.0, 0.0]], f"p={p}", f"eps_mode={mode}"), [[0.0, 0.0]])
    # 0 / 0, as in torch.
    assert np.isnan(normalized([[0.0, 0.0]], f"p={p}", eps=0.0)).all()


@pytest.mark.parametrize("p", ["1", "2"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("eps", [1e-12, 0.5, 20.0])
def test_the_gradient_is_that_of_the_reference(p: str, mode: str, eps: float) -> None:
    rng = np.random.default_rng(4)
    options = [f"p={p}", f"eps_mode={mode}"]
    forward, backward = OPS["l2_norm"], OPS["l2_norm_backward"]
    x, dy, along = (rng.standard_normal((3, 6)) for _ in range(3))
    change = difference_quotient(
        "l2_norm", {"x": x}, along, forward.problem(3, 6, options=options_of(forward, options), eps=eps)
    )
    problem = backward.problem(3, 6, options=options_of(backward, options), eps=eps)
    dx = backward.reference({"x": x, "dy": dy}, problem)["dx"].value
    assert (dx * along).sum() == pytest.approx((dy * change).sum(), rel=1e-7)


@pytest.mark.opengl
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.label)
def test_every_type_and_option(kernel: Any, device: Device) -> None:
    names = ("p=1-8", "eps_mode=*-8", "cols-257", "cols-64", "scales-2-none", "zeros-*")
    assert failure(device, kernel, cases_of_op(kernel.op.name, names), STORAGE) is None


@pytest.mark.slow
@pytest.mark.parametrize("op", ["l2_norm", "l2_norm_backward"])
def test_mutants_die(op: str, device: Device, tmp_path: Path) -> None:
    mutants, names = (MUTANTS, CASES) if op == "l2_norm" else (GRADIENT_MUTANTS, GRADIENT_CASES)
    cases = cases_of_op(op, names)
    assert [failure(device, kernel, cases) for kernel in KERNELS if kernel.op.name == op] == [None] * 3
    assert [*survivors(op, mutants, cases, device, tmp_path)] == []


@pytest.mark.parametrize(("op", "longest"), [("l2_norm", 65536), ("l2_norm_backward", 32768)])
def test_auto_takes_registers_while_a_row_fits(op: str, longest: int) -> None:
    for cols in (1, 7, 64, 1000, 4096, 5001, 16384):
        task = Task(OPS[op], OPS[op].problem(8, cols))
        assert choose(KERNELS, task, GPU).variant.kernel.name == "registers", cols
    for cols in (longest + 4, 3 * longest + 1):
        task = Task(OPS[op], OPS[op].problem(8, cols))
        assert choose(KERNELS, task, GPU).variant.kernel.name == "streaming", cols


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--size", "cols=0"], "cols"),
        (["--size", "batch=4"], "no size batch"),
        (["--option", "p=3"], "3"),
        (["--option", "eps_mode=max"], "max"),
        (["--scalar", "eps=nan"], "eps"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, tmp_path: Path) -> None:
    done = commands.webnorm(["bench", "--op", "l2_norm", *words], tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and message in done.stderr
