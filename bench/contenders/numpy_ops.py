"""The norms in plain NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from bench.contenders import Contender, beyond_plain
from webnorm.op.dtypes import Array
from webnorm.op.op import Task
from webnorm.ops.norms.op import has_mean


def contenders(task: Task, device: str) -> list[Contender]:
    """Return NumPy's copy, and the op's plain formula in float32."""
    absent = beyond_plain(task)
    compute = _backward(task) if task.op.gradient else _forward(task)
    return [
        Contender("NumPy copy", lambda t: {"y": t["x"].copy()}, copies=True),
        Contender("NumPy", None if absent else compute, absent),
    ]


def _forward(task: Task) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    eps, with_mean = np.float32(task.problem.eps), has_mean(task.op)

    def compute(t: Mapping[str, Array]) -> dict[str, Array]:
        x = t["x"]
        if not with_mean:
            return {"y": x / np.sqrt(np.square(x).mean(axis=1, keepdims=True) + eps) * t["weight"]}
        centred = x - x.mean(axis=1, keepdims=True)
        return {"y": centred / np.sqrt(x.var(axis=1, keepdims=True) + eps) * t["weight"] + t["bias"]}

    return compute


def _backward(task: Task) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    with_mean = has_mean(task.op)

    def compute(t: Mapping[str, Array]) -> dict[str, Array]:
        x, dy, stats = t["x"], t["dy"], t["stats"]
        rstd = stats[:, -1:]
        xhat = (x - stats[:, :1]) * rstd if with_mean else x * rstd
        g = dy * t["weight"]
        dx = g - xhat * (g * xhat).mean(axis=1, keepdims=True)
        outputs = {"dweight": (dy * xhat).sum(axis=0)}
        if with_mean:
            dx -= g.mean(axis=1, keepdims=True)
            outputs["dbias"] = dy.sum(axis=0)
        return {"dx": dx * rstd, **outputs}

    return compute
