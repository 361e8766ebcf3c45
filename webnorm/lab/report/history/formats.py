"""Export formats for other tools: Bencher's metric format and github-action-benchmark's input."""

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
# Bencher's limit for the length of a name.
MOST_NAME = 1024


def exported(files: Sequence[Path], form: str) -> str:
    """Return the right and timed results of one device's files in one of FORMATS, as text.

    Raises WebnormError for another format, a file that is no report or comes from another device, and if no
    result has a time.
    """
    if form not in FORMATS:
        raise WebnormError(f"--format is {form!r}; it must be {' or '.join(FORMATS)}")
    reports = [(path, result_files.read(path)) for path in files]
    first, report = reports[0]
    for path, other in reports[1:]:
        try:
            require_same_device(report.device, other.device)
        except WebnormError as error:
            raise WebnormError(
                f"{path} comes from another device than {first}; these formats allow one device per file: "
                "export the reports separately"
            ) from error
    found = dict(_named_results([one for _, one in reports]))
    if not found:
        raise WebnormError(f"{first} has no result that is both right and timed; export a report of `bench`")
    written = _bencher(found) if form == "bencher" else _github(found, report)
    return json.dumps(written, indent=1, allow_nan=False) + "\n"


def _named_results(reports: Sequence[Report]) -> Iterator[tuple[str, Result]]:
    """Yield timed results with names that stay the same between runs; repeated names get a number."""
    seen: Counter[str] = Counter()
    for report in reports:
        for result in report.results:
            if result.timed:
                _, problem = problem_key(result.op, result.problem, result.case)
                name = shortened(one_line(f"{problem}: {kernel_label(result)}"), MOST_NAME - 10)
                seen[name] += 1
                yield name if seen[name] == 1 else f"{name} #{seen[name]}", result


def _bencher(found: Mapping[str, Result]) -> dict[str, dict[str, dict[str, float]]]:
    """Return latencies in nanoseconds with p20 and p80 as bounds, and GB/s and copy shares without bounds."""
    written = {}
    for name, one in found.items():
        latency = _known(value=one.median_ns, lower_value=one.p20_ns, upper_value=one.p80_ns)
        others = {"gbps": _known(value=one.gbps), "percent-of-copy": _known(value=one.percent_of_copy)}
        written[name] = {"latency": latency, **{slug: metric for slug, metric in others.items() if metric}}
    return written


def _known(**values: float | None) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None and usable((value,))}


def _github(found: Mapping[str, Result], report: Report) -> list[dict[str, str | float]]:
    """Return entries whose smaller values are better: nanoseconds, with GB/s and copy share as text."""
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
