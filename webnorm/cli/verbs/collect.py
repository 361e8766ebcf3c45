"""`webnorm collect`: receive and store the results that visitors of a lab page send."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from webnorm.cli.terminal.streams import complain, say
from webnorm.cli.work.jobs import INCONCLUSIVE, OK, Interrupted
from webnorm.errors import WebnormError, counted

if TYPE_CHECKING:
    from socket import socket

    from webnorm.web.collection.collector import Collector

# The most requests that are answered at the same time. Their bodies are small.
_AT_ONCE = 64
_LOOPBACK = ("127.0.0.1", "::1")
# Damaged visits that are reported one by one.
_MOST_REASONS = 5


def collect(
    store: Annotated[
        Path | None, Option(help="Store visits in this SQLite file, which is created if it is missing.")
    ] = None,
    host: Annotated[str, Option(help="Listen on this address: 127.0.0.1 or ::1.")] = "127.0.0.1",
    port: Annotated[int, Option(help="Listen on this port; 0 picks a free port.", min=0, max=65535)] = 8377,
    origin: Annotated[
        list[str] | None,
        Option(
            help="Accept posts from the lab page at this origin, such as https://example.org. Repeatable. "
            "Default: pages of this machine."
        ),
    ] = None,
    behind_proxy: Annotated[
        bool,
        Option(
            "--behind-proxy",
            help="Serve a proxy that adds each visitor's address to X-Forwarded-For. --host can then be any "
            "address.",
        ),
    ] = False,
    rate: Annotated[int, Option(help="Accept N posts per visitor and hour.", min=1, max=100_000)] = 30,
    rate_all: Annotated[
        int, Option(help="Accept N posts per hour from all visitors together.", min=1, max=100_000)
    ] = 600,
    capacity: Annotated[int, Option(help="Limit the file to N mebibytes.", min=1, max=1 << 20)] = 1024,
    export: Annotated[
        Path | None,
        Option(help="Write each visit to DIR as a results file for `webnorm compare`, and exit."),
    ] = None,
    page: Annotated[
        Path | None,
        Option(help="Write a static page that compares all visits to DIR, and exit."),
    ] = None,
) -> None:
    """`webnorm export --lab --submit URL` writes a page that sends results to this command. A post must match
    a schema and has at most 256 KiB. Duplicates are stored once.

    Addresses of visitors are not stored: they are counted by a hash whose salt ends with the process. Visits
    are marked as such, and never used to tune or choose kernels. Ctrl-C stops the command.
    """
    from webnorm.serving import bound_socket
    from webnorm.web.collection.collector import AllowedOrigins, Collector, RateLimits
    from webnorm.web.collection.visit_store import VisitStore

    if store is None:
        raise WebnormError("--store is missing; expected a file for the visits, such as visits.sqlite")
    if export is not None:
        _export(store, export)
        return
    if page is not None:
        raise typer.Exit(_write_page(store, page))
    if host not in _LOOPBACK and not behind_proxy:
        raise WebnormError(
            f"--host is {host!r}; expected {' or '.join(_LOOPBACK)}, or --behind-proxy as well"
        )
    origins, rates = AllowedOrigins(origin or ()), RateLimits(rate, rate_all)
    with bound_socket(host, port) as listener:
        here = listener.getsockname()[1]
        kept = VisitStore(store, capacity << 20)
        collector = Collector(kept, origins, rates, None if behind_proxy else here)
        say(f"Storing posts to http://{f'[{host}]' if ':' in host else host}:{here} in {store}")
        say(f"Pages that may post: {', '.join(origin or ['pages of this machine'])}. Press Ctrl-C to stop.")
        sys.stdout.flush()
        with suppress(KeyboardInterrupt):
            serve(collector, listener)
    raise Interrupted(str(collector.tally))


def serve(collector: Collector, listener: socket) -> None:
    """Answer requests until Ctrl-C, which is raised after the current requests are answered."""
    from webnorm.serving import quiet_server

    asyncio.run(quiet_server(collector, _AT_ONCE).serve([listener]))


def _export(store: Path, folder: Path) -> None:
    """Write one file per visit."""
    from webnorm.files.atomic import write_text
    from webnorm.web.collection.visit_store import visits

    found = list(visits(store))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise WebnormError(f"--export {folder}: cannot create the folder: {why}") from error
    for one in found:
        write_text(folder / f"visit-{one.number:06}.json", one.results())
    say(f"{folder}: {counted(len(found), 'visit')}, one file each")


def _write_page(store: Path, folder: Path) -> int:
    """Write the page of all visits, and return the exit status."""
    from webnorm.web.collection.visit_store import visits
    from webnorm.web.collection.visit_summary import summarized
    from webnorm.web.collection.visits_page import visits_page
    from webnorm.web.folder import VISITS, check_folder, write_folder

    check_folder(folder, kind=VISITS)
    summary = summarized(visits(store))
    write_folder(visits_page(summary.as_json()), folder)
    say(f"{folder}: a page of {counted(summary.visits, 'visit')}; serve it and open index.html")
    for reason in summary.left_out[:_MOST_REASONS]:
        complain(f"{store}: left out {reason}")
    if more := len(summary.left_out[_MOST_REASONS:]):
        complain(f"{store}: left out {counted(more, 'more visit')}")
    return INCONCLUSIVE if summary.left_out else OK
