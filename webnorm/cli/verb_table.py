"""The verbs that `webnorm --help` lists. A verb's module is loaded when the verb runs.

Each verb has a one-sentence summary here. The docstring of its function adds details. `webnorm VERB --help`
shows both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import getdoc
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from webnorm.cli.options import backend, completion, conflicts, former_names, help, user_ops
from webnorm.errors import UnknownName, WebnormError

# name: (function, summary), in the order of `webnorm --help`.
VERBS = {
    "doctor": (
        "doctor:doctor",
        "Show adapters, drivers, features and limits, and report what is missing.",
    ),
    "list": ("list:list_kernels", "List the ops and their kernels, one line per kernel file."),
    "show": (
        "show:show",
        "Print the rendered WGSL of a kernel for one problem, target and set of constants.",
    ),
    "new": (
        "new:new",
        "Create a kernel file to start from: a copy of an existing kernel that passes `webnorm check`.",
    ),
    "new-op": (
        "new_op:new_op",
        "Create the folder of a new op: a NumPy reference and a kernel that passes `webnorm check`.",
    ),
    "play": ("play:play", "Watch a kernel file and recompile, check and time it on every save."),
    "check": (
        "check:check",
        "Check every kernel against a float64 NumPy reference on inputs that broke other implementations.",
    ),
    "scan": (
        "scan:scan",
        "List the norms of a model, with the kernel that suits each.",
    ),
    "evaluate": (
        "evaluate:evaluate",
        "Compile, check, explain and time one kernel file, with one JSON object for programs.",
    ),
    "bench": (
        "bench:bench",
        "Time kernels next to a plain copy kernel, and check each one before and after timing.",
    ),
    "tune": (
        "tune:tune",
        "Find the fastest kernel and constants for each problem on this adapter, "
        'and record them for kernel="auto".',
    ),
    "export": (
        "export:export",
        "Write an npm package without dependencies: shaders for each class of adapters, "
        "host code, types and tests.",
    ),
    "verify": (
        "verify:verify",
        "Verify an export: its files, its shaders in Chrome's compiler, its results and times in a browser.",
    ),
    "collect": ("collect:collect", "Receive and store the results that visitors of a lab page send."),
    "compare": (
        "compare:compare",
        "Compare two sets of results: each kernel and problem is SAME, FASTER, SLOWER, UNCLEAR or BROKEN.",
    ),
    "baselines": ("baselines:baselines", "List or remove the results that `webnorm bench --save` keeps."),
    "cluster": (
        "cluster:VERBS",
        "List the workers of a Dask cluster with their adapters, versions and copy speeds.",
    ),
    "store": ("store:VERBS", "Store results from many runs and report regressions."),
}


class VerbGroup(TyperGroup):
    """A command that has verbs."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return typer's parameters, sorted by panel."""
        return _prepared(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help; typer prints nothing afterwards."""
        help.show_help(ctx, verbs=[*self.commands.values()])

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the verb that `args` begin with; refuse options before it, which would have no effect."""
        name, command, rest = super().resolve_command(ctx, args)
        if given := [*_given(ctx)]:
            options, have = ", ".join(given), "has" if len(given) == 1 else "have"
            raise WebnormError(f"{options} {have} no effect before {args[0]}; write its options after it")
        return name, command, rest


class TopLevelVerbs(VerbGroup):
    """The verbs of `webnorm`, as names and summaries; only the verb that runs is loaded."""

    def __init__(self, **attributes: Any) -> None:
        listed = {name: TyperCommand(name, help=summary) for name, (_, summary) in VERBS.items()}
        super().__init__(**{**attributes, "commands": listed})

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the verb that `args` begin with, by its name or former name, and load it."""
        verb = former_names.current_verb(args[0])
        name, command, rest = super().resolve_command(ctx, [verb, *args[1:]])
        return name, command and _loaded(verb), rest


class VerbCommand(TyperCommand):
    """A verb with help in panels, completion of values, and errors for options that have no effect."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb, unless its rules refuse the options."""
        conflicts.check_options(ctx.command_path.partition(" ")[2], _given(ctx))
        backend.choose(ctx.params)
        user_ops.load(ctx.params)
        try:
            return super().invoke(ctx)
        except UnknownName as error:
            raise user_ops.with_folder(error, self.get_params(ctx)) from error

    def get_params(self, ctx: Any) -> list[Any]:
        """Return typer's parameters, sorted by panel."""
        return _prepared(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments, in which options may have their former names."""
        return super().parse_args(ctx, former_names.current_options(args, self.get_params(ctx)))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help; typer prints nothing afterwards."""
        help.show_help(ctx)


def _given(ctx: Any) -> dict[str, Any]:
    """Return the values of the options and arguments on the command line, by name."""
    return {
        help.long_name(one): ctx.params[one.name]
        for one in ctx.command.get_params(ctx)
        if one.name in ctx.params and getattr(ctx.get_parameter_source(one.name), "name", "") == "COMMANDLINE"
    }


def _prepared(params: list[Any]) -> list[Any]:
    """Return the parameters sorted by panel, with completion of their values."""
    for one in params:
        if one.rich_help_panel is None:
            help.assign_panel(one)
            completion.complete(one, help.long_name(one))
            one.process_value = partial(_process, one, one.process_value)
    return sorted(params, key=help.panel_order)


def _process(param: Any, convert: Callable[..., Any], ctx: Any, value: Any) -> Any:
    """Return a parameter's value as typer converts it; values that need no conversion are passed on.

    Typer imports pydantic for any conversion, which takes longer than all conversions here.
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


def named_verb(words: Sequence[str]) -> str:
    """Return the verb that words begin with, such as "bench" or "store history"; "" without one."""
    first, second = (*words, "", "")[:2]
    verb = former_names.current_verb(first)
    if verb not in VERBS:
        return ""
    return f"{verb} {second}" if second in getattr(_loaded(verb), "commands", ()) else verb


def verbs_with(option: str) -> list[str]:
    """Return the verbs that have an option, such as "bench" or "store history"."""
    found = []
    for name in VERBS:
        verb = _loaded(name)
        inner = {f"{name} {one}": command for one, command in getattr(verb, "commands", {}).items()}
        commands = {name: verb, **inner}
        found += [one for one, command in commands.items() if _has(command, option)]
    return found


def _has(command: Any, option: str) -> bool:
    return any(option in one.opts for one in command.params)


def _help(summary: str, function: Callable[..., Any]) -> str:
    return f"{summary}\n\n{getdoc(function) or ''}"
