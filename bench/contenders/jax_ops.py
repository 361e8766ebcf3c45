"""JAX: the formulas as Flax has them, compiled by XLA.

XLA cannot be captured in another library's CUDA graph. So all sets of buffers are computed by one program,
again and again: a loop whose trips XLA knows, its body a command buffer, which is XLA's CUDA graph. What
keeps the repeats from being one computation are optimization barriers, which XLA takes out when everything is
fused and in order: the inputs of a trip seem to depend on the outputs of the trip before, and those of a set
on the outputs of the set before. Every set keeps outputs of its own, written over by the next trip.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

# JAX would take three quarters of the card's memory, which others use, too. It looks when it is imported.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from bench.contenders import Compute, Contender, Tensors
from webnorm.op.dtypes import DTYPES, Array
from webnorm.op.op import Task

# Each set's kernels are compiled anew: 256 sets take seconds. 128 rows of 768 float16 are 100 MB then.
MOST_SETS = 256
# What a program lasts at least: to begin one and to wait for it takes tens of microseconds, which vary.
_PROGRAM_NS = 5e6
# What no card does in less: a kernel, and a byte, at 4 TB/s.
_KERNEL_NS, _BYTE_NS = 1500.0, 1 / 4000
# One command after the other, as the calls of one caller: by default XLA may let what is independent overlap.
_OPTIONS = {"xla_gpu_command_buffer_scheduling_mode": "SERIALIZE"}


def contenders(task: Task, device: str) -> list[Contender]:
    """The op as a user of JAX writes it down; XLA chooses the kernels."""
    if task.problem.options.residual:
        return [Contender("JAX", absent="written down here without a residual")]
    return [Contender("JAX", _gradients if task.op.gradient else partial(_norm, task.problem.eps))]


def absent() -> str | None:
    """Why there is no JAX on a CUDA card, None where there is."""
    try:
        return None if jax.default_backend() == "gpu" else "JAX finds no CUDA card"
    except RuntimeError as error:
        return f"JAX finds no CUDA card: {str(error).partition(chr(10))[0]}"


def _norm(eps: float, t: Tensors) -> Tensors:
    """Flax's LayerNorm and RMSNorm, with `use_fast_variance=False`, and weight multiplied last.

    So XLA makes one kernel of rows that fit a workgroup. With Flax's defaults, E[x^2] - E[x]^2 and rstd times
    weight first, it makes three, and reads x twice.
    """
    y = t["x"].astype(jnp.float32)
    if "bias" in t:
        y = y - y.mean(axis=-1, keepdims=True)
    y = y * lax.rsqrt(lax.square(y).mean(axis=-1, keepdims=True) + eps) * t["weight"].astype(jnp.float32)
    if "bias" in t:
        y = y + t["bias"].astype(jnp.float32)
    return {"y": y.astype(t["x"].dtype)}


def _gradients(t: Tensors) -> Tensors:
    """What the chain rule makes of the norm, from the statistics of the forward pass.

    `jax.vjp` would take x's normalised rows along in float32, or make them anew: nobody else here does.
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
    """The arrays on the device, what belongs to rows again and again until there are so many; saved
    statistics as `mean` and `rstd`.
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
    """So many sets of these arrays, each with memory of its own."""
    first = arrays(given, rows)
    return [first, *({name: jnp.copy(one) for name, one in first.items()} for _ in range(count - 1))]


def to_numpy(outputs: Tensors, rows: slice) -> dict[str, Array]:
    """The outputs as float32 on the host, of what belongs to rows those."""
    few = {name: value[rows] if value.ndim > 1 else value for name, value in outputs.items()}
    return {name: np.asarray(value.astype(jnp.float32)) for name, value in few.items()}


# --- the program


def trips(sets: int, size: int) -> int:
    """How often a program goes over all sets of so many bytes, to last long enough for the clock."""
    return max(1, math.ceil(_PROGRAM_NS / (sets * max(_KERNEL_NS, size * _BYTE_NS))))


def program(compute: Compute, count: int) -> Any:
    """A compiled function of all sets of inputs and outputs, which computes each so many times and gives the
    outputs, in the memory of those that it was given.
    """

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
    """What `compute` gives for each set, as shapes and types."""
    return [jax.eval_shape(compute, one) for one in sets]


def rehearse(task: Task, contender: Contender, sets: int, size: int) -> None:
    """Compile the program for a task, for whoever finds it in JAX's cache on disk; nothing runs."""
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
