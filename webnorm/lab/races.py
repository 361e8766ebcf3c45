"""Races on workgroup memory, found by the watched rendering of a kernel, run a few times.

Two invocations of a workgroup race where both use one element of workgroup memory with no barrier between,
and one of them writes. A program on the CPU runs invocations in an order in which most races do no harm, so
that right answers prove nothing. The watched rendering notes every access, which shows a race on any adapter,
whoever comes first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from webnorm.errors import Place
from webnorm.gpu.buffers import Inputs, Outputs, write
from webnorm.gpu.device import Device
from webnorm.gpu.pipelines import compile_shader
from webnorm.gpu.plan import Plan
from webnorm.kernels.render import Shader, render_shader
from webnorm.kernels.tokens import Unwatchable
from webnorm.kernels.variants import Variant
from webnorm.lab.spoil import of_outputs, of_scratch, spoiler_of
from webnorm.lab.watched import HEAD, Watched
from webnorm.norms.problem import Array, Problem

# Rows that are watched, and elements of them: enough for several workgroups, and for those that walk over
# rows.
_ROWS, _ELEMENTS = 1024, 1 << 20
# Notes of all workgroups together, in bytes.
_NOTES_BYTES = 1 << 26


@dataclass(frozen=True)
class Race:
    """A race: what it is, and where one of the two accesses stands."""

    text: str
    place: Place

    def __str__(self) -> str:
        return f"{self.place.file}:{self.place.line}: {self.text}"


def race(
    device: Device, variant: Variant, problem: Problem, arrays: Mapping[str, Array], roots: Sequence[Path]
) -> Race | None:
    """What a race is and where, found on the first rows of a problem; None where there is none.

    Raises Unwatchable where that cannot be told, and WebnormError where the variant, or its watched text,
    cannot run.
    """
    fitting = _fitting(device, variant, problem, roots)
    if fitting is None:
        return None
    shader, watched, size = fitting
    entry_points = {each.entry_point: each.workgroup_size for each in shader.passes}
    if len(entry_points) < len(shader.passes):
        # Notes of one dispatch would be taken for those of another.
        raise Unwatchable("two passes have the same entry point")
    bound = max(len(each.bindings) for each in shader.passes)
    if bound >= device.limits["max-storage-buffers-per-shader-stage"]:
        raise Unwatchable("the kernel binds as many buffers as this device has")
    shader = replace(shader, text=watched.text(entry_points, len(shader.bindings) + 1))
    op, rows = variant.kernel.op, shader.problem.rows
    by_rows = {tensor.name for tensor in op.present(problem) if tensor.per_row}
    given = {name: array[:rows] if name in by_rows else array for name, array in arrays.items()}
    notes = device.create_buffer(math.ceil(size / 16) * 16)
    outputs = Outputs(device, shader.problem, op.outputs(shader.problem))
    pipelines = compile_shader(device, shader, extra_bindings=1)
    plan = Plan(device, shader, Inputs(device, given).buffers, outputs.buffers, pipelines, [notes])
    if plan.dispatches > len(shader.passes):
        raise Unwatchable("the rows are cut into slices")
    for _ in _states(device, plan, outputs):
        write(device, notes, np.zeros(size, np.uint8))
        plan.run()
        head = np.frombuffer(device.handle.queue.read_buffer(notes, 0, 4 * HEAD), np.uint32)
        seen = _told(head.tolist(), shader, watched)
        if seen:
            return seen
    return None


def _fitting(
    device: Device, variant: Variant, problem: Problem, roots: Sequence[Path]
) -> tuple[Shader, Watched, int] | None:
    """The shader for as many of the first rows as there is room for notes on, and the bytes of the notes;
    None without workgroup memory.
    """
    rows = max(1, min(problem.rows, _ROWS, _ELEMENTS // problem.cols))
    most = min(_NOTES_BYTES, device.limits["max-storage-buffer-binding-size"])
    while True:
        shader = render_shader(variant, replace(problem, rows=rows), "native", device.traits, roots=roots)
        watched = Watched(shader.text)
        if not watched.memory:
            return None
        workgroups = max(shader.workgroup_count(each, rows) for each in shader.passes)
        size = 4 * watched.words(len(shader.passes), workgroups)
        if size <= most:
            return shader, watched, size
        if rows == 1:
            raise Unwatchable(f"notes of {workgroups} workgroups take {size} bytes")
        rows = max(1, rows // 2)


def _told(head: Sequence[int], shader: Shader, watched: Watched) -> Race | None:
    """The race that the first words of the notes tell of."""
    races, line, element, uneven = head
    if races:
        memory = next(one for one in reversed(watched.memory) if one.first <= element)
        file, number = shader.origins[line - 1]
        text = (
            f"a race: {memory.name}[{element - memory.first}] is used by two invocations with no barrier "
            "between, and one of them writes it"
        )
        return Race(text, Place(file, number))
    if uneven:
        raise Unwatchable("a barrier that not all invocations of a workgroup come to, or too many barriers")
    return None


def _states(device: Device, plan: Plan, outputs: Outputs) -> Iterator[None]:
    """Put into outputs and scratch what a kernel may find there, lest it knows when it is watched: NaN that
    is no one's (they are so at first), its own answers, zeros as in new buffers, and numbers.
    """
    yield
    yield
    remembered = [*of_outputs(outputs, 0), *of_scratch(plan)]
    for buffer, data_bytes, _ in remembered:
        write(device, buffer, np.zeros(data_bytes, np.uint8))
    yield
    device.run_pass(spoiler_of(device).over(remembered).encode)
    yield
