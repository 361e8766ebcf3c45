"""The playground's page and its routes, on 127.0.0.1 and nowhere else.

`webnorm.play.request_guard` checks tokens and origins. Kernels are named, never a path;
the page's files are read once, so that no path of a request reaches the file system.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import PurePosixPath
from typing import Annotated, Any, TypeVar

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
from webnorm.play.events import SnapshotStream
from webnorm.play.playground import KernelUnfit, Playground, SaveConflict
from webnorm.play.request_guard import MOST_BYTES, NONCE, RequestGuard, new_token, too_large
from webnorm.web.folder import Files
from webnorm.web.pages import page_files
from webnorm.web.serving import TYPES, bound_socket, quiet_server, read_body

HOST = "127.0.0.1"
_INDEX = "index.html"
# Where play.html names the word that allows its styles.
_NONCE_PLACE = b"{{ nonce }}"
_PATIENCE_S = 5.0
_Handler = Callable[[Request], Awaitable[Response]]
_Form = TypeVar("_Form", bound=Struct)

Hash = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Word = Annotated[str, Meta(pattern="^[A-Za-z0-9_]{1,100}$")]


class SaveRequest(Struct, forbid_unknown_fields=True):
    """The body of PUT /api/file."""

    text: str
    base: Hash


class SettingsRequest(Struct, forbid_unknown_fields=True):
    """The body of POST /api/settings: what is to change."""

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
    """The body of POST /api/lesson; null ends the one that is under way."""

    name: Word | None


class ExportBody(Struct, forbid_unknown_fields=True):
    """The body of POST /api/export; `force` packs a wrong or unstable kernel, too."""

    force: bool = False


class SourceQuery(Struct):
    """Of GET /api/source."""

    hash: Hash


class EmptyBody(Struct, forbid_unknown_fields=True):
    """The body of a request that only asks for something: empty, or an empty object."""


class PlaygroundServer:
    """A playground's page, served by a thread from `with` to `stop`, which ends open streams, too.

    `port` 0 takes a free one. Raises WebnormError when the port is in use.
    """

    def __init__(self, playground: Playground, port: int = 0) -> None:
        self._playground, self._files = playground, page_files("play", _INDEX)
        self._socket = bound_socket(HOST, port)
        self.port: int = self._socket.getsockname()[1]
        self.token = new_token()
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
        """Wait for the server's end, which Ctrl-C interrupts; WebnormError where it ends by an error."""
        while self._thread.is_alive():
            # On Windows nothing interrupts a wait without a limit.
            self._thread.join(_PATIENCE_S)
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            said = sentence(f"the page's server failed: {type(self._failure).__name__}: {self._failure}")
            raise WebnormError(said) from self._failure

    def stop(self) -> None:
        """Answer no more, and end; from any thread, and again."""
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
        except Exception as error:  # whoever waits raises it
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._events = SnapshotStream(self._playground)
        page = _page(self._files)
        app = _application([*_Routes(self._playground, self._events).all(), *page])
        guard = RequestGuard(app, self.port, self.token, free={route.path for route in page})
        self._server = quiet_server(guard)
        self._ready.set()
        await self._server.serve([self._socket])


def _application(routes: list[Route]) -> Starlette:
    app = Starlette(
        routes=routes,
        exception_handlers={
            SaveConflict: partial(_told, 409),
            KernelUnfit: partial(_told, 422),
            WebnormError: partial(_told, 400),
            HTTPException: _refused,
            Exception: _failed,
        },
    )
    app.router.redirect_slashes = False
    return app


def _page(files: Files) -> list[Route]:
    """The page's files, which need no token."""
    return [Route("/" + path.removesuffix(_INDEX), _file(path, content)) for path, content in files.items()]


def _file(path: str, content: bytes) -> _Handler:
    async def give(request: Request) -> Response:
        text = content.replace(_NONCE_PLACE, request.scope[NONCE].encode()) if path == _INDEX else content
        return Response(text, media_type=TYPES[PurePosixPath(path).suffix])

    return give


