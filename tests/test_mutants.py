"""Does the harness see a broken kernel? Each mutant breaks one line of a real template and has to be caught.

What no run can catch is in SURVIVORS with the reason, and is held to survive: when one starts to fail, the
reason has become wrong.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from lab import kernel_named, run_shader

from webnorm.device import Device, adapters, open_device
from webnorm.kernel import Variant, default_variant, load, wgsl_root
from webnorm.problem import Array, Options, Problem
from webnorm.render import Shader, Target, render_shader


@dataclass(frozen=True)
class Probe:
    """One run of a kernel: hard rows, or those of `x`. `constants` go before the kernel's defaults."""

    kernel: str
    rows: int
    cols: int
    constants: tuple[tuple[str, int], ...] = ()
    x: str = "hard"
    options: Options = Options()
    eps: float = 1e-5
    target: Target = "native"

    @property
    def problem(self) -> Problem:
        return Problem(
            rows=self.rows, cols=self.cols, eps=self.eps, distribution="given", options=self.options
        )


def probe(kernel: str, shape: tuple[int, int], x: str = "hard", *, plain: bool = False, **more: int) -> Probe:
    options = Options(weight=False, bias=False) if plain else Options()
    target: Target = "browser" if more.pop("browser", 0) else "native"
    eps = 1e-12 if x == "constant" else 1e-5
    return Probe(kernel, *shape, tuple(more.items()), x, options, eps, target)


# Small shapes where something is uneven: tails, rows shorter and longer than a subgroup, several rows to a
# workgroup, a last workgroup that is not full, several slices and a grid of two dimensions.
PROBES = (
    probe("registers", (13, 131), threads_per_row=8, rows_per_workgroup=4, vector_width=4),
    probe("registers", (13, 132), threads_per_row=4, rows_per_workgroup=8, vector_width=4),
    probe("registers", (7, 132), threads_per_row=32, rows_per_workgroup=2, vector_width=1),
    probe("registers", (7, 256), threads_per_row=64, rows_per_workgroup=2, vector_width=4),
    probe("registers", (7, 515), threads_per_row=512, rows_per_workgroup=2, vector_width=1),
    probe("registers", (7, 515), threads_per_row=128, rows_per_workgroup=2, vector_width=4, browser=1),
    probe("registers", (7, 131), threads_per_row=8, rows_per_workgroup=2, subgroups=0),
    probe("registers", (7, 515), threads_per_row=256, rows_per_workgroup=2, subgroups=0),
    probe("registers", (7, 131), threads_per_row=8, rows_per_workgroup=1, hi_lo_mean=0),
    probe("registers", (300, 131), threads_per_row=8, rows_per_workgroup=4),
    probe("registers", (2, 4096), "huge", plain=True, threads_per_row=64, rows_per_workgroup=1),
    probe("registers", (6, 4095), "constant", plain=True, threads_per_row=64, rows_per_workgroup=1),
    probe("two_pass", (7, 131), threads_per_row=8),
    probe("two_pass", (7, 515), threads_per_row=256),
    probe("two_pass", (2, 4096), "huge", plain=True, threads_per_row=32),
    probe("two_pass", (7, 131), threads_per_row=32, hi_lo_mean=0),
    probe("naive", (40, 131), workgroup_size=32),
    probe("naive", (2, 4096), "huge", plain=True, workgroup_size=32),
    probe("naive", (300, 131), workgroup_size=32),
    probe("naive", (3, 20003), "near", workgroup_size=32),
    probe("welford", (7, 131), threads_per_row=8),
    probe("welford", (7, 3), threads_per_row=16),
    probe("welford", (7, 515), threads_per_row=256),
    probe("welford", (2, 4096), "huge", plain=True, threads_per_row=8),
    probe("welford_subgroup", (13, 131), threads_per_row=8, rows_per_workgroup=4, vector_width=4),
    probe("welford_subgroup", (7, 132), threads_per_row=64, rows_per_workgroup=2, vector_width=4),
    probe("welford_subgroup", (7, 515), threads_per_row=512, rows_per_workgroup=2, vector_width=1),
    probe("one_pass", (7, 131), "near", threads_per_row=8),
    probe("one_pass", (7, 515), "near", threads_per_row=256),
    probe("copy", (37, 131), workgroup_size=64, accesses=4),
    probe("copy", (301, 131), workgroup_size=64, accesses=4),
)


