"""The `webnorm` command. It reads arguments, calls the lab and prints; nothing below it prints.

Verbs are loaded when they are asked for, and heavy imports stand inside them: `webnorm --help` answers at
once, and the help of a verb imports the ops that it lists.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, NoReturn

import typer

from webnorm._version import __version__
from webnorm.cli.options import completion
from webnorm.cli.terminal import exit_signals, modes, streams
from webnorm.cli.terminal.streams import complain, say
from webnorm.cli.verb_table import TopLevelVerbs
from webnorm.cli.work.jobs import BAD_USAGE, INTERRUPTED, OK, AfterInterrupt, Interrupted
from webnorm.errors import WebnormError

app = typer.Typer(
    name="webnorm",
    cls=TopLevelVerbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A lab for WGSL compute kernels: check them against NumPy in float64, time and tune them, and "
    "export them to browsers. LayerNorm, RMSNorm and their gradients are built in. You can add any op that "
    "NumPy can compute.\n\n"
    "Start with `webnorm doctor` to see your adapters, then run `webnorm bench --quick`. "
    "`webnorm new-op NAME` creates an op of your own.",
)


# What typer raises for arguments that it does not understand; it exports a kind of it alone.
_UsageError: Any = typer.BadParameter.__base__
# What pydantic, which typer asks, says that a number should be, and what is said here.
_EXPECTED = {
    "a valid number.*": "a number",
    "a valid integer.*": "a whole number",
    r"greater than or equal to (\S+)": r"\1 or more",
    r"less than or equal to (\S+)": r"\1 or less",
}


def run() -> NoReturn:
    """The console script: any mistake of the user's is one line on stderr and exit status 2.

    A signal that ends it is answered as Ctrl-C is; then the process dies of it, as its parent expects. Ctrl-C
    is ignored from then on.
    """
    with exit_signals.watched():
        try:
            try:
                status, complaints = _run(sys.argv[1:])
            finally:
                exit_signals.ignore_interrupts()
        except KeyboardInterrupt:
            # Another one, while the first was answered.
            exit_signals.ignore_interrupts()
            status, complaints = INTERRUPTED, []
        ended = exit_signals.status()
        try:
            if complaints:
                complain("; ".join(complaints))
        finally:
            modes.restore()
    sys.exit(status if ended is None else ended)


def _run(arguments: Sequence[str]) -> tuple[int, list[str]]:
    """The exit status of a command, and what it has to complain about."""
    debug = "--debug" in arguments
    status = BAD_USAGE
    complaints = []
    try:
        streams.prepare()
        status = _answered([argument for argument in arguments if argument != "--debug"])
    except (WebnormError, OSError, MemoryError) as error:
        if debug:
            raise
        complaints.append(_reason(error))
    except KeyboardInterrupt:
        # Typer passes on that of a completion, which has nothing to say to a prompt.
        status = INTERRUPTED
    except RuntimeError as error:
        # What Python 3.11 makes of it in the body of a class, while a module is imported.
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        status = INTERRUPTED
    except Interrupted as interrupted:
        complaints.append(str(interrupted))
        status = INTERRUPTED
    lost = streams.lost()
    if lost is not None:
        complaints.append(lost)
        status = INTERRUPTED if status == INTERRUPTED else BAD_USAGE
    return status, complaints


def _answered(arguments: list[str]) -> int:
    """The exit status of a command that ran to its end; WebnormError for arguments that typer refuses."""
    for before, word in pairwise(("", *arguments)):
        name, equals, value = word.partition("=")
        if not word:
            name = before if before.startswith("-") else "an argument"
        if not word or (name.startswith("--") and equals and not value):
            # It would count as not given, or as the working folder.
            raise WebnormError(f"{name} is ''; expected a value")
    completion.join_words()
    try:
        status = app(arguments, prog_name="webnorm", standalone_mode=False)
    except _UsageError as error:
        if not arguments:
            # Typer's way to show the help.
            say(str(error))
            return BAD_USAGE
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "webnorm"
        raise WebnormError(f"{_told(error, arguments)}; see {command} --help") from error
    if status == INTERRUPTED:
        # Typer's word for Ctrl-C that no verb has taken: the command was about to begin.
        raise Interrupted(AfterInterrupt.NOTHING)
    return status if isinstance(status, int) else OK


def _told(error: Any, arguments: Sequence[str]) -> str:
    """What typer says; of a number what it is, which typer does not say, and what was expected."""
    said: str = error.format_message().rstrip(".?").replace(". Did you mean ", "; did you mean ")
    names = getattr(getattr(error, "param", None), "opts", ())
    given = [value for word, value in pairwise((*arguments, "")) if word in names]
    given += [word.partition("=")[2] for word in arguments if word.partition("=")[0] in names and "=" in word]
    if not given:
        return said
    for rule, expected in _EXPECTED.items():
        if found := re.fullmatch(f".*: Input should be {rule}", said):
            return f"{max(names, key=len)} is {given[-1]!r}; expected {found.expand(expected)}"
    return f"{said}; it is {given[-1]!r}"


def _reason(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "there is not enough memory for this"
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return str(error)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"webnorm {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    pass
