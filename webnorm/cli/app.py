"""The `webnorm` command: read arguments, call the lab and print. Only this package prints.

A verb's module is loaded when the verb runs, and heavy imports are inside functions. So `webnorm --help`
answers at once. The help of a verb imports the ops that it lists.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, NoReturn

import typer

from webnorm._version import __version__
from webnorm.cli.options import completion
from webnorm.cli.terminal import exit_signals, modes, streams
from webnorm.cli.terminal.streams import complain, say
from webnorm.cli.verb_table import TopLevelVerbs, named_verb
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


# The base class of typer's errors about arguments. Typer exports only this subclass.
_UsageError: Any = typer.BadParameter.__base__


def run() -> NoReturn:
    """Run the command; a user's mistake becomes one line on stderr and exit status 2.

    A signal that ends the command gets the same clean-up as Ctrl-C. Then the process dies of the signal, as
    its parent expects. Ctrl-C is ignored from then on.
    """
    with exit_signals.watched():
        try:
            try:
                status, complaints = _run(sys.argv[1:])
            finally:
                exit_signals.ignore_interrupts()
        except KeyboardInterrupt:
            # A second Ctrl-C during the clean-up.
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
    """Return the exit status of a command and its error messages."""
    debug = "--debug" in arguments
    status = BAD_USAGE
    complaints = []
    try:
        streams.prepare()
        status = _answered([argument for argument in arguments if argument != "--debug"])
    except (WebnormError, OSError, MemoryError) as error:
        if debug:
            streams.complain_lines(traceback.format_exc())
        complaints.append(_reason(error))
    except KeyboardInterrupt:
        # Typer only passes on an interrupt of a completion, which must not write to the prompt.
        status = INTERRUPTED
    except RuntimeError as error:
        # Python 3.11 raises this for Ctrl-C in the body of a class, while a module is imported.
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
    """Return the exit status of a finished command; raise WebnormError for arguments that typer refuses."""
    for before, word in pairwise(("", *arguments)):
        name, equals, value = word.partition("=")
        if not word:
            name = before if before.startswith("-") else "an argument"
        if not word or (name.startswith("--") and equals and not value):
            # Typer takes an empty value as not given, or as the working folder.
            raise WebnormError(f"{name} is ''; expected a value")
    completion.join_words()
    try:
        status = app(arguments, prog_name="webnorm", standalone_mode=False)
    except _UsageError as error:
        # Imported here, because only a wrong command line needs it.
        from webnorm.cli.usage_errors import usage_message

        if not arguments:
            # Typer raises this error to show the help.
            say(str(error))
            return BAD_USAGE
        context = getattr(error, "ctx", None)
        # Typer's parser reports an option without a value before the verb has a context.
        command = context.command_path if context else f"webnorm {named_verb(arguments)}".rstrip()
        message = usage_message(error, arguments)
        see = " See" if message.endswith("?") else "; see"
        raise WebnormError(f"{message}{see} {command} --help") from error
    if status == INTERRUPTED:
        # Typer returns this status for a Ctrl-C before the verb began.
        raise Interrupted(AfterInterrupt.NOTHING)
    return status if isinstance(status, int) else OK


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
