"""Verification of a package or a lab: its files, its shaders in Tint, and its outputs in engines."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from webnorm.engines import node_webgpu
from webnorm.engines.catalog import PORTABLE, Engine, find_engine, installed_engines
from webnorm.errors import WebnormError, counted, path_argument, sentence, shell_word
from webnorm.files.atomic import replacing
from webnorm.kernels.headers.sources import wgsl_files
from webnorm.op.registry import OPS
from webnorm.system import Fix
from webnorm.web import tint
from webnorm.web.browser import launch
from webnorm.web.browser.engine_visits import EngineVisitor
from webnorm.web.browser.lan_visits import LanVisitor
from webnorm.web.browser.visits import PageVisit, PageVisitor, Visitor
from webnorm.web.folder import AGAIN, LAB, LAB_INDEX, MANIFEST, MODEL, MODEL_LISTING, PACKAGE, PAGE, is_export
from webnorm.web.lab_site import LAB_PAGE, ExportedLab, check_lab_report, read_lab
from webnorm.web.package.manifest import (
    CouldNotCheck,
    MissingClass,
    ModelReport,
    NativeResult,
    PackageShader,
    PageReport,
    ReportedShader,
    missing_class_text,
    parse_report,
    unserved,
)
from webnorm.web.package.reader import ExportedModel, ExportedPackage, read_model, read_package
from webnorm.web.package.request import Update

# cols is a name of the manifest's format.

# An export, or a part of one, that has a page.
_Part = ExportedPackage | ExportedLab | ExportedModel

_EXPECTED = f"expected a folder that `webnorm export` wrote ({MANIFEST}, or {LAB_INDEX} of a lab)"
# The number of names that a message lists to describe a folder.
_FEW = 3


@dataclass(frozen=True)
class SideResult:
    """The result of a shader on one side: natively at the export, or in the browser.

    `verdict` is "pass", "fail", or "skip" if it was not run; `reason` then gives the reason.
    """

    verdict: str
    max_abs_error: float | None = None
    allowed: float | None = None
    """The tolerance of the element with that error."""
    reason: str | None = None


@dataclass(frozen=True)
class ShaderComparison:
    """The results of a shader on both sides. `complaints` are sentences; empty if nothing is wrong."""

    name: str
    chosen: bool
    native: SideResult
    browser: SideResult
    gbps: float | None
    percent_of_copy: float | None
    complaints: tuple[str, ...]
    loose: str | None = None
    """A warning, if the header's tolerance is far looser than the tolerance of the best kernels."""


@dataclass(frozen=True)
class BrowserFindings:
    """The results of a package in a browser."""

    browser: str
    adapter: Mapping[str, Any]
    features: tuple[str, ...]
    lines: tuple[ShaderComparison, ...]
    choices: tuple[str, ...]
    """For each number of columns a sentence with the chosen shader and the reason."""
    remarks: tuple[str, ...]
    """The errors that the page wrote to the console."""
    complaints: tuple[str, ...]
    """The complaints about all shaders."""
    engine: str = "browser"
    """The kind of engine, or its name if it was started without a driver."""


@dataclass(frozen=True)
class StepFinding:
    """The result of one step of an export's verification.

    `passed` is None for a step that could not run. `text` says what the step checked, or why it could not
    run. `fixable` is true if installing something makes the step possible. `refused` are the shaders that
    Tint refused, `seen` a package's results in a browser. For a lab, `remarks` list the kernels that were not
    run, and `complaints` the kernels that are wrong.
    """

    exported: _Part
    step: str
    passed: bool | None
    text: str
    fixable: bool = False
    refused: tuple[tint.TintVerdict, ...] = ()
    seen: BrowserFindings | None = None
    remarks: tuple[str, ...] = ()
    complaints: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """Options for the page: features in `without` are not requested, `quick` skips the timing.

    A picture of the page is written to `screenshot`.
    """

    without: Sequence[str] = ()
    quick: bool = False
    screenshot: Path | None = None


PLAIN = PageOptions()


