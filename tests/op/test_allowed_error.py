"""`@op.allowed_error` and the argument `derived` of `define_op`, in ops of users."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import webnorm
from user_folders import KERNEL, OP, write_op
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.op import op_trial
from webnorm.op.op import HeaderTerms, Task, make_inputs
from webnorm.op.registry import load_op

ALLOWED = f"""{OP}

@op.allowed_error
def error(x):
    return 1e-3 * np.abs(x)
"""


def test_the_allowed_error_decides(device: Device, tmp_path: Path) -> None:
    kernels = {
        "close": KERNEL.replace("2.0 *", "2.0009 *"),
        "off": KERNEL.replace("2.0 *", "2.0011 *"),
    }
    op = webnorm.load_op(write_op(tmp_path / "twice", ALLOWED, **kernels))
    status = {one.kernel: one.status for one in webnorm.check(op=op).report.results if one.status != "pass"}
    assert {*status} == {"off"}


def test_serial_terms_widen_the_allowed_error(tmp_path: Path) -> None:
    op = load_op(write_op(tmp_path / "twice", ALLOWED))
    problem = op.problem(4, 1000)
    tolerance = op.hook("tolerance")
    assert tolerance(HeaderTerms(64, 0, 0), problem).base == 1.0
    assert tolerance(HeaderTerms(640, 0, 0), problem).base == 10.0


def test_a_reference_may_depend_on_the_storage_type(tmp_path: Path) -> None:
    text = OP.replace(
        "def doubled(x):\n    return 2 * x", "def doubled(x, dtype):\n    return len(dtype) * x"
    )
    op = load_op(write_op(tmp_path / "twice", text))
    for dtype in ("float16", "bfloat16"):
        problem = op.problem(2, 3, dtype=dtype)
        arrays = make_inputs(op, problem)
        expected = op.reference(arrays, Task(op, problem).problem)["y"].value
        assert np.array_equal(expected, len(dtype) * arrays["x"].astype(np.float64))


def test_derived_names_are_constants_of_kernels(device: Device, tmp_path: Path) -> None:
    derived = "    derived={'doubled_cols': '2 * cols', 'wide': '4 if is_kind_b and loud else 1'},\n"
    options = "    options=[option('kind', 'a', 'b'), option('loud')],\n"
    op = load_op(write_op(tmp_path / "twice", OP.replace("\n)\n", f"\n{options}{derived})\n", 1)))
    options_of = type(op.defaults)
    names = op.header_names(op.problem(4, 6, options=options_of(kind="b", loud=True)))
    assert names["doubled_cols"] == 12 and names["wide"] == 4
    assert op.header_names(op.problem(4, 6))["wide"] == 1


@pytest.mark.parametrize(
    ("added", "text"),
    [
        ("    derived={'wide': 'rows + 1'},\n", "derived name 'wide' depends on rows, the batch"),
        ("    derived={'wide': 'colums'},\n", "unknown name 'colums'"),
        ("    derived={'cols': '1'},\n", "derived name 'cols' is also a size"),
        ("    derived={'fn': '1'},\n", "'fn', which is a word of WGSL"),
    ],
)
def test_wrong_derived_names(added: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(op_trial._INSIDE, "1")
    with pytest.raises(WebnormError, match=text):
        load_op(write_op(tmp_path / "twice", OP.replace("\n)\n", f"\n{added})\n", 1)))


@pytest.mark.parametrize(
    ("function", "text"),
    [
        ("def error(y):\n    return 1", "the allowed error has the unknown parameter 'y'"),
        ("def error(x):\n    return x[:, :1] * np.ones(3)", "does not return one array for each of y"),
        ("def error(x):\n    return x, x", "does not return one array for each of y"),
    ],
)
def test_wrong_functions(function: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(WebnormError, match=text):
        load_op(write_op(tmp_path / "twice", f"{OP}\n\n@op.allowed_error\n{function}\n"))


def test_two_tolerances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(op_trial._INSIDE, "1")
    text = ALLOWED.replace("\n)\n", "\n    relative_tolerance=1e-3,\n)\n", 1)
    with pytest.raises(WebnormError, match="the op has two tolerances"):
        load_op(write_op(tmp_path / "twice", text))


def test_a_folder_replaces_a_packaged_op(device: Device, tmp_path: Path) -> None:
    folder = write_op(tmp_path / "group_norm")
    assert webnorm.load_op(folder)(np.ones((2, 3), np.float32)).sum() == 12
    kernels = {kernel.name for kernel in webnorm.discover() if kernel.op.name == "group_norm"}
    assert kernels == {"naive"}
