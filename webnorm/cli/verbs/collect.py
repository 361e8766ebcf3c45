"""`webnorm collect`: what visitors of a lab's page send, received and kept."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from webnorm.cli.terminal.streams import say
from webnorm.cli.work.jobs import Interrupted
from webnorm.errors import WebnormError

if TYPE_CHECKING:
    from socket import socket

    from webnorm.web.collection.collector import Collector

# Requests that are answered at a time; of a small body each.
_AT_ONCE = 64
_LOOPBACK = ("127.0.0.1", "::1")


def collect(
    store: Annotated[
        Path | None, Option(help="The SQLite file to keep visits in; it is made where there is none.")
    ] = None,
    host: Annotated[str, Option(help="The address to listen on: 127.0.0.1 or ::1.")] = "127.0.0.1",
    port: Annotated[int, Option(help="The port; 0 for any that is free.", min=0, max=65535)] = 8377,
    origin: Annotated[
        list[str] | None,
        Option(
            help="Where a lab lies whose page may post, such as https://example.org; repeatable. "
            "Default: pages of this machine."
        ),
    ] = None,
    behind_proxy: Annotated[
        bool,
        Option(
            "--behind-proxy",
            help="A proxy asks for visitors, and adds each one's address to X-Forwarded-For; any --host.",
        ),
    ] = False,
    rate: Annotated[int, Option(help="Posts of one visitor in an hour.", min=1, max=100_000)] = 30,
    rate_all: Annotated[int, Option(help="Posts of all visitors in an hour.", min=1, max=100_000)] = 600,
    capacity: Annotated[int, Option(help="Mebibytes that the file may have.", min=1, max=1 << 20)] = 1024,
    export: Annotated[
        Path | None,
        Option(help="Receive nothing: write each visit as a results file for `webnorm compare`."),
    ] = None,
) -> None:
    """The other end of `webnorm export --lab --submit URL`. A post has a declared form and 256 KiB at most;
    the same twice is kept once. No address is kept: visitors are counted by a hash whose salt ends with the
    process. A visit is marked as a visitor's, and nothing is tuned or chosen by it. Ctrl-C ends it.
    """
    from webnorm.web.collection.collector import AllowedOrigins, Collector, RateLimits
    from webnorm.web.collection.visit_store import VisitStore
    from webnorm.web.serving import bound_socket

    if store is None:
        raise WebnormError("--store is missing; expected the file to keep visits in, such as visits.sqlite")
    if export is not None:
        _export(store, export)
        return
    if host not in _LOOPBACK and not behind_proxy:
        raise WebnormError(
            f"--host is {host!r}; expected {' or '.join(_LOOPBACK)}, or --behind-proxy with it"
        )
    origins, rates = AllowedOrigins(origin or ()), RateLimits(rate, rate_all)
    with bound_socket(host, port) as listener:
        here = listener.getsockname()[1]
        kept = VisitStore(store, capacity << 20)
        collector = Collector(kept, origins, rates, None if behind_proxy else here)
        say(f"{store}: posts to http://{f'[{host}]' if ':' in host else host}:{here} are kept there")
        say(f"Pages that may post: {', '.join(origin or ['those of this machine'])}. Ctrl-C ends it.")
        sys.stdout.flush()
        with suppress(KeyboardInterrupt):
            serve(collector, listener)
    raise Interrupted(str(collector.tally))


def serve(collector: Collector, listener: socket) -> None:
    """Answer requests until Ctrl-C, which is raised when those under way are answered."""
    from webnorm.web.serving import quiet_server

    asyncio.run(quiet_server(collector, _AT_ONCE).serve([listener]))


def _export(store: Path, folder: Path) -> None:
    """Write a file for each visit."""
    from webnorm.files.atomic import write_text
    from webnorm.web.collection.visit_store import visits

    found = list(visits(store))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise WebnormError(f"--export {folder}: cannot be made: {why}") from error
    for one in found:
        write_text(folder / f"visit-{one.number:06}.json", one.results())
    say(f"{folder}: {len(found)} visit{'' if len(found) == 1 else 's'}, a file each")
