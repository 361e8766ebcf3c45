"""`webnorm list`: the ops and kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from webnorm.cli.options import shared
from webnorm.cli.options.values import adapter_or_none, report_unreadable
from webnorm.cli.terminal.streams import emit
from webnorm.errors import WebnormError

if TYPE_CHECKING:
    from webnorm.gpu.device import AdapterInfo
    from webnorm.kernels.headers.kernel import Kernel
    from webnorm.op.problem import Problem

# The shape that an adapter is asked about; a kernel may still refuse longer rows.
_ROWS, _COLS = 1024, 1024


def list_kernels(
    names: Annotated[
        list[str] | None,
        Argument(help="Kernels, patterns like 'welford*' or .wgsl files; one alone is shown in full."),
    ] = None,
    op: Annotated[
        str | None,
        Option(
            help="Only kernels of layer_norm, layer_norm_backward, rms_norm or rms_norm_backward, a list of "
            "them, or a pattern such as 'rms*'."
        ),
    ] = None,
    dtype: shared.Dtype = None,
    option: shared.Option = None,
    verbose: Annotated[
        bool, Option("--verbose", "-v", help="All that each kernel's header tells, not a line.")
    ] = False,
    json: Annotated[
        bool, Option("--json", help="A list of objects on standard output: an op and a kernel each.")
    ] = False,
    here: Annotated[bool, Option("--here", help="Ask the adapter, and say which kernels it runs.")] = False,
    wgsl: shared.Wgsl = None,
    adapter: shared.Adapter = None,
) -> None:
    """With --dtype and --option the ops that have no such problem are left out, and --here is about such a
    problem. --adapter implies --here.
    """
    from webnorm.cli.terminal.screen import Screen
    from webnorm.cli.verbs import catalogue
    from webnorm.kernels.headers.library import survey
    from webnorm.op.registry import OPS
    from webnorm.op.selection import select_names

    ops = OPS if op is None else select_names(op, OPS, "op")
    kernels, broken = survey(wgsl or ())
    kernels = _named([*kernels, *_loaded(names or (), kernels)], [*ops], names)
    problems = _problems(kernels, dtype or "float32", option or ())
    asked = here or adapter is not None
    info = adapter_or_none(adapter) if asked else None
    ask = _asking(info) if asked else None
    found = [
        catalogue.ListedKernel(kernel)
        if ask is None
        else catalogue.ListedKernel(kernel, *ask(kernel, problem))
        for kernel in kernels
        if (problem := problems.get(kernel.op.name)) is not None
    ]
    if json:
        emit(catalogue.to_json(found))
    elif verbose or (names and len({one.kernel.name for one in found}) == 1):
        catalogue.show_long(Screen(), catalogue.by_file(found))
    else:
        about = f"{dtype or 'float32'} of {_COLS} columns, on {info or 'no adapter'}" if asked else None
        catalogue.show_short(Screen(), catalogue.by_file(found), about)
    report_unreadable(one for one in broken if one.op.name in ops)


def _loaded(names: Sequence[str], known: Sequence[Kernel]) -> Iterator[Kernel]:
    """The kernels of the files that are named, but for those that are known."""
    from webnorm.kernels.headers.header import load_all
    from webnorm.kernels.headers.sources import is_wgsl

    for name in names:
        if is_wgsl(name) and not any(_fits(kernel, name) for kernel in known):
            yield from load_all(Path(name))


def _named(kernels: Sequence[Kernel], ops: Sequence[str], patterns: Sequence[str] | None) -> list[Kernel]:
    """The kernels of some ops whose name, op/name or file is among those named; all where none is."""
    from webnorm.kernels.headers.library import unknown_kernel
    from webnorm.kernels.headers.sources import is_wgsl

    own = [kernel for kernel in kernels if kernel.op.name in ops]
    for pattern in patterns or ():
        if not any(_fits(kernel, pattern) for kernel in own):
            raise unknown_kernel(Path(pattern).stem if is_wgsl(pattern) else pattern, kernels, ops)
    return [kernel for kernel in own if not patterns or any(_fits(kernel, one) for one in patterns)]


def _fits(kernel: Kernel, pattern: str) -> bool:
    from webnorm.files.atomic import resolved
    from webnorm.kernels.headers.sources import is_wgsl
    from webnorm.op.selection import matches

    if is_wgsl(pattern):
        return resolved(kernel.path) == resolved(Path(pattern))
    return matches(pattern, kernel.name) or matches(pattern, kernel.label)


def _problems(kernels: Iterable[Kernel], dtype: str, options: Sequence[str]) -> dict[str, Problem]:
    """The problem that is asked about, for each op that has it; WebnormError where none has."""
    from webnorm.op.op import UnsupportedProblem
    from webnorm.op.registry import options_of

    found, foreign = {}, None
    for op in {kernel.op.name: kernel.op for kernel in kernels}.values():
        try:
            found[op.name] = op.problem(_ROWS, _COLS, dtype=dtype, options=options_of(op, options))
        except UnsupportedProblem as error:
            foreign = error
    if foreign is not None and not found:
        raise foreign
    return found


def _asking(info: AdapterInfo | None) -> Callable[[Kernel, Problem], tuple[bool, str | None]]:
    """What tells whether an adapter runs a kernel, and why not."""
    from webnorm.choice.defaults import default_variant

    traits = None if info is None else info.traits

    def ask(kernel: Kernel, problem: Problem) -> tuple[bool, str | None]:
        if traits is None:
            return False, "there is no adapter"
        try:
            reason = default_variant(kernel, problem, traits).refusal(problem, traits)
        except WebnormError as error:
            reason = str(error)
        return reason is None, reason

    return ask