@lru_cache
def arrays_of(one: Probe) -> Mapping[str, Array]:
    rng = np.random.default_rng(5)
    rows, cols = one.rows, one.cols
    x = rng.standard_normal((rows, cols))
    if one.x == "hard":
        # Far from 0, so small that eps decides, and so far from 0 that the mean needs its second word.
        scale, mean = np.array([(1, 0), (1, 300), (1e-3, 0), (0.1, 7), (1, 1e6)]).T
        kind = np.arange(rows) % 5
        x = x * scale[kind, None] + mean[kind, None]
    elif one.x == "near":
        x += 0.5
    elif one.x == "huge":
        x *= 1e18
    elif one.x == "constant":
        x = np.broadcast_to(np.array([3.3333, 1e6 / 3, 1e7 / 3, 1e7 / 7, 1234.0, 9876543.2])[:, None], x.shape)
    arrays: dict[str, Array] = {"x": x.astype(np.float32)}
    if one.options.weight:
        arrays["weight"] = (rng.random(cols) + 0.5).astype(np.float32)
    if one.options.bias:
        arrays["bias"] = (rng.random(cols) - 0.5).astype(np.float32)
    return arrays


def shader_of(one: Probe, root: Path, device: Device) -> Shader:
    kernel = kernel_named(one.kernel)
    kernel = load(root / kernel.op.name / f"{kernel.name}.wgsl")
    constants = {
        **default_variant(kernel, one.problem, device.traits).constants,
        **dict(one.constants),
    }
    variant = Variant(kernel, constants)
    assert variant.refusal(one.problem, device.traits) is None
    shader = render_shader(variant, one.problem, one.target, device.traits)
    # naga has subgroups without asking and does not know the line that Tint needs.
    text = shader.text.replace("enable subgroups;", "")
    return Shader(**{**vars(shader), "text": text})


def failure(one: Probe, root: Path, device: Device) -> str | None:
    """Why the run is wrong; None when it is right."""
    _, accuracy = run_shader(device, shader_of(one, root, device), arrays_of(one))
    return None if accuracy.ok else accuracy.reason


@dataclass(frozen=True)
class Mutant:
    """`old`, which stands once in wgsl/`file`, becomes `new`. `equivalent` says why no run can tell."""

    name: str
    file: str
    old: str
    new: str
    equivalent: str = ""

    def __str__(self) -> str:
        return f"{Path(self.file).stem}: {self.name}"


REDUCE, LOCATE, ROW = "lib/reduce.wgsl", "lib/locate.wgsl", "lib/row.wgsl"
SWEEP, STATISTICS, AFFINE = "lib/sweep.wgsl", "lib/statistics.wgsl", "lib/affine.wgsl"
INTERFACE, WELFORD = "lib/interface.wgsl", "lib/welford.wgsl"
REGISTERS, TWO_PASS, NAIVE = "layer_norm/registers.wgsl", "layer_norm/two_pass.wgsl", "layer_norm/naive.wgsl"
ONE_PASS, COPY = "layer_norm/one_pass.wgsl", "copy/copy.wgsl"