async def _told(status: int, request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, status)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code)


async def _failed(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": sentence(f"webnorm failed: {type(error).__name__}: {error}")}, 500)


class _Routes:
    """What the page asks for, as calls of the playground's methods."""

    def __init__(self, playground: Playground, events: SnapshotStream) -> None:
        self._playground, self._events = playground, events

    def all(self) -> list[Route]:
        """Every route but those of the page's files."""
        playground = self._playground
        return [
            Route("/api/events", self._stream),
            Route("/api/file", self._save, methods=["PUT"]),
            Route("/api/run", _doing(EmptyBody, playground.run), methods=["POST"]),
            Route("/api/settings", self._change, methods=["POST"]),
            Route("/api/trace", _doing(TraceFilterRequest, playground.trace), methods=["POST"]),
            Route("/api/fork", _doing(ForkRequest, playground.fork), methods=["POST"]),
            Route("/api/lessons", self._lessons),
            Route("/api/lesson", _doing(LessonRequest, playground.lesson), methods=["POST"]),
            Route("/api/guide", self._guide),
            Route("/api/here", self._here, methods=["POST"]),
            Route("/api/export", self._export, methods=["POST"]),
            Route("/api/source/{hash}", self._source),
            Route("/api/kernels", self._kernels),
            Route("/api/kernel/{op}/{kernel}", self._kernel),
        ]

    async def _stream(self, request: Request) -> Response:
        return StreamingResponse(self._events.stream(), media_type="text/event-stream")

    async def _save(self, request: Request) -> Response:
        given = await _body(request, SaveRequest)
        base = await run_in_threadpool(self._playground.save, given.text, given.base)
        # Snapshots that were under way are older: the page must not take their text for a change of the file.
        return JSONResponse({"base": base, "revision": self._playground.snapshot()["revision"]})

    async def _change(self, request: Request) -> Response:
        given = await _body(request, SettingsRequest)
        changes = {name: value for name, value in structs.asdict(given).items() if value is not UNSET}
        await run_in_threadpool(self._playground.change, changes)
        return JSONResponse({})

    async def _here(self, request: Request) -> Response:
        await _body(request, EmptyBody)
        return JSONResponse(await run_in_threadpool(self._playground.here))

    async def _export(self, request: Request) -> Response:
        given = await _body(request, ExportBody)
        package = await run_in_threadpool(self._playground.export, given.force)
        return Response(package, media_type="application/gzip")

    async def _source(self, request: Request) -> Response:
        attempt = forms.read(request.path_params, SourceQuery, "the attempt")
        return PlainTextResponse(await run_in_threadpool(self._playground.source, attempt.hash))

    async def _lessons(self, request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self._playground.lessons))

    async def _guide(self, request: Request) -> Response:
        return HTMLResponse(await run_in_threadpool(self._playground.guide))

    async def _kernels(self, request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self._playground.kernels))

    async def _kernel(self, request: Request) -> Response:
        built = forms.read(request.path_params, ForkRequest, "the kernel")
        return PlainTextResponse(await run_in_threadpool(self._playground.kernel, built.op, built.kernel))


def _doing(form: type[_Form], method: Callable[..., None]) -> _Handler:
    """A route that calls a method with what its body has."""

    async def do(request: Request) -> Response:
        given = await _body(request, form)
        await run_in_threadpool(method, **structs.asdict(given))
        return JSONResponse({})

    return do


async def _body(request: Request, form: type[_Form]) -> _Form:
    """The body in a form; HTTPException for one that is too large, WebnormError for one that does not fit."""
    content = await read_body(request, MOST_BYTES, too_large())
    try:
        data: Any = parse_json(content) if content else {}
    except ValueError as error:
        raise WebnormError(f"the body is not JSON: {error}") from None
    return forms.read(data, form, "the body")
