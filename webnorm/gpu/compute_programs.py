"""Compute shaders beside the kernels: one pass of entry point `main`, whose buffers are bound in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import wgpu


def bind_group_layout(handle: Any, types: Mapping[int, str]) -> Any:
    """The layout of buffers by their bindings, each of a GPUBufferBindingType."""
    return handle.create_bind_group_layout(
        entries=[
            {"binding": index, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
            for index, kind in types.items()
        ]
    )


def bind_group_entry(index: int, buffer: Any, offset: int, size: int) -> dict[str, Any]:
    """Bytes of a buffer in a bind group."""
    return {"binding": index, "resource": {"buffer": buffer, "offset": offset, "size": size}}


class ComputeProgram:
    """A shader compiled on wgpu's own device; `kinds` are the types of its bindings, from 0 on."""

    def __init__(self, handle: Any, text: str, kinds: Sequence[str]) -> None:
        self._handle = handle
        self._layout = bind_group_layout(handle, dict(enumerate(kinds)))
        self.pipeline = handle.create_compute_pipeline(
            layout=handle.create_pipeline_layout(bind_group_layouts=[self._layout]),
            compute={"module": handle.create_shader_module(code=text), "entry_point": "main"},
        )

    def on(self, parts: Sequence[tuple[Any, int, int]], workgroups: int) -> PreparedDispatches:
        """A dispatch on buffers, of which each is bound from an offset on, so many bytes."""
        entries = [bind_group_entry(index, *part) for index, part in enumerate(parts)]
        group = self._handle.create_bind_group(layout=self._layout, entries=entries)
        return PreparedDispatches([(self.pipeline, group, workgroups)])


class PreparedDispatches:
    """Dispatches of programs, ready to encode."""

    def __init__(self, dispatches: Sequence[tuple[Any, Any, int]]) -> None:
        self._dispatches = dispatches

    def encode(self, compute: Any) -> None:
        """Put them into a compute pass."""
        current = None
        for pipeline, group, workgroups in self._dispatches:
            if pipeline is not current:
                current = pipeline
                compute.set_pipeline(pipeline)
            compute.set_bind_group(0, group)
            compute.dispatch_workgroups(workgroups)

    @classmethod
    def of(cls, parts: Iterable[PreparedDispatches]) -> PreparedDispatches:
        """One after the other."""
        return cls([dispatch for part in parts for dispatch in part._dispatches])
