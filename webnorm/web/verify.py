"""Is an exported package right: its files, its shaders in Chrome's compiler, its answers in a browser."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webnorm.errors import WebnormError
from webnorm.files import replacing
from webnorm.system import Mend
from webnorm.web import opening, tint
from webnorm.web.browser import PAGE, Browser, Visit
from webnorm.web.classes import Absent, absent_of, told, unserved
from webnorm.web.exported import read_exported
from webnorm.web.lab_folder import LAB_PAGE, Lab
from webnorm.web.lab_folder import judged as judged_lab
from webnorm.web.manifest import AGAIN, CouldNotCheck, Native, Report, ReportedShader, Shader, reported
from webnorm.web.package import Package

if TYPE_CHECKING:
    from webnorm.web.request import Update


@dataclass(frozen=True)
class Side:
    """How a shader did on one side, natively where it was exported or in the browser.

    `verdict` is "pass", "fail" or, where it was not run, "skip"; `reason` says why not.
    """

    verdict: str
    max_abs_error: float | None = None
    allowed: float | None = None
    """The tolerance of the element that has that error."""
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
    loose: str | None = None
    """How the tolerance of its header is far looser than that of the best kernels."""


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
    """What one step of an export's verification found: whether it `passed`, None if it could not be taken,
    and what it looked at, or why it could not be, which is `mendable` where something can be installed.

    With that the shaders that Tint refused; what a browser saw of a package; of a lab sentences: what was not
    run and why, and `complaints`, of which there are none if all is well.
    """

    exported: Package | Lab
    step: str
    passed: bool | None
    text: str
    mendable: bool = False
    refused: tuple[tint.Verdict, ...] = ()
    seen: Seen | None = None
    remarks: tuple[str, ...] = ()
    complaints: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the page is to do: features in `without` are not asked for, with `quick` nothing is timed, and a
    picture goes to `screenshot`.
    """

    without: Sequence[str] = ()
    quick: bool = False
    screenshot: Path | None = None


PLAIN = Wish()


def verify(
    folder: Path,
    browser: str | Path | None = None,
    *,
    update: Update,
    time_limit_s: float | None = None,
    wish: Wish = PLAIN,
) -> Iterator[Finding]:
    """Yield each step before the next begins: the files, which are read, the shaders, the answers.

    An export that Tint refuses is not opened in the browser, the first installed unless one is named, by its
    path or by a Playwright server's address. `update` hears what is done, and which share of it is. Raises
    WebnormError for a folder that is no export or is damaged, and where a step ends in the middle.
    """
    no_tint, no_browser = tint.mend(), opening.mends(browser)
    exported = read_exported(folder)
    if isinstance(exported, Lab) and wish.quick:
        raise WebnormError(f"--quick: {folder} is a lab, whose page times whatever it checks; leave it out")
    lacking = tuple(told(absent_of(exported.manifest))) if isinstance(exported, Package) else ()
    yield Finding(exported, "files", True, f"{exported.what} are as exported", remarks=lacking)
    if isinstance(exported, Package):
        yield from _natively(exported)
        yield from _devices(exported)
    if no_tint is not None:
        yield _lacking(exported, "Tint", no_tint)
        refused = False
    else:
        update("compiling the shaders", 0.1)
        found = _compiled(exported)
        refused = not found.passed
        yield found
    if refused:
        yield Finding(exported, "browser", None, "not opened with shaders that Tint refuses")
        return
    yield from (_lacking(exported, "browser", one) for one in no_browser)
    if not no_browser:
        with Browser(browser, time_limit_s) as opened:
            update(f"running {opened.opener.name}", 0.5)
            yield from _in_browser(exported, opened, wish, update)


def _lacking(exported: Package | Lab, step: str, mend: Mend) -> Finding:
    """A step that cannot be taken: it says itself what it is of."""
    why = mend.missing.removeprefix(f"No {step}: ")
    return Finding(exported, step, None, why, mendable=bool(mend.commands))


