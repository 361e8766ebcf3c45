"""Measure the norm family on an NVIDIA card, next to a copy, torch and torch.compile.

    python -m bench.family --out DIR [--op group_norm ...] [--only untuned] [--steps N] [--write]

Each problem is measured in one run: the copies, the kernel that `auto` chooses with its neighbours, and
torch's functions take turns, one sample each per round. With --steps the search moves to the best neighbour
that many times. Constants may be tuned on problems that are marked "tuned". The problems that are marked
"untuned" have no influence on them.

--out writes family.md and family.json into DIR, and --write writes bench/results/family.md.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.arguments import bare_parser, positive, run, whole
from bench.markdown import GrowingReport, head, row
from bench.record.side_by_side import KnownResults, measure, pace_of
from bench.record.variants import TunedVariants, neighbours
from webnorm.choice.defaults import choose
from webnorm.errors import WebnormError, sentence
from webnorm.files.atomic import write_text
from webnorm.gpu.device import Device, open_device
from webnorm.gpu.timing import Pace
from webnorm.kernels.headers.library import own_kernels
from webnorm.kernels.headers.variants import Variant, format_constants
from webnorm.lab.results.result import Result
from webnorm.op.op import Task
from webnorm.op.registry import OPS, options_of

_RESULTS = Path(__file__).parents[1] / "results" / "family.md"
# A search stops if no neighbour is faster by this factor.
_GAIN = 1.01


@dataclass(frozen=True)
class FamilyProblem:
    """A problem with the model that has it. Problems that are not `tuned` have tuned nothing."""

    op: str
    sizes: tuple[int, ...]
    options: tuple[str, ...]
    model: str
    tuned: bool

    def task(self, dtype: str) -> Task:
        """Return the problem as a task, in a storage type."""
        op = OPS[self.op]
        return Task(op, op.problem(*self.sizes, dtype=dtype, options=options_of(op, self.options)))


def _unet(model: str, batch: int, tuned: bool, *levels: tuple[int, int]) -> Iterator[FamilyProblem]:
    for channels, side in levels:
        sizes = (batch, channels, side * side, 32)
        yield FamilyProblem("group_norm", sizes, ("activation=silu",), model, tuned)


# Sizes of group_norm: batch, channels, spatial, groups. The levels are channels and the side of an image.
PROBLEMS: tuple[FamilyProblem, ...] = (
    *_unet("SD 1.5 UNet", 16, True, (320, 64), (640, 32), (1280, 16), (1280, 8)),
    *_unet("SD 1.5 UNet", 16, False, (640, 64), (960, 64), (1920, 32), (2560, 16)),
    *_unet("SDXL UNet", 8, True, (320, 128), (1280, 32)),
    *_unet("SDXL UNet", 8, False, (640, 64), (960, 128), (1920, 64)),
    *_unet("FLUX VAE", 1, True, (512, 128), (256, 256), (128, 512)),
    *_unet("FLUX VAE", 1, False, (512, 64), (512, 256), (256, 512)),
    *_unet("FLUX VAE, 4 images", 4, False, (512, 128), (128, 512)),
    # Sizes: batch, tokens, query heads, key heads, elements between rows of queries and of keys, columns.
    FamilyProblem("qk_norm", (4, 4096, 32, 8, 1024, 0, 128), ("qkv",), "Qwen3-8B", True),
    FamilyProblem("qk_norm", (4, 4096, 16, 16, 1024, 0, 64), ("qkv",), "a ViT-L", True),
    FamilyProblem("qk_norm", (4, 4096, 16, 8, 2048, 0, 256), ("qkv",), "Gemma 3 12B", True),
    FamilyProblem("qk_norm", (2, 4608, 24, 24, 0, 0, 128), (), "FLUX", False),
    FamilyProblem("qk_norm", (8, 2048, 12, 12, 768, 0, 64), ("qkv",), "a ViT-B", False),
    FamilyProblem("qk_norm", (3, 5000, 8, 4, 1024, 0, 256), ("qkv",), "Gemma 3 4B", False),
    # Sizes: batch, rows, columns.
    FamilyProblem("modulated_norm", (64, 256, 1152), (), "DiT-XL/2", True),
    FamilyProblem("modulated_norm", (4, 4608, 3072), (), "FLUX", True),
    FamilyProblem("modulated_norm", (8, 4096, 1536), (), "SD 3", False),
    FamilyProblem("modulated_norm", (32, 1024, 2304), (), "another DiT", False),
    # Sizes: batch, queries, columns.
    FamilyProblem("softmax", (8192, 1, 4096), (), "long contexts", True),
    FamilyProblem("softmax", (30000, 1, 1280), (), "a classifier", False),
    # Sizes: rows, columns.
    FamilyProblem("l2_norm", (65536, 768), (), "sentence embeddings", True),
    FamilyProblem("l2_norm", (20000, 2048), (), "other embeddings", False),
    # Sizes: rows, heads, columns.
    FamilyProblem("gated_norm", (16384, 32, 128), (), "Qwen3-Next", True),
    FamilyProblem("gated_norm", (8192, 1, 5120), ("order=gate_first",), "Mamba-2", True),
    FamilyProblem("gated_norm", (20000, 16, 128), (), "a smaller Qwen3-Next", False),
    FamilyProblem("gated_norm", (12288, 8, 512), ("order=gate_first",), "Mamba-2 in 8 groups", False),
)


def _search(device: Device, task: Task, pace: Pace, steps: int) -> tuple[Variant, ...]:
    """Return the best variants on a walk from `auto` to the best neighbour, again and again."""
    ladder, traits = own_kernels(task.op.name), device.traits
    found = [choose(ladder, task, traits).variant]
    for _ in range(steps):
        near = tuple(neighbours(found[-1], task, traits))
        results = measure(
            device, task, 9, alone=True, known=KnownResults(tuned=TunedVariants(near, 0)), pace=pace
        )
        timed = {str(one): _time_of(results, one) for one in near}
        best = min(near, key=lambda one: timed[str(one)])
        if timed[str(best)] * _GAIN > timed[str(found[-1])]:
            break
        found.append(best)
    return tuple(found)


def _time_of(results: Sequence[Result], variant: Variant) -> float:
    for one in results:
        if one.kernel == variant.kernel.name and dict(one.constants) == dict(variant.constants):
            return one.median_ns or float("inf")
    return float("inf")


def measured_rows(
    device: Device, problem: FamilyProblem, task: Task, pace: Pace, steps: int
) -> tuple[str, dict[str, Any]]:
    """Return a problem's line of the table, and its results as JSON."""
    known = KnownResults(tuned=TunedVariants(_search(device, task, pace, steps), 0)) if steps else None
    results = measure(device, task, 30, known=known, pace=pace)
    own = [one for one in results if one.op == task.op.name and one.percent_of_copy is not None]
    rivals = {one.kernel: one for one in results if one.kernel.startswith("torch")}
    auto = next((one for one in results if one.auto is not None), None)
    best = max(
        (one for one in own if one.kernel not in rivals),
        key=lambda one: one.percent_of_copy or 0.0,
        default=None,
    )
    cells = [str(task), problem.model, "tuned" if problem.tuned else "untuned"]
    for one in (auto, best):
        cells.append("-" if one is None else f"{one.kernel} {format_constants(one.constants)}")
        cells.append(_percent(one))
    for name in ("torch eager", "torch.compile"):
        cells.append(_percent(rivals.get(name)))
    wrong = [
        f"{one.kernel}: {one.status} {sentence(one.reason or '', 80)}"
        for one in results
        if one.status != "pass"
    ]
    found = {
        "op": task.op.name,
        "problem": str(task.problem),
        "results": [
            {"kernel": one.kernel, "constants": dict(one.constants), "us": (one.median_ns or 0) / 1000,
             "percent": one.percent_of_copy, "status": one.status}
            for one in results
        ],
        "wrong": wrong,
    }  # fmt: skip
    return row(cells), found


