"""Plans: the buffers, bindings and dispatches that compute one problem with one shader on one device."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import wgpu

from webnorm.errors import WebnormError
from webnorm.gpu.device import Device, machine_memory
from webnorm.kernels.render import Binding, Shader, Step
from webnorm.norms.corpus import Narrow
from webnorm.norms.ops import Op, Tensor
from webnorm.norms.problem import DTYPES, Array, Problem

# Words inside the bound range behind every tensor. A write past the end lands there and is seen; a read
# past the end of an input meets NaN. 64 words are four runs of a vec4 by the smallest subgroup.
GUARD_WORDS = 64
GUARD_BYTES = 4 * GUARD_WORDS
# Quiet NaNs with a payload: outputs and their guards hold POISON before a run. The guards of inputs hold
# other bits, since arithmetic hands a NaN's bits on: a kernel that ran past the ends of both would write
# POISON over POISON.
POISON = np.uint32(0x7FC0BEEF)
INPUT_GUARD = np.uint32(0x7FC0F00D)
# A binding ends with a whole vec4: the last row's last load is one.
_ACCESS_BYTES = 16
_CHUNK_BYTES = 1 << 24
# Slices begin on multiples of so many rows, where a slice has as many: rows of float16 that share words stay
# together.
_ROWS_TOGETHER = 4


@dataclass(frozen=True)
class Slice:
    """Rows that fit the bindings and the dispatches of a device."""

    first_row: int
    rows: int


@dataclass(frozen=True)
class Window:
    """The bytes bound of a buffer with rows for one slice, and the elements from there to its first row."""

    offset: int
    size: int
    start: int


def grid(count: int, limit: int) -> tuple[int, int]:
    """`count` workgroups as x and y counts of at most `limit` each; raises ValueError past limit squared."""
    if count > limit * limit:
        raise ValueError(count)
    y = math.ceil(count / limit)
    return math.ceil(count / max(y, 1)), y


def window(binding: Binding, part: Slice, total_rows: int, alignment: int) -> Window:
    """Where a slice lies in a buffer whose bindings start on multiples of `alignment` bytes."""
    begin = part.first_row * binding.row_bytes
    after = part.first_row + part.rows
    offset = begin - begin % alignment
    whole = buffer_bytes(total_rows * binding.row_bytes)
    end = whole if after == total_rows else _whole_accesses(after * binding.row_bytes)
    return Window(offset, end - offset, (begin - offset) // binding.itemsize)


def slices(shader: Shader, problem: Problem, limits: Mapping[str, int]) -> list[Slice]:
    """Cut the rows of a problem into slices of about equal size that the limits admit.

    Raises WebnormError when a single row is over a limit.
    """
    if problem.rows == 0:
        return []
    limit = limits["max-storage-buffer-binding-size"]
    alignment = _alignment(limits)
    dimension = limits["max-compute-workgroups-per-dimension"]
    most = problem.rows
    for binding in shader.bindings:
        if not binding.per_row or buffer_bytes(problem.rows * binding.row_bytes) <= limit:
            continue
        # A slice starts up to alignment - 1 bytes into its binding, and the last one ends with the guard.
        most = min(most, (limit - GUARD_BYTES - _ACCESS_BYTES - alignment) // binding.row_bytes)
        if most < 1:
            raise WebnormError(
                f"a row of {binding.width} {binding.dtype} ({binding.name}) takes {binding.row_bytes} bytes; "
                f"with its guard it has to fit one storage binding, which this device limits to {limit} bytes"
            )
    for step in shader.steps:
        while (workgroups := shader.workgroup_count(step, most)) > dimension * dimension:
            if most == 1 or step.per == "call":
                raise WebnormError(
                    f"{shader.variant} takes {workgroups} workgroups for a row of {problem.cols}; "
                    f"a dispatch of this device has at most {dimension * dimension}"
                )
            most //= 2
    together = _ROWS_TOGETHER if _ROWS_TOGETHER <= most < problem.rows else 1
    units = math.ceil(problem.rows / together)
    count = math.ceil(units / (most // together))
    edges = [min(units * index // count * together, problem.rows) for index in range(count + 1)]
    return [Slice(first, after - first) for first, after in itertools.pairwise(edges)]


def _alignment(limits: Mapping[str, int]) -> int:
    return max(limits["min-storage-buffer-offset-alignment"], _ACCESS_BYTES)


def _whole_accesses(size: int) -> int:
    return math.ceil(size / _ACCESS_BYTES) * _ACCESS_BYTES


def buffer_bytes(data_bytes: int) -> int:
    """Bytes of a tensor's buffer: guard behind, and a whole number of vec4."""
    return _whole_accesses(data_bytes + GUARD_BYTES)


