"""How rows are cut to fit bindings and dispatches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from webnorm.errors import WebnormError
from webnorm.gpu.buffers import ACCESS_BYTES, GUARD_BYTES, buffer_bytes, whole_accesses
from webnorm.kernels.rendering.render import Shader
from webnorm.kernels.rendering.templates import StorageBinding
from webnorm.norms.case import ForceSplit
from webnorm.norms.problem import Problem

# Slices begin on multiples of so many rows, where a slice has as many: rows of float16 that share words stay
# together.
ROWS_TOGETHER = 4


@dataclass(frozen=True)
class RowSlice:
    """Rows that fit the bindings and the dispatches of a device."""

    first_row: int
    rows: int


@dataclass(frozen=True)
class BindingWindow:
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


def window(binding: StorageBinding, part: RowSlice, total_rows: int, alignment: int) -> BindingWindow:
    """Where a slice lies in a buffer whose bindings start on multiples of `alignment` bytes."""
    begin = part.first_row * binding.row_bytes
    after = part.first_row + part.rows
    offset = begin - begin % alignment
    whole = buffer_bytes(total_rows * binding.row_bytes)
    end = whole if after == total_rows else whole_accesses(after * binding.row_bytes)
    return BindingWindow(offset, end - offset, (begin - offset) // binding.itemsize)


def slices(shader: Shader, problem: Problem, limits: Mapping[str, int]) -> list[RowSlice]:
    """Cut the rows of a problem into slices of about equal size that the limits admit.

    Raises WebnormError when a single row is over a limit.
    """
    if problem.rows == 0:
        return []
    limit = limits["max-storage-buffer-binding-size"]
    alignment = row_alignment(limits)
    dimension = limits["max-compute-workgroups-per-dimension"]
    most = problem.rows
    for binding in shader.bindings:
        if not binding.per_row or buffer_bytes(problem.rows * binding.row_bytes) <= limit:
            continue
        # A slice starts up to alignment - 1 bytes into its binding, and the last one ends with the guard.
        most = min(most, (limit - GUARD_BYTES - ACCESS_BYTES - alignment) // binding.row_bytes)
        if most < 1:
            raise WebnormError(
                f"a row of {binding.width} {binding.dtype} ({binding.name}) takes {binding.row_bytes} bytes; "
                f"with its guard it has to fit one storage binding, which this device limits to {limit} bytes"
            )
    for each in shader.passes:
        while (workgroups := shader.workgroup_count(each, most)) > dimension * dimension:
            if most == 1 or each.per == "call":
                raise WebnormError(
                    f"{shader.variant} takes {workgroups} workgroups for a row of {problem.cols}; "
                    f"a dispatch of this device has at most {dimension * dimension}"
                )
            most //= 2
    together = ROWS_TOGETHER if ROWS_TOGETHER <= most < problem.rows else 1
    units = math.ceil(problem.rows / together)
    count = math.ceil(units / (most // together))
    edges = [min(units * index // count * together, problem.rows) for index in range(count + 1)]
    return [RowSlice(first, after - first) for first, after in itertools.pairwise(edges)]


def row_alignment(limits: Mapping[str, int]) -> int:
    """Bytes that a binding begins at a multiple of: what the device asks for, and whole vec4."""
    return max(limits["min-storage-buffer-offset-alignment"], ACCESS_BYTES)


# Workgroups in each direction of a dispatch that is made small, and about how many slices make small
# bindings.
_NARROW_DISPATCH, _NARROW_SLICES = 16, 3
# Slices that are laid out for one call; the devices that there are need dozens.
MOST_SLICES = 4096


def with_split_limits(shader: Shader, limits: Mapping[str, int], how: ForceSplit) -> dict[str, int]:
    """Limits of a device, with those on rows so small that the shader's rows have to be cut.

    What a pass takes for a single row it gets, however much: only a real device may be too small for that.
    """
    if how == "dispatches":
        rows = shader.problem.rows
        most = max(shader.workgroup_count(each, rows if each.per == "call" else 1) for each in shader.passes)
        across = max(_NARROW_DISPATCH, math.isqrt(max(most - 1, 0)) + 1)
        own = limits["max-compute-workgroups-per-dimension"]
        return {**limits, "max-compute-workgroups-per-dimension": min(across, own)}
    row = max((binding.row_bytes for binding in shader.bindings if binding.per_row), default=0)
    rows = math.ceil(shader.problem.rows / _NARROW_SLICES)
    room = rows * row + GUARD_BYTES + ACCESS_BYTES + row_alignment(limits)
    own = limits["max-storage-buffer-binding-size"]
    return {**limits, "max-storage-buffer-binding-size": min(room, own)}


class CannotSlice(WebnormError):
    """A kernel takes all rows at once, and they do not fit one."""
