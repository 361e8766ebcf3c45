"""torch's functions, eager and compiled, on a CUDA card or on the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from bench.contenders import Compute, Contender
from webnorm.op.dtypes import DTYPES, Array
from webnorm.op.op import Task
from webnorm.ops.norms.op import has_mean
from webnorm.ops.norms.problem import NormProblem


def tensors(arrays: Mapping[str, Array], device: str, rows: int) -> dict[str, torch.Tensor]:
    """Return the arrays on a device, with rows repeated up to `rows`.

    Saved statistics become `mean` and `rstd`, float32 of shape (rows, 1).
    """
    found = {name: _tensor(array) for name, array in arrays.items() if name != "stats"}
    if "stats" in arrays:
        stats = arrays["stats"]
        found["rstd"] = torch.from_numpy(stats[:, -1:].copy())
        if stats.shape[1] > 1:
            found["mean"] = torch.from_numpy(stats[:, :1].copy())
    there = {name: one.to(device) for name, one in found.items()}
    return {name: _repeated(one, rows) if one.ndim == 2 else one for name, one in there.items()}


def _repeated(one: torch.Tensor, rows: int) -> torch.Tensor:
    return one if len(one) == rows else one.repeat(-(-rows // len(one)), 1)[:rows]


def on_device(array: Array, device: str) -> torch.Tensor:
    """Return an array as a tensor on a device."""
    return _tensor(array).to(device)


def _tensor(array: Array) -> torch.Tensor:
    # torch does not know NumPy's bfloat16, which another package defines. So its bits are reinterpreted.
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def blank(task: Task, device: str) -> dict[str, torch.Tensor]:
    """Return inputs with a task's shapes and types, and arbitrary values."""
    op, problem = task.op, task.problem
    few = replace(problem, rows=1)
    arrays = {
        tensor.name: np.zeros(tensor.shape_in(few), DTYPES[tensor.dtype(few)])
        for tensor in op.present(problem)
        if tensor.access == "read"
    }
    return tensors(arrays, device, problem.rows)


def to_numpy(outputs: Mapping[str, torch.Tensor], rows: slice = slice(None)) -> dict[str, Array]:
    """Return the outputs as float32 on the host; of tensors with rows only `rows`."""
    few = {name: value[rows] if value.ndim > 1 else value for name, value in outputs.items()}
    return {name: value.float().cpu().numpy() for name, value in few.items()}


def contenders(task: Task, device: str) -> Iterator[Contender]:
    """Yield torch's copy, its function for the op, and that function compiled for this shape.

    It is compiled with the defaults, and with inductor's longest search (max-autotune).
    """
    yield Contender("torch copy", lambda t: {"y": t["x"].clone()}, copies=True)
    eager = _eager(task, device)
    if isinstance(eager, str):
        yield Contender("torch eager", absent=eager)
        return
    yield Contender("torch eager", eager)
    if device == "cuda":
        # torch caches compiled functions by their code, which is the same for all shapes. Without a reset it
        # would stop compiling after a few shapes.
        torch._dynamo.reset()
        yield Contender("torch.compile", torch.compile(eager, dynamic=False, fullgraph=True))
        # Its own CUDA graphs are off, because every contender is captured in one.
        tuned = torch.compile(eager, dynamic=False, fullgraph=True, mode="max-autotune-no-cudagraphs")
        yield Contender("torch.compile max-autotune", tuned)


def _eager(task: Task, device: str) -> Compute | str:
    """Return the op as torch's functions, or the reason why torch does not have it."""
    problem = task.problem
    shape = [problem.cols]
    if task.op.gradient:
        return _backward(has_mean(task.op), shape, device)
    if has_mean(task.op):
        return _with_residual(problem, lambda h, t: _layer_norm(h, t, problem))
    if "bias" in [tensor.name for tensor in task.op.present(problem)]:
        return "torch's rms_norm has no bias"
    return _with_residual(problem, lambda h, t: torch.rms_norm(h, shape, t["weight"], problem.eps))


def _layer_norm(h: torch.Tensor, t: Mapping[str, Any], problem: NormProblem) -> torch.Tensor:
    return torch.nn.functional.layer_norm(h, [problem.cols], t["weight"], t["bias"], problem.eps)


def _with_residual(problem: NormProblem, norm: Any) -> Compute:
    if not problem.options.residual:
        return lambda t: {"y": norm(t["x"], t)}

    def compute(t: Mapping[str, Any]) -> Mapping[str, Any]:
        h = t["x"] + t["residual"]
        return {"y": norm(h, t), "h": h}

    return compute


def _backward(has_mean: bool, shape: list[int], device: str) -> Compute | str:
    """Return the single call that torch's autograd makes, with the saved statistics."""
    aten = torch.ops.aten
    if has_mean:

        def layer_norm(t: Mapping[str, Any]) -> Mapping[str, Any]:
            # The gradient does not depend on the bias. torch reads only its shape and type.
            bias = t["weight"]
            dx, dweight, dbias = aten.native_layer_norm_backward(
                t["dy"], t["x"], shape, t["mean"], t["rstd"], t["weight"], bias, [True, True, True]
            )
            return {"dx": dx, "dweight": dweight, "dbias": dbias}

        return layer_norm
    if device == "cpu" or not hasattr(aten, "_fused_rms_norm_backward"):
        return "this version of torch has no function for this gradient here"

    def rms_norm(t: Mapping[str, Any]) -> Mapping[str, Any]:
        dx, dweight = aten._fused_rms_norm_backward(
            t["dy"], t["x"], shape, t["rstd"], t["weight"], [True, True]
        )
        return {"dx": dx, "dweight": dweight}

    return rms_norm
