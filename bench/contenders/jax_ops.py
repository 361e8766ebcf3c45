"""JAX: Flax's formulas, compiled by XLA.

XLA's work cannot be captured in another library's CUDA graph. So one program computes all sets of buffers
repeatedly, in a loop with a trip count that XLA knows. The loop's body is a command buffer, which is XLA's
CUDA graph. Optimization barriers keep XLA from merging the repeats. They make the inputs of a trip depend on
the outputs of the previous trip, and a set's inputs on the previous set's outputs. XLA removes the barriers
after fusion and scheduling. Every set has its own outputs, which the next trip overwrites.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

# By default JAX reserves three quarters of the card's memory. It reads this variable at import.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from bench.contenders import Compute, Contender, Tensors
from webnorm.op.dtypes import DTYPES, Array
from webnorm.op.op import Task

# XLA compiles each set's kernels separately, so 256 sets take seconds. They are 100 MB of 128 x 768 float16.
MOST_SETS = 256
# The shortest duration of a program: starting and waiting adds tens of microseconds, which vary.
_PROGRAM_NS = 5e6
# Lower bounds for any card: the time of a kernel, and of a byte at 4 TB/s.
_KERNEL_NS, _BYTE_NS = 1500.0, 1 / 4000
# Commands run one after the other, as the calls of one caller. By default XLA may overlap independent ones.
_OPTIONS = {"xla_gpu_command_buffer_scheduling_mode": "SERIALIZE"}


def contenders(task: Task, device: str) -> list[Contender]:
    """Return the op as a user of JAX writes it; XLA chooses the kernels."""
    if task.problem.options.residual:
        return [Contender("JAX", absent="implemented here without a residual")]
    return [Contender("JAX", _gradients if task.op.gradient else partial(_norm, task.problem.eps))]


def absent() -> str | None:
    """Return the reason why JAX cannot use a CUDA card, or None."""
    try:
        return None if jax.default_backend() == "gpu" else "JAX finds no CUDA card"
    except RuntimeError as error:
        return f"JAX finds no CUDA card: {str(error).partition(chr(10))[0]}"


def _norm(eps: float, t: Tensors) -> Tensors:
    """Compute Flax's LayerNorm or RMSNorm with `use_fast_variance=False`, and multiply by weight last.

    XLA makes one kernel of this if a row fits a workgroup. With Flax's defaults (E[x^2] - E[x]^2, and rstd
    times weight first) it makes three kernels, and reads x twice.
    """
    y = t["x"].astype(jnp.float32)
    if "bias" in t:
        y = y - y.mean(axis=-1, keepdims=True)
    y = y * lax.rsqrt(lax.square(y).mean(axis=-1, keepdims=True) + eps) * t["weight"].astype(jnp.float32)
    if "bias" in t:
        y = y + t["bias"].astype(jnp.float32)
    return {"y": y.astype(t["x"].dtype)}


def _gradients(t: Tensors) -> Tensors:
    """Compute the norm's gradients by the chain rule, from the statistics of the forward pass.

    `jax.vjp` would save the normalized rows of x in float32 or recompute them. No other contender does that.
    """
    x, dy, weight = (t[name].astype(jnp.float32) for name in ("x", "dy", "weight"))
    has_mean = "mean" in t
    xhat = ((x - t["mean"]) if has_mean else x) * t["rstd"]
    g = dy * weight
    dx = g - xhat * (g * xhat).mean(axis=-1, keepdims=True)
    if has_mean:
        dx = dx - g.mean(axis=-1, keepdims=True)
    outputs = {"dx": (dx * t["rstd"]).astype(t["x"].dtype)}
    sums = {"dweight": dy * xhat, **({"dbias": dy} if has_mean else {})}
    return outputs | {name: terms.sum(axis=0).astype(t["weight"].dtype) for name, terms in sums.items()}


# --- buffers


def arrays(given: Mapping[str, Array], rows: int) -> dict[str, Any]:
    """Return the arrays on the device, with rows repeated up to `rows`.

    Saved statistics become `mean` and `rstd`.
    """
    there = {name: jnp.asarray(array) for name, array in given.items() if name != "stats"}
    if "stats" in given:
        stats = jnp.asarray(given["stats"])
        there["rstd"] = stats[:, -1:]
        if stats.shape[1] > 1:
            there["mean"] = stats[:, :1]
    return {
        name: jnp.resize(one, (rows, one.shape[1])) if one.ndim == 2 and len(one) != rows else one
        for name, one in there.items()
    }


def sets_of(given: Mapping[str, Array], rows: int, count: int) -> list[dict[str, Any]]:
    """Return `count` sets of these arrays, each with its own memory."""
    first = arrays(given, rows)
    return [first, *({name: jnp.copy(one) for name, one in first.items()} for _ in range(count - 1))]


def to_numpy(outputs: Tensors, rows: slice) -> dict[str, Array]:
    """Return the outputs as float32 on the host; of tensors with rows only `rows`."""
    few = {name: value[rows] if value.ndim > 1 else value for name, value in outputs.items()}
    return {name: np.asarray(value.astype(jnp.float32)) for name, value in few.items()}


# --- the program


def trips(sets: int, size: int) -> int:
    """Return the number of passes over all sets of `size` bytes that a program needs to be timed well."""
    return max(1, math.ceil(_PROGRAM_NS / (sets * max(_KERNEL_NS, size * _BYTE_NS))))


def program(compute: Compute, count: int) -> Any:
    """Return a compiled function that computes all sets `count` times, and reuses the outputs' memory."""

    def once(sets: Sequence[Tensors], outputs: Sequence[Tensors]) -> list[Tensors]:
        left, _ = lax.optimization_barrier((list(sets), list(outputs)))
        found: list[Tensors] = []
        for at, one in enumerate(left):
            computed = compute(one)
            if at + 1 < len(left):
                computed, left[at + 1] = lax.optimization_barrier((computed, left[at + 1]))
            found.append(computed)
        return found

    def all_sets(sets: Sequence[Tensors], outputs: Sequence[Tensors]) -> Any:
        return lax.fori_loop(0, count, lambda _, found: once(sets, found), outputs)

    options = _OPTIONS if jax.default_backend() == "gpu" else None
    return jax.jit(all_sets, donate_argnums=1, compiler_options=options)


def outputs_of(compute: Compute, sets: Sequence[Tensors]) -> list[Any]:
    """Return the shapes and types of each set's outputs."""
    return [jax.eval_shape(compute, one) for one in sets]


def rehearse(task: Task, contender: Contender, sets: int, size: int) -> None:
    """Compile the program for a task into JAX's disk cache; nothing runs."""
    assert contender.compute is not None
    op, problem = task.op, task.problem
    one: dict[str, Any] = {}
    for tensor in op.present(problem):
        if tensor.access == "read":
            shape = tensor.shape_in(problem)
            if tensor.name == "stats":
                names = ("mean", "rstd") if shape[1] > 1 else ("rstd",)
                one |= dict.fromkeys(names, jax.ShapeDtypeStruct((problem.rows, 1), np.float32))
            else:
                one[tensor.name] = jax.ShapeDtypeStruct(shape, DTYPES[tensor.dtype(problem)])
    inputs = [one] * min(sets, MOST_SETS)
    outputs = outputs_of(contender.compute, inputs)
    program(contender.compute, trips(len(inputs), size)).lower(inputs, outputs).compile()
