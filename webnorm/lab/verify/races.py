"""Races on workgroup memory and endless loops, found by the watched rendering of a kernel, run a few times.

Two invocations of a workgroup race where both use one element of workgroup memory with no barrier between,
and one of them writes. A program on the CPU runs invocations in an order in which most races do no harm, so
that right answers prove nothing. The watched rendering notes every access, which shows a race on any adapter,
whoever comes first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import wgpu

from webnorm.errors import SourceLocation, WebnormError, sentence
from webnorm.gpu.buffers import Inputs, Outputs, write
from webnorm.gpu.device import Device
from webnorm.gpu.pipelines import compile_shader
from webnorm.gpu.schedule import Plan
from webnorm.kernels.headers.variants import SOFTWARE_ITERATIONS, Variant
from webnorm.kernels.rendering.render import Shader, render_shader
from webnorm.kernels.wgsl.tokens import CannotInstrument
from webnorm.lab.verify.clobber import output_buffers, scratch_buffers, spoiler_of
from webnorm.lab.verify.deviations import batch_part
from webnorm.lab.verify.instrumentation import (
    HEAD,
    LOOP_NOTES,
    LOOP_WORDS,
    MEMORY_NOTES,
    LoopInstrumentation,
    RaceInstrumentation,
)
from webnorm.op.dtypes import Array
from webnorm.op.problem import Problem

# Rows that are watched, and elements of them: enough for several workgroups, and for those that walk over
# rows.
_MOST_BATCH, _ELEMENTS = 1024, 1 << 20
# Notes of all workgroups together, in bytes.
_NOTES_BYTES = 1 << 26
_LINE = re.compile(r"line (\d+): ", re.ASCII)
# What a text that is not understood, or whose watched rendering cannot run, raises.
_UNCLEAR = (CannotInstrument, WebnormError, wgpu.GPUError)


@dataclass(frozen=True)
class RaceOrLoopFault:
    """What was seen: a race, or a loop that does not end. What it is, and where the loop, or one of the two
    accesses, stands.
    """

    kind: Literal["race", "loop"]
    text: str
    place: SourceLocation

    def __str__(self) -> str:
        return f"{self.place.file}:{self.place.line}: {self.text}"


class LoopsNotInstrumented(CannotInstrument):
    """Whether the loops of a text end could not be found out."""


def find_fault(
    device: Device, variant: Variant, problem: Problem, arrays: Mapping[str, Array], roots: Sequence[Path]
) -> RaceOrLoopFault | None:
    """The loop that does not end, or the race, that is found on the first rows of a problem; None where there
    is neither.

    Raises CannotInstrument where races cannot be watched, LoopsNotInstrumented where loops cannot, either,
    and WebnormError where the variant cannot run.
    """
    most = max(1, min(problem.batch_size, _MOST_BATCH, _ELEMENTS // problem.inner))
    watch = _Watch(device, variant, problem.with_batch(most), arrays, roots)
    try:
        return watch.fault()
    except _UNCLEAR:
        # Where races cannot be seen, endless loops can.
        watch.memory = False
        try:
            found = watch.fault()
        except _UNCLEAR as error:
            raise LoopsNotInstrumented(sentence(str(error))) from error
        if found:
            return found
        raise


@dataclass
class _Watch:
    """A variant and the rows that it is watched on; `memory` says whether races are looked for, too."""

    device: Device
    variant: Variant
    problem: Problem
    arrays: Mapping[str, Array]
    roots: Sequence[Path]
    memory: bool = True

    def fault(self) -> RaceOrLoopFault | None:
        """What is seen: see `fault`."""
        device = self.device
        fitting = self._fitting()
        if fitting is None:
            return None
        shader, rounds, watched, size = fitting
        bound = max(len(each.bindings) for each in shader.passes)
        if bound >= device.limits["max-storage-buffers-per-shader-stage"]:
            raise CannotInstrument("the kernel binds as many buffers as this device has")
        problem, words = shader.problem, LOOP_WORDS * len(rounds.lines)
        with _origins_named(shader):
            text = _text(shader, rounds, watched, size // 4 - words)
        shader = replace(shader, text=text)
        op = self.variant.kernel.op
        given = batch_part(op, self.arrays, slice(problem.batch_size))
        notes = device.create_buffer(math.ceil(size / 16) * 16)
        outputs = Outputs(device, problem, op.outputs(problem))
        pipelines = compile_shader(device, shader, extra_bindings=1)
        plan = Plan(device, shader, Inputs(device, given).buffers, outputs.buffers, pipelines, [notes])
        if plan.dispatches > len(shader.passes):
            raise CannotInstrument(f"the {problem.BATCH} are cut into slices")
        for _ in _states(device, plan, outputs):
            write(device, notes, np.zeros(size, np.uint8))
            plan.run()
            head = _words(device, notes, 0, HEAD) if watched else []
            of_loops = _words(device, notes, size // 4 - words, words)
            found = _endless(of_loops, shader, rounds) or (watched and _race(head, shader, watched))
            if found:
                return found
        return None

    def _fitting(self) -> tuple[Shader, LoopInstrumentation, RaceInstrumentation | None, int] | None:
        """The shader for as many of the rows as there is room for notes on, its text as it is understood, and
        the bytes of the notes; None without loops and without workgroup memory.
        """
        device, batch = self.device, self.problem.batch_size
        most = min(_NOTES_BYTES, device.limits["max-storage-buffer-binding-size"])
        while True:
            problem = self.problem.with_batch(batch)
            shader = render_shader(self.variant, problem, "native", device.traits, roots=self.roots)
            with _origins_named(shader):
                rounds = LoopInstrumentation(shader.text)
                watched = RaceInstrumentation(rounds.text()) if self.memory else None
            if watched is None or not watched.memory:
                return (shader, rounds, None, 4 * LOOP_WORDS * len(rounds.lines)) if rounds.lines else None
            workgroups = max(shader.workgroup_count(each, batch) for each in shader.passes)
            size = 4 * (watched.words(len(shader.passes), workgroups) + LOOP_WORDS * len(rounds.lines))
            if size <= most:
                return shader, rounds, watched, size
            if batch == 1:
                raise CannotInstrument(f"notes of {workgroups} workgroups take {size} bytes")
            batch = max(1, batch // 2)


@contextmanager
def _origins_named(shader: Shader) -> Iterator[None]:
    """Let a reason that begins with a line of the rendered text name the file and line that it came from."""
    try:
        yield
    except CannotInstrument as unclear:
        reason = str(unclear)
        found = _LINE.match(reason)
        if found is None or not 1 <= int(found[1]) <= len(shader.origins):
            raise
        file, number = shader.origins[int(found[1]) - 1]
        raise CannotInstrument(f"{file}:{number}: {reason[found.end() :]}") from unclear


def _text(
    shader: Shader, rounds: LoopInstrumentation, watched: RaceInstrumentation | None, first: int
) -> str:
    """The text that takes notes: those of workgroup memory, and from word `first` on one for each loop."""
    binding, problem = len(shader.bindings) + 1, shader.problem
    elements = problem.elements
    if watched is None:
        notes = f"@group(0) @binding({binding}) var<storage, read_write> {LOOP_NOTES}: array<atomic<u32>>;"
        return f"{rounds.text()}\n{notes}{rounds.library(elements, LOOP_NOTES, first)}"
    entry_points = {each.entry_point: each.workgroup_size for each in shader.passes}
    if len(entry_points) < len(shader.passes):
        # Notes of one dispatch would be taken for those of another.
        raise CannotInstrument("two passes have the same entry point")
    library = rounds.library(elements, MEMORY_NOTES, first) if rounds.lines else ""
    return watched.text(entry_points, binding) + library


def _words(device: Device, notes: Any, first: int, count: int) -> list[int]:
    if not count:
        return []
    data = device.handle.queue.read_buffer(notes, 4 * first, 4 * count)
    return [int(word) for word in np.frombuffer(data, np.uint32)]


def _fault(kind: Literal["race", "loop"], text: str, shader: Shader, line: int) -> RaceOrLoopFault:
    """A fault at a line of the text: the author's line, and where a snippet of webnorm's has it."""
    file, number = shader.origins[line - 1]
    name, called = shader.author_calls(line)
    author = called[-1] if called else shader.caller(line)
    if author is None:
        return RaceOrLoopFault(kind, text, SourceLocation(file, number))
    text += f", in {file}:{number}"
    if called and kind == "race":
        lines = " and ".join(str(one.line) for one in called)
        text += (
            f": `{name}`, called at line{'s' * (len(called) > 1)} {lines}, has memory for one call a row; "
            "another call needs a reduction of its own, or both one of a vec2"
        )
    return RaceOrLoopFault(kind, text, author)


def _endless(notes: Sequence[int], shader: Shader, rounds: LoopInstrumentation) -> RaceOrLoopFault | None:
    """The loop that the notes say did not end by itself."""
    found = rounds.endless(notes)
    if found is None:
        return None
    line, longest = found
    text = (
        f"a loop that does not end: it was stopped after {longest} rounds or more; a GPU may hang in it, and "
        f"Mesa's llvmpipe ends all loops of an invocation after {SOFTWARE_ITERATIONS} without a word"
    )
    return _fault("loop", text, shader, line)


def _race(head: Sequence[int], shader: Shader, watched: RaceInstrumentation) -> RaceOrLoopFault | None:
    """The race that the first words of the notes tell of."""
    races, line, element, uneven = head
    if races:
        memory = next(one for one in reversed(watched.memory) if one.first <= element)
        text = (
            f"a race: {memory.name}[{element - memory.first}] is used by two invocations with no barrier "
            "between, and one of them writes it"
        )
        return _fault("race", text, shader, line)
    if uneven:
        raise CannotInstrument(
            "a barrier that not all invocations of a workgroup come to, or too many barriers"
        )
    return None


def _states(device: Device, plan: Plan, outputs: Outputs) -> Iterator[None]:
    """Put into outputs and scratch what a kernel may find there, lest it knows when it is watched: NaN that
    is no one's (they are so at first), its own answers, zeros as in new buffers, and numbers.
    """
    yield
    yield
    remembered = [*output_buffers(outputs, 0), *scratch_buffers(plan)]
    for buffer, data_bytes, _ in remembered:
        write(device, buffer, np.zeros(data_bytes, np.uint8))
    yield
    device.run_pass(spoiler_of(device).over(remembered).encode)
    yield
