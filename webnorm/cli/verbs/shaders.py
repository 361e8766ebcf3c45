"""What `show` puts on the screen: shaders, what differs between two, and what they cost."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from webnorm.cli.terminal.columns import Column, table_lines
from webnorm.cli.terminal.screen import escaped_line
from webnorm.errors import one_line
from webnorm.kernels.headers.variants import format_constants

if TYPE_CHECKING:
    from webnorm.kernels.headers.variants import Variant
    from webnorm.kernels.rendering.render import Shader
    from webnorm.lab.run.jobs import ShaderCost

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
_MEMORY = "workgroup memory, bytes"
_NOT_COUNTED = (
    "'not counted': the kernel's own text does this without the helpers of wgsl/lib, or in several passes."
)


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
    differing = difflib.unified_diff(
        shader_text(old).splitlines(),
        shader_text(new).splitlines(),
        one_line(str(old.variant)),
        one_line(str(new.variant)),
        lineterm="",
    )
    return "\n".join(differing)


@dataclass(frozen=True)
class CostTable:
    """Accesses, barriers and subgroup operations of one variant or two: a line for each that says what was
    run, and one for each count.
    """

    costs: Sequence[tuple[Variant, ShaderCost]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for variant, _ in self.costs:
            yield escaped_line(f"counted by running {variant}", "bold")
        strips = [Column("", [Text(what) for what in (*_COUNTED, _MEMORY)], name=True)]
        strips += [
            Column(name, [*map(Text, _counts(cost))], right=True)
            for name, (_, cost) in zip(self._names(), self.costs, strict=True)
        ]
        yield from table_lines(strips, options.max_width, gap=2)
        if any(None in vars(cost).values() for _, cost in self.costs):
            yield Text(_NOT_COUNTED, style="dim")

    def _names(self) -> Sequence[str]:
        """What tells the variants apart; one alone needs no name."""
        kernels = [variant.kernel for variant, _ in self.costs]
        if len(kernels) == 1:
            return [""]
        names = [one_line(kernel.name) for kernel in kernels]
        return names if len({*names}) > 1 else [one_line(kernel.label) for kernel in kernels]


def _counts(cost: ShaderCost) -> list[str]:
    counts = (getattr(cost, field) for field in _COUNTED.values())
    return [
        *("not counted" if count is None else f"{count:.3g}" for count in counts),
        str(cost.workgroup_bytes),
    ]
