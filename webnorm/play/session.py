"""One kernel's file: read whenever it may have changed, written where somebody edits it here, and judged.

This process does no more than that with a text: headers, templates and shaders are the worker's, which may
hang or die over them.
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
    """A kernel's file and what is known of it, in `state`. Actions may come from any thread."""

    def __init__(
        self, path: Path, settings: Settings, op: str | None = None, adapter: str | None = None
    ) -> None:
        self.path = atomic.absolute(path)
        self.store = AttemptStore.of(self.path)
        file = WatchedFile(name=path.name, path=str(self.path))
        self.state = PlaygroundState(Snapshot(file=file, settings=settings, history=self.store.entries()))
        self._course = AttemptRunner(self.state, self.store, self.path, home(self.path)[0], op, adapter)
        # What was seen last, by one who looks at a time: the snippets, and how often they have changed.
        self._looking = threading.Lock()
        self._snippets: Mapping[str, Stamp] = {}
        self._named = SnippetFiles()
        self._edition = 0
        self._open = ExitStack()

    def __enter__(self) -> PlaygroundSession:
        self._course.start()
        self._open.callback(self._course.stop)
        self._open.enter_context(FileWatch(self._glance, self.look, self._course.notice))
        self.look()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    # --- what others ask for

    def look(self, again: bool = False) -> None:
        """Look at the file; a text that is new is judged, or any `again`."""
        with self._looking:
            text, complaint = self._read()
            snippets = self._stamps()
            if snippets != self._snippets:
                self._snippets, self._edition, again = snippets, self._edition + 1, True
            file = self.state.now.file
            if complaint is not None:
                # First the reason: whoever sees that the file is missing can say why.
                self._course.notice(complaint)
                self.state.change(file=replace(file, missing=True))
                return
            if not again and not file.missing and text == file.text:
                return
            self.state.change(file=replace(file, text=text, missing=False))
            if self.state.now.settings.run or again:
                self._course.judge(text, self._edition, self.root)

    def run(self) -> None:
        """Judge the text as it is."""
        self.look(again=True)

    def do(self, stage: StageName) -> None:
        """Do one step more of the attempt at hand."""
        self._course.do(stage)

    def trace(self, filter: str | None) -> None:
        """Trace the records that a filter lets pass from now on; none with None."""
        self.state.change(settings=replace(self.state.now.settings, trace=filter))
        if filter is not None:
            self._course.do("trace")

    def change(self, **changes: Any) -> None:
        """Change settings, and judge anew."""
        self.state.change(settings=replace(self.state.now.settings, **changes))
        if self.state.now.settings.run:
            self.look(again=True)

    def save(self, text: str, base: str) -> str:
        """Write the file, unless it has changed since `base`, a text's digest: SaveConflict then. Gives the
        new text's digest.
        """
        current, complaint = self._read()
        if complaint is None and text_digest(current) != base:
            raise SaveConflict(f"{self.path} has changed meanwhile")
        atomic.write_text(self.path, text.replace("\n", self._line_end()))
        self.look()
        return text_digest(text)

    def put(self, text: str, **changes: Any) -> None:
        """Write another text into the file, and change settings with it; the text that is there stays among
        the attempts.
        """
        now = self.state.now
        self._course.keep(now.file.text)
        self.state.change(settings=replace(now.settings, **changes))
        self.save(text, now.file.base)
        if text == now.file.text:
            self.change()

    def undo(self) -> None:
        """Write the text that came before the one in the file, if there is any: again, and one goes further
        back.
        """
        texts = list(dict.fromkeys(one.hash for one in self.state.now.history))
        own = self.state.now.file.base
        earlier = texts[: texts.index(own)] if own in texts else texts
        if earlier:
            self.put(self.store.source(earlier[-1]))

    def ask(self, work: Any, job: Any, limit_s: float) -> list[Any]:
        """What another task yields in the worker; raises what that raises."""
        return self._course.ask(work, job, limit_s)

    def idle(self, timeout_s: float) -> bool:
        """Wait until nothing is left to be done; False where that is not so in time."""
        return self._course.idle(timeout_s)

    @property
    def root(self) -> Path:
        """The folder that the file and its snippets have to lie in: another one after a link has moved."""
        return home(self.path)[0]

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """The worker processes that stand ready, the one that works first."""
        return self._course.worker.pids

    # --- the file

    def _read(self) -> tuple[str, str | None]:
        """The text, or why there is none."""
        try:
            return read(self.path, self.root)[0], None
        except WebnormError as error:
            return "", str(error)
        except SourceUnreadable as error:
            where = f":{error.line}" if error.line is not None else ""
            return "", f"{self.path}{where}: cannot read the kernel: {error.reason}"

    def _line_end(self) -> str:
        """What ends the file's lines: editors of Windows write two characters where texts here have one."""
        try:
            return "\r\n" if b"\r\n" in atomic.read_bytes(self.path, MOST_BYTES) else "\n"
        except OSError:
            return "\n"

    def _glance(self) -> object:
        """Everything that differs when the file, a snippet, or a folder on the way to them is another."""
        return stamp(str(self.path)), self._stamps()

    def _stamps(self) -> Mapping[str, Stamp]:
        """The stamp of each snippet, by its path."""
        folders, named = {self.path.parent}, set[str]()
        with suppress(WebnormError):
            # What op.py says is looked at once it has changed, not many times a second.
            own = self.path.parent
            root = own.parent if is_op_folder(own) else self.root
            folders |= {root, root / "lib"}
            named = self._named.of(self.path, root)
        found = named.union(*map(_templates, folders), _of_op(self.path))
        return {path: stamp(path) for path in found if path != str(self.path)}


def _of_op(path: Path) -> set[str]:
    """The files beside a kernel's that say what it has to compute, and how it is dispatched."""
    return {*map(str, path.parent.glob("*.py")), str(path.with_suffix(".toml"))}


def _templates(folder: Path) -> list[str]:
    """The paths of a folder's WGSL files; none where it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if is_wgsl(entry.name)]
    except OSError:
        return []
