"""The reference of a kernel's header, made from the code and from tables of docs/kernel-file.md."""

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

_GUIDE = "kernel-file.md"
_SHOWN = (OPS["layer_norm"], NormProblem(rows=4096, cols=768))


def page() -> str:
    """Return the page: keys, layouts with their axes, and names with their values in a browser."""
    op, problem = _SHOWN
    values = header_names(op, problem, BROWSER)
    return "\n\n".join(
        (
            "# A kernel's header",
            f"Keys, layouts and names of a header. [The kernel file](../docs/{_GUIDE}) explains them.",
            "## Keys",
            table(("key", "meaning"), _rows("Keys of the header")),
            "## Layouts",
            table(
                ("layout", "purpose", "axes", "derived"),
                (_layout(name, cells[0]) for name, *cells in _rows("Layouts")),
            ),
            "## Names in expressions",
            f"The values for `{op.name}` of {problem}, with the default limits of a browser:",
            table(("name", "value"), ((code(name), str(value)) for name, value in values.items())),
        )
    )


def _layout(name: str, purpose: str) -> tuple[str, ...]:
    """Return a row of the table of layouts. The text of a layout is a page as well."""
    whole = layouts()[name.strip("`")]
    axes = "; ".join(
        f"`{axis}`: {', '.join(map(str, values))}" for axis, values in whole.get("tune", {}).items()
    )
    derived = ", ".join(code(one) for one in whole.get("derive", {}))
    return f"[{name}](../wgsl/layouts/{name.strip('`')}.toml.md)", purpose, axes, derived


def _rows(section: str) -> Iterator[list[str]]:
    """Yield the cells of the table in a section of the page, with links that work from here."""
    docs = Path(__file__).parents[1]
    text = (docs / _GUIDE).read_text(encoding="utf-8").split(f"### {section}\n")[1].split("\n### ")[0]
    text = text.replace("](#", f"]({_GUIDE}#")
    text = re.sub(r"\]\((?!\w+:)", "](../docs/", text)
    _, _, *lines = (line for line in text.splitlines() if line.startswith("|"))
    yield from ([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines)
