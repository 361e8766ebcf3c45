"""`webnorm evaluate`: compile, check, explain and time one kernel file for a program."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from webnorm.cli.options import shared, values
from webnorm.cli.terminal.streams import emit
from webnorm.cli.work.jobs import INCONCLUSIVE, OK, WRONG
from webnorm.errors import WebnormError
from webnorm.gpu import seconds

if TYPE_CHECKING:
    from webnorm.lab.run.submission import Evaluation

_USAGE = "webnorm evaluate FILE --op FOLDER"


def evaluate(
    file: Annotated[Path | None, Argument(help="The kernel: a .wgsl file, with or without a header.")] = None,
    op: Annotated[
        str | None,
        Option(
            help="Set the op of the kernel: a folder with an op.py, or a built-in op. Default: the op of the "
            "file's folder."
        ),
    ] = None,
    size: shared.Sizes = None,
    dtype: shared.Dtype = None,
    option: shared.Option = None,
    scalar: shared.Scalars = None,
    seed: shared.Seed = None,
    constant: shared.Constant = None,
    no_time: Annotated[bool, Option("--no-time", help="Check the kernel without timing it.")] = False,
    budget: Annotated[
        float,
        Option(
            help="Time the kernel for at most this many seconds.", min=seconds.LEAST_BUDGET, max=seconds.MOST
        ),
    ] = 2.0,
    adapter: shared.Adapter = None,
    backend: shared.Backend = None,
    time_limit: shared.TimeLimit = 30.0,
    json: Annotated[bool, Option("--json", help="Print one JSON object instead of text.")] = False,
    schema: Annotated[bool, Option("--schema", help="Print the schema of the JSON object and exit.")] = False,
) -> None:
    """Several evaluations can run at once. They take turns with the timing, and report if they shared the
    device.
    """
    from webnorm.kernels.headers.sources import is_wgsl
    from webnorm.lab.run import submission

    if schema:
        return emit(json_format.dumps(submission.json_schema(), indent=1))
    if file is None:
        raise WebnormError(f"FILE is missing; expected {_USAGE}")
    if not file.exists():
        raise WebnormError(f"{file}: no such file; expected a kernel's .wgsl file")
    if not is_wgsl(file.name):
        raise WebnormError(f"{file}: the suffix is not .wgsl; expected a kernel's .wgsl file")
    if op is None:
        raise WebnormError(f"--op is missing; expected {_USAGE}")
    given = values.size_lists(size)
    several = [name for name, found in given.items() if found is None or len(found) != 1]
    if several:
        raise WebnormError(f"--size {several[0]} has several values; expected one: one problem is timed")
    evaluation = submission.evaluate(
        file,
        op,
        dtype=dtype or "float32",
        sizes={name: found[0] for name, found in given.items() if found},
        options=tuple(option or ()),
        scalars=values.given_scalars(scalar),
        constants=values.constant_values(constant),
        seed=seed,
        budget=None if no_time else budget,
        adapter=adapter,
        time_limit=time_limit,
    )
    emit(json_format.dumps(evaluation.as_json(), indent=1) if json else _in_words(evaluation))
    status = {"pass": OK, "unknown": INCONCLUSIVE}.get(evaluation.status, WRONG)
    if status != OK:
        raise typer.Exit(status)


def _in_words(found: Evaluation) -> str:
    """Return the evaluation as lines of text."""
    lines = [f"{found.op}, {found.dtype}: {found.status}; {found.passed} passed, {found.failed} failed"]
    if found.message:
        lines.append(found.message)
    if found.hint:
        lines.append(f"hint: {found.hint}")
    if found.median_ns is not None:
        share = "" if found.percent_of_copy is None else f", {found.percent_of_copy:.0f} % of the copy"
        lines.append(f"{found.timed}: {found.median_ns / 1e3:.4g} us{share}")
    if found.time_over_best is not None:
        lines.append(
            f"time relative to {found.best_kernel}, the best kernel of the op: {found.time_over_best:.3f}"
        )
    if found.device_shared:
        lines.append("another evaluation used the device at the same time: the times are unreliable")
    if found.flags:
        lines.append(f"flags: {', '.join(found.flags)}")
    return "\n".join([*lines, f"repeat the random numbers with --seed {found.seed}"])
