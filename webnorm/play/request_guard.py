"""Admit only requests of the playground's own page, with its token and of limited size."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Enough for the text of any kernel: the renderer's limit is smaller.
MOST_BYTES = 2_000_000
TOO_LARGE = f"the body is larger than {MOST_BYTES} bytes"
# The key of the nonce in a request's scope. Editors add style elements, which the nonce allows.
NONCE = "webnorm.nonce"
TOKEN_BITS = 192
_OWN_SITE = ("same-origin", "none")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; img-src 'self'; "
    "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class RequestGuard:
    """Middleware that admits only requests of the application's own page.

    Any open page in a browser can send requests to 127.0.0.1, and any site can point its name to that
    address. So every request, even to an unknown route, must name this server as its Host. It must not come
    from another origin. It must carry the token, which only the page's address contains.

    A browser requests the page before it has read the token. So the page's files need none. Their paths are
    in `free`, and they contain nothing about the kernel.
    """

    def __init__(self, app: ASGIApp, port: int, token: str, free: Collection[str]) -> None:
        self._app, self._free = app, free
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._origins = {f"http://{host}" for host in self._hosts}
        self._authorization = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it to the application."""
        if scope["type"] != "http":
            return
        nonce = secrets.token_urlsafe(16)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers["Content-Security-Policy"] = _POLICY.format(nonce=nonce)
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            await self._app({**scope, NONCE: nonce}, receive, with_headers)
        else:
            status, error = refusal
            await JSONResponse({"error": error}, status)(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        if headers.getlist("host") not in [[host] for host in self._hosts]:
            named = " or ".join(sorted(self._hosts))
            return 403, f"the Host header does not name this server; it must be {named}"
        if not set(headers.getlist("origin")) <= self._origins:
            return 403, "the request comes from another origin; send requests from the playground's own page"
        if not set(headers.getlist("sec-fetch-site")) <= set(_OWN_SITE):
            return 403, "the request comes from another site; send requests from the playground's own page"
        given = headers.get("authorization", "").encode()
        if scope["path"] not in self._free and not secrets.compare_digest(given, self._authorization):
            return 403, "the token is missing or wrong; open the address that `webnorm play` printed"
        # A body without a length is counted while it is read.
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            return 413, TOO_LARGE
        return None
