"""Who shares work: equal cards whose copies agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from distributed import Client

from webnorm.fleet.adapters import AdapterPool, agreeing_adapters
from webnorm.fleet.cluster import ClusterWorker
from webnorm.fleet.dispatcher import DispatchProgress, ItemResult, run_items
from webnorm.fleet.errands import CopyItem

Device = tuple[str, int]


def copies(
    client: Client, found: Sequence[ClusterWorker], time_limit_s: float
) -> Iterator[DispatchProgress | tuple[Device, float | None]]:
    """What the copy of each card moves, GB/s, as soon as it is known; None where it could not be timed."""
    members = {one.card.device: one for one in found}
    work = [
        (AdapterPool((one.card,), {}, (one.name,)), [CopyItem(time_limit_s=time_limit_s)])
        for one in members.values()
    ]
    devices = list(members)
    for event in run_items(client, work):
        if isinstance(event, ItemResult):
            rates = [one.gbps for one in event.value if one.gbps] if isinstance(event.value, list) else []
            yield devices[event.pool], max(rates, default=None)
        else:
            yield event


def pooled(
    client: Client,
    group: Sequence[ClusterWorker],
    time_limit_s: float,
    tell: Callable[[DispatchProgress], None],
) -> list[AdapterPool]:
    """The pools of workers with equal cards: one for those that agree, the largest first.

    A card is held against others only; where its copy cannot be timed it is in no pool.
    """
    devices = {one.card.device for one in group}
    if len(devices) < 2:
        return [AdapterPool(tuple(one.card for one in group), {})]
    rates: dict[Device, float] = {}
    for event in copies(client, group, time_limit_s):
        if isinstance(event, DispatchProgress):
            tell(event)
        elif event[1] is not None:
            rates[event[0]] = event[1]
    found = agreeing_adapters(rates)
    all_agree = [set(one) for one in found] == [devices]
    return [_pool(group, agreed, rates, named=not all_agree) for agreed in found]


def _pool(
    group: Sequence[ClusterWorker], devices: Sequence[Device], rates: dict[Device, float], named: bool
) -> AdapterPool:
    members = [one for one in group if one.card.device in devices]
    names = tuple(one.name for one in members) if named else ()
    return AdapterPool(tuple(one.card for one in members), rates, names)
