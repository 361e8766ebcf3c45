"""Liger's Triton kernels (https://github.com/linkedin/Liger-Kernel), called without autograd."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from liger_kernel.ops.fused_add_rms_norm import fused_add_rms_norm_forward
from liger_kernel.ops.layer_norm import layer_norm_backward, layer_norm_forward
from liger_kernel.ops.rms_norm import _CASTING_MODE_LLAMA, rms_norm_backward, rms_norm_forward
from liger_kernel.ops.utils import calculate_settings

from bench.contenders import Compute, Contender
from webnorm.op.op import Task

# Liger's default for RMSNorm: the sum of squares in float32.
_CASTING = _CASTING_MODE_LLAMA.value
_OFFSET = 0.0


def contenders(task: Task, device: str) -> list[Contender]:
    """Return Liger's function for the op, which runs on the tensors' device."""
    found = _compute(task)
    return [Contender("Liger", absent=found) if isinstance(found, str) else Contender("Liger", found)]


def _compute(task: Task) -> Compute | str:
    eps = task.problem.eps
    try:
        settings = calculate_settings(task.problem.cols)
    except RuntimeError as error:
        return str(error)
    match task.op.name, task.problem.options.residual:
        case "layer_norm", False:
            return lambda t: {"y": layer_norm_forward(t["x"], t["weight"], t["bias"], eps)[0]}
        case "rms_norm", False:
            return lambda t: {"y": rms_norm_forward(t["x"], t["weight"], eps, _OFFSET, _CASTING, False)[0]}
        case "rms_norm", True:
            return partial(_fused, eps)
        case "layer_norm_backward", _:
            return _layer_norm_gradients
        case "rms_norm_backward", _:
            return partial(_rms_norm_gradients, settings)
    return f"Liger has no {task.op.name} with a residual"


def _fused(eps: float, t: Mapping[str, Any]) -> Mapping[str, Any]:
    y, h, *_ = fused_add_rms_norm_forward(t["x"], t["residual"], t["weight"], eps, _OFFSET, _CASTING)
    return {"y": y, "h": h}


def _layer_norm_gradients(t: Mapping[str, Any]) -> Mapping[str, Any]:
    # The gradient does not depend on the bias. Liger reads only its type.
    bias = t["weight"]
    dx, dweight, dbias = layer_norm_backward(t["dy"], t["x"], t["weight"], bias, t["mean"], t["rstd"])
    return {"dx": dx, "dweight": dweight, "dbias": dbias}


def _rms_norm_gradients(settings: tuple[int, int], t: Mapping[str, Any]) -> Mapping[str, Any]:
    given = (t[name] for name in ("dy", "x", "weight", "rstd"))
    # In-place mode would overwrite dy, which every run reads.
    dx, dweight = rms_norm_backward(*given, _OFFSET, _CASTING, *settings, in_place=False, row_mode=False)
    return {"dx": dx, "dweight": dweight}