def _natively(package: Package) -> Iterator[Finding]:
    """A step of its own where a shader was wrong: without a browser nothing else would tell."""
    names = [one["name"] for one in package.shaders if one["native"].get("verdict") == "fail"]
    if names:
        wrong = f"{len(names)} of {len(package.shaders)} shaders were wrong where this was exported"
        yield Finding(package, "natively", False, wrong)


def _devices(package: Package) -> Iterator[Finding]:
    """A step of its own where devices have no shader, and the export was made without `--partial`."""
    declared = {(one.cols, one.devices) for one in absent_of(package.manifest)}
    found = [
        Absent(cols, devices, f"the manifest does not say why; {AGAIN}")
        for cols in package.manifest["cols"]
        for devices in unserved([one for one in package.shaders if one["cols"] == cols])
        if (cols, devices) not in declared
    ]
    if found:
        yield Finding(package, "devices", False, "; ".join(told(found)))


def _compiled(exported: Package | Lab) -> Finding:
    refused, shaders = refused_by_tint(exported), len(exported.sources)
    found = f"{len(refused)} of {shaders} shaders refused"
    right = f"{shaders} shaders compile, and so do their pipelines"
    return Finding(exported, "Tint", not refused, found if refused else right, refused=refused)


def refused_by_tint(exported: Package | Lab) -> tuple[tint.Verdict, ...]:
    """What Tint and Dawn say of each shader that they refuse."""
    return tuple(verdict for verdict in tint.check(exported.sources) if not verdict.ok)


def _in_browser(exported: Package | Lab, browser: Browser, wish: Wish, update: Update) -> Iterator[Finding]:
    try:
        if isinstance(exported, Package):
            seen = answers(exported, browser, wish)
            yield _package_seen(exported, seen)
            yield from _run_nowhere(exported, seen)
        else:
            yield from _lab_seen(exported, browser, wish, update)
    except CouldNotCheck as error:
        yield Finding(exported, "browser", None, str(error))


def _package_seen(package: Package, seen: Seen) -> Finding:
    verdicts = [line.browser.verdict for line in seen.lines]
    ran = f"{len(verdicts) - verdicts.count('skip')} of {len(verdicts)} shaders run here"
    text = f"{ran}, {verdicts.count('pass')} of them right"
    return Finding(package, "browser", not seen.complaints, text, seen=seen)


def _run_nowhere(package: Package, seen: Seen) -> Iterator[Finding]:
    """The shaders that ran neither where the package was exported nor in the browser: their answers are not
    known.
    """
    names = [one.name for one in seen.lines if one.native.verdict == one.browser.verdict == "skip"]
    if names:
        text = f"{', '.join(names)}: run neither natively, where this was exported, nor in this browser"
        yield Finding(package, "answers", None, text)


def _lab_seen(lab: Lab, browser: Browser, wish: Wish, update: Update) -> Iterator[Finding]:
    """A step for each problem, whose ops the page runs in one go."""
    problems = lab.problems
    for at, problem in enumerate(problems):
        update(f"running {problem}", at / len(problems))
        query = problem.query("subgroups" not in wish.without)
        visit = visited(lab.folder, browser, LAB_PAGE, query, wish.screenshot if at == 0 else None)
        try:
            ran = judged_lab(problem, visit.report)
        except CouldNotCheck as error:
            raise CouldNotCheck(f"from {problem} on: {error}" if at else str(error)) from error
        text = f"{problem}: {ran.ran} of {ran.kernels} kernels run here, {ran.right} right"
        seen_by = (f"{visit.browser}, {ran.adapter}",) if at == 0 else ()
        remarks = (*seen_by, *ran.not_run, *(f"on the console: {remark}" for remark in visit.remarks))
        passed = not ran.complaints
        yield Finding(lab, "browser", passed, text, remarks=remarks, complaints=ran.complaints)


# --- The answers


