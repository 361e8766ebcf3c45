"""Tables of results as text, shared by the terminal, Markdown and CSV."""

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
from webnorm.gpu.backend_names import backend_text
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
# Columns that are omitted if all their cells are empty.
_OPTIONAL = ("GFLOP/s", "timing")
# Columns of numbers.
NUMERIC = frozenset({"#", "median", "+-%", "GB/s", "% of copy", "GFLOP/s", "max abs error"})
NOTHING = "-"
# Reasons shown per kernel and verdict; the rest are counted.
_MOST_NOTES = 3
# The default constants by op and kernel, which tables omit.
Defaults = Mapping[tuple[str, str], Mapping[str, int]]


@dataclass(frozen=True)
class ProblemTable:
    """The table of one problem: per row a result and its cells by column, and `remarks` to show below."""

    columns: tuple[str, ...]
    rows: list[tuple[Result, dict[str, str]]]
    remarks: list[str]


def problem_table(results: Sequence[Result], defaults: Defaults | None = None) -> ProblemTable:
    """Return `standings` as a table. A remark names the timing method, or each row if methods differ.

    Only constants that differ from the `defaults` are shown; without known defaults all are shown.
    """
    methods = {_method_text(result) for result in results if result.timed}
    rows = []
    mixed = any(not result.roofline for result in results)
    for result, place in standings(results):
        marked = mixed and result.roofline
        mark = " (roofline)" if marked else " (auto)" if result.auto else ""
        # The constants of the copy do not matter to the reader.
        constants = {} if marked and defaults is not None else shown_constants(result, defaults)
        flags = [_method_text(result)] if len(methods) > 1 and result.timed else []
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
    timed = [f"timed by {methods.pop()}"] if len(methods) == 1 else []
    timed += drift_remarks(results)
    if any(one.timed and one.roofline != mixed for one in results) and not any(c["#"] for _, c in rows):
        timed.append("no ranks: too few samples to show which kernel is faster")
    remarks = ["; ".join(timed)] if timed else []
    remarks += rank_remarks(results, defaults)
    columns = tuple(
        name for name in COLUMNS if name not in _OPTIONAL or any(cells[name] for _, cells in rows)
    )
    return ProblemTable(columns, rows, remarks + auto_remarks(results, defaults))


def shown_constants(result: Result, defaults: Defaults | None = None) -> dict[str, int]:
    """Return the constants of a result that differ from the defaults: see `problem_table`."""
    known = (defaults or {}).get((result.op, result.kernel), {})
    return {axis: value for axis, value in result.constants.items() if known.get(axis) != value}


def kernel_label(result: Result, defaults: Defaults | None = None) -> str:
    """Return the kernel and its `shown_constants`."""
    return f"{result.kernel} {constants_text(shown_constants(result, defaults))}".rstrip()


def drift_remarks(results: Sequence[Result]) -> list[str]:
    """Return a remark about the best copy's drift during the measurement, for the run with the largest drift.

    There is none if the drift is within the copy's noise.
    """
    copy = best([result for result in results if result.roofline])
    if copy is None or not copy.sampled:
        return []
    samples = [own.tolist() for own in copy.samples_by_run]
    drifts = [timing.drift(own) for own in samples if timing.ratio_moved(own)]
    if not drifts:
        return []
    return [f"at the end {copy.kernel} took {time_ratio_text(1 + max(drifts, key=abs))}"]


def rank_remarks(results: Sequence[Result], defaults: Defaults | None = None) -> list[str]:
    """Return a remark with the numbers behind the ranks if the medians in the table have another order.

    Ranks use each time as a multiple of the copy's in the same round. A machine that slows down during the
    measurement does not change this ratio.
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
    shares = ", ".join(f"{kernel_label(one, defaults)} {ratio_to_copy(one, copy):.3g}" for _, one in ranked)
    return [f"ranked by time as a multiple of the copy's in the same rounds, not by medians: {shares}"]


def auto_remarks(results: Sequence[Result], defaults: Defaults | None = None) -> list[str]:
    """Return a line per variant that `auto` chose, with its speed relative to the best variant."""
    winner = leader(results)
    lines = []
    for result in results:
        if result.auto:
            source = "recorded tuning" if result.auto == "tuning" else "built-in rules"
            head = f"auto picks {kernel_label(result, defaults)} ({source})"
            if winner is None or not result.timed:
                lines.append(f"{head}: not timed")
            elif winner is result:
                lines.append(f"{head}: the best variant measured")
            else:
                percent = 100 * _speed_ratio(result, winner)
                lines.append(
                    f"{head}: {percent:.1f} % of the best variant measured, {kernel_label(winner, defaults)}"
                )
    return lines


def auto_short(results: Sequence[Result]) -> list[str]:
    """Return the speed of auto's choice relative to the best variant in a few words."""
    if not any(result.auto for result in results):
        return []
    chosen, winner = best([result for result in results if result.auto]), leader(results)
    if chosen is None or winner is None:
        return ["auto: not timed"]
    if chosen is winner:
        return ["auto's choice"]
    return [f"auto's choice {chosen.kernel} has {100 * _speed_ratio(chosen, winner):.0f} % of its speed"]


