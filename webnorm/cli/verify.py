"""`webnorm verify`: an export proved, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from webnorm.cli import options
from webnorm.cli.outputs import check_outputs
from webnorm.cli.running import WRONG, Interrupted
from webnorm.errors import WebnormError

if TYPE_CHECKING:
    from webnorm.web.verify import Finding


def verify(
    folder: Annotated[Path, Argument(metavar="DIR", help="A folder that `webnorm export OP` wrote.")],
    browser: Annotated[
        Path | None,
        Option(help="Chromium, Chrome or Edge. Default: $WEBNORM_BROWSER, or the first installed."),
    ] = None,
    without_subgroups: Annotated[
        bool, Option("--without-subgroups", help="As in a browser that has no subgroups.")
    ] = False,
    quick: Annotated[bool, Option("--quick", help="Only check the answers, time nothing.")] = False,
    screenshot: Annotated[Path | None, Option(help="Save a picture of the page as a .png file.")] = None,
    time_limit: Annotated[
        float,
        Option(
            help="Seconds the browser has for starting, and for the page.", min=0.1, max=options.MOST_SECONDS
        ),
    ] = 120.0,
) -> None:
    """A step that lacks something is skipped: `webnorm doctor --mend --browser` brings Tint, Chromium and
    Playwright.
    """
    import logging

    from webnorm.cli.screen import progress
    from webnorm.web import verify

    # Ctrl-C ends Playwright's own process too, and asyncio would tell of the broken connection.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL + 1)
    if screenshot is not None and screenshot.suffix.lower() != ".png":
        raise WebnormError(f"--screenshot is {screenshot}; expected a .png file")
    outputs = {"--screenshot": screenshot}
    check_outputs(outputs)
    verdicts: list[bool | None] = []
    try:
        with progress("reading the files") as update:
            for finding in verify.verify(
                folder,
                browser,
                time_limit_s=time_limit,
                without=("subgroups",) if without_subgroups else (),
                quick=quick,
                screenshot=screenshot,
                update=update,
            ):
                if not verdicts:
                    check_outputs(outputs, finding.package.paths)
                update(None, None)
                _show(finding)
                verdicts.append(finding.passed)
    except KeyboardInterrupt:
        raise Interrupted from None
    if False in verdicts:
        raise typer.Exit(WRONG)
    if None in verdicts:
        raise WebnormError(
            "not every step could be taken: `webnorm doctor --mend --browser` brings what is missing"
        )


def _show(finding: Finding) -> None:
    from webnorm.cli import report
    from webnorm.cli.screen import Screen

    console = Screen()
    # What is missing may name commands, which a broken line would break.
    console.print(report.step_line(finding.passed, finding.text), soft_wrap=finding.passed is None)
    if finding.refused:
        console.print(report.refusal_lines(finding.package, finding.refused), soft_wrap=True)
    if finding.seen is not None:
        console.print()
        console.print(report.verify_table(finding.seen))
        for complaint in finding.seen.complaints:
            console.print(complaint, style="red", soft_wrap=True)
