"""The attempts at a kernel, stored on disk: their outcomes, texts and timings.

Each watched file has a folder in the user's cache. Its `attempts.jsonl` has one line per attempt.
`sources/HASH/FOLDER/KERNEL.wgsl` is a text, and `results/NUMBER.json` the timings, which `webnorm compare`
reads.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webnorm.errors import WebnormError
from webnorm.files import atomic, forms
from webnorm.kernels.headers.drafts import draft, lesson_kernel
from webnorm.kernels.headers.library import discover
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.lab.results import result_files
from webnorm.lab.results.result import Report
from webnorm.op.registry import default_op
from webnorm.play.state import AttemptState, HistoryEntry, snapshot_as_json, text_digest

# Names another folder for attempts than the cache.
FOLDER_VARIABLE = "WEBNORM_ATTEMPTS"
# Attempts in the list. The texts of older ones stay on disk.
MOST_SHOWN = 200
_MOST_BYTES = 8 << 20
_HASH = 64


def scratch() -> Path:
    """Return the file to use if the user names none; it is created as the draft of the lesson's kernel."""
    op = default_op()
    path = _base() / "scratch" / op.name / "mine.wgsl"
    if not path.exists():
        _made(path.parent)
        kernel = next(one for one in discover() if one.op is op and one.name == lesson_kernel(op))
        atomic.write_text(path, draft(kernel, [wgsl_root()]))
    return path


def _base() -> Path:
    return Path(os.environ.get(FOLDER_VARIABLE) or atomic.cache_folder("playground"))


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WebnormError(f"cannot write {folder}: {error.strerror or error}") from error
    return folder


@dataclass(frozen=True)
class AttemptStore:
    """The stored attempts at one file, in `folder`."""

    folder: Path

    @classmethod
    def of(cls, file: Path) -> AttemptStore:
        """Return the store of a file, whose path may contain links; no folder is created."""
        name = hashlib.sha256(os.fsencode(atomic.resolved(file))).hexdigest()[:16]
        return cls(_base() / f"{file.stem[:40]}-{name}")

    @property
    def _list(self) -> Path:
        return self.folder / "attempts.jsonl"

    def entries(self) -> tuple[HistoryEntry, ...]:
        """Return the newest attempts, oldest first; invalid lines are ignored."""
        try:
            lines = atomic.read_bytes(self._list, 2 * _MOST_BYTES).decode(errors="replace").splitlines()
        except OSError:
            return ()
        found = []
        for line in lines[-MOST_SHOWN:]:
            with suppress(ValueError, WebnormError):
                found.append(forms.read(json.loads(line), HistoryEntry))
        return tuple(found)

    def keep(self, attempt: AttemptState, device: Mapping[str, Any]) -> HistoryEntry:
        """Add an attempt, or replace its stored entry; WebnormError if it cannot be written."""
        entry = HistoryEntry.of(attempt)
        _made(self.folder)
        with atomic.lock(self._list):
            # Another session with the same file may have used this number for another attempt.
            kept = [one for one in self.entries() if (one.number, one.hash) != (entry.number, entry.hash)]
            lines = [json.dumps(snapshot_as_json(one)) for one in [*kept, entry]]
            atomic.write_text(self._list, "\n".join(lines) + "\n")
        timed = tuple(one.result for one in attempt.times)
        if timed:
            report = Report(device=device, results=timed, complete=True)
            path = _made(self.folder / "results") / f"{attempt.number}.json"
            atomic.write_text(path, result_files.to_json(report))
        return entry

    def keep_source(self, text: str, folder: str, kernel: str) -> Path:
        """Store a text as FOLDER/KERNEL.wgsl and return its path; WebnormError if it cannot be written."""
        path = _made(self.folder / "sources" / text_digest(text) / folder) / f"{kernel}.wgsl"
        if not path.exists():
            atomic.write_text(path, text)
        return path

    def source(self, hash: str) -> str:
        """Return the text of an attempt; WebnormError if it is not stored."""
        is_hash = len(hash) == _HASH and all(one in "0123456789abcdef" for one in hash)
        path = next((self.folder / "sources" / hash).rglob("*.wgsl"), None) if is_hash else None
        if path is None:
            raise WebnormError(f"hash is {hash!r}; it must be the hash of a stored attempt")
        try:
            return atomic.read_bytes(path, _MOST_BYTES).decode()
        except (OSError, ValueError) as error:
            raise WebnormError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
