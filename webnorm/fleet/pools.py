"""Who shares work: equal cards whose copies agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from distributed import Client

from webnorm.fleet.cards import Pool, agreeing
from webnorm.fleet.cluster import Member
from webnorm.fleet.errand import CopyErrand
from webnorm.fleet.head import Found, Told, gathered

Device = tuple[str, int]


def copies(
    client: Client, found: Sequence[Member], time_limit_s: float
) -> Iterator[Told | tuple[Device, float | None]]:
    """What the copy of each card moves, GB/s, as soon as it is known; None where it could not be timed."""
    members = {one.card.device: one for one in found}
    work = [
        (Pool((one.card,), {}, (one.name,)), [CopyErrand(time_limit_s=time_limit_s)])
        for one in members.values()
    ]
    devices = list(members)
    for event in gathered(client, work):
        if isinstance(event, Found):
            rates = [one.gbps for one in event.value if one.gbps] if isinstance(event.value, list) else []
            yield devices[event.pool], max(rates, default=None)
        else:
            yield event


def pooled(
    client: Client, group: Sequence[Member], time_limit_s: float, tell: Callable[[Told], None]
) -> list[Pool]:
    """The pools of workers with equal cards: one for those that agree, the largest first.

    A card is held against others only; where its copy cannot be timed it is in no pool.
    """
    devices = {one.card.device for one in group}
    if len(devices) < 2:
        return [Pool(tuple(one.card for one in group), {})]
    rates: dict[Device, float] = {}
    for event in copies(client, group, time_limit_s):
        if isinstance(event, Told):
            tell(event)
        elif event[1] is not None:
            rates[event[0]] = event[1]
    found = agreeing(rates)
    all_agree = [set(one) for one in found] == [devices]
    return [_pool(group, agreed, rates, named=not all_agree) for agreed in found]


def _pool(
    group: Sequence[Member], devices: Sequence[Device], rates: dict[Device, float], named: bool
) -> Pool:
    members = [one for one in group if one.card.device in devices]
    names = tuple(one.name for one in members) if named else ()
    return Pool(tuple(one.card for one in members), rates, names)
