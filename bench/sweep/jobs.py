"""Write the jobs of a sweep: problems, and for each the variants that may be its fastest.

    python -m bench.sweep.jobs --out JOBS.jsonl [--part drawn odd ...] [--op OP] [--dtype TYPE ...] [--seed 0]

There are three sources of variants: those that webnorm's data predict to be fast, their neighbours, and
random ones, which may reveal unexpected winners. This script needs no GPU; `bench.sweep` times the jobs.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.arguments import bare_parser, run, whole
from bench.record.sections import drawn_cols, filling
from webnorm.errors import WebnormError
from webnorm.files.atomic import write_text
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.library import discover
from webnorm.kernels.headers.traits import Traits
from webnorm.kernels.headers.variants import Variant, header_names, runnable_variants
from webnorm.op.dtypes import DTYPES, STORAGE
from webnorm.op.op import Task
from webnorm.op.presets import tasks
from webnorm.op.registry import OPS
from webnorm.ops.norms import rules
from webnorm.ops.norms.measured import FEW_BYTES, MeasuredVariant, row_fit
from webnorm.ops.norms.problem import NormProblem

# Traits of any desktop or server GPU. A smaller device refuses variants, and the sweep continues.
_TRAITS = Traits(frozenset({"subgroups", "shader-f16"}), 1024, 49152, software=False)
_FORWARD = ("layer_norm", "rms_norm")
_BACKWARD = ("layer_norm_backward", "rms_norm_backward")
_NORMS = (*_FORWARD, *_BACKWARD)
# With more rows, two_dispatch was never the fastest.
_TWO_DISPATCH_ROWS = 512
_FILLING, _LARGE, _LESS = 64 << 20, 256 << 20, 24 << 20
# Common numbers of columns; those that divide few workgroup sizes; multiples of four only.
_ROUND = (
    256, 320, 384, 448, 512, 576, 640, 768, 896, 1024, 1152, 1280, 1408, 1536, 1792, 2048, 2304, 2560,
    2816, 3072, 3328, 3584, 4096, 4608, 5120, 5632, 6144, 6656, 7168, 7680, 8192, 9216, 10240, 11264,
    12288, 13312, 14336, 15360, 16384, 20480, 24576, 32768,
)  # fmt: skip
_RAGGED = (
    264, 360, 488, 616, 840, 1096, 1352, 1672, 2184, 2696, 3208, 3848, 4872, 5896, 6920, 7944, 9736,
    11784, 13832, 15880, 18440, 28680,
)  # fmt: skip
_FOURS = (300, 620, 1100, 1804, 3004, 5004, 9004)
_ODD = (321, 511, 769, 1023, 1537, 2046, 3001, 4095, 5119, 6145, 7681, 10001, 12287, 16383)
_SOME = (256, 1024, 2048, 4096, 5120, 8192, 12288, 16384)
_MIDDLE = (768, 2048, 3072, 5120, 7168, 8192, 12288)
_SHORT = (32, 64, 96, 100, 128, 160, 192, 224)
_SMALL = (
    (128, 768), (256, 512), (256, 1024), (512, 512), (512, 1024), (512, 2048), (1024, 1024), (1024, 2048),
    (256, 4096), (64, 8192), (64, 1024), (2048, 256), (4096, 256), (32, 4096), (1024, 512), (128, 2048),
    (384, 1536), (1000, 768), (2048, 1024), (512, 3072), (16, 8192), (4096, 128), (197, 384), (300, 1280),
)  # fmt: skip
_FEW_LONG = (
    (1, 131072), (8, 131072), (32, 131072), (16, 262144), (64, 65536), (256, 32768), (16, 32768),
    (64, 20480), (64, 16384), (128, 65536), (4, 524288), (100, 49152), (8, 1048576),
)  # fmt: skip
# The largest ratio of the columns that invocations cover to the row's columns. More was never the fastest.
_MOST_WASTE = 1.5
# Smaller workgroups were never the fastest.
_LEAST_INVOCATIONS = 16
_PER_JOB = 16

Shapes = Callable[[int, int], Sequence[tuple[int, int]]]


@dataclass(frozen=True)
class SweepPart:
    """Problems of a sweep, with `count` proposed variants per kernel and problem; None means all.

    Problems that are `held_out` are timed but not used for the fit. `chance` is the share of random variants.
    """

    ops: Sequence[str]
    shapes: Shapes
    count: int | None
    chance: float = 0.1
    options: Mapping[str, Any] = field(default_factory=dict)
    held_out: bool = False


def _filling(cols: Sequence[int], x_bytes: int = _FILLING) -> Shapes:
    return lambda itemsize, seed: filling(cols, itemsize, x_bytes)


def _drawn(count: int, least: int, most: int, step: int, salt: int, x_bytes: int = _FILLING) -> Shapes:
    return lambda itemsize, seed: filling(
        drawn_cols(seed + salt, count, least, most, step), itemsize, x_bytes
    )


def _joined(*shapes: Shapes) -> Shapes:
    return lambda itemsize, seed: [pair for one in shapes for pair in one(itemsize, seed)]


def _given(shapes: Sequence[tuple[int, int]]) -> Shapes:
    return lambda itemsize, seed: shapes


def _middle() -> Shapes:
    """Return medium shapes, with x of 4 to 32 MiB."""
    sizes = [size << 20 for size in (4, 8, 16, 32)]
    drawn = (_drawn(3, 512, 16384, 8, 11 + at, size) for at, size in enumerate(sizes))
    return _joined(*(_filling(_MIDDLE, size) for size in sizes), *drawn)


def _of_a_kind(salt: int) -> Shapes:
    """Return enough shapes to compare a special kind of problem with the plain kind."""
    return _joined(_filling((*_SOME, 616, 1672, 3208, 6920)), _drawn(16, 256, 16384, 8, salt))


PARTS: Mapping[str, SweepPart] = {
    "named": SweepPart(_NORMS, _filling((*_ROUND, *_RAGGED, *_FOURS)), 40),
    "drawn": SweepPart(_NORMS, _drawn(36, 256, 16384, 8, 1), 12),
    "wide": SweepPart(_NORMS, _drawn(6, 16392, 34000, 8, 2), 8),
    "odd": SweepPart(_NORMS, _joined(_filling(_ODD), _drawn(24, 257, 16383, 2, 3)), 12, chance=0.3),
    "short": SweepPart(_NORMS, _filling(_SHORT), 20, chance=0.5),
    "large": SweepPart(_NORMS, _joined(_filling(_SOME, _LARGE), _filling(_ROUND[::3], _LARGE)), 8),
    "large_forward": SweepPart(_FORWARD, _drawn(14, 6000, 24000, 8, 8, _LARGE), 30),
    "large_backward": SweepPart(_BACKWARD, _drawn(10, 2048, 16384, 8, 9, _LARGE), 20),
    "less": SweepPart(_NORMS, _filling(_SOME, _LESS), 10),
    "small": SweepPart(_NORMS, _given(_SMALL), 10, chance=0.3),
    "middle": SweepPart(_BACKWARD, _middle(), 14, chance=0.2),
    "middle_forward": SweepPart(_FORWARD, _middle(), 6, chance=0.2),
    "few_long": SweepPart(_NORMS, _given(_FEW_LONG), 6, chance=0.3),
    "residual": SweepPart(
        _FORWARD,
        _of_a_kind(7),
        16,
        options={"residual": True},
    ),
    "own_stats": SweepPart(
        _BACKWARD,
        _of_a_kind(10),
        16,
        options={"saved_stats": False},
    ),
    "held_out": SweepPart(
        _NORMS,
        _joined(_drawn(8, 256, 16384, 8, 4), _drawn(3, 257, 8191, 2, 5)),
        32,
        chance=0.2,
        held_out=True,
    ),
    "exhaustive": SweepPart(_NORMS, _drawn(1, 1024, 16384, 8, 6), None, held_out=True),
}


def jobs(part: SweepPart, op: str, dtype: str, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the jobs of a part for an op and a storage type."""
    kernels = [kernel for kernel in discover() if kernel.op.name == op and kernel.unstable is None]
    options = replace(OPS[op].defaults, **part.options)
    for task in tasks(op, part.shapes(DTYPES[dtype].itemsize, seed), options, dtype=dtype):
        problem = task.problem
        for kernel in kernels:
            if not _worthwhile(kernel.name, task):
                continue
            if part.count is None:
                found = everything(kernel, task)
            else:
                draw = random.Random(f"{seed} {op} {problem} {kernel.name}")
                found = proposed(kernel, task, part.count, part.chance, draw)
            for begin in range(0, len(found), _PER_JOB):
                line = {
                    "op": op,
                    "dtype": dtype,
                    "rows": problem.rows,
                    "cols": problem.cols,
                    "kernel": kernel.name,
                    "constants": [variant.constants for variant in found[begin : begin + _PER_JOB]],
                }
                line |= {"options": dict(part.options)} if part.options else {}
                line |= {"held_out": True} if part.held_out else {}
                yield line


