"""Results as rows of text, the same in the terminal, in Markdown and in CSV."""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from webnorm.errors import one_line
from webnorm.gpu import timing
from webnorm.lab.results.ranking import best, by_problem, leader, order_of, ratio_to_copy, standings, verdict
from webnorm.lab.results.result import FLAT, Report, Result

COLUMNS = (
    "#",
    "kernel",
    "constants",
    "median",
    "+-%",
    "GB/s",
    "% of copy",
    "GFLOP/s",
    "max abs error",
    "verdict",
    "timing",
)
# Those that are left out where no row has anything there.
_SOMETIMES = ("GFLOP/s", "timing")
# Those that hold numbers.
NUMERIC = frozenset({"#", "median", "+-%", "GB/s", "% of copy", "GFLOP/s", "max abs error"})
NOTHING = "-"
# Reasons shown per kernel and verdict; the rest is counted.
_MOST_NOTES = 3
# By op and kernel, constants that nobody has to be told: those that it has by default.
Usual = Mapping[tuple[str, str], Mapping[str, int]]


@dataclass(frozen=True)
class ProblemTable:
    """A table of one problem: a result and its cells by column for each row, `remarks` to go below."""

    columns: tuple[str, ...]
    rows: list[tuple[Result, dict[str, str]]]
    remarks: list[str]


def problem_table(results: Sequence[Result], usual: Usual | None = None) -> ProblemTable:
    """`standings` as cells. How it was timed is said once, below, unless it differs from row to row.

    Constants are told where they differ from the `usual` ones; of a kernel that has none there, and of all
    where that is None, every one.
    """
    hows = {_how(result) for result in results if result.timed}
    rows = []
    mixed = any(not result.roofline for result in results)
    for result, place in standings(results):
        marked = mixed and result.roofline
        mark = " (roofline)" if marked else " (auto)" if result.auto else ""
        # Which of the copies is the roofline is of no one's concern.
        constants = {} if marked and usual is not None else shown_constants(result, usual)
        flags = [_how(result)] if len(hows) > 1 and result.timed else []
        flags += [*result.flags, *(["not deterministic"] if result.deterministic is False else [])]
        cells = (
            place,
            f"{result.kernel}{mark}",
            constants_text(constants) or NOTHING,
            time_text(result.median_ns),
            _spread_text(result),
            NOTHING if result.gbps is None else f"{result.gbps:.4g}",
            percent_text(result.percent_of_copy),
            "" if result.gflops is None else f"{result.gflops:.4g}",
            error_text(result.max_abs_error),
            verdict(result),
            ", ".join(flags),
        )
        rows.append((result, dict(zip(COLUMNS, cells, strict=True))))
    timed = [f"timed by {hows.pop()}"] if len(hows) == 1 else []
    timed += drift_remarks(results)
    if any(one.timed and one.roofline != mixed for one in results) and not any(c["#"] for _, c in rows):
        timed.append("no ranks: samples too few to tell who is faster")
    remarks = ["; ".join(timed)] if timed else []
    remarks += rank_remarks(results, usual)
    columns = tuple(
        name for name in COLUMNS if name not in _SOMETIMES or any(cells[name] for _, cells in rows)
    )
    return ProblemTable(columns, rows, remarks + auto_remarks(results, usual))


def shown_constants(result: Result, usual: Usual | None = None) -> dict[str, int]:
    """The constants of a result that a reader has to be told: see `layout`."""
    known = (usual or {}).get((result.op, result.kernel), {})
    return {axis: value for axis, value in result.constants.items() if known.get(axis) != value}


def kernel_label(result: Result, usual: Usual | None = None) -> str:
    """The kernel, and its constants as far as they have to be told."""
    return f"{result.kernel} {constants_text(shown_constants(result, usual))}".rstrip()