def verify(
    folder: Path,
    browser: str | Path | None = None,
    *,
    update: Update,
    time_limit_s: float | None = None,
    page_options: PageOptions = PLAIN,
    engines: Sequence[str] = (),
    lan: LanVisitor | None = None,
) -> Iterator[StepFinding]:
    """Yield the result of each step before the next begins: files, shaders, outputs.

    An export that Tint refuses is not opened in the browser.

    Parameters
    ----------
    browser
        The path of a browser or the address of a Playwright server; the first installed browser by default.
    update
        Called with the current action and its progress, from 0 to 1.
    time_limit_s
        Seconds for each page.
    page_options
        Options for the page.
    engines
        Names of engines in place of the browser, or "all". They run without a driver.
    lan
        A visitor that waits for a browser of the local network, in place of the browser. Of a lab, this
        browser opens only the first problem.

    Raises
    ------
    WebnormError
        If an engine is missing, the folder is not an export or is damaged, or if a step fails to finish.
    """
    found, lost = _find_engines(engines)
    no_tint, no_browser = node_webgpu.tint_fix(), [] if engines or lan else launch.browser_fixes(browser)
    exported = read_exported(folder)
    if isinstance(exported, ExportedLab) and page_options.quick:
        raise WebnormError(f"--quick: {folder} is a lab, whose page always times kernels; leave --quick out")
    if isinstance(exported, ExportedModel) and lan is not None:
        norm = shell_word(path_argument(exported.packages[0].folder))
        raise WebnormError(f"--lan: {folder} has a page for each norm; name one, such as {norm}")
    parts = _parts(exported)
    packages = [part for part in parts if isinstance(part, ExportedPackage)]
    lacking = tuple(f"{one.label}{text}" for one in packages for text in _absent(one))
    yield StepFinding(exported, "files", True, f"{exported.what} are as exported", remarks=lacking)
    for package in packages:
        yield from _natively(package)
        yield from _devices(package)
    if no_tint is not None:
        yield _lacking(exported, "Tint", no_tint)
    else:
        update("compiling the shaders", 0.1)
        compiled = [_compiled(part) for part in parts if not isinstance(part, ExportedModel)]
        yield from compiled
        if not all(one.passed for one in compiled):
            for step in [engine.name for engine in found] or [lan.name if lan else "browser"]:
                yield StepFinding(exported, step, None, "not opened, since Tint refuses shaders")
            return
    if engines:
        yield from (StepFinding(exported, name, None, why) for name, why in lost.items())
        for part, options in _with_options(parts, page_options):
            yield from _in_engines(part, found, time_limit_s, options, update)
        return
    if lan is not None:
        yield from _over_lan(parts[0], lan, page_options, update)
        return
    yield from (_lacking(exported, "browser", one) for one in no_browser)
    if not no_browser:
        with PageVisitor(browser, time_limit_s) as opened:
            for part, options in _with_options(parts, page_options):
                update(f"running {opened.opener.name}", 0.5)
                yield from _in_browser(part, opened, options, update)


def _parts(exported: _Part) -> tuple[_Part, ...]:
    """Return the parts that have a page: of a model's package each norm, and then the package."""
    return (*exported.packages, exported) if isinstance(exported, ExportedModel) else (exported,)


def _with_options(parts: Sequence[_Part], options: PageOptions) -> Iterator[tuple[_Part, PageOptions]]:
    """Yield each part of an export with the options of its page; the picture shows the first page."""
    for at, part in enumerate(parts):
        yield part, options if at == 0 else replace(options, screenshot=None)


def _absent(package: ExportedPackage) -> list[str]:
    return missing_class_text(package.manifest.get("absent", ()))


def _lacking(exported: _Part, step: str, fix: Fix) -> StepFinding:
    """Return the finding for a step that cannot run."""
    why = fix.missing.removeprefix(f"No {step}: ")
    return StepFinding(exported, step, None, why, fixable=bool(fix.commands))


