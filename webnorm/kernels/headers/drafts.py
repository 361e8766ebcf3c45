"""A kernel to begin with: a copy of another whose header is its own and whose entry points stand in it."""

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

# Columns and rows are said to the authors of kernels for webnorm's own ops.
_KEY = re.compile(r"""["']?(\w+)["']?\s*=""")
_INCLUDE = re.compile(r'^\{% include "(lib/[\w.]+)" %\}$', re.MULTILINE)


def lesson_kernel(op: Op) -> str:
    """The kernel of an op that is best to begin with."""
    return op.starter or "naive"


def draft(kernel: Kernel, roots: Sequence[Path], folder: str | None = None, advice: bool = True) -> str:
    """The text of a copy of a kernel, for its op alone, that is to be changed.

    `roots` are the folders that the copy's snippets are looked for in: of those that it includes it holds the
    ones with entry points itself. In a `folder` of another name than the op's its header names the op; with
    `advice` it says what to change first. Raises WebnormError for a kernel that cannot be read.
    """
    source = _text(kernel.path, home(kernel.path)[0])
    header = _own_header(split_header(source, kernel.path)[1], kernel, folder)
    body = _INCLUDE.sub(lambda found: _written_out(found, roots), without_header(source, kernel.path).strip())
    parts = (f"// /// webnorm\n{header}\n// ///", _advice(kernel) if advice else "", body)
    return "\n\n".join(filter(None, parts)) + "\n"


def _own_header(toml: str, kernel: Kernel, folder: str | None) -> str:
    """The header of a copy: a summary of its own, no place on the ladder, the op of its folder."""
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
    """How many of the lines are the value of the first one's key."""
    for count in range(1, len(lines)):
        try:
            tomllib.loads("\n".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            continue
        return count
    return len(lines)


def _advice(kernel: Kernel) -> str:
    said = (
        f"To be changed. First: {_first_change(kernel)}. Then say in `summary` and `differs` what it is. "
        "docs/kernel-file.md and the playground's page have what header and body may use."
    )
    return textwrap.fill(said, 110, initial_indent="// ", subsequent_indent="// ", break_on_hyphens=False)


def _first_change(kernel: Kernel) -> str:
    if kernel.derive.get("vector_width", 4) != 4:
        return "`vector_width = 4` in the table [derive] has it read four columns at a time"
    return "the values of an axis under [tune], or what it keeps of a row from one sweep to the next"


def _written_out(found: re.Match[str], roots: Sequence[Path]) -> str:
    """A snippet's text in the place of its include, if an entry point is in it."""
    root = next((root for root in roots if (root / found[1]).exists()), None)
    text = "" if root is None else _text(root / found[1], root).strip()
    return text if "@compute" in text else found[0]


def _text(path: Path, root: Path) -> str:
    try:
        return read(path, root)[0]
    except SourceUnreadable as error:
        raise WebnormError(f"{path}: cannot be read: {error.reason}") from error
