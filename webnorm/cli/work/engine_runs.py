"""A check in several engines: one run per engine, one table of kernels by engines, one exit status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

import typer
from rich.text import Text

from webnorm.cli.terminal.screen import escaped_line
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
    return replace(job, outputs=outputs, engine=name)


def _finish(
    job: MeasuringJob, runs: Mapping[str, MeasuringJob], missing: Mapping[str, str], complete: bool
) -> NoReturn:
    """Write and show what was found, and end the command."""
    from webnorm.cli.work.engine_table import EngineTable

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
