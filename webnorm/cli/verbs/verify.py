"""`webnorm verify`: verify an export, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text
from typer import Argument, Option

from webnorm.cli.terminal.columns import Column, FittedTable
from webnorm.cli.terminal.screen import STYLES, Screen, escaped_line, progress
from webnorm.cli.terminal.streams import complain
from webnorm.cli.verbs.verify_lan import lan_visitor
from webnorm.cli.work.jobs import INCONCLUSIVE, OK, WRONG, Interrupted
from webnorm.cli.work.outputs import check_outputs
from webnorm.errors import WebnormError, one_line, sentence
from webnorm.gpu import seconds

if TYPE_CHECKING:
    from webnorm.web.verify import BrowserFindings, ShaderComparison, StepFinding


def verify(
    folder: Annotated[
        Path,
        Argument(
            metavar="DIR",
            help="The folder that `webnorm export` wrote: a package, a lab, or all norms of a model.",
        ),
    ],
    browser: Annotated[
        str | None,
        Option(
            help="Use this browser: the path of Chromium, Chrome or Edge, or the ws:// address of a "
            "Playwright server. Default: $WEBNORM_BROWSER, or the first installed."
        ),
    ] = None,
    engine: Annotated[
        list[str] | None,
        Option(
            help="Use this engine instead: chromium, firefox, edge, safari, node or deno, `all` installed "
            "ones, or a browser's command that contains {url}. Playwright is not needed. Repeatable.",
        ),
    ] = None,
    without_subgroups: Annotated[
        bool, Option("--without-subgroups", help="Run the page as in a browser without subgroups.")
    ] = False,
    quick: Annotated[
        bool, Option("--quick", help="Check the package's results without timing them.")
    ] = False,
    screenshot: Annotated[Path | None, Option(help="Save a picture of the page to a .png file.")] = None,
    lan: Annotated[
        bool,
        Option(
            "--lan",
            help="Serve the page to the local network, and show its address and a QR code for a phone. "
            "Needs webnorm[lan].",
        ),
    ] = False,
    host: Annotated[
        str | None,
        Option(help="Serve only on this IPv4 address. Default: all private ones of this machine."),
    ] = None,
    port: Annotated[int, Option(help="Serve on this port; 0 picks a free port.", min=0, max=65535)] = 0,
    time_limit: Annotated[
        float | None,
        Option(
            help="Wait this many seconds for the browser to start, and again for the page. "
            "With --engine: for both. Default: 120, with --lan 600.",
            min=0.1,
            max=seconds.MOST,
        ),
    ] = None,
) -> None:
    """A step is skipped if its tools are missing. Skipped steps are listed at the end.

    `webnorm doctor --fix --browser` installs Tint, Chromium and Playwright.
    """
    import logging

    from webnorm.web import verify

    # Ctrl-C also ends Playwright's process, and asyncio would log the broken connection.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL + 1)
    if screenshot is not None and screenshot.suffix.lower() != ".png":
        raise WebnormError(f"--screenshot is {screenshot}; expected a .png file")
    outputs = {"--screenshot": screenshot}
    check_outputs(outputs)
    findings: list[StepFinding] = []
    page_options = verify.PageOptions(
        without=("subgroups",) if without_subgroups else (), quick=quick, screenshot=screenshot
    )
    try:
        with (
            progress("reading the files") as update,
            lan_visitor(host, port, time_limit, update) if lan else nullcontext() as visitor,
        ):
            steps = verify.verify(
                folder,
                browser,
                time_limit_s=time_limit,
                page_options=page_options,
                update=update,
                engines=engine or (),
                lan=visitor,
            )
            for finding in steps:
                if not findings:
                    check_outputs(outputs, finding.exported.paths)
                update(None, None)
                _show(finding)
                findings.append(finding)
    except KeyboardInterrupt:
        raise Interrupted from None
    raise typer.Exit(_status(findings))


def _status(findings: Sequence[StepFinding]) -> int:
    """Return the exit status, and print the skipped steps on stderr."""
    skipped = [finding for finding in findings if finding.passed is None]
    if skipped:
        fixable = any(finding.fixable for finding in skipped)
        complain(
            f"skipped: {', '.join(dict.fromkeys(finding.step for finding in skipped))}"
            + ("; `webnorm doctor --fix --browser` installs what is missing" if fixable else "")
        )
    if any(finding.passed is False for finding in findings):
        return WRONG
    return INCONCLUSIVE if skipped else OK


def _show(finding: StepFinding) -> None:
    """Print a step: its verdict, its subject and its findings."""
    console = Screen()
    # A skipped step may name commands, which must not be wrapped.
    console.print(
        step_line(finding.passed, f"{finding.step}: {finding.text}"),
        soft_wrap=finding.passed is None,
    )
    for refused in finding.refused:
        # The place in the shader's file, in the format of editors.
        for said in refused.messages:
            numbers = (str(n) for n in (said.line, said.column) if n)
            place = one_line(":".join((finding.exported.place(refused.name), *numbers)))
            console.print(f"{place}: {said.severity}: {sentence(said.text)}", soft_wrap=True)
    for style, sentences in (("", finding.remarks), ("red", finding.complaints)):
        for line in sentences:
            console.print(escaped_line(line, style), soft_wrap=True)
    if finding.seen is not None:
        console.print()
        console.print(VerifyTable(finding.seen))
        for complaint in finding.seen.complaints:
            console.print(complaint, style="red", soft_wrap=True)


def step_line(passed: bool | None, text: str) -> Text:
    """Return the line of a step of `verify`; `passed` is None for a skipped step."""
    verdict = "skip" if passed is None else "pass" if passed else "FAIL"
    return Text.assemble((verdict, STYLES[verdict]), "  ", escaped_line(text))


@dataclass(frozen=True)
class VerifyTable:
    """A package's shaders, one per line, with their native results and an engine's.

    The lines below give the chosen shaders, and reasons why some did not run.
    """

    seen: BrowserFindings

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield escaped_line(_seen_by(self.seen), "bold")
        yield FittedTable(_strips(self.seen.lines, self.seen.engine))
        yield from (Text(one_line(remark)) for remark in _remarks(self.seen))


def _strips(shown: Sequence[ShaderComparison], engine: str) -> list[Column]:
    from webnorm.lab.results import tables

    styles = ["bold" if one.chosen else "dim" if one.browser.verdict == "skip" else "" for one in shown]

    def texts(heading: str, found: Sequence[str], rank: int | None = None, right: bool = True) -> Column:
        cells = [escaped_line(text, style) for text, style in zip(found, styles, strict=True)]
        return Column(heading, cells, right=right, rank=rank)

    rates = [tables.NOTHING if one.gbps is None else f"{one.gbps:.3g}" for one in shown]
    return [
        Column("shader", texts("", [one.name for one in shown]).cells, name=True),
        texts("chosen", ["yes" if one.chosen else "" for one in shown], rank=4, right=False),
        Column("native", [_verdict(one.native.verdict) for one in shown], rank=3),
        texts("error", [tables.error_text(one.native.max_abs_error) for one in shown], rank=1),
        Column(engine, [_verdict(one.browser.verdict) for one in shown]),
        texts("error", [tables.error_text(one.browser.max_abs_error) for one in shown], rank=2),
        texts("allowed", [tables.error_text(_allowed(one)) for one in shown], rank=2),
        texts("GB/s", rates, rank=0),
        texts("% of copy", [tables.percent_text(one.percent_of_copy) for one in shown], rank=5),
    ]


def _allowed(line: ShaderComparison) -> float | None:
    """Return the tolerance at the largest error: in the browser, or natively if it did not run there."""
    return line.native.allowed if line.browser.allowed is None else line.browser.allowed


def _verdict(verdict: str) -> Text:
    shown = "FAIL" if verdict == "fail" else verdict
    return Text(shown, STYLES[shown])


def _remarks(seen: BrowserFindings) -> Iterator[str]:
    yield from seen.choices
    for where, side in (("here", "browser"), ("natively", "native")):
        reasons = ((line.name, getattr(line, side).reason) for line in seen.lines)
        yield from (f"{name}: not run {where}: {reason}" for name, reason in reasons if reason)
    yield from (f"warning: {line.name}: {line.loose}" for line in seen.lines if line.loose)
    if seen.adapter.get("software"):
        yield "a software adapter: its times do not predict GPU times"
    yield from (f"{seen.engine} console: {remark}" for remark in seen.remarks)


def _seen_by(seen: BrowserFindings) -> str:
    adapter = seen.adapter
    name = adapter.get("description") or " ".join(
        str(adapter[key]) for key in ("vendor", "architecture", "device") if adapter.get(key)
    )
    features = ", ".join(seen.features) or "no features"
    return f"{seen.browser}, {name or 'an adapter without a name'}, with {features}"
