"""`webnorm bench`: time kernels next to each other."""

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
from webnorm.cli.work.model_norms import model_problems
from webnorm.cli.work.outputs import Action, check_outputs, report_steps, run_each_step
from webnorm.errors import WebnormError
from webnorm.gpu import seconds

if TYPE_CHECKING:
    from webnorm.fleet.work_items import WorkItem
    from webnorm.kernels.headers.traits import Traits
    from webnorm.lab.results.result import Report, Result
    from webnorm.lab.results.tables import Defaults
    from webnorm.lab.run.bench import BenchRequest, Progress
    from webnorm.lab.run.requests import Coverage, Workload
    from webnorm.op.op import Task

# Runs with --save or --baseline. Fewer runs do not show the variation between runs.
_RUNS_TO_COMPARE = 3
# With more problems, their tables would push the matrix off the screen.
_MOST_TABLES = 6


def bench(
    kernel: shared.Kernel = None,
    op: shared.Ops = None,
    rows: shared.Rows = None,
    cols: shared.Cols = None,
    size: shared.Sizes = None,
    preset: Annotated[
        str | None,
        Option(help="Run a named workload instead of --rows and --cols. `help` lists the workloads."),
    ] = None,
    model: shared.Model = None,
    dim: shared.Dims = None,
    dtype: shared.Dtypes = None,
    option: shared.Option = None,
    scale: shared.Scale = 1.0,
    distribution: Annotated[str, Option(help="Draw x from this distribution.")] = "normal",
    eps: shared.Eps = None,
    scalar: shared.Scalars = None,
    seed: shared.Seed = None,
    no_weight: shared.NoWeight = False,
    no_bias: shared.NoBias = False,
    constant: shared.Constant = None,
    all_constants: shared.AllConstants = False,
    quick: Annotated[
        bool, Option("--quick", help="Run one shape with few samples, to see that it works.")
    ] = False,
    budget: Annotated[
        float | None,
        Option(
            help="Time each shape for at most this many seconds per run. Default: 20, or 3 with --quick.",
            min=seconds.LEAST_BUDGET,
            max=seconds.MOST,
        ),
    ] = None,
    runs: Annotated[
        int | None,
        Option(
            help="Repeat the measurement N times, each time in a new process. A comparison needs 3 or more "
            "runs on both sides. Default: 1, or 3 with --save or --baseline.",
            min=1,
        ),
    ] = None,
    at_once: Annotated[
        bool,
        Option(
            "--at-once",
            help="Measure throughput: time independent calls that can overlap on the device. By default each "
            "call waits for the previous one.",
        ),
    ] = False,
    save: Annotated[
        str | None,
        Option(help="Keep the results as baseline NAME. The previous baseline is renamed to NAME~."),
    ] = None,
    baseline: Annotated[
        str | None, Option(help="Compare the results with baseline NAME, or with a JSON file.")
    ] = None,
    wgsl: shared.Wgsl = None,
    adapter: shared.Adapter = None,
    backend: shared.Backend = None,
    cluster: shared.Cluster = None,
    time_limit: shared.TimeLimit = 60.0,
    allow_skipped: shared.AllowSkipped = False,
    json: Annotated[
        Path | None, Option(help="Write the results to FILE as JSON; - is standard output.")
    ] = None,
    csv: Annotated[
        Path | None, Option(help="Write the results to FILE as CSV; - is standard output.")
    ] = None,
    markdown: Annotated[
        Path | None, Option(help="Write the results to FILE as Markdown tables; - is standard output.")
    ] = None,
    plot: Annotated[Path | None, Option(help="Plot GB/s over columns to an .svg or .png file.")] = None,
    profile: Annotated[
        bool,
        Option(
            "--profile",
            help="Show the upload, dispatch and download times of the fastest kernel below each table. Also "
            "show the render, compile and pipeline times of its first use.",
        ),
    ] = False,
    verbose: shared.Verbose = False,
) -> None:
    """Without --rows, --cols, --preset or --model the shapes suit the adapter: large for a GPU, small for
    software.

    With several problems `bench` first prints one matrix, the percentage of the copy by kernel and shape, and
    then one table per problem.
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
    norms = model_problems(model, dim, dtype)
    work = requests.Workload(
        op=op,
        dtype=dtype,
        sizes=values.size_lists(size, rows, cols),
        preset=preset,
        model=norms.tasks or None,
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
        skipped=norms.skipped,
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
    """Return the report of the baseline; raise WebnormError now for a name that --save cannot use."""
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
    """The work of `webnorm bench`.

    `finished` maps tasks to their results, and `standing` is the progress of the current task. `before` is
    the baseline to compare with, and `save` the name of the baseline to write. `names` are the kernels of
    --kernel.
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
            self._print_outcome(number)

    def work_items(self, time_limit_s: float, workers: int) -> Sequence[WorkItem]:
        from webnorm.fleet.shipped_files import ShippedFiles
        from webnorm.fleet.work_items import BenchItem

        item = partial(
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
        return [item(task=task) for task in self.request.tasks]

    def record(self, at: int, found: list[Result]) -> None:
        self._keep(at, found)
        self._print_outcome(at)

    def record_missing(self, at: int, reason: str, lost: bool) -> None:
        from webnorm.lab.run import bench

        self.lost += lost
        task = self.request.tasks[at]
        self.record(at, bench.unrun_results(self.request.kernels, task, reason, lost=lost))

    def of_platform(self, name: str) -> Self:
        if self.save is not None or self.before is not None:
            raise WebnormError(
                "--save and --baseline need one platform, but there are several; choose one with --adapter"
            )
        return super().of_platform(name)

    def _print_outcome(self, number: int) -> None:
        from webnorm.cli.verbs.bench_view import outcome

        if len(self.request.tasks) > 1:
            self.console.print(outcome(self.finished[number], str(self.request.tasks[number])))

    def _noting(self, events: Iterable[Progress | list[Result]]) -> Iterator[Progress | list[Result]]:
        for event in events:
            self.standing = None if isinstance(event, list) else event
            yield event

    @property
    def left(self) -> AfterInterrupt:
        """The state of the work after Ctrl-C. --save keeps results too."""
        left = super().left
        return AfterInterrupt.KEPT if self.save is not None and left is AfterInterrupt.SHOWN else left

    def finish(self, complete: bool) -> None:
        """Save and show the remaining results, after Ctrl-C also from the rounds of an unfinished problem."""
        if self.standing is not None and (results := self.standing.so_far()):
            number = self.request.tasks.index(self.standing.task)
            self.finished[number] = results
            self._print_outcome(number)
        super().finish(complete)

    def _keep(self, number: int, results: list[Result]) -> None:
        self.finished[number] = results
        # A full disk may have room again later. The last attempt reports the error.
        with suppress(WebnormError):
            run_each_step(*report_steps(self.report(), self.outputs)[0])

    def results(self) -> Sequence[Result]:
        # A cluster finishes tasks out of order.
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
            self.console.print(f"-v shows one table for each of the {len(self.finished)} problems")
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

    def _usual(self, task: Task) -> Defaults | None:
        """Return the constants that a table leaves out, or None if it shows all."""
        from webnorm.choice.defaults import default_constants

        if self.verbose or self.traits is None:
            return None
        kernels = (*self.request.kernels, *self.request.copies, *self.request.ladder)
        return default_constants(kernels, task, self.traits)

    def final_steps(self, report: Report) -> Sequence[Action]:
        """Return the steps that compare with the baseline and then save one, since both may have one name."""
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
        """Return the exit status, which is INCONCLUSIVE if a comparison with a baseline decides nothing."""
        status = super().status()
        return INCONCLUSIVE if status == OK and not self.compared else status

    def _save(self, report: Report) -> None:
        from webnorm.lab.report import baselines

        name = self.save or ""
        before = (
            f" (the previous baseline is now {name}{baselines.BEFORE})"
            if name in baselines.baseline_names()
            else ""
        )
        path = baselines.save_baseline(report, name)
        cut = "" if report.complete else ", from an interrupted run"
        self.console.print(f"kept as {name}{before}{cut}: {path}", soft_wrap=True)