MUTANTS = (
    # Reductions: barriers, butterflies, partial sums.
    Mutant("no barrier between subgroups", REDUCE, "{{ barrier() }}\n        let count", "let count"),
    Mutant(
        "no barrier before the partials are read",
        REDUCE,
        "[place] = value;\n    {{ barrier() }}\n{% for level",
        "[place] = value;\n{% for level",
    ),
    Mutant("no barrier between levels", REDUCE, "    }\n    {{ barrier() }}\n{% endfor %}", "    }\n{% endfor %}"),
    Mutant("butterfly stops early", REDUCE, "if 2 ** power < limit", "if 2 ** power * 2 < limit"),
    Mutant("butterfly skips the last", REDUCE, "if ({{ offset }}u <", "if ({{ offset * 2 }}u <"),
    Mutant("wrong lane", REDUCE, "ShuffleXor(value, {{ offset }}u)", "ShuffleXor(value, {{ offset * 2 }}u)"),
    Mutant("another row's partials", REDUCE, "[first + lane % count]", "[lane % count]"),
    Mutant("wrong first partial", REDUCE, "place / THREADS * count", "place / THREADS"),
    Mutant("partials counted twice", REDUCE, "var i = lane + subgroup_size;", "var i = lane;"),
    Mutant("partials past the first few ignored", REDUCE, "i < count; i +=", "i < subgroup_size; i +="),
    Mutant("copies of partials added", REDUCE, "min(count, subgroup_size)", "subgroup_size"),
    Mutant("another row's values", REDUCE, "let first = place - place % THREADS;", "let first = 0u;"),
    Mutant("seven of eight", REDUCE, "range(1, 8) %}\n        value", "range(1, 7) %}\n        value"),
    Mutant("last level left out", REDUCE, 'select("le", 8)', 'select("lt", 8)'),
    # Who works on what.
    Mutant("second grid dimension ignored", LOCATE, "workgroup_id.y * workgroups.x + ", ""),
    Mutant("wrong grid stride", LOCATE, "workgroup_id.y * workgroups.x", "workgroup_id.y * workgroups.y"),
    Mutant("threads past the row", LOCATE, "place % THREADS", "place"),
    Mutant(
        "rows left out", LOCATE, "workgroup * {{ rows_per_workgroup }}u", "workgroup * {{ rows_per_workgroup + 1 }}u"
    ),
    Mutant(
        "rows past the last are stored",
        LOCATE,
        "row_index < params.rows;\n    let row = min(row_index, params.rows - 1u);",
        "true;\n    let row = row_index;",
    ),
    Mutant("last row left out", LOCATE, "row_index < params.rows", "row_index + 1u < params.rows"),
    Mutant("drawn number not shared", LOCATE, "subgroupBroadcastFirst(drawn)", "drawn"),
    Mutant("every subgroup the first", LOCATE, "subgroup * subgroup_size + lane", "lane"),
    # Rows and columns.
    Mutant("row stride off by one", ROW, "row * COLS", "row * (COLS + 1u)"),
    Mutant("slice's start ignored", ROW, "(params.start + row * COLS)", "(row * COLS)"),
    Mutant("no tail mask", ROW, '"value" if whole else "select(otherwise, value, live(j, thread))"', '"value"'),
    Mutant("one column too many", ROW, "< ACCESSES;", "<= ACCESSES;"),
    Mutant("one column too many, strided", ROW, "< vec4(COLS)", "<= vec4(COLS)"),
    Mutant("one column too few", ROW, "< ACCESSES;", "< ACCESSES - 1u;"),
    Mutant("a column twice", ROW, "vec4(0u, 1u, 2u, 3u)) *", "vec4(0u, 1u, 2u, 2u)) *"),
    Mutant("wrong column stride", ROW, "return j * THREADS + thread;", "return j * (THREADS + 1u) + thread;"),
    Mutant("store not masked", ROW, '"live(j, thread) & " ~ ', ""),
    Mutant("a component left out of the sum", ROW, "(value.z + value.w)", "(value.z + value.z)"),
    Mutant("components swapped in the store", ROW, "= value.{{ c }}; }", "= value.{{ 'yxwz'['xyzw'.index(c)] }}; }"),
    Mutant("last step left out", SWEEP, "j < STEPS", "j + 1u < STEPS"),
    Mutant("long loop repeats a step", SWEEP, "let j = first + {{ k }}u;", "let j = first;"),
    # The formula.
    Mutant("N - 1 for N in the variance", INTERFACE, "1.0 / f32(COLS)", "1.0 / f32(max(COLS, 2u) - 1u)"),
    Mutant("N - 1 for N in the second word", STATISTICS, "deviation / f32(COLS)", "deviation / f32(COLS - 1u)"),
    Mutant("second word left in the variance", STATISTICS, "spread - low * low", "spread"),
    Mutant("variance not clamped", STATISTICS, "max(spread - low * low, 0.0)", "(spread - low * low)"),
    Mutant(
        "eps outside the root",
        STATISTICS,
        "inverseSqrt(max(spread - low * low, 0.0) + params.eps)",
        "inverseSqrt(max(spread - low * low, 0.0)) + params.eps",
    ),
    Mutant("eps outside the root, one word", STATISTICS, "inverseSqrt(spread + params.eps)", "inverseSqrt(spread)"),
    Mutant("standard deviation for its inverse", STATISTICS, "= inverseSqrt(spread +", "= sqrt(spread +"),
    Mutant("bias for weight", AFFINE, "load_weight(j, thread)", "load_bias(j, thread)"),
    Mutant("weight for bias", AFFINE, "load_bias(j, thread)", "load_weight(j, thread)"),
    Mutant("bias subtracted", AFFINE, '" + load_bias', '" - load_bias'),
    Mutant("no bias", AFFINE, '" + load_bias(j, thread)" if has_bias', '""'),
    Mutant("parameters of the first step", AFFINE, "load_weight(j, thread)", "load_weight(0u, thread)"),
    Mutant("N - 1 for N in the mean", REGISTERS, "subgroup_size) / f32(COLS)", "subgroup_size) / f32(COLS - 1u)"),
    Mutant("no second word", REGISTERS, "(d{{ j }} - low)", "d{{ j }}"),
    Mutant("second word's sign", REGISTERS, "(d{{ j }} - low)", "(d{{ j }} + low)"),
    Mutant("a step left out of the mean", REGISTERS, "range(1, steps)", "range(2, steps)"),
    Mutant("deviations' sign", REGISTERS, "deviations += d{{ j }}", "deviations -= d{{ j }}"),
    Mutant("square before division", REGISTERS, "(d{{ j }} * PER_COLUMN)", "d{{ j }} * PER_COLUMN"),
    Mutant("dead columns in the deviations", REGISTERS, "where_live(x{{ j }} - mean, Vec(), {{ j }}u, thread)",
           "x{{ j }} - mean"),
    Mutant("no second word", TWO_PASS, "- mean - low)", "- mean)"),
    Mutant("square before division", TWO_PASS, "d * (d * PER_COLUMN)", "d * d * PER_COLUMN"),
    Mutant("the pivot not added back", TWO_PASS, "let mean = pivot + sum_x", "let mean = sum_x"),
    Mutant("second word's sign", NAIVE, "- mean - low)", "- mean + low)"),
    Mutant("square before division", NAIVE, "d * (d * PER_COLUMN)", "d * d * PER_COLUMN"),
    Mutant("last deviation only", NAIVE, "deviation += d;", "deviation = d;"),
    Mutant("squared mean's sign", ONE_PASS, "moments.y - mean * mean", "moments.y + mean * mean"),
    Mutant("wrong count", WELFORD, "f32(j + 1u)", "f32(j + 2u)"),
    Mutant("counts ignored in a join", WELFORD, "a.x + delta * share", "a.x + delta * 0.5"),
    Mutant("distance of the means ignored", WELFORD, "a.y + b.y + delta *", "a.y + b.y + 0.0 * delta *"),
    Mutant("weight of a join's distance", WELFORD, "(a.z * share)", "(b.z * share)"),
    Mutant("join of nothing with nothing", WELFORD, "b.z / max(count, 1.0)", "b.z / count"),
    Mutant("dead columns counted", WELFORD, "where_live(Vec(1.0), Vec(), j, thread)", "Vec(1.0)"),
    Mutant("dead columns in the mean", WELFORD, "where_live(next, mean, j, thread)", "next"),
    Mutant("old distance squared", WELFORD, "((value - next) * PER_COLUMN)", "(delta * PER_COLUMN)"),
    Mutant("a component joined twice", WELFORD, "Moments(mean.w, spread.w, count.w)",
           "Moments(mean.z, spread.z, count.z)"),
    Mutant("square before division", WELFORD, "delta * ((value - next) * PER_COLUMN)",
           "delta * (value - next) * PER_COLUMN"),
    Mutant("one element past the end", COPY, "if (at{{ k }} < count)", "if (at{{ k }} <= count)"),
    Mutant("a row off", COPY, "value{{ k }} = x[start + min", "value{{ k }} = x[start + COLS + min"),
    Mutant("start ignored", COPY, "y[start + at{{ k }}]", "y[at{{ k }}]"),
)

