"""The messages for command lines that typer refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

from webnorm.cli.options import user_ops
from webnorm.cli.verb_table import verbs_with
from webnorm.errors import listing, nearest, unknown

# Phrases of pydantic, which typer uses for numbers, and the phrases that the command prints instead.
_EXPECTED = {
    "a valid number.*": "a number",
    "a valid integer.*": "a whole number",
    r"greater than or equal to (\S+)": r"\1 or more",
    r"less than or equal to (\S+)": r"\1 or less",
}


def usage_message(error: Any, arguments: Sequence[str]) -> str:
    """Return the message for typer's error, with the given value and the expectation."""
    message: str = error.format_message().rstrip(".?")
    context: Any = getattr(error, "ctx", None)
    found: re.Match[str] | None
    if found := re.fullmatch(r"Got unexpected extra argument\S* \((.+)\)", message):
        return _extra_arguments(found[1].split(" "), context, arguments)
    if found := re.fullmatch(r"Missing argument '(\w+)'", message):
        return f"{found[1]} is missing; expected {_usage(context)}"
    if found := re.match(r"No such option: (\S+)", message):
        return _unknown_option(found[1], context)
    if found := re.match(r"No such command '(.*?)'", message):
        return str(unknown("verb", found[1], context.command.commands))
    if message == "Missing command":
        return f"the verb is missing; expected one of {listing(context.command.commands)}"
    if found := re.fullmatch(r"Option '(\S+)' requires an argument", message):
        return f"{found[1]} has no value"
    return _wrong_value(message, getattr(getattr(error, "param", None), "opts", ()), arguments)


def _usage(context: Any) -> str:
    """Return a verb's usage, such as "webnorm compare [OPTIONS] OLD NEW"."""
    usage = " ".join(context.command.collect_usage_pieces(context))
    return f"{context.command_path} {re.sub('[{}]', '', usage)}"


def _wrong_value(message: str, names: Sequence[str], arguments: Sequence[str]) -> str:
    """Return typer's message about the value of an option with these names; it is short for a number."""
    given = [value for word, value in pairwise((*arguments, "")) if word in names]
    given += [word.partition("=")[2] for word in arguments if word.partition("=")[0] in names and "=" in word]
    if not given:
        return message
    if given[-1].casefold() == "nan":
        return f"{max(names, key=len)} is {given[-1]!r}; expected a number"
    for rule, expected in _EXPECTED.items():
        if found := re.fullmatch(f".*: Input should be {rule}", message):
            return f"{max(names, key=len)} is {given[-1]!r}; expected {found.expand(expected)}"
    return f"{message}; it is {given[-1]!r}"


def _unknown_option(name: str, context: Any) -> str:
    """Return the message for an option that a verb does not have."""
    problem = f"unknown option {name}"
    params = context.command.params if context else ()
    opposite = f"--{name[5:]}" if name.startswith("--no-") else f"--no-{name[2:]}"
    for one in params:
        if one.param_type_name == "argument" and name[2:] in (one.name, one.metavar.lower()):
            return f"{problem}; {one.metavar} is an argument; expected {_usage(context)}"
        if opposite in one.opts and one.is_flag:
            return f"{problem}; that is the default without {opposite}"
    if others := verbs_with(name):
        return f"{problem}; it is an option of {', '.join(others)}"
    near = nearest(name, [known for one in params for known in one.opts], 0.75)
    return f"{problem}; did you mean {near}?" if near else problem


def _extra_arguments(words: Sequence[str], context: Any, arguments: Sequence[str]) -> str:
    """Return the message for words that are neither options nor expected arguments."""
    problem = f"unexpected argument{'s' if len(words) > 1 else ''} {' '.join(words)}"
    options = {name: one for one in context.command.params for name in one.opts}
    hint = next(_more_values(words, options, arguments), None) or _without_option(words, options)
    if hint:
        return f"{problem}; did you mean {hint}?"
    flags = (
        before
        for before, word in pairwise(arguments)
        if word in words and before in options and getattr(options[before], "is_flag", False)
    )
    if flag := next(flags, None):
        return f"{problem}; {flag} takes no value"
    return f"{problem}; expected {_usage(context)}"


def _more_values(words: Sequence[str], options: dict[str, Any], arguments: Sequence[str]) -> Iterator[str]:
    """Yield options with the words that follow their values, such as "--dtype float32,float16"."""
    # The verb is the first word, so a value is the second at least.
    for at, word in enumerate(arguments[2:], 2):
        name, _, value = arguments[at - 1].partition("=")
        if not name.startswith("-"):
            name, value = arguments[at - 2], arguments[at - 1]
        option = options.get(name)
        if word not in words or option is None or option.is_flag:
            continue
        values = [value, *takewhile(words.__contains__, arguments[at:])]
        pairs = ["=" in one for one in values]
        if "a list" in option.help and not any(pairs[1:]):
            yield f"{name} {','.join(values)}"
        elif option.multiple and len({*pairs}) == 1:
            yield " ".join(f"{name} {one}" for one in values)


def _without_option(words: Sequence[str], options: dict[str, Any]) -> str:
    """Return the ops and kernels among the words with their options, such as "--op rms_norm"."""
    found: dict[str, str] = {}
    for word in words:
        option, value = _op_or_kernel(word)
        if option in options:
            # Other verbs take their op or kernel without an option.
            found.setdefault(option, value)
    return " ".join(f"{option} {value}" for option, value in found.items())


def _op_or_kernel(word: str) -> tuple[str, str]:
    """Return the option for a word and the option's value; "" for a word that is no op and no kernel."""
    from webnorm.kernels.headers.library import AUTO, survey
    from webnorm.kernels.headers.sources import is_wgsl
    from webnorm.op.registry import OPS, is_op_folder
    from webnorm.op.selection import matches

    if word in OPS or is_op_folder(Path(word)):
        return "--op", word
    if is_wgsl(word) or word == AUTO or any(matches(word, kernel.name) for kernel in survey()[0]):
        return "--kernel", word
    folders = user_ops.folders_called(word)
    return ("--op", folders[0]) if folders else ("", "")
