"""Drafts of new kernels: a copy of another kernel with its own header and with its entry points inlined."""

from __future__ import annotations

import json
import re
import textwrap
import tomllib
from collections.abc import Sequence
from pathlib import Path

from webnorm.errors import WebnormError
from webnorm.kernels.headers.header import home
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.sources import SourceUnreadable, read, split_header, without_header
from webnorm.op.op import Op

_KEY = re.compile(r"""["']?(\w+)["']?\s*=""")
_INCLUDE = re.compile(r'^\{% include "(lib/[\w.]+)" %\}$', re.MULTILINE)


def lesson_kernel(op: Op) -> str:
    """Return the name of the op's kernel that is best to start from."""
    return op.starter or "naive"


def draft(kernel: Kernel, roots: Sequence[Path], folder: str | None = None, advice: bool = True) -> str:
    """Return the text of a copy of a kernel, for its op alone, as a start for a new one.

    Parameters
    ----------
    roots
        The folders to search for snippets. Included snippets with entry points are inlined.
    folder
        The name of the folder for the copy. The header names the op if that is not the folder's name.
    advice
        Whether a comment says what to change first.

    Raises
    ------
    WebnormError
        The kernel cannot be read.
    """
    source = _text(kernel.path, home(kernel.path)[0])
    header = _own_header(split_header(source, kernel.path)[1], kernel, folder)
    body = _INCLUDE.sub(lambda found: _inlined(found, roots), without_header(source, kernel.path).strip())
    parts = (f"// /// webnorm\n{header}\n// ///", _advice(kernel) if advice else "", body)
    return "\n\n".join(filter(None, parts)) + "\n"


def _own_header(toml: str, kernel: Kernel, folder: str | None) -> str:
    """Return the header of a copy, with its own summary, without a rung, and with the op if needed."""
    own = {"summary": f"A copy of {kernel.label}.", "differs": "Nothing yet."}
    lines, kept = toml.splitlines(), [f"{key} = {json.dumps(text)}" for key, text in own.items()]
    if folder not in (None, kernel.op.name):
        kept.append(f"ops = {json.dumps([kernel.op.name])}")
    while lines and not lines[0].startswith("["):
        count = _length(lines) if (key := _KEY.match(lines[0])) else 1
        if key is None or key[1] not in (*own, "ops", "rung"):
            kept += lines[:count]
        del lines[:count]
    return "\n".join(f"// {line}".rstrip() for line in [*kept, *lines])


def _length(lines: Sequence[str]) -> int:
    """Return how many lines the first line's key and value take."""
    for count in range(1, len(lines)):
        try:
            tomllib.loads("\n".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            continue
        return count
    return len(lines)


def _advice(kernel: Kernel) -> str:
    said = (
        f"Change this copy. A first step: {_first_change(kernel)}. Then describe it in `summary` and "
        "`differs`. docs/kernel-file.md and the playground's page list what header and body may use."
    )
    return textwrap.fill(said, 110, initial_indent="// ", subsequent_indent="// ", break_on_hyphens=False)


def _first_change(kernel: Kernel) -> str:
    if kernel.derive.get("vector_width", 4) != 4:
        return "set `vector_width = 4` in the table [derive], so that it reads four columns at a time"
    return "change the values of an axis in [tune], or what it keeps of a row between sweeps"


def _inlined(found: re.Match[str], roots: Sequence[Path]) -> str:
    """Return a snippet's text in place of its include if it contains an entry point."""
    root = next((root for root in roots if (root / found[1]).exists()), None)
    text = "" if root is None else _text(root / found[1], root).strip()
    return text if "@compute" in text else found[0]


def _text(path: Path, root: Path) -> str:
    try:
        return read(path, root)[0]
    except SourceUnreadable as error:
        raise WebnormError(f"{path}: cannot be read: {error.reason}") from error
