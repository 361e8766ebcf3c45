"""Find the installed contenders for a task, make their buffers, and compile them ahead of time."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bench.contenders import Contender, Tensors, said
from bench.contenders.samplers import CudaGraph, JaxProgram, Sampler, WallClock
from webnorm.op.dtypes import Array
from webnorm.op.op import Task

# Modules of this package, and the contenders that each provides if its package is installed.
_Modules = Mapping[str, Sequence[str]]
_ON_CUDA: _Modules = {
    "torch_ops": ("torch eager", "torch.compile", "torch.compile max-autotune"),
    "triton_ops": ("Triton",),
    "liger_ops": ("Liger",),
    "quack_ops": ("QuACK",),
}
_IN_JAX: _Modules = {"jax_ops": ("JAX",)}
_TORCH_ON_CPU: _Modules = {"torch_ops": ("torch eager",)}
_ON_ARRAYS: _Modules = {"numpy_ops": ("NumPy",), "onnx_ops": ("ONNX Runtime",)}
# Contenders that compile at their first call, the slowest compilers first.
COMPILING = ("torch.compile max-autotune", "torch.compile", "JAX", "QuACK", "Triton", "Liger")


@dataclass(frozen=True)
class ContenderLibrary:
    """Contenders that share their inputs, sampler and conversion of outputs to NumPy.

    `inputs` has one mapping per buffer set. `to_numpy` reads some rows of the outputs.
    """

    contenders: Sequence[Contender]
    inputs: Sequence[Tensors]
    sampler: Callable[..., Sampler]
    to_numpy: Callable[[Tensors, slice], Mapping[str, Array]]


def libraries(
    task: Task, arrays: Mapping[str, Array], sets: int, software: bool
) -> Iterator[ContenderLibrary]:
    """Yield the contenders: on the CPU for a software adapter, otherwise on a CUDA card.

    Tensors with rows repeat the arrays' rows up to the task's number. A contender that is not installed, or
    that finds no card, is absent, with the reason.
    """
    if task.op.source is not None:
        yield _of_family(task, arrays, sets, software)
    elif software:
        yield _on_tensors(_TORCH_ON_CPU, task, arrays, sets, "cpu")
        whole = {
            name: np.resize(one, (task.problem.rows, one.shape[1])) if one.ndim == 2 else one
            for name, one in arrays.items()
        }
        yield ContenderLibrary(_contenders(_ON_ARRAYS, task, "cpu"), [whole] * sets, WallClock, _some_rows)
    else:
        yield _on_tensors(_ON_CUDA, task, arrays, sets, "cuda")
        yield _in_jax(task, arrays, sets)


def _some_rows(outputs: Mapping[str, Array], rows: slice) -> Mapping[str, Array]:
    return {name: value[rows] if value.ndim > 1 else value for name, value in outputs.items()}


def _on_tensors(
    modules: _Modules, task: Task, arrays: Mapping[str, Array], sets: int, device: str
) -> ContenderLibrary:
    """Return the contenders that take torch tensors."""
    sampler = CudaGraph if device == "cuda" else WallClock
    reason = _without_torch(device)
    if reason is not None:
        return ContenderLibrary(_absent(modules, reason), (), sampler, _some_rows)
    from bench.contenders import torch_ops

    first = torch_ops.tensors(arrays, device, task.problem.rows)
    inputs = [{name: one.clone() for name, one in first.items()} for _ in range(sets)]
    return ContenderLibrary(_contenders(modules, task, device), inputs, sampler, torch_ops.to_numpy)


def _of_family(task: Task, arrays: Mapping[str, Array], sets: int, software: bool) -> ContenderLibrary:
    """Return torch's functions for an op of the norm family, on a CUDA card only."""
    reason = "measured on a CUDA card only" if software else _without_torch("cuda")
    if reason is not None:
        names = {"family_ops": ("torch eager", "torch.compile")}
        return ContenderLibrary(_absent(names, reason), (), CudaGraph, _some_rows)
    from bench.contenders import family_ops, torch_ops

    first = family_ops.tensors(arrays, task, "cuda")
    inputs = [{name: one.clone() for name, one in first.items()} for _ in range(sets)]
    return ContenderLibrary([*family_ops.contenders(task)], inputs, CudaGraph, torch_ops.to_numpy)


