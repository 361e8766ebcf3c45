"""When, and with which command, the problems of a record were measured."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from webnorm.lab.results.result import Report

# What a record's device says of its sections.
RECORDED = "recorded"
# For each time and command the names of the problems that were measured then.
Times = dict[str, list[str]]


def times(report: Report) -> dict[str, Times]:
    """By sections; where a report has one text for a section, that is all of its problems'."""
    found: dict[str, Times] = {}
    for section, told in report.device.get(RECORDED, {}).items():
        found[section] = {told: sorted(_names(report, section))} if isinstance(told, str) else told
    return found


def _names(report: Report, section: str) -> set[str]:
    return {f"{one.op} {one.problem}" for one in report.results if one.case == section and one.op != "copy"}


def together(old: Report, new: Report, kept: Report) -> dict[str, Times]:
    """Of a new report, and of what is kept of an old one beside it."""
    found = times(new)
    for section, before in times(old).items():
        names = _names(kept, section)
        own = found.setdefault(section, {})
        for told, members in before.items():
            if staying := [name for name in members if name in names]:
                own[told] = sorted({*own.get(told, ()), *staying})
    return {section: own for section, own in found.items() if own}


def text(report: Report, sections: Collection[str]) -> str:
    """What a reader is told: the latest first, of the others how many problems they are."""
    counts: dict[str, int] = {}
    for own in _of(report, sections):
        for told, names in own.items():
            counts[told] = counts.get(told, 0) + len(names)
    first, *others = sorted(counts, reverse=True) or ["at an unknown time"]
    return "; ".join([first, *(f"{counts[told]} of the problems {told}" for told in others)])


def _of(report: Report, sections: Collection[str]) -> Iterable[Times]:
    return (own for section, own in times(report).items() if section in sections)
