"""The collector: receives visitors' results from a lab's page, checks their schema, and stores them.

It accepts posts of JSON, at any path, from pages of the allowed origins, within rate limits, and it stores no
address. On loopback every request must name this server as its Host, since another site's name may resolve to
this machine. Behind a proxy, the proxy must check that.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import json
import math
import re
import secrets
import time
from collections import Counter, deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from webnorm import signals
from webnorm.errors import WebnormError, counted, sentence
from webnorm.files import forms
from webnorm.files.atomic import parse_json
from webnorm.files.forms import Size, at
from webnorm.files.sqlite import StoreUnusable
from webnorm.gpu.timing import Method
from webnorm.lab.results import result_files
from webnorm.lab.results.result import MOST_GBPS, Cache, Status
from webnorm.op.registry import op_named
from webnorm.serving import read_body
from webnorm.web.collection.visit_store import VisitStore

# Every op with all of its kernels, and 50 samples of each, takes half of this.
MOST_BYTES = 256 << 10
# The origin of these results. They are not from webnorm's own machines, and never decide a choice of kernels.
ORIGIN = "visitor"

# A line without control characters of terminals.
_LINE = r"^[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*\Z"
_Line = Annotated[str, Meta(max_length=200, pattern=_LINE)]
_Word = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.+-]{1,100}\Z")]
_Flag = Annotated[str, Meta(pattern=r"^[a-z ]{1,40}\Z")]
_Time = Annotated[float, Meta(gt=0, le=1e15)]
# The largest difference of two float32 is 7e38; JSON stores infinity and NaN as "inf" and "nan".
_Error = Annotated[float, Meta(ge=0, le=1e39)] | Literal["inf", "nan"]
_Value = bool | Annotated[int, Meta(ge=-(1 << 53), le=1 << 53)] | Annotated[str, Meta(max_length=40)]


class _Device(Struct, forbid_unknown_fields=True):
    adapter: _Line
    vendor: _Line
    driver: _Line
    backend: Literal["WebGPU"]
    type: Literal["CPU", "GPU"]
    subgroup_size: Annotated[int, Meta(ge=1, le=1024)] | None = None


# rows, cols and eps are names of the results' file format.
class _Problem(Struct, forbid_unknown_fields=True):
    rows: Size
    cols: Size
    dtype: _Word
    eps: Annotated[float, Meta(ge=0, le=1e38)]
    distribution: _Word
    seed: Size
    scale: Annotated[float, Meta(gt=0, le=1e38)]
    options: Annotated[dict[_Word, _Value], Meta(max_length=50)]


class VisitResult(Struct, forbid_unknown_fields=True):
    """The schema of one result of a visit."""

    op: _Word
    kernel: _Word
    constants: Annotated[dict[_Word, Annotated[int, Meta(ge=-(1 << 53), le=1 << 53)]], Meta(max_length=50)]
    problem: _Problem
    status: Status
    expected: bool | None = None
    max_abs_error: _Error | None = None
    max_rel_error: _Error | None = None
    median_ns: _Time | None = None
    p20_ns: _Time | None = None
    p80_ns: _Time | None = None
    samples_ns: Annotated[list[_Time], Meta(min_length=1, max_length=200)] | None = None
    dispatches_per_sample: Size | None = None
    timing_method: Method | None = None
    cache: Cache | None = None
    bytes: Size | None = None
    gbps: Annotated[float, Meta(ge=0, le=MOST_GBPS)] | None = None
    percent_of_copy: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    flags: Annotated[list[_Flag], Meta(max_length=10)] | None = None


class VisitForm(Struct, forbid_unknown_fields=True):
    """The schema of a post: a results file with few facts of the device.

    web/assets/page/lab_submit.js makes it. It contains no address, no user agent, no features or limits of
    the device, and no text of a driver.
    """

    schema: Literal[1]
    webnorm: _Word
    device: _Device
    results: Annotated[list[VisitResult], Meta(min_length=1, max_length=500)]


def parse_visit(body: bytes) -> str:
    """Return a post's body as canonical JSON, the form that is stored.

    Raises WebnormError for a body that breaks the schema, or that `webnorm compare` cannot read.
    """
    try:
        data: Any = parse_json(body)
    except ValueError as error:
        raise WebnormError(f"the body is not JSON: {error}") from None
    with at("the body"):
        visit = forms.read(data, VisitForm)
        result_files.report_from_json(data)
        for result in visit.results:
            op_named(result.op)
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


# Seconds for a body to arrive; the largest body takes a phone some seconds.
_PATIENCE_S = 20.0
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_HERE = re.compile(rf"https?://({'|'.join(map(re.escape, _LOOPBACK))})(:\d{{1,5}})?")
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_TOO_LARGE = f"the body is larger than {MOST_BYTES} bytes"


@dataclass
class PostCounts:
    """Counts of posts since the collector started: stored, stored before, and refused."""

    kept: int = 0
    known: int = 0
    refused: int = 0

    def __str__(self) -> str:
        posts = self.kept + self.known + self.refused
        total = f"{counted(posts, 'post')} received: {self.kept} stored"
        return f"{total}, {self.known} stored before, {self.refused} refused"


class AllowedOrigins:
    """The origins whose pages may post: the named ones, or by default this machine."""

    def __init__(self, named: Collection[str]) -> None:
        self._named = {parse_origin(one) for one in named}

    def admit(self, origin: str) -> bool:
        """Return whether a page of this origin may post."""
        return origin in self._named if self._named else _HERE.fullmatch(origin) is not None


def parse_origin(url: str) -> str:
    """Return the origin of a URL without a path. Raises WebnormError for anything else."""
    wanted = f"--origin is {url!r}; expected the origin of a page, such as https://example.org"
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
    """An ASGI application. `port` is its own port for direct requests, or None behind a proxy."""

    def __init__(
        self, store: VisitStore, origins: AllowedOrigins, rates: RateLimits, port: int | None
    ) -> None:
        self._store, self._origins, self._rates = store, origins, rates
        self._behind_proxy = port is None
        self._hosts = {f"{host}:{port}" for host in _LOOPBACK}
        self.tally = PostCounts()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. An error is reported as a line of JSON, and counted."""
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
            raise HTTPException(403, "the Host header does not name this server")
        if not admitted:
            raise HTTPException(403, "pages of this origin may not post here")
        if request.method == "OPTIONS":
            allowed = {
                "Access-Control-Allow-Methods": "POST",
                "Access-Control-Allow-Headers": "Content-Type",
                "Access-Control-Max-Age": "600",
            }
            return Response(status_code=204, headers=allowed)
        if request.method != "POST":
            raise HTTPException(405, "only POST requests are accepted", {"Allow": "POST, OPTIONS"})
        return await self._posted(request)

    async def _posted(self, request: Request) -> Response:
        wait_s = math.ceil(self._rates.wait_s(self._address(request)))
        if wait_s > 0:
            raise HTTPException(
                429,
                f"too many posts; try again in {wait_s} s",
                {"Retry-After": str(wait_s)},
            )
        kind = (_only(request, "content-type") or "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise HTTPException(415, "the content type of the body is wrong; expected application/json")
        length = request.headers.get("content-length", "0")
        # A body without a length is counted while it arrives.
        if not length.isdecimal() or len(length) > 15 or int(length) > MOST_BYTES:
            raise HTTPException(413, _TOO_LARGE)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                content = await read_body(request, MOST_BYTES, _TOO_LARGE)
        except TimeoutError:
            raise HTTPException(408, f"the body did not arrive within {_PATIENCE_S:g} s") from None
        new = await run_in_threadpool(self._keep, content)
        # Pages of exported labs read this key, so it stays.
        if new:
            self.tally.kept += 1
            return JSONResponse({"told": "stored, thank you"}, 201)
        self.tally.known += 1
        return JSONResponse({"told": "these results are stored already"})

    def _keep(self, content: bytes) -> bool:
        try:
            return self._store.add(parse_visit(content), ORIGIN)
        except StoreUnusable as error:
            # The error of the store contains a path, which visitors must not see.
            why = "the store is full" if error.full else "the store cannot be written now"
            raise HTTPException(507 if error.full else 503, f"nothing was stored: {why}") from error
        except WebnormError as error:
            raise HTTPException(400, str(error)) from error

    def _address(self, request: Request) -> str:
        """Return the client's address; behind a proxy the address that the proxy added last."""
        direct = request.client.host if request.client else ""
        if not self._behind_proxy:
            return direct
        named = ",".join(request.headers.getlist("x-forwarded-for"))
        return named.rpartition(",")[2].strip()[:100] or direct


def _only(request: Request, name: str) -> str | None:
    """Return a header that occurs exactly once, or None."""
    found = request.headers.getlist(name)
    return found[0] if len(found) == 1 else None


# --- rate limits

WINDOW_S = 3600.0
# The bits of an IPv6 address that identify a customer's network.
_NETWORK = 64


class RateLimits:
    """Limits of requests per hour, for each client and overall, kept only in memory.

    A client is identified by a hash of its address, with a salt that is lost with the process. So no stored
    data identifies a client, and hashes are deleted after an hour.
    """

    def __init__(self, each: int, overall: int) -> None:
        self._each, self._all = each, overall
        self._salt = secrets.token_bytes(32)
        self._taken: deque[tuple[float, bytes]] = deque()
        self._counts: Counter[bytes] = Counter()

    def wait_s(self, address: str) -> float:
        """Count a request and return 0 if it is allowed; else return the seconds to wait."""
        now = time.monotonic()
        while self._taken and self._taken[0][0] <= now - WINDOW_S:
            _, gone = self._taken.popleft()
            self._counts[gone] -= 1
            if not self._counts[gone]:
                del self._counts[gone]
        client = self._client(address)
        if len(self._taken) >= self._all:
            return self._taken[0][0] + WINDOW_S - now
        if self._counts[client] >= self._each:
            return next(when for when, who in self._taken if who == client) + WINDOW_S - now
        self._taken.append((now, client))
        self._counts[client] += 1
        return 0.0

    def _client(self, address: str) -> bytes:
        return hashlib.blake2b(network(address).encode(), key=self._salt, digest_size=16).digest()


def network(address: str) -> str:
    """Return the address of an IPv4 client, or the network of an IPv6 client, which has countless addresses.

    A text that is not an address is returned unchanged.
    """
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(known, ipaddress.IPv4Address):
        return str(known)
    if known.ipv4_mapped:
        return str(known.ipv4_mapped)
    return str(ipaddress.ip_network((int(known), _NETWORK), strict=False))
