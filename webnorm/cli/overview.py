"""What `doctor`, `list`, `show` and `tune` put on the screen: adapters, kernels, shaders, costs, choices."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.syntax import Syntax
from rich.table import Column, Table
from rich.text import Text

from webnorm.choice.defaults import default_variant
from webnorm.choice.tuning import Tuning
from webnorm.cli.screen import figures, plain, words
from webnorm.errors import WebnormError, one_line
from webnorm.gpu.device import AdapterInfo
from webnorm.kernels.kernel import Kernel
from webnorm.kernels.render import Shader
from webnorm.kernels.traits import Traits
from webnorm.kernels.variants import format_constants
from webnorm.lab.cost import Cost
from webnorm.lab.tables import NOTHING, constants_text, device_text, percent_text
from webnorm.lab.tune import Tuned
from webnorm.norms.case import Case
from webnorm.norms.ops import Foreign, Op
from webnorm.norms.presets import PRESETS
from webnorm.norms.problem import Problem

# The shape that `list` asks about; a kernel may still refuse longer rows.
_ROWS, _COLS = 1024, 1024
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


def _bare(*columns: Column) -> Table:
    return Table(*columns, box=None, pad_edge=False)


def adapter_table(found: Sequence[AdapterInfo], used: AdapterInfo) -> Table:
    """Every adapter by its index, and which of them is used."""
    table = _bare(*map(words, ("", "adapter", "backend", "type", "driver", "features")))
    for adapter in found:
        table.add_row(
            "used" if adapter.index == used.index else str(adapter.index),
            *map(plain, (adapter.name, adapter.backend, adapter.type, adapter.driver)),
            ", ".join(sorted(adapter.features)),
        )
    return table


def device_facts(description: Mapping[str, Any]) -> Table:
    """The opened device: what the probes found and the limits that matter."""
    timestamps, software = "timestamp-query" in description["features"], description["type"] == "CPU"
    facts = {
        "subgroup size": f"{description.get('subgroup_size', 'no subgroups')} (probed)",
        "timing": "timestamp queries" if timestamps else "wall clock: timestamp queries do not work",
        "software": "yes: its ranking of kernels is not a GPU's" if software else "no",
        **{name: f"{value:,}" for name, value in description["limits"].items()},
        "wgpu-py": description["wgpu"],
    }
    table = _bare(Column(style="bold"), words(""))
    table.show_header = False
    for fact in facts.items():
        table.add_row(*fact)
    return table


def kernel_table(
    kernels: Sequence[Kernel], traits: Traits | None, dtype: str, options: Sequence[str]
) -> Table:
    """Ops and kernels, what each changes, what it needs and whether this adapter runs it.

    `dtype` and `options` (see Options.changed) are those of the problem that is asked about; ops that have no
    such problem are left out.
    """
    problems = {kernel.op.name: _typical(kernel.op, dtype, options) for kernel in kernels}
    kernels = [kernel for kernel in kernels if problems[kernel.op.name] is not None]
    what = Column("what it is, what it changes", overflow="fold", ratio=1)
    columns = Column("kernel", no_wrap=True), what, words("needs"), words("runs here")
    table = Table(*columns, pad_edge=False)
    previous = None
    for kernel in kernels:
        if previous is not None and previous != kernel.op:
            table.add_section()
        previous = kernel.op
        name = plain(kernel.name, "bold")
        if kernel.op.name != kernel.name:
            name = Text(f"{kernel.op.name}/\n  ", "bold").append(name)
        about = Text.assemble(plain(kernel.summary), "\n", plain(kernel.differs, "dim"))
        if kernel.unstable:
            about.append("\n").append(plain(f"unstable: {kernel.unstable}", "yellow"))
        needs = [one if tree == 1 else f"{one} (optional)" for one, tree in kernel.features.items()]
        runs = _runs(kernel, traits, problems[kernel.op.name])
        table.add_row(name, about, plain(", ".join(needs) or "-"), runs)
    return table


def _typical(op: Op, dtype: str, options: Sequence[str]) -> Problem | None:
    try:
        return op.problem(_ROWS, _COLS, dtype, options=op.defaults.changed(options))
    except Foreign:
        return None


def _runs(kernel: Kernel, traits: Traits | None, problem: Problem | None) -> Text:
    if traits is None or problem is None:
        return Text("no adapter", style="yellow")
    try:
        refusal = default_variant(kernel, problem, traits).refusal(problem, traits)
    except WebnormError as error:
        refusal = str(error)
    return Text("yes", style="green") if refusal is None else plain(f"no: {refusal}", "red")


def shader_text(shader: Shader) -> str:
    """The WGSL behind a comment that says what it is."""
    variant = shader.variant
    return (
        f"// {one_line(variant.kernel.label)} for {shader.problem}, target {shader.target}\n"
        f"// {format_constants(variant.constants)}\n{shader.text}"
    )


def highlighted(text: str, language: str) -> RenderableType:
    """Text in the colours of "wgsl" or "diff"."""
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


def device_line(description: Mapping[str, Any]) -> RenderableType:
    """The device, and what a software adapter's figures are worth."""
    line = plain(device_text(description), "bold") if description else Text("no device")
    if description.get("type") == "CPU":
        line.append(
            "\na software adapter: it ranks kernels by its own rules, which are not a GPU's", style="yellow"
        )
    return line


def corpus_table(cases: Sequence[Case]) -> Table:
    """The corpus of `check`: each case with its shape and where it comes from."""
    table = _bare(*map(words, ("case", "shape", "source")))
    for case in cases:
        unstable = " (one_pass has to fail)" if case.breaks_one_pass else ""
        rows, cols = case.shape
        shape = f"{rows}x{cols}" + (f", {case.options}" if str(case.options) else "")
        table.add_row(plain(case.name), shape, plain(case.source + unstable))
    return table


def tuning_table(tuning: Tuning) -> Table:
    """The choices of a tuning, and what each gained."""
    recorded = tuning.platform
    table = _bare(*map(words, ("problem", "kernel")), *map(figures, ("gain", "% of copy", "tried")))
    table.title = plain(f"{recorded.adapter} ({recorded.backend}, {recorded.driver}), {tuning.date}")
    table.title_justify = "left"
    for one in tuning.choices:
        table.add_row(
            plain(f"{one.op}, {one.problem}"),
            plain(f"{one.kernel} {constants_text(one.constants)}"),
            NOTHING if one.speedup is None else f"{one.speedup:{'.2f' if one.speedup < 1e6 else '.3g'}} x",
            percent_text(one.percent_of_copy),
            str(one.tried),
        )
    return table


def tuned_lines(tuned: Tuned) -> str:
    """What came of tuning one task: the choice and what it gained, then what was dropped, a line each."""
    choice = tuned.choice
    dropped = [one_line(f"  dropped: {reason}") for reason in tuned.dropped]
    if choice is None:
        return "\n".join([f"{tuned.task}: no variant is right", *dropped])
    named = f"{choice.kernel} {constants_text(choice.constants)}"
    gained = (
        f"the rules' choice, {tuned.rules}, does not run"
        if choice.speedup is None
        else "the rules' choice stays"
        if choice.speedup == 1
        else f"{choice.speedup:.2f} x as fast as the rules' {tuned.rules}"
    )
    return "\n".join([f"{tuned.task}: {named}: {gained}; {choice.tried} variants tried", *dropped])


def preset_table() -> Table:
    """The named workloads of `bench`."""
    table = _bare(*map(words, ("preset", "tasks", "where it comes from")))
    for name, preset in PRESETS.items():
        table.add_row(name, str(len(preset.tasks)), Text(preset.summary))
    return table
