"""The guide to kernels' files, as the page shows it: what docs/add-a-kernel.md says of header and body."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token

from webnorm.files.atomic import shipped
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.op.registry import OPS

# The headings between which it stands.
_FROM, _UNTIL = "The file", "What production kernels alone use"


@cache
def guide() -> str:
    """It as HTML, headings from the third level on, without links: they lead to pages that are not served."""
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    text = (shipped("docs") / "add-a-kernel.md").read_text(encoding="utf-8")
    tokens = [*reader.parse(_ops()), *reader.parse(_example()), *_between(reader.parse(text))]
    for token in tokens:
        token.children = [one for one in token.children or () if one.type not in ("link_open", "link_close")]
    html: str = reader.renderer.render(tokens, reader.options, {})
    return html


def _between(tokens: list[Token]) -> list[Token]:
    """What stands behind the one heading and before the other."""
    titles = [one.content if before.type == "heading_open" else "" for before, one in pairwise(tokens)]
    # A heading is three tokens.
    return tokens[titles.index(_FROM) + 3 : titles.index(_UNTIL)]


def _example() -> str:
    """A kernel that shares a row among the invocations of a workgroup, from its header to its end."""
    text = (wgsl_root() / "rms_norm" / "workgroup.wgsl").read_text(encoding="utf-8")
    return f"`rms_norm`'s kernel `workgroup`, whole:\n\n```wgsl\n{text}```\n"


def _ops() -> str:
    """The ops' formulas, as a table."""
    rows = (f"| `{op.name}` | `{op.summary}` |" for op in OPS.values() if not op.is_copy)
    return "\n".join(("| op | what it computes |", "|---|---|", *rows)) + "\n"
