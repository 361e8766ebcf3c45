"""Notices changes by polling: stamps work on every file system, and need nothing that can run out.

inotify hears nothing of changes that another machine makes on a network mount, loses folders that are
replaced or reached through a link, and has limits for each user that editors and build tools exhaust.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from webnorm.errors import sentence

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
            try:
                if self._is_new():
                    again_at = time.monotonic() + _COARSE_S
                    self._changed()
                elif began >= again_at:
                    again_at = float("inf")
                    self._changed()
            except Exception as error:  # it would end this thread, and with it the watch, without a word
                self._failed(sentence(f"the watch met {type(error).__name__}: {error}; it goes on"))
            pause = max(_STEP_S, _REST * (time.monotonic() - began))

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
