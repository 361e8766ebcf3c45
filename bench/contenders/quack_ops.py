"""QuACK's kernels in CuTe (https://github.com/Dao-AILab/quack), called without autograd."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from bench.contenders import Compute, Contender, Tensors
from webnorm.op.op import Task

# Imported by its full name, because the package exports a function with the module's name.
_quack: Any = importlib.import_module("quack.rmsnorm")


def contenders(task: Task, device: str) -> list[Contender]:
    """Return QuACK's function for the op, with its own choice of launch."""
    found = _compute(task)
    if isinstance(found, str):
        return [Contender("QuACK", absent=found)]
    return [Contender("QuACK", found, adapt=_adapted(task))]


def _compute(task: Task) -> Compute | str:
    eps = task.problem.eps
    match task.op.name, task.problem.options.residual:
        case "layer_norm", False:
            return lambda t: {"y": _quack.layernorm_fwd(t["x"], t["weight"], t["bias"], eps)}
        case "rms_norm", False:
            return lambda t: {"y": _quack.rmsnorm_fwd(t["x"], t["weight"], eps=eps)[0]}
        case "rms_norm", True:
            return lambda t: _with_residual(t, eps)
        case "layer_norm_backward", _:
            return _layer_norm_gradients
        case "rms_norm_backward", _:
            return _rms_norm_gradients
    return f"QuACK has no {task.op.name} with a residual"


def _adapted(task: Task) -> Callable[[Tensors], Tensors]:
    """Return a conversion to QuACK's forms: float32 weight and bias for LayerNorm, 1-D statistics."""
    wide = ("weight", "bias") if task.op.name == "layer_norm" else ()
    flat = ("mean", "rstd")

    def adapt(t: Tensors) -> Tensors:
        widened = {name: one.float() if name in wide else one for name, one in t.items()}
        return {name: one.reshape(-1) if name in flat else one for name, one in widened.items()}

    return adapt


def _with_residual(t: Tensors, eps: float) -> Tensors:
    y, h, _ = _quack.rmsnorm_fwd(t["x"], t["weight"], residual=t["residual"], eps=eps)
    return {"y": y, "h": h}


def _layer_norm_gradients(t: Tensors) -> Tensors:
    dx, dweight, dbias = _quack.layernorm_bwd(t["x"], t["weight"], t["dy"], t["rstd"], t["mean"])
    return {"dx": dx, "dweight": dweight, "dbias": dbias}


def _rms_norm_gradients(t: Tensors) -> Tensors:
    dx, dweight, *_ = _quack.rmsnorm_bwd(t["x"], t["weight"], t["dy"], t["rstd"])
    return {"dx": dx, "dweight": dweight}
