"""Where webnorm keeps, in the user's cache, what it can make again."""

from __future__ import annotations

import os
from pathlib import Path

from webnorm.errors import WebnormError


def folder(name: str) -> Path:
    """The folder called `name` in webnorm's part of the cache: $XDG_CACHE_HOME, or ~/.cache without it.

    Webnorm itself may lie where nobody may write. The folder need not exist. WebnormError for a user without
    a home.
    """
    try:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError as error:
        raise WebnormError("this user has no home folder; name a folder in $XDG_CACHE_HOME") from error
    return Path(cache) / "webnorm" / name
