"""The dispatches of one shader for one problem: first without buffers, then with buffers bound to them.

A large batch is cut into slices that fit the device's bindings and dispatches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from webnorm.errors import WebnormError, size_in_bytes, sizes_in_bytes
from webnorm.gpu.backend import wgpu
from webnorm.gpu.buffers import ACCESS_BYTES, GUARD_BYTES, POISON, buffer_bytes, fill, whole_accesses
from webnorm.gpu.compute_programs import bind_group_entry
from webnorm.gpu.device import Device
from webnorm.gpu.pipelines import Pipeline
from webnorm.kernels.rendering.render import RenderedPass, Shader
from webnorm.kernels.rendering.templates import StorageBinding
from webnorm.op.corpus import ForceSplit
from webnorm.op.dtypes import DTYPES
from webnorm.op.problem import Problem

# Slices begin at multiples of this number of batch elements, if a slice has as many. So float16 elements that
# share a word stay together.
ELEMENTS_TOGETHER = 4


@dataclass(frozen=True)
class BatchSlice:
    """A range of batch elements that fits the bindings and dispatches of a device."""

    first: int
    count: int


@dataclass(frozen=True)
class BindingWindow:
    """The byte range of a batched buffer that is bound for one slice.

    `start` is the number of array elements between the range's begin and the slice's first element.
    """

    offset: int
    size: int
    start: int


def grid(count: int, limit: int) -> tuple[int, int]:
    """Return x and y for `count` workgroups, each at most `limit`. Raises ValueError above limit squared."""
    if count > limit * limit:
        raise ValueError(count)
    y = math.ceil(count / limit)
    return math.ceil(count / max(y, 1)), y


def window(binding: StorageBinding, part: BatchSlice, total: int, alignment: int) -> BindingWindow:
    """Return the window of a slice in a buffer whose bindings start at multiples of `alignment` bytes."""
    begin = part.first * binding.inner_bytes
    after = part.first + part.count
    offset = begin - begin % alignment
    whole = buffer_bytes(total * binding.inner_bytes)
    end = whole if after == total else whole_accesses(after * binding.inner_bytes)
    return BindingWindow(offset, end - offset, (begin - offset) // binding.itemsize)


def slices(shader: Shader, problem: Problem, limits: Mapping[str, int]) -> list[BatchSlice]:
    """Cut the batch of a problem into slices of about equal size within the limits.

    Raises WebnormError if a single element exceeds a limit.
    """
    if problem.batch_size == 0:
        return []
    noun = problem.batch_noun
    limit = limits["max-storage-buffer-binding-size"]
    alignment = row_alignment(limits)
    dimension = limits["max-compute-workgroups-per-dimension"]
    most = problem.batch_size
    for binding in shader.bindings:
        if not binding.batched or buffer_bytes(problem.batch_size * binding.inner_bytes) <= limit:
            continue
        # A slice starts up to alignment - 1 bytes after its binding's begin, and the last one includes the
        # guard.
        most = min(most, (limit - GUARD_BYTES - ACCESS_BYTES - alignment) // binding.inner_bytes)
        if most < 1:
            raise WebnormError(
                f"a {noun} of {binding.width} {binding.dtype} ({binding.name}) takes "
                f"{size_in_bytes(binding.inner_bytes)}; with its guard it has to fit one storage binding, "
                f"which this device limits to {size_in_bytes(limit)}"
            )
    for each in shader.passes:
        while (workgroups := shader.workgroup_count(each, most)) > dimension * dimension:
            if most == 1 or each.per == "call":
                raise WebnormError(
                    f"{shader.variant} takes {workgroups} workgroups for a {noun} of {problem.inner}; "
                    f"a dispatch of this device has at most {dimension * dimension}"
                )
            most //= 2
    together = ELEMENTS_TOGETHER if ELEMENTS_TOGETHER <= most < problem.batch_size else 1
    units = math.ceil(problem.batch_size / together)
    count = math.ceil(units / (most // together))
    edges = [min(units * index // count * together, problem.batch_size) for index in range(count + 1)]
    return [BatchSlice(first, after - first) for first, after in itertools.pairwise(edges)]


def row_alignment(limits: Mapping[str, int]) -> int:
    """Return the alignment of bindings in bytes: the device's, and at least a whole vec4."""
    return max(limits["min-storage-buffer-offset-alignment"], ACCESS_BYTES)


