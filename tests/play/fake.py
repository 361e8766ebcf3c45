"""A playground without a device: a file in memory, and snapshots from a test."""

from __future__ import annotations

import threading
from hashlib import sha256
from typing import Any

from webnorm.errors import WebnormError
from webnorm.play.state import KernelUnfit, SaveConflict


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


class Fake:
    """A playground that records its calls in `asked`; `change_state` publishes the next snapshot."""

    def __init__(self, state: dict[str, Any] | None = None, sources: dict[str, str] | None = None) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.texts = {digest(text): text for text in (sources or {}).values()}
        self.built = dict(sources or {})
        # A test clears it to hold back the answers of saves, whose texts are written.
        self.answers = threading.Event()
        self.answers.set()
        # The reason why an export needs `force`, or None.
        self.unfit: str | None = None
        self._state = {"revision": 1, **(state or {"file": {"text": "a", "base": digest("a")}})}
        self._news = threading.Condition()
        # The last revision that `wait` returned.
        self.returned = 0

    def change_state(self, **parts: Any) -> None:
        with self._news:
            self._state = {**self._state, **parts, "revision": self._state["revision"] + 1}
            self._news.notify_all()

    def change_file(self, text: str, **parts: Any) -> None:
        self.change_state(file={**self._state["file"], "text": text, "base": digest(text)}, **parts)

    def snapshot(self) -> dict[str, Any]:
        return self._state

    def wait(self, revision: int, timeout: float) -> dict[str, Any] | None:
        with self._news:
            if not self._news.wait_for(lambda: self._state["revision"] > revision, timeout):
                return None
            self.returned = self._state["revision"]
            return self._state

    def save(self, text: str, base: str) -> str:
        self.asked.append(("save", text))
        if base != self._state["file"]["base"]:
            raise SaveConflict("my.wgsl changed; nothing was written")
        self.change_file(text)
        self.answers.wait()
        return digest(text)

    def run(self) -> None:
        self.asked.append(("run",))

    def change(self, settings: dict[str, Any]) -> None:
        self.asked.append(("change", settings))
        self.change_state(settings={**self._state.get("settings", {}), **settings})

    def trace(self, filter: str | None) -> None:
        self.asked.append(("trace", filter))

    def guide(self) -> str:
        return "<p>What <code>Vec</code> is.</p><pre><code>let a = 1;</code></pre>"

    def fork(self, op: str, kernel: str) -> None:
        self.asked.append(("fork", op, kernel))

    def lessons(self) -> list[dict[str, Any]]:
        return [
            {"name": "naive", "title": "The formula"},
            {"name": "one_pass", "title": "An x that breaks it"},
        ]

    def lesson(self, name: str | None) -> None:
        self.asked.append(("lesson", name))

    def source(self, hash: str) -> str:
        if hash not in self.texts:
            raise WebnormError(f"no attempt has the hash {hash}")
        return self.texts[hash]

    def kernels(self) -> list[dict[str, Any]]:
        return [{"op": "layer_norm", "kernel": name, "summary": "What it does."} for name in self.built]

    def kernel(self, op: str, name: str) -> str:
        if name not in self.built:
            raise WebnormError(f"unknown kernel '{name}'")
        return self.built[name]

    def here(self) -> dict[str, Any]:
        raise WebnormError("nothing to run here")

    def export(self, force: bool) -> bytes:
        if self.unfit is not None and not force:
            raise KernelUnfit(self.unfit)
        return b"\x1f\x8bpackage"
