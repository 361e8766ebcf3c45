"""Results as rich renderables. Nothing here prints, and no meaning hangs on colour alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Column, Table
from rich.text import Text

from webnorm.cli.screen import figures, plain, words
from webnorm.errors import one_line, printable
from webnorm.lab import tables
from webnorm.lab.compare import Drift, Verdicts
from webnorm.lab.ranking import best, by_kernel, by_problem, verdict
from webnorm.lab.results import MOST_GBPS, Result

if TYPE_CHECKING:
    from webnorm.web.lab_folder import Lab
    from webnorm.web.package import Package
    from webnorm.web.tint import Verdict
    from webnorm.web.verify import Seen

# Broken where a narrow terminal needs it.
_HEADINGS = {"% of copy": "% of\ncopy", "max abs error": "max abs\nerror"}
_STYLES = {
    "pass": "green",
    "FAIL": "bold red",
    "expected failure": "yellow",
    "skip": "dim",
    "error": "red",
    "SAME": "green",
    "FASTER": "bold green",
    "SLOWER": "bold red",
    "BROKEN": "bold red",
    "UNCLEAR": "yellow",
}


def bench_table(results: Sequence[Result], title: str) -> Table:
    """One problem's results: the best copy as the roofline, the rest by median, failures last.

    Reasons of what failed or was not run stand below the table, where they have room.
    """
    shown = tables.layout(results)
    # Constants stand behind the kernel's name: at 80 columns one of their own is a few letters wide.
    columns = [column for column in shown.columns if column != "constants"]
    kinds = (figures if column in tables.NUMERIC else words for column in columns)
    table = _table(
        *(kind(_HEADINGS.get(column, column)) for kind, column in zip(kinds, columns, strict=True)),
        title=plain(title),
        caption=_lines(shown.remarks) if shown.remarks else None,
    )
    for result, texts in shown.rows:
        cells = {column: plain(text) for column, text in texts.items()}
        cells["kernel"] = _variant(texts["kernel"], result.constants)
        cells["verdict"].stylize(_STYLES[verdict(result)])
        dim = result.status in ("skip", "error")
        style = "dim" if dim else "bold" if result.roofline else None
        table.add_row(*(cells[column] for column in columns), style=style)
    return table


class BarChart:
    """GB/s as horizontal bars: a line for each kernel's best variant, and the best copy as the roofline.

    Drawn when the console's width and encoding are known.
    """

    def __init__(self, results: Sequence[Result]) -> None:
        self.groups = by_problem(results)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        many = len(self.groups) > 1
        for title, members in self.groups:
            if many:
                yield plain(title, "bold")
            yield from _bars(members, options.max_width, options.ascii_only)


def _bars(results: Sequence[Result], width: int, ascii_only: bool) -> list[Text]:
    others = any(not result.roofline for result in results)
    kernels = by_kernel(results).values()
    winners = [winner for members in kernels if (winner := best(members)) and _gbps(winner) > 0]
    if not winners:
        return [Text("no kernel was timed", "dim")]
    roofline = best([winner for winner in winners if winner.roofline]) if others else None
    lines = [winner for winner in winners if roofline is None or not winner.roofline]
    lines.sort(key=lambda winner: -_gbps(winner))
    if roofline:
        lines.insert(0, roofline)

    full = max(map(_gbps, lines))
    shown = [one_line(line.kernel) for line in lines]
    names = max(map(cell_len, shown))
    labels = [
        f"{_gbps(line):.4g} GB/s" + (f" {100 * _gbps(line) / _gbps(roofline):4.0f} %" if roofline else "")
        for line in lines
    ]
    room = max(8, width - names - max(map(len, labels)) - 3)
    block, mark = ("#", "|") if ascii_only else ("█", "│")
    at = max(0, round(room * _gbps(roofline) / full) - 1) if roofline else None
    drawn = []
    for line, name, label in zip(lines, shown, labels, strict=True):
        filled = max(1, round(room * _gbps(line) / full))
        cells = [block] * filled + [" "] * (room - filled)
        if at is not None:
            cells[at] = mark
        colour = "bright_black" if line is roofline else "cyan"
        text = Text(no_wrap=True, overflow="crop")
        text.append(f"{name}{' ' * (names - cell_len(name))} ").append("".join(cells), colour)
        if at is not None:
            mark_at = len(text) - room + at
            text.stylize("bold", mark_at, mark_at + 1)
        drawn.append(text.append(f" {label}"))
    if at is not None:
        foot = f"copy = 100 % {mark}".rjust(names + 2 + at)
        drawn.append(Text(foot, "bold", no_wrap=True, overflow="crop"))
    return drawn


def _gbps(result: Result) -> float:
    """GB/s of a timed result, or 0 for what is no rate: a NaN would make every bar a NaN."""
    return result.gbps if result.gbps is not None and 0 < result.gbps < MOST_GBPS else 0.0


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
    table = _table("stage", *map(figures, ("time", "MB", "GB/s", "% of all")))
    for stage, spent, size in stages:
        if spent and size is not None:
            rate, share = f"{size / spent:.4g}", tables.percent_text(100 * spent / whole if whole else None)
            table.add_row(stage, tables.time_text(spent), f"{size / 1e6:.4g}", rate, share)
    title = Text("where the time goes with ").append(_variant(result.kernel, result.constants))
    return _between(title, table, remarks)


def check_table(results: Sequence[Result]) -> Table:
    """One line per op and kernel: how many cases passed and failed, and the case with the greatest error.

    The worst is an unexpected failure if there is one, else of those in float32 if there are any. Errors are
    relative to max(1, |expected|).
    """
    told = [result for result in results if verdict(result) in ("FAIL", "error", "skip")]
    notes = tables.notes(told)
    table = _table(
        Column("kernel", no_wrap=True),
        *map(figures, ("pass", "FAIL", "expected\nfailure", "skip")),
        words("worst case"),
        figures("max rel\nerror"),
        caption=_lines(notes) if notes else None,
    )
    previous = None
    for (op, kernel), members in by_kernel(results).items():
        if op != previous:
            # A line of its own: the names of ops are long, and the worst case needs the room.
            table.add_row(Text(one_line(op), "bold", overflow="ignore"))
            previous = op
        counts = Counter(map(verdict, members))
        wrong = counts["FAIL"] + counts["error"]
        worst = max(members, key=_badness)
        # Nothing ran: there is no worst.
        shown = worst.status in ("pass", "fail")
        table.add_row(
            plain(f"  {kernel}"),
            Text(str(counts["pass"]), "green" if counts["pass"] else ""),
            Text(str(wrong), "bold red" if wrong else ""),
            Text(str(counts["expected failure"]), "yellow" if counts["expected failure"] else ""),
            Text(str(counts["skip"]), "dim"),
            _worst(worst) if shown else Text(tables.NOTHING),
            Text(tables.error_text(worst.max_rel_error) if shown else tables.NOTHING),
        )
    return table


def race_line(results: Sequence[Result], software: bool) -> str:
    """What the verdicts say of races on workgroup memory, and what they do not."""
    watched = sum(result.watched is True for result in results)
    unwatched = sum(result.watched is False for result in results)
    seen = sum("a race" in (result.reason or "") for result in results if result.watched)
    line = f"races: workgroup memory was watched in {watched} runs, {seen or 'none'} seen"
    if unwatched:
        line += f"; {unwatched} could not be watched"
    if software:
        line += "; right results alone show none on a program on the CPU"
    return line


def _worst(result: Result) -> Text:
    """The case, and the element of it that is worst: index, got, expected, error."""
    text = plain(f"{result.case}, {result.problem.dtype}" if result.case else str(result.problem))
    return text.append("\n").append(plain(result.worst, "dim")) if result.worst else text


def compare_table(verdicts: Verdicts) -> RenderableType:
    """What the copies did, then a line per pair: the ratio (above 1 is slower), its interval, the verdict."""
    found = verdicts.comparisons
    remarks = [
        "ratio: new time over old time, as multiples of the copy's in the same rounds; above 1 is slower",
        "with 95 % confidence all intervals hold",
        *verdicts.remarks,
    ]
    reasons = Counter(f"{one.verdict}: {one.reason}" for one in found if one.reason)
    remarks += (f"{reason} ({count}x)" if count > 1 else reason for reason, count in reasons.items())
    interval = Column("interval", justify="right")
    table = _table(words("problem"), words("kernel"), figures("ratio"), interval, "verdict")
    for one in found:
        bounds = f"{_ratio(one.low)} to {_ratio(one.high)}" if one.low is not None else tables.NOTHING
        of = one.result
        table.add_row(
            plain(f"{of.op} {of.problem}{f', {of.case}' if of.case else ''}"),
            _variant(of.kernel, of.constants),
            _ratio(one.ratio),
            bounds,
            Text(one.verdict, _STYLES.get(one.verdict, "dim")),
        )
    return _between(Text(drift_text(verdicts.drift), "bold"), table, remarks)


def _ratio(ratio: float | None) -> str:
    if ratio is None:
        return tables.NOTHING
    return f"{ratio:.3f}" if ratio < 1e6 else f"{ratio:.3g}"


def drift_text(drift: Drift | None) -> str:
    """What the copies did between two reports, in a line."""
    if drift is None:
        return "copies: none is in both"
    if drift.problems > 1:
        head = f"copies of {drift.problems} problems: {_change(drift.ratio)} in time"
    else:
        rates = [
            tables.NOTHING if rate is None else f"{rate:.4g}" for rate in (drift.old_gbps, drift.new_gbps)
        ]
        head = f"copies: {rates[0]} -> {rates[1]} GB/s, {_change(drift.ratio)} in time"
    if drift.low is None or drift.high is None or drift.spread is None:
        return f"{head}; one run does not tell what moves between runs"
    bounds = f"(95 %: {_change(drift.low)} to {_change(drift.high)})"
    return f"{head} {bounds}; spread between runs {100 * drift.spread:.1f} %"


def _change(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %" if ratio < 1e6 else f"{100 * ratio:+.3g} %"


def step_line(passed: bool | None, text: str) -> Text:
    """One step of `verify`: whether it passed, None if it could not be taken, and what it looked at."""
    verdict = "skip" if passed is None else "pass" if passed else "FAIL"
    return Text.assemble((verdict, _STYLES[verdict]), "  ", plain(text))


def refusal_lines(exported: Package | Lab, refused: Sequence[Verdict]) -> Text:
    """What Tint says, a line for each message: the place in the shader's file as editors know it, and why."""
    lines = []
    for one in refused:
        for said in one.messages:
            place = (exported.place(one.name), *(str(n) for n in (said.line, said.column) if n))
            lines.append(f"{one_line(':'.join(place))}: {said.severity}: {said.text}")
    return Text(printable("\n".join(lines)))


