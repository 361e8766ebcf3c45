"""An engine as the GPU of this process: it runs the commands that it gets from a loopback server."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import struct
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from webnorm.engines.catalog import Engine
from webnorm.engines.launch import start_browser, start_script
from webnorm.engines.node_webgpu import webgpu
from webnorm.errors import WebnormError, sentence
from webnorm.serving import POLICY, StaticSite, bound_socket, quiet_server, read_body

_PAGE = Path(__file__).parent / "page"
# SwiftShader's browser starts in 2 s; the rest is reserve for a busy machine.
START_LIMIT_S = 45.0
# A request waits so long for a batch; browsers give up after 300 s.
_HOLD_S = 60.0
# Seconds between looks whether the engine still runs.
_GLANCE_S = 0.2
_MOST_BYTES = 1 << 31
# The name, architecture or vendor of software adapters.
_SOFTWARE = re.compile(r"swiftshader|llvmpipe|lavapipe|software|basic render|warp", re.IGNORECASE)


def is_software(adapter: Mapping[str, Any]) -> bool | None:
    """Return whether an engine's adapter runs on the CPU; None if the engine does not say it."""
    names = ("vendor", "architecture", "device", "description")
    name = " ".join(str(adapter[one]) for one in names if adapter.get(one))
    if adapter.get("isFallbackAdapter") or _SOFTWARE.search(name):
        return True
    return False if name else None


class EngineEnded(ConnectionError):
    """The engine's process has ended; the message gives the reason."""


class EngineHost:
    """A started engine and its server. `ask` sends it a batch of commands, from one thread at a time.

    Raises WebnormError if the engine cannot be started, does not open its page in time, or has no adapter.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._exit = ExitStack()
        self._hello: Future[bytes] = Future()
        self._answer = self._hello
        self._loop: asyncio.AbstractEventLoop | None = None
        self._batches: asyncio.Queue[bytes] = asyncio.Queue()
        try:
            address = self._exit.enter_context(_Served(self._respond))
            self._running = self._exit.enter_context(_started(engine, address))
            self.facts = self._first_facts()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the engine and the server."""
        self._exit.close()

    def ask(self, batch: bytes) -> bytes:
        """Send a batch and return its answer. Raises EngineEnded if the engine ends."""
        assert self._loop is not None
        self._answer = Future()
        self._loop.call_soon_threadsafe(self._batches.put_nowait, batch)
        return self._wait(None)

    def _first_facts(self) -> Mapping[str, Any]:
        """Return what the engine reports about its adapter."""
        try:
            hello = self._wait(START_LIMIT_S)
        except TimeoutError:
            raise WebnormError(f"{self.engine} opened no page within {START_LIMIT_S:g} s: stopped") from None
        except EngineEnded as error:
            raise WebnormError(f"{self.engine} does not start: {error}") from None
        facts: Mapping[str, Any] = json.loads(hello[4 : 4 + struct.unpack_from("<I", hello)[0]])
        if facts["error"] is not None:
            raise WebnormError(f"{self.engine} cannot run kernels: {sentence(str(facts['error']))}")
        return facts

    def _wait(self, limit_s: float | None) -> bytes:
        """Return the next answer. Raises TimeoutError after the limit, EngineEnded if the engine ends."""
        looks = 0
        while True:
            try:
                return self._answer.result(_GLANCE_S)
            except TimeoutError:
                looks += 1
                if (reason := self._running.ended()) is not None:
                    raise EngineEnded(reason) from None
                if limit_s is not None and looks * _GLANCE_S >= limit_s:
                    raise

    async def _respond(self, request: Request) -> Response:
        """Take an answer and respond with the next batch, or with 204 if there is none for a while."""
        self._loop = asyncio.get_running_loop()
        body = await read_body(request, _MOST_BYTES, "the answer is too large")
        if body and not self._answer.done():
            self._answer.set_result(body)
        try:
            batch = await asyncio.wait_for(self._batches.get(), _HOLD_S)
        except TimeoutError:
            return Response(status_code=204)
        return Response(batch, media_type="application/octet-stream")


class _Served:
    """The page of an engine and its messages, on a loopback address with a secret in it."""

    def __init__(self, respond: Any) -> None:
        self._socket = bound_socket("127.0.0.1", 0)
        self._host = f"127.0.0.1:{self._socket.getsockname()[1]}"
        token = secrets.token_urlsafe(24)
        self.address = f"http://{self._host}/{token}"
        site = StaticSite(_PAGE, POLICY, self.address)
        routes = [
            Route(f"/{token}/messages", respond, methods=["POST"]),
            Mount(f"/{token}", site),
        ]
        self._server = quiet_server(_OwnHostOnly(Starlette(routes=routes), self._host))

    def __enter__(self) -> str:
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)
        self._thread.start()
        return self.address

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()
        self._socket.close()


class _OwnHostOnly:
    """Refuses requests to another host name and from another origin, such as a page of another site."""

    def __init__(self, app: ASGIApp, host: str) -> None:
        self._app, self._host = app, host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", ()))
        origin = headers.get(b"origin", b"").decode("latin-1")
        own = headers.get(b"host", b"").decode("latin-1") == self._host
        if scope["type"] == "http" and own and origin in ("", f"http://{self._host}"):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await Response("another host or origin", 403)(scope, receive, send)


def _started(engine: Engine, address: str) -> Any:
    """Return the context of an engine that opens the page at an address."""
    if engine.is_browser:
        return start_browser(engine, f"{address}/")
    more = (str(webgpu()),) if engine.name == "node" else ()
    return start_script(engine, _PAGE / "script.mjs", f"{address}/messages", *more)
