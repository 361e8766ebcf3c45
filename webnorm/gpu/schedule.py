"""The dispatches of one problem with one shader, before there are buffers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import wgpu

from webnorm.errors import WebnormError
from webnorm.gpu.buffers import ACCESS_BYTES, buffer_bytes, whole_accesses
from webnorm.gpu.compute_programs import bind_group_entry
from webnorm.gpu.device import Device
from webnorm.gpu.pipelines import Pipeline
from webnorm.gpu.slices import (
    MOST_SLICES,
    BatchSlice,
    CannotSlice,
    grid,
    row_alignment,
    slices,
    window,
    with_split_limits,
)
from webnorm.kernels.rendering.render import Shader
from webnorm.kernels.rendering.templates import StorageBinding
from webnorm.op.corpus import ForceSplit
from webnorm.op.dtypes import DTYPES
from webnorm.op.problem import Problem


@dataclass(frozen=True)
class BoundRange:
    """The bytes of a buffer that a pass binds."""

    binding: StorageBinding
    offset: int
    size: int


@dataclass(frozen=True)
class Dispatch:
    """A pass over one slice, or one of the whole call. `uniform` is the offset of its words, in bytes."""

    pipeline: Pipeline
    grid: tuple[int, int]
    uniform: int
    places: tuple[BoundRange, ...]


class ScheduledOutput(NamedTuple):
    """An array that a problem's passes write."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int