def _natively(package: ExportedPackage) -> Iterator[StepFinding]:
    """Yield a step for shaders that were wrong at the export, which otherwise only the browser reports."""
    names = [one["name"] for one in package.shaders if one["native"].get("verdict") == "fail"]
    if names:
        wrong = f"{len(names)} of {len(package.shaders)} shaders were wrong on the machine that exported this"
        yield StepFinding(package, "natively", False, f"{package.label}{wrong}")


def _devices(package: ExportedPackage) -> Iterator[StepFinding]:
    """Yield a step for devices without a shader, if the export was made without `--partial`."""
    declared = {(one["cols"], one["devices"]) for one in package.manifest.get("absent", ())}
    found = [
        MissingClass(cols=cols, devices=devices, why=f"the manifest gives no reason; {AGAIN}")
        for cols in package.manifest["cols"]
        for devices in unserved([one for one in package.shaders if one["cols"] == cols])
        if (cols, devices) not in declared
    ]
    if found:
        yield StepFinding(package, "devices", False, package.label + "; ".join(missing_class_text(found)))


def _compiled(exported: ExportedPackage | ExportedLab) -> StepFinding:
    refused, shaders = refused_by_tint(exported), len(exported.sources)
    found = f"{len(refused)} of {shaders} shaders refused"
    right = f"{shaders} shaders compile, and so do their pipelines"
    label = exported.label if isinstance(exported, ExportedPackage) else ""
    text = label + (found if refused else right)
    return StepFinding(exported, "Tint", not refused, text, refused=refused)


def refused_by_tint(exported: ExportedPackage | ExportedLab) -> tuple[tint.TintVerdict, ...]:
    """Return the messages of Tint and Dawn on each shader that they refuse."""
    return tuple(verdict for verdict in tint.check_shaders(exported.sources) if not verdict.ok)


def _in_browser(
    exported: _Part, browser: Visitor, options: PageOptions, update: Update
) -> Iterator[StepFinding]:
    try:
        for finding in _in_engine(exported, browser, "browser", options, update):
            yield finding
            if finding.seen is not None:
                yield from _run_nowhere(exported, finding.seen)
    except CouldNotCheck as error:
        yield StepFinding(exported, "browser", None, str(error))


def _find_engines(names: Sequence[str]) -> tuple[list[Engine], Mapping[str, str]]:
    """Return the engines, and for "all" the reasons why some are missing.

    Raises WebnormError if an engine is missing that was named.
    """
    found = [find_engine(name) for name in dict.fromkeys(names) if name != "all"]
    missing = {}
    if "all" in names:
        found += [engine for engine in installed_engines() if engine not in found]
        for name in PORTABLE:
            if name in (engine.name for engine in found):
                continue
            try:
                find_engine(name)
            except WebnormError as error:
                missing[name] = str(error).removeprefix(f"--engine {name}: ")
    return found, missing


def _in_engines(
    exported: _Part,
    engines: Sequence[Engine],
    time_limit_s: float | None,
    options: PageOptions,
    update: Update,
) -> Iterator[StepFinding]:
    """Yield the steps in each engine. An engine that ends or hangs does not prevent the next."""
    seen: list[BrowserFindings] = []
    for at, engine in enumerate(engines):
        update(f"running {engine}", at / len(engines))
        if isinstance(exported, ExportedLab) and not engine.is_browser:
            yield StepFinding(exported, engine.name, None, f"a lab is a page, and {engine} opens no pages")
            continue
        visitor = EngineVisitor(engine, time_limit_s)
        try:
            for finding in _in_engine(exported, visitor, engine.name, options, update):
                seen += [] if finding.seen is None else [finding.seen]
                yield finding
        except WebnormError as error:
            yield StepFinding(exported, engine.name, None, str(error))
    if seen:
        yield from _run_nowhere(exported, *seen)


