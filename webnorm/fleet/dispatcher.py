"""Submit work items to Dask, collect their results and progress, and notice when no worker is left.

It also forms pools: equal cards that share work items because their copies have similar throughput. Dask
decides which worker runs an item, and where the item goes when a worker dies.
"""

from __future__ import annotations

import itertools
import queue
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any

from distributed import Client, Future, KilledWorker

from webnorm import signals
from webnorm.errors import sentence
from webnorm.fleet import cluster, worker
from webnorm.fleet.adapters import AdapterPool, agreeing_adapters
from webnorm.fleet.cluster import ClusterWorker
from webnorm.fleet.shipped_ops import Parcel, parcels
from webnorm.fleet.work_items import CopyItem, WorkItem

# Seconds between two checks of the workers, and for how long a pool may have none: a nanny takes some time to
# start a new worker.
_LOOK_S, _PATIENCE_S = 1.0, 15.0
# For how long the scheduler may not answer, and how long the transfer of a result may take, in seconds.
_SILENCE_S, _FETCH_S = 30.0, 10.0
# Identifies a card: see FleetAdapter.device.
Device = tuple[str, int]
_GONE = "the scheduler no longer answers"


@dataclass(frozen=True)
class ItemLost:
    """The reason why no worker could run a work item, in one line."""

    reason: str


@dataclass(frozen=True)
class ItemResult:
    """The outcome of an item: its last result, ItemRefused or ItemLost, with the indices of pool and item."""

    pool: int
    at: int
    value: Any


@dataclass(frozen=True)
class DispatchProgress:
    """The progress of all work: a text, and the share that is done."""

    text: str
    share: float


def run_items(
    client: Client, work: Sequence[tuple[AdapterPool, Sequence[WorkItem]]]
) -> Iterator[ItemResult | DispatchProgress]:
    """Run each pool's work items, and yield each outcome once, in the order in which the items end.

    Closing the generator early (Ctrl-C) cancels the remaining items.
    """
    dispatcher = _Dispatcher(client, work)
    try:
        yield from dispatcher.events()
    finally:
        dispatcher.cancel()


@dataclass(eq=False)
class _Entry:
    """A work item and its current Dask task."""

    pool: int
    at: int
    parcel: Parcel
    future: Future | None = None
    share: float = 0.0