def _worthwhile(kernel: str, task: Task) -> bool:
    """Return True if a kernel may be the fastest for a problem; the ladder's steps never are."""
    problem: NormProblem = task.problem
    few = problem.rows * problem.cols * DTYPES[problem.dtype].itemsize <= FEW_BYTES
    match kernel:
        case "registers":
            return problem.cols <= 65536
        case "workgroup_cache":
            return problem.cols > rules.LONG_COLS
        case "one_dispatch":
            return few
        case "split_row" | "tiles":
            return problem.cols > (rules.LONG_COLS if few else 2 * rules.LONG_COLS)
        case "two_dispatch":
            return problem.cols > rules.LONG_COLS and problem.rows <= _TWO_DISPATCH_ROWS
        case "streaming":
            return few and problem.cols > rules.LONG_COLS
    return False


def everything(kernel: Kernel, task: Task) -> list[Variant]:
    """Return all sensible variants that the adapter can run."""
    tune = {axis: values if axis != "subgroups" else (1,) for axis, values in kernel.tune.items()}
    variants = runnable_variants(kernel, task.problem, _TRAITS, tune)
    return [variant for variant in variants if _sensible(variant, task)]


def proposed(kernel: Kernel, task: Task, count: int, chance: float, draw: random.Random) -> list[Variant]:
    """Propose `count` different runnable variants: predicted ones, their neighbours, and random ones.

    `chance` is the share of random ones.
    """
    found: dict[tuple[int, ...], Variant] = {}
    names = header_names(task.op, task.problem, _TRAITS)
    axes = {axis: values for axis, values in kernel.tune.items() if axis != "subgroups"}

    def add(constants: Mapping[str, int]) -> None:
        values = {axis: constants[axis] for axis in axes}
        if "subgroups" in kernel.tune:
            values["subgroups"] = 1
        variant = Variant(kernel, values)
        key = tuple(values.values())
        if key not in found and _sensible(variant, task) and variant.refusal(task.problem, _TRAITS) is None:
            found[key] = variant

    expected = [one for one in rules.constants(task.op.name, kernel.name, names) if set(axes) <= set(one)]
    by_chance = round(chance * count)
    # A third are neighbours of the first ones, which may be faster on unmeasured problems.
    for constants in expected:
        if len(found) >= (count - by_chance) * 2 // 3:
            break
        add(constants)
    first = [variant.constants for variant in list(found.values())[:8]]
    for wanted, near in ((count - by_chance, first), (count, [])):
        for _ in range(60 * count):
            if len(found) >= wanted:
                break
            if near:
                axis = draw.choice(list(axes))
                add({**draw.choice(near), axis: draw.choice(axes[axis])})
            else:
                add({axis: draw.choice(values) for axis, values in axes.items()})
    return list(found.values())


