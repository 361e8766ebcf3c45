"""One call: bind the arrays of a problem to a compiled kernel, run it, and return its outputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from webnorm.calls import session
from webnorm.calls.arrays import DeviceBuffer, GpuArray
from webnorm.errors import WebnormError, one_line
from webnorm.gpu.buffers import write
from webnorm.gpu.device import Device
from webnorm.gpu.pool import read_buffers
from webnorm.gpu.schedule import Schedule
from webnorm.gpu.wgpu_private import run_pass
from webnorm.op.dtypes import DTYPES, Array
from webnorm.op.op import Task
from webnorm.op.problem import Problem

AnyArray = Array | GpuArray


def compute(
    task: Task,
    arrays: Mapping[str, AnyArray],
    *,
    device: Device | None,
    kernel: str | Path | None,
    keep: bool,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> dict[str, AnyArray]:
    """Compute every output of a task.

    Parameters
    ----------
    task
        The op and the problem.
    arrays
        The inputs by name, in any shape with the elements in order.
    device
        A device. Default: the device of the arrays, or the shared device.
    kernel
        Name or path of a kernel. Default: the recorded tuning, or else the choice of the rules.
    keep
        Leave the outputs on the device, as GpuArrays.
    shapes
        Shapes of the outputs by name, in place of the op's.

    Returns
    -------
    dict
        The outputs by name.

    Raises
    ------
    WebnormError
        Arrays are on different devices, or `CallSession.wanted` fails.
    """
    device, problem = _device_of(arrays, device), task.problem
    if problem.batch_size == 0:
        try:
            empty = _of_empty_batch(task, shapes)
        except (MemoryError, ValueError) as error:
            raise WebnormError(f"{problem}: {one_line(str(error))}") from error
        if not keep:
            return {**empty}
        return {name: GpuArray.from_numpy(array, device) for name, array in empty.items()}
    device = device or session.default_device()
    found = session.session_of(device)
    wanted = found.wanted(device, task, kernel)
    with device.gate:
        return _run(device, found, found.schedule(device, wanted), problem, arrays, keep, shapes)


def _run(
    device: Device,
    shared: session.CallSession,
    schedule: Schedule,
    problem: Problem,
    arrays: Mapping[str, AnyArray],
    keep: bool,
    shapes: Mapping[str, tuple[int, ...]] | None,
) -> dict[str, AnyArray]:
    """Run a schedule. It is a separate function, so that its wgpu objects are released inside the gate."""
    schedule.set_scalars(problem)
    pool = shared.pool
    taken: list[Any] = []
    try:
        buffers: dict[str, Any] = {}
        for name, array in arrays.items():
            if isinstance(array, GpuArray):
                buffers[name] = array.buffer
            else:
                taken.append(pool.take(device, array.nbytes))
                buffers[name] = taken[-1]
                write(device, taken[-1], array)
        outputs: dict[str, AnyArray] = {}
        for name, shape, dtype, nbytes in schedule.outputs:
            buffers[name] = buffer = pool.take(device, nbytes)
            storage = DeviceBuffer(pool, device, buffer)
            outputs[name] = GpuArray(device, shapes[name] if shapes else shape, dtype, storage)
        for name, nbytes in schedule.internal.items():
            taken.append(pool.take(device, nbytes))
            buffers[name] = taken[-1]
        groups = shared.groups(schedule, buffers)
        if keep and not schedule.packed:
            run_pass(device.handle, lambda compute: schedule.encode(compute, groups))
            return outputs
        encoder = device.handle.create_command_encoder()
        schedule.pack(encoder, buffers)
        compute_pass = encoder.begin_compute_pass()
        schedule.encode(compute_pass, groups)
        compute_pass.end()
        if keep:
            device.handle.queue.submit([encoder.finish()])
            return outputs
        sources = [(buffers[name], array.shape, array.dtype) for name, array in outputs.items()]
        return dict(zip(outputs, read_buffers(device, shared.staging, sources, encoder), strict=True))
    finally:
        for buffer in taken:
            pool.give_back(buffer)


def _device_of(arrays: Mapping[str, AnyArray], device: Device | None) -> Device | None:
    """Return the device of the arrays; raise WebnormError if there are several."""
    holder = "device="
    for name, array in arrays.items():
        if not isinstance(array, GpuArray):
            continue
        if device is not None and array.device is not device:
            raise WebnormError(
                f"{name} is on another device than {holder}: {array.device.adapter.name} is not "
                f"{device.adapter.name}, or was opened twice; expected one device for all arrays of a call"
            )
        if device is None:
            device, holder = array.device, name
    return device


def _of_empty_batch(task: Task, shapes: Mapping[str, tuple[int, ...]] | None) -> dict[str, Array]:
    """Return the outputs of a problem with an empty batch. The reference supplies the sums over it."""
    op, problem = task.op, task.problem
    arrays = {
        one.name: np.zeros(one.shape_in(problem), DTYPES[one.dtype(problem)]) for one in op.inputs(problem)
    }
    expected, empty = op.reference(arrays, problem), {}
    for tensor in op.outputs(problem):
        shape = shapes[tensor.name] if shapes else tensor.shape_in(problem)
        found = np.zeros(shape, DTYPES[tensor.dtype(problem)])
        if not tensor.batched:
            found[...] = expected[tensor.name].value.reshape(shape)
        empty[tensor.name] = found
    return empty
