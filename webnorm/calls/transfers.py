"""Times of a problem outside its kernel: moving its arrays, and a whole call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from webnorm.calls.arrays import GpuArray
from webnorm.calls.call import compute
from webnorm.calls.session import session_of
from webnorm.gpu import timing
from webnorm.gpu.buffers import buffer_bytes, check_memory, write
from webnorm.gpu.device import Device
from webnorm.gpu.pool import read_buffers
from webnorm.gpu.stopwatch import WARM_UP_RUNS, Stopwatch
from webnorm.op.dtypes import DTYPES, Array
from webnorm.op.op import Task


@dataclass(frozen=True)
class TransferJob:
    """A task whose inputs and outputs are moved, and the rule when to stop.

    `kernel` is the kernel of the calls to time; None times no calls.
    """

    task: Task
    kernel: str | None
    rule: timing.StoppingRule


@dataclass(frozen=True)
class TransferTimes:
    """Median times in nanoseconds, until the device is done, and the bytes of all inputs and of all outputs.

    `call_ns` is a call on NumPy arrays, `resident_call_ns` a call on GpuArrays.
    """

    upload_ns: float
    download_ns: float
    upload_bytes: int
    download_bytes: int
    call_ns: float | None = None
    resident_call_ns: float | None = None


def time_transfers(device: Device, job: TransferJob) -> Iterator[timing.RoundDone | TransferTimes]:
    """Time the upload of a problem's inputs and the download of its outputs. It is a worker's task.

    Raises
    ------
    WebnormError
        The device cannot allocate the buffers.
    """
    op, problem = job.task.op, job.task.problem
    check_memory(job.task, device)
    written = op.outputs(problem)
    # Zeros would share one page of memory, which stays in the cache.
    arrays = {
        tensor.name: np.ones(tensor.shape_in(problem), DTYPES[tensor.dtype(problem)])
        for tensor in op.present(problem)
        if tensor not in written
    }
    works = _works(device, job, arrays)
    for _ in range(WARM_UP_RUNS):
        for work in works.values():
            work()
    samples: dict[str, list[float]] = {what: [] for what in works}
    began = timing.clock()
    while not timing.enough([*samples.values()], job.rule, began):
        for what, work in works.items():
            samples[what].append(timing.elapsed(work))
        yield timing.RoundDone(len(samples["upload_ns"]))
    yield TransferTimes(
        upload_bytes=sum(array.nbytes for array in arrays.values()),
        download_bytes=sum(tensor.data_bytes(problem) for tensor in written),
        **{what: timing.statistics(own).median for what, own in samples.items()},
    )


def _works(device: Device, job: TransferJob, arrays: Mapping[str, Array]) -> dict[str, Callable[[], object]]:
    """Return the functions to time, by field of TransferTimes. Each returns when the device is done."""
    op, problem = job.task.op, job.task.problem
    uploads = [(device.create_buffer(buffer_bytes(array.nbytes)), array) for array in arrays.values()]
    downloads = [
        (
            device.create_buffer(buffer_bytes(tensor.data_bytes(problem))),
            tensor.shape_in(problem),
            DTYPES[tensor.dtype(problem)],
        )
        for tensor in op.outputs(problem)
    ]
    staging, wait = session_of(device).staging, Stopwatch(device).wait

    def upload() -> None:
        for buffer, array in uploads:
            write(device, buffer, array)
        wait()

    works: dict[str, Callable[[], object]] = {
        "upload_ns": upload,
        "download_ns": lambda: read_buffers(device, staging, downloads),
    }
    if job.kernel is None:
        return works
    call = partial(compute, job.task, device=device, kernel=job.kernel)
    resident = {name: GpuArray.from_numpy(array, device) for name, array in arrays.items()}

    def resident_call() -> None:
        call(resident, keep=True)
        wait()

    return {**works, "resident_call_ns": resident_call, "call_ns": lambda: call(arrays, keep=False)}
