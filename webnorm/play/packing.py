"""The worker's task that makes a package of the file: what `webnorm export` writes, as npm packs it."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterator
from typing import Any

from webnorm.web import npm
from webnorm.web.folder import Files
from webnorm.web.request import request_for

# Seconds; the shaders of a package are run, too.
LIMIT_S = 120.0


def pack(device: Any, words: tuple[Any, ...]) -> Iterator[bytes]:
    """The package of a request, given as request_for takes it, in a .tgz; WebnormError as that raises it."""
    yield archive(npm.package(request_for(*words)))


def archive(files: Files) -> bytes:
    """A package's files as `npm install` takes them: in a folder called package, without anybody's name."""
    found = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=found, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name, content in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    return found.getvalue()