def check_memory(problem: Problem, op: Op, device: Device, sets: int = 1) -> None:
    """Raise WebnormError, before anything is allocated, for buffers that the device cannot hold."""
    limit = device.limits["max-buffer-size"]
    total = 0
    for tensor in op.present(problem):
        size = buffer_bytes(tensor.data_bytes(problem))
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


def check_reference(problem: Problem) -> None:
    """Raise WebnormError, before anything is drawn, for float64 answers that this machine cannot hold."""
    memory = machine_memory()
    size = problem.rows * problem.cols * _REFERENCE_BYTES
    if memory is not None and size > memory:
        raise WebnormError(
            f"{problem}: inputs and float64 answers take {size} bytes; this machine has {memory} bytes of "
            "memory"
        )


# Of an element: x in float64 and as it is stored, an answer with its two sizes, and what came out, twice.
_REFERENCE_BYTES = 40
# Workgroups in each direction of a dispatch that is made small, and about how many slices make small
# bindings.
_NARROW_DISPATCH, _NARROW_SLICES = 16, 3
# Slices that are laid out for one call; the devices that there are need dozens.
_MOST_SLICES = 4096


def narrowed(shader: Shader, limits: Mapping[str, int], how: Narrow) -> dict[str, int]:
    """Limits of a device, with those on rows so small that the shader's rows have to be cut.

    What a pass takes for a single row it gets, however much: only a real device may be too small for that.
    """
    if how == "dispatches":
        rows = shader.problem.rows
        most = max(shader.workgroup_count(step, rows if step.per == "call" else 1) for step in shader.steps)
        across = max(_NARROW_DISPATCH, math.isqrt(max(most - 1, 0)) + 1)
        own = limits["max-compute-workgroups-per-dimension"]
        return {**limits, "max-compute-workgroups-per-dimension": min(across, own)}
    row = max((binding.row_bytes for binding in shader.bindings if binding.per_row), default=0)
    rows = math.ceil(shader.problem.rows / _NARROW_SLICES)
    room = rows * row + GUARD_BYTES + _ACCESS_BYTES + _alignment(limits)
    own = limits["max-storage-buffer-binding-size"]
    return {**limits, "max-storage-buffer-binding-size": min(room, own)}


class CannotSlice(WebnormError):
    """A kernel takes all rows in one dispatch, and they do not fit one."""


@dataclass(frozen=True)
class Pipeline:
    """One pass, compiled, with its layout."""

    step: Step
    handle: Any
    layout: Any


def compile_shader(device: Device, shader: Shader, extra_bindings: int = 0) -> list[Pipeline]:
    """Compile and create one compute pipeline per pass, with explicit layouts.

    Raises WebnormError with the template's file and line for text that the compiler refuses, and for
    more workgroup memory than the device has (which wgpu itself lets pass).
    """
    return create_pipelines(device, shader, create_module(device, shader), extra_bindings)


def create_module(device: Device, shader: Shader) -> Any:
    """The first half of `compile_shader`: wgpu's module, the text parsed and checked."""
    if shader.workgroup_bytes > device.traits.workgroup_storage:
        raise WebnormError(
            f"{shader.variant} uses {shader.workgroup_bytes} bytes of workgroup memory; "
            f"the limit is {device.traits.workgroup_storage}"
        )
    with _located(shader):
        return device.handle.create_shader_module(code=shader.text)


def create_pipelines(device: Device, shader: Shader, module: Any, extra_bindings: int = 0) -> list[Pipeline]:
    """The second half of `compile_shader`: a pipeline per pass, for which the driver compiles."""
    handle = device.handle
    pipelines = []
    with _located(shader):
        for step in shader.steps:
            layout = _bind_group_layout(device, shader, step, extra_bindings)
            pipeline = handle.create_compute_pipeline(
                layout=handle.create_pipeline_layout(bind_group_layouts=[layout]),
                compute={"module": module, "entry_point": step.entry_point},
            )
            pipelines.append(Pipeline(step, pipeline, layout))
    return pipelines


