"""Rewritten texts of webnorm's kernels that use one more feature of WebGPU or WGSL than the kernels do.

Each rewrite changes the text of a rendered shader, so that the feature is the only difference. A rewrite
returns None for a shader in which the feature changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from webnorm.choice.defaults import choose, default_variant
from webnorm.gpu.device import Device
from webnorm.kernels.headers.library import discover
from webnorm.kernels.headers.traits import IMMEDIATES, SUBGROUP_SIZE_CONTROL, Traits
from webnorm.kernels.headers.variants import Variant
from webnorm.kernels.rendering.render import Shader
from webnorm.lab.verify.problem_buffers import ProblemBuffers
from webnorm.op.op import Task

# Columns for which a subgroup of 32 invocations holds a row.
_SHORT_ROWS = ((65535, 128), (65535, 256))
_FEW_ROWS = ((1, 1024), (1, 8192), (16, 1024), (64, 4096))
_MANY_ROWS = ((65536, 256), (16384, 1024), (4096, 8192))
_ODD_ROWS = ((16384, 1023), (4096, 4095))
_NORMS = ("layer_norm", "rms_norm")
_ALL_OPS = (*_NORMS, "layer_norm_backward")
_ENTRY = re.compile(r"@compute @workgroup_size\((\d+)\)")
_BUILTIN = re.compile(r"    @builtin\(subgroup_size\) subgroup_size: u32,\n")
_STORAGE = re.compile(r"var<storage, (\w+)> (\w+): array<(vec[24]<[fu]32>)>;")
_BYTES = {"vec4<f32>": 16, "vec4<u32>": 16, "vec2<u32>": 8}


def auto_choice(task: Task, traits: Traits) -> Variant:
    """Return the variant that auto chooses."""
    return choose(discover(), task, traits).variant


@dataclass(frozen=True)
class Rewrite:
    """A use of a feature, and the problems in which it may help.

    `base` returns the variant to compare with on an adapter; None if there is none.
    """

    name: str
    feature: str
    what: str
    apply: Callable[[ProblemBuffers, Variant], Shader | None]
    ops: tuple[str, ...] = _ALL_OPS
    shapes: tuple[tuple[int, int], ...] = (*_FEW_ROWS, *_MANY_ROWS)
    dtypes: tuple[str, ...] = ("float32", "float16")
    base: Callable[[Task, Traits], Variant | None] = auto_choice


def _using(shader: Shader, feature: str, text: str, *directives: str) -> Shader:
    """Return a shader with another text, which uses one more feature."""
    directives = tuple(f"{one};\n" for one in directives)
    return replace(shader, text="".join(directives) + text, features=shader.features | {feature})


def unchanged(board: ProblemBuffers, variant: Variant) -> Shader:
    """Return the same text with another comment, whose times differ only by noise."""
    shader = board.render(variant)
    return replace(shader, text=f"// the same again\n{shader.text}")


def immediates(board: ProblemBuffers, variant: Variant) -> Shader | None:
    """Pass the parameters as immediates."""
    kernel = variant.kernel
    own = replace(kernel, features={**kernel.features, IMMEDIATES: 1})
    shader = board.render(Variant(own, variant.constants))
    return shader if "var<immediate>" in shader.text else None


def linear_indexing(board: ProblemBuffers, variant: Variant) -> Shader | None:
    """Read the number of the workgroup from a built-in value."""
    shader = board.render(variant)
    computed = "    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;\n"
    if computed not in shader.text:
        return None
    text = shader.text.replace(computed, "")
    builtins = "@builtin(workgroup_index) workgroup: u32,\n    @builtin(workgroup_id)"
    text = text.replace("@builtin(workgroup_id)", builtins)
    return _using(shader, "linear_indexing", text, "requires linear_indexing")


def fixed_subgroups(board: ProblemBuffers, variant: Variant) -> Shader | None:
    """Fix the size of subgroups, so that it is a constant of the text."""
    shader = board.render(variant)
    text = _with_constant_size(board.device, shader.text)
    if text is None:
        return None
    return _using(shader, SUBGROUP_SIZE_CONTROL, text, "enable subgroup_size_control")


def _with_constant_size(device: Device, text: str) -> str | None:
    size = device.subgroup_size
    if size is None or not _BUILTIN.search(text):
        return None
    # Passes without subgroups keep the driver's choice.
    head, *entries = re.split(r"(?=@compute )", text)
    fixed = []
    for entry in entries:
        threads = _ENTRY.match(entry)
        if _BUILTIN.search(entry.partition("{")[0]) and threads and int(threads[1]) % size == 0:
            fixed.append(f"@subgroup_size({size}) {_BUILTIN.sub('', entry)}")
        elif _BUILTIN.search(entry):
            return None
        else:
            fixed.append(entry)
    whole = head + "".join(fixed)
    whole = re.sub(r", lane(: u32)?, subgroup_size(: u32)?\)", r", lane\1)", whole)
    return whole.replace("struct Params {", f"const subgroup_size = {size}u;\n\nstruct Params {{", 1)


def subgroup_rows(board: ProblemBuffers, variant: Variant) -> Shader | None:
    """End the subgroups of rows that do not exist, and leave out the clamp of the row."""
    shader = board.render(variant)
    text = _with_constant_size(board.device, shader.text)
    if text is None or variant.constants["threads_per_row"] != board.device.subgroup_size:
        return None
    # A subgroup has its own row, so that no sum passes through workgroup memory.
    text = re.sub(r"    if \(subgroup_size < THREADS\) \{\n.*?\n    \}\n", "", text, flags=re.DOTALL)
    for old, new in (
        ("let thread = place % THREADS;", "let thread = lane;"),
        ("place / THREADS;", "subgroup;"),
        ("let row_exists = row_index < params.rows;", "if (row_index >= params.rows) { return; }"),
        ("let row = min(row_index, params.rows - 1u);", "let row_exists = true;\n    let row = row_index;"),
    ):
        if old not in text:
            return None
        text = text.replace(old, new)
    directives = ("enable subgroup_size_control", "requires subgroup_uniformity")
    return _using(shader, "subgroup_uniformity", text, *directives)


def one_row_per_subgroup(task: Task, traits: Traits) -> Variant | None:
    """Return the variant of `registers` with four rows per workgroup, each for a subgroup."""
    kernel = next(one for one in discover() if (one.op, one.name) == (task.op, "registers"))
    sizes = {"threads_per_row": traits.subgroup_max_size, "rows_per_workgroup": 4, "subgroups": 1}
    return Variant(kernel, {**default_variant(kernel, task.problem, traits).constants, **sizes})


def views(board: ProblemBuffers, variant: Variant) -> Shader | None:
    """Access buffers through views of the type that they were declared with."""
    shader = board.render(variant)
    text = shader.text
    for access, name, kind in _STORAGE.findall(text):
        text = text.replace(
            f"var<storage, {access}> {name}: array<{kind}>;", f"var<storage, {access}> {name}: buffer;"
        )
        text = _indexed(text, name, f"(*bufferView<{kind}>(&{name}, {_BYTES[kind]}u * ({{}})))")
    if text == shader.text:
        return None
    return _using(shader, "buffer_view", text, "requires buffer_view")


def _indexed(text: str, name: str, form: str) -> str:
    """Return a text with `form` in place of each index expression of a variable."""
    parts, at = [], 0
    for found in re.finditer(rf"\b{name}\[", text):
        depth, end = 1, found.end()
        while depth:
            depth += {"[": 1, "]": -1}.get(text[end], 0)
            end += 1
        parts += [text[at : found.start()], form.format(text[found.end() : end - 1])]
        at = end
    return "".join(parts) + text[at:]


def odd_rows_in_vectors(board: ProblemBuffers, variant: Variant) -> Shader | None:
    """Store whole vectors inside odd rows, and single elements at their edges."""
    constants = {**variant.constants, "vector_width": 4}
    constants["threads_per_row"] = max(32, variant.constants["threads_per_row"] // 2)
    wide = Variant(variant.kernel, constants)
    if wide.refusal(board.problem, board.device.traits):
        return None
    shader = board.render(wide)
    stores = re.compile(r"(    if \(all\(wanted\)\) \{\n)(?:        y\[4u \* at \+ \du\] = .*\n){4}")
    if not stores.search(shader.text):
        return None
    text = stores.sub(r"\1        *bufferView<vec4<f32>>(&y, 16u * at) = value;\n", shader.text)
    text = text.replace("var<storage, read_write> y: array<f32>;", "var<storage, read_write> y: buffer;")
    text = _indexed(text, "y", "(*bufferView<f32>(&y, 4u * ({})))")
    return _using(shader, "buffer_view", text, "requires buffer_view")


def four_columns(task: Task, traits: Traits) -> Variant | None:
    """Return auto's choice with accesses of four columns."""
    variant = auto_choice(task, traits)
    known = "vector_width" in variant.constants
    return Variant(variant.kernel, {**variant.constants, "vector_width": 4, "parked": 0}) if known else None


