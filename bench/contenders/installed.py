"""Which contenders a machine has for a task, and their buffers."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.contenders import Contender
from bench.contenders.samplers import CudaGraph, Sampler, WallClock
from webnorm.norms.ops import Task
from webnorm.norms.problem import Array

# Modules of this package, and the contenders that are absent where the package they need is.
_Modules = Mapping[str, Sequence[str]]
_ON_CUDA: _Modules = {
    "torch_ops": ("torch eager", "torch.compile"),
    "triton_ops": ("Triton",),
    "liger_ops": ("Liger",),
}
_TORCH_ON_CPU: _Modules = {"torch_ops": ("torch eager",)}
_ON_ARRAYS: _Modules = {"numpy_ops": ("NumPy",), "onnx_ops": ("ONNX Runtime",)}


@dataclass(frozen=True)
class Library:
    """Contenders that share their buffers: sets of inputs, how they are timed, how outputs are read."""

    contenders: Sequence[Contender]
    inputs: Sequence[Mapping[str, Any]]
    sampler: Callable[..., Sampler]
    to_numpy: Callable[[Mapping[str, Any]], Mapping[str, Array]]


def libraries(task: Task, arrays: Mapping[str, Array], sets: int, software: bool) -> Iterator[Library]:
    """What is measured beside webnorm: on the CPU for a software adapter, else on a CUDA card.

    What is not installed, or has no card, is a contender that is absent, with the reason.
    """
    if software:
        yield _on_tensors(_TORCH_ON_CPU, task, arrays, sets, "cpu")
        yield Library(_contenders(_ON_ARRAYS, task, "cpu"), [arrays] * sets, WallClock, dict)
    else:
        yield _on_tensors(_ON_CUDA, task, arrays, sets, "cuda")


def _on_tensors(
    modules: _Modules, task: Task, arrays: Mapping[str, Array], sets: int, device: str
) -> Library:
    """Those that take torch's tensors."""
    sampler = CudaGraph if device == "cuda" else WallClock
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return Library(_absent(modules, "torch is not installed"), (), sampler, dict)
    if device == "cuda" and not torch.cuda.is_available():
        return Library(_absent(modules, "torch finds no CUDA card"), (), sampler, dict)
    from bench.contenders import torch_ops

    first = torch_ops.tensors(arrays, device)
    inputs = [{name: one.clone() for name, one in first.items()} for _ in range(sets)]
    return Library(_contenders(modules, task, device), inputs, sampler, torch_ops.to_numpy)


def _contenders(modules: _Modules, task: Task, device: str) -> list[Contender]:
    found: list[Contender] = []
    for module, names in modules.items():
        try:
            found += importlib.import_module(f"bench.contenders.{module}").contenders(task, device)
        except ImportError as error:
            found += _absent({module: names}, f"{error.name} is not installed")
    return found


def _absent(modules: _Modules, reason: str) -> list[Contender]:
    return [Contender(name, absent=reason) for names in modules.values() for name in names]