SURVIVORS = (
    Mutant("another lane stores the partial", REDUCE, "if (lane == 0u) { {{ partials }}",
           "if (lane == 1u) { {{ partials }}",
           "after the butterfly every lane of a subgroup holds the same bits"),
    Mutant("joins in the other order", REDUCE, "(lane & {{ offset }}u) != 0u", "(lane & {{ offset }}u) == 0u",
           "joining two runs is symmetric but for rounding"),
    Mutant("rows past the last are not held back", LOCATE, "row_index < params.rows;", "true;",
           "the clamp makes them the last row, whose very bits are stored once more"),
    Mutant("rows past the last are not clamped", LOCATE, "min(row_index, params.rows - 1u)", "row_index",
           "reads past a buffer are bounds-checked and the store is guarded"),
    Mutant("invocations in their own order", LOCATE, "subgroup * subgroup_size + lane", "invocation",
           "llvmpipe's lanes are linear in local_invocation_index, which WGSL does not promise"),
    Mutant("column not clamped", ROW, '{{ "columns(j, thread)" if whole else ', '{{ "columns(j, thread)" if true else ',
           "what lies past the row is masked after the load, and bounds-checked past the buffer"),
    Mutant("element not clamped", COPY, "min(at{{ k }}, count - 1u)", "at{{ k }}",
           "what was read past the end is not stored"),
)