# The approximate number of slices if the batch has to be cut although the device's bindings are large enough.
_NARROW_SLICES = 3
# The most slices of one call. Existing devices need dozens.
MOST_SLICES = 4096


def with_small_bindings(shader: Shader, limits: Mapping[str, int]) -> dict[str, int]:
    """Lower a device's limit of bindings so that the shader's batch has to be cut.

    The limit always admits a single row: only a real device may be too small for that.
    """
    most = max((binding.inner_bytes for binding in shader.bindings if binding.batched), default=0)
    count = math.ceil(shader.problem.batch_size / _NARROW_SLICES)
    room = count * most + GUARD_BYTES + ACCESS_BYTES + row_alignment(limits)
    own = limits["max-storage-buffer-binding-size"]
    return {**limits, "max-storage-buffer-binding-size": min(room, own)}


class CannotSlice(WebnormError):
    """A kernel needs the whole batch at once, but the batch does not fit."""


class BoundRange(NamedTuple):
    """The byte range of a buffer that a pass binds."""

    binding: StorageBinding
    offset: int
    size: int


@dataclass(frozen=True)
class Dispatch:
    """A pass over one slice or over the whole call. `words` is the row of its words in the schedule's."""

    pipeline: Pipeline
    grid: tuple[int, ...]
    words: int
    places: tuple[BoundRange, ...]


