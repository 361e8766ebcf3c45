"""Connecting to Dask: a cluster of this machine's adapters, or one that is there; and who works in it."""

from __future__ import annotations

import ipaddress
import pkgutil
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from distributed import Client, Scheduler, Security, SpecCluster

from webnorm._version import __version__
from webnorm.errors import WebnormError, sentence
from webnorm.files import atomic
from webnorm.fleet.adapters import FleetAdapter, adapter_of
from webnorm.fleet.worker import (
    PatientNanny,
    dask_failing,
    interrupts_held,
    join,
    options,
    quieten,
    why,
)
from webnorm.gpu.device import adapters, find_adapter
from webnorm.lab.process.worker import Worker

_LOCAL = re.compile(r"local(?::(\d+))?", re.ASCII)
_MOST_LOCAL = 64
_PATIENCE_S = 10
# Asks who it is without webnorm's help.
_VERSION = (pkgutil.resolve_name, "webnorm._version:__version__")
_CERTIFIED = ("tls://", "wss://")
_SCHEMES = ("tcp", "tls", "ws", "wss", "ucx")
WHERE = "local, local:N, the address of a Dask scheduler such as tcp://head:8786, or its scheduler file"


@dataclass(frozen=True)
class ClusterWorker:
    """A Dask worker: its address, its name, and its card."""

    address: str
    name: str
    card: FleetAdapter


@dataclass(frozen=True)
class WorkerWithoutAdapter:
    """A Dask worker that has no card that counts, and why."""

    address: str
    name: str
    reason: str


def check_where(where: str, given: str = "--cluster") -> None:
    """Raise WebnormError for what is no place of a cluster; `given` says as what it was."""
    found = _LOCAL.fullmatch(where)
    if found:
        if found[1] and not 1 <= int(found[1][:9]) <= _MOST_LOCAL:
            raise WebnormError(f"{given} is {where!r}; expected from 1 to {_MOST_LOCAL} workers")
        return
    if where.endswith(".json"):
        address_in(Path(where))
        return
    scheme, _, rest = where.rpartition("://")
    try:
        parts = urlsplit(f"//{rest}")
        is_place = (scheme or "tcp") in _SCHEMES and parts.hostname and parts.port
    except ValueError:
        is_place = False
    if not is_place:
        raise WebnormError(f"{given} is {where!r}; expected {WHERE}")


def is_local(where: str) -> bool:
    """Whether a cluster of this machine's adapters is meant, which is made of those that are asked for."""
    return _LOCAL.fullmatch(where) is not None


def address_in(path: Path) -> str:
    """The address that a scheduler file names."""
    try:
        address = atomic.read_json(path)["address"]
    except OSError as error:
        raise WebnormError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, LookupError, TypeError) as error:
        raise WebnormError(f"{path}: it is no scheduler file: it names no address") from error
    return str(address)


@contextmanager
def connected(where: str, adapter: str | None, warn: Callable[[str], None]) -> Iterator[Client]:
    """A client of the cluster: of `local`, a worker for each adapter that is equal to the one asked for, or N
    on these in turn. `warn` is called with a line for whom an address is open to.

    WebnormError where no scheduler answers, and where Dask fails while the client is in use.
    """
    check_where(where)
    with dask_failing("the cluster failed"), ExitStack() as stack:
        quieten()
        if local := _LOCAL.fullmatch(where):
            here = stack.enter_context(_local_cluster(adapter, int(local[1] or 0)))
            client = Client(here, set_as_default=False)
        else:
            client = _client(_address(where, warn))
        yield stack.enter_context(client)


def checked_address(where: str, warn: Callable[[str], None]) -> str:
    """The address of a scheduler that is there, for one or a scheduler file."""
    check_where(where, "ADDRESS")
    if is_local(where):
        raise WebnormError(f"ADDRESS is {where!r}; expected a scheduler's, as tcp://head:8786, or its file")
    with dask_failing("Dask failed"):
        quieten()
        address = _address(where, warn)
        _client(address).close()
    return address


def _address(where: str, warn: Callable[[str], None]) -> str:
    address = address_in(Path(where)) if where.endswith(".json") else where
    if "://" not in address:
        address = f"tcp://{address}"
    if _open_to_others(address):
        warn(f"{address}: whoever reaches it can run code there and here, as you; tls:// asks for keys")
    return address


def _open_to_others(address: str) -> bool:
    parts = urlsplit(address)
    if address.startswith(_CERTIFIED):
        return False
    try:
        return not ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return parts.hostname != "localhost"


