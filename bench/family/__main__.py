"""Measure the norm family on an NVIDIA card, next to a copy, torch and torch.compile.

    python -m bench.family --out DIR [--op group_norm ...] [--only untuned] [--dtype bfloat16] [--steps N]
        [--kernel cooperative ...] [--write | --unchecked]

Each problem is measured in one run: the copies, the kernel that `auto` chooses with its neighbours, and
torch's functions take turns, one sample each per round. With --steps the search moves to the best neighbour
that many times. --kernel names kernels whose defaults and their neighbours are timed, too. Constants may be
tuned on problems that are marked "tuned". The problems that are marked "untuned" have no influence on them.

--out writes family.md and family.json into DIR, and --write writes bench/results/family.md.

Inputs and their answers in float64 take most of a run's time. --unchecked times many variants of a kernel in
seconds: inputs repeat a few values, no output is compared with float64, and torch does not take part. The
report says so.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.arguments import bare_parser, positive, run, whole
from bench.family.problems import PROBLEMS, FamilyProblem
from bench.markdown import GrowingReport, head, row
from bench.record.side_by_side import UNCHECKED, KnownResults, measure, pace_of
from bench.record.variants import TunedVariants, neighbours
from webnorm.choice.defaults import choose, fitting_variant
from webnorm.errors import WebnormError, sentence
from webnorm.files.atomic import write_text
from webnorm.gpu.device import Device, open_device
from webnorm.gpu.timing import Pace
from webnorm.kernels.headers.library import own_kernels
from webnorm.kernels.headers.variants import Variant, format_constants
from webnorm.lab.results.result import Result
from webnorm.op.dtypes import STORAGE
from webnorm.op.op import Task

_RESULTS = Path(__file__).parents[1] / "results" / "family.md"
# A search stops if no neighbour is faster by this factor.
_GAIN = 1.01


@dataclass(frozen=True)
class FamilyRun:
    """The settings of a run: `steps` of the search, more `kernels` to time, and with or without float64."""

    device: Device
    pace: Pace
    steps: int = 0
    kernels: tuple[str, ...] = ()
    checked: bool = True

    def tuned(self, task: Task) -> TunedVariants | None:
        """Return the variants to time with `auto`; None for its neighbours."""
        traits, ladder = self.device.traits, own_kernels(task.op.name)
        fitting = [
            fitting_variant(one, task.problem, traits)[0] for one in ladder if one.name in self.kernels
        ]
        starts = [choose(ladder, task, traits).variant, *(one for one in fitting if one is not None)]
        if self.steps:
            return TunedVariants(tuple(one for start in starts for one in self._walk(task, start)), 0)
        near = tuple(one for start in starts for one in neighbours(start, task, traits))
        return TunedVariants(near, 0) if self.kernels else None

    def _walk(self, task: Task, start: Variant) -> list[Variant]:
        """Return the best variants on a walk to the best neighbour, again and again."""
        found = [start]
        for _ in range(self.steps):
            near = tuple(neighbours(found[-1], task, self.device.traits))
            results = self.measured(task, 9, TunedVariants(near, 0), alone=True)
            timed = {str(one): _time_of(results, one) for one in near}
            best = min(near, key=lambda one: timed[str(one)])
            if timed[str(best)] * _GAIN > timed[str(found[-1])]:
                break
            found.append(best)
        return found

    def measured(
        self, task: Task, rounds: int, tuned: TunedVariants | None, *, alone: bool = False
    ) -> Sequence[Result]:
        """Time the variants in turn, and other libraries unless they are `alone`."""
        known = None if tuned is None else KnownResults(tuned=tuned)
        others = alone or not self.checked
        return measure(
            self.device, task, rounds, alone=others, known=known, pace=self.pace, checked=self.checked
        )


def _time_of(results: Sequence[Result], variant: Variant) -> float:
    for one in results:
        if one.kernel == variant.kernel.name and dict(one.constants) == dict(variant.constants):
            return one.median_ns or float("inf")
    return float("inf")


def measured_rows(how: FamilyRun, problem: FamilyProblem, task: Task) -> tuple[str, dict[str, Any]]:
    """Return a problem's line of the table, and its results as JSON."""
    results = how.measured(task, 30, how.tuned(task))
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
    data = {
        "op": task.op.name,
        "problem": str(task.problem),
        "unchecked": not how.checked,
        "results": [
            {"kernel": one.kernel, "constants": dict(one.constants), "us": (one.median_ns or 0) / 1000,
             "percent": one.percent_of_copy, "status": _status(one)}
            for one in results
        ],
        "wrong": wrong,
    }  # fmt: skip
    return row(cells), data


