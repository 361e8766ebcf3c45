"""Who may speak to the page's server: requests of its own page alone, with its token, of bounded size."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# A body may be a kernel's text; the largest text that is rendered is smaller.
MOST_BYTES = 2_000_000
TOO_LARGE = f"the body is larger than {MOST_BYTES} bytes"
# Where a route finds the word that allows a style of the page's own. Editors bring theirs as elements.
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
    """Lets requests of the application's own page through, with its token, of bounded size.

    Any page that a browser has open can send requests to 127.0.0.1, and any site can give its name that
    address. So every request, to a route that there is or not, has to name this server as its Host, may come
    from no other origin, and has to bring the token, which only the page's address has. The page itself is
    asked for before a browser has read that address: its files, whose paths are in `free` and which say
    nothing of the kernel, are given without the token.
    """

    def __init__(self, app: ASGIApp, port: int, token: str, free: Collection[str]) -> None:
        self._app, self._free = app, free
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._origins = {f"http://{host}" for host in self._hosts}
        self._authorization = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have it answered."""
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
            return 403, "the host is another than this server's"
        if not set(headers.getlist("origin")) <= self._origins:
            return 403, "the request comes from another origin"
        if not set(headers.getlist("sec-fetch-site")) <= set(_OWN_SITE):
            return 403, "the request comes from another site"
        given = headers.get("authorization", "").encode()
        if scope["path"] not in self._free and not secrets.compare_digest(given, self._authorization):
            return 403, "the token is missing or wrong: open the address that webnorm play printed"
        # What has no length is counted as it comes.
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            return 413, TOO_LARGE
        return None
