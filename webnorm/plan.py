"""Plans: the buffers, bindings and dispatches that compute one problem with one shader on one device."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import wgpu

from webnorm.device import Device
from webnorm.errors import WebnormError
from webnorm.ops import Op
from webnorm.problem import DTYPES, Array, Problem
from webnorm.render import Shader, Step

# Words inside the bound range behind every tensor. A write past the end lands there and is seen; a read
# past the end of an input meets NaN. 64 words are four runs of a vec4 by the smallest subgroup.
GUARD_WORDS = 64
GUARD_BYTES = 4 * GUARD_WORDS
# Quiet NaNs with a payload: outputs and their guards hold POISON before a run. The guards of inputs hold
# other bits, since arithmetic hands a NaN's bits on: a kernel that ran past the ends of both would write
# POISON over POISON.
POISON = np.uint32(0x7FC0BEEF)
INPUT_GUARD = np.uint32(0x7FC0F00D)
_PARAMS_BYTES = 16
_CHUNK_BYTES = 1 << 24


@dataclass(frozen=True)
class Slice:
    """Rows that fit one binding and one dispatch.

    `offset` and `size` are the bytes bound of every per-row tensor, `start` the elements from there to
    the slice's first row, and `grid` the workgroup counts in x and y.
    """

    first_row: int
    rows: int
    offset: int
    size: int
    start: int
    grid: tuple[int, int]


def grid(count: int, limit: int) -> tuple[int, int]:
    """`count` workgroups as x and y counts of at most `limit` each; raises ValueError past limit squared."""
    if count > limit * limit:
        raise ValueError(count)
    y = math.ceil(count / limit)
    return math.ceil(count / y), y


def slices(shader: Shader, step: Step, problem: Problem, limits: Mapping[str, int]) -> list[Slice]:
    """Cut the rows of a problem into slices of about equal size that the limits admit.

    Raises WebnormError when a single row is over the binding limit.
    """
    if problem.rows == 0:
        return []
    row_bytes = problem.cols * problem.itemsize
    binding = limits["max-storage-buffer-binding-size"]
    alignment = max(limits["min-storage-buffer-offset-alignment"], 16)
    dimension = limits["max-compute-workgroups-per-dimension"]
    # A slice starts up to alignment - 4 bytes into its binding, and the last one ends with the guard.
    whole = _buffer_bytes(problem.rows * row_bytes)
    most = problem.rows if whole <= binding else (binding - GUARD_BYTES - alignment) // row_bytes
    if most < 1:
        raise WebnormError(
            f"a row of {problem.cols} {problem.dtype} takes {row_bytes} bytes; with its guard it has to fit "
            f"one storage binding, which this device limits to {binding} bytes"
        )
    while (workgroups := shader.workgroup_count(step, most)) > dimension * dimension:
        if most == 1:
            raise WebnormError(
                f"{shader.variant} takes {workgroups} workgroups for a row of {problem.cols}; "
                f"a dispatch of this device has at most {dimension * dimension}"
            )
        most //= 2
    count = math.ceil(problem.rows / most)
    edges = [problem.rows * index // count for index in range(count + 1)]
    found = []
    for first, after in itertools.pairwise(edges):
        begin = first * row_bytes
        offset = begin - begin % alignment
        found.append(
            Slice(
                first_row=first,
                rows=after - first,
                offset=offset,
                size=(whole if after == problem.rows else after * row_bytes) - offset,
                start=(begin - offset) // problem.itemsize,
                grid=grid(shader.workgroup_count(step, after - first), dimension),
            )
        )
    return found


def tensor_bytes(problem: Problem, per_row: bool) -> int:
    """Bytes of a tensor's data, without guard."""
    return (problem.rows if per_row else 1) * problem.cols * problem.itemsize


def _buffer_bytes(data_bytes: int) -> int:
    """Bytes of a tensor's buffer: guard behind, and a whole number of vec4."""
    return math.ceil((data_bytes + GUARD_BYTES) / 16) * 16