def half_conversions(board: ProblemBuffers, variant: Variant) -> Shader | None:
    """Load and store float16 types instead of words; naga 29 cannot cast words to float16."""
    shader = board.render(variant)
    text = shader.text
    for old, new in (
        (r"vec4<u32>", "array<vec4<f16>, 2>"),
        (r"vec2<u32>", "vec4<f16>"),
        (r"select\(raw\.xy, raw\.zw, j % 2u == 1u\)", "raw[j % 2u]"),
        (r"= vec4\((encode_float16.*)\);", r"= array<vec4<f16>, 2>(\1);"),
        (r"(fn decode_float16\([^\n]*\n).*?\n\}", r"\1    return vec4<f32>(raw);\n}"),
        (r"(fn encode_float16\([^\n]*\n).*?\n\}", r"\1    return vec4<f16>(value);\n}"),
    ):
        text = re.sub(old, new, text, flags=re.DOTALL if "fn" in old else 0)
    if "fn decode_float16(" not in text or "_words0" in text:
        return None
    return _using(shader, "shader-f16", text, "enable f16")


def half_arithmetic(board: ProblemBuffers, variant: Variant) -> Shader | None:
    """Multiply by the weight and add the bias in float16."""
    shader = half_conversions(board, variant)
    if shader is None:
        return None
    lines = re.compile(r"let (y\d+) = (\(.*\)) \* (weight_of\(.*?\))(?: \+ (bias_of\(.*?\)))?;")

    def halves(line: re.Match[str]) -> str:
        added = f" + vec4<f16>({line[4]})" if line[4] else ""
        return f"let {line[1]} = Vec(vec4<f16>({line[2]}) * vec4<f16>({line[3]}){added});"

    text = lines.sub(halves, shader.text)
    return None if text == shader.text else replace(shader, text=text)