def _over_lan(
    exported: _Part, lan: LanVisitor, options: PageOptions, update: Update
) -> Iterator[StepFinding]:
    """Yield the steps in the browser that a person opens, under its own name."""
    try:
        # A person would have to open the page again for each further problem.
        for finding in _in_engine(exported, lan, lan.name, options, update, most_problems=1):
            seen = None if finding.seen is None else replace(finding.seen, engine=lan.name)
            yield replace(finding, step=lan.name, seen=seen)
            if seen is not None:
                yield from _run_nowhere(exported, seen)
    except WebnormError as error:
        yield StepFinding(exported, lan.name, None, str(error))


def _in_engine(
    exported: _Part,
    visitor: Visitor,
    step: str,
    options: PageOptions,
    update: Update,
    most_problems: int | None = None,
) -> Iterator[StepFinding]:
    if isinstance(exported, ExportedPackage):
        seen = replace(browser_answers(exported, visitor, options), engine=step)
        yield _package_seen(exported, seen)
    elif isinstance(exported, ExportedModel):
        yield _model_seen(exported, visitor, step, options)
    else:
        yield from _lab_seen(exported, visitor, step, options, update, most_problems)


def _package_seen(package: ExportedPackage, seen: BrowserFindings) -> StepFinding:
    verdicts = [line.browser.verdict for line in seen.lines]
    ran = f"{len(verdicts) - verdicts.count('skip')} of {len(verdicts)} shaders run here"
    text = f"{package.label}{ran}, {verdicts.count('pass')} of them right"
    return StepFinding(package, seen.engine, not seen.complaints, text, seen=seen)


def _model_seen(model: ExportedModel, visitor: Visitor, step: str, options: PageOptions) -> StepFinding:
    """Let createNorms create all norms, as an app does, and return the finding about their outputs."""
    folder, page = model.page
    visit = visit_page(folder, visitor, page, page_query(options.without, quick=False), None)
    report = parse_report(visit.report, ModelReport, page)
    remarks = tuple(f"on the console: {remark}" for remark in visit.remarks)
    if report["failure"] is not None:
        complaint = sentence(report["failure"])
        return StepFinding(model, step, False, "createNorms fails", remarks=remarks, complaints=(complaint,))
    wrong = {package.folder.name: _norm_complaint(package, report) for package in model.packages}
    complaints = tuple(f"{name}: {why}" for name, why in wrong.items() if why is not None)
    count = counted(len(wrong), "norm")
    text = f"createNorms: {len(wrong) - len(complaints)} of {count} are right on one device"
    return StepFinding(model, step, not complaints, text, remarks=remarks, complaints=complaints)


def _norm_complaint(package: ExportedPackage, report: ModelReport) -> str | None:
    """Return what is wrong with a norm of a model's report; None if its outputs are right."""
    said = next((one for one in report["norms"] if one["name"] == package.folder.name), None)
    if said is None:
        return f"{PAGE} did not report on it"
    if said["reason"] is not None:
        return said["reason"]
    verdicts = {one["name"]: one["verdict"] for one in said["vectors"]}
    missing = [one["name"] for one in package.manifest["vectors"] if one["name"] not in verdicts]
    if missing:
        return f"{', '.join(missing)} was not run"
    # A vector that could not be compared, "skip", neither passes nor fails.
    if "pass" not in verdicts.values():
        return "no output could be compared"
    return None if {*verdicts.values()} <= {"pass", "skip"} else "an output is wrong"


def _run_nowhere(package: _Part, *seen: BrowserFindings) -> Iterator[StepFinding]:
    """Yield a step for shaders that ran neither at the export nor in any of the engines."""
    skipped = [
        {one.name: one for one in found.lines if one.native.verdict == one.browser.verdict == "skip"}
        for found in seen
    ]
    names = [name for name in skipped[0] if all(name in others for others in skipped)]
    if names:
        where = "in this browser" if seen[0].engine == "browser" else "in any of these engines"
        text = f"{', '.join(names)}: not run, neither natively at the export nor {where}"
        yield StepFinding(package, "answers", None, text)


