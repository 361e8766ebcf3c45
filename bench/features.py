"""Measure what optional features of WebGPU and WGSL gain: webnorm's kernels with and without each feature.

    python -m bench.features --out DIR [--engine dawn] [--engine wgpu] [--write] [--quick]

Each rewrite (bench.feature_rewrites) changes the shader that auto chooses, so that it uses one more feature.
Both shaders run on the same buffers in one process. They take turns, one sample each per round. A ratio is
the median of the rounds' ratios. Outputs are compared with float64 once.

--out writes features.md into DIR, and --write writes bench/results/features.md. Without --engine, Dawn runs
and then wgpu.
"""

from __future__ import annotations

import argparse
import datetime
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.arguments import bare_parser, command, positive, run
from bench.feature_rewrites import REWRITES, Rewrite
from bench.markdown import GrowingReport, head, row
from webnorm.errors import WebnormError, sentence
from webnorm.gpu import timing
from webnorm.gpu.device import Device, adapter_text
from webnorm.gpu.timing import statistics
from webnorm.kernels.headers.traits import Traits
from webnorm.lab.process.worker import Worker, explain_worker_failure
from webnorm.lab.run import bench, jobs
from webnorm.lab.verify.timed_work import sampler, timing_setup
from webnorm.lab.verify.trial import try_plan
from webnorm.op.op import Task
from webnorm.op.registry import OPS

_RESULTS = Path(__file__).with_name("results") / "features.md"
_ENGINES = ("dawn", "wgpu")
_HEAD = (
    "| problem | kernel | us without | us with | ratio | p20 to p80 of rounds | error without | error with |",
    "|---|---|---:|---:|---:|---:|---:|---:|",
)

_SUMMARY = ("problems", "median", "smallest", "largest")


@dataclass(frozen=True)
class CompareJob:
    """A rewrite to compare with the variant that it changes, on one problem."""

    rewrite: str
    task: Task
    spec: jobs.VariantSpec
    sets: int
    rule: timing.StoppingRule


@dataclass(frozen=True)
class Compared:
    """The samples of both shaders in nanoseconds, and their errors relative to max(1, |answer|)."""

    without: tuple[float, ...]
    with_feature: tuple[float, ...]
    errors: tuple[float | None, float | None]
    wrong: str | None

    @property
    def ratio(self) -> timing.TimeStatistics:
        """The time with the feature divided by the time without it, by round."""
        return statistics([one / other for one, other in zip(self.with_feature, self.without, strict=True)])


def compare(device: Device, job: CompareJob) -> Iterator[Compared]:
    """Yield the comparison of a rewrite, as a task of a worker; nothing if it does not apply."""
    rewrite = next(one for one in REWRITES if one.name == job.rewrite)
    board = jobs.buffers_for_job(
        device, jobs.TimingJob(job.task, (job.spec,), (), job.sets, job.rule, repeated=True)
    )
    variant = job.spec.variant()
    rewritten = rewrite.apply(board, variant)
    if rewritten is None:
        return
    shaders = (board.render(variant), rewritten)
    plans = [board.bind(shader) for shader in shaders]
    results = [try_plan(board, plan)[0] for plan in plans]
    setup = timing_setup(board, job.rule.settle_s)
    samples: list[list[float]] = [[], []]
    samplers = [sampler(setup, plan)[0] for plan in plans]
    for _ in timing.take_turns(samplers, samples, job.rule, setup.pace):
        pass
    wrong = results[1].reason if results[1].status != "pass" else None
    errors = (results[0].max_rel_error, results[1].max_rel_error)
    yield Compared(tuple(samples[0]), tuple(samples[1]), errors, wrong)


def compared_row(task: Task, spec: jobs.VariantSpec, found: Compared) -> str:
    """Return a comparison's line of the table."""
    constants = " ".join(f"{axis}={value}" for axis, value in spec.constants.items())
    ratio = found.ratio
    errors = ["-" if error is None else f"{error:.1e}" for error in found.errors]
    cells = [str(task), f"{spec.path.stem} {constants}"]
    cells += [f"{statistics(own).median / 1000:.2f}" for own in (found.without, found.with_feature)]
    cells += [f"{ratio.median:.3f}", f"{ratio.p20:.3f} to {ratio.p80:.3f}", *errors]
    if found.wrong:
        cells[-1] += f" ({found.wrong})"
    return row(cells)


