"""`webnorm list`: the ops and kernels."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from webnorm.cli import options
from webnorm.cli.arguments import adapter_or_none, complain_of


def list_kernels(
    op: Annotated[str | None, Option(help="Only this operation's kernels.")] = None,
    dtype: options.Dtype = None,
    option: options.Option = None,
    wgsl: options.Wgsl = None,
    adapter: options.Adapter = None,
) -> None:
    """With --dtype and --option it says so for such a problem, and leaves out the ops that have none."""
    from webnorm.cli.overview import kernel_table
    from webnorm.cli.screen import Screen
    from webnorm.kernels.library import survey
    from webnorm.norms.ops import op_named

    if op is not None:
        op_named(op)
    found, broken = survey(wgsl or ())
    kernels = [kernel for kernel in found if op in (None, kernel.op.name)]
    info = adapter_or_none(adapter)
    traits = None if info is None else info.traits
    Screen().print(kernel_table(kernels, traits, dtype or "float32", option or ()))
    complain_of(one for one in broken if op in (None, one.op.name))