class ScheduledOutput(NamedTuple):
    """An array that a problem's passes write."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int


class Schedule:
    """The slices and dispatches of a shader for one problem on one device, without buffers.

    It serves all problems that differ only in scalars (`set_scalars`). It refers to wgpu's device, not to the
    Device.

    Attributes
    ----------
    names
        The names of all buffers that it binds.
    scratch, packed
        The bytes of buffers other than the tensors', by name: buffers between passes, and buffers into which
        several tensors are copied.
    internal
        `scratch` and `packed` together.
    """

    def __init__(
        self, device: Device, shader: Shader, pipelines: Sequence[Pipeline], narrow: ForceSplit | None = None
    ) -> None:
        self.shader, self.handle = shader, device.handle
        limits = with_small_bindings(shader, device.limits) if narrow == "bindings" else device.limits
        self._square = narrow == "dispatches"
        problem = shader.problem
        self.names = tuple(binding.name for binding in shader.bindings)
        self.outputs = tuple(
            ScheduledOutput(t.name, t.shape_in(problem), DTYPES[t.dtype(problem)], t.data_bytes(problem))
            for t in shader.variant.kernel.op.outputs(problem)
        )
        self._slices = slices(shader, problem, limits)
        self._check_slices()
        # All slices have the workgroup count of the largest, so that each workgroup continues the records of
        # earlier slices.
        self._most = max((part.count for part in self._slices), default=0)
        self.scratch = {
            binding.name: self._scratch_bytes(binding, device.limits["max-storage-buffer-binding-size"])
            for binding in shader.bindings
            if binding.records is not None
        }
        self._shared = [binding for binding in shader.bindings if len(binding.tensors) > 1]
        self.packed = {binding.name: binding.stride * len(binding.tensors) for binding in self._shared}
        self.internal = {**self.scratch, **self.packed}
        self.row_alignment = row_alignment(limits)
        # Each slice's words in a uniform begin at a multiple of the alignment.
        step = 4 if shader.immediates else limits["min-uniform-buffer-offset-alignment"]
        self._words_bytes = math.ceil(4 * len(shader.params) / step) * step
        self.dispatches = tuple(self._lay_out(pipelines, limits["max-compute-workgroups-per-dimension"]))
        # The words of each slice, followed by the words of passes over the whole call.
        parts = [self._words(at) for at in range(len(self._slices))]
        self._all_words = np.array([*parts, self._words(None)], np.uint32)
        self._uniform = None if shader.immediates else self._make_uniform()
        self._scalars: dict[str, float] | None = None

    def _make_uniform(self) -> Any:
        usage = wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST
        return self.handle.create_buffer(size=self._all_words.nbytes, usage=usage)

    def set_scalars(self, problem: Problem) -> None:
        """Set the scalars of a problem for dispatches that are encoded later.

        It must be called before the first one. A uniform's new scalars hold for all later submissions.
        """
        scalars = problem.scalars
        if scalars == self._scalars:
            return
        self._scalars = scalars
        for name, value in scalars.items():
            kind = np.int32 if self.shader.problem.SCALARS[name].whole else np.float32
            for at, word in enumerate(self.shader.params):
                if word == name:
                    self._all_words[:, at] = kind(value).view(np.uint32)
        if self._uniform is not None:
            self.handle.queue.write_buffer(self._uniform, 0, self._all_words)

    def bind(self, buffers: Mapping[str, Any], extra: Sequence[Any] = ()) -> list[Any]:
        """Create a bind group for each dispatch.

        `buffers` maps the names of tensors, scratch and packed buffers to buffers. The buffers in `extra` are
        bound whole after the shader's own.
        """
        behind = len(self.shader.bindings) + 1
        last = [bind_group_entry(at, buffer, 0, buffer.size) for at, buffer in enumerate(extra, behind)]
        return [
            self.handle.create_bind_group(
                layout=dispatch.pipeline.layout,
                entries=[
                    *self._uniform_entries(dispatch),
                    *(
                        bind_group_entry(one.index, buffers[one.name], *part)
                        for one, *part in dispatch.places
                    ),
                    *last,
                ],
            )
            for dispatch in self.dispatches
        ]

    def _uniform_entries(self, dispatch: Dispatch) -> list[dict[str, Any]]:
        """Return the bind group entry of the uniform, if there is one."""
        if self._uniform is None:
            return []
        return [bind_group_entry(0, self._uniform, dispatch.words * self._words_bytes, self._words_bytes)]

    def pack(self, encoder: Any, buffers: Mapping[str, Any]) -> None:
        """Copy tensors into their packed buffers; this must precede the dispatches."""
        for binding in self._shared:
            for at, name in enumerate(binding.tensors):
                packed, begin = buffers[binding.name], at * binding.stride
                size = min(binding.stride, buffers[name].size)
                encoder.copy_buffer_to_buffer(buffers[name], 0, packed, begin, size)

    def encode(self, compute: Any, groups: Sequence[Any]) -> None:
        """Add the dispatches to a compute pass, with the bind groups from `bind`."""
        current = None
        for dispatch, group in zip(self.dispatches, groups, strict=True):
            if dispatch.pipeline is not current:
                current = dispatch.pipeline
                compute.set_pipeline(current.handle)
            compute.set_bind_group(0, group)
            if self._uniform is None:
                compute.set_immediates(0, self._all_words[dispatch.words], 0, self._words_bytes)
            compute.dispatch_workgroups(*dispatch.grid)

    def _check_slices(self) -> None:
        """Raise CannotSlice if the kernel does not support slices, WebnormError if there are too many."""
        variant, problem, count = self.shader.variant, self.shader.problem, len(self._slices)
        if count > 1 and not variant.kernel.takes_slices:
            raise CannotSlice(
                f"{variant} needs all {problem.BATCH} at once, but {problem} takes {count} slices here; "
                f"use fewer {problem.BATCH} or another kernel"
            )
        if count > MOST_SLICES:
            raise WebnormError(
                f"{variant} needs {count} slices for {problem} on this device; the limit is {MOST_SLICES}"
            )

    def _scratch_bytes(self, binding: StorageBinding, limit: int) -> int:
        if binding.batched:
            return buffer_bytes(self.shader.problem.batch_size * binding.inner_bytes)
        size = max(ACCESS_BYTES, whole_accesses(self._records(binding) * binding.inner_bytes))
        if size > limit:
            needed, most = sizes_in_bytes(size, limit)
            raise WebnormError(
                f"{self.shader.variant} needs {needed} for {binding.name}; "
                f"this device limits a storage binding to {most}"
            )
        return size

    def _records(self, binding: StorageBinding) -> int:
        """Return the number of records of a scratch buffer; 0 for an empty batch."""
        return self.shader.records(binding, self._most) if self._slices else 0

    def _lay_out(self, pipelines: Sequence[Pipeline], dimension: int) -> Iterator[Dispatch]:
        """Yield the dispatches of all passes, with at most `dimension` workgroups in each direction.

        With a square grid, three or more workgroups take two directions even if they fit one. A header's own
        grid stays as it is.
        """
        parts: list[tuple[int, BatchSlice | None]] = [*enumerate(self._slices)]
        for pipeline in pipelines:
            rendered = pipeline.rendered
            whole = rendered.per == "call"
            batch = self.shader.problem.batch_size if whole else self._most
            count = self.shader.workgroup_count(rendered, batch)
            across = math.isqrt(max(count - 1, 0)) + 1 if self._square else dimension
            for at, part in [(len(parts), None)] if whole else parts:
                places = tuple(self._place(binding, part) for binding in rendered.bindings)
                own = self._own_grid(rendered, batch, dimension)
                yield Dispatch(pipeline, own or grid(count, across), at, places)

    def _own_grid(self, rendered: RenderedPass, batch: int, most: int) -> tuple[int, ...]:
        """Return the grid of the header, if it has one. Raises CannotSlice if the grid is too large."""
        found = self.shader.grid(rendered, batch)
        if any(count > most for count in found):
            counts = " x ".join(map(str, found))
            raise CannotSlice(
                f"{self.shader.variant} takes {counts} workgroups; a dispatch of this device has at most "
                f"{most} in each direction"
            )
        return found

    def _place(self, binding: StorageBinding, part: BatchSlice | None) -> BoundRange:
        if part is None or not binding.batched:
            return BoundRange(binding, 0, self._whole(binding))
        found = window(binding, part, self.shader.problem.batch_size, self.row_alignment)
        return BoundRange(binding, found.offset, found.size)

    def _whole(self, binding: StorageBinding) -> int:
        """Return the bytes of a binding's whole buffer."""
        own = self.internal.get(binding.name)
        count = self.shader.problem.batch_size if binding.batched else 1
        return buffer_bytes(count * binding.inner_bytes) if own is None else own

    def _words(self, part: int | None) -> list[int]:
        """Return the words of `params` for a slice, or for a pass over the whole call if `part` is None.

        `set_scalars` writes the scalars.
        """
        problem = self.shader.problem
        cut = BatchSlice(0, problem.batch_size) if part is None else self._slices[part]
        words = {**self.shader.names, **problem.sizes, problem.BATCH: cut.count}
        for binding in self.shader.bindings:
            if binding.batched and part is not None:
                found = window(binding, cut, problem.batch_size, self.row_alignment)
                words[f"{binding.name}_start"] = found.start
            elif binding.records is not None and not binding.batched:
                words[f"{binding.name}_count"] = self._records(binding)
                words[f"{binding.name}_kept"] = int(bool(part))
        # In plain WGSL a size may be an f32.
        given = [
            int(np.float32(words[word[4:]]).view(np.uint32))
            if word.startswith("f32 ")
            else words.get(word, 0)
            for word in self.shader.params
        ]
        return given + [0] * (self._words_bytes // 4 - len(given))


class Plan:
    """The dispatches of a shader, with buffers bound to them, ready to run.

    Dispatches are numbered, and use the sets of outputs in turn. With several sets of inputs, each output set
    is written from alternating input sets. If those differ (`others` of `Inputs`), an output never already
    contains the values that a dispatch must write.

    Parameters
    ----------
    device : Device
        The device.
    shader : Shader
        The shader.
    inputs, outputs : mapping of str to sequence
        wgpu buffers by tensor, one per set: `Inputs.buffers` and `Outputs.buffers`. Plans may share them.
    pipelines : sequence of Pipeline
        The pipelines from `webnorm.compile_shader`.
    extra : sequence, optional
        wgpu buffers that are bound whole, after the shader's own.
    narrow : ForceSplit, optional
        Cut the batch into slices ("bindings"), or dispatch in two dimensions ("dispatches"), although the
        device does not require it.

    Attributes
    ----------
    device : Device
        The device.
    shader : Shader
        The shader.
    sets : int
        The number of sets of outputs.
    input_sets : int
        The number of sets of inputs.
    buffers : dict of str to sequence
        The wgpu buffers of the tensors, one per set.
    scratch : dict of str to object
        The wgpu buffers between the passes.

    Raises
    ------
    WebnormError
        The problem does not fit the device, or the device has no room for a buffer.

    Examples
    --------
    >>> import webnorm
    >>> device = webnorm.open_device()
    >>> kernel = webnorm.select(webnorm.discover(), "naive")
    >>> problem = webnorm.Problem(rows=4, cols=8)
    >>> variant = webnorm.default_variant(kernel, problem, device.traits)
    >>> shader = webnorm.render_shader(variant, problem, device.target, device.traits)
    >>> pipelines = webnorm.compile_shader(device, shader)
    >>> inputs = webnorm.Inputs(device, webnorm.make_inputs(kernel.op, problem))
    >>> outputs = webnorm.Outputs(device, problem, kernel.op.outputs(problem))
    >>> plan = webnorm.Plan(device, shader, inputs.buffers, outputs.buffers, pipelines)
    >>> plan.run()
    >>> y, intact = outputs.read("y")
    >>> y.shape, intact
    ((4, 8), True)
    """

    def __init__(
        self,
        device: Device,
        shader: Shader,
        inputs: Mapping[str, Sequence[Any]],
        outputs: Mapping[str, Sequence[Any]],
        pipelines: Sequence[Pipeline],
        extra: Sequence[Any] = (),
        narrow: ForceSplit | None = None,
    ) -> None:
        self.device, self.shader = device, shader
        self.buffers = {**inputs, **outputs}
        self.sets = max((len(buffers) for buffers in (outputs or inputs).values()), default=1)
        self.input_sets = max((len(buffers) for buffers in inputs.values()), default=1)
        self._schedule = schedule = Schedule(device, shader, pipelines, narrow)
        schedule.set_scalars(shader.problem)
        self.scratch = {name: device.create_buffer(size) for name, size in schedule.scratch.items()}
        for buffer in self.scratch.values():
            # In a call, scratch contains data of earlier work. POISON reveals kernels that rely on zeros.
            fill(device, buffer, 0, POISON)
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
        """The number of device dispatches behind one number, which is passes times slices."""
        return len(self._schedule.dispatches)

    @property
    def invocations(self) -> int:
        """The number of invocations behind one number."""
        return sum(
            math.prod(one.grid) * one.pipeline.rendered.workgroup_size for one in self._schedule.dispatches
        )

    def input_set(self, index: int) -> int:
        """Return the set of inputs that dispatch `index` reads. It writes the output set `index % sets`."""
        return (index % self.sets + index // self.sets % 2) % self.input_sets

    def encode(self, compute: Any, index: int = 0) -> None:
        """Add the dispatches of a number to a compute pass."""
        self._schedule.encode(compute, self._groups[index % len(self._groups)])

    def run(self, first: int = 0) -> None:
        """Write every set of outputs once, starting with the dispatch `first`."""
        self.run_all(range(first, first + self.sets))

    def run_all(self, dispatches: range) -> None:
        """Submit the dispatches with these numbers in one pass."""

        def encode(compute: Any) -> None:
            for index in dispatches:
                self.encode(compute, index)

        self.device.run_pass(encode)