def _percent(one: Result | None) -> str:
    if one is None or one.percent_of_copy is None:
        return "-" if one is None else one.status
    return f"{one.percent_of_copy:.1f}"


_COLUMNS = ("model", "", "auto", "%", "best found", "%", "torch eager %", "torch.compile %")


def _arguments() -> argparse.Namespace:
    parser = bare_parser(__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--op", nargs="+")
    parser.add_argument("--only", choices=("tuned", "untuned"))
    parser.add_argument("--dtype", nargs="+", default=["float16"])
    parser.add_argument("--steps", type=whole, default=0, help="moves of the search from auto")
    parser.add_argument("--seconds", type=positive, default=3600)
    parser.add_argument("--write", action="store_true")
    return parser.parse_args()


def main() -> None:
    """Measure the problems, and write the tables."""
    asked, until = _arguments(), time.monotonic()
    until += asked.seconds
    device = open_device()
    report = GrowingReport([asked.out / "family.md", *([_RESULTS] if asked.write else [])])
    report.add(
        "# The norm family, in percent of the best copy", "", str(device), "", *head("problem", _COLUMNS)
    )
    pace, found = pace_of(device), []
    for dtype in asked.dtype:
        for problem in PROBLEMS:
            if problem.op not in OPS or (asked.op and problem.op not in asked.op):
                continue
            if asked.only and problem.tuned != (asked.only == "tuned"):
                continue
            if time.monotonic() > until:
                report.add("", "The time limit left out the other problems.")
                break
            try:
                line, results = measured_rows(device, problem, problem.task(dtype), pace, asked.steps)
            except WebnormError as error:
                report.add(row([problem.op, str(problem.sizes), str(error)]))
                continue
            report.add(line)
            found.append(results)
            write_text(asked.out / "family.json", json.dumps(found, indent=1))


if __name__ == "__main__":
    run(main)
