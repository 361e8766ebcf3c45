"""The record's data for the lab's page: webnorm's own choice on each published device."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.record.tables import Summary, summaries
from bench.record.times import times
from webnorm.files.atomic import write_text
from webnorm.lab.results.result import Report
from webnorm.web.lab_site import LabOffer, lab_offers

# This file is in the package and goes into every lab. The records themselves do not.
FILE = Path(__file__).parents[2] / "webnorm" / "web" / "assets" / "page" / "lab_recorded.json"
PUBLISHED = Path(__file__).parents[1] / "results"
# In the order of the page.
NAMES = ("h200", "h100", "cpu")
# If a problem is in several sections, the first one counts, which has the most rows.
_SECTIONS = ("forward", "residual", "backward", "cpu", "small", "small_backward")


def renew(out: Path, report: Report) -> None:
    """Update a record's data for the lab's page, if the record is published."""
    if out.name in NAMES and out.parent.resolve() == PUBLISHED:
        kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
        write_text(FILE, text({**kept, out.name: recorded(report)}))


def text(devices: Mapping[str, Any]) -> str:
    """Return the file's text with one line per problem, so that diffs are readable."""
    parts = []
    for name in (name for name in NAMES if name in devices):
        head = {key: value for key, value in devices[name].items() if key != "problems"}
        problems = ",\n".join(
            f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in devices[name]["problems"].items()
        )
        parts.append(f'  "{name}": {json.dumps(head)[:-1]}, "problems": {{\n{problems}\n  }}}}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def recorded(report: Report) -> dict[str, Any]:
    """Return a device, and the rows, GB/s and percent of the best copy by the lab's problem names."""
    device = report.device
    days = [recording.partition(",")[0] for own in times(report).values() for recording in own]
    return {
        # The text in parentheses contains versions.
        "name": device["adapter"].partition(" (")[0],
        "software": device["type"] == "CPU",
        "date": max(days),
        "webnorm": report.webnorm,
        "problems": dict(_problems(report)),
    }


def _problems(report: Report) -> Iterator[tuple[str, dict[str, Any]]]:
    found = summaries(report)
    members = [one for section in _SECTIONS for one in found.get(section, ())]
    for offer in lab_offers():
        one = next((one for one in members if _serves(one, offer)), None)
        if one is not None and one.auto and one.auto.gbps and one.percent_of_copy:
            yield (
                offer.name,
                {
                    "rows": one.problem.rows,
                    "gbps": float(f"{one.auto.gbps:.4g}"),
                    "percent_of_copy": round(one.percent_of_copy, 1),
                },
            )


def _serves(one: Summary, offer: LabOffer) -> bool:
    asked, found = offer.task.problem, one.problem
    return one.op == offer.op.name and (asked.cols, asked.dtype, asked.options) == (
        found.cols,
        found.dtype,
        found.options,
    )
