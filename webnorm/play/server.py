"""Serve the playground's page and its routes, on 127.0.0.1 only.

Requests name kernels, never paths. The page's files are read once at the start, so no path in a request
reaches the file system.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import PurePosixPath
from typing import Annotated, Any, Protocol, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, structs
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from webnorm.errors import WebnormError, sentence
from webnorm.files import forms
from webnorm.files.atomic import parse_json
from webnorm.files.forms import Name
from webnorm.play.request_guard import MOST_BYTES, NONCE, TOKEN_BITS, TOO_LARGE, RequestGuard
from webnorm.play.state import KernelUnfit, SaveConflict
from webnorm.serving import TYPES, bound_socket, quiet_server, read_body
from webnorm.web.folder import Files
from webnorm.web.pages import page_files

HOST = "127.0.0.1"
_INDEX = "index.html"
# The placeholder in play.html for the nonce that allows its styles.
_NONCE_PLACE = b"{{ nonce }}"
_PATIENCE_S = 5.0
_Handler = Callable[[Request], Awaitable[Response]]
_Form = TypeVar("_Form", bound=Struct)

Hash = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Word = Annotated[str, Meta(pattern="^[A-Za-z0-9_]{1,100}$")]


class Playground(Protocol):
    """A watched kernel. The server calls its methods from several threads at once.

    A method that cannot do its work raises WebnormError, which the page shows. Snapshots are JSON values. In
    them a number that is not finite is null, or a string as in results files.
    """

    def snapshot(self) -> dict[str, Any]:
        """Return the newest snapshot with its "revision", which grows."""

    def wait(self, revision: int, timeout: float) -> dict[str, Any] | None:
        """Return the newest snapshot once it is newer than a revision; None after `timeout` seconds."""

    def save(self, text: str, base: str) -> str:
        """Write the file and return the SHA-256 of the new text; later snapshots have that text.

        Raises SaveConflict if the SHA-256 of the file's text is not `base`.
        """

    def run(self) -> None:
        """Start an attempt at the current text, also if saves start none."""

    def change(self, settings: dict[str, Any]) -> None:
        """Change the given settings."""

    def trace(self, filter: str | None) -> None:
        """Trace the invocations that a filter keeps: "" keeps all, None disables tracing."""

    def fork(self, op: str, kernel: str) -> None:
        """Replace the text with a copy of a built-in kernel."""

    def lessons(self) -> list[dict[str, Any]]:
        """List the lessons in order: "name" and "title"."""

    def lesson(self, name: str | None) -> None:
        """Start a lesson with a copy of its kernel as the text; None ends the lesson."""

    def guide(self) -> str:
        """Return the guide to kernel files, as HTML."""

    def source(self, hash: str) -> str:
        """Return the text of an earlier attempt, by its SHA-256."""

    def kernels(self) -> list[dict[str, Any]]:
        """List the built-in kernels: "op", "kernel" and a "summary" of one sentence."""

    def kernel(self, op: str, name: str) -> str:
        """Return the text of a built-in kernel."""

    def here(self) -> dict[str, Any]:
        """Return the data with which a browser runs the kernel: "bundle", "copies" and "rows"."""

    def export(self, force: bool) -> bytes:
        """Return the npm package of the file, as a .tgz for `npm install`.

        Raises KernelUnfit for a wrong or unstable kernel, unless `force` is True.
        """


class SaveRequest(Struct, forbid_unknown_fields=True):
    """The body of PUT /api/file."""

    text: str
    base: Hash


class SettingsRequest(Struct, forbid_unknown_fields=True):
    """The body of POST /api/settings: the settings to change."""

    run: bool | UnsetType = UNSET
    time: bool | UnsetType = UNSET
    dtype: Word | UnsetType = UNSET
    options: Annotated[list[Name], Meta(max_length=100)] | UnsetType = UNSET
    constants: Annotated[dict[Word, int | bool], Meta(max_length=100)] | UnsetType = UNSET
    x: Annotated[list[float], Meta(min_length=2, max_length=2)] | UnsetType | None = UNSET


class TraceFilterRequest(Struct, forbid_unknown_fields=True):
    """The body of POST /api/trace; null ends tracing."""

    filter: Name | None


class ForkRequest(Struct, forbid_unknown_fields=True):
    """A built-in kernel: the body of POST /api/fork."""

    op: Word
    kernel: Word


class LessonRequest(Struct, forbid_unknown_fields=True):
    """The body of POST /api/lesson; null ends the current lesson."""

    name: Word | None


class ExportBody(Struct, forbid_unknown_fields=True):
    """The body of POST /api/export; `force` also exports a wrong or unstable kernel."""

    force: bool = False


class SourceQuery(Struct):
    """The path parameters of GET /api/source."""

    hash: Hash


class EmptyBody(Struct, forbid_unknown_fields=True):
    """The body of a request without arguments: empty, or an empty object."""


class PlaygroundServer:
    """A thread that serves a playground's page, from `with` until `stop`.

    `stop` also ends open streams. Port 0 means any free port. Raises WebnormError if the port is in use.
    """

    def __init__(self, playground: Playground, port: int = 0) -> None:
        self._playground, self._files = playground, page_files("play", _INDEX)
        self._socket = bound_socket(HOST, port)
        self.port: int = self._socket.getsockname()[1]
        # Random, so that other pages cannot guess it.
        self.token = secrets.token_urlsafe(TOKEN_BITS // 8)
        self.url = f"http://{HOST}:{self.port}/#{self.token}"
        self._ready = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="webnorm play: server", daemon=True)

    def __enter__(self) -> PlaygroundServer:
        self._thread.start()
        self._ready.wait()
        self._check()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait(self) -> None:
        """Wait until the server ends or Ctrl-C interrupts; WebnormError if the server failed."""
        while self._thread.is_alive():
            # On Windows, Ctrl-C does not interrupt a wait without a timeout.
            self._thread.join(_PATIENCE_S)
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            message = sentence(f"the page's server failed: {type(self._failure).__name__}: {self._failure}")
            raise WebnormError(message) from self._failure

    def stop(self) -> None:
        """End the server. Any thread may call this, also twice."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end)
            self._thread.join(_PATIENCE_S)
        self._socket.close()

    def _end(self) -> None:
        self._events.end()
        self._server.should_exit = True

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:  # `wait` raises it
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._events = SnapshotStream(self._playground)
        page = _page(self._files)
        app = _application([*_routes(self._playground, self._events), *page])
        guard = RequestGuard(app, self.port, self.token, free={route.path for route in page})
        self._server = quiet_server(guard)
        self._ready.set()
        await self._server.serve([self._socket])


