"""The verbs that `webnorm --help` lists. A verb's module is loaded when the verb is asked for.

What a verb does stands here in one sentence; the docstring of its function goes on from there, and
`webnorm VERB --help` shows both.
"""

from __future__ import annotations

from inspect import getdoc
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

# name: (function, summary), in the order of `webnorm --help`.
VERBS = {
    "doctor": (
        "doctor:doctor",
        "Adapters, driver, features, limits, the probed subgroup size, and what is missing.",
    ),
    "list": (
        "listing:list_kernels",
        "Ops and kernels: summary, what each changes, features needed, whether this adapter runs it.",
    ),
    "show": ("show:show", "The rendered WGSL of a kernel, for a problem, a target and constants."),
    "new": (
        "new:new",
        "Write a kernel that passes `webnorm check`, to be changed: "
        "a copy of another with a header of its own.",
    ),
    "play": (
        "play:play",
        "Judge a kernel's file at every save: compiled, held against float64, explained, timed.",
    ),
    "check": (
        "check:check",
        "Hold every kernel against float64 on the inputs that broke other implementations.",
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
    "compare": (
        "compare:compare",
        "SAME, FASTER, SLOWER, UNCLEAR or BROKEN for each kernel and problem, "
        "from the samples of several runs.",
    ),
}


class Verbs(TyperGroup):
    """What typer asks for names and summaries, and for the one verb that is run."""

    def __init__(self, **attributes: Any) -> None:
        listed = {name: TyperCommand(name, help=summary) for name, (_, summary) in VERBS.items()}
        super().__init__(**{**attributes, "commands": listed})

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The verb that `args` begin with, as typer's own does it, loaded."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and _loaded(args[0]), rest


def _loaded(name: str) -> Any:
    import pkgutil

    place, summary = VERBS[name]
    function = pkgutil.resolve_name(f"webnorm.cli.{place}")
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
    alone.command(name, help=f"{summary}\n\n{getdoc(function) or ''}")(function)
    return get_command(alone)
