"""`webnorm show`: print a kernel's text, or its counts of accesses and barriers."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.text import Text
from typer import Argument, Option

from webnorm.cli.options import shared, values
from webnorm.cli.terminal.columns import Column, FittedTable
from webnorm.cli.terminal.screen import Screen, escaped_line
from webnorm.cli.terminal.streams import emit
from webnorm.errors import WebnormError, one_line, unknown

if TYPE_CHECKING:
    from webnorm.kernels.rendering.render import Shader
    from webnorm.lab.run.jobs import ShaderCost
    from webnorm.op.op import Op

# The theme of Pygments for 16 ANSI colours, which is readable on dark and light terminals.
_THEME = "ansi_dark"
# The lines of `show --cost`, with their fields of a Cost.
_COUNTED = {
    "reads of rows per element": "row_reads",
    "reads of parameters per element": "parameter_reads",
    "writes of rows per element": "writes",
    "barriers per row": "barriers",
    "subgroup operations per row": "subgroup_operations",
}
# Default sizes for built-in ops.
_USUAL = {"rows": 1024, "cols": 1024}
_MEMORY = "workgroup memory, bytes"
_NOT_COUNTED = "'not counted': the kernel does this without the helpers of wgsl/lib, or in several passes."


def show(
    kernel: Annotated[str, Argument(help="The kernel: a name, OP/NAME, a .wgsl file, or auto.")],
    op: shared.Op = None,
    rows: Annotated[
        int | None,
        Option(
            parser=values.size_of("--rows", least=0),
            help="Set the number of rows, such as 1024 or 4k. Default: 1024.",
        ),
    ] = None,
    cols: Annotated[
        int | None,
        Option(parser=values.size_of("--cols"), help="Set the number of columns. Default: 1024."),
    ] = None,
    size: shared.Sizes = None,
    dtype: shared.Dtype = None,
    option: shared.Option = None,
    target: Annotated[
        str,
        Option(
            help="Render for native (this machine: naga, or Tint with --backend dawn) or browser (Tint and "
            "other compilers)."
        ),
    ] = "native",
    constant: shared.Constant = None,
    no_weight: shared.NoWeight = False,
    no_bias: shared.NoBias = False,
    diff: Annotated[
        str | None,
        Option(help="Print a unified diff from kernel NAME to KERNEL."),
    ] = None,
    cost: Annotated[
        bool,
        Option("--cost", help="Run the kernel and count its accesses, barriers and subgroup operations."),
    ] = False,
    wgsl: shared.Wgsl = None,
    adapter: shared.Adapter = None,
    backend: shared.Backend = None,
) -> None:
    """A pipe gets the WGSL text alone, as in `webnorm show layer_norm/welford --cols 768 > welford.wgsl`."""
    from webnorm.choice.defaults import choose, chosen_variants
    from webnorm.kernels.headers.library import AUTO, check_axes, own_names, select, survey, without_auto
    from webnorm.kernels.headers.traits import BROWSER
    from webnorm.kernels.rendering.render import TARGETS, render_shader
    from webnorm.op.op import Task
    from webnorm.op.registry import default_op, op_named, options_of

    if target not in TARGETS:
        raise unknown("target", target, TARGETS)
    names = [kernel, *([] if diff is None else [diff])]
    roots, stems = tuple(wgsl or ()), {name.rpartition("/")[2] for name in names}
    # Paths, auto and misspelt names are not names of kernels: they need all kernels.
    found, broken = survey(roots, stems if stems <= own_names() else None)
    home = op_named(op or default_op().name)
    named = without_auto(names) or ()
    asked = {name: select(found, name, home.name, (AUTO, "copy"), broken) for name in named}
    values.report_unreadable(broken)
    info = values.adapter_or_none(adapter) if target == "native" else None
    target = target if info is None else info.target
    traits = BROWSER if info is None else info.traits
    # A page runs on other adapters, so the tuning of this adapter does not apply.
    tuning = values.recorded_tuning(info.description()) if info is not None and AUTO in names else None
    chosen = values.constant_values(constant)
    check_axes(chosen, list(asked.values()))
    shaders: list[Shader] = []
    for name in names:
        own = asked.get(name)
        its_op = home if own is None else own.op
        options = options_of(its_op, values.option_pairs(option, no_weight, no_bias))
        problem = its_op.problem(*_sizes(its_op, size, rows, cols), dtype=dtype, options=options)
        if own is None:
            variant = choose(found, Task(home, problem), traits, tuning).variant
        else:
            variant = chosen_variants(own, problem, traits, chosen)[0]
        if refusal := variant.refusal(problem, traits):
            raise WebnormError(f"{variant} cannot run {problem}: {refusal}")
        shaders.append(render_shader(variant, problem, target, traits, roots=roots))
    if cost:
        return _show_cost(shaders, roots, adapter)
    _show_text(shaders)


def _sizes(op: Op, size: Sequence[str] | None, rows: int | None, cols: int | None) -> tuple[int, ...]:
    """Return the sizes of the problem: given sizes, and defaults for the others."""
    given = {name: found[0] for name, found in values.size_lists(size, least=0).items() if found}
    given |= {name: one for name, one in (("rows", rows), ("cols", cols)) if one is not None}
    usual = _USUAL if op.source is None else {}
    return op.sizes_of({**usual, **given})


def _show_text(shaders: Sequence[Shader]) -> None:
    """Print a shader, or a unified diff from a second shader; a pipe gets no colours and whole lines."""
    text = _text(shaders[0])
    if two := len(shaders) == 2:
        old, new = (_text(one).splitlines() for one in reversed(shaders))
        names = [one_line(str(one.variant)) for one in reversed(shaders)]
        text = "\n".join(difflib.unified_diff(old, new, names[0], names[1], lineterm=""))
    console = Screen()
    if console.is_terminal:
        # Imported here, because only terminals need Pygments.
        from rich.syntax import Syntax

        language = "diff" if two else "wgsl"
        console.print(Syntax(text, language, theme=_THEME, background_color="default", word_wrap=True))
    else:
        emit(text)


def _text(shader: Shader) -> str:
    """Return the WGSL after a comment with the kernel, problem, target and constants."""
    from webnorm.kernels.headers.variants import format_constants

    variant = shader.variant
    return (
        f"// {one_line(variant.kernel.label)} for {shader.problem}, target {shader.target}\n"
        f"// {format_constants(variant.constants)}\n{shader.text}"
    )


def _show_cost(shaders: Sequence[Shader], roots: Sequence[Path], adapter: str | None) -> None:
    """Print the accesses, barriers and subgroup operations of one or two variants, one count per line."""
    from webnorm.lab.process.worker import Worker, explain_worker_failure
    from webnorm.lab.run.jobs import CostJob, VariantSpec, count_costs

    job = CostJob(tuple((shader.problem, VariantSpec.of(shader.variant)) for shader in shaders), tuple(roots))
    with explain_worker_failure("counting"), Worker(adapter) as worker:
        costs: list[ShaderCost] = list(worker.stream(count_costs, job))
    console = Screen()
    for shader in shaders:
        console.print(escaped_line(f"counted by running {shader.variant}", "bold"))
    kernels = [shader.variant.kernel for shader in shaders]
    alike = len({kernel.name for kernel in kernels}) == 1
    # A single kernel needs no name in the heading.
    names = [one_line(one.label if alike else one.name) for one in kernels] if len(kernels) > 1 else [""]
    columns = [Column("", [Text(what) for what in (*_COUNTED, _MEMORY)], name=True)]
    for name, cost in zip(names, costs, strict=True):
        counts = (getattr(cost, field) for field in _COUNTED.values())
        texts = ["not counted" if count is None else f"{count:.3g}" for count in counts]
        columns.append(Column(name, [*map(Text, texts), Text(str(cost.workgroup_bytes))], right=True))
    console.print(FittedTable(columns))
    if any(None in vars(cost).values() for cost in costs):
        console.print(_NOT_COUNTED, style="dim")