def _application(routes: list[Route]) -> Starlette:
    app = Starlette(
        routes=routes,
        exception_handlers={
            SaveConflict: partial(_error_response, 409),
            KernelUnfit: partial(_error_response, 422),
            WebnormError: partial(_error_response, 400),
            HTTPException: _http_error_response,
            Exception: _failure_response,
        },
    )
    app.router.redirect_slashes = False
    return app


def _page(files: Files) -> list[Route]:
    """Return the routes of the page's files, which need no token."""
    return [Route("/" + path.removesuffix(_INDEX), _file(path, content)) for path, content in files.items()]


def _file(path: str, content: bytes) -> _Handler:
    async def give(request: Request) -> Response:
        text = content.replace(_NONCE_PLACE, request.scope[NONCE].encode()) if path == _INDEX else content
        return Response(text, media_type=TYPES[PurePosixPath(path).suffix])

    return give


async def _error_response(status: int, request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, status)


async def _http_error_response(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code)


async def _failure_response(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": sentence(f"webnorm failed: {type(error).__name__}: {error}")}, 500)


def _routes(playground: Playground, events: SnapshotStream) -> list[Route]:
    """Return the routes that call the playground's methods."""

    async def stream(request: Request) -> Response:
        return StreamingResponse(events.stream(), media_type="text/event-stream")

    def save(text: str, base: str) -> dict[str, Any]:
        saved = playground.save(text, base)
        # The revision lets the page ignore older snapshots, whose text would look like a change of the file.
        return {"base": saved, "revision": playground.snapshot()["revision"]}

    def change(**settings: Any) -> None:
        playground.change({name: value for name, value in settings.items() if value is not UNSET})

    async def export(request: Request) -> Response:
        given = await _body(request, ExportBody)
        package = await run_in_threadpool(playground.export, given.force)
        return Response(package, media_type="application/gzip")

    source = _path_handler(PlainTextResponse, playground.source, SourceQuery, "the attempt")
    kernel = _path_handler(PlainTextResponse, playground.kernel, ForkRequest, "the kernel")
    return [
        Route("/api/events", stream),
        Route("/api/file", _body_handler(SaveRequest, save), methods=["PUT"]),
        Route("/api/run", _body_handler(EmptyBody, playground.run), methods=["POST"]),
        Route("/api/settings", _body_handler(SettingsRequest, change), methods=["POST"]),
        Route("/api/trace", _body_handler(TraceFilterRequest, playground.trace), methods=["POST"]),
        Route("/api/fork", _body_handler(ForkRequest, playground.fork), methods=["POST"]),
        Route("/api/lessons", _path_handler(JSONResponse, playground.lessons)),
        Route("/api/lesson", _body_handler(LessonRequest, playground.lesson), methods=["POST"]),
        Route("/api/guide", _path_handler(HTMLResponse, playground.guide)),
        Route("/api/here", _body_handler(EmptyBody, playground.here), methods=["POST"]),
        Route("/api/export", export, methods=["POST"]),
        Route("/api/source/{hash}", source),
        Route("/api/kernels", _path_handler(JSONResponse, playground.kernels)),
        Route("/api/kernel/{op}/{kernel}", kernel),
    ]


def _body_handler(form: type[_Form], method: Callable[..., dict[str, Any] | None]) -> _Handler:
    """Return a handler that calls a method with the fields of the request's body."""

    async def do(request: Request) -> Response:
        given = await _body(request, form)
        return JSONResponse(await run_in_threadpool(method, **structs.asdict(given)) or {})

    return do


def _path_handler(
    kind: type[Response], method: Callable[..., Any], form: type[Struct] = EmptyBody, place: str = ""
) -> _Handler:
    """Return a handler that calls a method with the path parameters; errors name the path `place`."""

    async def give(request: Request) -> Response:
        given = forms.read(request.path_params, form, place)
        return kind(await run_in_threadpool(method, *structs.astuple(given)))

    return give


async def _body(request: Request, form: type[_Form]) -> _Form:
    """Read the body as a form; HTTPException if it is too large, WebnormError if it does not match."""
    content = await read_body(request, MOST_BYTES, TOO_LARGE)
    try:
        data: Any = parse_json(content) if content else {}
    except ValueError as error:
        raise WebnormError(f"the body is not JSON: {error}") from None
    return forms.read(data, form, "the body")


# --- snapshots, as a stream of events

# The page treats a stream as broken if it is silent for longer.
HEARTBEAT_S = 5.0
_HEARTBEAT = b": still here\n\n"
# The thread that waits for snapshots ends at most this long after a stop, in seconds.
_GLANCE_S = 0.1


class SnapshotStream:
    """A thread that waits for snapshots and publishes them to the streams in the server's event loop.

    A slow reader gets the newest snapshot when it is ready, and skips older ones.
    """

    def __init__(self, playground: Playground) -> None:
        self._playground = playground
        self._event = b""
        self._number = 0
        self._ended = False
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._watch, name="webnorm play: events", daemon=True)
        self._thread.start()

    async def stream(self) -> AsyncIterator[bytes]:
        """Yield the newest snapshot each time the reader is ready for a new one, until `end`."""
        sent = 0
        while not self._ended:
            if sent != self._number:
                sent = self._number
                yield self._event
                continue
            try:
                # asyncio.wait_for starts a task of its own, which may miss a snapshot of this moment.
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._news.wait()
            except TimeoutError:
                yield _HEARTBEAT

    def end(self) -> None:
        """End all streams; call it in the loop's thread."""
        self._ended = True
        self._news.set()

    def _watch(self) -> None:
        try:
            snapshot: dict[str, Any] | None = self._playground.snapshot()
            while not self._ended:
                if snapshot is not None:
                    revision = snapshot["revision"]
                    # JSON has no line feeds of its own, so it is one line of data.
                    event = b"data: " + msgspec.json.encode(snapshot) + b"\n\n"
                    self._loop.call_soon_threadsafe(self._publish, event)
                snapshot = self._playground.wait(revision, _GLANCE_S)
        finally:
            # If this thread fails, the streams end, so that the page notices.
            with suppress(RuntimeError):  # the loop has already ended
                self._loop.call_soon_threadsafe(self.end)

    def _publish(self, event: bytes) -> None:
        self._event = event
        self._number += 1
        # Setting and clearing wakes the current waiters only. Later ones wait for the next snapshot.
        self._news.set()
        if not self._ended:
            self._news.clear()
