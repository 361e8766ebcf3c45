"""A folder as a strict site serves it, on a port of this machine's own."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from webnorm.web.serving import bound_socket, quiet_server

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


class StaticSite(StaticFiles):
    """A folder's files at `url`, under a content security policy; links that lead out of it are not followed.

    `missing` lists the paths that were requested and not found.
    """

    def __init__(self, folder: Path, policy: str, url: str) -> None:
        super().__init__(directory=folder, html=True)
        self.url, self.missing = url, list[str]()
        self._headers = {"Content-Security-Policy": policy, "Cache-Control": "no-store"}

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Answer with a file, or with 404."""
        # Browsers ask for it unbidden, and would report that it is missing.
        if scope["path"] == "/favicon.ico":
            return Response(status_code=204, headers=self._headers)
        with suppress(HTTPException, OSError):
            response = await super().get_response(path, scope)
            # A folder's own 404.html stands for a file that is missing.
            if response.status_code != 404:
                return response
        self.missing.append(scope["path"])
        return Response(status_code=404, headers=self._headers)

    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        """Answer with a file, whatever a browser has kept of it."""
        kind = TYPES.get(Path(full_path).suffix)
        return FileResponse(full_path, status_code, self._headers, kind, stat_result=stat_result)


@contextmanager
def serve_folder(folder: Path, policy: str = POLICY) -> Iterator[StaticSite]:
    """Serve a folder on 127.0.0.1 as long as the context lasts."""
    with bound_socket("127.0.0.1", 0) as listener:
        site = StaticSite(folder, policy, f"http://127.0.0.1:{listener.getsockname()[1]}")
        server = quiet_server(site)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            yield site
        finally:
            server.should_exit = True
            thread.join()
