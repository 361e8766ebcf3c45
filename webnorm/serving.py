"""Helpers for webnorm's servers: sockets, quiet logging and bounded bodies.

Also serves a folder on loopback under a strict content security policy.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

from webnorm.errors import WebnormError, shown

# Seconds for running requests to finish when a server stops.
GRACE_S = 1


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free one. Raises WebnormError if the port is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small answers at once only for sockets that name the protocol. Others wait 40 ms for the
    # receiver of the headers.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    # This allows the reuse of a port that was just closed; on Windows it would allow a port in use.
    if sys.platform != "win32":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()
        return listener
    except OverflowError:
        why = f"the port is {port}; expected 0 to 65535"
    except (TypeError, ValueError):
        # A host name has neither a NUL nor a part of more than 63 characters.
        why = f"the host is {shown(host)}; expected an address of this machine"
    except OSError as error:
        why = f"cannot listen on port {port} of {host}: {error.strerror}"
        if error.errno == errno.EADDRINUSE:
            why = f"port {port} of {host} is in use; choose another port, or 0 for a free one"
    listener.close()
    raise WebnormError(why)


@dataclass(frozen=True)
class Certificate:
    """A server's certificate and its private key, as PEM, and the SHA-256 fingerprint in hexadecimal."""

    certificate: bytes
    key: bytes
    fingerprint: str


def quiet_server(
    app: ASGIApp, most_requests: int | None = None, certificate: Certificate | None = None
) -> uvicorn.Server:
    """Return a server that logs no requests and answers at most `most_requests` at a time.

    With a certificate it speaks HTTPS.
    """
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        # The terminal belongs to the command, not to the server.
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=most_requests,
        timeout_graceful_shutdown=GRACE_S,
    )
    if certificate is not None:
        _load(certificate, config)
    return uvicorn.Server(config)


def _load(certificate: Certificate, config: uvicorn.Config) -> None:
    # Python reads a key from a file only. The folder belongs to this user alone (mode 0700), and is removed
    # before the server starts.
    with tempfile.TemporaryDirectory(prefix="webnorm-key-") as folder:
        certificate_file, key_file = Path(folder, "certificate.pem"), Path(folder, "key.pem")
        certificate_file.write_bytes(certificate.certificate)
        key_file.write_bytes(certificate.key)
        config.ssl_certfile, config.ssl_keyfile = certificate_file, key_file
        config.load()


async def read_body(request: Request, most: int, complaint: str) -> bytes:
    """Return a request's body. Raises HTTPException with `complaint` once it exceeds `most` bytes."""
    content = bytearray()
    async for piece in request.stream():
        content += piece
        if len(content) > most:
            raise HTTPException(413, complaint)
    return bytes(content)


def check_sender(request: Request, origin: str) -> None:
    """Raise HTTPException for a request to another host name, or from a page of another origin.

    Browsers send the origin with every POST, scripts do not.
    """
    if request.headers.get("host") != origin.partition("://")[2]:
        raise HTTPException(403, "wrong host")
    if request.headers.get("origin", origin) != origin:
        raise HTTPException(403, "wrong origin")


# The system's table may lack some types, and browsers refuse a module of an unknown type.
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


# An exported page must work on sites that allow neither foreign nor inline content.
POLICY = "default-src 'self'"


class StaticSite(StaticFiles):
    """The files of a folder at `url`, under a content security policy.

    Links out of the folder are not followed. `missing` lists the requested paths that were not found.
    """

    def __init__(self, folder: Path, policy: str, url: str) -> None:
        super().__init__(directory=folder, html=True)
        self.url, self.missing = url, list[str]()
        self._headers = {"Content-Security-Policy": policy, "Cache-Control": "no-store"}

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Answer with a file, or with 404."""
        # Browsers request it by themselves, and would report that it is missing.
        if scope["path"] == "/favicon.ico":
            return Response(status_code=204, headers=self._headers)
        with suppress(HTTPException, OSError):
            response = await super().get_response(path, scope)
            # A folder's 404.html is returned for a missing file.
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
        """Answer with the whole file, even if the browser has cached it."""
        kind = TYPES.get(Path(full_path).suffix)
        return FileResponse(full_path, status_code, self._headers, kind, stat_result=stat_result)


@contextmanager
def served(
    listeners: Sequence[socket.socket], app: ASGIApp, certificate: Certificate | None = None
) -> Iterator[None]:
    """Serve an app on listening sockets until the context ends, by HTTPS if there is a certificate."""
    server = quiet_server(app, certificate=certificate)
    thread = threading.Thread(target=server.run, args=([*listeners],), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def serve_folder(folder: Path, policy: str = POLICY) -> Iterator[StaticSite]:
    """Serve a folder on 127.0.0.1 until the context ends."""
    with bound_socket("127.0.0.1", 0) as listener:
        site = StaticSite(folder, policy, f"http://127.0.0.1:{listener.getsockname()[1]}")
        with served([listener], site):
            yield site
