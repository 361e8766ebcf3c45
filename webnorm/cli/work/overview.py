"""What `bench`, `check` and `tune` put on the screen beside results: the device, presets, cases, choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Column, Table
from rich.text import Text

from webnorm.choice.tuning import Tuning
from webnorm.cli.terminal.screen import Screen, escaped_line, number_column, wrapping_column
from webnorm.errors import one_line, shortened
from webnorm.lab.results.result import Result
from webnorm.lab.results.tables import NOTHING, constants_text, device_text, percent_text
from webnorm.lab.run.tune import TuneResult
from webnorm.op.corpus import Case
from webnorm.op.presets import presets

# Characters of the reason why a kernel could not be watched: a compiler may say much.
_LONGEST_REASON = 200


def _bare(*columns: Column) -> Table:
    return Table(*columns, box=None, pad_edge=False)


def device_line(description: Mapping[str, Any]) -> RenderableType:
    """The device, and what a software adapter's figures are worth."""
    line = escaped_line(device_text(description), "bold") if description else Text("no device")
    if description.get("type") == "CPU":
        line.append("\na software adapter: it ranks kernels differently from a GPU", style="yellow")
    return line


def corpus_table(cases: Sequence[Case]) -> Table:
    """The corpus of `check`: each case with its shape and where it comes from."""
    table = _bare(*map(wrapping_column, ("case", "shape", "source")))
    for case in cases:
        unstable = f" ({case.must_fail} must fail)" if case.must_fail else ""
        table.add_row(escaped_line(case.name), case.shape_text, escaped_line(case.source + unstable))
    return table


def tuning_table(tuning: Tuning) -> Table:
    """The choices of a tuning, and what each gained."""
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
    """What came of tuning one task: the choice and what it gained, then what was dropped, a line each."""
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
    """What is known of races on workgroup memory, and of endless loops where there are any: right results
    alone would show neither on a CPU. Where some runs could not be watched it has the first reason. Empty
    where neither was looked for.
    """
    watched = sum(result.watched is True for result in results)
    unwatched = sum(result.watched is False for result in results)
    seen = sum("a race" in (result.reason or "") for result in results if result.watched)
    reason = next((one_line(result.unwatched) for result in results if result.unwatched), None)
    failed = "could not be checked" + (f" ({shortened(reason, _LONGEST_REASON)})" if reason else "")
    if not watched:
        return f"races on workgroup memory: {_runs(unwatched)} {failed}" if unwatched else ""
    found = f"in {seen} of" if seen else "none in"
    line = f"races on workgroup memory: {found} {_runs(watched)}"
    endless = sum("a loop that does not end" in (result.reason or "") for result in results if result.watched)
    line += f", endless loops in {endless}" if endless else ""
    return f"{line}, {unwatched} more {failed}" if unwatched else line


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def show_presets() -> None:
    """Print the named workloads, as `--preset help` asks."""
    table = _bare(*map(wrapping_column, ("preset", "tasks", "source")))
    for name, preset in presets().items():
        table.add_row(name, str(len(preset.tasks)), Text(preset.summary))
    Screen().print(table)
