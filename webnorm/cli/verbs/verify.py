"""`webnorm verify`: an export proved, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from webnorm.cli.terminal.streams import complain
from webnorm.cli.work.jobs import INCONCLUSIVE, OK, WRONG, Interrupted
from webnorm.cli.work.outputs import check_outputs
from webnorm.errors import WebnormError
from webnorm.gpu import seconds

if TYPE_CHECKING:
    from webnorm.web.verification.verify import StepFinding


def verify(
    folder: Annotated[
        Path,
        Argument(metavar="DIR", help="A folder that `webnorm export OP` or `webnorm export --lab` wrote."),
    ],
    browser: Annotated[
        str | None,
        Option(
            help="The path of Chromium, Chrome or Edge, or ws://HOST:PORT/... of a Playwright server on "
            "another machine. Default: $WEBNORM_BROWSER, or the first installed."
        ),
    ] = None,
    without_subgroups: Annotated[
        bool, Option("--without-subgroups", help="As in a browser that has no subgroups.")
    ] = False,
    quick: Annotated[bool, Option("--quick", help="Only check a package's answers, time nothing.")] = False,
    screenshot: Annotated[Path | None, Option(help="Save a picture of the page as a .png file.")] = None,
    time_limit: Annotated[
        float,
        Option(help="Seconds the browser has for starting, and for the page.", min=0.1, max=seconds.MOST),
    ] = 120.0,
) -> None:
    """A step that lacks something is skipped, and named in the end.

    `webnorm doctor --mend --browser` brings Tint, Chromium and Playwright.
    """
    import logging

    from webnorm.cli.terminal.screen import progress
    from webnorm.web.verification import verify

    # Ctrl-C ends Playwright's own process too, and asyncio would tell of the broken connection.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL + 1)
    if screenshot is not None and screenshot.suffix.lower() != ".png":
        raise WebnormError(f"--screenshot is {screenshot}; expected a .png file")
    outputs = {"--screenshot": screenshot}
    check_outputs(outputs)
    findings: list[StepFinding] = []
    wish = verify.PageOptions(
        without=("subgroups",) if without_subgroups else (), quick=quick, screenshot=screenshot
    )
    try:
        with progress("reading the files") as update:
            for finding in verify.verify(folder, browser, time_limit_s=time_limit, wish=wish, update=update):
                if not findings:
                    check_outputs(outputs, finding.exported.paths)
                update(None, None)
                _show(finding)
                findings.append(finding)
    except KeyboardInterrupt:
        raise Interrupted from None
    raise typer.Exit(_status(findings))


def _status(findings: Sequence[StepFinding]) -> int:
    """The exit status; a line on stderr names the steps that were skipped."""
    skipped = [finding for finding in findings if finding.passed is None]
    if skipped:
        mendable = any(finding.mendable for finding in skipped)
        complain(
            f"skipped: {', '.join(dict.fromkeys(finding.step for finding in skipped))}"
            + ("; `webnorm doctor --mend --browser` brings what is missing" if mendable else "")
        )
    if any(finding.passed is False for finding in findings):
        return WRONG
    return INCONCLUSIVE if skipped else OK


def _show(finding: StepFinding) -> None:
    from webnorm.cli.terminal.screen import Screen, escaped_line
    from webnorm.cli.verbs.verify_view import VerifyTable, refusal_lines, step_line

    console = Screen()
    # What is missing may name commands, which a broken line would break.
    console.print(
        step_line(finding.passed, f"{finding.step}: {finding.text}"),
        soft_wrap=finding.passed is None,
    )
    if finding.refused:
        console.print(refusal_lines(finding.exported, finding.refused), soft_wrap=True)
    for style, sentences in (("", finding.remarks), ("red", finding.complaints)):
        for sentence in sentences:
            console.print(escaped_line(sentence, style), soft_wrap=True)
    if finding.seen is not None:
        console.print()
        console.print(VerifyTable(finding.seen))
        for complaint in finding.seen.complaints:
            console.print(complaint, style="red", soft_wrap=True)
