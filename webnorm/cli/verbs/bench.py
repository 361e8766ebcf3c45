"""`webnorm bench`: kernels timed side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

from typer import Option

from webnorm.cli.options import shared, values
from webnorm.cli.terminal.screen import Screen
from webnorm.cli.work.cluster import run_on
from webnorm.cli.work.jobs import INCONCLUSIVE, OK, AfterInterrupt, MeasuringJob, OpenWorker
from webnorm.cli.work.outputs import Action, check_outputs, report_steps, run_each_step
from webnorm.errors import WebnormError
from webnorm.gpu import seconds

if TYPE_CHECKING:
    from webnorm.fleet.work_items import WorkItem
    from webnorm.kernels.headers.traits import Traits
    from webnorm.lab.results.result import Report, Result
    from webnorm.lab.results.tables import Usual
    from webnorm.lab.run.bench import BenchRequest, Progress
    from webnorm.lab.run.requests import Coverage, Workload
    from webnorm.op.op import Task

# Runs where results are kept, or held against kept ones: fewer do not tell what moves between runs.
_RUNS_TO_COMPARE = 3
# Tables of more problems than that would push the matrix off the screen.
_MOST_TABLES = 6


def bench(
    kernel: shared.Kernel = None,
    op: shared.Ops = None,
    rows: shared.Rows = None,
    cols: shared.Cols = None,
    size: shared.Sizes = None,
    preset: Annotated[
        str | None, Option(help="A named workload in place of --rows and --cols; `help` lists them.")
    ] = None,
    dtype: shared.Dtypes = None,
    option: shared.Option = None,
    scale: shared.Scale = 1.0,
    distribution: Annotated[str, Option(help="How x is drawn.")] = "normal",
    eps: shared.Eps = None,
    scalar: shared.Scalars = None,
    seed: shared.Seed = None,
    no_weight: shared.NoWeight = False,
    no_bias: shared.NoBias = False,
    constant: shared.Constant = None,
    all_constants: shared.AllConstants = False,
    quick: Annotated[bool, Option("--quick", help="One small shape, few samples: does it work?")] = False,
    budget: Annotated[
        float | None,
        Option(
            help="Seconds of timing per shape and run, at most. Default: 20; with --quick 3.",
            min=seconds.LEAST_BUDGET,
            max=seconds.MOST,
        ),
    ] = None,
    runs: Annotated[
        int | None,
        Option(
            help="So many runs, each in a fresh process: to compare takes 3 or more on both sides. "
            "Default: 1; with --save and --baseline 3.",
            min=1,
        ),
    ] = None,
    at_once: Annotated[
        bool,
        Option(
            "--at-once",
            help="Time independent problems that may overlap on the device: its throughput. Default: each "
            "call waits for the one before, as a caller's do.",
        ),
    ] = False,
    save: Annotated[
        str | None,
        Option(help="Keep the results as the baseline of this NAME; what had it is NAME~ from then on."),
    ] = None,
    baseline: Annotated[
        str | None, Option(help="Hold the results against those kept by --save NAME, or in a JSON file.")
    ] = None,
    wgsl: shared.Wgsl = None,
    adapter: shared.Adapter = None,
    cluster: shared.Cluster = None,
    time_limit: shared.TimeLimit = 60.0,
    allow_skipped: shared.AllowSkipped = False,
    json: Annotated[Path | None, Option(help="Write results as JSON, - for standard output.")] = None,
    csv: Annotated[Path | None, Option(help="Write results as CSV.")] = None,
    markdown: Annotated[Path | None, Option(help="Write results as Markdown tables.")] = None,
    plot: Annotated[Path | None, Option(help="Draw GB/s over columns into an .svg or .png file.")] = None,
    profile: Annotated[
        bool,
        Option(
            "--profile",
            help="Below each table, where the time goes with the fastest kernel: upload, dispatch, download, "
            "and the render, compile and pipeline of its first use.",
        ),
    ] = False,
    verbose: shared.Verbose = False,
) -> None:
    """Without --rows, --cols or --preset the shapes suit the adapter: large for a GPU, small for software.

    Several problems are shown as one matrix, percent of the copy by kernel and shape, before a table of each.
    """
    from webnorm.cli.work.overview import show_presets
    from webnorm.lab.plot import throughput
    from webnorm.lab.run import requests

    if preset == "help":
        return show_presets()
    outputs = {"--json": json, "--csv": csv, "--markdown": markdown, "--plot": plot}
    if plot is not None:
        throughput.check_plot(plot)
    check_outputs(outputs, values.kernel_files(kernel, wgsl))
    work = requests.Workload(
        op=op,
        dtype=dtype,
        sizes=values.size_lists(size, rows, cols),
        preset=preset,
        options=values.option_pairs(option, no_weight, no_bias),
        quick=quick,
        distribution=distribution,
        scalars=values.scalar_values(scalar, eps=eps, scale=None if scale == 1.0 else scale),
        seed=requests.seed_or_random(seed),
    )
    names = requests.kernel_names(kernel)
    request = _request(names, work.ops, wgsl, constant, all_constants, quick, budget, at_once)
    job = _Bench(
        outputs=outputs,
        console=Screen(stderr="-" in map(str, (json, csv, markdown))),
        seed=work.seed,
        allow_skipped=allow_skipped,
        request=replace(request, runs=runs or (_RUNS_TO_COMPARE if save or baseline else 1)),
        workload=work,
        names=names,
        profile=profile,
        verbose=verbose,
        save=save,
        before=_before(save, baseline),
    )
    run_on(cluster, job, adapter, time_limit)


def _before(save: str | None, baseline: str | None) -> Report | None:
    """What to hold the results against; complains now about a name that they could not be kept under."""
    from webnorm.lab.report import baselines

    if save is not None:
        baselines.prepare_baseline(save)
    return None if baseline is None else baselines.read_file_or_baseline(baseline)


def _request(
    names: Sequence[str] | None,
    ops: Sequence[str],
    roots: Sequence[Path] | None,
    constant: Sequence[str] | None,
    all_constants: bool,
    quick: bool,
    budget: float | None,
    at_once: bool,
) -> BenchRequest:
    from webnorm.gpu import timing
    from webnorm.lab.run import requests

    request = requests.bench_request(
        names,
        ops,
        roots=roots or (),
        chosen=values.constant_values(constant),
        every=all_constants,
        rule=timing.QUICK if quick else timing.StoppingRule(),
        budget_s=budget,
    )
    return replace(request, calls="at once" if at_once else "one by one")


@dataclass(kw_only=True)
class _Bench(MeasuringJob):
    """`finished` has the results of each task that has any, `standing` how far the next one is. `before` is
    what they are held against, and `save` the name that they are kept under. `names` are those of kernels
    that the request was made of.
    """

    request: BenchRequest
    workload: Workload
    names: Sequence[str] | None
    profile: bool
    verbose: bool
    save: str | None
    before: Report | None
    finished: dict[int, list[Result]] = field(default_factory=dict, init=False)
    standing: Progress | None = field(default=None, init=False)
    traits: Traits | None = field(default=None, init=False)
    compared: bool = field(default=True, init=False)
    done = "timed"

    @property
    def coverage(self) -> Coverage:
        from webnorm.lab.run.requests import Coverage

        return Coverage.of(self.workload.op, self.workload.dtype, self.names, timed=True)

    def begin(self, traits: Traits) -> None:
        from webnorm.cli.work.overview import device_line
        from webnorm.lab.report.comparison import (
            problem_key,
            problem_labels,
            require_common,
            require_same_device,
        )

        self.console.print(device_line(self.device))
        self.traits = traits
        tasks = self.workload.tasks(traits)
        if self.before is not None:
            require_same_device(self.before.device, self.device)
            asked = dict(problem_key(task.op.name, task.problem) for task in tasks)
            require_common(problem_labels(self.before.results), asked)
        self.request = replace(self.request, tasks=tasks, tuning=values.recorded_tuning(self.device))

    def work(self, opened: OpenWorker) -> None:
        from webnorm.fleet.work_items import profiled
        from webnorm.lab.run import bench

        opened.hide()
        self.begin(opened.traits)
        count = len(self.request.tasks)
        events = self._noting(bench.run(self.request, opened.worker, opened.traits))
        for done, results in enumerate(opened.found(events)):
            number = done % count
            self._keep(number, results)
            if done < (self.request.runs - 1) * count:
                continue
            if self.profile:
                self._keep(number, profiled(results, opened.worker, self.request.rule))
            self._tell(number)

    def errands(self, time_limit_s: float, workers: int) -> Sequence[WorkItem]:
        from webnorm.fleet.shipped_files import ShippedFiles
        from webnorm.fleet.work_items import BenchItem

        errand = partial(
            BenchItem,
            time_limit_s=time_limit_s,
            files=ShippedFiles.of(self.names, self.request.roots),
            ops=self.workload.ops,
            chosen=self.request.chosen,
            every=self.request.every,
            tuning=self.request.tuning,
            rule=self.request.rule,
            runs=self.request.runs,
            calls=self.request.calls,
            profile=self.profile,
        )
        return [errand(task=task) for task in self.request.tasks]

    def take(self, at: int, found: list[Result]) -> None:
        self._keep(at, found)
        self._tell(at)

    def lack(self, at: int, reason: str, lost: bool) -> None:
        from webnorm.lab.run import bench

        self.lost += lost
        task = self.request.tasks[at]
        self.take(at, bench.unrun_results(self.request.kernels, task, reason, lost=lost))

    def of_platform(self, name: str) -> Self:
        if self.save is not None or self.before is not None:
            raise WebnormError(
                "--save and --baseline are of one platform, there are several: choose one by --adapter"
            )
        return super().of_platform(name)

    def _tell(self, number: int) -> None:
        from webnorm.cli.verbs.bench_view import outcome

        if len(self.request.tasks) > 1:
            self.console.print(outcome(self.finished[number], str(self.request.tasks[number])))

    def _noting(self, events: Iterable[Progress | list[Result]]) -> Iterator[Progress | list[Result]]:
        for event in events:
            self.standing = None if isinstance(event, list) else event
            yield event

    @property
    def left(self) -> AfterInterrupt:
        """As of any such job; --save keeps results, too."""
        left = super().left
        return AfterInterrupt.KEPT if self.save is not None and left is AfterInterrupt.SHOWN else left

    def finish(self, complete: bool) -> None:
        """As any such job; after Ctrl-C with what the rounds say that were done of a problem."""
        if self.standing is not None and (results := self.standing.so_far()):
            number = self.request.tasks.index(self.standing.task)
            self.finished[number] = results
            self._tell(number)
        super().finish(complete)

    def _keep(self, number: int, results: list[Result]) -> None:
        self.finished[number] = results
        # A full disk may have room again; the last attempt tells.
        with suppress(WebnormError):
            run_each_step(*report_steps(self.report(), self.outputs)[0])

    def results(self) -> Sequence[Result]:
        # On a cluster they are not finished in their order.
        return [result for number in sorted(self.finished) for result in self.finished[number]]

    def show_results(self) -> None:
        from webnorm.cli.verbs.bench_view import ShareMatrix
        from webnorm.lab.results.ranking import leader, ranked
        from webnorm.lab.run import bench

        matrix = ShareMatrix(self.results())
        if matrix.families:
            self.console.print()
            self.console.print(matrix)
        if len(self.finished) <= _MOST_TABLES or self.verbose:
            for number in sorted(self.finished):
                self._show_task(number)
            shown = [one for results in self.finished.values() for one in ranked(results)]
        else:
            self.console.print(f"-v shows a table of each of the {len(self.finished)} problems")
            shown = [one for results in self.finished.values() if (one := leader(results))]
        self.console.print()
        for line in bench.flag_meanings(shown):
            self.console.print(line)

    def _show_task(self, number: int) -> None:
        from webnorm.cli.verbs.bench_view import BenchTable, profile_table
        from webnorm.cli.work.compile_errors import compile_error_lines

        results = self.finished[number]
        self.console.print()
        task = self.request.tasks[number]
        self.console.print(BenchTable(results, str(task), self._usual(task)))
        for mistake in compile_error_lines(results):
            self.console.print(mistake, soft_wrap=True)
        if self.profile:
            self.console.print()
            self.console.print(profile_table(results, self.device.get("type") == "CPU"))

    def _usual(self, task: Task) -> Usual | None:
        """The constants that a table need not tell; None where it is to tell all."""
        from webnorm.choice.defaults import default_constants

        if self.verbose or self.traits is None:
            return None
        kernels = (*self.request.kernels, *self.request.copies, *self.request.ladder)
        return default_constants(kernels, task, self.traits)

    def further(self, report: Report) -> Sequence[Action]:
        """Hold the results against the baseline, then keep them: in this order, as both may have one name."""
        steps: list[Action] = []
        if self.before is not None and report.results:
            steps.append(partial(self._compare, self.before, report))
        if self.save is not None and report.results:
            steps.append(partial(self._save, report))
        return steps

    def _compare(self, before: Report, report: Report) -> None:
        from webnorm.cli.verbs.compare_view import CompareTable
        from webnorm.lab.report.comparison import compare

        verdicts = compare(before, report)
        self.console.print()
        self.console.print(CompareTable(verdicts))
        self.compared = verdicts.known

    def status(self) -> int:
        """As of any such job; a comparison with a baseline of which nothing is known says so."""
        status = super().status()
        return INCONCLUSIVE if status == OK and not self.compared else status

    def _save(self, report: Report) -> None:
        from webnorm.lab.report import baselines

        name = self.save or ""
        before = (
            f" (what had the name is {name}{baselines.BEFORE})" if name in baselines.baseline_names() else ""
        )
        path = baselines.save_baseline(report, name)
        cut = "" if report.complete else ", of a run that was interrupted"
        self.console.print(f"kept as {name}{before}{cut}: {path}", soft_wrap=True)
