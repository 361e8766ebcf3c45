"""`webnorm baselines`: list or remove the results that `webnorm bench --save` keeps."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from webnorm.cli.terminal.columns import Column, FittedTable
from webnorm.cli.terminal.screen import Screen, escaped_line
from webnorm.cli.terminal.streams import emit, say


def baselines(
    kept: Annotated[
        list[str] | None,
        Argument(help="The baselines: names, or patterns such as 'main*'. Default: every baseline."),
    ] = None,
    remove: Annotated[bool, Option("--remove", help="Remove the named baselines and exit.")] = False,
    json: Annotated[bool, Option("--json", help="Print a list of JSON objects, one per baseline.")] = False,
) -> None:
    """`webnorm bench --baseline NAME` compares results with a baseline. `webnorm compare` compares two
    baselines.
    """
    from webnorm.lab.report import baselines

    names = baselines.matching_baselines(kept)
    if remove:
        for name in names:
            say(f"removed {baselines.remove_baseline(name)}")
        return
    found = [baselines.inspect_baseline(name) for name in names]
    if json:
        emit(baselines.to_json(found))
    elif found:
        columns = [
            Column("baseline", [escaped_line(one.name, "cyan") for one in found]),
            Column("measured", [escaped_line(one.recorded) for one in found], rank=2),
            Column(
                "content",
                [escaped_line(one.summary, "red" if one.reason else "") for one in found],
                name=True,
            ),
            Column("device", [escaped_line(one.device) for one in found], rank=1),
        ]
        Screen().print(FittedTable(columns))
    else:
        say("there are no baselines; `webnorm bench --save NAME` keeps one")