def _lab_seen(
    lab: ExportedLab, visitor: Visitor, step: str, options: PageOptions, update: Update, most: int | None
) -> Iterator[StepFinding]:
    """Yield a step for each problem, or for the first `most`; the page runs all of its ops in one go."""
    problems = lab.problems[:most]
    queries = [problem.query("subgroups" not in options.without) for problem in problems]
    with closing(_lab_visits(lab.folder, visitor, queries, options.screenshot)) as visits:
        for at, problem in enumerate(problems):
            update(f"running {problem}", at / len(problems))
            visit = next(visits)
            try:
                ran = check_lab_report(problem, visit.report)
            except CouldNotCheck as error:
                raise CouldNotCheck(f"from {problem} on: {error}" if at else str(error)) from error
            text = f"{problem}: {ran.ran} of {ran.kernels} kernels run here, {ran.right} right"
            seen_by = [f"{visit.browser}, {ran.adapter}"] if at == 0 else []
            left = len(lab.problems) - len(problems)
            seen_by += [f"{left} of {len(lab.problems)} problems were not opened"] if left else []
            remarks = (*seen_by, *ran.not_run, *(f"on the console: {remark}" for remark in visit.remarks))
            passed = not ran.complaints
            yield StepFinding(lab, step, passed, text, remarks=remarks, complaints=ran.complaints)


def _lab_visits(
    folder: Path, visitor: Visitor, queries: Sequence[str], screenshot: Path | None
) -> Generator[PageVisit]:
    """Open a lab's page with each query; write a picture of the first one."""
    if isinstance(visitor, EngineVisitor) and screenshot is None:
        # An engine takes seconds to start, so it opens one page after the other.
        yield from visitor.visits(folder, queries, page=LAB_PAGE)
        return
    for at, query in enumerate(queries):
        yield visit_page(folder, visitor, LAB_PAGE, query, screenshot if at == 0 else None)


# --- The outputs


def page_query(without: Sequence[str], quick: bool) -> str:
    """Return the page's query: features not to request, and whether to skip the timing."""
    parts = ([f"without={','.join(without)}"] if without else []) + (["quick"] if quick else [])
    return f"?{'&'.join(parts)}" if parts else ""


def visit_page(folder: Path, browser: Visitor, page: str, query: str, screenshot: Path | None) -> PageVisit:
    """Visit a page of a folder, and write a picture of it to `screenshot` if given."""
    visit = browser.visit(folder, query, page=page, screenshot=screenshot is not None)
    if screenshot is not None and visit.screenshot is not None:
        with replacing(screenshot) as temporary:
            temporary.write_bytes(visit.screenshot)
    return visit


def browser_answers(
    package: ExportedPackage, browser: Visitor, options: PageOptions = PLAIN
) -> BrowserFindings:
    """Run a package's page in a browser and return its results.

    Raises CouldNotCheck if the page reports that it could not check.
    """
    query = page_query(options.without, options.quick)
    visit = visit_page(package.page[0], browser, package.page[1], query, options.screenshot)
    return compare_report(package, visit)


def compare_report(package: ExportedPackage, visit: PageVisit) -> BrowserFindings:
    """Compare a page's report with the manifest, which lists the required runs and the native results.

    Raises CouldNotCheck if the page reports so.
    """
    report = parse_report(visit.report, PageReport, PAGE)
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
    return BrowserFindings(
        browser=visit.browser,
        adapter=report["adapter"],
        features=tuple(report["features"]),
        lines=lines,
        choices=tuple(f"{cols} columns: {reasons.get(str(cols), 'no choice was made')}" for cols in names),
        remarks=visit.remarks,
        complaints=(
            *(f"{line.name}: {complaint}" for line in lines for complaint in line.complaints),
            # A page that did not run the shader that it would choose has checked nothing.
            *(
                f"{cols} columns: no chosen shader passed"
                for cols in names
                if chosen.get(str(cols)) not in right
            ),
        ),
    )


