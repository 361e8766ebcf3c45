"""Broken kernels must not pass: each mutant changes one thing in a real template and has to be caught."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from lab import run_shader
from webnorm.device import Device
from webnorm.kernel import Variant, default_variant, load, wgsl_root
from webnorm.problem import Array, Options, Problem, make_inputs
from webnorm.render import render_shader


@dataclass(frozen=True)
class Mutant:
    """`old` becomes `new` in a file of wgsl/; `kernels` are tried until one is caught.

    `equivalent` is the reason why a survivor is no fault of the harness.
    """

    name: str
    file: str
    old: str
    new: str
    kernels: tuple[str, ...] = ("registers",)
    equivalent: str | None = None


REDUCE, ROW, WELFORD = "lib/reduce.wgsl", "lib/row.wgsl", "lib/welford.wgsl"
MUTANTS = (
    Mutant("N - 1 for N in the mean", "layer_norm/registers.wgsl", "/ f32(COLS);", "/ f32(COLS - 1u);"),
    Mutant("N - 1 for N in naive", "layer_norm/naive.wgsl", "sum / f32(COLS)", "sum / f32(COLS - 1u)", ("naive",), equivalent="the second word gives back whatever the mean is off by, and the pivot keeps that small"),
    Mutant("N - 1 for N in the variance", "lib/interface.wgsl", "1.0 / f32(COLS)", "1.0 / f32(COLS - 1u)"),
    Mutant("eps outside the root", "lib/statistics.wgsl", "inverseSqrt(max(spread - low * low, 0.0) + params.eps)", "1.0 / (sqrt(max(spread - low * low, 0.0)) + params.eps)"),
    Mutant("no eps", "lib/statistics.wgsl", "0.0) + params.eps", "0.0)"),
    Mutant("rstd without the root", "lib/statistics.wgsl", "inverseSqrt(max(spread - low * low, 0.0) + params.eps)", "1.0 / (max(spread - low * low, 0.0) + params.eps)"),
    Mutant("the low word added to the variance", "lib/statistics.wgsl", "spread - low * low", "spread + 100.0 * low * low", ("registers", "naive")),
    Mutant("the low word forgotten", "layer_norm/registers.wgsl", "- low) * rstd", ") * rstd"),
    Mutant("the low word with the wrong sign", "layer_norm/two_pass.wgsl", "- mean - low", "- mean + low", ("two_pass",)),
    Mutant("no tail mask", ROW, 'select(otherwise, value, live(j, thread))', "value", ("registers", "two_pass", "welford")),
    Mutant("a tail one short", ROW, "columns(j, thread) < ACCESSES;", "columns(j, thread) + 1u < ACCESSES;", ("two_pass",)),
    Mutant("a tail one short, strided", ROW, "columns(j, thread) < vec4(COLS)", "columns(j, thread) < vec4(COLS - 1u)"),
    Mutant("stores not guarded by the tail", ROW, '("live(j, thread) & " ~', '("" ~', ("two_pass", "registers")),
    Mutant("a row stride off by one", ROW, "params.start + row * COLS", "params.start + row * (COLS - 1u)"),
    Mutant("the slice's start ignored", ROW, "params.start + row * COLS", "row * COLS", equivalent="a problem of one slice starts at 0; test_plan's small devices catch it"),
    Mutant("weight for bias", "lib/affine.wgsl", "load_bias", "load_weight"),
    Mutant("bias for weight", "lib/affine.wgsl", "load_weight", "load_bias"),
    Mutant("no weight", "lib/affine.wgsl", '{{ " * load_weight(j, thread)" if has_weight }}', ""),
    Mutant("no bias", "lib/affine.wgsl", '{{ " + load_bias(j, thread)" if has_bias }}', ""),
    Mutant("a butterfly that skips a distance", REDUCE, "for power in range(7) if", "for power in range(1, 7) if"),
    Mutant("a butterfly of the wrong distance", REDUCE, "subgroupShuffleXor(value, {{ offset }}u)", "subgroupShuffleXor(value, {{ 2 * offset }}u)"),
    Mutant("the wrong row's partials", REDUCE, "let first = place / THREADS * count;", "let first = 0u;"),
    Mutant("one partial too few", REDUCE, "let count = THREADS / subgroup_size;", "let count = max(THREADS / subgroup_size / 2u, 1u);"),
    Mutant("partials beyond a subgroup forgotten", REDUCE, "i < count; i += subgroup_size", "i < subgroup_size; i += subgroup_size"),
    Mutant("no barrier across subgroups", REDUCE, "        {{ barrier() }}\n        let count", "        let count"),
    Mutant("no barrier in the tree", REDUCE, "    {{ partials }}[place] = value;\n    {{ barrier() }}\n{% for level", "    {{ partials }}[place] = value;\n{% for level", ("two_pass", "welford")),
    Mutant("no barrier between levels", REDUCE, "        {{ partials }}[place] = value;\n    }\n    {{ barrier() }}", "        {{ partials }}[place] = value;\n    }", ("two_pass", "welford")),
    Mutant("the tree's last level one short", REDUCE, "for k in range(1, levels", "for k in range(2, levels", ("two_pass",)),
    Mutant("the tree reads one partial twice", REDUCE, "for k in range(1, 8)", "for k in range(0, 7)", ("two_pass",)),
    Mutant("Chan without the count", WELFORD, "let share = b.z / max(count, 1.0);", "let share = 0.5;", ("welford", "welford_subgroup")),
    Mutant("Chan without the distance", WELFORD, "a.y + b.y + delta * (delta * PER_COLUMN * (a.z * share))", "a.y + b.y", ("welford", "welford_subgroup")),
    Mutant("Welford counts tail columns", WELFORD, "count += where_live(Vec(1.0), Vec(), j, thread);", "count += Vec(1.0);", ("welford", "welford_subgroup")),
    Mutant("Welford divides by j", WELFORD, "delta / f32(j + 1u)", "delta / f32(j + 2u)", ("welford",)),
    Mutant("Welford's lanes out of order", REDUCE, '"select(value, other, upper)"', '"value"', ("welford_subgroup",)),
    Mutant("the sum of the sums instead of the columns", ROW, "(value.x + value.y) + (value.z + value.w)", "(value.x + value.y) + (value.z + value.z)"),
    Mutant("rows not clamped", "lib/locate.wgsl", "let row = min(row_index, params.rows - 1u);", "let row = row_index;", equivalent="bounds checks and the guarded store make reads past the end harmless; browsers have both"),
    Mutant("stores not guarded by the row", "lib/locate.wgsl", "let row_exists = row_index < params.rows;", "let row_exists = true;", equivalent="the clamped row is written several times with the same bits"),
    Mutant("threads of a row counted wrong", "lib/locate.wgsl", "let thread = place % THREADS;", "let thread = place;"),
    Mutant("a pivot from the first row", ROW, "return x[row_start(row)]", "return x[row_start(0u)]", ("naive", "two_pass"), equivalent="any pivot gives the same mean up to rounding; the row's own keeps the sums small"),
    Mutant("lanes beyond the partials joined in", REDUCE, "let lanes = min(count, subgroup_size);", "let lanes = subgroup_size;"),
    Mutant("every row reads the first one's tree", REDUCE, "let first = place - place % THREADS;", "let first = 0u;", ("registers_plain",)),
    Mutant("a long loop that repeats a step", "lib/sweep.wgsl", "let j = first + {{ k }}u;", "let j = first;", ("naive",)),
    Mutant("the copy leaves its last elements", "copy/copy.wgsl", "< count)", "< count - 1u)", ("copy",)),
)  # fmt: skip


def hard_problems() -> list[tuple[Problem, dict[str, Array], dict[str, int]]]:
    """Aligned and odd columns, tails, several rows per workgroup, rows over several subgroups, means far
    from 0, a small variance; and the layouts that take each path of the reductions."""
    found = []
    layouts = (
        {"threads_per_row": 4, "rows_per_workgroup": 4},
        {"threads_per_row": 16, "rows_per_workgroup": 2},
        {"threads_per_row": 128, "rows_per_workgroup": 1},
        {"threads_per_row": 128, "rows_per_workgroup": 2},
    )
    for layout in layouts:
        for cols in (61, 132, 1000):
            problem = Problem(rows=7, cols=cols)
            arrays = make_inputs(problem)
            arrays["x"] = arrays["x"] * np.float32(0.02) + np.arange(-3, 4, dtype=np.float32)[:, None] * 50
            found.append((problem, arrays, layout))
    shifted = Problem(rows=3, cols=4096, options=Options(weight=False, bias=False), distribution="mean1e4")
    found.append((shifted, make_inputs(shifted), {"threads_per_row": 64}))
    long = Problem(rows=2, cols=20003, options=Options(weight=False, bias=False))
    found.append((long, make_inputs(long), {}))
    return found


def caught(kernel_path: Path, device: Device, original: Path, chosen: dict[str, int]) -> bool:
    """Whether the harness refuses the kernel on any of the hard problems; its text must have changed."""
    changed = False
    for problem, arrays, layout in hard_problems():
        kernel, unbroken = load(kernel_path), load(original)
        constants = dict(default_variant(kernel, problem, device.traits).constants)
        constants.update({axis: value for axis, value in {**layout, **chosen}.items() if axis in kernel.tune})
        variant = Variant(kernel, constants)
        if variant.refusal(problem, device.traits) is not None:
            continue
        shader = render_shader(variant, problem, "native", device.traits)
        before = render_shader(Variant(unbroken, constants), problem, "native", device.traits)
        if shader.text == before.text:
            continue
        changed = True
        _, accuracy = run_shader(device, shader, arrays)
        if not accuracy.ok:
            return True
    assert changed, "the mutant does not change the text of any rendering"
    return False


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant(mutant: Mutant, device: Device, tmp_path: Path) -> None:
    tree = tmp_path / "wgsl"
    shutil.copytree(wgsl_root(), tree)
    text = (tree / mutant.file).read_text()
    assert mutant.old in text
    (tree / mutant.file).write_text(text.replace(mutant.old, mutant.new))
    outcomes = []
    for kernel in mutant.kernels:
        # "registers_plain" is registers without subgroups.
        name, constants = (
            kernel.removesuffix("_plain"),
            {"subgroups": 0} if kernel.endswith("_plain") else {},
        )
        folder = "copy" if name == "copy" else "layer_norm"
        place = Path(folder) / f"{name}.wgsl"
        outcomes.append(caught(tree / place, device, wgsl_root() / place, constants))
        if outcomes[-1]:
            break
    assert any(outcomes) == (mutant.equivalent is None), mutant.equivalent or "survived"


def test_the_unbroken_kernels_pass_the_hard_problems(device: Device) -> None:
    for name in ("naive", "two_pass", "welford", "welford_subgroup", "registers"):
        for problem, arrays, layout in hard_problems():
            kernel = load(wgsl_root() / "layer_norm" / f"{name}.wgsl")
            constants = dict(default_variant(kernel, problem, device.traits).constants)
            constants.update({axis: value for axis, value in layout.items() if axis in kernel.tune})
            variant = Variant(kernel, constants)
            if variant.refusal(problem, device.traits) is None:
                shader = render_shader(variant, problem, "native", device.traits)
                _, accuracy = run_shader(device, shader, arrays)
                assert accuracy.ok, f"{variant}: {accuracy.reason}"