def _client(address: str) -> Client:
    try:
        certified = Security().get_connection_args("client").get("ssl_context") is not None
        # Dask would say it when the client that it cannot make is collected, too.
        if address.startswith(_CERTIFIED) and not certified:
            raise WebnormError(f"{address}: Dask's configuration names no certificates; see docs/fleet.md")
        with warnings.catch_warnings():
            # Versions of Python and Dask that differ matter where something fails, and that is told then.
            warnings.simplefilter("ignore")
            return Client(address, timeout=_PATIENCE_S, security=Security(), set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        start = "`dask scheduler` starts one"
        raise WebnormError(f"{address}: no scheduler answers there: {why(error)}; {start}") from error


def cards_of(adapter: str | None) -> dict[int, FleetAdapter]:
    """The adapters of this machine that are like the one asked for, by their indices."""
    chosen = find_adapter(adapter)
    indices = [one.index for one in adapters() if str(one) == str(chosen)]

    def look(index: int) -> FleetAdapter:
        with Worker(str(index)) as own:
            return adapter_of(own)

    with ThreadPoolExecutor() as pool:
        return dict(zip(indices, pool.map(look, indices), strict=True))


@contextmanager
def _local_cluster(adapter: str | None, count: int) -> Iterator[SpecCluster]:
    given = cards_of(adapter)
    equal = list(given)
    indices = [equal[at % len(equal)] for at in range(count or len(equal))]
    names = [indices[:at].count(index) for at, index in enumerate(indices)]
    workers = {
        at: {"cls": PatientNanny, "options": options(index, given[index], names[at])}
        for at, index in enumerate(indices)
    }
    # It listens for a dashboard all the same, and would say so where Dask's own port is taken.
    here = {"host": "127.0.0.1", "dashboard": False, "dashboard_address": "127.0.0.1:0"}
    scheduler = {"cls": Scheduler, "options": here}
    with interrupts_held():
        cluster = SpecCluster(workers=workers, scheduler=scheduler)
    with cluster:
        yield cluster


def members(client: Client) -> tuple[list[ClusterWorker], list[WorkerWithoutAdapter]]:
    """Every worker, after it has looked at its adapter. WebnormError where there is none, and where one has
    another webnorm, which is named.
    """
    try:
        client.wait_for_workers(1, timeout=_PATIENCE_S)
    except TimeoutError as error:
        address = client.scheduler.address
        start = f"`webnorm cluster worker {address}` starts one"
        raise WebnormError(f"no worker has come to {address} for {_PATIENCE_S} s; {start}") from error
    workers = client.scheduler_info()["workers"]
    names = {address: str(one["name"]) for address, one in workers.items()}
    same = _of_this_version(client, names)
    looked = client.run(join, workers=same, on_error="return") if same else {}
    having, without = list[ClusterWorker](), list[WorkerWithoutAdapter]()
    for address, name in sorted(names.items(), key=lambda entry: entry[1]):
        card = looked.get(address, "webnorm is not installed there")
        if isinstance(card, FleetAdapter):
            having.append(ClusterWorker(address, name, card))
        else:
            without.append(WorkerWithoutAdapter(address, name, sentence(str(card))))
    return having, without


def _of_this_version(client: Client, names: Mapping[str, str]) -> list[str]:
    """The addresses of workers that have webnorm; WebnormError where one has another, or the scheduler does
    not have this one. Nothing of webnorm's is sent before: another version would take it for something else.
    """
    versions = client.run(*_VERSION, on_error="return")
    found = {address: version for address, version in versions.items() if isinstance(version, str)}
    who = {f"worker {names.get(address, address)} ({address})": version for address, version in found.items()}
    try:
        # It reads what it hands on.
        on_scheduler = str(client.run_on_scheduler(*_VERSION))
    except ImportError:
        on_scheduler = ""
    who[f"the scheduler ({client.scheduler.address})"] = on_scheduler
    for one, version in who.items():
        if version != __version__:
            has = f"webnorm {version}" if version else "no webnorm"
            raise WebnormError(f"{one} has {has}; expected {__version__}, as here")
    return [address for address in found if address in names]


def admit(client: Client, addresses: Sequence[str]) -> None:
    """Have workers that came late look at their adapters, too, where they have this webnorm."""
    found = client.run(*_VERSION, workers=list(addresses), on_error="return")
    same = [address for address, version in found.items() if version == __version__]
    if same:
        client.run(join, workers=same, on_error="return")


def platforms(
    client: Client, where: str, adapter: str | None
) -> tuple[list[list[ClusterWorker]], list[WorkerWithoutAdapter]]:
    """The workers with equal cards, of those that --adapter names, and who has none. WebnormError where
    nobody has such a card, and as `members` has it.
    """
    having, without = members(client)
    wanted = None if is_local(where) else adapter
    groups: dict[str, list[ClusterWorker]] = {}
    for one in having:
        if wanted is None or one.card.fits(wanted):
            groups.setdefault(one.card.key, []).append(one)
    if not groups:
        there = [f"{one.name}: {one.card}" for one in having] + [
            f"{one.name}: {one.reason}" for one in without
        ]
        what = "an adapter" if wanted is None else f"an adapter {wanted!r}"
        raise WebnormError(f"no worker has {what}; there is {'; '.join(there)}")
    return list(groups.values()), without
