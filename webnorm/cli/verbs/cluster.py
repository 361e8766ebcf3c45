"""`webnorm cluster`: list the workers of a cluster; `webnorm cluster worker`: add adapters to one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Context, Option

from webnorm.cli.options import shared
from webnorm.cli.terminal.screen import Screen, escaped_line, progress
from webnorm.cli.terminal.streams import complain, say
from webnorm.cli.work.cluster import require_dask
from webnorm.cli.work.jobs import Interrupted
from webnorm.errors import WebnormError

if TYPE_CHECKING:
    from webnorm.fleet.adapters import FleetAdapter
    from webnorm.fleet.cluster import ClusterWorker, WorkerWithoutAdapter

Rates = dict[tuple[str, int], float | None]


def list_workers(
    ctx: Context,
    cluster: Annotated[
        str | None, Option(help=f"List the workers of this Dask cluster. {shared.WHICH_CLUSTER}")
    ] = None,
    adapter: shared.Adapter = None,
    backend: shared.Backend = None,
    time_limit: shared.TimeLimit = 60.0,
    json: Annotated[Path | None, Option(help="Write the list to FILE as JSON; - is standard output.")] = None,
) -> None:
    """Each worker has one line with its adapter, driver, versions and the GB/s of a copy. Equal cards share
    work if their copy speeds agree within 3 %.

    `webnorm cluster worker ADDRESS` adds the adapters of this machine to a cluster.
    """
    if ctx.invoked_subcommand is not None:
        return
    from webnorm.cli.work.outputs import check_outputs, write_or_print

    require_dask("`webnorm cluster`")
    if cluster is None:
        raise WebnormError(
            "--cluster is missing; expected local, an address such as tcp://head:8786, or a file"
        )
    check_outputs({"--json": json})
    from webnorm.fleet.cluster import connected, platforms
    from webnorm.fleet.dispatcher import DispatchProgress, copies

    rates: Rates = {}
    with progress("connecting to the cluster") as update, connected(cluster, adapter, complain) as client:
        groups, without = platforms(client, cluster, adapter)
        shown = [one for group in groups for one in group]
        for event in copies(client, shown, time_limit):
            if isinstance(event, DispatchProgress):
                update(f"copies: {event.text}", event.share)
            else:
                rates[event[0]] = event[1]
    if json is not None:
        write_or_print(_as_json(shown, without, rates), json)
    if str(json) != "-":
        _show(Screen(), shown, without, rates)


def _show(
    console: Screen, shown: Sequence[ClusterWorker], without: Sequence[WorkerWithoutAdapter], rates: Rates
) -> None:
    from webnorm.cli.terminal.columns import Column, FittedTable

    copied = [rates.get(one.card.device) for one in shown]
    strips = [
        Column("worker", [escaped_line(one.name, "cyan") for one in shown]),
        Column("host", [escaped_line(one.card.host) for one in shown], rank=1),
        Column(
            "adapter",
            [escaped_line(f"{one.card.index}: {_text(one.card, 'adapter')}") for one in shown],
            name=True,
        ),
        Column("backend", [escaped_line(_text(one.card, "backend")) for one in shown], rank=4),
        Column("driver", [escaped_line(_text(one.card, "driver")) for one in shown], rank=3),
        Column("webnorm", [escaped_line(one.card.webnorm) for one in shown], rank=0),
        Column("wgpu", [escaped_line(_text(one.card, "wgpu")) for one in shown], rank=2),
        Column(
            "copy GB/s", [escaped_line("-" if rate is None else f"{rate:.4g}") for rate in copied], right=True
        ),
    ]
    console.print(FittedTable(strips))
    for one in without:
        console.print(f"{one.name}: left out: {one.reason}", soft_wrap=True)


def _text(card: FleetAdapter, name: str) -> str:
    return str(card.description[name])


def _as_json(shown: Sequence[ClusterWorker], without: Sequence[WorkerWithoutAdapter], rates: Rates) -> str:
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
    address: Annotated[str, Argument(help="The scheduler's address, such as tcp://head:8786, or its file.")],
    adapter: shared.Adapter = None,
    backend: shared.Backend = None,
) -> None:
    """One Dask worker starts for each adapter that is like --adapter. The workers take work until Ctrl-C, or
    until the scheduler ends. `dask scheduler` starts a scheduler.
    """
    require_dask("`webnorm cluster worker`")
    from webnorm.fleet.cluster import cards_of, checked_address
    from webnorm.fleet.worker import serve

    place = checked_address(address, complain)
    with progress("opening the adapters"):
        cards = cards_of(adapter)

    def ready() -> None:
        for index, card in cards.items():
            say(f"adapter {index}, {card}, works for {place}; press Ctrl-C to stop")
        sys.stdout.flush()

    with suppress(KeyboardInterrupt):
        serve(place, cards, ready)
        raise WebnormError(f"the scheduler at {place} has gone")
    raise Interrupted("the worker has left")


# name: (function, summary); the function without a name is the verb itself.
VERBS: Mapping[str, tuple[Callable[..., Any], str]] = {
    "": (list_workers, ""),
    "worker": (worker, "Make the adapters of this machine work for a Dask scheduler."),
}
