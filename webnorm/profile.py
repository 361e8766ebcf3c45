"""Where the time of a problem goes beside the kernel: what bringing arrays to the device and back takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from webnorm import timing
from webnorm.arrays import read
from webnorm.device import Device
from webnorm.errors import WebnormError
from webnorm.ops import OPS
from webnorm.plan import buffer_bytes, check_memory, write
from webnorm.problem import DTYPES, Problem
from webnorm.results import Result, best
from webnorm.stopwatch import WARM_UP_RUNS, Stopwatch
from webnorm.worker import Worker, WorkerDied


@dataclass(frozen=True)
class TransferJob:
    """An op and a problem whose inputs and outputs are brought over, and when to stop."""

    op: str
    problem: Problem
    rule: timing.Rule


@dataclass(frozen=True)
class Transfers:
    """Medians in nanoseconds, until the device is done, and bytes of all inputs and of all outputs."""

    upload_ns: float
    download_ns: float
    upload_bytes: int
    download_bytes: int


def time_transfers(device: Device, job: TransferJob) -> Iterator[timing.Round | Transfers]:
    """The worker's task: bring a problem's inputs up and its outputs down, as a call on NumPy arrays does."""
    op, problem = OPS[job.op], job.problem
    check_memory(problem, op, device)
    present, written = op.present(problem), op.outputs(problem)
    # Not zeros: the system gives one page of them for all, which the cache holds.
    arrays = [
        np.ones(tensor.shape(problem), DTYPES[tensor.dtype(problem)])
        for tensor in present
        if tensor not in written
    ]
    uploads = [(device.create_buffer(buffer_bytes(array.nbytes)), array) for array in arrays]
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

    def download() -> None:
        read(device, downloads)

    for _ in range(WARM_UP_RUNS):
        upload()
        download()
    up: list[float] = []
    down: list[float] = []
    began = timing.clock()
    while not timing.enough([up, down], job.rule, began):
        up.append(timing.elapsed(upload))
        down.append(timing.elapsed(download))
        yield timing.Round(len(up))
    yield Transfers(
        upload_ns=timing.statistics(up).median,
        download_ns=timing.statistics(down).median,
        upload_bytes=sum(array.nbytes for array in arrays),
        download_bytes=sum(tensor.data_bytes(problem) for tensor in written),
    )


def profiled(results: Sequence[Result], worker: Worker, rule: timing.Rule) -> list[Result]:
    """One problem's results; the fastest that is right has the times of the transfers, too.

    Raises WebnormError when the worker dies over them.
    """
    fastest = best([result for result in results if not result.roofline])
    if fastest is None:
        return list(results)
    job = TransferJob(fastest.op, fastest.problem, rule)
    try:
        *_, found = worker.stream(time_transfers, job)
    except WorkerDied as death:
        raise WebnormError(f"profiling {fastest.op} {fastest.problem} failed: {death}") from death
    return [replace(result, **vars(found)) if result is fastest else result for result in results]