@pytest.fixture(scope="module")
def small() -> Iterator[Device]:
    """A device of small limits, so that small problems take several slices and grids of two dimensions."""
    if not adapters():
        pytest.skip("wgpu finds no adapter; `webnorm doctor --mend` installs one")
    opened = open_device(
        limits={"max-storage-buffer-binding-size": 131072, "max-compute-workgroups-per-dimension": 8}
    )
    if "llvmpipe" not in opened.adapter.name:
        pytest.skip(f"{opened.adapter.name}: races and subgroup sizes are those of llvmpipe")
    yield opened


@pytest.mark.parametrize("one", PROBES, ids=lambda one: f"{one.kernel}-{one.rows}x{one.cols}")
def test_the_probes_pass(one: Probe, small: Device) -> None:
    assert failure(one, wgsl_root(), small) is None


def outcomes(mutant: Mutant, folder: Path, device: Device) -> Iterator[str | None]:
    """The mutant's outcome on every probe whose text it changes."""
    shutil.copytree(wgsl_root(), folder)
    file = folder / mutant.file
    source = file.read_text(encoding="utf-8")
    assert source.count(mutant.old) == 1, f"{mutant.old!r} stands {source.count(mutant.old)} times in {mutant.file}"
    file.write_text(source.replace(mutant.old, mutant.new), encoding="utf-8")
    changed = [
        one
        for one in PROBES
        if shader_of(one, folder, device).text != shader_of(one, wgsl_root(), device).text
    ]
    assert changed, "the mutant changes no rendered text"
    for one in changed:
        yield failure(one, folder, device)


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_mutants_die(mutant: Mutant, tmp_path: Path, small: Device) -> None:
    assert any(reason is not None for reason in outcomes(mutant, tmp_path / "wgsl", small))


@pytest.mark.parametrize("mutant", SURVIVORS, ids=str)
def test_survivors_are_equivalent(mutant: Mutant, tmp_path: Path, small: Device) -> None:
    assert mutant.equivalent
    assert list(filter(None, outcomes(mutant, tmp_path / "wgsl", small))) == []
