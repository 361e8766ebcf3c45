"""Text of a comparison: Markdown for a pull request, and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict

from webnorm.errors import counted
from webnorm.lab.report.comparison import Comparison, Drift, Verdicts
from webnorm.lab.results.result_files import json_lines, known
from webnorm.lab.results.tables import NOTHING, escaped, kernel_label, markdown_table, time_ratio_text

SCHEMA = 1
# Verdicts that need no attention.
_QUIET = ("SAME", "NOT TIMED")
# The order in a text: the worst verdict comes first.
_ORDER = ("BROKEN", "SLOWER", "UNCLEAR", "FASTER", "ONLY IN OLD", "ONLY IN NEW", *_QUIET)
# Reasons of verdicts whose comparison states none.
_REASONS = {"UNCLEAR": "the interval allows both a change and no change; more --runs on both sides narrow it"}
# Beginnings of reasons that more runs cannot remove: both sides must be measured in the same way.
_NO_MORE_RUNS = ("timing method was", "cache was", "call method was", "samples are missing")
# The smallest number of runs that the advice names.
_FEWEST = 6
COLUMNS = ("problem", "kernel", "new / old", "interval", "verdict")


def problem_text(one: Comparison) -> str:
    """Return the op, the problem and the case of a pair."""
    of = one.result
    return f"{of.op} {of.problem}" + (f", {of.case}" if of.case else "")


def pair_labels(found: Sequence[Comparison]) -> Callable[[Comparison], str]:
    """Return a function that labels a comparison.

    The label is the kernel, with constants if the problem has several comparisons of that kernel.
    """
    count = Counter((problem_text(one), one.result.kernel) for one in found)

    def name(one: Comparison) -> str:
        alone = count[problem_text(one), one.result.kernel] == 1
        return one.result.kernel if alone else kernel_label(one.result)

    return name


def pair_rows(found: Sequence[Comparison], shown: Callable[[str], str] = escaped) -> list[list[str]]:
    """Return the cells of COLUMNS for each comparison; `shown` escapes names for the table's format."""
    name = pair_labels(found)
    return [
        [shown(problem_text(of)), shown(name(of)), ratio_text(of.ratio), interval_text(of), of.verdict]
        for of in found
    ]


def ratio_text(ratio: float | None) -> str:
    """Return a ratio with three decimals."""
    if ratio is None:
        return NOTHING
    return f"{ratio:.3f}" if ratio < 1e6 else f"{ratio:.3g}"


def interval_text(one: Comparison) -> str:
    """Return the interval of a ratio as text."""
    return NOTHING if one.low is None else f"{ratio_text(one.low)} to {ratio_text(one.high)}"


def counts_text(found: Sequence[Comparison]) -> str:
    """Return the number of comparisons per verdict, the worst verdict first."""
    counts: Counter[str] = Counter(one.verdict for one in found)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in _ORDER if counts[verdict]) or "nothing"


def drift_text(drift: Drift | None) -> str:
    """Return one line about the change of the copies between two reports."""
    if drift is None:
        return "copies: the reports share none"
    if drift.problems > 1:
        head = f"copies of {drift.problems} problems: {time_ratio_text(drift.ratio)}"
    else:
        rates = [NOTHING if rate is None else f"{rate:.4g}" for rate in (drift.old_gbps, drift.new_gbps)]
        head = (
            f"copies: {rates[0]} -> {rates[1]} GB/s (mean of the middle half), {time_ratio_text(drift.ratio)}"
        )
    if drift.low is None or drift.high is None or drift.spread is None:
        return f"{head}; a single run does not show the variation between runs"
    bounds = f"(95 %: {_change(drift.low)} to {_change(drift.high)})"
    return f"{head} {bounds}; spread between runs {100 * drift.spread:.1f} %"


def _change(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %" if ratio < 1e6 else f"{100 * ratio:+.3g} %"


def verdict_reasons(found: Sequence[Comparison]) -> list[str]:
    """Return one line per reason of a verdict, with its count."""
    reasons = ((one.verdict, one.reason or _REASONS.get(one.verdict)) for one in found)
    counts = Counter(f"{verdict}: {reason}" for verdict, reason in reasons if reason)
    return [f"{reason} ({count}x)" if count > 1 else reason for reason, count in counts.items()]


def advice(verdicts: Verdicts) -> list[str]:
    """Return a line of advice about UNCLEAR comparisons; none if more runs would not help."""
    unclear = [one for one in verdicts.comparisons if one.verdict == "UNCLEAR"]
    helped = [one for one in unclear if not (one.reason or "").startswith(_NO_MORE_RUNS)]
    if not helped:
        return []
    runs = max(_FEWEST, *(2 * len(one.result.samples_by_run) for one in helped))
    return [
        f"UNCLEAR: {len(unclear)} of {counted(len(verdicts.comparisons), 'comparison')}. Measure both sides "
        f"again with more runs and a longer budget, such as `webnorm bench --runs {runs} --budget 60`, while "
        "nothing else runs on the machine"
    ]


def to_markdown(verdicts: Verdicts, old: str, new: str) -> str:
    """Return the comparison of two reports for a pull request: changes first, the rest folded."""
    found = sorted(verdicts.comparisons, key=lambda one: _ORDER.index(one.verdict))
    rows = pair_rows(found)
    quiet = [row for row in rows if row[-1] in _QUIET]
    parts = [f"**webnorm: {escaped(new)} against {escaped(old)}: {counts_text(found)}**"]
    parts += [escaped(drift_text(verdicts.drift))]
    if len(quiet) < len(rows):
        loud = ([*row[:-1], f"**{row[-1]}**"] for row in rows if row[-1] not in _QUIET)
        parts.append(markdown_table(COLUMNS, COLUMNS[2:4], loud))
    if quiet:
        summary = f"<details><summary>{len(quiet)} unchanged or not timed</summary>"
        parts += [summary, markdown_table(COLUMNS, COLUMNS[2:4], quiet), "</details>"]
    notes = [*(f"{age} comes from an interrupted run" for age in verdicts.incomplete), *verdicts.remarks]
    notes += [*verdict_reasons(found), *advice(verdicts)]
    if notes:
        parts.append("\n".join(f"- {escaped(line)}" for line in notes))
    parts.append(
        "Times are multiples of a copy's time in the same rounds; above 1 is slower. With 95 % confidence "
        "all intervals are right."
    )
    return "\n\n".join(parts) + "\n"


def to_json(verdicts: Verdicts) -> str:
    """Return the comparison as strict JSON, one comparison per line; non-finite numbers are omitted."""
    drift = verdicts.drift and known(asdict(verdicts.drift))
    head = {"schema": SCHEMA, "incomplete": verdicts.incomplete, "drift": drift}
    return json_lines(head, "comparisons", verdicts.rows()) + "\n"
