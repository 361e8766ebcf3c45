"""Connect to a Dask cluster, local or existing, and list its workers."""

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
    root_cause,
)
from webnorm.gpu.backend_names import requested_backend
from webnorm.gpu.device import adapters, find_adapter
from webnorm.lab.process.worker import Worker

_LOCAL = re.compile(r"local(?::(\d+))?", re.ASCII)
_MOST_LOCAL = 64
_PATIENCE_S = 10
# A call that works in processes without webnorm, too: it returns the version or an error.
_VERSION = (pkgutil.resolve_name, "webnorm._version:__version__")
_CERTIFIED = ("tls://", "wss://")
_SCHEMES = ("tcp", "tls", "ws", "wss", "ucx")
WHERE = "local, local:N, the address of a Dask scheduler such as tcp://head:8786, or its scheduler file"


@dataclass(frozen=True)
class ClusterWorker:
    """A Dask worker with its card."""

    address: str
    name: str
    card: FleetAdapter


@dataclass(frozen=True)
class WorkerWithoutAdapter:
    """A Dask worker without a usable card, and the reason."""

    address: str
    name: str
    reason: str


def check_where(where: str, given: str = "--cluster") -> None:
    """Raise WebnormError if `where` cannot be a cluster; `given` names the option or argument."""
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
    """Return True for `local` or `local:N`: a cluster of this machine's adapters."""
    return _LOCAL.fullmatch(where) is not None


def address_in(path: Path) -> str:
    """Return the address in a scheduler file."""
    try:
        address = atomic.read_json(path)["address"]
    except OSError as error:
        raise WebnormError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, LookupError, TypeError) as error:
        raise WebnormError(f"{path}: not a scheduler file: it has no address") from error
    return str(address)


@contextmanager
def connected(where: str, adapter: str | None, warn: Callable[[str], None]) -> Iterator[Client]:
    """Yield a client of the cluster.

    `local` starts one worker for each adapter that is equal to `adapter`; `local:N` starts N workers on these
    adapters in turn. `warn` gets a line if other machines can reach the address. Raises WebnormError if no
    scheduler answers, or if Dask fails while the client is in use.
    """
    check_where(where)
    with dask_failing("the cluster failed"), ExitStack() as stack:
        quieten()
        if local := _LOCAL.fullmatch(where):
            own = stack.enter_context(_local_cluster(adapter, int(local[1] or 0)))
            client = Client(own, set_as_default=False)
        else:
            client = _client(_address(where, warn))
        yield stack.enter_context(client)


def checked_address(where: str, warn: Callable[[str], None]) -> str:
    """Return the address of a running scheduler, given the address or a scheduler file."""
    check_where(where, "ADDRESS")
    if is_local(where):
        expected = "expected a scheduler's address, such as tcp://head:8786, or its file"
        raise WebnormError(f"ADDRESS is {where!r}; {expected}")
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
        warn(f"{address}: anyone who reaches it can run code as you, there and here; tls:// requires keys")
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
        # Dask would report this again when the failed client is collected.
        if address.startswith(_CERTIFIED) and not certified:
            raise WebnormError(f"{address}: Dask's configuration has no certificates; see docs/cluster.md")
        with warnings.catch_warnings():
            # Different versions of Python and Dask matter only if something fails, which is reported then.
            warnings.simplefilter("ignore")
            return Client(address, timeout=_PATIENCE_S, security=Security(), set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        start = "start one with `dask scheduler`"
        raise WebnormError(f"{address}: no scheduler answers: {root_cause(error)}; {start}") from error


def cards_of(adapter: str | None) -> dict[int, FleetAdapter]:
    """Return this machine's adapters that are equal to the requested one, by their indices."""
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
    # Dask opens a dashboard port even so. Any free port avoids its warning that the default one is in use.
    listening = {"host": "127.0.0.1", "dashboard": False, "dashboard_address": "127.0.0.1:0"}
    scheduler = {"cls": Scheduler, "options": listening}
    with interrupts_held():
        cluster = SpecCluster(workers=workers, scheduler=scheduler)
    with cluster:
        yield cluster


def members(client: Client) -> tuple[list[ClusterWorker], list[WorkerWithoutAdapter]]:
    """Return the workers with a usable adapter and those without, after each has examined its adapter.

    Raises WebnormError if there is no worker, or if one has another version of webnorm.
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
    found = client.run(join, workers=same, on_error="return") if same else {}
    having, without = list[ClusterWorker](), list[WorkerWithoutAdapter]()
    for address, name in sorted(names.items(), key=lambda entry: entry[1]):
        card = found.get(address, "webnorm is not installed there")
        if isinstance(card, FleetAdapter):
            having.append(ClusterWorker(address, name, card))
        else:
            without.append(WorkerWithoutAdapter(address, name, sentence(str(card))))
    return having, without


def _of_this_version(client: Client, names: Mapping[str, str]) -> list[str]:
    """Return the addresses of workers that have webnorm.

    Raises WebnormError if a worker or the scheduler has another version. Before this check no object of
    webnorm is sent, because another version could misread it.
    """
    versions = client.run(*_VERSION, on_error="return")
    found = {address: version for address, version in versions.items() if isinstance(version, str)}
    holders = {
        f"worker {names.get(address, address)} ({address})": version for address, version in found.items()
    }
    try:
        # The scheduler unpickles tasks, so it needs webnorm, too.
        on_scheduler = str(client.run_on_scheduler(*_VERSION))
    except ImportError:
        on_scheduler = ""
    holders[f"the scheduler ({client.scheduler.address})"] = on_scheduler
    for holder, version in holders.items():
        if version != __version__:
            has = f"webnorm {version}" if version else "no webnorm"
            raise WebnormError(f"{holder} has {has}; it must be {__version__}, as on this machine")
    return [address for address in found if address in names]


def admit(client: Client, addresses: Sequence[str]) -> None:
    """Have late workers examine their adapters, if they have this version of webnorm."""
    found = client.run(*_VERSION, workers=list(addresses), on_error="return")
    same = [address for address, version in found.items() if version == __version__]
    if same:
        client.run(join, workers=same, on_error="return")


def platforms(
    client: Client, where: str, adapter: str | None
) -> tuple[list[list[ClusterWorker]], list[WorkerWithoutAdapter]]:
    """Return the workers that match --adapter and --backend, and the workers without a card.

    The former are grouped by equal cards. Raises WebnormError if no worker matches, and for the reasons of
    `members`.
    """
    having, without = members(client)
    wanted, backend = (None, None) if is_local(where) else (adapter, requested_backend())
    groups: dict[str, list[ClusterWorker]] = {}
    for one in having:
        if (wanted is None or one.card.fits(wanted)) and backend in (None, one.card.backend):
            groups.setdefault(one.card.key, []).append(one)
    if not groups:
        available = [f"{one.name}: {one.card}" for one in having] + [
            f"{one.name}: {one.reason}" for one in without
        ]
        what = "an adapter" if wanted is None else f"an adapter {wanted!r}"
        what += "" if backend is None else f" on {backend}"
        raise WebnormError(f"no worker has {what}; available: {'; '.join(available)}")
    return list(groups.values()), without
