"""The reference of a kernel's header, from the code and from what docs/add-a-kernel.md says of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from webnorm.kernels.headers.header import layouts
from webnorm.kernels.headers.traits import BROWSER
from webnorm.kernels.headers.variants import header_names
from webnorm.op.registry import OPS
from webnorm.ops.norms.problem import NormProblem
from wording import code, table

_GUIDE = "add-a-kernel.md"
_SHOWN = (OPS["layer_norm"], NormProblem(rows=4096, cols=768))


def page() -> str:
    """Keys, layouts with their axes, and names with what they are for one problem in a browser."""
    op, problem = _SHOWN
    values = header_names(op, problem, BROWSER)
    return "\n\n".join(
        (
            "# A kernel's header",
            f"Where they belong is told by [the guide](../docs/{_GUIDE}).",
            "## Keys",
            table(("key", "meaning"), _rows("Keys of the header")),
            "## Layouts",
            table(
                ("layout", "what it is for", "axes", "derived"),
                (_layout(name, cells[0]) for name, *cells in _rows("Layouts")),
            ),
            "## Names in expressions",
            f"Their values for `{op.name}` of {problem} where a page has asked for nothing:",
            table(("name", "value"), ((code(name), str(value)) for name, value in values.items())),
        )
    )


def _layout(name: str, purpose: str) -> tuple[str, ...]:
    """A row of the table of layouts, whose text is a page, too."""
    whole = layouts()[name.strip("`")]
    axes = "; ".join(
        f"`{axis}`: {', '.join(map(str, values))}" for axis, values in whole.get("tune", {}).items()
    )
    derived = ", ".join(code(one) for one in whole.get("derive", {}))
    return f"[{name}](../wgsl/layouts/{name.strip('`')}.toml.md)", purpose, axes, derived


def _rows(section: str) -> Iterator[list[str]]:
    """The cells of the table in a section of the guide; links lead from here where they led from there."""
    docs = Path(__file__).parents[1]
    text = (docs / _GUIDE).read_text(encoding="utf-8").split(f"### {section}\n")[1].split("\n### ")[0]
    text = text.replace("](#", f"]({_GUIDE}#")
    text = re.sub(r"\]\((?!\w+:)", "](../docs/", text)
    _, _, *lines = (line for line in text.splitlines() if line.startswith("|"))
    yield from ([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines)
