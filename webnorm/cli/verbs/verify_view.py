"""What `verify` shows: a line for each step, and a table of a package's shaders on both sides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from webnorm.cli.terminal.columns import Column, fitting_columns, table_lines
from webnorm.cli.terminal.screen import STYLES, escaped_line
from webnorm.errors import one_line, printable, sentence
from webnorm.lab.results import tables

if TYPE_CHECKING:
    from webnorm.web.lab_site import ExportedLab
    from webnorm.web.package.manifest import ExportedPackage
    from webnorm.web.tint import TintVerdict
    from webnorm.web.verification.verify import BrowserFindings, ShaderComparison


def step_line(passed: bool | None, text: str) -> Text:
    """One step of `verify`: whether it passed, None if it could not be taken, and what it looked at."""
    verdict = "skip" if passed is None else "pass" if passed else "FAIL"
    return Text.assemble((verdict, STYLES[verdict]), "  ", escaped_line(text))


def refusal_lines(exported: ExportedPackage | ExportedLab, refused: Sequence[TintVerdict]) -> Text:
    """What Tint says, a line for each message: the place in the shader's file as editors know it, and why."""
    found = []
    for one in refused:
        for said in one.messages:
            place = (exported.place(one.name), *(str(n) for n in (said.line, said.column) if n))
            found.append(f"{one_line(':'.join(place))}: {said.severity}: {sentence(said.text)}")
    return Text(printable("\n".join(found)))


@dataclass(frozen=True)
class VerifyTable:
    """A package's shaders natively and in the browser, each on one line; below them the choices, and why some
    did not run.
    """

    seen: BrowserFindings

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield escaped_line(_seen_by(self.seen), "bold")
        strips = fitting_columns(_strips(self.seen.lines), options.max_width, gap=2)
        yield from table_lines(strips, options.max_width, gap=2)
        yield from (Text(one_line(remark)) for remark in _remarks(self.seen))


def _strips(shown: Sequence[ShaderComparison]) -> list[Column]:
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
        Column("browser", [_verdict(one.browser.verdict) for one in shown]),
        texts("error", [tables.error_text(one.browser.max_abs_error) for one in shown], rank=2),
        texts("allowed", [tables.error_text(_allowed(one)) for one in shown], rank=2),
        texts("GB/s", rates, rank=0),
        texts("% of copy", [tables.percent_text(one.percent_of_copy) for one in shown], rank=5),
    ]


def _allowed(line: ShaderComparison) -> float | None:
    """The tolerance where the error is largest: in the browser, or natively where it did not run there."""
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
        yield "a software adapter: its times say nothing about GPUs"
    yield from (f"on the console: {remark}" for remark in seen.remarks)


def _seen_by(seen: BrowserFindings) -> str:
    adapter = seen.adapter
    name = adapter.get("description") or " ".join(
        str(adapter[key]) for key in ("vendor", "architecture", "device") if adapter.get(key)
    )
    features = ", ".join(seen.features) or "no features"
    return f"{seen.browser}, {name or 'an adapter without a name'}, with {features}"
