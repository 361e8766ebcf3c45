"""A playground session: read a kernel file when it changes, write edits to it, and have each text checked.

This process parses no header and renders no template. The worker process does, because a text may make it
hang or crash.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from webnorm.errors import WebnormError
from webnorm.files import atomic
from webnorm.kernels.headers.header import home
from webnorm.kernels.headers.sources import MOST_BYTES, SourceUnreadable, Stamp, is_wgsl, read, stamp
from webnorm.op.registry import is_op_folder
from webnorm.play.attempt_runner import AttemptRunner
from webnorm.play.attempt_store import AttemptStore
from webnorm.play.file_watch import FileWatch, SnippetFiles
from webnorm.play.state import (
    PlaygroundState,
    SaveConflict,
    Settings,
    Snapshot,
    StageName,
    WatchedFile,
    text_digest,
)


class PlaygroundSession:
    """A watched kernel file; `state` contains the results. Every method may be called from any thread."""

    def __init__(
        self, path: Path, settings: Settings, op: str | None = None, adapter: str | None = None
    ) -> None:
        self.path = atomic.absolute(path)
        self.store = AttemptStore.of(self.path)
        file = WatchedFile(name=path.name, path=str(self.path))
        self.state = PlaygroundState(Snapshot(file=file, settings=settings, history=self.store.entries()))
        self._runner = AttemptRunner(self.state, self.store, self.path, home(self.path)[0], op, adapter)
        # Guards the snippets' last stamps and the count of their changes.
        self._looking = threading.Lock()
        self._snippets: Mapping[str, Stamp] = {}
        self._named = SnippetFiles()
        self._edition = 0
        self._open = ExitStack()

    def __enter__(self) -> PlaygroundSession:
        self._runner.start()
        self._open.callback(self._runner.stop)
        self._open.enter_context(FileWatch(self._glance, self.look, self._runner.notice))
        self.look()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    # --- actions

    def look(self, again: bool = False) -> None:
        """Read the file and start an attempt if its text is new, or in any case with `again`."""
        with self._looking:
            text, error = self._read()
            snippets = self._stamps()
            if snippets != self._snippets:
                self._snippets, self._edition, again = snippets, self._edition + 1, True
            file = self.state.now.file
            if error is not None:
                # The reason comes first, so that a view that shows "missing" already has it.
                self._runner.notice(error)
                self.state.change(file=replace(file, missing=True))
                return
            if not again and not file.missing and text == file.text:
                return
            self.state.change(file=replace(file, text=text, missing=False))
            if self.state.now.settings.run or again:
                self._runner.evaluate(text, self._edition, self.root)

    def run(self) -> None:
        """Start an attempt at the current text."""
        self.look(again=True)

    def do(self, stage: StageName) -> None:
        """Run one more step of the current attempt."""
        self._runner.do(stage)

    def trace(self, filter: str | None) -> None:
        """Trace the records that a filter keeps from now on; None disables tracing."""
        self.state.change(settings=replace(self.state.now.settings, trace=filter))
        if filter is not None:
            self._runner.do("trace")

    def change(self, **changes: Any) -> None:
        """Change settings, and start a new attempt."""
        self.state.change(settings=replace(self.state.now.settings, **changes))
        if self.state.now.settings.run:
            self.look(again=True)

    def save(self, text: str, base: str) -> str:
        """Write the file and return the digest of the new text.

        Raises SaveConflict if the digest of the file's text is not `base`.
        """
        current, error = self._read()
        if error is None and text_digest(current) != base:
            raise SaveConflict(f"{self.path} changed after its text was read; nothing was written")
        atomic.write_text(self.path, text.replace("\n", self._line_end()))
        self.look()
        return text_digest(text)

    def put(self, text: str, **changes: Any) -> None:
        """Write another text into the file and change settings; the history keeps the old text."""
        now = self.state.now
        self._runner.keep(now.file.text)
        self.state.change(settings=replace(now.settings, **changes))
        self.save(text, now.file.base)
        if text == now.file.text:
            self.change()

    def undo(self) -> None:
        """Restore the previous text, if there is any; each call goes one attempt further back."""
        texts = list(dict.fromkeys(one.hash for one in self.state.now.history))
        own = self.state.now.file.base
        earlier = texts[: texts.index(own)] if own in texts else texts
        if earlier:
            self.put(self.store.source(earlier[-1]))

    def ask(self, work: Any, job: Any, limit_s: float) -> list[Any]:
        """Run another task in the worker and return everything it yields; its errors are raised here."""
        return self._runner.ask(work, job, limit_s)

    def idle(self, timeout_s: float) -> bool:
        """Wait until no work is left; return False after `timeout_s` seconds."""
        return self._runner.idle(timeout_s)

    @property
    def root(self) -> Path:
        """The folder that must contain the file and its snippets; it changes when a link is moved."""
        return home(self.path)[0]

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """The ids of the worker processes, the active one first."""
        return self._runner.worker.pids

    # --- the file

    def _read(self) -> tuple[str, str | None]:
        """Return the text and None, or an empty text and the reason why it cannot be read."""
        try:
            return read(self.path, self.root)[0], None
        except WebnormError as error:
            return "", str(error)
        except SourceUnreadable as error:
            where = f":{error.line}" if error.line is not None else ""
            return "", f"{self.path}{where}: cannot read the kernel: {error.reason}"

    def _line_end(self) -> str:
        """Return the file's line ending: editors on Windows write two characters."""
        try:
            return "\r\n" if b"\r\n" in atomic.read_bytes(self.path, MOST_BYTES) else "\n"
        except OSError:
            return "\n"

    def _glance(self) -> object:
        """Return stamps that differ once the file, a snippet or a folder on their paths changes."""
        return stamp(str(self.path)), self._stamps()

    def _stamps(self) -> Mapping[str, Stamp]:
        """Return the stamp of each snippet, by its path."""
        folders, named = {self.path.parent}, set[str]()
        with suppress(WebnormError):
            # This check runs many times a second. So it does not load op.py; the worker does after a change.
            own = self.path.parent
            root = own.parent if is_op_folder(own) else self.root
            folders |= {root, root / "lib"}
            named = self._named.of(self.path, root)
        found = named.union(*map(_templates, folders), _of_op(self.path))
        return {path: stamp(path) for path in found if path != str(self.path)}


def _of_op(path: Path) -> set[str]:
    """Return the files next to a kernel that define its op and its dispatch."""
    return {*map(str, path.parent.glob("*.py")), str(path.with_suffix(".toml"))}


def _templates(folder: Path) -> list[str]:
    """Return the paths of a folder's WGSL files, or nothing if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if is_wgsl(entry.name)]
    except OSError:
        return []