def _without_torch(device: str) -> str | None:
    """Return the reason why torch cannot use a device, or None."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return "torch is not installed"
    return None if device == "cpu" or torch.cuda.is_available() else "torch finds no CUDA card"


def _in_jax(task: Task, arrays: Mapping[str, Array], sets: int) -> ContenderLibrary:
    """Return the contenders that take JAX arrays."""
    sampler = partial(JaxProgram, size=task.op.minimum_bytes(task.problem))
    reason = _without_jax()
    if reason is not None:
        return ContenderLibrary(_absent(_IN_JAX, reason), (), sampler, _some_rows)
    from bench.contenders import jax_ops

    inputs = jax_ops.sets_of(arrays, task.problem.rows, min(sets, jax_ops.MOST_SETS))
    return ContenderLibrary(jax_ops.contenders(task, "cuda"), inputs, sampler, jax_ops.to_numpy)


def _without_jax() -> str | None:
    """Return the reason why JAX cannot use a CUDA card, or None."""
    try:
        jax_ops = importlib.import_module("bench.contenders.jax_ops")
    except Exception as error:
        return _why_absent(error)
    reason: str | None = jax_ops.absent()
    return reason


def _contenders(modules: _Modules, task: Task, device: str) -> list[Contender]:
    found: list[Contender] = []
    for module, names in modules.items():
        try:
            found += importlib.import_module(f"bench.contenders.{module}").contenders(task, device)
        except Exception as error:
            found += _absent({module: names}, _why_absent(error))
    return found


def _why_absent(error: Exception) -> str:
    """Return the reason why a package could not be imported; its own dependency may be missing."""
    return f"{error.name} is not installed" if isinstance(error, ModuleNotFoundError) else said(error)


def _absent(modules: _Modules, reason: str) -> list[Contender]:
    return [Contender(name, absent=reason) for names in modules.values() for name in names]


def release() -> None:
    """Free the card's memory that torch caches, because the next problem has other arrays."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


# --- ahead of time


def start() -> None:
    """Import the contenders' libraries and open the CUDA card, which takes seconds once."""
    if _without_torch("cuda") is None:
        for module in (*(f"bench.contenders.{name}" for name in _ON_CUDA), "torch._inductor.compile_fx"):
            with suppress(Exception):
                importlib.import_module(module)
        importlib.import_module("torch").cuda.init()
    _without_jax()


def rehearse(name: str, task: Task, sets: int) -> None:
    """Call a contender once on a CUDA card, so that its compiled code is in the compilers' disk caches.

    Does nothing if the contender is absent. Errors of the library are raised.
    """
    modules = {name: module for module, names in {**_ON_CUDA, **_IN_JAX}.items() for name in names}
    module = modules[name]
    if (_without_jax() if module in _IN_JAX else _without_torch("cuda")) is not None:
        return
    found = (one for one in _contenders({module: [name]}, task, "cuda") if one.name == name)
    contender = next(found, None)
    if contender is None or contender.compute is None:
        return
    if module in _IN_JAX:
        from bench.contenders import jax_ops

        jax_ops.rehearse(task, contender, sets, task.op.minimum_bytes(task.problem))
        return
    from bench.contenders import torch_ops

    inputs = torch_ops.blank(task, "cuda")
    contender.compute(contender.adapt(inputs) if contender.adapt else inputs)
    importlib.import_module("torch").cuda.synchronize()


def broken(name: str) -> bool:
    """Return True if a contender broke this process's access to the card."""
    if name in _IN_JAX["jax_ops"]:
        return False
    torch: Any = importlib.import_module("torch")
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False
