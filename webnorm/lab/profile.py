"""Where the time of the fastest kernel's problem goes beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from webnorm.errors import WebnormError
from webnorm.kernels.library import discover
from webnorm.lab.ranking import best
from webnorm.lab.results import Result
from webnorm.lab.worker import TaskFailed, WorkerDied
from webnorm.norms.ops import OPS, Task

# Given a task and the kernel that calls take, None where they take none: has a worker measure, and
# gives what that yields. Its last has fields of a Result.
Measure = Callable[[Task, str | None], Iterator[Any]]


def profiled(results: Sequence[Result], measure: Measure) -> list[Result]:
    """One problem's results; the fastest that is right has the times of the transfers, too.

    Raises WebnormError when the worker dies over them.
    """
    fastest = best([result for result in results if not result.roofline])
    if fastest is None:
        return list(results)
    callable_kernels = {kernel.name for kernel in discover() if kernel.op.name == fastest.op}
    kernel = fastest.kernel if fastest.kernel in callable_kernels else None
    try:
        *_, found = measure(Task(OPS[fastest.op], fastest.problem), kernel)
    except (WorkerDied, TaskFailed) as failure:
        raise WebnormError(f"profiling {fastest.op} {fastest.problem} failed: {failure}") from failure
    return [replace(result, **vars(found)) if result is fastest else result for result in results]
