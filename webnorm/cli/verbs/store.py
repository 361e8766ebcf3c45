"""`webnorm store`: store results in one file and query them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from webnorm.cli.terminal.streams import say
from webnorm.cli.work.jobs import INCONCLUSIVE, OK, WRONG
from webnorm.errors import counted

# The default number of runs of each series in files and pictures.
_USUAL_RUNS = 10
_Files = Annotated[list[Path], Argument(help="Results of `webnorm bench --json` or `webnorm check --json`.")]
_Store = Annotated[
    Path | None,
    Option(help="Use this SQLite file. Default: $WEBNORM_STORE, or webnorm/store.db in your data folder."),
]
_Op = Annotated[
    str | None,
    Option(help="Select ops of the store: an op, a list, or a pattern such as 'rms*'. Default: all."),
]
_Kernel = Annotated[
    list[str] | None,
    Option(
        "--kernel", "-k", help="Select kernels: a name, a list, or a pattern such as 'welford*'. Repeatable."
    ),
]
_Adapter = Annotated[str | None, Option(help="Select adapters by a part of their names.")]


def add(files: _Files, store: _Store = None) -> None:
    """If one file cannot be added, none is. Reports that the store already contains are not added again: it
    compares the ids of runs, or else the contents. The files are not changed.
    """
    from webnorm.lab.report.history import store as kept

    place = store or kept.store_path()
    for one in kept.add_reports(place, files):
        count, timed = len(one.report.results), sum(result.timed for result in one.report.results)
        say(f"{one.path}: {one.fate}, {counted(count, 'result')}, {timed} with times")
    say(f"stored in {place}")


def history(
    store: _Store = None,
    op: _Op = None,
    kernel: _Kernel = None,
    adapter: _Adapter = None,
    last: Annotated[
        int | None,
        Option(
            help="Show the last N runs, one line each. Default: the newest run, and 10 runs in files.",
            min=1,
            max=10_000,
        ),
    ] = None,
    copies: Annotated[bool, Option("--copies", help="Show the copy kernels too.")] = False,
    json: Annotated[
        Path | None, Option(help="Write the history to FILE as JSON; - is standard output.")
    ] = None,
    csv: Annotated[
        Path | None, Option(help="Write the history to FILE as CSV; - is standard output.")
    ] = None,
    plot: Annotated[Path | None, Option(help="Plot GB/s over the runs to an .svg or .png file.")] = None,
) -> None:
    """Each timed variant and problem of a platform has one line with the number of runs. The other columns
    are from the newest run: its date, webnorm version, median, GB/s and share of the copy. Copy kernels are
    shown with --copies or --op copy, and files always contain them.
    """
    from webnorm.cli.terminal.screen import Screen
    from webnorm.cli.verbs.store_view import HistoryTable
    from webnorm.cli.work.outputs import check_outputs, run_each_step, write_or_print
    from webnorm.lab.plot import throughput as pictures
    from webnorm.lab.report.history import series
    from webnorm.lab.report.history.store import store_path

    place = store or store_path()
    if plot is not None:
        pictures.file_format(plot)
    check_outputs({"--json": json, "--csv": csv, "--plot": plot}, [place])
    found = series.history(place, series.SeriesQuery(op, kernel or (), adapter), last or _USUAL_RUNS)
    console = Screen(stderr="-" in (str(json), str(csv)))
    shown = found if copies else found.without_copies()
    console.print(HistoryTable(shown, newest=last is None))
    texts = (json, series.to_json), (csv, series.to_csv)
    run_each_step(
        *(partial(write_or_print, text(found), path) for path, text in texts if path is not None),
        *([partial(series.draw_history, found, plot)] if plot is not None else []),
    )


def regressions(
    store: _Store = None,
    op: _Op = None,
    kernel: _Kernel = None,
    adapter: _Adapter = None,
    last: Annotated[int, Option(help="Compare with the N runs before the newest.", max=10_000)] = 10,
    json: Annotated[
        Path | None, Option(help="Write the comparison to FILE as JSON; - is standard output.")
    ] = None,
) -> None:
    """The newest complete run of each platform is compared with the median of the runs before it.

    SLOWER means a difference of more than 2 %, of more than three median deviations between runs, and beyond
    chance. A new driver or wgpu version starts a new platform.
    """
    from webnorm.cli.terminal.screen import Screen
    from webnorm.cli.verbs.store_view import RegressionsTable
    from webnorm.cli.work.outputs import check_outputs, write_or_print
    from webnorm.lab.report.history import regressions as regression_report
    from webnorm.lab.report.history.series import SeriesQuery
    from webnorm.lab.report.history.store import store_path

    place = store or store_path()
    check_outputs({"--json": json}, [place])
    found = regression_report.regressions(place, SeriesQuery(op, kernel or (), adapter), last)
    Screen(stderr=str(json) == "-").print(RegressionsTable(found))
    if json is not None:
        write_or_print(regression_report.to_json(found), json)
    if any(one.worse for one in found):
        raise typer.Exit(WRONG)
    raise typer.Exit(INCONCLUSIVE if not found or any(one.unknown for one in found) else OK)


def export(
    files: _Files,
    form: Annotated[str, Option("--format", help="Write for bencher, or github (github-action-benchmark).")],
    out: Annotated[Path, Option(help="Write to this file; - is standard output.")] = Path("-"),
) -> None:
    """The output contains the medians of files of one device, in Bencher's metric format or as
    github-action-benchmark's customSmallerIsBetter. This command does not read the store.
    """
    from webnorm.cli.work.outputs import check_outputs, write_or_print
    from webnorm.lab.report.history.formats import exported

    check_outputs({"--out": out}, files)
    write_or_print(exported(files, form), out)


# name: (function, summary), in the order of `webnorm store --help`.
VERBS: Mapping[str, tuple[Callable[..., None], str]] = {
    "add": (add, "Add the JSON reports of `bench` and `check` to the store."),
    "history": (history, "Show the stored medians, GB/s and percentages of the copy, the newest last."),
    "regressions": (regressions, "Report the kernels that became slower."),
    "export": (export, "Convert results for other tools: Bencher, github-action-benchmark."),
}
