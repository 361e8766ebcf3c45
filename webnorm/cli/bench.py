"""`webnorm bench`: kernels timed side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from webnorm.cli import arguments, options
from webnorm.cli.outputs import check_outputs, report_steps, take_each
from webnorm.cli.running import Measuring, Opened, run
from webnorm.errors import WebnormError

if TYPE_CHECKING:
    from webnorm.kernels.traits import Traits
    from webnorm.lab.bench import BenchRequest
    from webnorm.lab.results import Result
    from webnorm.norms.ops import Op, Task


def bench(
    kernel: options.Kernel = None,
    op: options.Op = None,
    rows: Annotated[str | None, Option(help="Rows, a list like 1024,4096.")] = None,
    cols: Annotated[str | None, Option(help="Columns, a list like 768,1024.")] = None,
    preset: Annotated[
        str | None, Option(help="A named workload in place of --rows and --cols; `help` lists them.")
    ] = None,
    dtype: options.Dtype = None,
    option: options.Option = None,
    scale: options.Scale = 1.0,
    distribution: Annotated[str, Option(help="How x is drawn: normal, mean1e4, outlier...")] = "normal",
    eps: options.Eps = None,
    seed: options.Seed = None,
    no_weight: options.NoWeight = False,
    no_bias: options.NoBias = False,
    constant: options.Constant = None,
    all_constants: options.AllConstants = False,
    quick: Annotated[bool, Option("--quick", help="One small shape, few samples: does it work?")] = False,
    budget: Annotated[
        float | None,
        Option(help="Seconds of timing per shape and run, at most.", min=0.01, max=options.MOST_SECONDS),
    ] = None,
    runs: Annotated[
        int,
        Option(
            help="So many runs, each in a fresh process: `webnorm compare` needs 3 or more on both sides.",
            min=1,
        ),
    ] = 1,
    at_once: Annotated[
        bool,
        Option(
            "--at-once",
            help="Time independent problems that may overlap on the device: its throughput. Default: each "
            "call waits for the one before, as a caller's do.",
        ),
    ] = False,
    wgsl: options.Wgsl = None,
    adapter: options.Adapter = None,
    time_limit: options.TimeLimit = 60.0,
    allow_skipped: options.AllowSkipped = False,
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
) -> None:
    """Without --rows, --cols or --preset the shapes suit the adapter: large for a GPU, small for software."""
    from webnorm.cli.overview import preset_table
    from webnorm.cli.plot import file_format
    from webnorm.cli.screen import Screen
    from webnorm.norms.ops import op_named

    if preset == "help":
        Screen().print(preset_table())
        return
    outputs = {"--json": json, "--csv": csv, "--markdown": markdown, "--plot": plot}
    if plot is not None:
        file_format(plot)
    check_outputs(outputs, arguments.kernel_files(kernel, wgsl))
    arguments.refuse_beside_preset(preset, rows, cols, op)
    home, seed = op_named(op or "layer_norm"), arguments.seed_or_any(seed)
    tasks = _tasks(
        home,
        (arguments.integers(rows, "--rows"), arguments.integers(cols, "--cols")),
        preset,
        {"dtype": dtype, "eps": eps, "distribution": distribution, "seed": seed, "scale": scale},
        arguments.option_pairs(option, no_weight, no_bias),
        quick,
    )
    ops = (home.name,) if preset is None else tuple(dict.fromkeys(task.op.name for task in tasks(None)))
    job = _Bench(
        outputs=outputs,
        console=Screen(stderr="-" in map(str, (json, csv, markdown))),
        seed=seed,
        allow_skipped=allow_skipped,
        wanted="timed",
        request=replace(
            _request(kernel, ops, wgsl, constant, all_constants, quick, budget),
            runs=runs,
            calls="at once" if at_once else "one by one",
        ),
        tasks=tasks,
        profile=profile,
    )
    run(job, adapter, time_limit)


def _tasks(
    op: Op,
    shapes: tuple[tuple[int, ...] | None, tuple[int, ...] | None],
    preset: str | None,
    changes: dict[str, Any],
    options: Sequence[str],
    quick: bool,
) -> Callable[[Traits | None], tuple[Task, ...]]:
    """The tasks asked for; shapes that nobody named depend on the adapter. Mistakes are found at once."""
    from webnorm.norms import presets

    if preset is not None:
        named = presets.preset_named(preset).changed(
            options, changes["dtype"], changes["eps"], changes["seed"]
        )
        return lambda traits: (
            presets.quick_tasks(named, traits is not None and traits.software) if quick else named.tasks
        )
    rows, cols = shapes
    presets.check_rows(rows)

    def tasks(traits: Traits | None) -> tuple[Task, ...]:
        if rows or cols or traits is None:
            pairs = tuple((m, n) for m in rows or (1024,) for n in cols or (1024,))
        else:
            pairs = presets.default_shapes(traits.software, quick)
        return presets.tasks(op.name, pairs, op.defaults.changed(options), **changes)

    tasks(None)
    return tasks


def _request(
    names: Sequence[str] | None,
    ops: Sequence[str],
    roots: Sequence[Path] | None,
    constant: Sequence[str] | None,
    all_constants: bool,
    quick: bool,
    budget: float | None,
) -> BenchRequest:
    """The kernels to run, and how long; on which tasks, once and one by one or not, others say."""
    from webnorm.gpu import timing
    from webnorm.kernels.library import AUTO, survey
    from webnorm.lab.bench import BenchRequest

    kernels, copies, broken = arguments.kernels_asked(
        arguments.but_auto(names, constant, all_constants), ops, roots
    )
    rule = timing.QUICK if quick else timing.Rule()
    return BenchRequest(
        (),
        tuple(kernels),
        tuple(copies),
        rule if budget is None else replace(rule, budget_s=budget),
        tuple(roots or ()),
        arguments.constants(constant, [*kernels, *copies]),
        all_constants,
        ladder=tuple(survey(roots or ())[0]),
        with_auto=not names or AUTO in names,
        broken=tuple(broken),
    )


@dataclass(kw_only=True)
class _Bench(Measuring):
    """`finished` has the results of each task that has any; of the first `shown` tasks they are printed."""

    request: BenchRequest
    tasks: Callable[[Traits], tuple[Task, ...]]
    profile: bool
    finished: dict[int, list[Result]] = field(default_factory=dict)
    shown: int = 0

    def work(self, opened: Opened) -> None:
        from webnorm.cli.overview import device_line
        from webnorm.lab import bench

        opened.hide()
        self.console.print(device_line(self.device))
        tasks = self.tasks(opened.traits)
        self.request = replace(self.request, tasks=tasks, tuning=arguments.recorded_tuning(self.device))
        before_last_run = (self.request.runs - 1) * len(tasks)
        events = bench.run(self.request, opened.worker, opened.traits)
        for done, results in enumerate(opened.found(events)):
            number = done % len(tasks)
            self._keep(number, results)
            if done < before_last_run:
                continue
            self._show_task(number)
            self.shown = number + 1
            if self.profile:
                self._profile(number, opened)

    def _keep(self, number: int, results: list[Result]) -> None:
        self.finished[number] = results
        # A full disk may have room again; the last attempt tells.
        with suppress(WebnormError):
            take_each(*report_steps(self.report(), self.outputs)[0])

    def _show_task(self, number: int) -> None:
        from webnorm.cli.report import BarChart, bench_table

        self.console.print()
        self.console.print(bench_table(self.finished[number], str(self.request.tasks[number])))
        self.console.print(BarChart(self.finished[number]))

    def _profile(self, number: int, opened: Opened) -> None:
        from webnorm.calls.transfers import TransferJob, time_transfers
        from webnorm.cli.report import profile_table
        from webnorm.lab.bench import profiled

        def measure(task: Task, kernel: str | None) -> Iterator[Any]:
            return opened.worker.stream(time_transfers, TransferJob(task, kernel, self.request.rule))

        self._keep(number, profiled(self.finished[number], measure))
        self.console.print()
        self.console.print(profile_table(self.finished[number], opened.traits.software))

    def results(self) -> Sequence[Result]:
        return [result for results in self.finished.values() for result in results]

    def show_results(self) -> None:
        for number in sorted(self.finished)[self.shown :]:
            self._show_task(number)
        self.console.print()
