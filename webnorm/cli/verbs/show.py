"""`webnorm show`: a kernel's text, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from webnorm.cli.options import (
    shared,
)
from webnorm.cli.options import (
    values as arguments,
)
from webnorm.cli.options.values import size_of
from webnorm.cli.terminal.streams import emit
from webnorm.errors import WebnormError, unknown

if TYPE_CHECKING:
    from webnorm.kernels.headers.kernel import Kernel
    from webnorm.kernels.headers.library import UnreadableKernel
    from webnorm.kernels.rendering.render import Shader


def show(
    kernel: Annotated[str, Argument(help="A kernel's name, op/kernel, the path of a .wgsl file, or auto.")],
    op: shared.Op = None,
    rows: Annotated[
        int, Option(parser=size_of("--rows", least=0), help="Rows of the problem, as 1024 or 4k.")
    ] = 1024,
    cols: Annotated[int, Option(parser=size_of("--cols"), help="Columns of the problem.")] = 1024,
    dtype: shared.Dtype = None,
    option: shared.Option = None,
    target: Annotated[
        str, Option(help="native (naga, through wgpu) or browser (Tint and others).")
    ] = "native",
    constant: shared.Constant = None,
    no_weight: shared.NoWeight = False,
    no_bias: shared.NoBias = False,
    diff: Annotated[
        str | None,
        Option(help="Another kernel: + what this one has and that has not, - what that one has alone."),
    ] = None,
    cost: Annotated[
        bool, Option("--cost", help="Count accesses, barriers and subgroup operations by running it.")
    ] = False,
    wgsl: shared.Wgsl = None,
    adapter: shared.Adapter = None,
) -> None:
    """A pipe gets the text alone: webnorm show layer_norm/welford --cols 768 > welford.wgsl."""
    from webnorm.choice.defaults import choose, chosen_variants
    from webnorm.kernels.headers.kernel import BROWSER
    from webnorm.kernels.headers.library import AUTO, check_axes, select, without_auto
    from webnorm.kernels.rendering.render import TARGETS, render_shader
    from webnorm.op.op import Task
    from webnorm.op.registry import default_op, op_named, options_of

    if target not in TARGETS:
        raise unknown("target", target, TARGETS)
    names = [name for name in (kernel, diff) if name is not None]
    found, broken = _surveyed(names, wgsl or ())
    home = op_named(op or default_op().name)
    named = without_auto(names) or ()
    asked = {name: select(found, name, home.name, (AUTO, "copy"), broken) for name in named}
    arguments.report_unreadable(broken)
    info = arguments.adapter_or_none(adapter) if target == "native" else None
    traits = BROWSER if info is None else info.traits
    # A page runs on other adapters than this one, of which no tuning tells.
    tuning = arguments.recorded_tuning(info.description()) if info is not None and AUTO in names else None
    chosen = arguments.constant_values(constant)
    check_axes(chosen, list(asked.values()))
    shaders: list[Shader] = []
    for name in names:
        own = asked.get(name)
        its_op = home if own is None else own.op
        options = options_of(its_op, arguments.option_pairs(option, no_weight, no_bias))
        problem = its_op.problem(*its_op.sizes_of({"rows": rows, "cols": cols}), dtype=dtype, options=options)
        if own is None:
            variant = choose(found, Task(home, problem), traits, tuning).variant
        else:
            variant = chosen_variants(own, problem, traits, chosen)[0]
        refusal = variant.refusal(problem, traits)
        if refusal:
            raise WebnormError(f"{variant} cannot run {problem}: {refusal}")
        shaders.append(render_shader(variant, problem, target, traits, roots=wgsl or ()))
    if cost:
        _show_cost(shaders, wgsl or (), adapter)
    else:
        _show_text(shaders)


def _surveyed(names: Sequence[str], roots: Sequence[Path]) -> tuple[list[Kernel], list[UnreadableKernel]]:
    """Kernels of these names; all of them for a path, auto and what is misspelt."""
    from webnorm.kernels.headers.library import own_names, survey

    stems = {name.rpartition("/")[2] for name in names}
    return survey(roots, stems if stems <= own_names() else None)


def _show_text(shaders: Sequence[Shader]) -> None:
    """A shader, or what it has beyond another; pipes get it without colours and broken lines."""
    from webnorm.cli.terminal.screen import Screen
    from webnorm.cli.verbs import shaders as view

    two = len(shaders) == 2
    text = view.shader_diff(*reversed(shaders)) if two else view.shader_text(shaders[0])
    console = Screen()
    if console.is_terminal:
        console.print(view.highlighted(text, "diff" if two else "wgsl"))
    else:
        emit(text)


def _show_cost(shaders: Sequence[Shader], roots: Sequence[Path], adapter: str | None) -> None:
    from webnorm.cli.terminal.screen import Screen
    from webnorm.cli.verbs import shaders as view
    from webnorm.lab.process.worker import Worker, explain_worker_failure
    from webnorm.lab.run.jobs import CostJob, VariantSpec, count_costs

    job = CostJob(tuple((shader.problem, VariantSpec.of(shader.variant)) for shader in shaders), tuple(roots))
    with explain_worker_failure("counting"), Worker(adapter) as worker:
        costs = list(worker.stream(count_costs, job))
    variants = (shader.variant for shader in shaders)
    Screen().print(view.CostTable([*zip(variants, costs, strict=True)]))
