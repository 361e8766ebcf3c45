"""The dates and commands with which the problems of a record were measured."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from webnorm.lab.results.result import Report

# The key of these dates and commands in a record's device entry.
RECORDED = "recorded"
# The names of problems by the date and command of their measurement.
Times = dict[str, list[str]]


def times(report: Report) -> dict[str, Times]:
    """Return the times by section; a single text for a section applies to all of its problems."""
    found: dict[str, Times] = {}
    for section, given in report.device.get(RECORDED, {}).items():
        found[section] = {given: sorted(_names(report, section))} if isinstance(given, str) else given
    return found


def _names(report: Report, section: str) -> set[str]:
    return {f"{one.op} {one.problem}" for one in report.results if one.case == section and one.op != "copy"}


def together(old: Report, new: Report, kept: Report) -> dict[str, Times]:
    """Merge the times of a new report and of the kept results of an old one."""
    found = times(new)
    for section, before in times(old).items():
        names = _names(kept, section)
        own = found.setdefault(section, {})
        for recording, members in before.items():
            if staying := [name for name in members if name in names]:
                own[recording] = sorted({*own.get(recording, ()), *staying})
    return {section: own for section, own in found.items() if own}


def text(report: Report, sections: Collection[str]) -> str:
    """Describe the times: the latest first, then the others with their numbers of problems."""
    counts: dict[str, int] = {}
    for own in _of(report, sections):
        for recording, names in own.items():
            counts[recording] = counts.get(recording, 0) + len(names)
    first, *others = sorted(counts, reverse=True) or ["at an unknown time"]
    return "; ".join([first, *(f"{counts[one]} of the problems {one}" for one in others)])


def _of(report: Report, sections: Collection[str]) -> Iterable[Times]:
    return (own for section, own in times(report).items() if section in sections)