def drift_remarks(results: Sequence[Result]) -> list[str]:
    """By how much the best copy became slower while everything was timed, in the worst of the runs where that
    is more than its noise.
    """
    copy = best([result for result in results if result.roofline])
    if copy is None or not copy.sampled:
        return []
    samples = [own.tolist() for own in copy.samples_by_run]
    drifts = [timing.drift(own) for own in samples if timing.ratio_moved(own)]
    if not drifts:
        return []
    return [f"by the end {copy.kernel} took {time_ratio_text(1 + max(drifts, key=abs))}"]


def rank_remarks(results: Sequence[Result], usual: Usual | None = None) -> list[str]:
    """What ranks, where the medians that are shown lie in another order: each time as a multiple of the
    copy's, round by round, which is not changed by a machine that slows down meanwhile.
    """
    ranked = [(int(place.rstrip("=")), one) for one, place in standings(results) if place]
    agree = all(
        (before.median_ns or 0.0) <= (after.median_ns or 0.0)
        for (rank, before), (next_rank, after) in itertools.pairwise(ranked)
        if rank != next_rank
    )
    copy = best([one for one in results if one.roofline])
    if agree or copy is None:
        return []
    shares = ", ".join(f"{kernel_label(one, usual)} {ratio_to_copy(one, copy):.3g}" for _, one in ranked)
    return [
        f"ranked by the time as a multiple of the copy's in the same rounds, not by the medians: {shares}"
    ]


def auto_remarks(results: Sequence[Result], usual: Usual | None = None) -> list[str]:
    """What auto chose of one problem's variants, and how far it is from the best of them; none unmarked."""
    winner = leader(results)
    lines = []
    for result in results:
        if result.auto:
            head = f"auto: {kernel_label(result, usual)}, by {result.auto}"
            if winner is None or not result.timed:
                lines.append(f"{head}: not timed")
            elif winner is result:
                lines.append(f"{head}: the best variant measured")
            else:
                percent = 100 * _of(result, winner)
                lines.append(
                    f"{head}: {percent:.1f} % of the best variant measured, {kernel_label(winner, usual)}"
                )
    return lines


def auto_short(results: Sequence[Result]) -> list[str]:
    """How far what auto chose is from the best, in some words; none unmarked."""
    if not any(result.auto for result in results):
        return []
    chosen, winner = best([result for result in results if result.auto]), leader(results)
    if chosen is None or winner is None:
        return ["auto: not timed"]
    if chosen is winner:
        return ["as auto chose"]
    return [f"auto has {100 * _of(chosen, winner):.0f} % of that, {chosen.kernel}"]


def _of(result: Result, other: Result) -> float:
    """The speed of a timed result as a share of another's, by the times that are shown of them."""
    return (other.median_ns or math.nan) / (result.median_ns or math.nan)


def notes(results: Sequence[Result], usual: Usual | None = None) -> list[str]:
    """Why results failed or were not run, in a line each; equal reasons of one kernel are counted."""
    groups: dict[tuple[str, str], dict[str, list[Result]]] = {}
    for result in sorted(results, key=order_of):
        if result.status != "pass":
            reasons = groups.setdefault((result.kernel, verdict(result)), {})
            reasons.setdefault(result.reason or "no reason was given", []).append(result)
    lines = []
    for (kernel, outcome), reasons in groups.items():
        for reason, members in list(reasons.items())[:_MOST_NOTES]:
            case = f"case {members[0].case}" if members[0].case else ""
            constants = constants_text(shown_constants(members[0], usual))
            alone = ", ".join(filter(None, (case, constants)))
            which = f"{len(members)} results" if len(members) > 1 else alone
            lines.append(f"{kernel}{f' ({which})' if which else ''}: {outcome}: {reason}")
        rest = sum(map(len, list(reasons.values())[_MOST_NOTES:]))
        if rest:
            lines.append(f"{kernel}: {outcome}: {rest} more, for other reasons")
    return lines


