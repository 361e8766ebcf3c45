"""How a batch is cut to fit bindings and dispatches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from webnorm.errors import WebnormError
from webnorm.gpu.buffers import ACCESS_BYTES, GUARD_BYTES, buffer_bytes, whole_accesses
from webnorm.kernels.rendering.render import Shader
from webnorm.kernels.rendering.templates import StorageBinding
from webnorm.op.corpus import ForceSplit
from webnorm.op.problem import Problem

# Slices begin on multiples of so many elements of the batch, where a slice has as many: those of float16 that
# share words stay together.
ELEMENTS_TOGETHER = 4


@dataclass(frozen=True)
class BatchSlice:
    """Elements of a batch that fit the bindings and the dispatches of a device."""

    first: int
    count: int


@dataclass(frozen=True)
class BindingWindow:
    """The bytes of a batched buffer that are bound for one slice, and the elements of the array from there to
    the slice's first.
    """

    offset: int
    size: int
    start: int


def grid(count: int, limit: int) -> tuple[int, int]:
    """`count` workgroups as x and y counts of at most `limit` each; raises ValueError past limit squared."""
    if count > limit * limit:
        raise ValueError(count)
    y = math.ceil(count / limit)
    return math.ceil(count / max(y, 1)), y


def window(binding: StorageBinding, part: BatchSlice, total: int, alignment: int) -> BindingWindow:
    """Where a slice lies in a buffer whose bindings start on multiples of `alignment` bytes."""
    begin = part.first * binding.inner_bytes
    after = part.first + part.count
    offset = begin - begin % alignment
    whole = buffer_bytes(total * binding.inner_bytes)
    end = whole if after == total else whole_accesses(after * binding.inner_bytes)
    return BindingWindow(offset, end - offset, (begin - offset) // binding.itemsize)


def slices(shader: Shader, problem: Problem, limits: Mapping[str, int]) -> list[BatchSlice]:
    """Cut the batch of a problem into slices of about equal size that the limits admit.

    Raises WebnormError when a single element is over a limit.
    """
    if problem.batch == 0:
        return []
    noun = problem.batch_noun
    limit = limits["max-storage-buffer-binding-size"]
    alignment = row_alignment(limits)
    dimension = limits["max-compute-workgroups-per-dimension"]
    most = problem.batch
    for binding in shader.bindings:
        if not binding.batched or buffer_bytes(problem.batch * binding.inner_bytes) <= limit:
            continue
        # A slice starts up to alignment - 1 bytes into its binding, and the last one ends with the guard.
        most = min(most, (limit - GUARD_BYTES - ACCESS_BYTES - alignment) // binding.inner_bytes)
        if most < 1:
            raise WebnormError(
                f"a {noun} of {binding.width} {binding.dtype} ({binding.name}) takes "
                f"{binding.inner_bytes} bytes; with its guard it has to fit one storage binding, "
                f"which this device limits to {limit} bytes"
            )
    for each in shader.passes:
        while (workgroups := shader.workgroup_count(each, most)) > dimension * dimension:
            if most == 1 or each.per == "call":
                raise WebnormError(
                    f"{shader.variant} takes {workgroups} workgroups for a {noun} of {problem.inner}; "
                    f"a dispatch of this device has at most {dimension * dimension}"
                )
            most //= 2
    together = ELEMENTS_TOGETHER if ELEMENTS_TOGETHER <= most < problem.batch else 1
    units = math.ceil(problem.batch / together)
    count = math.ceil(units / (most // together))
    edges = [min(units * index // count * together, problem.batch) for index in range(count + 1)]
    return [BatchSlice(first, after - first) for first, after in itertools.pairwise(edges)]


def row_alignment(limits: Mapping[str, int]) -> int:
    """Bytes that a binding begins at a multiple of: what the device asks for, and whole vec4."""
    return max(limits["min-storage-buffer-offset-alignment"], ACCESS_BYTES)


# Workgroups in each direction of a dispatch that is made small, and about how many slices make small
# bindings.
_NARROW_DISPATCH, _NARROW_SLICES = 16, 3
# Slices that are laid out for one call; the devices that there are need dozens.
MOST_SLICES = 4096


def with_split_limits(shader: Shader, limits: Mapping[str, int], how: ForceSplit) -> dict[str, int]:
    """Limits of a device, with those on slices so small that the shader's batch has to be cut.

    What a pass takes for a single row it gets, however much: only a real device may be too small for that.
    """
    if how == "dispatches":
        batch = shader.problem.batch
        most = max(shader.workgroup_count(each, batch if each.per == "call" else 1) for each in shader.passes)
        across = max(_NARROW_DISPATCH, math.isqrt(max(most - 1, 0)) + 1)
        own = limits["max-compute-workgroups-per-dimension"]
        return {**limits, "max-compute-workgroups-per-dimension": min(across, own)}
    row = max((binding.inner_bytes for binding in shader.bindings if binding.batched), default=0)
    count = math.ceil(shader.problem.batch / _NARROW_SLICES)
    room = count * row + GUARD_BYTES + ACCESS_BYTES + row_alignment(limits)
    own = limits["max-storage-buffer-binding-size"]
    return {**limits, "max-storage-buffer-binding-size": min(room, own)}


class CannotSlice(WebnormError):
    """A kernel takes the whole batch at once, and that does not fit one."""
