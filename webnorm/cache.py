"""Where webnorm keeps, in the user's cache, what it can make again."""

from __future__ import annotations

import os
from pathlib import Path


def folder(name: str) -> Path:
    """The folder called `name` in webnorm's part of the cache: $XDG_CACHE_HOME, or ~/.cache without it.

    Webnorm itself may lie where nobody may write. The folder need not exist.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "webnorm" / name
