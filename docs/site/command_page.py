"""The reference page of the command, from the help of `webnorm VERB --help`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from webnorm.cli.app import app
from webnorm.cli.options import help
from webnorm.cli.verb_table import VERBS
from wording import paragraphs, plain


def page() -> str:
    """Return the page: the command, and each verb with its options, exit statuses and examples."""
    group: Any = get_command(app)
    context = group.make_context("webnorm", [], resilient_parsing=True)
    verbs = (f"[`{verb}`](#webnorm-{verb})\n: {plain(summary)}" for verb, (_, summary) in VERBS.items())
    parts = ["# The command", "## webnorm", *_command(context, ""), "### Verbs", "\n\n".join(verbs)]
    for verb in VERBS:
        _, command, _ = group.resolve_command(context, [verb])
        own = command.make_context(verb, [], context, resilient_parsing=True)
        parts += [f"## webnorm {verb}", *_command(own, verb)]
        for name, inner in getattr(command, "commands", {}).items():
            parts.append(f"## webnorm {verb} {name}")
            parts += _command(inner.make_context(name, [], own, resilient_parsing=True), f"{verb} {name}")
    return "\n\n".join(parts) + "\n"


def _command(context: Any, verb: str) -> Iterator[str]:
    """Yield the sections about a verb, or about the command itself."""
    usage = context.command.get_usage(context).removeprefix("Usage:").strip()
    yield f"```text\n{usage}\n```"
    yield paragraphs(context.command.help)
    for title, entries in help.panels(context).items():
        yield f"### {title}"
        yield "\n\n".join(f"`{name}`\n: {plain(meaning)}" for name, meaning in entries)
    yield "### Exit status"
    yield "\n\n".join(f"`{status}`\n: {plain(meaning)}" for status, meaning in help.exit_statuses(verb))
    if verb:
        yield "### Examples"
        yield "```console\n" + "\n".join(help.examples(verb)) + "\n```"
