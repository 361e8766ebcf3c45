"""What `show` puts on the screen: shaders, what differs between two, and what they cost."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from webnorm.cli.screen import plain
from webnorm.errors import one_line
from webnorm.kernels.variants import format_constants

if TYPE_CHECKING:
    from webnorm.kernels.render import Shader
    from webnorm.lab.cost import Cost

# The one theme of Pygments made for 16 ANSI colours: readable on dark and light terminals.
_THEME = "ansi_dark"
# What a line of `show --cost` tells, and the field of a Cost that has it.
_COUNTED = {
    "reads of rows per element": "row_reads",
    "reads of parameters per element": "parameter_reads",
    "writes of rows per element": "writes",
    "barriers per row": "barriers",
    "subgroup operations per row": "subgroup_operations",
}


def shader_text(shader: Shader) -> str:
    """The WGSL behind a comment that says what it is."""
    variant = shader.variant
    return (
        f"// {one_line(variant.kernel.label)} for {shader.problem}, target {shader.target}\n"
        f"// {format_constants(variant.constants)}\n{shader.text}"
    )


def highlighted(text: str, language: str) -> RenderableType:
    """Text in the colours of "wgsl" or "diff"."""
    # Pygments is for terminals alone.
    from rich.syntax import Syntax

    return Syntax(text, language, theme=_THEME, background_color="default", word_wrap=True)


def shader_diff(old: Shader, new: Shader) -> str:
    """A unified diff of two shaders' texts."""
    lines = difflib.unified_diff(
        shader_text(old).splitlines(),
        shader_text(new).splitlines(),
        one_line(str(old.variant)),
        one_line(str(new.variant)),
        lineterm="",
    )
    return "\n".join(lines)


def cost_table(costs: Mapping[str, Cost]) -> RenderableType:
    """Accesses, barriers and subgroup operations of one or two shaders."""
    columns = (Column(plain(name), justify="right") for name in costs)
    table = Table("counted by running", *columns, pad_edge=False)
    for heading, field in _COUNTED.items():
        counts = (getattr(cost, field) for cost in costs.values())
        table.add_row(heading, *("not counted" if count is None else f"{count:.3g}" for count in counts))
    table.add_row("workgroup memory, bytes", *(str(cost.workgroup_bytes) for cost in costs.values()))
    note = Text(
        "'not counted': the kernel's own text does this without the helpers of wgsl/lib, or in several "
        "passes.",
        style="dim",
    )
    return Group(table, note) if any(None in vars(cost).values() for cost in costs.values()) else table
