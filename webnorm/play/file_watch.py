"""Watch a kernel file and the snippets that it includes."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from webnorm.errors import sentence
from webnorm.files.atomic import read_bytes
from webnorm.kernels.headers.sources import MOST_BYTES, Stamp, stamp
from webnorm.kernels.rendering.includes import IncludeRefused, check_name

# Seconds between two polls. A poll of a large or remote folder takes long. The pause after it is _REST times
# as long, so that watching uses at most 5 % of a core.
_STEP_S, _REST = 0.05, 20
# Editors empty a file before they write it. So a change is reported once two polls in a row agree, or after
# _MOST_LOOKS polls.
_SETTLING_S, _MOST_LOOKS = 0.015, 20
# File times have a resolution of up to 2 s (FAT), so a second save may leave the stamp unchanged. So each
# change is reported once more after this time.
_COARSE_S = 2.5


class FileWatch:
    """A thread that calls `changed` whenever `look` returns a new value.

    The thread polls, because stamps work on every file system. inotify does not report changes that another
    machine makes on a network mount. It loses folders that are replaced or reached through a link, and
    editors and build tools use up its limits per user.

    If `look` or `changed` raises, `failed` gets the error as one line, and the watch continues.
    """

    def __init__(
        self, look: Callable[[], object], changed: Callable[[], None], failed: Callable[[str], None]
    ) -> None:
        self._look, self._changed, self._failed = look, changed, failed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> FileWatch:
        # The first poll precedes the first read of the file, so that no later change is missed.
        self._seen = self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        again_at = float("inf")
        pause = _STEP_S
        while not self._stop.wait(pause):
            began = time.monotonic()
            looked = began
            try:
                is_new = self._is_new()
                looked = time.monotonic()
                if is_new:
                    again_at = time.monotonic() + _COARSE_S
                    self._changed()
                elif began >= again_at:
                    again_at = float("inf")
                    self._changed()
            except Exception as error:  # an error would end the watch silently
                reason = f"{type(error).__name__}: {error}"
                self._failed(sentence(f"watching the file failed: {reason}; the watch continues"))
            pause = max(_STEP_S, _REST * (looked - began))

    def _is_new(self) -> bool:
        """Poll and return True for a change, once it has settled."""
        before, self._seen = self._seen, self._look()
        if self._seen == before:
            return False
        for _ in range(_MOST_LOOKS):
            self._stop.wait(_SETTLING_S)
            before, self._seen = self._seen, self._look()
            if self._seen == before:
                break
        return True


_TAG = re.compile(r"\{%[-+]?\s*(?:include|import|from|extends)\b(.*?)%\}", re.DOTALL)
_NAME = re.compile(r"""(["'])(.+?)\1""")
# Snippets per kernel: polling more of them many times a second would take too long.
_MOST = 500


class SnippetFiles:
    """The files that a kernel's template includes or imports by name, anywhere in the kernel's root.

    The names in each file are cached until it changes, because files are polled many times a second.
    """

    def __init__(self) -> None:
        self._named: dict[str, tuple[Stamp, frozenset[str]]] = {}

    def of(self, kernel: Path, root: Path) -> set[str]:
        """Return the paths that a kernel includes or imports, directly or not, even if they do not exist.

        Names that a template computes are not found.
        """
        found: set[str] = set()
        waiting = [str(kernel)]
        while waiting and len(found) < _MOST:
            new = {str(root / name) for name in self._names(waiting.pop())} - found
            found |= new
            waiting += new
        return found

    def _names(self, path: str) -> frozenset[str]:
        now = stamp(path)
        known = self._named.get(path)
        if known is None or known[0] != now:
            known = self._named[path] = now, _names_in(path) if now is not None else frozenset()
        return known[1]


def _names_in(path: str) -> frozenset[str]:
    try:
        text = read_bytes(Path(path), MOST_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return frozenset()
    names = set()
    for found in (one for tag in _TAG.findall(text) for one in _NAME.finditer(tag)):
        with suppress(IncludeRefused):
            check_name(found[2])
            names.add(found[2])
    return frozenset(names)
