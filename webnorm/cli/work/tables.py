"""Results as rich renderables. Nothing here prints, and no meaning hangs on colour alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from webnorm.cli.terminal.screen import escaped_line, number_column
from webnorm.errors import one_line
from webnorm.lab.results import tables
from webnorm.lab.results.result import Result


def profile_table(results: Sequence[Result], software: bool) -> RenderableType:
    """Where the time of a problem's fastest result goes: upload, dispatch, download; below, its first use."""
    result = next((result for result in results if result.upload_ns is not None), None)
    if result is None:
        return Text("nothing to profile: no kernel was both right and timed", "dim")
    stages = (
        ("upload", result.upload_ns, result.upload_bytes),
        ("dispatch", result.median_ns, result.bytes),
        ("download", result.download_ns, result.download_bytes),
    )
    whole = sum(spent or 0.0 for _, spent, _ in stages)
    remarks = [
        f"first use: render {tables.time_text(result.render_ns)}, "
        f"compile {tables.time_text(result.compile_ns)}, pipeline {tables.time_text(result.pipeline_ns)}",
        f"upload and download by the wall clock, the wait for the device included; dispatch by "
        f"{result.timing_method}",
    ]
    if result.call_ns is not None:
        remarks.append(
            f"a call from Python, waited for: {tables.time_text(result.resident_call_ns)} on GpuArrays, "
            f"{tables.time_text(result.call_ns)} on NumPy arrays"
        )
    if software:
        remarks.append("a software adapter: its memory is the CPU's, and nothing passes a bus")
    table = _table("stage", *map(number_column, ("time", "MB", "GB/s", "% of all")))
    for stage, spent, size in stages:
        if spent and size is not None:
            rate, share = f"{size / spent:.4g}", tables.percent_text(100 * spent / whole if whole else None)
            table.add_row(stage, tables.time_text(spent), f"{size / 1e6:.4g}", rate, share)
    title = Text("where the time goes with ").append(_variant(result.kernel, result.constants))
    return _between(title, table, remarks)


def race_line(results: Sequence[Result]) -> str:
    """What is known of races on workgroup memory, and of endless loops where there are any: right results
    alone would show neither on a CPU. Empty where neither was looked for.
    """
    watched = sum(result.watched is True for result in results)
    unwatched = sum(result.watched is False for result in results)
    seen = sum("a race" in (result.reason or "") for result in results if result.watched)
    if not watched:
        return f"races on workgroup memory: {_runs(unwatched)} could not be watched" if unwatched else ""
    found = f"in {seen} of" if seen else "none in"
    line = f"races on workgroup memory: {found} {_runs(watched)}"
    endless = sum("a loop that does not end" in (result.reason or "") for result in results if result.watched)
    line += f", endless loops in {endless}" if endless else ""
    return f"{line}, {unwatched} more could not be watched" if unwatched else line


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _variant(kernel: str, constants: Mapping[str, int]) -> Text:
    return escaped_line(kernel).append(one_line(f" {tables.constants_text(constants)}".rstrip()), "dim")


def _lines(remarks: Sequence[str]) -> Text:
    return Text("\n".join(map(one_line, remarks)))


def _table(*columns: Column | str, title: Text | None = None, caption: Text | None = None) -> Table:
    table = Table(*columns, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=0)
    table.title, table.title_justify = title, "left"
    table.caption, table.caption_justify = caption, "left"
    return table


def _between(title: Text, table: Table, remarks: Sequence[str]) -> Group:
    """A table between lines that may be wider than it is, as its own title and caption are not."""
    return Group(title, table, _lines(remarks))