def verify_table(seen: Seen) -> RenderableType:
    """A package's shaders natively and in the browser; below them the choices, and why some did not run."""
    remarks = [*seen.choices]
    for where, side in (("here", "browser"), ("natively", "native")):
        reasons = ((line.name, getattr(line, side).reason) for line in seen.lines)
        remarks += (f"{name}: not run {where}: {reason}" for name, reason in reasons if reason)
    if seen.adapter.get("software"):
        remarks.append("a software adapter: its times say nothing about GPUs")
    remarks += (f"on the console: {remark}" for remark in seen.remarks)
    table = _table(
        words("shader"),
        "chosen",
        *map(figures, ("native\nerror", "browser\nerror")),
        *(Column(heading, no_wrap=True) for heading in ("native", "browser")),
        *map(figures, ("GB/s", _HEADINGS["% of copy"])),
    )
    for line in seen.lines:
        sides = (line.native, line.browser)
        table.add_row(
            plain(line.name),
            "yes" if line.chosen else "",
            *(tables.error_text(side.max_abs_error) for side in sides),
            *(_side_verdict(side.verdict) for side in sides),
            tables.NOTHING if line.gbps is None else f"{line.gbps:.3g}",
            tables.percent_text(line.percent_of_copy),
            style="bold" if line.chosen else "dim" if line.browser.verdict == "skip" else None,
        )
    return _between(plain(_seen_by(seen), "bold"), table, remarks)


def _side_verdict(verdict: str) -> Text:
    shown = "FAIL" if verdict == "fail" else verdict
    return Text(shown, _STYLES[shown])


def _seen_by(seen: Seen) -> str:
    adapter = seen.adapter
    name = adapter.get("description") or " ".join(
        str(adapter[key]) for key in ("vendor", "architecture", "device") if adapter.get(key)
    )
    features = ", ".join(seen.features) or "no features"
    return f"{seen.browser}, {name or 'an adapter without a name'}, with {features}"


def _badness(result: Result) -> tuple[int, bool, float]:
    """Unexpected failures first, then the largest error; what never ran has none.

    Rounding to a narrow type would hide the kernel's own error: results in float32 go before the others.
    """
    grave = {"FAIL": 2, "pass": 1, "expected failure": 1}.get(verdict(result), 0)
    error = result.max_rel_error
    # NaN compares with nothing, so max() would pass over it or keep it by accident.
    plain = result.problem.out_dtype == "float32"
    return grave, plain, -1.0 if error is None else math.inf if math.isnan(error) else error


def _variant(kernel: str, constants: Mapping[str, int]) -> Text:
    return plain(kernel).append(one_line(f" {tables.constants_text(constants)}".rstrip()), "dim")


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