def _sensible(variant: Variant, task: Task) -> bool:
    """Return True if a variant is worth timing."""
    constants = variant.constants
    invocations = constants["threads_per_row"] * constants.get("rows_per_workgroup", 1)
    how = row_fit(MeasuredVariant(variant.kernel.name, tuple(constants.items())), task.problem.cols)
    # One Vec per invocation is always allowed, because it may be the minimum.
    return invocations >= _LEAST_INVOCATIONS and (how.steps <= 1 or how.waste <= _MOST_WASTE)


def main() -> None:
    """Write the jobs in random order, so that an interrupted sweep has all kinds of problems."""
    parser = bare_parser(__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--op", choices=_NORMS, nargs="+", default=list(_NORMS))
    parser.add_argument("--dtype", choices=STORAGE, nargs="+", default=list(STORAGE))
    parser.add_argument("--seed", type=whole, default=0)
    asked = parser.parse_args()
    found = [
        job
        for name in asked.part
        for op in PARTS[name].ops
        if op in asked.op
        for dtype in asked.dtype
        for job in jobs(PARTS[name], op, dtype, asked.seed)
    ]
    if not found:
        raise WebnormError(
            f"--part {' '.join(asked.part)} has no job of --op {' '.join(asked.op)}: "
            "use other parts or ops; residual needs a forward op, and own_stats a gradient"
        )
    random.Random(asked.seed).shuffle(found)
    write_text(asked.out, "".join(json.dumps(job) + "\n" for job in found))
    print(f"{len(found)} jobs, {sum(len(job['constants']) for job in found)} variants in {asked.out}")


if __name__ == "__main__":
    run(main)
