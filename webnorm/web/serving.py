"""What webnorm's servers share: a port to listen on, how requests are taken up, a body of bounded size."""

from __future__ import annotations

import errno
import socket
import sys

import uvicorn
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp

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
    except OverflowError:
        listener.close()
        raise WebnormError(f"the port is {port}; expected 0 to 65535") from None
    except (TypeError, ValueError):
        # No name of a host has a NUL, or a part of more than 63 characters.
        listener.close()
        raise WebnormError(f"the host is {shown(host)}; expected an address of this machine") from None
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise WebnormError(
                f"port {port} of {host} is in use; name another one, or 0 for a free one"
            ) from error
        raise WebnormError(f"cannot listen on port {port} of {host}: {error.strerror}") from error
    return listener


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
