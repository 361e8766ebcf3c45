"""`webnorm bench`: kernels timed side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from webnorm.cli.arguments import (
    but_auto,
    constants,
    integers,
    kernel_files,
    kernels_asked,
    op_named,
    option_pairs,
    recorded_tunings,
    seed_or_any,
)
from webnorm.cli.options import (
    MOST_SECONDS,
    AdapterOption,
    AllConstantsOption,
    AllowSkippedOption,
    ConstantOption,
    DtypeOption,
    EpsOption,
    KernelOption,
    NoBiasOption,
    NoWeightOption,
    OpOption,
    OptionOption,
    ScaleOption,
    SeedOption,
    TimeLimitOption,
    WgslOption,
)
from webnorm.cli.outputs import check_outputs, command_line, take_each, writing
from webnorm.cli.running import opened, status_of
from webnorm.cli.status import Interrupted
from webnorm.errors import WebnormError

if TYPE_CHECKING:
    from webnorm.kernels.traits import Traits
    from webnorm.lab.results import Report, Result
    from webnorm.norms.ops import Op
    from webnorm.norms.presets import Task


def bench(
    kernel: KernelOption = None,
    op: OpOption = None,
    rows: Annotated[str | None, typer.Option(help="Rows, a list like 1024,4096.")] = None,
    cols: Annotated[str | None, typer.Option(help="Columns, a list like 768,1024.")] = None,
    preset: Annotated[
        str | None, typer.Option(help="A named workload in place of --rows and --cols; `help` lists them.")
    ] = None,
    dtype: DtypeOption = None,
    option: OptionOption = None,
    scale: ScaleOption = 1.0,
    distribution: Annotated[str, typer.Option(help="How x is drawn: normal, mean1e4, outlier...")] = "normal",
    eps: EpsOption = None,
    seed: SeedOption = None,
    no_weight: NoWeightOption = False,
    no_bias: NoBiasOption = False,
    constant: ConstantOption = None,
    all_constants: AllConstantsOption = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="One small shape, few samples: does it work?")
    ] = False,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget", help="Seconds of timing per shape and run, at most.", min=0.01, max=MOST_SECONDS
        ),
    ] = None,
    runs: Annotated[
        int,
        typer.Option(
            "--runs",
            help="So many runs, each in a fresh process: `webnorm compare` needs 3 or more on both sides.",
            min=1,
        ),
    ] = 1,
    at_once: Annotated[
        bool,
        typer.Option(
            "--at-once",
            help="Time independent problems that may overlap on the device: its throughput. Default: each "
            "call waits for the one before, as a caller's do.",
        ),
    ] = False,
    wgsl: WgslOption = None,
    adapter: AdapterOption = None,
    time_limit: TimeLimitOption = 60.0,
    allow_skipped: AllowSkippedOption = False,
    json: Annotated[
        Path | None, typer.Option("--json", help="Write results as JSON, - for standard output.")
    ] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write results as CSV.")] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", help="Write results as Markdown tables.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw GB/s over columns into an .svg or .png file.")
    ] = None,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="Below each table, where the time goes with the fastest kernel: upload, dispatch, download, "
            "and the render, compile and pipeline of its first use.",
        ),
    ] = False,
) -> None:
    """Time kernels side by side with a copy, each checked against float64 before and after.

    Without --rows, --cols or --preset the shapes suit the adapter: large for a GPU, small for software.
    """
    from dataclasses import replace as changed

    from webnorm.calls.transfers import TransferJob, time_transfers
    from webnorm.cli import overview
    from webnorm.cli import plot as plotting
    from webnorm.cli import report as show_report
    from webnorm.cli.screen import Screen, progress
    from webnorm.gpu import timing
    from webnorm.kernels.library import AUTO, survey
    from webnorm.lab import bench
    from webnorm.lab.origin import origin_of
    from webnorm.lab.profile import profiled
    from webnorm.lab.results import Report
    from webnorm.lab.worker import Worker

    if preset == "help":
        Screen().print(overview.preset_table())
        return
    console = Screen(stderr=any(str(path) == "-" for path in (json, csv, markdown)))
    if plot is not None:
        plotting.file_format(plot)
    check_outputs(
        {"--json": json, "--csv": csv, "--markdown": markdown, "--plot": plot}, kernel_files(kernel, wgsl)
    )
    if preset is not None and (rows or cols or op):
        raise WebnormError("--preset names its own op and shapes; leave --op, --rows and --cols out")
    home = op_named(op)
    seed = seed_or_any(seed)
    changes = {"dtype": dtype, "eps": eps, "distribution": distribution, "seed": seed, "scale": scale}
    asked = _tasks(
        home,
        (integers(rows, "--rows"), integers(cols, "--cols")),
        preset,
        changes,
        option_pairs(option, no_weight, no_bias),
    )
    ops = (
        (home.name,) if preset is None else tuple(dict.fromkeys(task.op.name for task in asked(None, quick)))
    )
    kernels, copies, broken = kernels_asked(but_auto(kernel, constant, all_constants), ops, wgsl)
    rule = timing.QUICK if quick else timing.Rule()
    if budget is not None:
        rule = changed(rule, budget_s=budget)
    origin = origin_of(command_line())
    finished: dict[int, list[Result]] = {}
    description: dict[str, Any] = {}

    def report(complete: bool = False) -> Report:
        found = tuple(result for results in finished.values() for result in results)
        return Report(device=description, results=found, complete=complete, origin=origin)

    def save() -> None:
        # A full disk may have room again; the last attempt tells.
        with suppress(WebnormError):
            take_each(*writing(report(), json, csv, markdown)[0])

    def show(number: int) -> None:
        console.print()
        console.print(show_report.bench_table(finished[number], str(tasks[number])))
        console.print(show_report.bar_chart(finished[number]))

    tasks: tuple[Task, ...] = ()
    shown = 0
    interrupted = False
    with Worker(adapter, time_limit) as worker, progress("opening the adapter") as update:
        try:
            description, traits = opened(worker)
            update(None, None)
            console.print(overview.device_line(description))
            tasks = asked(traits, quick)
            request = bench.BenchRequest(
                tasks,
                tuple(kernels),
                tuple(copies),
                rule,
                tuple(wgsl or ()),
                constants(constant, [*kernels, *copies]),
                all_constants,
                ladder=tuple(survey(wgsl or ())[0]),
                tunings=recorded_tunings(description),
                with_auto=not kernel or AUTO in kernel,
                runs=runs,
                calls="at once" if at_once else "one by one",
                broken=tuple(broken),
            )
            done = 0
            for event in bench.run(request, worker, traits):
                if isinstance(event, bench.Progress):
                    run = f"run {event.run} of {runs}: " if runs > 1 else ""
                    update(f"{run}{event.task}: {event.doing}", done / (runs * len(tasks)))
                    continue
                number = done % len(tasks)
                done += 1
                finished[number] = event
                save()
                if done <= (runs - 1) * len(tasks):
                    continue
                update(None, None)
                show(number)
                shown = number + 1
                if profile:
                    finished[number] = profiled(
                        event,
                        lambda op, problem, called: worker.stream(
                            time_transfers, TransferJob(op, problem, called, rule)
                        ),
                    )
                    save()
                    console.print()
                    console.print(show_report.profile_table(finished[number], traits.software))
        except KeyboardInterrupt:
            interrupted = True

    def show_rest() -> None:
        for number in sorted(finished)[shown:]:
            show(number)
        console.print()
        software = description.get("type") == "CPU"
        console.print(show_report.race_line(report().results, software), soft_wrap=True)
        console.print(f"drawn with --seed {seed}", soft_wrap=True)

    drawn = [partial(plotting.plot, report(), plot)] if plot is not None and finished else []
    saved, printed = writing(report(not interrupted), json, csv, markdown)
    take_each(*saved, *drawn, show_rest, *printed)
    if interrupted:
        raise Interrupted
    raise typer.Exit(status_of(report().results, allow_skipped, "timed"))


def _tasks(
    op: Op,
    shapes: tuple[tuple[int, ...] | None, tuple[int, ...] | None],
    preset: str | None,
    changes: dict[str, Any],
    options: Sequence[str],
) -> Callable[[Traits | None, bool], tuple[Task, ...]]:
    """The tasks asked for; shapes that nobody named depend on the adapter. Mistakes are found at once."""
    from webnorm.norms import presets

    if preset is not None:
        named = presets.preset_named(preset).changed(
            options, changes["dtype"], changes["eps"], changes["seed"]
        )
        return lambda traits, quick: (
            presets.quick_tasks(named, traits is not None and traits.software) if quick else named.tasks
        )
    rows, cols = shapes
    presets.check_rows(rows)

    def tasks(traits: Traits | None, quick: bool) -> tuple[Task, ...]:
        if rows or cols or traits is None:
            pairs = tuple((m, n) for m in rows or (1024,) for n in cols or (1024,))
        else:
            pairs = presets.default_shapes(traits.software, quick)
        return presets.tasks(op.name, pairs, op.defaults.changed(options), **changes)

    tasks(None, False)
    return tasks
