"""Named workloads: the shapes that a paper, a tutorial or a model asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from webnorm.errors import WebnormError, unknown
from webnorm.norms.ops import OPS, Task, UnsupportedProblem
from webnorm.norms.problem import Options, Problem


@dataclass(frozen=True)
class Preset:
    """A list of tasks and where they come from."""

    summary: str
    tasks: tuple[Task, ...]

    def changed(self, options: Sequence[str], dtype: str | None, eps: float | None, seed: int = 0) -> Preset:
        """The same shapes with some options set (see Options.changed), another dtype, eps and seed."""

        def problem(task: Task) -> Problem:
            given: dict[str, Any] = {"options": task.problem.options.changed(options), "seed": seed}
            if dtype is not None:
                given["dtype"] = dtype
            if eps is not None:
                given["eps"] = eps
            changed = replace(task.problem, **given)
            task.op.check(changed)
            return changed

        return Preset(self.summary, tuple(Task(task.op, problem(task)) for task in self.tasks))


def check_rows(rows: Sequence[int] | None) -> None:
    """Raise WebnormError for rows that there is nothing to time in; None stands for any."""
    for count in rows or ():
        if count < 1:
            raise WebnormError(f"rows is {count}; expected 1 or more: no rows take no time")


def tasks(
    op: str, shapes: Sequence[tuple[int, int]], options: Options | None = None, **common: Any
) -> tuple[Task, ...]:
    """Problems of an op, one for each (rows, cols): see Op.problem."""
    chosen = OPS[op]
    return tuple(Task(chosen, chosen.problem(*shape, options=options, **common)) for shape in shapes)


def ops_with_options(ops: Sequence[str], options: Sequence[str]) -> tuple[str, ...]:
    """Those of the ops that have these options (see Options.changed); raises UnsupportedProblem where none
    has.
    """
    found: list[str] = []
    lacking: UnsupportedProblem | None = None
    for name in ops:
        try:
            OPS[name].problem(1, 1, options=OPS[name].defaults.changed(options))
            found.append(name)
        except UnsupportedProblem as error:
            lacking = error
    if lacking is not None and not found:
        raise lacking
    return tuple(found)


def tasks_of_each(
    ops: Sequence[str],
    dtypes: Sequence[str],
    shapes: Sequence[tuple[int, int]],
    options: Sequence[str],
    **common: Any,
) -> tuple[Task, ...]:
    """`tasks` of those ops that have the options, in several storage types or in their default one."""
    return tuple(
        task
        for op in ops_with_options(ops, options)
        for dtype in dtypes or (None,)
        for task in tasks(op, shapes, OPS[op].defaults.changed(options), dtype=dtype, **common)
    )


_TRITON = tuple((4096, 512 * i) for i in range(2, 32))
_HIDDEN = tuple((4096, n) for n in (384, 768, 1024, 1280, 2048, 4096, 5120, 8192))
_H200 = ((65536, 1024), (16384, 4096), (8192, 8192))
# The test of Triton's tutorial: rows that do not fill a wave, columns that do.
_TRITON_TEST = ((1151, 8192),)

PRESETS: Mapping[str, Preset] = {
    "wgpu-bench": Preset(
        "Fleetwood's LayerNorm article: [1, 2048, 512] float32, the shape of its repository.",
        tasks("layer_norm", ((2048, 512),)),
    ),
    "triton-forward": Preset(
        "Triton's LayerNorm tutorial: its test, 1151 x 8192, and its sweep, M = 4096, N = 1024 to 15872; "
        "float16, x = -2.3 + 0.5 randn.",
        tasks("layer_norm", _TRITON_TEST + _TRITON, dtype="float16", distribution="triton"),
    ),
    "triton-backward": Preset(
        "The backward pass of the same tutorial, from saved statistics.",
        tasks("layer_norm_backward", _TRITON_TEST + _TRITON, dtype="float16", distribution="triton"),
    ),
    "gradcheck": Preset(
        "The gradient check of a NumPy LayerNorm, x of shape (2, 3, 4): too small to time, "
        "large enough to be wrong.",
        tuple(
            task
            for op in ("layer_norm_backward", "rms_norm_backward")
            for task in tasks(op, ((6, 4),), replace(OPS[op].defaults, saved_stats=False))
        ),
    ),
    "equinox": Preset(
        "Equinox issue 1196: a model of 8 blocks on 256 x 32 rows of 64, where two-pass variance was found "
        "slower; a step runs each of these 8 times. one_pass is what the issue proposed.",
        tasks("layer_norm", ((8192, 64),)) + tasks("layer_norm_backward", ((8192, 64),)),
    ),
    "transformer": Preset(
        "Hidden sizes of transformer models: 384, 768, 1024, 1280, 2048, 4096, 5120, 8192.",
        tasks("layer_norm", _HIDDEN) + tasks("rms_norm", _HIDDEN),
    ),
    "h200": Preset("Shapes that fill a large GPU: 256 MiB of x and more.", tasks("layer_norm", _H200)),
}


def preset_named(name: str) -> Preset:
    """The preset of that name; raises WebnormError without one."""
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return PRESETS[name]


# A software adapter computes on the cores that also run everything else: small shapes say as much.
_SOFTWARE = ((1024, 256), (512, 768), (128, 4096))
_QUICK_SOFTWARE = ((256, 768),)
_QUICK_GPU = ((65536, 1024),)


def default_shapes(software: bool, quick: bool) -> tuple[tuple[int, int], ...]:
    """Rows and columns of a bench that names none: they suit the adapter."""
    if quick:
        return _QUICK_SOFTWARE if software else _QUICK_GPU
    return _SOFTWARE if software else _H200


def quick_tasks(preset: Preset, software: bool) -> tuple[Task, ...]:
    """The first, the middle and the last task of each op: enough to see that a preset runs.

    On a software adapter with fewer rows, which change what it measures less than its patience.
    """
    found: list[Task] = []
    for op in dict.fromkeys(task.op.name for task in preset.tasks):
        own = [task for task in preset.tasks if task.op.name == op]
        found += [own[at] for at in sorted({0, len(own) // 2, len(own) - 1})]
    if not software:
        return tuple(found)
    fewer = [
        replace(
            task, problem=replace(task.problem, rows=min(task.problem.rows, _quick_rows(task.problem.cols)))
        )
        for task in found
    ]
    # Shapes that differed in their rows only may be the same now.
    return without_duplicates(fewer)


def without_duplicates(found: Iterable[Task]) -> tuple[Task, ...]:
    """The tasks without those that are named again."""
    return tuple({str(task): task for task in found}.values())


def preset_tasks(
    name: str,
    dtypes: Sequence[str],
    options: Sequence[str],
    software: bool,
    quick: bool,
    eps: float | None = None,
    seed: int = 0,
) -> tuple[Task, ...]:
    """The tasks of a preset in the storage types, its own where there are none; a few of them if `quick`."""
    preset = preset_named(name)
    changed = [preset.changed(options, dtype, eps, seed) for dtype in dtypes or (None,)]
    return without_duplicates(
        task for one in changed for task in (quick_tasks(one, software) if quick else one.tasks)
    )


def _quick_rows(cols: int) -> int:
    return max(64, 2**19 // cols)
