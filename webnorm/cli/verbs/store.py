"""`webnorm store`: results that are kept in one file, and what is asked of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from webnorm.cli.terminal.streams import say
from webnorm.cli.work.jobs import INCONCLUSIVE, OK, WRONG

# Of each series, in files and pictures, by default.
_USUAL_RUNS = 10
_Files = Annotated[
    list[Path], Argument(help="Results of `webnorm bench` or `webnorm check`: files of --json.")
]
_Store = Annotated[
    Path | None,
    Option(help="The SQLite file. Default: $WEBNORM_STORE, or webnorm/store.db of the data folder."),
]
_Op = Annotated[
    str | None, Option(help="Of what is kept an op, a list or a pattern such as 'rms*'. Default: all.")
]
_Kernel = Annotated[
    list[str] | None,
    Option("--kernel", "-k", help="A kernel, a list or a pattern such as 'welford*'; repeatable."),
]
_Adapter = Annotated[str | None, Option(help="A part of adapters' names.")]


def add(files: _Files, store: _Store = None) -> None:
    """All files are added, or, where one cannot be, none. What is there already, by the id of its run or else
    by its content, stays as it is. Files are only read.
    """
    from webnorm.lab.report.history import store as kept

    place = store or kept.store_path()
    for one in kept.add_reports(place, files):
        count, timed = len(one.report.results), sum(result.timed for result in one.report.results)
        say(f"{one.path}: {one.fate}, {count} result{'' if count == 1 else 's'}, {timed} of them with times")
    say(f"kept in {place}")


def history(
    store: _Store = None,
    op: _Op = None,
    kernel: _Kernel = None,
    adapter: _Adapter = None,
    last: Annotated[
        int | None,
        Option(
            help="Show a line for each of the last so many runs. Default: the newest alone; files have 10.",
            min=1,
            max=10_000,
        ),
    ] = None,
    copies: Annotated[bool, Option("--copies", help="Show the copies, too.")] = False,
    json: Annotated[Path | None, Option(help="Write it as JSON, - for standard output.")] = None,
    csv: Annotated[Path | None, Option(help="Write it as CSV, - for standard output.")] = None,
    plot: Annotated[Path | None, Option(help="Draw GB/s over the runs into an .svg or .png file.")] = None,
) -> None:
    """A line for each variant and problem that was timed, platform by platform: how many runs there are, and
    of the newest when it was, by which webnorm, its median, GB/s and share of the copy. Copies have lines
    where --copies or --op copy asks for them, and in files.
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
    last: Annotated[int, Option(help="Against so many runs before the newest.", max=10_000)] = 10,
    json: Annotated[Path | None, Option(help="Write it as JSON, - for standard output.")] = None,
) -> None:
    """The newest run of each platform against the median of those before it. SLOWER is what differs by more
    than 2 percent, by more than three median deviations between runs, and by more than chance. Another driver
    or wgpu begins anew.
    """
    from webnorm.cli.terminal.screen import Screen
    from webnorm.cli.verbs.store_view import RegressionsTable
    from webnorm.cli.work.outputs import check_outputs, write_or_print
    from webnorm.lab.report.history import regressions as judging
    from webnorm.lab.report.history.series import SeriesQuery
    from webnorm.lab.report.history.store import store_path

    place = store or store_path()
    check_outputs({"--json": json}, [place])
    found = judging.regressions(place, SeriesQuery(op, kernel or (), adapter), last)
    Screen(stderr=str(json) == "-").print(RegressionsTable(found))
    if json is not None:
        write_or_print(judging.to_json(found), json)
    if any(one.worse for one in found):
        raise typer.Exit(WRONG)
    raise typer.Exit(INCONCLUSIVE if not found or any(one.unknown for one in found) else OK)


def export(
    files: _Files,
    form: Annotated[str, Option("--as", help="bencher, or github for github-action-benchmark.")],
    out: Annotated[Path, Option(help="The file to write, - for standard output.")] = Path("-"),
) -> None:
    """The medians of files of one device, in Bencher's metric format or as github-action-benchmark's
    customSmallerIsBetter. The store is not asked.
    """
    from webnorm.cli.work.outputs import check_outputs, write_or_print
    from webnorm.lab.report.history.formats import exported

    check_outputs({"--out": out}, files)
    write_or_print(exported(files, form), out)


# name: (function, summary), in the order of `webnorm store --help`.
VERBS: Mapping[str, tuple[Callable[..., None], str]] = {
    "add": (add, "Keep results: reports of bench and check, as their --json wrote them."),
    "history": (history, "What is kept: medians, GB/s and the share of the copy, the newest last."),
    "regressions": (
        regressions,
        "What became slower: exit status 1 where anything did, 3 where that is not known.",
    ),
    "export": (export, "Results as other tools take them: Bencher, github-action-benchmark."),
}