class _Dispatcher:
    def __init__(self, client: Client, work: Sequence[tuple[AdapterPool, Sequence[WorkItem]]]) -> None:
        self._client = client
        self._pools = [pool for pool, _ in work]
        places = [(pool, at) for pool, (_, items) in enumerate(work) for at in range(len(items))]
        packed = parcels(item for _, items in work for item in items)
        entries = [_Entry(*place, parcel) for place, parcel in zip(places, packed, strict=True)]
        self._left = dict(enumerate(entries))
        self._count = len(entries)
        self._topic = f"webnorm-{uuid.uuid4().hex}"
        self._attempts = itertools.count()
        self._heard: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        # The time since when a pool has no worker, and since when the scheduler is silent.
        self._without_worker: dict[int, float] = {}
        self._silent: float | None = None
        self._seen = set(client.scheduler_info()["workers"])
        # The workers that could run a pool's tasks at the last check.
        self._known: dict[int, set[str]] = {}

    def events(self) -> Iterator[ItemResult | DispatchProgress]:
        """Yield outcomes and progress until no item is left."""
        self._client.subscribe_topic(self._topic, lambda event: self._heard.put((event[1][0], event[1])))
        for number in self._left:
            self._submit(number)
        looked = 0.0
        while self._left:
            if time.monotonic() - looked >= _LOOK_S:
                yield from self._look()
                looked = time.monotonic()
            try:
                number, what = self._heard.get(timeout=_LOOK_S)
            except queue.Empty:
                continue
            entry = self._left.get(number)
            if entry is None:
                continue
            if not isinstance(what, Future):
                entry.share = what[2]
                yield self._progress(what[1])
            elif what is entry.future:
                yield from self._ended(number, entry, what)

    def cancel(self) -> None:
        """Cancel the remaining items."""
        # If the scheduler has ended, there is nothing to cancel.
        with signals.ignored(Exception):
            self._client.unsubscribe_topic(self._topic)
            left = [entry.future for entry in self._left.values() if entry.future is not None]
            if left:
                self._client.cancel(left, force=True)

    def _submit(self, number: int) -> None:
        entry = self._left[number]
        pool = self._pools[entry.pool]
        entry.future = self._client.submit(
            worker.run,
            entry.parcel,
            self._topic,
            number,
            key=f"{self._topic}-{number}-{next(self._attempts)}",
            resources=worker.resources(pool.card),
            workers=list(pool.workers) or None,
            retries=1,
            pure=False,
        )
        entry.future.add_done_callback(lambda future: self._heard.put((number, future)))

    def _progress(self, doing: str) -> DispatchProgress:
        done = self._count - len(self._left)
        share = (done + sum(entry.share for entry in self._left.values())) / max(1, self._count)
        return DispatchProgress(f"{done} of {self._count}: {doing}", share)

    def _ended(self, number: int, entry: _Entry, future: Future) -> Iterator[ItemResult | DispatchProgress]:
        """Yield the outcome of an ended task, unless its result is lost and Dask runs it again."""
        value: Any
        try:
            value = future.result(timeout=_FETCH_S)
        except KilledWorker as error:
            value = ItemLost(f"every worker that ran it died: {sentence(str(error), 200)}")
        except CancelledError:
            # Dask's client cancels tasks when it loses the scheduler. This class cancels only replaced ones.
            value = ItemLost(_GONE)
        except TimeoutError:
            # The worker died with the result, so Dask runs the task again.
            self._heard.put((number, future))
            return
        except Exception as error:  # any error of the worker
            signals.let_through(error)
            value = ItemLost(sentence(f"{type(error).__name__}: {error}", 400))
        yield from self._end(number, entry, value)

    def _end(self, number: int, entry: _Entry, value: Any) -> Iterator[ItemResult | DispatchProgress]:
        del self._left[number]
        yield ItemResult(entry.pool, entry.at, value)
        yield self._progress("done")

    def _look(self) -> Iterator[ItemResult | DispatchProgress]:
        """Give up items without a worker, and submit waiting items again when workers have joined."""
        now = time.monotonic()
        try:
            workers = self._client.scheduler_info()["workers"]
            if late := workers.keys() - self._seen:
                self._seen |= late
                cluster.admit(self._client, list(late))
                workers = self._client.scheduler_info()["workers"]
            at = {key: address for address, keys in self._client.processing().items() for key in keys}
        except (OSError, TimeoutError, LookupError):
            self._silent = self._silent or now
            if now - self._silent >= _SILENCE_S:
                yield from self._give_up(range(len(self._pools)), _GONE)
            return
        self._silent = None
        for number, pool in enumerate(self._pools):
            able = {address for address, one in workers.items() if _able(one, pool)}
            if able:
                self._without_worker.pop(number, None)
                self._resubmit(number, at, able)
            elif now - self._without_worker.setdefault(number, now) >= _PATIENCE_S:
                yield from self._give_up([number], f"no worker with {pool.card} is left")

    def _resubmit(self, pool: int, at: Mapping[str, str], able: set[str]) -> None:
        """Submit tasks again that Dask does not move when a worker's resources change (Dask issue 6575).

        These are tasks without a worker when an able one has joined, and tasks of a worker that is no longer
        able to run them.
        """
        has_new = not able <= self._known.get(pool, able)
        self._known[pool] = able
        for number, entry in self._left.items():
            future = entry.future
            if entry.pool != pool or future is None or future.done():
                continue
            address = at.get(future.key)
            if has_new if address is None else address not in able:
                self._submit(number)
                self._client.cancel([future], force=True)

    def _give_up(self, pools: Sequence[int], reason: str) -> Iterator[ItemResult | DispatchProgress]:
        for number, entry in list(self._left.items()):
            if entry.pool in pools:
                if entry.future is not None:
                    with signals.ignored(Exception):
                        self._client.cancel([entry.future], force=True)
                yield from self._end(number, entry, ItemLost(reason))


def _able(worker_info: Mapping[str, Any], pool: AdapterPool) -> bool:
    """Return True if a worker may run a pool's tasks."""
    has = worker_info["resources"].get(pool.card.key, 0) >= 1
    return has and (not pool.workers or str(worker_info["name"]) in pool.workers)


def copies(
    client: Client, found: Sequence[ClusterWorker], time_limit_s: float
) -> Iterator[DispatchProgress | tuple[Device, float | None]]:
    """Yield each card's copy throughput in GB/s once it is known; None if it could not be timed."""
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
    report: Callable[[DispatchProgress], None],
) -> list[AdapterPool]:
    """Return the pools of workers with equal cards and similar copy throughput, the largest pool first.

    A single card needs no measurement. Among several, a card whose copy cannot be timed is in no pool.
    """
    devices = {one.card.device for one in group}
    if len(devices) < 2:
        return [AdapterPool(tuple(one.card for one in group), {})]
    rates: dict[Device, float] = {}
    for event in copies(client, group, time_limit_s):
        if isinstance(event, DispatchProgress):
            report(event)
        elif event[1] is not None:
            rates[event[0]] = event[1]
    found = agreeing_adapters(rates)
    all_agree = [set(one) for one in found] == [devices]
    pools = []
    for agreed in found:
        members = [one for one in group if one.card.device in agreed]
        names = () if all_agree else tuple(one.name for one in members)
        pools.append(AdapterPool(tuple(one.card for one in members), rates, names))
    return pools
