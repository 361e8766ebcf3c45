"""What the page's server asks of the playground behind it."""

from __future__ import annotations

from typing import Any, Protocol

from webnorm.errors import WebnormError


class SaveConflict(WebnormError):
    """The file changed since the text that somebody saves was read."""


class KernelUnfit(WebnormError):
    """The kernel is wrong or unstable: its package is for who asks for it all the same."""


class Playground(Protocol):
    """A watched kernel. Its methods are called from threads of the server's, several at once.

    A method that is asked for what cannot be raises WebnormError, which the page shows. Snapshots are of
    JSON's kinds; in them a number that is not finite is null, or a string as in results files.
    """

    def snapshot(self) -> dict[str, Any]:
        """All that is known, with its "revision", which grows."""

    def wait(self, revision: int, timeout: float) -> dict[str, Any] | None:
        """The newest snapshot as soon as it is newer than a revision; None after `timeout` seconds."""

    def save(self, text: str, base: str) -> str:
        """Write the file, whose text so far has the SHA-256 `base`; gives the new text's.

        From then on snapshots have the new text.
        Raises SaveConflict where the file's text is another by now.
        """

    def run(self) -> None:
        """Judge the file as it is, where that is not done at every save."""

    def change(self, settings: dict[str, Any]) -> None:
        """Change those settings that are given."""

    def trace(self, filter: str | None) -> None:
        """Trace the invocations that a condition picks, "" for all; None: no more."""

    def fork(self, op: str, kernel: str) -> None:
        """Go on with a copy of a built-in kernel."""

    def lessons(self) -> list[dict[str, Any]]:
        """The lessons in their order: "name" and "title"."""

    def lesson(self, name: str | None) -> None:
        """Begin a lesson, with a copy of its kernel in the place of the text; None ends one."""

    def guide(self) -> str:
        """What a kernel's header and body may use, as HTML."""

    def source(self, hash: str) -> str:
        """The text of an earlier attempt, by its SHA-256."""

    def kernels(self) -> list[dict[str, Any]]:
        """The built-in kernels: "op", "kernel" and, in a sentence, "summary"."""

    def kernel(self, op: str, name: str) -> str:
        """A built-in kernel's text."""

    def here(self) -> dict[str, Any]:
        """What a browser runs the kernel with: "bundle" and "copies" as the lab's, and "rows"."""

    def export(self, force: bool) -> bytes:
        """The npm package of the file, as the .tgz that `npm install` takes.

        Raises KernelUnfit for a kernel that is wrong or unstable, unless it is to be packed all the same.
        """
