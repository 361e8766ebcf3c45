"""Is an exported package right: its files, its shaders in Chrome's compiler, its answers in a browser."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webnorm.errors import WebnormError
from webnorm.files import replacing
from webnorm.web import browser as browsing
from webnorm.web import tint
from webnorm.web.browser import PAGE, Browser, Visit
from webnorm.web.manifest import Native, Report, ReportedShader, Shader, checked
from webnorm.web.package import Package, read_package

if TYPE_CHECKING:
    from webnorm.web.request import Update


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
class Finding:
    """What one step of a package's verification found: whether it `passed`, None if it could not be taken,
    and what it looked at; with that the shaders that Tint refused, and what a browser saw.
    """

    package: Package
    passed: bool | None
    text: str
    refused: tuple[tint.Verdict, ...] = ()
    seen: Seen | None = None


def verify(
    folder: Path,
    browser: Path | None = None,
    *,
    update: Update,
    time_limit_s: float = browsing.TIME_LIMIT_S,
    without: Sequence[str] = (),
    quick: bool = False,
    screenshot: Path | None = None,
) -> Iterator[Finding]:
    """Yield each step before the next begins: the files, which are read, the shaders, the answers.

    A package that Tint refuses is not opened in the browser, the first installed unless one is named. There
    `without` names features that the page is not to ask for, `quick` leaves the timing out, and `screenshot`
    is where a picture of the page goes. `update` hears what is done, and which share of it is. Raises
    WebnormError for a damaged package, and where a step ends in the middle.
    """
    no_tint, no_browser = tint.mend(), browsing.mends(browser)
    package = read_package(folder)
    shaders, vectors = len(package.shaders), len(package.manifest["vectors"])
    yield Finding(package, True, f"files: {shaders} shaders and {vectors} vectors are as exported")
    refused: tuple[tint.Verdict, ...] = ()
    if no_tint is not None:
        yield Finding(package, None, f"Tint: {no_tint.missing}")
    else:
        update("compiling the shaders", 0.1)
        refused = refused_by_tint(package)
        found = f"{len(refused)} of {shaders} shaders refused"
        right = f"{shaders} shaders compile, and so do their pipelines"
        yield Finding(package, not refused, f"Tint: {found if refused else right}", refused=refused)
    yield from (Finding(package, None, f"browser: {one.missing}") for one in no_browser)
    if not refused and not no_browser:
        with Browser(browser, time_limit_s) as opened:
            update(f"running {opened.path.name}", 0.5)
            seen = answers(package, opened, without=without, quick=quick, screenshot=screenshot)
        verdicts = [line.browser.verdict for line in seen.lines]
        ran = f"{len(verdicts) - verdicts.count('skip')} of {shaders} shaders run here"
        yield Finding(
            package, not seen.complaints, f"browser: {ran}, {verdicts.count('pass')} of them right", seen=seen
        )


# --- The shaders


def refused_by_tint(package: Package) -> tuple[tint.Verdict, ...]:
    """What Tint and Dawn say of each shader that they refuse."""
    return tuple(verdict for verdict in tint.check(list(_sources(package))) if not verdict.ok)


def _sources(package: Package) -> Iterator[tint.Source]:
    for one in package.shaders:
        types = {binding["binding"]: binding["type"] for binding in one["bindings"]}
        passes = tuple(
            tint.EntryPoint(
                each["entry_point"],
                tuple((i, types[i]) for i in each["bindings"]),
                constants=one["overrides"],
            )
            for each in one["passes"]
        )
        yield tint.Source(
            one["name"], package.texts[one["name"]], passes, tuple(one["features"]), one["limits"]
        )


# --- The answers


def page_query(without: Sequence[str], quick: bool) -> str:
    """The query that tells the page which features not to ask for, and to leave the timing out."""
    parts = ([f"without={','.join(without)}"] if without else []) + (["quick"] if quick else [])
    return f"?{'&'.join(parts)}" if parts else ""


def answers(
    package: Package,
    browser: Browser,
    *,
    without: Sequence[str] = (),
    quick: bool = False,
    screenshot: Path | None = None,
) -> Seen:
    """What a browser makes of a package; see verify. Raises WebnormError where its page could not check."""
    query = page_query(without, quick)
    visit = browser.visit(package.folder, query, screenshot=screenshot is not None)
    if screenshot is not None and visit.screenshot is not None:
        with replacing(screenshot) as beside:
            beside.write_bytes(visit.screenshot)
    return judged(package, visit)


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
    entry: Shader, reported: ReportedShader | None, vectors: Sequence[str], chosen: Mapping[str, str | None]
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
