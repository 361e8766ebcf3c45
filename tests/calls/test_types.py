"""The types of the functions' results for type checkers: an array of x's type, or a NormOutput."""

from __future__ import annotations

import inspect
import subprocess
import sys
import typing
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import webnorm
from webnorm.op.op import Op
from webnorm.ops.norms.op import OPS as NORM_OPS

SCRIPT = """
import numpy as np
import webnorm

x = np.ones((2, 8), np.float32)
here = webnorm.GpuArray.from_numpy(x)
reveal_type(webnorm.layer_norm(x, 8))
reveal_type(webnorm.layer_norm(here, 8, x[0], kernel="naive"))
reveal_type(webnorm.rms_norm(x, 8, out_dtype="float16"))
reveal_type(webnorm.rms_norm(here, 8, out_dtype="int8"))
reveal_type(webnorm.layer_norm(x, 8, residual=x))
reveal_type(webnorm.layer_norm(here, 8, return_stats=True).stats)
reveal_type(webnorm.layer_norm_backward(x, x, 8))
reveal_type(webnorm.rms_norm_backward(here, here, 8, dh=here))
reveal_type(webnorm.LayerNorm(8)(here))
reveal_type(webnorm.bench("naive").rows())
webnorm.layer_norm("x", 8)
"""
ARRAY, HERE = "ndarray[tuple[Any, ...], dtype[Any]]", "GpuArray"
KNOWN = [
    ARRAY,
    HERE,
    ARRAY,
    f"NormOutput[{HERE}]",
    f"NormOutput[{ARRAY}]",
    f"{HERE} | None",
    f"tuple[{ARRAY}, {ARRAY} | None, {ARRAY} | None]",
    f"tuple[{HERE}, {HERE} | None]",
    HERE,
    "list[dict[str, str | int | float | bool | None]]",
]


@pytest.mark.slow
def test_a_checker_knows_what_calls_give(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "script.py").write_text(SCRIPT)
    root = Path(webnorm.__file__).parents[1]
    options = ["--config-file", str(root / "pyproject.toml"), "--cache-dir", str(root / ".mypy_cache")]
    command = [sys.executable, "-m", "mypy", *options, str(tmp_path / "script.py")]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    revealed = [
        line.partition('"')[2].rstrip('"') for line in done.stdout.splitlines() if "Revealed type" in line
    ]
    short = [
        one.replace("webnorm.calls.arrays.", "")
        .replace("webnorm.ops.norms.resolved.", "")
        .replace("builtins.", "")
        for one in revealed
    ]
    assert [one.replace("numpy.", "") for one in short] == KNOWN, done.stdout
    assert done.stdout.count(": error:") == 1 and 'No overload variant of "layer_norm" matches' in done.stdout


def holds_any(kind: object) -> bool:
    """Return True if a type contains Any outside of the shape and dtype of NumPy's arrays."""
    if typing.get_origin(kind) in {np.ndarray, npt.NDArray}:
        return False
    return kind is typing.Any or any(map(holds_any, typing.get_args(kind)))


@pytest.mark.parametrize(
    "name", [name for name in webnorm.__all__ if inspect.isfunction(getattr(webnorm, name))]
)
def test_no_public_function_gives_any(name: str) -> None:
    for given in typing.get_overloads(getattr(webnorm, name)) or [getattr(webnorm, name)]:
        assert not holds_any(typing.get_type_hints(given, include_extras=True)["return"])


@pytest.mark.parametrize("op", NORM_OPS, ids=lambda op: op.name)
def test_every_argument_is_one_that_a_checker_allows(op: Op) -> None:
    """Without an overload, only a caller's type checker would find that a parameter is missing."""
    function = getattr(webnorm, op.name)
    allowed = set[str]()
    for one in typing.get_overloads(function):
        hints = typing.get_type_hints(one)
        more = typing.get_type_hints(typing.get_args(hints.pop("more"))[0])
        allowed |= hints.keys() | more.keys()
    assert allowed - {"return"} == inspect.signature(function).parameters.keys()
