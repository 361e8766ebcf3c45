"""What torch does for an op, sampled beside webnorm's kernels on the same card."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from webnorm import timing
from webnorm.ops import OPS, plain
from webnorm.presets import Task

Sampler = Callable[[], float]


def samplers(task: Task, sets: int) -> dict[str, tuple[Sampler, int]]:
    """By name, a sampler in nanoseconds per run and the bytes of one run; nothing where torch has no card.

    torch's copy, and its own function for the op: eager, and the one call that its autograd makes for a
    gradient.
    """
    try:
        import torch
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}
    problem = task.problem
    dtype = getattr(torch, problem.dtype)

    def normal() -> list[Any]:
        return [torch.randn(problem.rows, problem.cols, device="cuda", dtype=dtype) for _ in range(sets)]

    x, other = normal(), normal()
    shape = [problem.cols]
    weight, bias = (torch.rand(problem.cols, device="cuda", dtype=dtype) for _ in range(2))
    functional = torch.nn.functional
    runs: dict[str, tuple[Callable[[int], Any], int]] = {
        "torch copy": (lambda i: other[i].copy_(x[i]), OPS["copy"].minimum_bytes(plain(problem)))
    }
    own = task.op.minimum_bytes(problem)
    match task.op.name:
        case "layer_norm":
            runs["torch"] = (lambda i: functional.layer_norm(x[i], shape, weight, bias, problem.eps), own)
        case "rms_norm" if hasattr(functional, "rms_norm"):
            runs["torch"] = (lambda i: functional.rms_norm(x[i], shape, weight, problem.eps), own)
        case "layer_norm_backward":
            saved = [torch.ops.aten.native_layer_norm(one, shape, weight, bias, problem.eps) for one in x]
            backward = torch.ops.aten.native_layer_norm_backward
            runs["torch"] = (
                lambda i: backward(
                    other[i], x[i], shape, saved[i][1], saved[i][2], weight, bias, [True, True, True]
                ),
                own,
            )
    dispatches = max(sets, 8)

    def sampler(run: Callable[[int], Any]) -> Sampler:
        def sample() -> float:
            event: Any = torch.cuda.Event
            begin, end = event(enable_timing=True), event(enable_timing=True)
            begin.record()
            for index in range(dispatches):
                run(index % sets)
            end.record()
            torch.cuda.synchronize()
            return float(begin.elapsed_time(end)) * 1e6 / dispatches

        for _ in range(timing.WARM_UP_RUNS):
            sample()
        return sample

    return {name: (sampler(run), size) for name, (run, size) in runs.items()}
