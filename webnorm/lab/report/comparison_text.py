"""What a comparison says, as text for a pull request and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict

from webnorm.lab.report.comparison import Comparison, Drift, Verdicts
from webnorm.lab.results.result_files import json_lines, known
from webnorm.lab.results.tables import NOTHING, escaped, kernel_label, markdown_table, time_ratio_text

SCHEMA = 1
# What nobody has to look at.
_QUIET = ("SAME", "NOT TIMED")
# The order of a text: what is worst is read first.
_ORDER = ("BROKEN", "SLOWER", "UNCLEAR", "FASTER", "ONLY IN OLD", "ONLY IN NEW", *_QUIET)
# Where a comparison itself says no more.
_WHY = {"UNCLEAR": "the interval has room for a change and for none; more --runs on both sides narrow it"}
# How reasons begin that more measuring does not take away: both sides have to be taken in one way.
_NO_MORE_RUNS = ("timing method was", "cache was", "the way of calls was", "a sample is not")
# Runs that the advice names at least.
_FEWEST = 6
COLUMNS = ("problem", "kernel", "new / old", "interval", "verdict")


def problem_text(one: Comparison) -> str:
    """The op, the problem and the case of a pair."""
    of = one.result
    return f"{of.op} {of.problem}" + (f", {of.case}" if of.case else "")


def pair_labels(found: Sequence[Comparison]) -> Callable[[Comparison], str]:
    """What each of them is called: its kernel, with constants where that has other lines for the problem."""
    count = Counter((problem_text(one), one.result.kernel) for one in found)

    def name(one: Comparison) -> str:
        alone = count[problem_text(one), one.result.kernel] == 1
        return one.result.kernel if alone else kernel_label(one.result)

    return name


def pair_rows(found: Sequence[Comparison], shown: Callable[[str], str] = escaped) -> list[list[str]]:
    """The cells of COLUMNS for each of them, where names are `shown` as a table needs."""
    name = pair_labels(found)
    return [
        [shown(problem_text(of)), shown(name(of)), ratio_text(of.ratio), interval_text(of), of.verdict]
        for of in found
    ]


def ratio_text(ratio: float | None) -> str:
    """A ratio with three decimals."""
    if ratio is None:
        return NOTHING
    return f"{ratio:.3f}" if ratio < 1e6 else f"{ratio:.3g}"


def interval_text(one: Comparison) -> str:
    """The interval of a ratio."""
    return NOTHING if one.low is None else f"{ratio_text(one.low)} to {ratio_text(one.high)}"


def counts_text(found: Sequence[Comparison]) -> str:
    """How many have which verdict, the worst first."""
    counts: Counter[str] = Counter(one.verdict for one in found)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in _ORDER if counts[verdict]) or "nothing"


def drift_text(drift: Drift | None) -> str:
    """What the copies did between two reports, in a line."""
    if drift is None:
        return "copies: none is in both"
    if drift.problems > 1:
        head = f"copies of {drift.problems} problems: {time_ratio_text(drift.ratio)}"
    else:
        rates = [NOTHING if rate is None else f"{rate:.4g}" for rate in (drift.old_gbps, drift.new_gbps)]
        head = (
            f"copies: {rates[0]} -> {rates[1]} GB/s (mean of the middle half), {time_ratio_text(drift.ratio)}"
        )
    if drift.low is None or drift.high is None or drift.spread is None:
        return f"{head}; one run does not tell what moves between runs"
    bounds = f"(95 %: {_change(drift.low)} to {_change(drift.high)})"
    return f"{head} {bounds}; spread between runs {100 * drift.spread:.1f} %"


def _change(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %" if ratio < 1e6 else f"{100 * ratio:+.3g} %"


def verdict_reasons(found: Sequence[Comparison]) -> list[str]:
    """Why verdicts are what they are, a line each, counted."""
    told = ((one.verdict, one.reason or _WHY.get(one.verdict)) for one in found)
    counts = Counter(f"{verdict}: {reason}" for verdict, reason in told if reason)
    return [f"{reason} ({count}x)" if count > 1 else reason for reason, count in counts.items()]


def advice(verdicts: Verdicts) -> list[str]:
    """What to do about what is UNCLEAR, in a line; nothing where more measuring would not help."""
    unclear = [one for one in verdicts.comparisons if one.verdict == "UNCLEAR"]
    helped = [one for one in unclear if not (one.reason or "").startswith(_NO_MORE_RUNS)]
    if not helped:
        return []
    runs = max(_FEWEST, *(2 * len(one.result.samples_by_run) for one in helped))
    return [
        f"{len(unclear)} of {len(verdicts.comparisons)} are UNCLEAR: measure both sides again with more runs "
        f"and a longer budget, such as `webnorm bench --runs {runs} --budget 60`, while nothing else runs on "
        "the machine"
    ]


def to_markdown(verdicts: Verdicts, old: str, new: str) -> str:
    """The comparison of two reports for a pull request: what changed first, what did not folded away."""
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
    said = [*(f"{age} is of a run that was interrupted" for age in verdicts.incomplete), *verdicts.remarks]
    said += [*verdict_reasons(found), *advice(verdicts)]
    if said:
        parts.append("\n".join(f"- {escaped(line)}" for line in said))
    parts.append(
        "Times as multiples of a copy's in the same rounds; above 1 is slower. With 95 % confidence all "
        "intervals hold."
    )
    return "\n\n".join(parts) + "\n"


def to_json(verdicts: Verdicts) -> str:
    """The comparison as strict JSON: a comparison per line; numbers that are not finite are left out."""
    drift = verdicts.drift and known(asdict(verdicts.drift))
    head = {"schema": SCHEMA, "incomplete": verdicts.incomplete, "drift": drift}
    return json_lines(head, "comparisons", verdicts.rows()) + "\n"
