"""A folder as a strict site serves it, on a port of this machine's own."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from webnorm.files.atomic import lies_in

# The table of the system may lack some, and browsers run no module of an unknown type.
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".wgsl": "text/plain; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".safetensors": "application/octet-stream",
}


# An exported page has to work on sites that allow nothing foreign and nothing inline.
POLICY = "default-src 'self'"


class _Handler(SimpleHTTPRequestHandler):
    def guess_type(self, path: str | os.PathLike[str]) -> str:
        return TYPES.get(Path(path).suffix) or super().guess_type(path)

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", cast(StaticServer, self.server).policy)
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def do_GET(self) -> None:
        # Browsers ask for it unbidden, and would report that it is missing.
        if self.path == "/favicon.ico":
            self.send_response(HTTPStatus.NO_CONTENT)
            self.end_headers()
        else:
            super().do_GET()

    def send_head(self) -> Any:
        # A link may lead out of the folder, to anything.
        if not lies_in(Path(self.translate_path(self.path)), Path(self.directory)):
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        return super().send_head()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        cast(StaticServer, self.server).missing.append(unquote(urlsplit(self.path).path))
        super().send_error(code, message, explain)

    def list_directory(self, path: str | os.PathLike[str]) -> None:
        self.send_error(HTTPStatus.NOT_FOUND)

    def log_message(self, format: str, *args: object) -> None:
        pass


class StaticServer(ThreadingHTTPServer):
    """Serves a folder at `url`, to this machine alone; `missing` are paths that were asked for in vain."""

    def __init__(self, folder: Path, policy: str = POLICY) -> None:
        super().__init__(("127.0.0.1", 0), partial(_Handler, directory=str(folder)))
        self.policy = policy
        self.missing: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that is killed breaks its connections off: no news."""


@contextmanager
def serve_folder(folder: Path, policy: str = POLICY) -> Iterator[StaticServer]:
    """Serve a folder as long as the context lasts, its pages under a content security policy."""
    with StaticServer(folder, policy) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
