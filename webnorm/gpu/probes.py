"""What a device says of itself only when tried: its subgroups' size, whether its clock runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import wgpu

from webnorm.gpu.compute_programs import ComputeProgram

_SUBGROUP_PROBE = """
@group(0) @binding(0) var<storage, read_write> sizes: array<u32>;
@compute @workgroup_size(128)
fn main(@builtin(local_invocation_index) index: u32, @builtin(subgroup_size) size: u32) {
    sizes[index] = size;
}
"""


def probe_subgroup_size(handle: Any) -> int:
    """The invocations of a subgroup, which no limit of wgpu-py tells."""
    return int(_words_of(handle, _SUBGROUP_PROBE, 128)[0])


def _words_of(
    handle: Any, text: str, count: int, workgroups: int = 1
) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """The buffer of `count` words, the only one of a shader, once that has run."""
    buffer = handle.create_buffer(size=4 * count, usage=wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC)
    prepared = ComputeProgram(handle, text, ["storage"]).on([(buffer, 0, buffer.size)], workgroups)
    encoder = handle.create_command_encoder()
    compute = encoder.begin_compute_pass()
    prepared.encode(compute)
    compute.end()
    handle.queue.submit([encoder.finish()])
    return np.frombuffer(handle.queue.read_buffer(buffer), np.uint32)


def timed_pass(encoder: Any, queries: Any) -> Any:
    """A compute pass whose beginning and end go to the two queries of a set."""
    ends = {"beginning_of_pass_write_index": 0, "end_of_pass_write_index": 1}
    return encoder.begin_compute_pass(timestamp_writes={"query_set": queries, **ends})


def probe_timestamps(handle: Any) -> bool:
    """Two queries around an empty pass: some drivers have the feature and write zeros."""
    queries = handle.create_query_set(type="timestamp", count=2)
    buffer = handle.create_buffer(size=16, usage=wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC)
    encoder = handle.create_command_encoder()
    timed_pass(encoder, queries).end()
    encoder.resolve_query_set(queries, 0, 2, buffer, 0)
    handle.queue.submit([encoder.finish()])
    begin, end = np.frombuffer(handle.queue.read_buffer(buffer), np.uint64)
    return bool(begin > 0 and end >= begin)
