"""Search for races on workgroup memory and endless loops, with an instrumented text that runs a few times.

Two invocations of a workgroup race if both use one element of workgroup memory without a barrier between, and
one of them writes. Adapters on the CPU run invocations in an order in which most races do no harm, so that
right answers prove nothing. The instrumented text records every access. It therefore shows a race on any
adapter and in any order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from webnorm.errors import SourceLocation, WebnormError, sentence
from webnorm.gpu.backend import wgpu
from webnorm.gpu.buffers import Inputs, Outputs, write
from webnorm.gpu.device import Device
from webnorm.gpu.pipelines import compile_shader
from webnorm.gpu.schedule import Plan
from webnorm.kernels.headers.variants import SOFTWARE_ITERATIONS, Variant
from webnorm.kernels.rendering.render import Shader, render_shader
from webnorm.kernels.wgsl.diagnostics import read_report
from webnorm.kernels.wgsl.tokens import CannotInstrument
from webnorm.lab.results.result import FaultKind
from webnorm.lab.verify.clobber import clobberer_of, output_buffers, scratch_buffers
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

# The most rows and elements of an instrumented run, enough for several workgroups and for loops over rows.
_MOST_BATCH, _ELEMENTS = 1024, 1 << 20
# The most bytes of notes for all workgroups together.
_NOTES_BYTES = 1 << 26
_LINE = re.compile(r"line (\d+): ", re.ASCII)
# Exceptions for texts that cannot be instrumented, or whose instrumented text cannot run.
_UNCLEAR = (CannotInstrument, WebnormError, wgpu.GPUError)


@dataclass(frozen=True)
class RaceOrLoopFault:
    """A race or an endless loop that was found, with the place of the loop or of one of the two accesses."""

    kind: FaultKind
    text: str
    place: SourceLocation

    def __str__(self) -> str:
        return f"{self.place.file}:{self.place.line}: {self.text}"


class LoopsNotInstrumented(CannotInstrument):
    """Raised if the loops of a text cannot be instrumented, so that it is unknown whether they end."""


def find_fault(
    device: Device, variant: Variant, problem: Problem, arrays: Mapping[str, Array], roots: Sequence[Path]
) -> RaceOrLoopFault | None:
    """Search for an endless loop or a race on the first rows of a problem; return None if there is neither.

    `arrays` may contain more arrays than the variant reads. Raises CannotInstrument if races cannot be
    watched, and LoopsNotInstrumented if loops cannot be watched either.
    """
    most = max(1, min(problem.batch_size, _MOST_BATCH, _ELEMENTS // problem.inner))
    watch = _Watch(device, variant, problem.with_batch(most), arrays, roots)
    try:
        return watch.fault()
    except _UNCLEAR as error:
        unclear = CannotInstrument(_reason(error))
    # Loops can be watched in more texts than races.
    watch.memory = False
    try:
        found = watch.fault()
    except _UNCLEAR as error:
        raise LoopsNotInstrumented(_reason(error)) from error
    if found:
        return found
    raise unclear


def _reason(error: Exception) -> str:
    """Return the reason of an exception in `_UNCLEAR` in one line."""
    if isinstance(error, CannotInstrument):
        return str(error)
    text = read_report(str(error))[1] if isinstance(error, wgpu.GPUError) else str(error)
    return sentence(f"the instrumented text does not run: {text}")


@dataclass
class _Watch:
    """A variant and the rows to watch it on; `memory` is true to search for races too."""

    device: Device
    variant: Variant
    problem: Problem
    arrays: Mapping[str, Array]
    roots: Sequence[Path]
    memory: bool = True

    def fault(self) -> RaceOrLoopFault | None:
        """Run the instrumented text and return the fault, if any; see `find_fault`."""
        device = self.device
        fitting = self._fitting()
        if fitting is None:
            return None
        shader, rounds, watched, size = fitting
        bound = max(len(each.bindings) for each in shader.passes)
        if bound >= device.limits["max-storage-buffers-per-shader-stage"]:
            raise CannotInstrument("the kernel uses all storage bindings of this device")
        problem, words = shader.problem, LOOP_WORDS * len(rounds.lines)
        with _origins_named(shader):
            text = _text(shader, rounds, watched, size // 4 - words)
        shader = replace(shader, text=text)
        notes = device.create_buffer(math.ceil(size / 16) * 16)
        inputs = Inputs(device, self._read(problem))
        outputs = Outputs(device, problem, self.variant.kernel.op.outputs(problem))
        pipelines = compile_shader(device, shader, extra_bindings=1)
        plan = Plan(device, shader, inputs.buffers, outputs.buffers, pipelines, [notes])
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

    def _read(self, problem: Problem) -> dict[str, Array]:
        """Return the arrays that the variant reads, cut to a problem of fewer rows.

        A copy gets the arrays of another op, and reads only some of them.
        """
        op = self.variant.kernel.op
        names = [tensor.name for tensor in op.inputs(problem)]
        missing = ", ".join(name for name in names if name not in self.arrays)
        if missing:
            raise RuntimeError(
                f"the search for races got no array {missing}, which {self.variant} reads; "
                "this is a bug of webnorm, not of the kernel; please report it"
            )
        return batch_part(op, {name: self.arrays[name] for name in names}, slice(problem.batch_size))

    def _fitting(self) -> tuple[Shader, LoopInstrumentation, RaceInstrumentation | None, int] | None:
        """Return a shader for as many rows as the notes allow, its instrumentation, and the notes' bytes.

        Returns None for a text without loops and without workgroup memory.
        """
        device, batch = self.device, self.problem.batch_size
        most = min(_NOTES_BYTES, device.limits["max-storage-buffer-binding-size"])
        while True:
            problem = self.problem.with_batch(batch)
            shader = render_shader(self.variant, problem, device.target, device.traits, roots=self.roots)
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
    """Replace a line of the rendered text at the begin of a reason by the file and line of its origin."""
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
    """Return the text that takes notes of workgroup memory and, from word `first` on, of each loop."""
    binding, problem = len(shader.bindings) + 1, shader.problem
    elements = problem.elements
    if watched is None:
        notes = f"@group(0) @binding({binding}) var<storage, read_write> {LOOP_NOTES}: array<atomic<u32>>;"
        return f"{rounds.text()}\n{notes}{rounds.library(elements, LOOP_NOTES, first, shader.target)}"
    entry_points = {each.entry_point: each.workgroup_size for each in shader.passes}
    if len(entry_points) < len(shader.passes):
        # The notes of two dispatches would be mixed up.
        raise CannotInstrument("two passes have the same entry point")
    library = rounds.library(elements, MEMORY_NOTES, first, shader.target) if rounds.lines else ""
    return watched.text(entry_points, binding) + library


def _words(device: Device, notes: Any, first: int, count: int) -> list[int]:
    if not count:
        return []
    data = device.handle.queue.read_buffer(notes, 4 * first, 4 * count)
    return [int(word) for word in np.frombuffer(data, np.uint32)]


def _fault(kind: FaultKind, text: str, shader: Shader, line: int) -> RaceOrLoopFault:
    """Return a fault at a line of the text: at the author's line, with the place in a built-in snippet."""
    file, number = shader.origins[line - 1]
    name, called = shader.author_calls(line)
    author = called[-1] if called else shader.caller(line)
    if author is None:
        return RaceOrLoopFault(kind, text, SourceLocation(file, number))
    text += f", in {file}:{number}"
    if called and kind == "race":
        lines = " and ".join(str(one.line) for one in called)
        text += (
            f": `{name}`, called at line{'s' * (len(called) > 1)} {lines}, has memory for one call per row; "
            "use a second reduction for the other call, or one reduction of a vec2 for both"
        )
    return RaceOrLoopFault(kind, text, author)


