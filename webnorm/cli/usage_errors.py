"""The messages for command lines that typer refuses."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from webnorm.cli.options import former_names, user_ops
from webnorm.cli.options.shared import takes_list
from webnorm.cli.verb_table import verbs_with
from webnorm.errors import CLOSE, listing, nearest, shell_command, shell_word, unknown

# Phrases of pydantic, which typer uses for numbers, and the phrases that the command prints instead. Typer's
# error has the expectation only as text.
_EXPECTED = {
    "a valid number.*": "a number",
    "a valid integer.*": "a whole number",
    r"greater than or equal to (\S+)": r"\1 or more",
    r"less than or equal to (\S+)": r"\1 or less",
}
# An option and its value, or "" and a word that belongs to no option.
_Part = tuple[str, str]


def usage_message(error: Any, arguments: Sequence[str]) -> str:
    """Return the message for typer's error, with the given value and the expectation."""
    message: str = error.format_message().rstrip(".?")
    context: Any = error.ctx
    # Typer exports few of its classes of errors, so their names are compared.
    match type(error).__name__:
        case "NoSuchOption":
            return _unknown_option(error.option_name, context)
        case "BadOptionUsage":
            # A lacking value or one too many; only the text differs.
            return f"{error.option_name} {'has' if 'requires' in message else 'takes'} no value"
        case "MissingParameter" if error.param.param_type_name == "argument":
            return f"{error.param.metavar} is missing; expected {_usage(context)}"
        case "BadParameter" if error.param:
            return _wrong_value(message, error, _parts(arguments, context))
        case "UsageError" if context:
            parts = _parts(arguments, context)
            return _wrong_verb(context, parts) or _extra_arguments(context, parts) or message
    return message


def _parts(arguments: Sequence[str], context: Any) -> list[_Part]:
    """Return the options of a command line with their values, and its other words, as typer reads them."""
    options = _options(context)
    rest = deque(former_names.current_options(arguments, context.command.params))
    parts: list[_Part] = []
    while rest:
        word = rest.popleft()
        name, equals, value = word.partition("=")
        if word == "--":
            return [*parts, *(("", one) for one in rest)]
        if word[:2] in options and word[2:]:
            # "-vk naive" stands for "-v -k naive", and "-knaive" for "-k naive".
            name, equals = word[:2], ""
            rest.appendleft(f"-{word[2:]}" if options[name].is_flag else word[2:])
        if name not in options:
            parts.append(("", word))
        elif equals or options[name].is_flag:
            parts.append((name, value))
        else:
            parts.append((name, rest.popleft() if rest else ""))
    return parts


def _options(context: Any) -> dict[str, Any]:
    """Return the options of a verb by each of their names."""
    return {
        name: one for one in context.command.params if one.param_type_name == "option" for name in one.opts
    }


def _extra(context: Any, parts: Sequence[_Part]) -> list[int]:
    """Return the positions of the words that follow a verb and its arguments."""
    verbs = context.command_path.count(" ")
    expected = sum(one.param_type_name == "argument" for one in context.command.params)
    return [at for at, (option, _) in enumerate(parts) if not option][verbs + expected :]


def _usage(context: Any) -> str:
    """Return a verb's usage, such as "webnorm compare [OPTIONS] OLD NEW"."""
    usage = " ".join(context.command.collect_usage_pieces(context))
    return f"{context.command_path} {re.sub('[{}]', '', usage)}"


def _wrong_value(message: str, error: Any, parts: Sequence[_Part]) -> str:
    """Return the message about the value of an option; it is short for a number."""
    given = [value for name, value in parts if name in error.param.opts]
    if not given:
        return message
    wrong = f"{max(error.param.opts, key=len)} is {given[-1]!r}"
    for rule, expected in _EXPECTED.items():
        if found := re.fullmatch(f"Input should be {rule}", error.message):
            # NaN is a number, but it is in no range.
            out_of_range = found.re.groups and given[-1].casefold() == "nan"
            return f"{wrong}; expected {'a number' if out_of_range else found.expand(expected)}"
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
    near = nearest(name, [known for one in params for known in one.opts], CLOSE)
    return f"{problem}; did you mean {near}?" if near else problem


def _wrong_verb(context: Any, parts: Sequence[_Part]) -> str:
    """Return the message for a missing or unknown verb; "" for a command without verbs."""
    verbs = getattr(context.command, "commands", None)
    if verbs is None:
        return ""
    for at in _extra(context, parts):
        return str(unknown("verb", parts[at][1], verbs))
    return f"the verb is missing; expected one of {listing(verbs)}"


def _extra_arguments(context: Any, parts: Sequence[_Part]) -> str:
    """Return the message for words that are neither options nor expected arguments; "" without any."""
    words = [parts[at][1] for at in _extra(context, parts)]
    if not words:
        return ""
    problem = f"unexpected argument{'s' if len(words) > 1 else ''} {shell_command(words)}"
    options = _options(context)
    hint = next(_more_values(context, parts), None) or _without_option(words, options)
    if hint:
        return f"{problem}; did you mean {hint}?"
    for name, _ in _followed(context, parts):
        if options[name].is_flag:
            return f"{problem}; {name} takes no value"
    return f"{problem}; expected {_usage(context)}"


def _followed(context: Any, parts: Sequence[_Part]) -> Iterator[tuple[str, list[str]]]:
    """Yield each option that unexpected words follow, with its value and these words."""
    extra = _extra(context, parts)
    for at, (name, value) in enumerate(parts):
        more = [parts[one][1] for one in takewhile(extra.__contains__, count(at + 1))]
        if name and more:
            yield name, [value, *more]


def _more_values(context: Any, parts: Sequence[_Part]) -> Iterator[str]:
    """Yield options with the words that follow their values, such as "--dtype float32,float16"."""
    options = _options(context)
    for name, words in _followed(context, parts):
        option = options[name]
        if option.is_flag or options.get(_op_or_kernel(words[1])[0], option) is not option:
            continue
        # Words may have a comma at their end, or be one.
        values = [*filter(None, dict.fromkeys(word.strip(",") for word in words))]
        pairs = ["=" in one for one in values]
        if takes_list(context.command_path.partition(" ")[2], option.name) and not any(pairs[1:]):
            yield f"{name} {shell_word(','.join(values))}"
        elif option.multiple and len({*pairs}) == 1:
            yield " ".join(f"{name} {shell_word(one)}" for one in values)


def _without_option(words: Sequence[str], options: dict[str, Any]) -> str:
    """Return the ops and kernels among the words with their options, such as "--op rms_norm"."""
    found: dict[str, str] = {}
    for word in words:
        option, value = _op_or_kernel(word)
        if option in options:
            # Other verbs take their op or kernel without an option.
            found.setdefault(option, value)
    return " ".join(f"{option} {shell_word(value)}" for option, value in found.items())


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
