"""What the examples' pages are served and shown by."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

# A canvas that WebGPU draws to is shown by SwiftShader if the page's compositor runs on it, too.
CANVAS = ("--enable-features=Vulkan", "--use-vulkan=swiftshader", "--use-angle=vulkan")


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def plainly_served(folder: Path) -> Iterator[str]:
    """The URL of a folder as `python -m http.server` serves it, as long as the context lasts."""
    handler = functools.partial(_Handler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
