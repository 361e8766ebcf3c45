"""What webnorm's servers share: a port to listen on, how requests are taken up, a body of bounded size; and a
folder as a strict site serves it, on a port of this machine's own.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import uvicorn
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

from webnorm.errors import WebnormError, shown

# Seconds that answers under way have when a server is stopped.
GRACE_S = 1


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one. Raises WebnormError when the port is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    # Elsewhere this lets a port be used that was just given up; on Windows, one that is in use.
    if sys.platform != "win32":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()
        return listener
    except OverflowError:
        why = f"the port is {port}; expected 0 to 65535"
    except (TypeError, ValueError):
        # No name of a host has a NUL, or a part of more than 63 characters.
        why = f"the host is {shown(host)}; expected an address of this machine"
    except OSError as error:
        why = f"cannot listen on port {port} of {host}: {error.strerror}"
        if error.errno == errno.EADDRINUSE:
            why = f"port {port} of {host} is in use; name another one, or 0 for a free one"
    listener.close()
    raise WebnormError(why)


def quiet_server(app: ASGIApp, most_requests: int | None = None) -> uvicorn.Server:
    """A server that writes no line of any request, and at most answers so many at a time."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            # The terminal is somebody else's.
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=most_requests,
            timeout_graceful_shutdown=GRACE_S,
        )
    )


async def read_body(request: Request, most: int, complaint: str) -> bytes:
    """A request's body; HTTPException with the complaint for one of more than `most` bytes, which is not read
    to its end.
    """
    content = bytearray()
    async for piece in request.stream():
        content += piece
        if len(content) > most:
            raise HTTPException(413, complaint)
    return bytes(content)


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
