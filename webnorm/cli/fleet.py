"""`webnorm fleet`: who is in a cluster; `webnorm fleet worker`: an adapter that joins one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Context, Option

from webnorm.cli import options
from webnorm.cli.running import Interrupted
from webnorm.cli.screen import Screen, plain, progress
from webnorm.cli.spread import require_dask
from webnorm.cli.streams import complain, say
from webnorm.errors import WebnormError

if TYPE_CHECKING:
    from webnorm.fleet.cards import Card
    from webnorm.fleet.cluster import Member, Without

Rates = dict[tuple[str, int], float | None]


def fleet(
    ctx: Context,
    cluster: options.Cluster = None,
    adapter: options.Adapter = None,
    time_limit: options.TimeLimit = 60.0,
    json: Annotated[Path | None, Option(help="Write the list, - for standard output.")] = None,
) -> None:
    """A line for each worker: its adapter, what drives it, and how fast it copies; cards that are equal share
    work where these figures agree within 3 %. `webnorm fleet worker ADDRESS` has an adapter join.
    """
    if ctx.invoked_subcommand is not None:
        return
    from webnorm.cli.outputs import check_outputs, put

    require_dask("`webnorm fleet`")
    if cluster is None:
        raise WebnormError(
            "--cluster is missing; expected local, an address such as tcp://head:8786, or a file"
        )
    check_outputs({"--json": json})
    from webnorm.fleet.cluster import connected, platforms
    from webnorm.fleet.head import Told
    from webnorm.fleet.pools import copies

    rates: Rates = {}
    with progress("connecting to the cluster") as update, connected(cluster, adapter, complain) as client:
        groups, without = platforms(client, cluster, adapter)
        shown = [one for group in groups for one in group]
        for event in copies(client, shown, time_limit):
            if isinstance(event, Told):
                update(f"copies: {event.text}", event.share)
            else:
                rates[event[0]] = event[1]
    if json is not None:
        put(_as_json(shown, without, rates), json)
    if str(json) != "-":
        _show(Screen(), shown, without, rates)


def _show(console: Screen, shown: Sequence[Member], without: Sequence[Without], rates: Rates) -> None:
    from webnorm.cli.grid import Strip, fitting, lines

    copied = [rates.get(one.card.device) for one in shown]
    strips = [
        Strip("worker", [plain(one.name, "cyan") for one in shown]),
        Strip("host", [plain(one.card.host) for one in shown], rank=1),
        Strip(
            "adapter", [plain(f"{one.card.index}: {_text(one.card, 'adapter')}") for one in shown], name=True
        ),
        Strip("backend", [plain(_text(one.card, "backend")) for one in shown], rank=4),
        Strip("driver", [plain(_text(one.card, "driver")) for one in shown], rank=3),
        Strip("webnorm", [plain(one.card.webnorm) for one in shown], rank=0),
        Strip("wgpu", [plain(_text(one.card, "wgpu")) for one in shown], rank=2),
        Strip("copy GB/s", [plain("-" if rate is None else f"{rate:.4g}") for rate in copied], right=True),
    ]
    for line in lines(fitting(strips, console.width, gap=2), console.width, gap=2):
        console.print(line)
    for one in without:
        console.print(f"{one.name}: left out: {one.reason}", soft_wrap=True)


def _text(card: Card, name: str) -> str:
    return str(card.description[name])


def _as_json(shown: Sequence[Member], without: Sequence[Without], rates: Rates) -> str:
    import json

    workers = [
        {
            "name": one.name,
            "address": one.address,
            "host": one.card.host,
            "index": one.card.index,
            "webnorm": one.card.webnorm,
            "device": one.card.description,
            "copy_gbps": rates.get(one.card.device),
        }
        for one in shown
    ]
    left_out = [{"name": one.name, "address": one.address, "reason": one.reason} for one in without]
    return json.dumps({"workers": workers, "left_out": left_out}, indent=2, allow_nan=False) + "\n"


def worker(
    address: Annotated[str, Argument(help="Where the scheduler listens, as tcp://head:8786, or its file.")],
    adapter: options.Adapter = None,
) -> None:
    """One Dask worker for each adapter of this machine that is like the one asked for, which take work until
    Ctrl-C, or until the scheduler ends. `dask scheduler` starts one.
    """
    require_dask("`webnorm fleet worker`")
    from webnorm.fleet.cluster import cards_of, checked_address
    from webnorm.fleet.serve import serve

    place = checked_address(address, complain)
    with progress("opening the adapters"):
        cards = cards_of(adapter)

    def ready() -> None:
        for index, card in cards.items():
            say(f"adapter {index}, {card}, works for {place}; Ctrl-C ends it")
        sys.stdout.flush()

    with suppress(KeyboardInterrupt):
        serve(place, cards, ready)
        raise WebnormError(f"the scheduler at {place} has gone")
    raise Interrupted("the worker has left")


# As in store: what has no name is the verb itself.
VERBS: Mapping[str, tuple[Callable[..., Any], str]] = {
    "": (fleet, ""),
    "worker": (worker, "Have the adapters of this machine work for a Dask scheduler."),
}
