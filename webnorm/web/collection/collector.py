"""The collector: takes what visitors of a lab's page send, holds it against its form, and keeps it.

It answers posts of JSON, at any path, from pages of the origins that it was told, within rates, and
writes no address anywhere. On loopback every request has to name this server as its Host, as other sites may
have their names lead here; behind a proxy that is the proxy's business.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from webnorm import signals
from webnorm.errors import WebnormError, sentence
from webnorm.files.sqlite import StoreUnusable
from webnorm.web.collection.rates import RateLimits
from webnorm.web.collection.visit_store import VisitStore
from webnorm.web.collection.visits import MOST_BYTES, ORIGIN, parse_visit
from webnorm.web.serving import read_body

# So long a body may take to come; one of this size takes a phone some seconds.
_PATIENCE_S = 20.0
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_TOO_LARGE = f"the body is larger than {MOST_BYTES} bytes"


@dataclass
class PostCounts:
    """What came since the collector began: posts that were kept, that were there already, and that were
    refused.
    """

    kept: int = 0
    known: int = 0
    refused: int = 0

    def __str__(self) -> str:
        posts = self.kept + self.known + self.refused
        told = f"{posts} post{'' if posts == 1 else 's'} came: {self.kept} kept"
        return f"{told}, {self.known} there already, {self.refused} refused"


class AllowedOrigins:
    """Pages that may post: those of the origins named, or, without any, of this machine."""

    def __init__(self, named: Collection[str]) -> None:
        self._named = {parse_origin(one) for one in named}

    def admit(self, origin: str) -> bool:
        """Whether a page of this origin may post."""
        if self._named:
            return origin in self._named
        return (
            re.fullmatch(rf"https?://({'|'.join(map(re.escape, _LOOPBACK))})(:\d{{1,5}})?", origin)
            is not None
        )


def parse_origin(url: str) -> str:
    """The origin that is named by a URL without a path; WebnormError for anything else."""
    wanted = f"--origin is {url!r}; expected that of a page, such as https://example.org"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise WebnormError(wanted) from None
    if parts.scheme not in ("http", "https") or not host or not url.isascii() or parts.username is not None:
        raise WebnormError(wanted)
    if parts.path not in ("", "/") or parts.query or parts.fragment or not re.fullmatch(r"[\w.:-]+", host):
        raise WebnormError(wanted)
    name = f"[{host}]" if ":" in host else host
    usual = {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.scheme}://{name}" + (f":{port}" if port not in (None, usual) else "")


class Collector:
    """An ASGI application. `port` is its own where it is asked for directly, None behind a proxy."""

    def __init__(
        self, store: VisitStore, origins: AllowedOrigins, rates: RateLimits, port: int | None
    ) -> None:
        self._store, self._origins, self._rates = store, origins, rates
        self._behind_proxy = port is None
        self._hosts = {f"{host}:{port}" for host in _LOOPBACK}
        self.tally = PostCounts()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; what is wrong with it is told in a line of JSON, and counted."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        origin = _only(request, "origin")
        admitted = origin is not None and self._origins.admit(origin)
        try:
            answer = await self._answered(request, admitted)
        except HTTPException as error:
            answer = JSONResponse({"error": error.detail}, error.status_code, error.headers)
        except Exception as error:
            signals.let_through(error)
            answer = JSONResponse({"error": sentence(f"webnorm failed: {type(error).__name__}")}, 500)
        if request.method == "POST" and answer.status_code >= 400:
            self.tally.refused += 1

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers["Vary"] = "Origin"
                if admitted and origin is not None:
                    headers["Access-Control-Allow-Origin"] = origin
            await send(message)

        await answer(scope, receive, with_headers)

    async def _answered(self, request: Request, admitted: bool) -> Response:
        if not self._behind_proxy and _only(request, "host") not in self._hosts:
            raise HTTPException(403, "the host is another than this server's")
        if not admitted:
            raise HTTPException(403, "the request comes from no page that may post here")
        if request.method == "OPTIONS":
            allowed = {
                "Access-Control-Allow-Methods": "POST",
                "Access-Control-Allow-Headers": "Content-Type",
                "Access-Control-Max-Age": "600",
            }
            return Response(status_code=204, headers=allowed)
        if request.method != "POST":
            raise HTTPException(405, "only posts are taken here", {"Allow": "POST, OPTIONS"})
        return await self._posted(request)

    async def _posted(self, request: Request) -> Response:
        wait_s = math.ceil(self._rates.wait_s(self._address(request)))
        if wait_s > 0:
            raise HTTPException(
                429,
                f"there were too many posts; the next is taken in {wait_s} s",
                {"Retry-After": str(wait_s)},
            )
        kind = (_only(request, "content-type") or "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise HTTPException(415, "the body is of another type; expected application/json")
        length = request.headers.get("content-length", "0")
        # What has no length is counted as it comes.
        if not length.isdecimal() or len(length) > 15 or int(length) > MOST_BYTES:
            raise HTTPException(413, _TOO_LARGE)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                content = await read_body(request, MOST_BYTES, _TOO_LARGE)
        except TimeoutError:
            raise HTTPException(408, f"the body did not come within {_PATIENCE_S:g} s") from None
        new = await run_in_threadpool(self._keep, content)
        if new:
            self.tally.kept += 1
            return JSONResponse({"told": "kept, with thanks"}, 201)
        self.tally.known += 1
        return JSONResponse({"told": "these very results are kept already"})

    def _keep(self, content: bytes) -> bool:
        try:
            return self._store.add(parse_visit(content), ORIGIN)
        except StoreUnusable as error:
            # The path is nobody's business who posts.
            why = "the store is full" if error.full else "the store cannot be written now"
            raise HTTPException(507 if error.full else 503, f"nothing was kept: {why}") from error
        except WebnormError as error:
            raise HTTPException(400, str(error)) from error

    def _address(self, request: Request) -> str:
        """Whom to count: behind a proxy whom that has seen, which it adds last."""
        direct = request.client.host if request.client else ""
        if not self._behind_proxy:
            return direct
        named = ",".join(request.headers.getlist("x-forwarded-for"))
        return named.rpartition(",")[2].strip()[:100] or direct


def _only(request: Request, name: str) -> str | None:
    """A header that is there once."""
    found = request.headers.getlist(name)
    return found[0] if len(found) == 1 else None
