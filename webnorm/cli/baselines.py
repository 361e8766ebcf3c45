"""`webnorm baselines`: what `webnorm bench --save` keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from webnorm.cli.streams import emit, say

if TYPE_CHECKING:
    from rich.console import Console

    from webnorm.lab.baselines import Kept


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
    from webnorm.cli.screen import Screen
    from webnorm.lab import baselines

    names = baselines.named(kept)
    if forget:
        for name in names:
            say(f"removed {baselines.forget(name)}")
        return
    found = [baselines.look(name) for name in names]
    if json:
        emit(baselines.to_json(found))
    elif found:
        _show(Screen(), found)
    else:
        say("no baseline is kept; `webnorm bench --save NAME` keeps one")


def _show(console: Console, found: Sequence[Kept]) -> None:
    """A line for each: its name, when it was measured, what, and on which device."""
    from webnorm.cli.grid import Strip, fitting, lines
    from webnorm.cli.screen import plain

    strips = [
        Strip("baseline", [plain(one.name, "cyan") for one in found]),
        Strip("measured", [plain(one.recorded) for one in found], rank=2),
        Strip("what", [plain(one.what, "red" if one.reason else "") for one in found], name=True),
        Strip("device", [plain(one.device) for one in found], rank=1),
    ]
    for line in lines(fitting(strips, console.width, gap=2), console.width, gap=2):
        console.print(line)