def _speed_ratio(result: Result, other: Result) -> float:
    """Return the speed of a timed result as a share of another's, from the medians in the table."""
    return (other.median_ns or math.nan) / (result.median_ns or math.nan)


def notes(results: Sequence[Result], defaults: Defaults | None = None) -> list[str]:
    """Return one line per reason why results failed or did not run; equal reasons of a kernel are counted."""
    groups: dict[tuple[str, str], dict[str, list[Result]]] = {}
    for result in sorted(results, key=order_of):
        if result.status != "pass":
            reasons = groups.setdefault((result.kernel, verdict(result)), {})
            reasons.setdefault(result.reason or "no reason given", []).append(result)
    lines = []
    for (kernel, outcome), reasons in groups.items():
        for reason, members in list(reasons.items())[:_MOST_NOTES]:
            case = f"case {members[0].case}" if members[0].case else ""
            constants = constants_text(shown_constants(members[0], defaults))
            alone = ", ".join(filter(None, (case, constants)))
            which = f"{len(members)} results" if len(members) > 1 else alone
            lines.append(f"{kernel}{f' ({which})' if which else ''}: {outcome}: {reason}")
        rest = sum(map(len, list(reasons.values())[_MOST_NOTES:]))
        if rest:
            lines.append(f"{kernel}: {outcome}: {rest} more for other reasons")
    return lines


def constants_text(constants: Mapping[str, int], between: str = " ") -> str:
    """Return the constants as "a=1 b=2"."""
    return between.join(f"{name}={int(value)}" for name, value in constants.items())


def time_text(nanoseconds: float | None) -> str:
    """Return a time with three or four digits and its unit."""
    if nanoseconds is None or not math.isfinite(nanoseconds):
        return NOTHING if nanoseconds is None else str(nanoseconds)
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.4g} {unit}"
    return f"{nanoseconds:.4g} ns"


def _spread_text(result: Result) -> str:
    """Return half the distance between the 20th and the 80th percentile, in percent of the median."""
    if not result.timed or result.median_ns is None or result.p20_ns is None or result.p80_ns is None:
        return NOTHING
    return percent_text(50 * (result.p80_ns - result.p20_ns) / result.median_ns)


def time_ratio_text(ratio: float, digits: int = 1) -> str:
    """Return a ratio of times in words that cannot mean speeds: "2.0 % more time" for 1.02."""
    percent = abs(100 * (ratio - 1))
    size = f"{percent:.{digits}f}" if percent < 1e6 else f"{percent:.3g}"
    return f"{size} % {'less' if ratio < 1 else 'more'} time"


def percent_text(percent: float | None) -> str:
    """Return a percentage without decimals."""
    if percent is None:
        return NOTHING
    return f"{percent:.0f}" if abs(percent) < 1e6 else f"{percent:.3g}"


def error_text(error: float | None) -> str:
    """Return an error with two digits."""
    if error is None:
        return NOTHING
    return "0" if error == 0 else f"{error:.1e}"


def device_text(device: Mapping[str, Any]) -> str:
    """Return one line about the device: its name, backend, type, driver, and wgpu's or Dawn's version."""
    details = [str(device[key]) for key in ("backend", "type", "driver") if device.get(key)]
    details += [backend_text(device["wgpu"])] if device.get("wgpu") else []
    # The driver of an engine is the engine itself.
    details = list(dict.fromkeys(details))
    name = str(device.get("adapter", "unknown device"))
    return f"{name} ({', '.join(details)})" if details else name


def to_markdown(report: Report) -> str:
    """Return the device and a table per op and problem, with the same columns as in the terminal."""
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
    """Return a table of cells that already are Markdown; columns in `right` are aligned right."""
    rules = ["---:" if column in right else "---" for column in columns]
    return "\n".join(f"| {' | '.join(row)} |" for row in (columns, rules, *rows))


def to_csv(report: Report) -> str:
    """Return one line per result without its samples; semicolons join constants, options and flags."""
    device = report.device.get("adapter", "")
    return csv_text(["device", *FLAT], ({"device": device, **row} for row in report.rows()))


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows as CSV with a header line."""
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _method_text(result: Result) -> str:
    cache = f"{result.cache} cache" if result.cache else ""
    calls = f"calls {result.calls}" if result.calls else ""
    return ", ".join(filter(None, (result.timing_method, cache, calls))) or "an unknown method"


def escaped(text: str) -> str:
    """Escape a text for Markdown, in one line."""
    text = one_line(" ".join(word for word in re.split("[ \t\n]+", text) if word))
    # Underscores inside words are plain text in GitHub's Markdown, and many names contain them.
    for special in "\\|*<`":
        text = text.replace(special, "\\" + special)
    # Brackets are plain text if no link follows.
    return text.replace("](", "]\\(")