class Schedule:
    """What a shader does to one problem on one device, before any buffer is bound: slices and dispatches.

    It serves every problem that differs in scalars alone (`set_scalars`). `names` are those of all
    buffers that it binds. `scratch` and `packed` name the ones that it takes `beside` the tensors' own, with
    their bytes: those between passes, and those that several tensors are copied into. It does not hold the
    device, only wgpu's own object.
    """

    def __init__(
        self, device: Device, shader: Shader, pipelines: Sequence[Pipeline], narrow: ForceSplit | None = None
    ) -> None:
        self.shader, self.handle = shader, device.handle
        limits = device.limits if narrow is None else with_split_limits(shader, device.limits, narrow)
        problem = shader.problem
        self.names = tuple(binding.name for binding in shader.bindings)
        self.outputs = tuple(
            ScheduledOutput(t.name, t.shape_in(problem), DTYPES[t.dtype(problem)], t.data_bytes(problem))
            for t in shader.variant.kernel.op.outputs(problem)
        )
        self._slices = slices(shader, problem, limits)
        self._check_slices()
        # All slices have as many workgroups as the largest needs: those of one slice find the records that
        # those of another began.
        self._most = max((part.count for part in self._slices), default=0)
        self.scratch = {
            binding.name: self._scratch_bytes(binding, device.limits["max-storage-buffer-binding-size"])
            for binding in shader.bindings
            if binding.records is not None
        }
        self._shared = [binding for binding in shader.bindings if len(binding.tensors) > 1]
        self.packed = {binding.name: binding.stride * len(binding.tensors) for binding in self._shared}
        self.beside = {**self.scratch, **self.packed}
        self.row_alignment = row_alignment(limits)
        step = limits["min-uniform-buffer-offset-alignment"]
        self._words_bytes = math.ceil(4 * len(shader.params) / step) * step
        self.dispatches = tuple(self._lay_out(pipelines, limits["max-compute-workgroups-per-dimension"]))
        # The words of each slice, and behind them those of the passes of the whole call.
        parts = [self._words(at) for at in range(len(self._slices))]
        self._uniform_words = np.array([*parts, self._words(None)], np.uint32)
        self._uniform = self.handle.create_buffer(
            size=self._uniform_words.nbytes, usage=wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST
        )
        self._scalars: dict[str, float] | None = None

    def set_scalars(self, problem: Problem) -> None:
        """Take the scalars from a problem for what is submitted from now on; the first time is a must."""
        scalars = problem.scalars
        if scalars == self._scalars:
            return
        self._scalars = scalars
        for name, value in scalars.items():
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
                    bind_group_entry(0, self._uniform, dispatch.uniform, self._words_bytes),
                    *(
                        bind_group_entry(
                            place.binding.index, buffers[place.binding.name], place.offset, place.size
                        )
                        for place in dispatch.places
                    ),
                    *(
                        bind_group_entry(behind + at, buffer, 0, buffer.size)
                        for at, buffer in enumerate(extra)
                    ),
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

    def _check_slices(self) -> None:
        """Raise CannotSlice where the kernel takes no slices, WebnormError where there are too many."""
        variant, problem, count = self.shader.variant, self.shader.problem, len(self._slices)
        if count > 1 and not variant.kernel.takes_slices:
            raise CannotSlice(
                f"{variant} takes all {problem.BATCH} at once; on this device {problem} takes {count} parts: "
                f"expected fewer {problem.BATCH}, or another kernel"
            )
        if count > MOST_SLICES:
            raise WebnormError(
                f"{variant} takes {problem} in {count} slices on this device; expected at most {MOST_SLICES}"
            )

    def _scratch_bytes(self, binding: StorageBinding, limit: int) -> int:
        if binding.batched:
            return buffer_bytes(self.shader.problem.batch * binding.inner_bytes)
        size = max(ACCESS_BYTES, whole_accesses(self._records(binding) * binding.inner_bytes))
        if size > limit:
            raise WebnormError(
                f"{self.shader.variant} needs {size} bytes for {binding.name}; "
                f"this device limits a storage binding to {limit} bytes"
            )
        return size

    def _records(self, binding: StorageBinding) -> int:
        """Records of a scratch buffer; none where the batch is empty."""
        return self.shader.records(binding, self._most) if self._slices else 0

    def _lay_out(self, pipelines: Sequence[Pipeline], dimension: int) -> Iterator[Dispatch]:
        """The dispatches of all passes, at most `dimension` workgroups in each direction."""
        whole = len(self._slices) * self._words_bytes
        for pipeline in pipelines:
            rendered = pipeline.rendered
            if rendered.per == "call":
                count = self.shader.workgroup_count(rendered, self.shader.problem.batch)
                places = tuple(BoundRange(binding, 0, self._whole(binding)) for binding in rendered.bindings)
                yield Dispatch(pipeline, grid(count, dimension), whole, places)
                continue
            count = self.shader.workgroup_count(rendered, self._most)
            for at, part in enumerate(self._slices):
                places = tuple(self._place(binding, part) for binding in rendered.bindings)
                yield Dispatch(pipeline, grid(count, dimension), at * self._words_bytes, places)

    def _place(self, binding: StorageBinding, part: BatchSlice) -> BoundRange:
        if not binding.batched:
            return BoundRange(binding, 0, self._whole(binding))
        found = window(binding, part, self.shader.problem.batch, self.row_alignment)
        return BoundRange(binding, found.offset, found.size)

    def _whole(self, binding: StorageBinding) -> int:
        """Bytes of a binding's buffer."""
        own = self.beside.get(binding.name)
        count = self.shader.problem.batch if binding.batched else 1
        return buffer_bytes(count * binding.inner_bytes) if own is None else own

    def _words(self, part: int | None) -> list[int]:
        """The uniform's words for a slice; for a pass of the whole call when that is None.

        The scalars are left to `set_scalars`.
        """
        problem = self.shader.problem
        cut = BatchSlice(0, problem.batch) if part is None else self._slices[part]
        words = {problem.BATCH: cut.count}
        for binding in self.shader.bindings:
            if binding.batched and part is not None:
                found = window(binding, cut, problem.batch, self.row_alignment)
                words[f"{binding.name}_start"] = found.start
            elif binding.records is not None and not binding.batched:
                words[f"{binding.name}_count"] = self._records(binding)
                words[f"{binding.name}_kept"] = int(bool(part))
        given = [words.get(word, 0) for word in self.shader.params]
        return given + [0] * (self._words_bytes // 4 - len(given))
