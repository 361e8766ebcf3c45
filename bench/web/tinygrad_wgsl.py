"""Print WGSL that tinygrad renders for norms, as JSON.

    python -m bench.web.tinygrad_wgsl EPS OP-DTYPE-ROWSxCOLS ...

It needs no device: DEV=NULL gives tinygrad an empty one, and its WebGPU renderer makes the texts. It runs in
its own process, because tinygrad reads its settings at import.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from webnorm.errors import WebnormError

# Each buffer stays separate: the memory planner would merge intermediate ones.
_SETTINGS = {"DEV": "NULL", "NO_MEMORY_PLANNER": "1", "CACHELEVEL": "0"}
_TIME_LIMIT_S = 120.0


def available() -> str | None:
    """Return None if texts can be rendered, or what is missing."""
    return None if find_spec("tinygrad") else "the Python package tinygrad is not installed"


def version() -> str:
    """Return the installed version."""
    return metadata.version("tinygrad")


def rendered(names: Sequence[str], eps: float) -> dict[str, Any]:
    """Render norms in a new process; `programs` has kernels with grids and buffers, or `why` not."""
    command = [sys.executable, "-m", "bench.web.tinygrad_wgsl", str(eps), *names]
    environment = {**os.environ, **_SETTINGS}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_TIME_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise WebnormError(f"tinygrad did not finish within {_TIME_LIMIT_S:g} s and was stopped") from None
    if done.returncode != 0:
        raise WebnormError(f"tinygrad failed: {(done.stderr.splitlines() or ['no message'])[-1]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _program(name: str, eps: float) -> dict[str, Any]:
    """Render the kernels of one norm, in order."""
    from tinygrad import Tensor, dtypes
    from tinygrad.helpers import Target
    from tinygrad.renderer.wgsl import WGSLRenderer

    op, dtype, shape = name.split("-")
    rows, cols = map(int, shape.split("x"))
    renderer = WGSLRenderer(Target.parse("WEBGPU:WGSL:shader-f16"))
    kind = getattr(dtypes, dtype)
    if kind not in renderer.supported_dtypes():
        raise ValueError(f"its renderer for WGSL has no {dtype}")
    shapes = {"x": (rows, cols), "weight": (cols,), "bias": (cols,)}
    given = {key: Tensor.empty(*size, dtype=kind) for key, size in shapes.items()}
    x = given["x"]
    if op == "rms_norm":
        y = x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * given["weight"]
    else:
        y = x.layernorm(eps=eps) * given["weight"] + given["bias"]
    kernels = []
    names = {tensor.uop.buf_uop: key for key, tensor in given.items()}
    linear = y.schedule_linear()
    names[y.uop.buf_uop] = "y"
    buffers: list[Any] = []
    for call in linear.src:
        used = [one.buf_uop for one in call.src[1:]]
        buffers += [one for one in dict.fromkeys(used) if one not in buffers]
        kernels.append(_kernel(call.src[0], renderer, [buffers.index(one) for one in used]))
    sizes = [{"name": names.get(one, ""), "bytes": one.max_numel() * one.dtype.itemsize} for one in buffers]
    return {"buffers": sizes, "kernels": kernels}


def _kernel(sink: Any, renderer: Any, used: Sequence[int]) -> dict[str, Any]:
    """Return a kernel's text, grid and buffers."""
    from tinygrad.codegen import to_program
    from tinygrad.uop.ops import Ops

    program = to_program(sink, renderer)
    (code,) = (part.arg for part in program.src if part.op is Ops.SOURCE)
    grid, _ = program.arg.launch_dims({})
    bound = [used[slot] for slot in program.arg.globals]
    return {"code": code, "entry": program.arg.function_name, "grid": list(grid), "buffers": bound}


def main() -> None:
    """Render the named norms, and write them to stdout."""
    eps, *names = sys.argv[1:]
    programs = {}
    for name in names:
        try:
            programs[name] = _program(name, float(eps))
        except Exception as error:
            programs[name] = {"why": f"it does not render: {error}"}
    json.dump({"programs": programs}, sys.stdout)


if __name__ == "__main__":
    main()
