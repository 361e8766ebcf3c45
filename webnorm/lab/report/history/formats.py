"""Results as other tools take them: Bencher's metric format, and what github-action-benchmark reads."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from webnorm.errors import WebnormError, one_line, shortened
from webnorm.lab.report.comparison import problem_key, require_same_device
from webnorm.lab.results import result_files
from webnorm.lab.results.result import Report, Result, usable
from webnorm.lab.results.tables import kernel_label, percent_text

FORMATS = ("bencher", "github")
# Of a name in Bencher.
MOST_NAME = 1024


def exported(files: Sequence[Path], form: str) -> str:
    """The right and timed results of files of one device in one of FORMATS, as text.

    Raises WebnormError for another format, a file that is no report or of another device, and where nothing
    has a time.
    """
    if form not in FORMATS:
        raise WebnormError(f"--format is {form!r}; expected {' or '.join(FORMATS)}")
    reports = [(path, result_files.read(path)) for path in files]
    first, report = reports[0]
    for path, other in reports[1:]:
        try:
            require_same_device(report.device, other.device)
        except WebnormError as error:
            raise WebnormError(
                f"{path} is of another device than {first}; these formats have one: export them one by one"
            ) from error
    found = dict(_named_results([one for _, one in reports]))
    if not found:
        raise WebnormError(f"{first}: no result is both right and timed: there is nothing to export")
    written = _bencher(found) if form == "bencher" else _github(found, report)
    return json.dumps(written, indent=1, allow_nan=False) + "\n"


def _named_results(reports: Sequence[Report]) -> Iterator[tuple[str, Result]]:
    """Timed results by what they are called from run to run; what is there twice is counted."""
    seen: Counter[str] = Counter()
    for report in reports:
        for result in report.results:
            if result.timed:
                _, problem = problem_key(result.op, result.problem, result.case)
                name = shortened(one_line(f"{problem}: {kernel_label(result)}"), MOST_NAME - 10)
                seen[name] += 1
                yield name if seen[name] == 1 else f"{name} #{seen[name]}", result


def _bencher(found: Mapping[str, Result]) -> dict[str, dict[str, dict[str, float]]]:
    """Latency in nanoseconds, its p20 and p80 as bounds; GB/s and the share of the copy without."""
    written = {}
    for name, one in found.items():
        latency = _known(value=one.median_ns, lower_value=one.p20_ns, upper_value=one.p80_ns)
        others = {"gbps": _known(value=one.gbps), "percent-of-copy": _known(value=one.percent_of_copy)}
        written[name] = {"latency": latency, **{slug: metric for slug, metric in others.items() if metric}}
    return written


def _known(**values: float | None) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None and usable((value,))}


def _github(found: Mapping[str, Result], report: Report) -> list[dict[str, str | float]]:
    """Entries that are better the smaller they are: nanoseconds, and in words what is beside them."""
    where = one_line(f"{report.device.get('adapter', 'unknown device')}, webnorm {report.webnorm}")
    entries = []
    for name, one in found.items():
        entry: dict[str, str | float] = {"name": name, "unit": "ns", "value": one.median_ns or 0.0}
        if (low := one.p20_ns) is not None and (high := one.p80_ns) is not None and usable((low, high)):
            entry["range"] = f"± {abs(high - low) / 2:.4g}"
        share = "" if one.percent_of_copy is None else f"{percent_text(one.percent_of_copy)} % of the copy, "
        rate = "" if one.gbps is None else f"{one.gbps:.4g} GB/s, "
        entries.append({**entry, "extra": f"{rate}{share}{where}"})
    return entries
