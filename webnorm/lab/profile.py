"""Where the time of a problem goes beside its kernel: in moving arrays, and in a call as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from webnorm.calls.arrays import GpuArray
from webnorm.calls.call import compute
from webnorm.calls.session import session_of
from webnorm.errors import WebnormError
from webnorm.gpu import timing
from webnorm.gpu.buffers import buffer_bytes, check_memory, write
from webnorm.gpu.device import Device
from webnorm.gpu.readback import read
from webnorm.gpu.stopwatch import WARM_UP_RUNS, Stopwatch
from webnorm.kernels.library import discover
from webnorm.lab.ranking import best
from webnorm.lab.results import Result
from webnorm.lab.worker import TaskFailed, Worker, WorkerDied
from webnorm.norms.ops import OPS
from webnorm.norms.problem import DTYPES, Problem


@dataclass(frozen=True)
class TransferJob:
    """An op and a problem whose inputs and outputs are brought over, and when to stop. `kernel` is what the
    Python interface is called with; None to leave that out.
    """

    op: str
    problem: Problem
    rule: timing.Rule
    kernel: str | None = None


@dataclass(frozen=True)
class Transfers:
    """Medians in nanoseconds, until the device is done, and bytes of all inputs and of all outputs. A call is
    on NumPy arrays, a resident one on GpuArrays.
    """

    upload_ns: float
    download_ns: float
    upload_bytes: int
    download_bytes: int
    call_ns: float | None = None
    resident_call_ns: float | None = None


def time_transfers(device: Device, job: TransferJob) -> Iterator[timing.Round | Transfers]:
    """The worker's task: bring a problem's inputs up and its outputs down, as a call on NumPy arrays does."""
    op, problem = OPS[job.op], job.problem
    check_memory(problem, op, device)
    present, written = op.present(problem), op.outputs(problem)
    # Not zeros: the system gives one page of them for all, which the cache holds.
    arrays = {
        tensor.name: np.ones(tensor.shape(problem), DTYPES[tensor.dtype(problem)])
        for tensor in present
        if tensor not in written
    }
    uploads = [(device.create_buffer(buffer_bytes(array.nbytes)), array) for array in arrays.values()]
    downloads = [
        (
            device.create_buffer(buffer_bytes(tensor.data_bytes(problem))),
            tensor.shape(problem),
            DTYPES[tensor.dtype(problem)],
        )
        for tensor in written
    ]
    stopwatch = Stopwatch(device)

    def upload() -> None:
        for buffer, array in uploads:
            write(device, buffer, array)
        stopwatch.wait()

    works: dict[str, Callable[[], Any]] = {
        "upload_ns": upload,
        "download_ns": lambda: read(device, session_of(device).staging, downloads),
    }
    if job.kernel is not None:
        call = partial(compute, op, problem, device=device, kernel=job.kernel)
        resident = {name: GpuArray.from_numpy(array, device) for name, array in arrays.items()}

        def resident_call() -> None:
            call(resident, keep=True)
            stopwatch.wait()

        works["resident_call_ns"] = resident_call
        works["call_ns"] = lambda: call(arrays, keep=False)
    for _ in range(WARM_UP_RUNS):
        for work in works.values():
            work()
    samples: dict[str, list[float]] = {what: [] for what in works}
    began = timing.clock()
    while not timing.enough([*samples.values()], job.rule, began):
        for what, work in works.items():
            samples[what].append(timing.elapsed(work))
        yield timing.Round(len(samples["upload_ns"]))
    yield Transfers(
        upload_bytes=sum(array.nbytes for array in arrays.values()),
        download_bytes=sum(tensor.data_bytes(problem) for tensor in written),
        **{what: timing.statistics(own).median for what, own in samples.items()},
    )


def profiled(results: Sequence[Result], worker: Worker, rule: timing.Rule) -> list[Result]:
    """One problem's results; the fastest that is right has the times of the transfers, too.

    Raises WebnormError when the worker dies over them.
    """
    fastest = best([result for result in results if not result.roofline])
    if fastest is None:
        return list(results)
    callable_kernels = {kernel.name for kernel in discover() if kernel.op.name == fastest.op}
    kernel = fastest.kernel if fastest.kernel in callable_kernels else None
    job = TransferJob(fastest.op, fastest.problem, rule, kernel)
    try:
        *_, found = worker.stream(time_transfers, job)
    except (WorkerDied, TaskFailed) as failure:
        raise WebnormError(f"profiling {fastest.op} {fastest.problem} failed: {failure}") from failure
    return [replace(result, **vars(found)) if result is fastest else result for result in results]
