"""Small shaders that isolate what compilers add to WGSL, and counts of the instructions that they generate.

Each shader differs from its neighbour in one respect: an index that may be out of bounds, workgroup memory
that WGSL promises to be zero, a loop whose end is unknown, or a division whose divisor may be zero.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench import markdown

# The bytes of the source and of the target. Together they exceed the caches of an H200.
GPU_BYTES, SOFTWARE_BYTES = 128 << 20, 1 << 15
# Values that no compiler knows: a trip count, a mask and a divisor.
NUMBERS = (32, 1, 7, 8)
# A workgroup of 256 invocations copies a vec4f per invocation.
WORKGROUP_BYTES = 256 * 16
_HEAD = """
@group(0) @binding(0) var<storage, read> source: array<vec4f>;
@group(0) @binding(1) var<storage, read_write> target_: array<vec4f>;
@group(0) @binding(2) var<storage, read> numbers: array<u32>;
"""
_MAIN = """
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
    let i = group.x * 256u + lane;
"""
_TILE = "var<workgroup> tile: array<vec4f, {}>;"
_THROUGH_TILE = "tile[lane] = source[i]; workgroupBarrier(); target_[i] = tile[lane ^ {}];"
_STEP = "sum = sum * 0.5 + vec4f(1.0);"
_SUMMING = "var sum = source[i]; {} target_[i] = sum;"
_DIVIDING = (
    "var at = i; for (var k = 0u; k < 32u; k++) {{ at = at / {0} + at % {0} + k; }}"
    " target_[i] = source[i] + f32(at);"
)
_MANY = (
    "let first = group.x * 2048u + lane; var held: array<vec4f, 8>;"
    " for (var k = 0u; k < {0}; k++) {{ held[k] = source[first + k * 256u]; }}"
    " for (var k = 0u; k < {0}; k++) {{ target_[first + k * 256u] = held[k]; }}"
)


@dataclass(frozen=True)
class SmallShader:
    """A shader, and the number of vec4f that each of its invocations copies."""

    name: str
    text: str
    per_invocation: int = 1


def _shader(name: str, body: str, declared: str = "", per_invocation: int = 1) -> SmallShader:
    return SmallShader(name, f"{_HEAD}{declared}{_MAIN}    {body}\n}}\n", per_invocation)


VARIANTS = (
    _shader("copy", "target_[i] = source[i];"),
    _shader(
        "copy, index clamped by hand",
        "let j = min(i, arrayLength(&source) - 1u); target_[min(i, arrayLength(&target_) - 1u)] = source[j];",
    ),
    _shader("copy, 8 per invocation, constant trips", _MANY.format("8u"), per_invocation=8),
    _shader("copy, 8 per invocation, trips from a buffer", _MANY.format("numbers[3]"), per_invocation=8),
    _shader("through 4 KiB of workgroup memory", _THROUGH_TILE.format("1u"), _TILE.format(256)),
    _shader("through 4 KiB of 16 KiB of workgroup memory", _THROUGH_TILE.format("1u"), _TILE.format(1024)),
    _shader("through 4 KiB, index from a buffer", _THROUGH_TILE.format("numbers[1]"), _TILE.format(256)),
    _shader("32 steps, constant trips", _SUMMING.format(f"for (var k = 0u; k < 32u; k++) {{ {_STEP} }}")),
    _shader(
        "32 steps, trips from a buffer",
        _SUMMING.format(f"for (var k = 0u; k < numbers[0]; k++) {{ {_STEP} }}"),
    ),
    _shader(
        "32 steps of fma, constant trips",
        _SUMMING.format("for (var k = 0u; k < 32u; k++) { sum = fma(sum, vec4f(0.5), vec4f(1.0)); }"),
    ),
    _shader("32 divisions, constant divisor", _DIVIDING.format("7u")),
    _shader("32 divisions, divisor from a buffer", _DIVIDING.format("numbers[2]")),
)

# Instructions of SPIR-V that safety measures consist of, by opcode.
_OPCODES = {
    12: "OpExtInst", 57: "OpFunctionCall", 61: "OpLoad", 62: "OpStore", 65: "OpAccessChain",
    66: "OpInBoundsAccessChain", 68: "OpArrayLength", 134: "OpUDiv", 137: "OpUMod", 169: "OpSelect",
    224: "OpControlBarrier", 246: "OpLoopMerge", 247: "OpSelectionMerge", 250: "OpBranchConditional",
}  # fmt: skip
# Functions of GLSL.std.450, which OpExtInst calls.
# NMin, NMax and NClamp also say what a NaN gives.
_FUNCTIONS = {
    37: "FMin", 38: "UMin", 40: "FMax", 43: "FClamp", 44: "UClamp", 50: "Fma", 79: "NMin", 80: "NMax",
    81: "NClamp",
}  # fmt: skip
_EXTENDED, _DECORATE, _NO_CONTRACTION = 12, 71, 42
_HEADER_WORDS = 5


def instructions(module: bytes) -> Iterator[str]:
    """Yield the names of a SPIR-V module's instructions that safety measures consist of."""
    words = struct.unpack(f"<{len(module) // 4}I", module)
    at = _HEADER_WORDS
    while at < len(words):
        opcode, count = words[at] & 0xFFFF, max(1, words[at] >> 16)
        if opcode == _EXTENDED and words[at + 4] in _FUNCTIONS:
            yield _FUNCTIONS[words[at + 4]]
        elif opcode in _OPCODES:
            yield _OPCODES[opcode]
        elif opcode == _DECORATE and words[at + 2] == _NO_CONTRACTION:
            yield "NoContraction"
        at += count


def instruction_table(modules: Mapping[str, Sequence[bytes]]) -> list[str]:
    """Return a Markdown table of the instructions whose numbers differ between settings."""
    counts = {
        name: Counter(one for module in own for one in instructions(module)) for name, own in modules.items()
    }
    names = sorted({name for own in counts.values() for name in own})
    lines = markdown.head("instruction", [*counts])
    for name in names:
        row = [own[name] for own in counts.values()]
        if len({*row}) > 1:
            lines.append(markdown.row([name, *map(str, row)]))
    return lines