@contextmanager
def _located(shader: Shader) -> Iterator[None]:
    """Turns what the compiler says into a WebnormError with the template's file and line."""
    try:
        yield
    except wgpu.GPUError as error:
        raise WebnormError(shader.located(str(error))) from error


def _bind_group_layout(device: Device, shader: Shader, step: Step, extra_bindings: int) -> Any:
    kinds = {"read": "read-only-storage", "read_write": "storage"}
    types = {0: "uniform", **{binding.index: kinds[binding.access] for binding in step.bindings}}
    types.update({len(shader.bindings) + 1 + extra: "storage" for extra in range(extra_bindings)})
    return device.handle.create_bind_group_layout(
        entries=[
            {"binding": index, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
            for index, kind in types.items()
        ]
    )


class Inputs:
    """A problem's input arrays on the device, in one or more sets of buffers.

    Several sets that are used in turn keep a GPU's cache from answering for its memory. Where there are
    `others`, arrays of the same shapes, the second set and every second one from there on hold those, and the
    sets are an even number.
    """

    def __init__(
        self,
        device: Device,
        arrays: Mapping[str, Array],
        sets: int = 1,
        others: Mapping[str, Array] | None = None,
    ) -> None:
        self.device = device
        self.sets = sets if others is None else sets + sets % 2
        self.buffers: dict[str, list[Any]] = {}
        for name, array in arrays.items():
            firsts = [_upload(device, array)] + ([] if others is None else [_upload(device, others[name])])
            copies = (self._copy_of(firsts[at % len(firsts)]) for at in range(len(firsts), self.sets))
            self.buffers[name] = [*firsts, *copies]

    def _copy_of(self, buffer: Any) -> Any:
        copy = self.device.create_buffer(buffer.size)
        encoder = self.device.handle.create_command_encoder()
        encoder.copy_buffer_to_buffer(buffer, 0, copy, 0, buffer.size)
        self.device.handle.queue.submit([encoder.finish()])
        return copy


class Outputs:
    """Buffers that passes write, one per input set, shared by all plans of an op and problem.

    `shared` are buffers of another op's outputs by name, which are taken where the size is the same.
    """

    def __init__(
        self,
        device: Device,
        problem: Problem,
        tensors: Iterable[Tensor],
        sets: int = 1,
        shared: Mapping[str, list[Any]] | None = None,
    ) -> None:
        self.device, self.problem, self.sets = device, problem, sets
        self.tensors = {tensor.name: tensor for tensor in tensors}
        self.buffers: dict[str, list[Any]] = {}
        for name, tensor in self.tensors.items():
            size = buffer_bytes(tensor.data_bytes(problem))
            found = (shared or {}).get(name, [])
            if found and found[0].size == size:
                self.buffers[name] = found
            else:
                self.buffers[name] = [device.create_buffer(size) for _ in range(sets)]
        largest = max(buffers[0].size for buffers in self.buffers.values())
        self._pattern = device.create_buffer(min(largest, _CHUNK_BYTES))
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
        """An output of a set, and whether its guard words are untouched.

        What is left of the last element's word is no one's.
        """
        tensor = self.tensors[name]
        raw = np.frombuffer(self.device.handle.queue.read_buffer(self.buffers[name][index]), np.uint8)
        guard = raw[math.ceil(tensor.data_bytes(self.problem) / 4) * 4 :]
        return as_array(raw, tensor, self.problem), bool(np.all(guard.view(np.uint32) == POISON))

    def sized(self, sets: Sequence[int]) -> list[tuple[list[Any], int]]:
        """Every output's buffers of some sets, and its bytes without the guard."""
        return [
            ([self.buffers[name][at] for at in sets], tensor.data_bytes(self.problem))
            for name, tensor in self.tensors.items()
        ]

    def read_all(self, index: int = 0) -> dict[str, tuple[Array, bool]]:
        """Every output of a set, and whether its guard is untouched."""
        return {name: self.read(name, index) for name in self.tensors}


def as_array(raw: Array, tensor: Tensor, problem: Problem) -> Array:
    """The bytes of a tensor's buffer as an array."""
    data = raw[: tensor.data_bytes(problem)].view(DTYPES[tensor.dtype(problem)])
    return data.reshape(tensor.shape(problem))


@dataclass(frozen=True)
class Place:
    """The bytes of a buffer that a pass binds."""

    binding: Binding
    offset: int
    size: int


@dataclass(frozen=True)
class Dispatch:
    """A pass over one slice, or one of the whole call. `uniform` is the offset of its words, in bytes."""

    pipeline: Pipeline
    grid: tuple[int, int]
    uniform: int
    places: tuple[Place, ...]


class Output(NamedTuple):
    """An array that a problem's passes write."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int


class Schedule:
    """What a shader does to one problem on one device, before any buffer is bound: slices and dispatches.

    It serves every problem that differs in eps and scale alone (`set_scalars`). `names` are those of all
    buffers that it binds. `scratch` and `packed` name the ones that it takes `beside` the tensors' own, with
    their bytes: those between passes, and those that several tensors are copied into. It does not hold the
    device, only wgpu's own object.
    """

    def __init__(
        self,
        device: Device,
        shader: Shader,
        pipelines: Sequence[Pipeline],
        narrow: Narrow | None = None,
    ) -> None:
        self.shader, self.handle = shader, device.handle
        limits = device.limits if narrow is None else narrowed(shader, device.limits, narrow)
        problem = shader.problem
        self.names = tuple(binding.name for binding in shader.bindings)
        self.outputs = tuple(
            Output(t.name, t.shape(problem), DTYPES[t.dtype(problem)], t.data_bytes(problem))
            for t in shader.variant.kernel.op.outputs(problem)
        )
        self._slices = slices(shader, problem, limits)
        if len(self._slices) > 1 and not shader.variant.kernel.takes_slices:
            raise CannotSlice(
                f"{shader.variant} takes all rows in one dispatch; on this device {problem} takes "
                f"{len(self._slices)}: expected fewer rows, or another kernel"
            )
        if len(self._slices) > _MOST_SLICES:
            raise WebnormError(
                f"{shader.variant} takes {problem} in {len(self._slices)} slices on this device; expected at "
                f"most {_MOST_SLICES}"
            )
        # All slices have as many workgroups as the largest needs: those of one slice find the records that
        # those of another began.
        self._most_rows = max((part.rows for part in self._slices), default=0)
        self.scratch = {
            binding.name: self._scratch_bytes(binding, device.limits["max-storage-buffer-binding-size"])
            for binding in shader.bindings
            if binding.records is not None
        }
        self._shared = [binding for binding in shader.bindings if len(binding.tensors) > 1]
        self.packed = {binding.name: binding.stride * len(binding.tensors) for binding in self._shared}
        self.beside = {**self.scratch, **self.packed}
        self._alignment = _alignment(limits)
        step = limits["min-uniform-buffer-offset-alignment"]
        self._words_bytes = math.ceil(4 * len(shader.params) / step) * step
        self.dispatches = tuple(self._lay_out(pipelines, limits["max-compute-workgroups-per-dimension"]))
        # The words of each slice, and behind them those of the passes of the whole call.
        parts = [self._words(at) for at in range(len(self._slices))]
        self._uniform_words = np.array([*parts, self._words(None)], np.uint32)
        self._uniform = self.handle.create_buffer(
            size=self._uniform_words.nbytes, usage=wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST
        )
        self._scalars: tuple[float, float] | None = None

    def set_scalars(self, problem: Problem) -> None:
        """Take eps and scale from a problem for what is submitted from now on; the first time is a must."""
        scalars = problem.eps, problem.scale
        if scalars == self._scalars:
            return
        self._scalars = scalars
        for name, value in zip(("eps", "scale"), scalars, strict=True):
            if name in self.shader.params:
                self._uniform_words[:, self.shader.params.index(name)] = np.float32(value).view(np.uint32)
        self.handle.queue.write_buffer(self._uniform, 0, self._uniform_words)

    def bind(self, buffers: Mapping[str, Any], extra: Sequence[Any] = ()) -> list[Any]:
        """A bind group for each dispatch. `buffers` are those of tensors, scratch and packed, by name.

        `extra` are bound whole behind the shader's own.
        """
        behind = len(self.shader.bindings) + 1
        return [
            self.handle.create_bind_group(
                layout=dispatch.pipeline.layout,
                entries=[
                    _entry(0, self._uniform, dispatch.uniform, self._words_bytes),
                    *(
                        _entry(place.binding.index, buffers[place.binding.name], place.offset, place.size)
                        for place in dispatch.places
                    ),
                    *(_entry(behind + at, buffer, 0, buffer.size) for at, buffer in enumerate(extra)),
                ],
            )
            for dispatch in self.dispatches
        ]

    def pack(self, encoder: Any, buffers: Mapping[str, Any]) -> None:
        """Copy tensors into the buffers that they share; comes before the dispatches."""
        for binding in self._shared:
            for at, name in enumerate(binding.tensors):
                packed, begin = buffers[binding.name], at * binding.stride
                encoder.copy_buffer_to_buffer(buffers[name], 0, packed, begin, binding.stride)

    def encode(self, compute: Any, groups: Sequence[Any]) -> None:
        """Put the dispatches into a compute pass, with the bind groups that `bind` gave."""
        current = None
        for dispatch, group in zip(self.dispatches, groups, strict=True):
            if dispatch.pipeline is not current:
                current = dispatch.pipeline
                compute.set_pipeline(current.handle)
            compute.set_bind_group(0, group)
            compute.dispatch_workgroups(*dispatch.grid)

    def _scratch_bytes(self, binding: Binding, limit: int) -> int:
        if binding.per_row:
            return buffer_bytes(self.shader.problem.rows * binding.row_bytes)
        size = max(_ACCESS_BYTES, _whole_accesses(self._records(binding) * binding.row_bytes))
        if size > limit:
            raise WebnormError(
                f"{self.shader.variant} needs {size} bytes for {binding.name}; "
                f"this device limits a storage binding to {limit} bytes"
            )
        return size

    def _records(self, binding: Binding) -> int:
        """Records of a scratch buffer; none where there are no rows."""
        return self.shader.records(binding, self._most_rows) if self._slices else 0

    def _lay_out(self, pipelines: Sequence[Pipeline], dimension: int) -> Iterator[Dispatch]:
        """The dispatches of all passes, at most `dimension` workgroups in each direction."""
        whole = len(self._slices) * self._words_bytes
        for pipeline in pipelines:
            step = pipeline.step
            if step.per == "call":
                count = self.shader.workgroup_count(step, self.shader.problem.rows)
                places = tuple(Place(binding, 0, self._whole(binding)) for binding in step.bindings)
                yield Dispatch(pipeline, grid(count, dimension), whole, places)
                continue
            count = self.shader.workgroup_count(step, self._most_rows)
            for at, part in enumerate(self._slices):
                places = tuple(self._place(binding, part) for binding in step.bindings)
                yield Dispatch(pipeline, grid(count, dimension), at * self._words_bytes, places)

    def _place(self, binding: Binding, part: Slice) -> Place:
        if not binding.per_row:
            return Place(binding, 0, self._whole(binding))
        found = window(binding, part, self.shader.problem.rows, self._alignment)
        return Place(binding, found.offset, found.size)

    def _whole(self, binding: Binding) -> int:
        """Bytes of a binding's buffer."""
        own = self.beside.get(binding.name)
        rows = self.shader.problem.rows if binding.per_row else 1
        return buffer_bytes(rows * binding.row_bytes) if own is None else own

    def _words(self, part: int | None) -> list[int]:
        """The uniform's words for a slice; for a pass of the whole call when that is None.

        eps and scale are left to `set_scalars`.
        """
        problem = self.shader.problem
        rows = Slice(0, problem.rows) if part is None else self._slices[part]
        words = {"rows": rows.rows}
        for binding in self.shader.bindings:
            if binding.per_row and part is not None:
                found = window(binding, rows, problem.rows, self._alignment)
                words[f"{binding.name}_start"] = found.start
            elif binding.records is not None and not binding.per_row:
                words[f"{binding.name}_count"] = self._records(binding)
                words[f"{binding.name}_kept"] = int(bool(part))
        given = [words.get(word, 0) for word in self.shader.params]
        return given + [0] * (self._words_bytes // 4 - len(given))


def _entry(index: int, buffer: Any, offset: int, size: int) -> dict[str, Any]:
    return {"binding": index, "resource": {"buffer": buffer, "offset": offset, "size": size}}


class Plan:
    """A schedule with buffers bound to it, ready to encode.

    `inputs` and `outputs` map tensors to buffers, one for each set; they may be shared with other plans.
    `extra` are buffers bound whole behind the shader's own. `narrow` has rows cut although the device has
    room for them.

    Dispatches are numbered, and take the sets of outputs in turn. Where there are two sets of inputs or more,
    outputs are written from one set and then from the next, so that with two versions of the inputs
    (Inputs' `others`) what lies in them is never what a dispatch has to put there.
    """

    def __init__(
        self,
        device: Device,
        shader: Shader,
        inputs: Mapping[str, Sequence[Any]],
        outputs: Mapping[str, Sequence[Any]],
        pipelines: Sequence[Pipeline],
        extra: Sequence[Any] = (),
        narrow: Narrow | None = None,
    ) -> None:
        self.device, self.shader = device, shader
        self.buffers = {**inputs, **outputs}
        self.sets = max((len(buffers) for buffers in (outputs or inputs).values()), default=1)
        self.input_sets = max((len(buffers) for buffers in inputs.values()), default=1)
        self._schedule = schedule = Schedule(device, shader, pipelines, narrow)
        schedule.set_scalars(shader.problem)
        self.scratch = {name: device.create_buffer(size) for name, size in schedule.scratch.items()}
        for buffer in self.scratch.values():
            # A call's scratch holds what others left there: a kernel that counts on zeros is to be seen.
            _fill(device, buffer, 0, POISON)
        read = [
            {
                **{name: buffers[at] for name, buffers in inputs.items()},
                **{name: device.create_buffer(size) for name, size in schedule.packed.items()},
                **self.scratch,
            }
            for at in range(self.input_sets)
        ]
        encoder = device.handle.create_command_encoder()
        for buffers in read:
            schedule.pack(encoder, buffers)
        device.handle.queue.submit([encoder.finish()])
        self._groups = [
            schedule.bind(
                {
                    **read[self.input_set(index)],
                    **{name: buffers[index % self.sets] for name, buffers in outputs.items()},
                },
                extra,
            )
            for index in range(self.sets * min(self.input_sets, 2))
        ]

    @property
    def dispatches(self) -> int:
        """How many dispatches of the device stand behind one number: passes times slices."""
        return len(self._schedule.dispatches)

    def input_set(self, index: int) -> int:
        """The set of inputs that the dispatch of this number takes; it writes set `index` modulo `sets`."""
        return (index % self.sets + index // self.sets % 2) % self.input_sets

    def encode(self, compute: Any, index: int = 0) -> None:
        """Put the dispatches of this number into a compute pass."""
        self._schedule.encode(compute, self._groups[index % len(self._groups)])

    def run(self, first: int = 0) -> None:
        """Write every set of outputs once, with the dispatches from this number on."""
        self.run_all(range(first, first + self.sets))

    def run_all(self, dispatches: range) -> None:
        """Submit the dispatches of these numbers in one pass."""

        def encode(compute: Any) -> None:
            for index in dispatches:
                self.encode(compute, index)

        self.device.run_pass(encode)


def _upload(device: Device, array: Array) -> Any:
    """A buffer with an array in it and a guard behind it."""
    buffer = device.create_buffer(buffer_bytes(array.nbytes))
    write(device, buffer, array)
    _fill(device, buffer, math.ceil(array.nbytes / 4) * 4, INPUT_GUARD)
    return buffer


def write(device: Device, buffer: Any, array: Array) -> None:
    """Put an array at the beginning of a buffer."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    tail = data.size % 4
    for begin in range(0, data.size - tail, _CHUNK_BYTES):
        device.handle.queue.write_buffer(
            buffer, begin, data[begin : min(begin + _CHUNK_BYTES, data.size - tail)]
        )
    if tail:
        # Writes are of whole words.
        word = np.zeros(4, np.uint8)
        word[:tail] = data[-tail:]
        device.handle.queue.write_buffer(buffer, data.size - tail, word)


def _fill(device: Device, buffer: Any, begin: int, word: np.uint32) -> None:
    pattern = np.full(min(buffer.size - begin, _CHUNK_BYTES) // 4, word, np.uint32)
    for at in range(begin, buffer.size, _CHUNK_BYTES):
        device.handle.queue.write_buffer(buffer, at, pattern[: (buffer.size - at) // 4])
