"""torch's norm family, eager and compiled, on a CUDA card."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from bench.contenders import Compute, Contender
from bench.contenders.torch_ops import on_device
from webnorm.op.dtypes import Array
from webnorm.op.op import Task

Inputs = Mapping[str, Any]


def tensors(arrays: Mapping[str, Array], task: Task, device: str) -> dict[str, torch.Tensor]:
    """Return the arrays on a device, with the batch repeated up to the task's."""
    size, found = task.problem.batch_size, {}
    for name, array in arrays.items():
        one = on_device(array, device)
        if task.op.named[name].batched and len(one) != size:
            one = one.repeat(-(-size // len(one)), *[1] * (one.ndim - 1))[:size]
        found[name] = one
    return found


def contenders(task: Task) -> Iterator[Contender]:
    """Yield the op by torch's functions, eager and compiled."""
    make = _OPS.get(task.op.name)
    if make is None:
        yield Contender("torch eager", absent="torch's functions are not written down here for this op")
        return
    compute = make(task.problem)
    yield Contender("torch eager", compute)
    torch._dynamo.reset()
    yield Contender("torch.compile", torch.compile(compute, dynamic=False, fullgraph=True))


def _activation(name: str | None) -> Callable[[Any], Any]:
    known: Mapping[str | None, Callable[[Any], Any]] = {
        None: lambda x: x,
        "silu": functional.silu,
        "sigmoid": torch.sigmoid,
        "gelu": functional.gelu,
        "gelu_tanh": partial(functional.gelu, approximate="tanh"),
    }
    return known[name]


def _norm(name: str, x: torch.Tensor, t: Inputs, eps: float, weight: str = "weight") -> torch.Tensor:
    shape = x.shape[-1:]
    if name == "rms_norm":
        return functional.rms_norm(x, shape, t.get(weight), eps)
    return functional.layer_norm(x, shape, t.get(weight), t.get("bias"), eps)


def _group_norm(p: Any) -> Compute:
    act = _activation(p.options.activation)
    last = p.options.layout == "channels_last"

    def compute(t: Inputs) -> Inputs:
        h = t["x"] + t["residual"] if "residual" in t else t["x"]
        x = (
            h.view(p.batch, p.spatial, p.channels).transpose(1, 2)
            if last
            else h.view(p.batch, p.channels, -1)
        )
        y = act(functional.group_norm(x, p.groups, t.get("weight"), t.get("bias"), p.eps))
        y = (y.transpose(1, 2).contiguous() if last else y).view(p.batch, -1)
        return {"y": y, "h": h} if "residual" in t else {"y": y}

    return compute


def _modulated_norm(p: Any) -> Compute:
    act = _activation(p.options.activation)

    def compute(t: Inputs) -> Inputs:
        x = t["x"].view(p.batch, p.rows, p.cols)
        if "residual" in t:
            more = t["residual"].view(p.batch, p.rows, p.cols)
            x = x + (t["gate"][:, None] * more if "gate" in t else more)
        y = _norm(p.options.norm, x, t, p.eps)
        y = y * (1.0 + t["scale"][:, None]) if "scale" in t else y
        y = act(y + t["shift"][:, None] if "shift" in t else y).view(p.batch, -1)
        return {"y": y, "h": x.view(p.batch, -1)} if "residual" in t else {"y": y}

    return compute


def _gated_norm(p: Any) -> Compute:
    act = _activation(p.options.activation)

    def compute(t: Inputs) -> Inputs:
        shape = (p.rows, p.heads, p.cols)
        x, gate = t["x"].view(shape), act(t["z"].view(shape))
        if p.options.order == "gate_first":
            x = x * gate
        y = _norm(p.options.norm, x, {}, p.eps)
        y = y * t["weight"].view(shape[1:]) if "weight" in t else y
        y = y * gate if p.options.order == "norm_first" else y
        return {"y": y.view(p.rows, -1)}

    return compute


def _qk_norm(p: Any) -> Compute:
    def heads(x: torch.Tensor, first: int, count: int, weight: torch.Tensor) -> torch.Tensor:
        columns = slice(first * p.dim, (first + count) * p.dim)
        x = x.view(p.batch, p.tokens, -1)[..., columns].unflatten(-1, (count, p.dim))
        return functional.rms_norm(x, (p.dim,), weight.flatten(), p.eps).reshape(p.batch, -1)

    def compute(t: Inputs) -> Inputs:
        k, first = (t["q"], p.q_heads) if p.options.qkv else (t["k"], 0)
        return {
            "yq": heads(t["q"], 0, p.q_heads, t["weight_q"]),
            "yk": heads(k, first, p.k_heads, t["weight_k"]),
        }

    return compute


def _softmax(p: Any) -> Compute:
    def compute(t: Inputs) -> Inputs:
        x = t["x"].view(-1, p.cols)
        return {"y": functional.softmax(x * p.scale, dim=-1).view(t["x"].shape)}

    return compute


def _l2_norm(p: Any) -> Compute:
    return lambda t: {"y": functional.normalize(t["x"], dim=-1, eps=p.eps)}


_OPS: Mapping[str, Callable[[Any], Compute]] = {
    "group_norm": _group_norm,
    "modulated_norm": _modulated_norm,
    "gated_norm": _gated_norm,
    "qk_norm": _qk_norm,
    "softmax": _softmax,
    "l2_norm": _l2_norm,
}