def constants_text(constants: Mapping[str, int], between: str = " ") -> str:
    """The constants as "a=1 b=2"."""
    return between.join(f"{name}={int(value)}" for name, value in constants.items())


def time_text(nanoseconds: float | None) -> str:
    """A time with three or four digits and its unit."""
    if nanoseconds is None or not math.isfinite(nanoseconds):
        return NOTHING if nanoseconds is None else str(nanoseconds)
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.4g} {unit}"
    return f"{nanoseconds:.4g} ns"


def _spread_text(result: Result) -> str:
    """Half the distance of the 20th and the 80th percentile, in percent of the median."""
    if not result.timed or result.median_ns is None or result.p20_ns is None or result.p80_ns is None:
        return NOTHING
    return percent_text(50 * (result.p80_ns - result.p20_ns) / result.median_ns)


def time_ratio_text(ratio: float, digits: int = 1) -> str:
    """A ratio of times in words that no one takes for one of speeds: "2.0 % more time", of 0.98 "less"."""
    percent = abs(100 * (ratio - 1))
    size = f"{percent:.{digits}f}" if percent < 1e6 else f"{percent:.3g}"
    return f"{size} % {'less' if ratio < 1 else 'more'} time"


def percent_text(percent: float | None) -> str:
    """A share in percent, without decimals."""
    if percent is None:
        return NOTHING
    return f"{percent:.0f}" if abs(percent) < 1e6 else f"{percent:.3g}"


def error_text(error: float | None) -> str:
    """An error with two digits."""
    if error is None:
        return NOTHING
    return "0" if error == 0 else f"{error:.1e}"


def device_text(device: Mapping[str, Any]) -> str:
    """One line on the device: its name, backend, type, driver and the wgpu that drove it."""
    details = [str(device[key]) for key in ("backend", "type", "driver") if device.get(key)]
    details += [f"wgpu {device['wgpu']}"] if device.get("wgpu") else []
    name = str(device.get("adapter", "unknown device"))
    return f"{name} ({', '.join(details)})" if details else name


def to_markdown(report: Report) -> str:
    """The device and a table per op and problem, with the columns of the terminal's table."""
    parts = [f"Device: {escaped(device_text(report.device))}. webnorm {escaped(report.webnorm)}."]
    for title, members in by_problem(report.results):
        table = problem_table(members)
        rows = ([escaped(cells[column]) for column in table.columns] for _, cells in table.rows)
        parts += [f"### {escaped(title)}", markdown_table(table.columns, NUMERIC, rows)]
        remarks = [*table.remarks, *notes(members)]
        if remarks:
            parts.append("\n".join(f"- {escaped(remark)}" for remark in remarks))
    return "\n\n".join(parts) + "\n"


def markdown_table(columns: Sequence[str], right: Collection[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already, some columns aligned right."""
    rules = ["---:" if column in right else "---" for column in columns]
    return "\n".join(f"| {' | '.join(row)} |" for row in (columns, rules, *rows))


def to_csv(report: Report) -> str:
    """A line per result without its samples; constants, options and flags are joined by semicolons."""
    device = report.device.get("adapter", "")
    return csv_text(["device", *FLAT], ({"device": device, **row} for row in report.rows()))


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """A line per row, headed by the names of the columns."""
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _how(result: Result) -> str:
    cache = f"{result.cache} cache" if result.cache else ""
    calls = f"calls {result.calls}" if result.calls else ""
    return ", ".join(filter(None, (result.timing_method, cache, calls))) or "unknown means"


def escaped(text: str) -> str:
    """A text as Markdown shows it as it is, in one line."""
    text = one_line(" ".join(word for word in re.split("[ \t\n]+", text) if word))
    # An underscore inside a word is plain text in GitHub's Markdown, and names are full of them.
    for special in "\\|*<`":
        text = text.replace(special, "\\" + special)
    # Brackets are plain, too, where no link follows.
    return text.replace("](", "]\\(")
