"""What is watched while a kernel is written: its file, and the snippets that it includes."""

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

# Seconds between two looks. A look that takes long, in a large folder or over a network, is followed by a
# pause of so many times its length: watching takes 5 % of a core at most.
_STEP_S, _REST = 0.05, 20
# Editors empty a file before they write it: a change is reported once two looks in a row agree, or after so
# many looks.
_SETTLING_S, _MOST_LOOKS = 0.015, 20
# The clock of a file system may not move for 2 s (FAT), and a second save in that time may leave the stamp
# as it is. So a change is reported once more after that.
_COARSE_S = 2.5


class FileWatch:
    """Calls `changed` in a thread of its own when `look` returns something else than before.

    It polls: stamps work on every file system, and need nothing that can run out. inotify hears nothing of
    changes that another machine makes on a network mount, loses folders that are replaced or reached through
    a link, and has limits for each user that editors and build tools exhaust.

    `failed` hears in one line of whatever either of them raises; the watch goes on.
    """

    def __init__(
        self, look: Callable[[], object], changed: Callable[[], None], failed: Callable[[str], None]
    ) -> None:
        self._look, self._changed, self._failed = look, changed, failed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> FileWatch:
        # Before anybody reads the file: what is written from now on is noticed.
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
            except Exception as error:  # it would end this thread, and with it the watch, without a word
                self._failed(sentence(f"the watch met {type(error).__name__}: {error}; it goes on"))
            pause = max(_STEP_S, _REST * (looked - began))

    def _is_new(self) -> bool:
        """Look; a change has settled when this returns."""
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
# Of one kernel: more would take too long to look at, many times a second.
_MOST = 500


class SnippetFiles:
    """The files that a kernel's template asks for by name, wherever in the kernel's root they lie.

    What each file asks for is remembered until it changes: files are looked at many times a second.
    """

    def __init__(self) -> None:
        self._named: dict[str, tuple[Stamp, frozenset[str]]] = {}

    def of(self, kernel: Path, root: Path) -> set[str]:
        """The paths of what a kernel includes or imports, and what that does in turn, there or not.

        Names that a template makes up from others are not known.
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
