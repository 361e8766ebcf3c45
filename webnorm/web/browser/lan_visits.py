"""Waits for a browser of the local network, such as a phone's, to open an exported page and report."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import socket
from time import monotonic

from webnorm.errors import WebnormError, shortened
from webnorm.serving import POLICY, bound_socket, served
from webnorm.web.browser.lan import chosen_addresses, cryptography, new_certificate
from webnorm.web.browser.report_site import PostedReport, ReportSite
from webnorm.web.browser.visits import PageVisit
from webnorm.web.folder import PAGE

# A person has to find the phone, scan the code and accept the certificate.
TIME_LIMIT_S = 600.0
# Seconds between checks for a missing file or an expired limit, and between updates of the progress.
_GLANCE_S = 0.1
# The name of a browser before it has opened the page.
_UNKNOWN = "phone"
# Browsers name others too, for the sake of sites that expect these, so the order matters.
_BROWSERS = (
    ("Edge", r"Edg\w*/(\d+)"),
    ("Opera", r"OPR/(\d+)"),
    ("Firefox", r"(?:Firefox|FxiOS)/(\d+)"),
    ("Chrome", r"(?:Chrome|CriOS)/(\d+)"),
    ("Safari", r"Version/(\d+[.\d]*) .*Safari"),
)
_MOST_CHARACTERS = 80


def browser_name(agent: str) -> str:
    """Return the name and version of a browser from its user agent, or the user agent if it is unknown."""
    for name, pattern in _BROWSERS:
        if found := re.search(pattern, agent, re.ASCII):
            return f"{name} {found[1]}"
    return agent


@dataclass(frozen=True)
class Invitation:
    """The addresses of the page, which contain the token, and the certificate's fingerprint."""

    urls: tuple[str, ...]
    fingerprint: str
    time_limit_s: float


class LanVisitor:
    """A server for a browser that a person opens on another device.

    It listens while the context is open, only on private addresses or on `host`, and takes one visit. It
    speaks HTTPS, because only a secure context has WebGPU. `invite` is called when the page can be opened,
    `update` while the visit waits.
    """

    def __init__(
        self,
        invite: Callable[[Invitation], None],
        update: Callable[[str | None, float | None], None],
        *,
        host: str | None = None,
        port: int = 0,
        time_limit_s: float | None = None,
    ) -> None:
        self._host, self._port = host, port
        self._listeners: list[socket] = []
        self._opened = ExitStack()
        self._invite, self._update = invite, update
        self.time_limit_s = TIME_LIMIT_S if time_limit_s is None else time_limit_s
        self.name = _UNKNOWN

    def __enter__(self) -> LanVisitor:
        cryptography()
        with self._opened as opened:
            self._listeners = [
                opened.enter_context(bound_socket(address, self._port))
                for address in chosen_addresses(self._host)
            ]
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def visit(
        self,
        folder: Path,
        query: str = "",
        *,
        page: str = PAGE,
        screenshot: bool = False,
        policy: str = POLICY,
    ) -> PageVisit:
        """Serve a folder's page until a browser has posted its report.

        Raises WebnormError if none does within the time limit, or if the page fails.
        """
        if screenshot:
            raise WebnormError("a phone gives no picture of its page; leave --screenshot out")
        with self._served(folder, page, policy) as (site, fingerprint):
            urls = tuple(f"{url}/{page}{query}" for url in site.urls)
            self._invite(Invitation(urls, fingerprint, self.time_limit_s))
            posted = self._posted(site, page)
        self.name = shortened(browser_name(site.agent or ""), _MOST_CHARACTERS) or _UNKNOWN
        return site.visit(self.name, posted)

    @contextmanager
    def _served(self, folder: Path, page: str, policy: str) -> Iterator[tuple[ReportSite, str]]:
        names = [listener.getsockname() for listener in self._listeners]
        certificate = new_certificate([address for address, _ in names])
        site = ReportSite(folder, page, policy, [_origin(address, port) for address, port in names])
        with served(self._listeners, site, certificate):
            yield site, certificate.fingerprint

    def _posted(self, site: ReportSite, page: str) -> PostedReport:
        began = monotonic()
        while not site.posted:
            passed = monotonic() - began
            if site.is_open:
                site.check_missing()
                failure = f"{page} did not report"
                state = f"{browser_name(site.agent or '')} runs {page}"
            else:
                failure = f"no browser opened {page}"
                state = f"waiting for a browser to open {page}"
            if passed >= self.time_limit_s:
                raise WebnormError(f"{failure} within {self.time_limit_s:g} s: stopped")
            self._update(state, passed / self.time_limit_s)
            site.received.wait(_GLANCE_S)
        return site.posted[0]


def _origin(address: str, port: int) -> str:
    # Browsers leave the default port out.
    return f"https://{address}" if port == 443 else f"https://{address}:{port}"