class FeatureComparison:
    """All rewrites in one engine, reported line by line."""

    def __init__(self, worker: Worker, traits: Traits, quick: bool, until: float, report: GrowingReport):
        self._worker, self._traits, self._report = worker, traits, report
        self._quick, self._until = quick, until
        samples = {"least": 3, "most": 3} if quick else {"least": 20}
        self._rule = timing.StoppingRule(**samples, budget_s=2.0)

    def run(self) -> None:
        """Compare every rewrite on its problems."""
        summary = head("", _SUMMARY)
        for rewrite in REWRITES:
            self._report.add(f"\n### {rewrite.name}\n", f"{rewrite.what[0].upper()}{rewrite.what[1:]}.")
            if rewrite.feature and rewrite.feature not in self._traits.features:
                self._report.add(f"\nThis engine lacks `{rewrite.feature}`.")
                continue
            self._report.add("", *_HEAD)
            if ratios := sorted(self._ratios(rewrite)):
                shown = [f"{one:.3f}" for one in (statistics(ratios).median, ratios[0], ratios[-1])]
                summary.append(row([rewrite.name, str(len(ratios)), *shown]))
        self._report.add("\n### Summary: the time with a feature divided by the time without\n", *summary)

    def _ratios(self, rewrite: Rewrite) -> Iterator[float]:
        """Yield the median ratio of each problem, and add its line to the report."""
        for task in self._tasks(rewrite):
            variant = rewrite.base(task, self._traits)
            if variant is None or variant.refusal(task.problem, self._traits):
                continue
            if time.monotonic() > self._until:
                self._report.add(f"\nThe time limit left out {task} and what follows.")
                return
            spec = jobs.VariantSpec.of(variant)
            job = CompareJob(rewrite.name, task, spec, bench.sets_for(task, self._traits), self._rule)
            try:
                with explain_worker_failure(str(task)):
                    found = list(self._worker.stream(compare, job))
            except WebnormError as error:
                self._report.add(f"| {task} | {sentence(str(error))} | | | | | | |")
                continue
            for one in found:
                self._report.add(compared_row(task, spec, one))
                yield one.ratio.median

    def _tasks(self, rewrite: Rewrite) -> list[Task]:
        """Return the problems of a rewrite."""
        shapes = ((63, 64 - rewrite.shapes[0][1] % 2),) if self._quick else rewrite.shapes
        return [
            Task(OPS[op], OPS[op].problem(*shape, dtype=dtype))
            for op in rewrite.ops
            for shape in shapes
            for dtype in rewrite.dtypes
        ]


def arguments() -> argparse.Namespace:
    """Parse the arguments."""
    found = bare_parser(__doc__)
    found.add_argument("--out", type=Path, metavar="DIR", help="write features.md into DIR")
    found.add_argument("--write", action="store_true", help="write bench/results/features.md")
    found.add_argument("--engine", action="append", help=f"an engine; default: {' and '.join(_ENGINES)}")
    found.add_argument("--adapter", help="an adapter of the engines dawn and wgpu")
    found.add_argument("--quick", action="store_true", help="small problems and few samples")
    found.add_argument("--seconds", type=positive, default=540, help="start nothing new after these seconds")
    return found.parse_args()


def main() -> None:
    """Compare the rewrites in each engine, and report what was found."""
    asked, began = arguments(), time.monotonic()
    paths = [_RESULTS] if asked.write else []
    if asked.out is not None:
        asked.out.mkdir(parents=True, exist_ok=True)
        paths.append(asked.out / "features.md")
    report = GrowingReport(paths)
    said = command("bench.features", asked.out)
    report.add("# What optional features gain", "", f"Recorded {datetime.date.today()} with `{said}`.")
    engines: Sequence[str] = asked.engine or _ENGINES
    for at, engine in enumerate(engines, 1):
        until = began + asked.seconds * at / len(engines)
        with Worker(asked.adapter, engine=engine) as worker:
            with explain_worker_failure(f"starting {engine}"):
                described, traits = bench.device_of(worker)
            report.add(f"\n## {engine}: {adapter_text(described)}")
            FeatureComparison(worker, traits, asked.quick, until, report).run()


if __name__ == "__main__":
    run(main)