def _line(
    entry: PackageShader,
    said: ReportedShader | None,
    vectors: Sequence[str],
    chosen: Mapping[str, str | None],
) -> ShaderComparison:
    native, native_vectors = _native(entry["native"])
    complaints = []
    if native.verdict == "fail":
        complaints.append("it failed natively at the export")
    if said is None:
        complaints.append(f"{PAGE} did not report on it")
        return ShaderComparison(
            entry["name"], False, native, SideResult("skip"), None, None, tuple(complaints)
        )
    if said["skipped"] is not None:
        browser = SideResult("skip", reason=said["skipped"])
    else:
        if not vectors:
            complaints.append(f"no vector has {entry['cols']} columns")
        found = {one["name"]: one for one in said["vectors"]}
        for name in vectors:
            if name not in found:
                complaints.append(f"{name} was not run")
            elif found[name]["verdict"] not in ("pass", "skip"):
                differs = " (natively it passes)" if native_vectors.get(name) == "pass" else ""
                complaints.append(f"{name}{differs}: {found[name]['reason']}")
        verdicts = {found[name]["verdict"] if name in found else "missing" for name in vectors}
        # A vector that could not be compared, "skip", neither passes nor fails.
        verdict = "pass" if "pass" in verdicts and verdicts <= {"pass", "skip"} else "fail"
        browser = SideResult(verdict, _number(said["max_abs_error"]), _number(said.get("allowed")))
    timing = said["timing"] or {}
    return ShaderComparison(
        name=entry["name"],
        chosen=chosen.get(str(entry["cols"])) == entry["name"],
        native=native,
        browser=browser,
        gbps=_number(timing.get("gbps")),
        percent_of_copy=_number(timing.get("percent_of_copy")),
        complaints=tuple(complaints),
        loose=entry.get("loose"),
    )


def _native(entry: NativeResult) -> tuple[SideResult, dict[str, str]]:
    """Return the manifest's native result, and the verdict on each vector."""
    vectors = {name: one["verdict"] for name, one in entry.get("vectors", {}).items()}
    error, allowed = _number(entry.get("max_abs_error")), _number(entry.get("allowed"))
    return SideResult(entry.get("verdict", "skip"), error, allowed, entry.get("reason")), vectors


def _number(value: Any) -> float | None:
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


# --- the folder: a package, a lab, or something else


def read_exported(folder: Path) -> ExportedPackage | ExportedLab | ExportedModel:
    """Read a package, a lab or a model's package.

    Raises WebnormError if the folder is none of them, or was changed.
    """
    try:
        if (folder / MANIFEST).exists():
            return read_package(folder)
        if (folder / LAB_INDEX).exists():
            return read_lab(folder)
        if (folder / MODEL_LISTING).exists():
            return read_model(folder)
        what = _looks(folder)
    except OSError as error:
        raise WebnormError(f"{folder}: cannot be read: {error.strerror or error}") from error
    raise WebnormError(f"{folder}: {what}; {_EXPECTED}")


def _looks(folder: Path) -> str:
    """Return a description of a folder that is not an export."""
    if not folder.is_dir():
        return "a file, not a folder" if folder.exists() else "no such folder"
    around = next((one for one in folder.absolute().parents if _is_any(one)), None)
    if around is not None:
        return f"a part of the export {around}"
    names = sorted(one.name for one in folder.iterdir())
    if not names:
        return "an empty folder"
    exports = [name for name in names if _is_any(folder / name)]
    if exports:
        return f"a folder that contains exports: {_named(exports)}"
    if any(any(wgsl_files(folder / op)) for op in OPS):
        return (
            f"a folder of kernels; check it with `webnorm check --wgsl {shell_word(path_argument(folder))}`"
        )
    if "package.json" in names:
        return "an npm package that webnorm did not write"
    return f"not an export: it contains {_named(names)}"


def _is_any(folder: Path) -> bool:
    return any(is_export(folder, kind) for kind in (PACKAGE, LAB, MODEL))


def _named(names: list[str]) -> str:
    more = len(names) - _FEW
    shown = [*names[:_FEW], f"{more} more"] if more > 0 else names
    *first, last = shown
    return f"{', '.join(first)} and {last}" if first else last
