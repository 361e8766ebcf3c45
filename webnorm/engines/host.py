"""An engine as the GPU of this process: it runs the commands that it gets from a loopback server."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from webnorm.engines.catalog import Engine
from webnorm.engines.launch import start_engine
from webnorm.errors import WebnormError, sentence
from webnorm.serving import POLICY, StaticSite, bound_socket, check_sender, read_body, served

_PAGE = Path(__file__).parent / "page"
_SCRIPT = "script.mjs"
# A request waits so long for a batch; browsers give up after 300 s.
_HOLD_S = 60.0
# Takes the place of a batch when there will be no more.
_END = b""
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

    It has no time limit: a worker process that is silent for too long is killed, and its engine ends with it.
    Raises WebnormError if the engine cannot be started, ends, or has no adapter.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._exit = ExitStack()
        self._hello: Future[bytes] = Future()
        self._answer = self._hello
        self._loop: asyncio.AbstractEventLoop | None = None
        self._batches: asyncio.Queue[bytes] = asyncio.Queue()
        try:
            address = self._exit.enter_context(_engine_site(self._respond))
            starting = start_engine(engine, f"{address}/", _PAGE / _SCRIPT, f"{address}/messages")
            self._running = self._exit.enter_context(starting)
            self.facts = self._first_facts()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the engine and the server."""
        if self._loop is not None:
            # The server would wait for the request that waits for a batch.
            self._loop.call_soon_threadsafe(self._batches.put_nowait, _END)
        self._exit.close()

    def ask(self, batch: bytes) -> bytes:
        """Send a batch and return its answer. Raises EngineEnded if the engine ends."""
        assert self._loop is not None
        self._answer = Future()
        self._loop.call_soon_threadsafe(self._batches.put_nowait, batch)
        return self._wait()

    def _first_facts(self) -> Mapping[str, Any]:
        """Return what the engine reports about its adapter."""
        try:
            hello = self._wait()
        except EngineEnded as error:
            raise WebnormError(f"{self.engine} does not start: {error}") from None
        facts: Mapping[str, Any] = json.loads(hello[4 : 4 + struct.unpack_from("<I", hello)[0]])
        if facts["error"] is not None:
            raise WebnormError(f"{self.engine} cannot run kernels: {sentence(str(facts['error']))}")
        return facts

    def _wait(self) -> bytes:
        """Return the next answer. Raises EngineEnded if the engine ends."""
        while True:
            try:
                return self._answer.result(_GLANCE_S)
            except TimeoutError:
                if (reason := self._running.ended()) is not None:
                    raise EngineEnded(reason) from None

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
        if batch == _END:
            return Response(status_code=410)
        return Response(batch, media_type="application/octet-stream")


class _EngineSite:
    """The page of an engine and its messages, below a path that only the engine knows."""

    def __init__(self, origin: str, respond: Callable[[Request], Awaitable[Response]]) -> None:
        self._origin, token = origin, secrets.token_urlsafe(24)
        self.url = f"{origin}/{token}"
        routes = [
            Route(f"/{token}/messages", respond, methods=["POST"]),
            Mount(f"/{token}", StaticSite(_PAGE, POLICY, self.url)),
        ]
        self._app = Starlette(routes=routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of the engine."""
        try:
            check_sender(Request(scope), self._origin)
        except HTTPException as refused:
            await Response(refused.detail, refused.status_code)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


@contextmanager
def _engine_site(respond: Callable[[Request], Awaitable[Response]]) -> Iterator[str]:
    """Serve the page of an engine on 127.0.0.1 until the context ends, and yield its address."""
    with bound_socket("127.0.0.1", 0) as listener:
        site = _EngineSite(f"http://127.0.0.1:{listener.getsockname()[1]}", respond)
        with served([listener], site):
            yield site.url
