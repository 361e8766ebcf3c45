"""One call: bind the arrays of a problem to a compiled kernel, run it, and give back what it wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from webnorm import session
from webnorm.arrays import GpuArray, read
from webnorm.device import Device
from webnorm.errors import WebnormError
from webnorm.ops import Op, Tensor
from webnorm.plan import write
from webnorm.problem import DTYPES, Array, Problem

AnyArray = Array | GpuArray


def compute(
    op: Op,
    problem: Problem,
    arrays: Mapping[str, AnyArray],
    *,
    device: Device | None,
    kernel: str | Path | None,
    keep: bool,
) -> dict[str, AnyArray]:
    """Every output of an op by name, in the shape that the op gives it.

    `arrays` are the inputs by name, in any shape with the elements in order. `keep` leaves the outputs on
    the device. Raises WebnormError for arrays on different devices, and as `Session.schedule` does.
    """
    device = _device_of(arrays, device)
    if problem.rows == 0:
        empty = {tensor.name: _without_rows(tensor, problem) for tensor in op.outputs(problem)}
        if not keep:
            return {**empty}
        return {name: GpuArray.from_numpy(array, device) for name, array in empty.items()}
    device = device or session.default_device()
    with session.lock:
        found = session.session_of(device)
        schedule = found.schedule(device, op, kernel, problem)
        schedule.set_scalars(problem)
        with _borrowed(found.pool, device) as take:
            buffers = {name: _bound(array, device, take) for name, array in arrays.items()}
            outputs = schedule.outputs
            kept = {o.name: GpuArray.empty(o.shape, o.dtype, device) for o in outputs} if keep else {}
            for output in outputs:
                buffers[output.name] = kept[output.name].buffer if keep else take(output.nbytes)
            for name, size in (*schedule.scratch.items(), *schedule.packed.items()):
                buffers[name] = take(size)
            encoder = device.handle.create_command_encoder()
            schedule.pack(encoder, buffers)
            compute_pass = encoder.begin_compute_pass()
            schedule.encode(compute_pass, found.groups(schedule, buffers))
            compute_pass.end()
            if keep:
                device.handle.queue.submit([encoder.finish()])
                return {**kept}
            arrays_back = read(device, [(buffers[o.name], o.shape, o.dtype) for o in outputs], encoder)
            return dict(zip((o.name for o in outputs), arrays_back, strict=True))


def _device_of(arrays: Mapping[str, AnyArray], device: Device | None) -> Device | None:
    """The device that arrays lie on; raises WebnormError when that is more than one."""
    holder = "device="
    for name, array in arrays.items():
        if not isinstance(array, GpuArray):
            continue
        if device is not None and array.device is not device:
            raise WebnormError(
                f"{name} lies on another device than {holder}: {array.device.adapter.name} is not "
                f"{device.adapter.name}, or was opened twice; expected one device for all arrays of a call"
            )
        if device is None:
            device, holder = array.device, name
    return device


@contextmanager
def _borrowed(pool: session.BufferPool, device: Device) -> Iterator[Any]:
    """A function that takes buffers, which go back to the pool in the end."""
    taken = []

    def take(data_bytes: int) -> Any:
        taken.append(pool.take(device, data_bytes))
        return taken[-1]

    try:
        yield take
    finally:
        for buffer in taken:
            pool.give_back(buffer)


def _bound(array: AnyArray, device: Device, take: Any) -> Any:
    if isinstance(array, GpuArray):
        return array.buffer
    buffer = take(array.nbytes)
    write(device, buffer, array)
    return buffer


def _without_rows(tensor: Tensor, problem: Problem) -> Array:
    """An output of a problem that has no rows: what is summed over rows is 0."""
    if tensor.name == "amax":
        return np.array([0.0, 1.0 / problem.scale], np.float32)
    return np.zeros(tensor.shape(problem), DTYPES[tensor.dtype(problem)])
