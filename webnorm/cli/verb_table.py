"""The verbs that `webnorm --help` lists. A verb's module is loaded when the verb is asked for.

What a verb does stands here in one sentence; the docstring of its function goes on from there, and
`webnorm VERB --help` shows both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from inspect import getdoc
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from webnorm.cli.options import completion, conflicts, help, user_ops
from webnorm.errors import UnknownName, WebnormError

# name: (function, summary), in the order of `webnorm --help`.
VERBS = {
    "doctor": (
        "doctor:doctor",
        "Adapters, driver, features, limits, the probed subgroup size, what is missing, and what works.",
    ),
    "list": (
        "list:list_kernels",
        "Ops and kernels, a line each; of one all that its header tells, and whether it runs here.",
    ),
    "show": ("show:show", "The rendered WGSL of a kernel, for a problem, a target and constants."),
    "new": (
        "new:new",
        "Write a kernel that passes `webnorm check`, to be changed: "
        "a copy of another with a header of its own.",
    ),
    "new-op": (
        "new_op:new_op",
        "Write the folder of an op of your own: a NumPy reference and a kernel that passes `webnorm check`.",
    ),
    "play": (
        "play:play",
        "Judge a kernel's file at every save: compiled, held against float64, explained, timed.",
    ),
    "check": (
        "check:check",
        "Hold every kernel against float64 on the inputs that broke other implementations.",
    ),
    "judge": (
        "judge:judge",
        "Evaluate one kernel file for a program: compile, check, explain and time it, as one JSON object.",
    ),
    "bench": (
        "bench:bench",
        "Time kernels side by side with a copy, each checked against float64 before and after.",
    ),
    "tune": (
        "tune:tune",
        "Find the fastest kernel and constants for problems on this adapter, "
        'and record them for kernel="auto".',
    ),
    "export": (
        "export:export",
        "Write an npm package without dependencies: shaders for each class of adapters, "
        "host code, types, tests.",
    ),
    "verify": (
        "verify:verify",
        "Prove an export: its files, its shaders in Chrome's compiler, its answers and times in a browser.",
    ),
    "collect": (
        "collect:collect",
        "Receive what visitors of a lab's page send, and keep it: validated, and without their addresses.",
    ),
    "compare": (
        "compare:compare",
        "SAME, FASTER, SLOWER, UNCLEAR or BROKEN for each kernel and problem, "
        "from the samples of several runs.",
    ),
    "baselines": (
        "baselines:baselines",
        "List the results that `webnorm bench --save` keeps, or remove some.",
    ),
    "fleet": (
        "fleet:VERBS",
        "List the workers of a Dask cluster: adapter, driver, versions, GB/s of the copy.",
    ),
    "store": (
        "store:VERBS",
        "Keep results of many runs in one file, and tell what became slower.",
    ),
}


class VerbGroup(TyperGroup):
    """A command that has verbs."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Typer's own, panel by panel."""
        return _prepared(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print it; nothing is left for typer to print."""
        help.show_help(ctx, verbs=[*self.commands.values()])

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The verb that `args` begin with; options before it would have no effect."""
        name, command, rest = super().resolve_command(ctx, args)
        if given := [*_given(ctx)]:
            path = ctx.command_path
            raise WebnormError(f"{', '.join(given)}: of {path} alone, and without effect before {args[0]}")
        return name, command, rest


class TopLevelVerbs(VerbGroup):
    """What typer asks for names and summaries, and for the one verb that is run."""

    def __init__(self, **attributes: Any) -> None:
        listed = {name: TyperCommand(name, help=summary) for name, (_, summary) in VERBS.items()}
        super().__init__(**{**attributes, "commands": listed})

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The verb that `args` begin with, as typer's own does it, loaded."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and _loaded(args[0]), rest


class VerbCommand(TyperCommand):
    """A verb whose options are shown in panels, are completed, and are refused where they have no effect."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb, unless its rules refuse the options."""
        conflicts.check_options(ctx.command_path.partition(" ")[2], _given(ctx))
        user_ops.load(ctx.params)
        try:
            return super().invoke(ctx)
        except UnknownName as error:
            raise user_ops.with_folder(error, self.get_params(ctx)) from error

    def get_params(self, ctx: Any) -> list[Any]:
        """Typer's own, panel by panel."""
        return _prepared(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print it; nothing is left for typer to print."""
        help.show_help(ctx)


def _given(ctx: Any) -> dict[str, Any]:
    """The values of the options and arguments that the command line has, by their names."""
    return {
        help.long_name(one): ctx.params[one.name]
        for one in ctx.command.get_params(ctx)
        if one.name in ctx.params and getattr(ctx.get_parameter_source(one.name), "name", "") == "COMMANDLINE"
    }


def _prepared(params: list[Any]) -> list[Any]:
    """Parameters panel by panel, which complete their values."""
    for one in params:
        if one.rich_help_panel is None:
            help.assign_panel(one)
            completion.complete(one, help.long_name(one))
            one.process_value = partial(_process, one, one.process_value)
    return sorted(params, key=help.panel_order)


def _process(param: Any, convert: Callable[..., Any], ctx: Any, value: Any) -> Any:
    """What a parameter is given: as typer does it, but for what is not to be converted.

    For any conversion typer imports pydantic, which takes longer than all that it converts here.
    """
    absent = value is None and not param.required
    if not absent and type(value) is not param.type_descriptor.annotation:
        return convert(ctx, value)
    if absent and (getattr(param, "multiple", False) or param.nargs != 1):
        value = ()
    return value if param.callback is None else param.callback(ctx, param, value)


def _loaded(name: str) -> Any:
    import pkgutil

    place, summary = VERBS[name]
    found = pkgutil.resolve_name(f"webnorm.cli.verbs.{place}")
    alone = typer.Typer(add_completion=False)
    if isinstance(found, Mapping):
        alone = typer.Typer(name=name, cls=VerbGroup, help=summary, add_completion=False)
        for verb, (function, what) in found.items():
            if verb:
                alone.command(verb, cls=VerbCommand, help=_help(what, function))(function)
            else:
                alone.callback(invoke_without_command=True, help=_help(summary, function))(function)
    else:
        alone.command(name, cls=VerbCommand, help=_help(summary, found))(found)
    return get_command(alone)


def _help(summary: str, function: Callable[..., Any]) -> str:
    return f"{summary}\n\n{getdoc(function) or ''}"
