"""Is an exported package right: its files, its shaders in Chrome's compiler, its answers in a browser.

Each step is a function of its own, so that the command can show what it found before the next begins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webnorm.errors import WebnormError
from webnorm.web import tint
from webnorm.web.browser import PAGE, Browser, Visit
from webnorm.web.manifest import Native, Report, ReportedShader, Shader, checked
from webnorm.web.package import Package, read_package


@dataclass(frozen=True)
class Side:
    """How a shader did on one side, natively where it was exported or in the browser.

    `verdict` is "pass", "fail" or, where it was not run, "skip"; `reason` says why not.
    """

    verdict: str
    max_abs_error: float | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Line:
    """A shader on both sides. `complaints` are sentences; there are none if all is well."""

    name: str
    chosen: bool
    native: Side
    browser: Side
    gbps: float | None
    percent_of_copy: float | None
    complaints: tuple[str, ...]


@dataclass(frozen=True)
class Seen:
    """What a browser made of the package."""

    browser: str
    adapter: Mapping[str, Any]
    features: tuple[str, ...]
    lines: tuple[Line, ...]
    choices: tuple[str, ...]
    """For each number of columns a sentence: which shader was chosen and why."""
    remarks: tuple[str, ...]
    """What the page wrote to the console as errors."""
    complaints: tuple[str, ...]
    """What is wrong, all shaders together."""


@dataclass(frozen=True)
class Verification:
    """All that was found; a package that Tint refuses is not opened in a browser."""

    package: Package
    refused: tuple[tint.Verdict, ...]
    seen: Seen | None

    @property
    def passed(self) -> bool:
        """Whether every step was taken and found nothing wrong."""
        return not self.refused and self.seen is not None and not self.seen.complaints


def verify(
    folder: Path,
    browser: Browser | None = None,
    *,
    without: Sequence[str] = (),
    quick: bool = False,
) -> Verification:
    """All steps, in a browser that is open already or in one opened for this.

    `without` names features that the page is not to ask for; `quick` leaves the timing out.
    Raises WebnormError for a damaged package and where a step cannot be taken.
    """
    package = read_package(folder)
    refused = refused_by_tint(package)
    if refused:
        return Verification(package, refused, None)
    query = page_query(without, quick)
    if browser is not None:
        return Verification(package, (), judged(package, browser.visit(folder, query)))
    with Browser() as own:
        return Verification(package, (), judged(package, own.visit(folder, query)))


# --- The shaders


def refused_by_tint(package: Package) -> tuple[tint.Verdict, ...]:
    """What Tint and Dawn say of each shader that they refuse."""
    return tuple(verdict for verdict in tint.check(list(_sources(package))) if not verdict.ok)


def _sources(package: Package) -> Iterator[tint.Source]:
    for one in package.shaders:
        types = {binding["binding"]: binding["type"] for binding in one["bindings"]}
        passes = tuple(
            tint.Pass(
                step["entry_point"],
                tuple((i, types[i]) for i in step["bindings"]),
                constants=one["overrides"],
            )
            for step in one["passes"]
        )
        yield tint.Source(
            one["name"], package.texts[one["name"]], passes, tuple(one["features"]), one["limits"]
        )


# --- The answers


def page_query(without: Sequence[str] = (), quick: bool = False) -> str:
    """The query that tells the page which features not to ask for, and to leave the timing out."""
    parts = ([f"without={','.join(without)}"] if without else []) + (["quick"] if quick else [])
    return f"?{'&'.join(parts)}" if parts else ""


def judged(package: Package, visit: Visit) -> Seen:
    """Hold a page's report against the manifest, which knows what had to be run and how it did natively.

    Raises WebnormError for a page that could not check.
    """
    if isinstance(visit.report, dict) and visit.report.get("error"):
        raise WebnormError(f"{PAGE} could not check: {visit.report['error']}")
    report = checked(visit.report, Report, f"the report of {PAGE}")
    reported = {one["name"]: one for one in report["shaders"]}
    names = {
        cols: [one["name"] for one in package.manifest["vectors"] if one["cols"] == cols]
        for cols in package.manifest["cols"]
    }
    chosen = report["chosen"]
    lines = tuple(
        _line(one, reported.get(one["name"]), names.get(one["cols"], []), chosen) for one in package.shaders
    )
    right = {line.name for line in lines if line.browser.verdict == "pass"}
    reasons = report["reasons"]
    return Seen(
        browser=visit.browser,
        adapter=report["adapter"],
        features=tuple(report["features"]),
        lines=lines,
        choices=tuple(f"{cols} columns: {reasons.get(str(cols), 'no choice was made')}" for cols in names),
        remarks=visit.remarks,
        complaints=(
            *(f"{line.name}: {complaint}" for line in lines for complaint in line.complaints),
            # A page that ran nothing, or not what it would choose, has proved nothing.
            *(
                f"{cols} columns: no chosen shader passed"
                for cols in names
                if chosen.get(str(cols)) not in right
            ),
        ),
    )


def _line(
    entry: Shader,
    reported: ReportedShader | None,
    vectors: Sequence[str],
    chosen: Mapping[str, str | None],
) -> Line:
    native, native_vectors = _native(entry["native"])
    complaints = []
    if native.verdict == "fail":
        complaints.append("it failed natively where it was exported")
    if reported is None:
        complaints.append(f"{PAGE} did not report on it")
        return Line(entry["name"], False, native, Side("skip"), None, None, tuple(complaints))
    if reported["skipped"] is not None:
        browser = Side("skip", reason=reported["skipped"])
    else:
        found = {one["name"]: one for one in reported["vectors"]}
        for name in vectors:
            if name not in found:
                complaints.append(f"{name} was not run")
            elif found[name]["verdict"] != "pass":
                differs = " (natively it passes)" if native_vectors.get(name) == "pass" else ""
                complaints.append(f"{name}{differs}: {found[name]['reason']}")
        right = vectors and all(name in found and found[name]["verdict"] == "pass" for name in vectors)
        browser = Side("pass" if right else "fail", _number(reported["max_abs_error"]))
    timing = reported["timing"] or {}
    return Line(
        name=entry["name"],
        chosen=chosen.get(str(entry["cols"])) == entry["name"],
        native=native,
        browser=browser,
        gbps=_number(timing.get("gbps")),
        percent_of_copy=_number(timing.get("percent_of_copy")),
        complaints=tuple(complaints),
    )


def _native(entry: Native) -> tuple[Side, dict[str, str]]:
    """The manifest's native result, and the verdict on each vector."""
    if "verdict" not in entry:
        return Side("skip", reason=entry.get("reason")), {}
    vectors = {name: one["verdict"] for name, one in entry.get("vectors", {}).items()}
    return Side(entry["verdict"], _number(entry.get("max_abs_error"))), vectors


def _number(value: Any) -> float | None:
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
