"""`webnorm baselines`: what `webnorm bench --save` keeps."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from webnorm.cli.terminal.columns import Column, FittedTable
from webnorm.cli.terminal.screen import Screen, escaped_line
from webnorm.cli.terminal.streams import emit, say


def baselines(
    kept: Annotated[
        list[str] | None, Argument(help="Names, or patterns like 'main*'. Default: all that there are.")
    ] = None,
    forget: Annotated[bool, Option("--forget", help="Remove those that are named, and stop.")] = False,
    json: Annotated[
        bool, Option("--json", help="A list of objects on standard output: a baseline each.")
    ] = False,
) -> None:
    """`webnorm bench --baseline NAME` holds results against one, and `webnorm compare` two of them."""
    from webnorm.lab.report import baselines

    names = baselines.matching_baselines(kept)
    if forget:
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
                "what", [escaped_line(one.summary, "red" if one.reason else "") for one in found], name=True
            ),
            Column("device", [escaped_line(one.device) for one in found], rank=1),
        ]
        Screen().print(FittedTable(columns))
    else:
        say("no baseline is kept; `webnorm bench --save NAME` keeps one")