def check_memory(problem: Problem, op: Op, device: Device, sets: int = 1) -> None:
    """Raise WebnormError, before anything is allocated, for buffers that the device cannot hold."""
    limit = device.limits["max-buffer-size"]
    total = 0
    for tensor in op.present(problem.options):
        size = _buffer_bytes(tensor_bytes(problem, tensor.per_row))
        total += size * sets
        if size > limit:
            raise WebnormError(
                f"{problem}: {tensor.name} takes {size} bytes; this device's largest buffer is {limit} bytes"
            )
    memory = device.memory
    if memory is not None and total > memory:
        raise WebnormError(
            f"{problem}: the buffers take {total} bytes; this machine has {memory} bytes of memory"
        )


def compile_shader(device: Device, shader: Shader, extra_bindings: int = 0) -> list[Any]:
    """Compile and create one compute pipeline per pass, with explicit layouts.

    Raises WebnormError with the template's file and line for text that the compiler refuses, and for
    more workgroup memory than the device has (which wgpu itself lets pass).
    """
    if shader.workgroup_bytes > device.traits.workgroup_storage:
        raise WebnormError(
            f"{shader.variant} uses {shader.workgroup_bytes} bytes of workgroup memory; "
            f"the limit is {device.traits.workgroup_storage}"
        )
    handle = device.handle
    try:
        module = handle.create_shader_module(code=shader.text)
        layout = handle.create_pipeline_layout(
            bind_group_layouts=[_bind_group_layout(device, shader, extra_bindings)]
        )
        return [
            handle.create_compute_pipeline(
                layout=layout, compute={"module": module, "entry_point": step.entry_point}
            )
            for step in shader.steps
        ]
    except wgpu.GPUError as error:
        raise WebnormError(shader.located(str(error))) from error


