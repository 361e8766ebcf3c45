"""Lines and tables of `bench`, `check` and `tune`: the device, presets, cases and tuned choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Column, Table
from rich.text import Text

from webnorm.choice.tuning import Tuning
from webnorm.cli.terminal.screen import Screen, escaped_line, number_column, wrapping_column
from webnorm.errors import counted, one_line, shortened
from webnorm.lab.results.result import Result
from webnorm.lab.results.tables import NOTHING, constants_text, device_text, percent_text
from webnorm.lab.run.tune import TuneResult
from webnorm.op.corpus import Case
from webnorm.op.presets import presets

# The most characters of the reason why races were not checked, since a compiler's message can be long.
_LONGEST_REASON = 200


def _bare(*columns: Column) -> Table:
    return Table(*columns, box=None, pad_edge=False)


def device_line(description: Mapping[str, Any]) -> RenderableType:
    """Return the line of the device, with a warning for a software adapter."""
    line = escaped_line(device_text(description), "bold") if description else Text("no device")
    if description.get("type") == "CPU":
        line.append("\na software adapter: it ranks kernels differently from a GPU", style="yellow")
    return line


def corpus_table(cases: Sequence[Case]) -> Table:
    """Return a table of the corpus of `check`: each case with its shape and source."""
    table = _bare(*map(wrapping_column, ("case", "shape", "source")))
    for case in cases:
        unstable = f" ({case.must_fail} must fail)" if case.must_fail else ""
        table.add_row(escaped_line(case.name), case.shape_text, escaped_line(case.source + unstable))
    return table


def tuning_table(tuning: Tuning) -> Table:
    """Return a table of the choices of a tuning, with their gains."""
    recorded = tuning.platform
    table = _bare(
        *map(wrapping_column, ("problem", "kernel")), *map(number_column, ("gain", "% of copy", "tried"))
    )
    table.title = escaped_line(f"{recorded.adapter} ({recorded.backend}, {recorded.driver}), {tuning.date}")
    table.title_justify = "left"
    for one in tuning.choices:
        table.add_row(
            escaped_line(f"{one.op}, {one.problem}"),
            escaped_line(f"{one.kernel} {constants_text(one.constants)}"),
            NOTHING if one.speedup is None else f"{one.speedup:{'.2f' if one.speedup < 1e6 else '.3g'}} x",
            percent_text(one.percent_of_copy),
            str(one.tried),
        )
    return table


def tuned_lines(tuned: TuneResult) -> str:
    """Return the lines for one tuned task: the choice with its gain, and each dropped variant."""
    choice = tuned.choice
    dropped = [one_line(f"  dropped: {reason}") for reason in tuned.dropped]
    if choice is None:
        return "\n".join([f"{tuned.task}: no variant is correct", *dropped])
    named = f"{choice.kernel} {constants_text(choice.constants)}"
    gained = (
        f"the rules' choice {tuned.rules} does not run"
        if choice.speedup is None
        else "the rules' choice is the fastest"
        if choice.speedup == 1
        else f"{choice.speedup:.2f} x as fast as the rules' choice {tuned.rules}"
    )
    return "\n".join([f"{tuned.task}: {named}: {gained}; {choice.tried} variants tried", *dropped])


def race_line(results: Sequence[Result]) -> str:
    """Return the line about races on workgroup memory and endless loops; "" if neither was checked.

    On a CPU, correct results do not show that there are no races. If some runs could not be checked, the line
    contains the first reason.
    """
    watched = sum(result.watched is True for result in results)
    unwatched = sum(result.watched is False for result in results)
    seen = sum(result.fault == "race" for result in results)
    reason = next((one_line(result.unwatched) for result in results if result.unwatched), None)
    failed = "could not be checked" + (f" ({shortened(reason, _LONGEST_REASON)})" if reason else "")
    if not watched:
        return f"races on workgroup memory: {counted(unwatched, 'run')} {failed}" if unwatched else ""
    found = f"in {seen} of" if seen else "none in"
    line = f"races on workgroup memory: {found} {counted(watched, 'run')}"
    endless = sum(result.fault == "loop" for result in results)
    line += f", endless loops in {endless}" if endless else ""
    return f"{line}, {unwatched} more {failed}" if unwatched else line


def show_presets() -> None:
    """Print the named workloads, as `--preset help` asks."""
    table = _bare(*map(wrapping_column, ("preset", "tasks", "source")))
    for name, preset in presets().items():
        table.add_row(name, str(len(preset.tasks)), Text(preset.summary))
    Screen().print(table)
