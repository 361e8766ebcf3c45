"""Which files a kernel's template asks for by name, wherever in the kernel's root they lie."""

from __future__ import annotations

import re
from pathlib import Path

from webnorm.files.atomic import read_bytes
from webnorm.kernels.headers.sources import MOST_BYTES, Stamp, stamp
from webnorm.kernels.rendering.includes import IncludeRefused, check_name

_TAG = re.compile(r"\{%[-+]?\s*(?:include|import|from|extends)\b(.*?)%\}", re.DOTALL)
_NAME = re.compile(r"""(["'])(.+?)\1""")
# Of one kernel: more would take too long to look at, many times a second.
_MOST = 500


class SnippetFiles:
    """Remembers what each file asks for until it changes: files are looked at many times a second."""

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
    names = (found[2] for tag in _TAG.findall(text) for found in _NAME.finditer(tag))
    return frozenset(name for name in names if _may_be_included(name))


def _may_be_included(name: str) -> bool:
    try:
        check_name(name)
    except IncludeRefused:
        return False
    return True
