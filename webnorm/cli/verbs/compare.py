"""`webnorm compare`: compare two sets of results."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from webnorm.cli.work.jobs import INCONCLUSIVE, OK, WRONG

# The largest --fail-slower. A run this slow looks like a run that hangs.
_MOST_PERCENT = 1e9


def compare(
    old: Annotated[
        str, Argument(help="The old results: a JSON file of `webnorm bench`, or the NAME of a baseline.")
    ],
    new: Annotated[str, Argument(help="The new results, given in the same way.")],
    fail_slower: Annotated[
        float | None,
        Option(
            help="Exit with 1 if anything is broken, or slower by more than PERCENT. Exit with 3 if that is "
            "not known: results are missing or unclear, or a run was interrupted.",
            min=0.0,
            max=_MOST_PERCENT,
        ),
    ] = None,
    fail_unclear: Annotated[
        bool, Option("--fail-unclear", help="Also exit with 1 if anything is UNCLEAR.")
    ] = False,
    allow_missing: Annotated[
        bool,
        Option(
            "--allow-missing",
            help="Ignore results that are missing in NEW, and interrupted runs.",
        ),
    ] = False,
    any_device: Annotated[
        bool, Option("--any-device", help="Compare results even if their devices differ.")
    ] = False,
    json: Annotated[
        Path | None, Option(help="Write the comparison to FILE as JSON; - is standard output.")
    ] = None,
    markdown: Annotated[
        Path | None,
        Option(help="Write the comparison to FILE as Markdown for a pull request; - is standard output."),
    ] = None,
) -> None:
    """Times are compared as multiples of the copy's time. A difference must be larger than the variation
    between runs. Record both sides with `webnorm bench --runs 5`, or more runs on a busy machine.
    """
    from webnorm.cli.terminal.screen import Screen
    from webnorm.cli.verbs.compare_view import CompareTable
    from webnorm.cli.work.outputs import check_outputs, run_each_step, write_or_print
    from webnorm.lab.report import baselines, comparison_text
    from webnorm.lab.report.comparison import compare, gate_failures, gate_unknowns

    check_outputs({"--json": json, "--markdown": markdown}, [Path(old), Path(new)])
    verdicts = compare(
        baselines.read_file_or_baseline(old), baselines.read_file_or_baseline(new), any_device=any_device
    )
    console = Screen(stderr="-" in (str(json), str(markdown)))
    console.print(CompareTable(verdicts))
    status = OK if verdicts.known else INCONCLUSIVE
    if fail_slower is not None:
        failures = gate_failures(verdicts, fail_slower, fail_unclear=fail_unclear)
        unknown = gate_unknowns(verdicts, fail_slower, allow_missing=allow_missing)
        for line in [*failures, *unknown] or [f"passed: nothing is slower by more than {fail_slower:g} %"]:
            console.print(f"webnorm: {line}", soft_wrap=True)
        console.print(f"{verdicts.unclear} of {len(verdicts.comparisons)} are unclear")
        status = WRONG if failures else INCONCLUSIVE if unknown else OK
    texts = {
        json: comparison_text.to_json(verdicts),
        markdown: comparison_text.to_markdown(verdicts, old, new),
    }
    run_each_step(*(partial(write_or_print, text, path) for path, text in texts.items() if path is not None))
    raise typer.Exit(status)
