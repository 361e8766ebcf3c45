"""`webnorm verify`: an export proved, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from webnorm.cli.options import MOST_SECONDS
from webnorm.cli.outputs import check_outputs
from webnorm.cli.status import OK, WRONG, Interrupted
from webnorm.errors import WebnormError

if TYPE_CHECKING:
    from rich.console import Console

    from webnorm.web.browser import Visit
    from webnorm.web.package import Package


def verify(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `webnorm export OP` wrote.")],
    browser: Annotated[
        Path | None,
        typer.Option(
            "--browser", help="Chromium, Chrome or Edge. Default: $WEBNORM_BROWSER, or the first installed."
        ),
    ] = None,
    without_subgroups: Annotated[
        bool, typer.Option("--without-subgroups", help="As in a browser that has no subgroups.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Only check the answers, time nothing.")] = False,
    screenshot: Annotated[
        Path | None, typer.Option("--screenshot", help="Save a picture of the page as a .png file.")
    ] = None,
    time_limit: Annotated[
        float,
        typer.Option(
            "--time-limit",
            help="Seconds the browser has for starting, and for the page.",
            min=0.1,
            max=MOST_SECONDS,
        ),
    ] = 120.0,
) -> None:
    """Prove an export: its files, its shaders in Chrome's compiler, its answers and times in a browser.

    A step that lacks something is skipped: `webnorm doctor --mend --browser` brings Tint, Chromium and
    Playwright.
    """
    import logging

    from webnorm.cli import report
    from webnorm.cli.screen import Screen, progress
    from webnorm.web import browser as browsing
    from webnorm.web import tint, verify
    from webnorm.web.package import read_package

    # Ctrl-C ends Playwright's own process too, and asyncio would tell of the broken connection.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL + 1)
    if screenshot is not None and screenshot.suffix.lower() != ".png":
        raise WebnormError(f"--screenshot is {screenshot}; expected a .png file")
    check_outputs({"--screenshot": screenshot})
    no_tint, no_browser = tint.mend(), browsing.mends(browser)
    console = Screen()
    right = True
    try:
        with progress("reading the files") as update:
            package = read_package(folder)
            check_outputs({"--screenshot": screenshot}, package.paths)
            shaders, vectors = len(package.shaders), len(package.manifest["vectors"])
            console.print(
                report.step_line(True, f"files: {shaders} shaders and {vectors} vectors are as exported")
            )
            if no_tint is not None:
                console.print(report.step_line(None, f"Tint: {no_tint.missing}"), soft_wrap=True)
            else:
                update("compiling the shaders", 0.1)
                right = _ask_tint(console, package)
        for one in no_browser:
            console.print(report.step_line(None, f"browser: {one.missing}"), soft_wrap=True)
        if right and not no_browser:
            without = ("subgroups",) if without_subgroups else ()
            with browsing.Browser(browser, time_limit) as opened, progress(f"running {opened.path.name}"):
                visit = opened.visit(
                    folder, verify.page_query(without, quick), screenshot=screenshot is not None
                )
            right = _judge_visit(console, package, visit, screenshot)
    except KeyboardInterrupt:
        raise Interrupted from None
    if right and (no_tint or no_browser):
        raise WebnormError(
            "not every step could be taken: `webnorm doctor --mend --browser` brings what is missing"
        )
    raise typer.Exit(OK if right else WRONG)


def _ask_tint(console: Console, package: Package) -> bool:
    """Whether Chrome's compiler takes every shader."""
    from webnorm.cli import report
    from webnorm.web import verify

    refused = verify.refused_by_tint(package)
    shaders = len(package.shaders)
    if refused:
        console.print(report.step_line(False, f"Tint: {len(refused)} of {shaders} shaders refused"))
        console.print(report.refusal_lines(package, refused), soft_wrap=True)
    else:
        console.print(report.step_line(True, f"Tint: {shaders} shaders compile, and so do their pipelines"))
    return not refused


def _judge_visit(console: Console, package: Package, visit: Visit, screenshot: Path | None) -> bool:
    """Whether a browser found every shader right that it ran."""
    from webnorm import files
    from webnorm.cli import report
    from webnorm.web import verify

    if screenshot is not None and visit.screenshot is not None:
        with files.replacing(screenshot) as beside:
            beside.write_bytes(visit.screenshot)
    seen = verify.judged(package, visit)
    right = sum(line.browser.verdict == "pass" for line in seen.lines)
    ran = sum(line.browser.verdict != "skip" for line in seen.lines)
    shaders = len(package.shaders)
    console.print(
        report.step_line(
            not seen.complaints, f"browser: {ran} of {shaders} shaders run here, {right} of them right"
        )
    )
    console.print()
    console.print(report.verify_table(seen))
    for complaint in seen.complaints:
        console.print(complaint, style="red", soft_wrap=True)
    return not seen.complaints