def _status(one: Result) -> str:
    return "unchecked" if one.status == "pass" and one.reason == UNCHECKED else one.status


def _percent(one: Result | None) -> str:
    if one is None or one.percent_of_copy is None:
        return "-" if one is None else one.status
    return f"{one.percent_of_copy:.1f}"


_COLUMNS = ("model", "", "auto", "%", "best found", "%", "torch eager %", "torch.compile %")


def _heading(device: str, unchecked: bool) -> list[str]:
    """Return the first lines of the report."""
    title = "# The norm family, in percent of the best copy"
    lines = [f"{title} (UNCHECKED: {UNCHECKED})" if unchecked else title, "", device, ""]
    if unchecked:
        lines += ["No result of this run was compared with float64, so wrong kernels have times, too.", ""]
    return [*lines, *head("problem", _COLUMNS)]


def _arguments() -> argparse.Namespace:
    parser = bare_parser(__doc__)
    parser.add_argument("--out", type=Path, required=True)
    ops = sorted({one.op for one in PROBLEMS})
    kernels = sorted({kernel.name for op in ops for kernel in own_kernels(op)})
    parser.add_argument("--op", nargs="+", choices=ops, metavar="OP")
    parser.add_argument("--only", choices=("tuned", "untuned"))
    parser.add_argument(
        "--dtype", nargs="+", choices=STORAGE, default=["float16"], help="storage types; default: float16"
    )
    parser.add_argument("--steps", type=whole, default=0, help="moves of the search from auto")
    parser.add_argument(
        "--kernel", nargs="+", default=[], choices=kernels, metavar="KERNEL", help="time these kernels, too"
    )
    parser.add_argument("--seconds", type=positive, default=3600)
    parser.add_argument("--write", action="store_true")
    parser.add_argument(
        "--unchecked", action="store_true", help="time kernels without comparing any result with float64"
    )
    asked = parser.parse_args()
    if asked.write and asked.unchecked:
        raise WebnormError(f"--write and --unchecked cannot be combined: {_RESULTS.name} has checked results")
    return asked


def main() -> None:
    """Measure the problems, and write the tables."""
    asked, until = _arguments(), time.monotonic()
    until += asked.seconds
    device = open_device()
    report = GrowingReport([asked.out / "family.md", *([_RESULTS] if asked.write else [])])
    report.add(*_heading(str(device), asked.unchecked))
    how = FamilyRun(
        device, pace_of(device), asked.steps, kernels=tuple(asked.kernel), checked=not asked.unchecked
    )
    found = []
    for dtype in asked.dtype:
        for problem in PROBLEMS:
            if asked.op and problem.op not in asked.op:
                continue
            if asked.only and problem.tuned != (asked.only == "tuned"):
                continue
            if time.monotonic() > until:
                report.add("", "The time limit left out the other problems.")
                break
            try:
                line, results = measured_rows(how, problem, problem.task(dtype))
            except WebnormError as error:
                report.add(row([problem.op, str(problem.sizes), str(error)]))
                continue
            report.add(line)
            found.append(results)
            write_text(asked.out / "family.json", json.dumps(found, indent=1))


if __name__ == "__main__":
    run(main)