REWRITES = (
    Rewrite("control", "", "the same text twice", unchanged, _NORMS, ((1, 1024), (16384, 1024))),
    Rewrite("immediates", IMMEDIATES, "parameters as immediates, not as a uniform buffer", immediates),
    Rewrite(
        "linear indexing",
        "linear_indexing",
        "the workgroup's number from `workgroup_index`, not from two built-in vectors",
        linear_indexing,
        _NORMS,
    ),
    Rewrite(
        "subgroup size",
        SUBGROUP_SIZE_CONTROL,
        "`@subgroup_size` with the adapter's size, and sums for this size alone",
        fixed_subgroups,
    ),
    Rewrite(
        "subgroup rows",
        "subgroup_uniformity",
        "a subgroup without a row returns early, where a clamp would repeat the last row",
        subgroup_rows,
        _NORMS,
        _SHORT_ROWS,
        base=one_row_per_subgroup,
    ),
    Rewrite("views", "buffer_view", "each access through a view of the declared type", views),
    Rewrite(
        "odd rows",
        "buffer_view",
        "rows of odd length in vectors of four, where auto takes single elements",
        odd_rows_in_vectors,
        _NORMS,
        _ODD_ROWS,
        ("float32",),
    ),
    Rewrite(
        "half conversions",
        "shader-f16",
        "conversions by float16 types, not by `unpack2x16float`",
        half_conversions,
        dtypes=("float16",),
    ),
    Rewrite(
        "half conversions, 8 bytes",
        "shader-f16",
        "the same, where the kernel of webnorm also accesses 8 bytes at a time, not 16",
        half_conversions,
        _NORMS,
        dtypes=("float16",),
        base=four_columns,
    ),
    Rewrite(
        "half arithmetic",
        "shader-f16",
        "weight and bias applied in float16",
        half_arithmetic,
        _NORMS,
        dtypes=("float16",),
    ),
)
