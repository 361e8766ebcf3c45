"""A check in several engines: one run per engine, one table of kernels by engines, one exit status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import typer
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from webnorm.cli.terminal.columns import Column, fitting_columns, table_lines
from webnorm.cli.terminal.screen import STYLES, escaped_line
from webnorm.cli.terminal.streams import complain
from webnorm.cli.work.cluster import run_on
from webnorm.cli.work.jobs import (
    INCONCLUSIVE,
    OK,
    WRONG,
    AfterInterrupt,
    Interrupted,
    MeasuringJob,
    do_work,
    run_job,
)
from webnorm.cli.work.outputs import Action, check_outputs, path_with_suffix, report_steps, run_each_step
from webnorm.errors import WebnormError
from webnorm.lab.results.ranking import by_kernel, verdict
from webnorm.lab.results.result import Result

_INDENT = "  "
# The most reasons of a kernel in an engine that the table lists.
_MOST_REASONS = 2


def run_in_engines(
    names: Sequence[str], job: MeasuringJob, adapter: str | None, cluster: str | None, time_limit_s: float
) -> NoReturn:
    """Do a job in each engine that the names mean, and end the command with one status.

    Without names the job runs on an adapter or a cluster. Raises WebnormError for an engine that is unknown
    or missing.
    """
    from webnorm.engines.catalog import selected_engines

    if not names:
        run_on(cluster, job, adapter, time_limit_s)

    for option, given in (("--adapter", adapter), ("--cluster", cluster)):
        if given is not None:
            raise WebnormError(f"{option} and --engine: each engine chooses its own adapter; leave one out")
    found, missing = selected_engines(names)
    if len(found) == 1 and not missing:
        run_job(job, adapter, time_limit_s, found[0])
    runs = {name: _of_engine(job, name) for name in found}
    complete = True
    for name, own in runs.items():
        try:
            complete = do_work(own, None, time_limit_s, name)
        except WebnormError as error:
            missing[name] = str(error)
        if not complete:
            break
    _finish(job, runs, missing, complete)


def _of_engine(job: MeasuringJob, name: str) -> MeasuringJob:
    """Return the job of one of several engines, with its own files."""
    for flag, path in job.outputs.items():
        if str(path) == "-":
            raise WebnormError(f"{flag} is -, but there are several engines; name a file, or one engine")
    outputs = {flag: path_with_suffix(path, name) for flag, path in job.outputs.items()}
    check_outputs(outputs)
    return replace(job, outputs=outputs, shown=False, done=f"{job.done} in {name}")


def _finish(
    job: MeasuringJob, runs: Mapping[str, MeasuringJob], missing: Mapping[str, str], complete: bool
) -> NoReturn:
    """Write and show what was found, and end the command."""
    ran = {name: one for name, one in runs.items() if one.results()}
    run_each_step(*(step for one in ran.values() for step in _saving(one, complete)))
    for name, one in ran.items():
        job.console.print(Text.assemble((f"{name}: ", "bold"), escaped_line(_device_text(one))))
    job.console.print(EngineTable({name: one.results() for name, one in ran.items()}))
    if job.seed is not None:
        job.console.print(f"--seed {job.seed} repeats the inputs")
    if not complete:
        raise Interrupted(AfterInterrupt.SHOWN if ran else AfterInterrupt.NOTHING)
    for name, why in missing.items():
        complain(f"not {job.done} in {name}: {why}")
    found = [one.status() for one in ran.values()]
    if missing and not job.allow_skipped:
        found.append(INCONCLUSIVE)
    raise typer.Exit(WRONG if WRONG in found else max(found, default=OK))


def _saving(job: MeasuringJob, complete: bool) -> Sequence[Action]:
    saved, _ = report_steps(job.report(complete), job.outputs)
    return saved


def _device_text(job: MeasuringJob) -> str:
    from webnorm.lab.results.tables import device_text

    return device_text(job.device)


@dataclass(frozen=True)
class EngineTable:
    """One line per op and kernel, with its verdict in each engine; then the reasons, by kernel and engine."""

    found: Mapping[str, Sequence[Result]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        members = {engine: by_kernel(results) for engine, results in self.found.items()}
        kernels = list(dict.fromkeys(key for own in members.values() for key in own))
        names = [escaped_line(f"{_INDENT}{name}") for _, name in kernels]
        columns = [
            Column("kernel", names, name=True),
            *(
                Column(engine, [_cell(own.get(key, ())) for key in kernels])
                for engine, own in members.items()
            ),
        ]
        heading, *rows = table_lines(
            fitting_columns(columns, options.max_width, gap=2), options.max_width, gap=2
        )
        yield heading
        previous = None
        for (op, _), row in zip(kernels, rows, strict=True):
            if op != previous:
                yield escaped_line(op, "bold")
                previous = op
            yield row
        for key in kernels:
            for engine, own in members.items():
                yield from _reasons(key, engine, own.get(key, ()))


def _cell(results: Sequence[Result]) -> Text:
    """Return a kernel's verdict in one engine."""
    counts = Counter(map(verdict, results))
    wrong = counts["FAIL"] + counts["error"]
    if wrong:
        said = "FAIL" if counts["FAIL"] else "error"
        return Text(f"{said} {wrong}/{len(results) - counts['skip']}", STYLES["FAIL"])
    found = next((one for one in ("pass", "expected failure", "skip") if counts[one]), None)
    return Text(
        {"expected failure": "unstable"}.get(found or "", found or "-"), STYLES.get(found or "", "dim")
    )


def _reasons(key: tuple[str, str], engine: str, results: Sequence[Result]) -> Iterator[RenderableType]:
    """Yield a line for each reason why a kernel is wrong in an engine, or was not run there at all."""
    wrong = [one for one in results if verdict(one) in ("FAIL", "error")]
    checked = any(verdict(one) in ("pass", "expected failure") for one in results)
    shown = wrong or ([] if checked else results)
    reasons: dict[str, Result] = {}
    for one in shown:
        reasons.setdefault(one.reason or "", one)
    for reason, one in [*reasons.items()][:_MOST_REASONS]:
        case = f", {one.case}" if one.case else ""
        yield escaped_line(f"{key[0]}/{key[1]} in {engine}{case}: {reason}", "" if wrong else "dim")
    if len(reasons) > _MOST_REASONS:
        more = len(reasons) - _MOST_REASONS
        yield escaped_line(f"{key[0]}/{key[1]} in {engine}: {more} more reasons; --json lists them", "dim")
