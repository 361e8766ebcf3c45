"""Races on workgroup memory: a rendering that notes who touches what between two barriers, run once.

Two invocations of a workgroup race where both use one element of workgroup memory with no barrier between,
and one of them writes. A program on the CPU runs invocations in an order in which most races do no harm, so
that right answers prove nothing. Here every access leaves its invocation's number beside the number of
barriers passed, which shows a race on any adapter, whoever comes first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from webnorm.device import Device
from webnorm.kernel import Variant
from webnorm.plan import Inputs, Outputs, Plan, compile_shader
from webnorm.problem import Array, Problem
from webnorm.render import Shader, render_shader

# Rows that are watched, and elements of them: enough for several workgroups, and for those that walk over
# rows.
_ROWS, _ELEMENTS = 1024, 1 << 20
# Notes of all workgroups together, in bytes.
_NOTES_BYTES = 1 << 26
# Of a tag: an invocation's number, below it; barriers of a pass, above it.
_PLACES = 11
_BARRIERS = 17
# The first words: how many races were seen, and of the last element in memory that had one the line and its
# number.
_HEAD = 4
_NOTES_OF_ELEMENT = 4

_DECLARED = re.compile(
    r"var\s*<\s*workgroup\s*>\s*(\w+)\s*:\s*(?:array\s*<\s*([\w<>]+?)\s*,\s*(\d+)u?\s*>|([\w<>]+))\s*;"
)
_ENTRY = re.compile(r"@compute\b[^{;]*?\bfn\s+(\w+)\s*\(")
_BUILTIN = re.compile(r"@builtin\((\w+)\)\s*(\w+)\s*:")
_ASSIGNED = re.compile(r"\s*(=(?!=)|\+=|-=|\*=|/=|%=|\|=|&=|\^=|<<=|>>=|\+\+|--)")
_ATOMIC = re.compile(r"\batomic\w+\s*\(\s*&\s*$")


class Unwatchable(Exception):
    """A text that uses workgroup memory in a way that is not understood here."""


@dataclass(frozen=True)
class _Memory:
    """A variable of workgroup memory: where its notes begin, and its elements."""

    name: str
    first: int
    count: int


def race(
    device: Device, variant: Variant, problem: Problem, arrays: Mapping[str, Array], roots: Sequence[Path]
) -> str | None:
    """What a race is and where, found on the first rows of a problem; None where there is none.

    Raises Unwatchable where that cannot be told, and WebnormError where the variant cannot run.
    """
    rows = max(1, min(problem.rows, _ROWS, _ELEMENTS // problem.cols))
    while True:
        shader = render_shader(variant, replace(problem, rows=rows), "native", device.traits, roots=roots)
        memory = _memory(shader.text)
        if not memory:
            return None
        elements = sum(one.count for one in memory)
        workgroups = _most_workgroups(device, shader)
        size = 4 * (_HEAD + _NOTES_OF_ELEMENT * elements * workgroups)
        if size <= min(_NOTES_BYTES, device.limits["max-storage-buffer-binding-size"]):
            break
        if rows == 1:
            raise Unwatchable(f"notes of {workgroups} workgroups take {size} bytes")
        rows = max(1, rows // 2)
    if (
        max(len(step.bindings) for step in shader.steps)
        >= device.limits["max-storage-buffers-per-shader-stage"]
    ):
        raise Unwatchable("the kernel binds as many buffers as this device has")
    watched = replace(shader, text=watched_text(shader))
    op = variant.kernel.op
    by_rows = {tensor.name for tensor in op.present(problem) if tensor.per_row}
    given = {name: array[:rows] if name in by_rows else array for name, array in arrays.items()}
    notes = device.create_buffer(math.ceil(size / 16) * 16)
    device.handle.queue.write_buffer(notes, 0, np.zeros(notes.size // 4, np.uint32))
    outputs = Outputs(device, watched.problem, op.outputs(watched.problem))
    pipelines = compile_shader(device, watched, extra_bindings=1)
    Plan(device, watched, Inputs(device, given).buffers, outputs.buffers, pipelines, [notes]).run()
    seen, line, element, _ = np.frombuffer(device.handle.queue.read_buffer(notes, 0, 4 * _HEAD), np.uint32)
    if not seen:
        return None
    name, index = next(
        (one.name, int(element) - one.first) for one in reversed(memory) if one.first <= element
    )
    file, number = shader.origins[int(line) - 1]
    return (
        f"{file}:{number}: a race: {name}[{index}] is used by two invocations with no barrier between, "
        "and one of them writes it"
    )


def _most_workgroups(device: Device, shader: Shader) -> int:
    """Workgroups of the pass that has most."""
    return max(shader.workgroup_count(step, shader.problem.rows) for step in shader.steps)


def _memory(text: str) -> list[_Memory]:
    """The variables of workgroup memory in a text."""
    found: list[_Memory] = []
    for name, _, count, _ in _DECLARED.findall(text):
        first = found[-1].first + found[-1].count if found else 0
        found.append(_Memory(name, first, int(count or 1)))
    declared = len(re.findall(r"var\s*<\s*workgroup\s*>", text))
    if declared != len(found):
        raise Unwatchable("workgroup memory is declared in a way that is not understood")
    return found


def watched_text(shader: Shader) -> str:
    """The shader's text with a note for each access to workgroup memory, line by line as before.

    Raises Unwatchable.
    """
    memory = {one.name: one for one in _memory(shader.text)}
    elements = sum(one.count for one in memory.values())
    lines = []
    for number, line in enumerate(shader.text.splitlines(), 1):
        code, slashes, comment = line.partition("//")
        match = _DECLARED.search(code)
        if match and not match[3]:
            declared = f"var<workgroup> {match[1]}: array<{match[4]}, 1>;"
            code = code[: match.start()] + declared + code[match.end() :]
        elif not match:
            code = _noted(code, memory, number)
        code = re.sub(r"\bworkgroupBarrier\s*\(\s*\)\s*;", "workgroupBarrier(); watch_barriers += 1u;", code)
        lines.append(code + slashes + comment)
    text = _entered("\n".join(lines) + "\n")
    return text + _library(len(shader.bindings) + 1, elements)


def _noted(code: str, memory: Mapping[str, _Memory], line: int) -> str:
    """A piece of code in which each access to workgroup memory is noted."""
    found = re.search(rf"\b({'|'.join(memory)})\b", code)
    if found is None:
        return code
    one = memory[found[1]]
    before, rest = code[: found.start()], code[found.end() :]
    if re.search(r"\.\s*$", before):
        return before + found[1] + _noted(rest, memory, line)
    index = "0u"
    if one.count > 1 or rest.lstrip().startswith("["):
        if not rest.startswith("["):
            raise Unwatchable(f"{one.name} is used as a whole")
        end = _closing(rest)
        index, rest = rest[1:end], rest[end + 1 :]
    if _ATOMIC.search(before):
        return f"{before}{one.name}[{_noted(index, memory, line)}]{_noted(rest, memory, line)}"
    if before.rstrip().endswith("&"):
        raise Unwatchable(f"{one.name} is passed on by its address")
    parts = re.match(r"(?:\s*\.\s*\w+|\s*\[)*", rest)
    assigned = _ASSIGNED.match(rest[parts.end() :]) if parts else None
    if parts and parts[0].strip() and assigned:
        raise Unwatchable(f"{one.name} is written component by component")
    if parts and "[" in parts[0]:
        raise Unwatchable(f"{one.name} is an array of arrays")
    kind = "read" if assigned is None else "write" if assigned[1] == "=" else "change"
    noted = f"watch_{kind}({one.first}u, u32({_noted(index, memory, line)}), {line}u)"
    return f"{before}{one.name}[{noted}]{_noted(rest, memory, line)}"


def _closing(text: str) -> int:
    """Where the bracket closes that a text begins with."""
    depth = 0
    for at, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if depth == 0:
            return at
    raise Unwatchable("an index that does not end in its line")


def _entered(text: str) -> str:
    """The text whose entry points tell who they are."""
    parts, after = [], 0
    for number, entry in enumerate(_ENTRY.finditer(text)):
        opened = entry.end()
        depth, at = 1, opened
        while depth and at < len(text):
            depth += (text[at] == "(") - (text[at] == ")")
            at += 1
        parameters = text[opened : at - 1]
        known = {builtin: name for builtin, name in _BUILTIN.findall(parameters)}
        for builtin, name, kind in (
            ("local_invocation_index", "watch_index", "u32"),
            ("workgroup_id", "watch_id", "vec3<u32>"),
            ("num_workgroups", "watch_counts", "vec3<u32>"),
        ):
            if builtin not in known:
                known[builtin] = name
                comma = "," if parameters.strip() and not parameters.rstrip().endswith(",") else ""
                parameters += f"{comma} @builtin({builtin}) {name}: {kind}"
        body = text.index("{", at) + 1
        place, group, counts = (
            known[name] for name in ("local_invocation_index", "workgroup_id", "num_workgroups")
        )
        begin = (
            f" watch_place = {place}; watch_group = {group}.y * {counts}.x + {group}.x;"
            f" watch_barriers = {number << _BARRIERS}u + 1u;"
        )
        parts.append(text[after:opened] + parameters + text[at - 1 : body] + begin)
        after = body
    return "".join(parts) + text[after:]


def _library(binding: int, elements: int) -> str:
    """The functions that note an access. Every element has the largest and the smallest number of the
    invocations that wrote and read it, each under the number of barriers that the last of them had passed.
    """
    last = (1 << _PLACES) - 1
    return f"""
