"""Small compute shaders other than kernels: one pass of entry point `main`, with buffers bound in order.

Probes measure properties that a device does not report: its subgroup size, and whether timestamps work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from webnorm.gpu.backend import wgpu

_SUBGROUP_PROBE = """
@group(0) @binding(0) var<storage, read_write> sizes: array<u32>;
@compute @workgroup_size(128)
fn main(@builtin(local_invocation_index) index: u32, @builtin(subgroup_size) size: u32) {
    sizes[index] = size;
}
"""


def bind_group_layout(handle: Any, types: Mapping[int, str]) -> Any:
    """Create a bind group layout; `types` maps bindings to a GPUBufferBindingType."""
    return handle.create_bind_group_layout(
        entries=[
            {"binding": index, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
            for index, kind in types.items()
        ]
    )


def bind_group_entry(index: int, buffer: Any, offset: int, size: int) -> dict[str, Any]:
    """Return the bind group entry for a byte range of a buffer."""
    return {"binding": index, "resource": {"buffer": buffer, "offset": offset, "size": size}}


class ComputeProgram:
    """A shader compiled on wgpu's device; `kinds` are the types of its bindings, from 0 on."""

    def __init__(self, handle: Any, text: str, kinds: Sequence[str]) -> None:
        self._handle = handle
        self._layout = bind_group_layout(handle, dict(enumerate(kinds)))
        self.pipeline = handle.create_compute_pipeline(
            layout=handle.create_pipeline_layout(bind_group_layouts=[self._layout]),
            compute={"module": handle.create_shader_module(code=text), "entry_point": "main"},
        )

    def on(self, parts: Sequence[tuple[Any, int, int]], workgroups: int) -> PreparedDispatches:
        """Return a dispatch on buffers; `parts` has the buffer, offset and bytes of each binding."""
        entries = [bind_group_entry(index, *part) for index, part in enumerate(parts)]
        group = self._handle.create_bind_group(layout=self._layout, entries=entries)
        return PreparedDispatches([(self.pipeline, group, workgroups)])


class PreparedDispatches:
    """Dispatches of programs, ready to encode."""

    def __init__(self, dispatches: Sequence[tuple[Any, Any, int]]) -> None:
        self._dispatches = dispatches

    def encode(self, compute: Any) -> None:
        """Add the dispatches to a compute pass."""
        current = None
        for pipeline, group, workgroups in self._dispatches:
            if pipeline is not current:
                current = pipeline
                compute.set_pipeline(pipeline)
            compute.set_bind_group(0, group)
            compute.dispatch_workgroups(workgroups)

    @classmethod
    def of(cls, parts: Iterable[PreparedDispatches]) -> PreparedDispatches:
        """Concatenate several lists of dispatches."""
        return cls([dispatch for part in parts for dispatch in part._dispatches])


def probe_subgroup_size(handle: Any, target: str) -> int:
    """Measure the number of invocations per subgroup, which wgpu-py does not report."""
    # naga rejects the directive that browsers need.
    directive = "enable subgroups;" if target == "browser" else ""
    return int(_words_of(handle, directive + _SUBGROUP_PROBE, 128)[0])


def probe_subgroup_sizes(handle: Any) -> tuple[int, int]:
    """Return the smallest and the largest size that a pipeline can fix with `@subgroup_size`.

    The device must have the feature "subgroup-size-control". Every adapter has at least one size.
    """
    sizes = [2**power for power in range(2, 8)]
    accepted = []
    for size in sizes:
        text = (
            "enable subgroups; enable subgroup_size_control;\n"
            f"@compute @workgroup_size({sizes[-1]}) @subgroup_size({size}) fn main() {{}}"
        )
        with suppress(wgpu.GPUError):
            ComputeProgram(handle, text, [])
            accepted.append(size)
    return accepted[0], accepted[-1]


def run_pass(handle: Any, encode: Callable[[Any], None]) -> None:
    """Submit one compute pass to wgpu's device; `encode` adds dispatches to it."""
    encoder = handle.create_command_encoder()
    compute = encoder.begin_compute_pass()
    encode(compute)
    compute.end()
    handle.queue.submit([encoder.finish()])


def _words_of(
    handle: Any, text: str, count: int, workgroups: int = 1
) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Run a shader whose only binding is a buffer of `count` words, and return the words."""
    buffer = handle.create_buffer(size=4 * count, usage=wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC)
    prepared = ComputeProgram(handle, text, ["storage"]).on([(buffer, 0, buffer.size)], workgroups)
    run_pass(handle, prepared.encode)
    return np.frombuffer(handle.queue.read_buffer(buffer), np.uint32)


def timed_pass(encoder: Any, queries: Any) -> Any:
    """Begin a compute pass that writes the times of its beginning and end to a set of two queries."""
    ends = {"beginning_of_pass_write_index": 0, "end_of_pass_write_index": 1}
    return encoder.begin_compute_pass(timestamp_writes={"query_set": queries, **ends})


def probe_timestamps(handle: Any) -> bool:
    """Test timestamps with an empty pass: some drivers have the feature but write zeros."""
    queries = handle.create_query_set(type="timestamp", count=2)
    buffer = handle.create_buffer(size=16, usage=wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC)
    encoder = handle.create_command_encoder()
    timed_pass(encoder, queries).end()
    encoder.resolve_query_set(queries, 0, 2, buffer, 0)
    handle.queue.submit([encoder.finish()])
    begin, end = np.frombuffer(handle.queue.read_buffer(buffer), np.uint64)
    return bool(begin > 0 and end >= begin)