def _endless(notes: Sequence[int], shader: Shader, rounds: LoopInstrumentation) -> RaceOrLoopFault | None:
    """Return the loop that did not end by itself according to the notes, or None."""
    found = rounds.endless(notes)
    if found is None:
        return None
    line, longest = found
    text = (
        f"a loop that does not end: it was stopped after at least {longest} rounds; a GPU may hang in it, "
        f"and Mesa's llvmpipe silently ends all loops of an invocation after {SOFTWARE_ITERATIONS} rounds"
    )
    return _fault("loop", text, shader, line)


def _race(head: Sequence[int], shader: Shader, watched: RaceInstrumentation) -> RaceOrLoopFault | None:
    """Return the race in the first words of the notes, or None."""
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
            "a barrier that not all invocations of a workgroup reach, or too many barriers"
        )
    return None


def _states(device: Device, plan: Plan, outputs: Outputs) -> Iterator[None]:
    """Put outputs and scratch into several states, so that a kernel cannot know when it is watched.

    The states are the initial NaN, the kernel's own answers, zeros as in new buffers, and noise.
    """
    yield
    yield
    remembered = [*output_buffers(outputs, 0), *scratch_buffers(plan)]
    for buffer, data_bytes, _ in remembered:
        write(device, buffer, np.zeros(data_bytes, np.uint8))
    yield
    device.run_pass(clobberer_of(device).over(remembered).encode)
    yield
