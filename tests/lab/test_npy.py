"""User arrays: types that NumPy files do not name, and files of other formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from webnorm.calls.arrays import GpuArray
from webnorm.errors import WebnormError
from webnorm.lab.run import requests
from webnorm.lab.run.check import user_array_case
from webnorm.op.corpus import Overrides
from webnorm.op.dtypes import Array
from webnorm.op.op import Task
from webnorm.op.registry import OPS
from webnorm.ops.norms.functional import layer_norm
from webnorm.ops.norms.modules import LayerNorm

X: Array = np.arange(-12, 12).reshape(2, 3, 4).astype(ml_dtypes.bfloat16)


def saved(path: Path, array: Any) -> Path:
    np.save(path, array)
    return path


def drawn(given: Path | Array, *dtypes: str) -> Array:
    case = user_array_case(given, dtypes)
    problem = case.problem(OPS["layer_norm"], case.dtype)
    assert problem is not None
    return case.draw(Task(OPS["layer_norm"], problem))["x"]


@pytest.mark.parametrize("dtypes", [("bfloat16",), ("float32", "bfloat16")])
@pytest.mark.parametrize("x", [X, np.asfortranarray(X)], ids=["C", "Fortran"])
def test_bfloat16_comes_back_from_numpys_files(tmp_path: Path, x: Array, dtypes: tuple[str, ...]) -> None:
    path = saved(tmp_path / "x.npy", x)
    for given in (path, np.load(path), np.load(path, mmap_mode="r")):
        found = drawn(given, *dtypes)
        assert found.dtype == x.dtype and np.array_equal(found, X.reshape(6, 4))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float32])
def test_an_array_of_another_type_than_requested_is_refused(tmp_path: Path, dtype: Any) -> None:
    """webnorm refuses it, because the check would test another type than requested."""
    path = saved(tmp_path / "x.npy", X.astype(dtype))
    wanted = next(name for name in ("float32", "float16") if np.dtype(name) != dtype)
    with pytest.raises(WebnormError, match=rf"dtype is .*; --dtype \(dtype=\) requires {wanted}"):
        user_array_case(path, [wanted])
    request = requests.check_request(["naive"], ["layer_norm"])
    own = "bfloat16" if dtype is ml_dtypes.bfloat16 else np.dtype(dtype).name
    assert requests.with_cases(request, (), None, path, own, Overrides()).dtypes == (own,)


def test_bytes_require_an_explicit_type() -> None:
    """The advice in the message works."""
    raw = X.view("V2")
    with pytest.raises(WebnormError, match=r"use --dtype bfloat16 \(dtype=.bfloat16.\) to read it"):
        user_array_case(raw)
    row, plain = raw[0, 0], X[0, 0].astype(np.float32)
    calls: list[tuple[Any, Any]] = [
        (lambda: layer_norm(raw, 4), "x.view(ml_dtypes.bfloat16)"),
        (lambda: layer_norm(X, 4, row), "weight.view(ml_dtypes.bfloat16)"),
        (lambda: layer_norm(X, 4, residual=raw), "residual.view(ml_dtypes.bfloat16)"),
        (lambda: GpuArray.from_numpy(raw), "array.view(ml_dtypes.bfloat16)"),
        (lambda: GpuArray.from_numpy(raw.view("V1")), "array.view(ml_dtypes.float8_e5m2)"),
    ]
    for call, advice in calls:
        with pytest.raises(WebnormError) as refused:
            call()
        assert str(refused.value).endswith(advice), refused.value
        name = advice.partition(".")[0]
        assert eval(advice, {"ml_dtypes": ml_dtypes, name: raw}).shape[0] == 2
    with pytest.raises(WebnormError) as refused:
        layer_norm(plain[None], 4, row)
    assert str(refused.value) == "weight has dtype |V2; expected float32"


def test_no_cast_is_offered_that_fails() -> None:
    for dtype in ("f8", "i8", "?", "c16", "O", "U3", "M8[s]", "V3", [("a", "f4")]):
        array = np.zeros((2, 4), dtype)
        with pytest.raises(WebnormError) as refused:
            layer_norm(array, 4)
        offered = str(refused.value).partition("cast it, as with x")[2]
        assert bool(offered) == (np.dtype(dtype).kind in "biuf"), refused.value
        if offered:
            assert eval(f"x{offered}", {"np": np, "x": array}).dtype == np.float32


def test_a_module_takes_its_own_type_from_a_file(tmp_path: Path) -> None:
    kept = np.load(saved(tmp_path / "weight.npy", X[0, 0]))
    norm = LayerNorm(4, dtype="bfloat16", bias=False)
    norm.load_state_dict({"weight": kept})
    assert norm.weight is not None and np.array_equal(norm.weight, X[0, 0])
    with pytest.raises(WebnormError, match=r"weight has dtype \|V2; expected numbers"):
        LayerNorm(4, bias=False).load_state_dict({"weight": kept})


def test_other_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("1 2 3")
    (tmp_path / "safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    np.savez(tmp_path / "archive.npz", x=X.astype(np.float32))
    np.save(tmp_path / "float8.npy", X.astype(ml_dtypes.float8_e5m2))
    for name, said in (
        ("plain", "it is no .npy file; write the array with numpy.save"),
        ("safetensors", "it is a safetensors file; extract one array"),
        ("archive.npz", "it is an .npz archive; extract one array"),
        ("float8.npy", "NumPy rejects its header: descr is not a valid dtype descriptor: '<f1'"),
    ):
        with pytest.raises(WebnormError) as refused:
            user_array_case(tmp_path / name)
        assert f"{name}: cannot read the array: {said}" in str(refused.value)