def _bind_group_layout(device: Device, shader: Shader, extra_bindings: int) -> Any:
    entries = [{"binding": 0, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": "uniform"}}]
    kinds = {"read": "read-only-storage", "read_write": "storage"}
    entries += [
        {
            "binding": binding.index,
            "visibility": wgpu.ShaderStage.COMPUTE,
            "buffer": {"type": kinds[binding.access]},
        }
        for binding in shader.bindings
    ]
    entries += [
        {
            "binding": len(entries) + extra,
            "visibility": wgpu.ShaderStage.COMPUTE,
            "buffer": {"type": "storage"},
        }
        for extra in range(extra_bindings)
    ]
    return device.handle.create_bind_group_layout(entries=entries)


class Inputs:
    """A problem's input arrays on the device, in one or more sets of buffers with the same content.

    Several sets that are used in turn keep a GPU's cache from answering for its memory.
    """

    def __init__(self, device: Device, problem: Problem, arrays: Mapping[str, Array], sets: int = 1) -> None:
        self.device, self.problem, self.sets = device, problem, sets
        self.buffers: dict[str, list[Any]] = {}
        for name, array in arrays.items():
            first = device.create_buffer(_buffer_bytes(array.nbytes))
            _write(device, first, np.ascontiguousarray(array))
            _fill(device, first, array.nbytes, INPUT_GUARD)
            self.buffers[name] = [first] + [self._copy_of(first) for _ in range(sets - 1)]

    def _copy_of(self, buffer: Any) -> Any:
        copy = self.device.create_buffer(buffer.size)
        encoder = self.device.handle.create_command_encoder()
        encoder.copy_buffer_to_buffer(buffer, 0, copy, 0, buffer.size)
        self.device.handle.queue.submit([encoder.finish()])
        return copy


class Outputs:
    """Buffers that passes write, one per input set, shared by all plans of a problem."""

    def __init__(self, device: Device, problem: Problem, names: Sequence[str], sets: int = 1) -> None:
        self.device, self.problem, self.sets = device, problem, sets
        size = tensor_bytes(problem, per_row=True)
        self.buffers = {
            name: [device.create_buffer(_buffer_bytes(size)) for _ in range(sets)] for name in names
        }
        self._pattern = device.create_buffer(min(_buffer_bytes(size), _CHUNK_BYTES))
        _fill(device, self._pattern, 0, POISON)
        self.poison()

    def poison(self) -> None:
        """Fill every output, guard included, so that an element that is not written is seen."""
        encoder = self.device.handle.create_command_encoder()
        for buffers in self.buffers.values():
            for buffer in buffers:
                for at in range(0, buffer.size, self._pattern.size):
                    size = min(self._pattern.size, buffer.size - at)
                    encoder.copy_buffer_to_buffer(self._pattern, 0, buffer, at, size)
        self.device.handle.queue.submit([encoder.finish()])

    def read(self, name: str, index: int = 0) -> tuple[Array, bool]:
        """The output (rows, cols) of a set, and whether its guard words are untouched."""
        size = tensor_bytes(self.problem, per_row=True)
        raw = np.frombuffer(self.device.handle.queue.read_buffer(self.buffers[name][index]), np.uint8)
        dtype = DTYPES[self.problem.dtype]
        data = raw[:size].view(dtype).reshape(self.problem.rows, self.problem.cols)
        return data, bool(np.all(raw[size:].view(np.uint32) == POISON))


class Plan:
    """One shader's passes over one problem's buffers, ready to encode.

    `inputs` and `outputs` may be shared with other plans of the same problem. `extra` are buffers bound
    whole behind the op's tensors.
    """

    def __init__(
        self,
        device: Device,
        shader: Shader,
        inputs: Inputs,
        outputs: Outputs,
        pipelines: list[Any],
        extra: Sequence[Any] = (),
    ) -> None:
        self.device, self.shader, self.inputs, self.outputs = device, shader, inputs, outputs
        self._extra = extra
        self._dispatches = [list(self._encode_set(index, pipelines)) for index in range(inputs.sets)]

    def _encode_set(self, index: int, pipelines: list[Any]) -> Iterator[tuple[Any, Any, tuple[int, int]]]:
        handle, problem = self.device.handle, self.inputs.problem
        for step, pipeline in zip(self.shader.steps, pipelines, strict=True):
            for part in slices(self.shader, step, problem, self.device.limits):
                words = np.zeros(_PARAMS_BYTES // 4, np.uint32)
                words[:2] = part.rows, part.start
                words[2] = np.float32(problem.eps).view(np.uint32)
                params = handle.create_buffer_with_data(data=words.tobytes(), usage=wgpu.BufferUsage.UNIFORM)
                entries = [{"binding": 0, "resource": {"buffer": params, "offset": 0, "size": _PARAMS_BYTES}}]
                for binding in self.shader.bindings:
                    group = self.inputs.buffers.get(binding.name) or self.outputs.buffers[binding.name]
                    buffer = group[index]
                    offset, size = (part.offset, part.size) if binding.per_row else (0, buffer.size)
                    entries.append(
                        {
                            "binding": binding.index,
                            "resource": {"buffer": buffer, "offset": offset, "size": size},
                        }
                    )
                entries += [
                    {
                        "binding": len(entries) + index,
                        "resource": {"buffer": buffer, "offset": 0, "size": buffer.size},
                    }
                    for index, buffer in enumerate(self._extra)
                ]
                yield (
                    pipeline,
                    handle.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries),
                    part.grid,
                )

    def encode(self, compute: Any, index: int = 0) -> None:
        """Put the plan's dispatches on one set of buffers into a compute pass."""
        current = None
        for pipeline, group, (x, y) in self._dispatches[index % len(self._dispatches)]:
            if pipeline is not current:
                compute.set_pipeline(pipeline)
                current = pipeline
            compute.set_bind_group(0, group)
            compute.dispatch_workgroups(x, y)

    def run(self) -> None:
        """Compute every set once."""
        encoder = self.device.handle.create_command_encoder()
        compute = encoder.begin_compute_pass()
        for index in range(self.inputs.sets):
            self.encode(compute, index)
        compute.end()
        self.device.handle.queue.submit([encoder.finish()])


def _write(device: Device, buffer: Any, array: Array) -> None:
    data = array.reshape(-1).view(np.uint8)
    for begin in range(0, data.size, _CHUNK_BYTES):
        device.handle.queue.write_buffer(buffer, begin, data[begin : begin + _CHUNK_BYTES])


def _fill(device: Device, buffer: Any, begin: int, word: np.uint32) -> None:
    pattern = np.full(min(buffer.size - begin, _CHUNK_BYTES) // 4, word, np.uint32)
    for at in range(begin, buffer.size, _CHUNK_BYTES):
        device.handle.queue.write_buffer(buffer, at, pattern[: (buffer.size - at) // 4])
