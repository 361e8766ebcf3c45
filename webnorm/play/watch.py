"""A kernel's file and its snippets, watched: every way in which editors save, and at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from watchfiles import watch

# Milliseconds. An editor that renames makes several changes, of which the last is there within a few.
_STEP_MS, _DEBOUNCE_MS = 10, 100
# How soon the end of a watch is noticed.
_GLANCE_MS = 200
_ENDS_S = 2.0


class Watch:
    """Calls `changed` in a thread of its own when a file of one of the folders has changed.

    Folders are watched and not files: an editor that writes beside and renames puts another file there.
    """

    def __init__(self, file: Path, root: Path, changed: Callable[[], None]) -> None:
        self._file, self._root, self._changed = file, root, changed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(_ENDS_S)

    def folders(self) -> list[Path]:
        """Where the file and its snippets lie, as far as these folders are there."""
        nearest = next(one for one in self._file.parents if one.is_dir())
        found = [nearest, self._root, self._root / "lib"]
        return list(dict.fromkeys(one for one in found if one.is_dir()))

    def _concerns(self, change: object, path: str) -> bool:
        return path.endswith(".wgsl") or Path(path) in (*self._file.parents, self._root / "lib")

    def _run(self) -> None:
        while not self._stop.is_set():
            folders = self.folders()
            for changes in watch(
                *folders,
                watch_filter=self._concerns,
                step=_STEP_MS,
                debounce=_DEBOUNCE_MS,
                rust_timeout=_GLANCE_MS,
                yield_on_timeout=True,
                stop_event=self._stop,
                raise_interrupt=False,
                recursive=False,
            ):
                if changes:
                    self._changed()
                if self.folders() != folders:
                    self._changed()
                    break