@group(0) @binding({binding}) var<storage, read_write> watch_notes: array<atomic<u32>>;
var<private> watch_place: u32;
var<private> watch_group: u32;
var<private> watch_barriers: u32;

fn watch_leave(at: u32) {{
    atomicMax(&watch_notes[at], watch_barriers << {_PLACES}u | watch_place);
    atomicMax(&watch_notes[at + 1u], watch_barriers << {_PLACES}u | ({last}u - watch_place));
}}

fn watch_others(at: u32) -> bool {{
    let largest = atomicLoad(&watch_notes[at]);
    let smallest = atomicLoad(&watch_notes[at + 1u]);
    return largest >> {_PLACES}u == watch_barriers && (largest & {last}u) != watch_place
        || smallest >> {_PLACES}u == watch_barriers && {last}u - (smallest & {last}u) != watch_place;
}}

fn watch_tell(element: u32, line: u32) {{
    atomicAdd(&watch_notes[0], 1u);
    atomicStore(&watch_notes[1], line);
    atomicStore(&watch_notes[2], element);
}}

fn watch_notes_of(element: u32) -> u32 {{
    return {_HEAD}u + {_NOTES_OF_ELEMENT}u * (watch_group * {elements}u + min(element, {elements - 1}u));
}}

fn watch_read(first: u32, index: u32, line: u32) -> u32 {{
    let at = watch_notes_of(first + index);
    watch_leave(at + 2u);
    if (watch_others(at)) {{ watch_tell(first + index, line); }}
    return index;
}}

fn watch_write(first: u32, index: u32, line: u32) -> u32 {{
    let at = watch_notes_of(first + index);
    watch_leave(at);
    if (watch_others(at) || watch_others(at + 2u)) {{ watch_tell(first + index, line); }}
    return index;
}}

fn watch_change(first: u32, index: u32, line: u32) -> u32 {{
    watch_leave(watch_notes_of(first + index) + 2u);
    return watch_write(first, index, line);
}}
"""