def page_query(without: Sequence[str], quick: bool) -> str:
    """The query that tells the page which features not to ask for, and to leave the timing out."""
    parts = ([f"without={','.join(without)}"] if without else []) + (["quick"] if quick else [])
    return f"?{'&'.join(parts)}" if parts else ""


def visited(folder: Path, browser: Browser, page: str, query: str, screenshot: Path | None) -> Visit:
    """What a visit of a page in a folder brings, with a picture of it in a file."""
    visit = browser.visit(folder, query, page=page, screenshot=screenshot is not None)
    if screenshot is not None and visit.screenshot is not None:
        with replacing(screenshot) as beside:
            beside.write_bytes(visit.screenshot)
    return visit


def answers(package: Package, browser: Browser, wish: Wish = PLAIN) -> Seen:
    """What a browser makes of a package; see verify. Raises CouldNotCheck where its page could not check."""
    query = page_query(wish.without, wish.quick)
    return judged(package, visited(package.folder, browser, PAGE, query, wish.screenshot))


def judged(package: Package, visit: Visit) -> Seen:
    """Hold a page's report against the manifest, which knows what had to be run and how it did natively.

    Raises CouldNotCheck for a page that says so.
    """
    report = reported(visit.report, Report, PAGE)
    found = {one["name"]: one for one in report["shaders"]}
    names = {
        cols: [one["name"] for one in package.manifest["vectors"] if one["cols"] == cols]
        for cols in package.manifest["cols"]
    }
    chosen = report["chosen"]
    lines = tuple(
        _line(one, found.get(one["name"]), names.get(one["cols"], []), chosen) for one in package.shaders
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
    entry: Shader, said: ReportedShader | None, vectors: Sequence[str], chosen: Mapping[str, str | None]
) -> Line:
    native, native_vectors = _native(entry["native"])
    complaints = []
    if native.verdict == "fail":
        complaints.append("it failed natively where it was exported")
    if said is None:
        complaints.append(f"{PAGE} did not report on it")
        return Line(entry["name"], False, native, Side("skip"), None, None, tuple(complaints))
    if said["skipped"] is not None:
        browser = Side("skip", reason=said["skipped"])
    else:
        if not vectors:
            complaints.append(f"no vector has its {entry['cols']} columns")
        found = {one["name"]: one for one in said["vectors"]}
        for name in vectors:
            if name not in found:
                complaints.append(f"{name} was not run")
            elif found[name]["verdict"] not in ("pass", "skip"):
                differs = " (natively it passes)" if native_vectors.get(name) == "pass" else ""
                complaints.append(f"{name}{differs}: {found[name]['reason']}")
        verdicts = {found[name]["verdict"] if name in found else "missing" for name in vectors}
        # A vector whose answers could not be compared, "skip", passes as little as it fails.
        verdict = "pass" if "pass" in verdicts and verdicts <= {"pass", "skip"} else "fail"
        browser = Side(verdict, _number(said["max_abs_error"]), _number(said.get("allowed")))
    timing = said["timing"] or {}
    return Line(
        name=entry["name"],
        chosen=chosen.get(str(entry["cols"])) == entry["name"],
        native=native,
        browser=browser,
        gbps=_number(timing.get("gbps")),
        percent_of_copy=_number(timing.get("percent_of_copy")),
        complaints=tuple(complaints),
        loose=entry.get("loose"),
    )


def _native(entry: Native) -> tuple[Side, dict[str, str]]:
    """The manifest's native result, and the verdict on each vector."""
    if "verdict" not in entry:
        return Side("skip", reason=entry.get("reason")), {}
    vectors = {name: one["verdict"] for name, one in entry.get("vectors", {}).items()}
    error, allowed = _number(entry.get("max_abs_error")), _number(entry.get("allowed"))
    return Side(entry["verdict"], error, allowed, entry.get("reason")), vectors


def _number(value: Any) -> float | None:
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
