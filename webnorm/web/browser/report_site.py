"""A server for a browser without a driver: it serves the page of a folder, and takes the page's reports."""

from __future__ import annotations

import json
import os
import re
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from webnorm.errors import WebnormError, sentence
from webnorm.files import forms
from webnorm.serving import POLICY, TYPES, StaticSite, bound_socket, check_sender, read_body, served
from webnorm.web.browser.visits import PageVisit
from webnorm.web.folder import AGAIN

ASSETS = Path(__file__).parents[1] / "assets"
# The script that posts a page's report; the server adds it to the page, so that no export contains it.
_REPORTER = "reporter.js"
_REPORT = "report"
# A lab's page posts a few hundred kilobytes.
_MOST_BYTES = 1 << 24
_HEAD = re.compile(rb"<head[^>]*>", re.IGNORECASE)


class PostedReport(TypedDict):
    """A post of an engine: the report, or the reason why there is none, and the errors on the console."""

    report: Any
    failure: str | None
    errors: list[str]


class ReportSite:
    """A folder below a path that only the intended browser knows, and the place for one report per query.

    The browser opens the page with the first query. The answer to a report is the page with the next query,
    which the browser opens then, or nothing. `urls` contain the token, one for each origin. `received` is set
    once a report is there. `agent` is the browser's description of itself: the reporter's, or before the
    first report the last visitor's.
    """

    def __init__(
        self,
        folder: Path,
        page: str,
        policy: str,
        origins: Sequence[str],
        queries: Sequence[str] = ("",),
    ) -> None:
        self._origin = origins[0]
        self._origins = {origin.partition("://")[2]: origin for origin in origins}
        self._token = secrets.token_urlsafe(24)
        self._page, self._queries = page, queries
        self.urls = [f"{origin}/{self._token}" for origin in origins]
        self._files = _ReportingFiles(folder, page, policy, self.url)
        self.received = threading.Event()
        self.posted: list[PostedReport] = []
        self.agent: str | None = None

    @property
    def url(self) -> str:
        """The first address."""
        return self.urls[0]

    @property
    def report_url(self) -> str:
        """The address that takes the report."""
        return f"{self.url}/{_REPORT}"

    @property
    def is_open(self) -> bool:
        """Return whether a browser has loaded the page."""
        return self._files.page_loaded

    def check_missing(self) -> None:
        """Raise WebnormError if the page has requested a file that the folder lacks."""
        if self._files.missing:
            raise WebnormError(f"{self._page} requests {self._files.missing[0]}, which is missing; {AGAIN}")

    def visit(self, browser: str, posted: PostedReport) -> PageVisit:
        """Return the report that a page has posted. Raises WebnormError if the page failed."""
        if posted["failure"] is not None:
            why = posted["failure"]
            for url in self.urls:
                # The server of this address has ended.
                why = why.replace(f"{url}/", "")
            raise WebnormError(f"{self._page} failed: {sentence(why)}")
        remarks = tuple(sentence(error.strip().partition("\n")[0]) for error in posted["errors"])
        return PageVisit(browser, posted["report"], remarks)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request below the token, from this server's own pages or from a script."""
        request = Request(scope, receive)
        token, _, path = request.url.path.removeprefix("/").partition("/")
        try:
            self._check(request, token)
            if path == _REPORT:
                response = await self._take(request)
            elif path == _REPORTER:
                response = FileResponse(ASSETS / _REPORTER, media_type=TYPES[".js"])
            else:
                await self._files({**scope, "path": f"/{path}", "root_path": ""}, receive, send)
                return
        except HTTPException as refused:
            response = Response(refused.detail, refused.status_code)
        await response(scope, receive, send)

    def _check(self, request: Request, token: str) -> None:
        if not secrets.compare_digest(token.encode(), self._token.encode()):
            raise HTTPException(404, "no such page")
        check_sender(request, self._origins.get(request.headers.get("host", ""), self._origin))
        if not self.received.is_set():
            self.agent = request.headers.get("user-agent", "")

    async def _take(self, request: Request) -> Response:
        """Keep a report, and respond with the page to open next, or with 204 if there is none."""
        if request.method != "POST":
            raise HTTPException(405, "expected a POST")
        body = await read_body(request, _MOST_BYTES, f"the report has more than {_MOST_BYTES} bytes")
        try:
            posted = forms.read(json.loads(body), PostedReport)
        except (ValueError, RecursionError, WebnormError) as error:
            raise HTTPException(400, f"not a report: {error}") from error
        if len(self.posted) == len(self._queries):
            raise HTTPException(409, "a report was received before")
        self.posted.append(posted)
        self.agent = request.headers.get("user-agent", "")
        self.received.set()
        following = self._queries[len(self.posted) :]
        # A page that failed is the last one that its visitor waits for.
        if posted["failure"] is not None or not following:
            return Response(status_code=204)
        return PlainTextResponse(f"{self._page}{following[0]}")


class _ReportingFiles(StaticSite):
    """The files of a folder, where one page also has the script that posts its report."""

    def __init__(self, folder: Path, page: str, policy: str, url: str) -> None:
        super().__init__(folder, policy, url)
        self._page = page
        self.page_loaded = False
        # The page may have been opened through another address of this server.
        self._script = f"{urlsplit(url).path}/{_REPORTER}"

    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        """Answer with the file, or with the page and the script before all others."""
        if scope["path"] != f"/{self._page}":
            return super().file_response(full_path, stat_result, scope, status_code)
        # A person may have mistyped the path before.
        if not self.page_loaded:
            self.missing.clear()
            self.page_loaded = True
        text = Path(full_path).read_bytes()
        found = _HEAD.search(text)
        at = found.end() if found else 0
        script = f'<script src="{self._script}"></script>'.encode()
        return Response(text[:at] + script + text[at:], status_code, self._headers, TYPES[".html"])


@contextmanager
def report_site(
    folder: Path, page: str, policy: str = POLICY, queries: Sequence[str] = ("",)
) -> Iterator[ReportSite]:
    """Serve a folder's page on 127.0.0.1 until the context ends, and take its report for each query."""
    with bound_socket("127.0.0.1", 0) as listener:
        origin = f"http://127.0.0.1:{listener.getsockname()[1]}"
        site = ReportSite(folder, page, policy, [origin], queries)
        with served([listener], site):
            yield site
