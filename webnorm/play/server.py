"""The playground's page and its routes, on 127.0.0.1 and nowhere else.

Kernels are named, never a path; the page's files are read once, so that no path of a request reaches the file
system.
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


class Playground(Protocol):
    """A watched kernel. Its methods are called from threads of the server's, several at once.

    A method that is asked for what cannot be raises WebnormError, which the page shows. Snapshots are of
    JSON's kinds; in them a number that is not finite is null, or a string as in results files.
    """

    def snapshot(self) -> dict[str, Any]:
        """All that is known, with its "revision", which grows."""

    def wait(self, revision: int, timeout: float) -> dict[str, Any] | None:
        """The newest snapshot as soon as it is newer than a revision; None after `timeout` seconds."""

    def save(self, text: str, base: str) -> str:
        """Write the file, whose text so far has the SHA-256 `base`; gives the new text's.

        From then on snapshots have the new text.
        Raises SaveConflict where the file's text is another by now.
        """

    def run(self) -> None:
        """Judge the file as it is, where that is not done at every save."""

    def change(self, settings: dict[str, Any]) -> None:
        """Change those settings that are given."""

    def trace(self, filter: str | None) -> None:
        """Trace the invocations that a condition picks, "" for all; None: no more."""

    def fork(self, op: str, kernel: str) -> None:
        """Go on with a copy of a built-in kernel."""

    def lessons(self) -> list[dict[str, Any]]:
        """The lessons in their order: "name" and "title"."""

    def lesson(self, name: str | None) -> None:
        """Begin a lesson, with a copy of its kernel in the place of the text; None ends one."""

    def guide(self) -> str:
        """What a kernel's header and body may use, as HTML."""

    def source(self, hash: str) -> str:
        """The text of an earlier attempt, by its SHA-256."""

    def kernels(self) -> list[dict[str, Any]]:
        """The built-in kernels: "op", "kernel" and, in a sentence, "summary"."""

    def kernel(self, op: str, name: str) -> str:
        """A built-in kernel's text."""

    def here(self) -> dict[str, Any]:
        """What a browser runs the kernel with: "bundle" and "copies" as the lab's, and "rows"."""

    def export(self, force: bool) -> bytes:
        """The npm package of the file, as the .tgz that `npm install` takes.

        Raises KernelUnfit for a kernel that is wrong or unstable, unless it is to be packed all the same.
        """


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
        # It cannot be guessed.
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
        app = _application([*_routes(self._playground, self._events), *page])
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


def _routes(playground: Playground, events: SnapshotStream) -> list[Route]:
    """Every route but those of the page's files, as calls of the playground's methods."""

    async def stream(request: Request) -> Response:
        return StreamingResponse(events.stream(), media_type="text/event-stream")

    def save(text: str, base: str) -> dict[str, Any]:
        saved = playground.save(text, base)
        # Snapshots that were under way are older: the page must not take their text for a change of the file.
        return {"base": saved, "revision": playground.snapshot()["revision"]}

    def change(**settings: Any) -> None:
        playground.change({name: value for name, value in settings.items() if value is not UNSET})

    async def export(request: Request) -> Response:
        given = await _body(request, ExportBody)
        package = await run_in_threadpool(playground.export, given.force)
        return Response(package, media_type="application/gzip")

    source = _giving(PlainTextResponse, playground.source, SourceQuery, "the attempt")
    kernel = _giving(PlainTextResponse, playground.kernel, ForkRequest, "the kernel")
    return [
        Route("/api/events", stream),
        Route("/api/file", _doing(SaveRequest, save), methods=["PUT"]),
        Route("/api/run", _doing(EmptyBody, playground.run), methods=["POST"]),
        Route("/api/settings", _doing(SettingsRequest, change), methods=["POST"]),
        Route("/api/trace", _doing(TraceFilterRequest, playground.trace), methods=["POST"]),
        Route("/api/fork", _doing(ForkRequest, playground.fork), methods=["POST"]),
        Route("/api/lessons", _giving(JSONResponse, playground.lessons)),
        Route("/api/lesson", _doing(LessonRequest, playground.lesson), methods=["POST"]),
        Route("/api/guide", _giving(HTMLResponse, playground.guide)),
        Route("/api/here", _doing(EmptyBody, playground.here), methods=["POST"]),
        Route("/api/export", export, methods=["POST"]),
        Route("/api/source/{hash}", source),
        Route("/api/kernels", _giving(JSONResponse, playground.kernels)),
        Route("/api/kernel/{op}/{kernel}", kernel),
    ]


def _doing(form: type[_Form], method: Callable[..., dict[str, Any] | None]) -> _Handler:
    """A route that calls a method with what its body has, and gives what comes of that, if anything."""

    async def do(request: Request) -> Response:
        given = await _body(request, form)
        return JSONResponse(await run_in_threadpool(method, **structs.asdict(given)) or {})

    return do


def _giving(
    kind: type[Response], method: Callable[..., Any], form: type[Struct] = EmptyBody, place: str = ""
) -> _Handler:
    """A route that gives what a method says of the words of its path, which are called `place`."""

    async def give(request: Request) -> Response:
        given = forms.read(request.path_params, form, place)
        return kind(await run_in_threadpool(method, *structs.astuple(given)))

    return give


async def _body(request: Request, form: type[_Form]) -> _Form:
    """The body in a form; HTTPException for one that is too large, WebnormError for one that does not fit."""
    content = await read_body(request, MOST_BYTES, TOO_LARGE)
    try:
        data: Any = parse_json(content) if content else {}
    except ValueError as error:
        raise WebnormError(f"the body is not JSON: {error}") from None
    return forms.read(data, form, "the body")


# --- snapshots, as a stream of events

# A stream that says nothing for so long is taken for broken by the page.
HEARTBEAT_S = 5.0
_HEARTBEAT = b": still here\n\n"
# How long the thread that waits for snapshots goes on after it is asked to end.
_GLANCE_S = 0.1


class SnapshotStream:
    """One thread waits for the playground; streams wait for that in the server's loop.

    A reader that is slow finds the newest snapshot when it is ready for one, and none of those in between.
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
        """The newest snapshot, then each that is the newest when the reader is ready; until `end`."""
        told = 0
        while not self._ended:
            if told != self._number:
                told = self._number
                yield self._event
                continue
            try:
                # Not wait_for: its own task would begin to wait after the news of this moment.
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._news.wait()
            except TimeoutError:
                yield _HEARTBEAT

    def end(self) -> None:
        """End all streams. For the loop's thread."""
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
            # Where this thread fails the page has to see that nothing comes any more.
            with suppress(RuntimeError):  # the loop has ended before
                self._loop.call_soon_threadsafe(self.end)

    def _publish(self, event: bytes) -> None:
        self._event = event
        self._number += 1
        # Who waits is woken; who comes later waits for the next.
        self._news.set()
        if not self._ended:
            self._news.clear()
