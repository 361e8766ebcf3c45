"""`webnorm play`: check a kernel file on every save."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer import Argument, Option

from webnorm.cli.options import shared
from webnorm.cli.options.values import given_scalars, integers, size_lists
from webnorm.cli.terminal import modes
from webnorm.cli.terminal.screen import Screen, key_source
from webnorm.cli.terminal.streams import complain, emit, say, unread
from webnorm.cli.work.jobs import BAD_USAGE, INCONCLUSIVE, OK, WRONG, AfterInterrupt, Interrupted
from webnorm.errors import WebnormError, nearest
from webnorm.gpu import seconds

if TYPE_CHECKING:
    from webnorm.play.session import PlaygroundSession
    from webnorm.play.state import AttemptState, Settings, Snapshot

# The least time between two drawings of the screen, and the longest wait for a new state, in seconds.
_DRAWN_S, _GLANCE_S = 0.05, 0.1
# The most digits of a constant, because Python refuses to read thousands of digits.
_MOST_DIGITS = 15
# The least similarity, by difflib, between a file's name and an op that it may belong to.
_SIMILAR = 0.6
# The time limit of a step with --once, when no user waits and other programs may use the processor.
_ONCE_LIMIT_S = 60.0
# The character that Ctrl-D sends. It also stands for a closed terminal.
_CTRL_D = "\x04"


def play(
    file: Annotated[
        Path | None,
        Argument(help="The kernel file, as `webnorm new` writes it. You can leave it out with --web."),
    ] = None,
    web: Annotated[
        bool, Option("--web", help="Serve the playground page, which only this machine can open.")
    ] = False,
    port: Annotated[
        int, Option(help="Serve the page on this port; 0 picks a free port.", min=0, max=65535)
    ] = 0,
    once: Annotated[bool, Option("--once", help="Check the file once and exit.")] = False,
    json: Annotated[
        bool, Option("--json", help="Print one JSON line after each step, with everything known so far.")
    ] = False,
    quick: Annotated[bool, Option("--quick", help="Skip the timing and the corpus.")] = False,
    op: Annotated[
        str | None,
        Option(
            help="Set the op of the kernel: a built-in op, or a folder with an op.py. Default: the op of the "
            "file's folder."
        ),
    ] = None,
    dtype: shared.Dtype = None,
    option: shared.Option = None,
    constant: shared.Constant = None,
    rows: Annotated[
        str | None, Option(metavar="N", help="Set the rows of the timed problem, such as 1024 or 4k.")
    ] = None,
    cols: Annotated[str | None, Option(metavar="N", help="Set the columns of the timed problem.")] = None,
    size: Annotated[
        list[str] | None,
        Option("--size", help="Set a size of the timed problem, as NAME=N. Repeatable."),
    ] = None,
    scalar: shared.Scalars = None,
    trace: Annotated[
        str | None,
        Option(help="Keep the trace(...) records of the kernel that match RULE, such as 'row == 3'."),
    ] = None,
    adapter: shared.Adapter = None,
    backend: shared.Backend = None,
    time_limit: Annotated[
        float | None,
        Option(
            help="Give up on a kernel or compiler that is silent for this many seconds. Default: 5 for the "
            "verdict, 10 for other steps, and 60 with --once.",
            min=seconds.LEAST_SILENCE,
            max=seconds.MOST,
        ),
    ] = None,
) -> None:
    """Edit the file in any editor. Each save is rendered, compiled, checked against float64 and timed next to
    the copy, the previous save and the best kernel. A report shows the line of each error, where the output
    is wrong, and the likely bug.

    Keys: r runs the kernel again, t times it, c runs the corpus, x traces, u returns to the previous attempt,
    q quits. Attempts are kept in your cache folder.
    """
    from webnorm.play.session import PlaygroundSession
    from webnorm.play.state import Settings

    # --rows and --cols are the command line's names for an op's sizes.
    settings = Settings(
        time=not quick,
        corpus=not quick,
        dtype=dtype or "float32",
        options=tuple(option or ()),
        constants=_constants(constant),
        trace=trace,
        rows=_size(rows, "--rows"),
        cols=_size(cols, "--cols"),
        sizes=_sizes(size, rows, cols),
        scalars=given_scalars(scalar),
        time_limit_s=time_limit or (_ONCE_LIMIT_S if once else None),
    )
    path = _file(file, web)
    _check_op(path, op)
    _check_named(path, op, settings)
    console = Screen(stderr=json)
    status = OK
    try:
        session = PlaygroundSession(path, settings, op, adapter)
        if web:
            _serve(session, port)
        else:
            with session:
                if once:
                    status = _once(session, console, json)
                elif json or not console.animates:
                    _follow(session, console, json)
                else:
                    _watch(session, console)
    except KeyboardInterrupt:
        raise Interrupted(AfterInterrupt.KEPT) from None
    raise typer.Exit(status)


def _file(given: Path | None, web: bool) -> Path:
    """Return the kernel file; with --web and no file, a draft in the user's cache folder."""
    from webnorm.kernels.headers.header import check_name
    from webnorm.kernels.headers.sources import files_instead

    if given is not None:
        if not given.is_file():
            raise WebnormError(f"{given} is not a file; expected a kernel file: {files_instead(given)}")
        check_name(given)
        return given
    if not web:
        raise WebnormError("FILE is missing; expected a kernel file, or --web for the page")
    from webnorm.play.attempt_store import scratch

    return scratch()


def _check_op(path: Path, op: str | None) -> None:
    """Refuse a file of another op, or a file without an op. The playground reports errors in the header."""
    from webnorm.kernels.headers.header import home, load
    from webnorm.op.registry import OPS, computing_ops, op_named

    if op is not None:
        op_named(op)
    else:
        folder = home(path)[1]
        if folder not in OPS:
            likely = nearest(path.stem, computing_ops(), _SIMILAR) or nearest(
                folder, computing_ops(), _SIMILAR
            )
            listed = f"ops: {', '.join(computing_ops())}"
            hint = f"did you mean --op {likely}?" if likely else listed
            raise WebnormError(f"{path} is not in the folder of an op; name its op with --op; {hint}")
        return
    try:
        served = load(path, op).op.name
    except WebnormError:
        return
    if served != op:
        raise WebnormError(f"--op is {op}; {path} is for {served}, by its folder or by `ops` in its header")


def _serve(session: PlaygroundSession, port: int) -> None:
    """Serve the page until Ctrl-C."""
    from webnorm.play.api import PlaygroundApi
    from webnorm.play.server import PlaygroundServer

    # The session ends first, so that no request waits for the worker.
    with PlaygroundServer(PlaygroundApi(session), port) as server, session:
        say(f"{session.path}: open {server.url}")
        say("Press Ctrl-C to stop. Keep the link private: anyone who has it can write the file.")
        sys.stdout.flush()
        server.wait()


def _size(text: str | None, option: str) -> int | None:
    """Return the number of an option; a playground times one problem."""
    if text is None:
        return None
    found: tuple[int, ...] | None = None
    with suppress(WebnormError):
        found = integers(text, option)
    if found is None or len(found) != 1:
        raise WebnormError(f"{option} is {text!r}; expected one size of 1 or more, such as 1024 or 4k")
    return found[0]


def _sizes(pairs: list[str] | None, rows: str | None, cols: str | None) -> dict[str, int]:
    """Return the value of each --size; a playground takes one value."""
    found = {}
    for name, sizes in size_lists(pairs, rows, cols).items():
        if sizes is None or len(sizes) != 1:
            raise WebnormError(f"--size {name} has several values; expected one")
        found[name] = sizes[0]
    return found


def _check_named(path: Path, op: str | None, settings: Settings) -> None:
    """Refuse sizes and scalars that the op does not have."""
    from webnorm.kernels.headers.header import home
    from webnorm.op.registry import OPS

    chosen = OPS[op or home(path)[1]]
    chosen.check_sizes(settings.sizes)
    if settings.scalars:
        chosen.problem(*chosen.sizes_of({}), **cast(Any, settings.scalars))


def _constants(pairs: list[str] | None) -> dict[str, int]:
    """Return the values of --constant; a playground takes one value per constant."""
    found: dict[str, int] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not (value.isascii() and value.isdecimal()) or len(value) > _MOST_DIGITS:
            raise WebnormError(f"--constant is {pair!r}; expected NAME=VALUE, a whole number")
        found[name] = int(value)
    return found


def _once(session: PlaygroundSession, console: Screen, json: bool) -> int:
    """Follow one attempt to its end and return the exit status; print the steps that were not taken."""
    _follow(session, console, json, once=True)
    now = session.state.now
    if now.attempt is None:
        # Notices, if there are any, give the reason.
        if not now.notices:
            complain("nothing could be checked")
        return BAD_USAGE
    if now.attempt.ok is False:
        return WRONG
    left_out = now.attempt.left_out
    if left_out:
        complain(f"not checked: {', '.join(left_out)}")
    return INCONCLUSIVE if left_out or now.attempt.ok is None else OK


def _follow(session: PlaygroundSession, console: Screen, json: bool, once: bool = False) -> None:
    """Write the news of each attempt, line by line, until the stream is closed."""
    revision, shown = -1, ShownAttempt(console, json)
    while once or not unread():
        now = session.state.wait(revision, _GLANCE_S)
        if now is not None:
            revision = now.revision
            shown.write_news(now)
        elif once and session.idle(0.0) and session.state.now.revision == revision:
            return


class ShownAttempt:
    """The parts of the current attempt that have been written."""

    def __init__(self, console: Screen, json: bool) -> None:
        self.console, self.json = console, json
        self._number, self._ended, self._mistakes = 0, 0, 0
        self._notices: tuple[str, ...] = ()

    def write_news(self, now: Snapshot) -> None:
        """Write the new parts of a snapshot."""
        for notice in now.notices:
            if notice not in self._notices:
                complain(notice)
        self._notices = now.notices
        attempt = now.attempt
        if attempt is None:
            return
        if attempt.number != self._number:
            self._number, self._ended, self._mistakes = attempt.number, 0, 0
        ended = sum(stage.ended for stage in attempt.stages)
        refused = now.working is None and len(attempt.mistakes) > self._mistakes
        if ended > self._ended or refused:
            self._write(attempt)
            self._ended, self._mistakes = ended, len(attempt.mistakes)

    def _write(self, attempt: AttemptState) -> None:
        if self.json:
            from dataclasses import replace
            from json import dumps

            from webnorm.play.state import snapshot_as_json

            emit(dumps(snapshot_as_json(replace(attempt, rendered=None)), allow_nan=False))
            return
        from webnorm.cli.verbs.play_view import news

        for line in news(attempt, self._ended, self._mistakes):
            self.console.print(line, soft_wrap=True)


def _watch(session: PlaygroundSession, console: Screen) -> None:
    """Draw one screen, again after each change of the state or of the terminal's size."""
    from rich.console import Group
    from rich.live import Live

    from webnorm.cli.verbs.play_view import screen

    drawn: object = None
    with (
        modes.drawn_on(console.file.fileno(), alternate=True),
        _keys(key_source()) as pressed,
        Live(console=console, screen=True, auto_refresh=False, vertical_overflow="ellipsis") as live,
    ):
        revision = -1
        while True:
            now = session.state.wait(revision, _GLANCE_S) or session.state.now
            revision = now.revision
            if drawn != (shown := (revision, console.size, modes.continued())):
                drawn = shown
                live.update(Group(*screen(now)), refresh=True)
            if not _act(session, pressed(_DRAWN_S)):
                return


@contextmanager
def _keys(number: int | None) -> Iterator[Callable[[float], str]]:
    """Yield a function that waits some seconds for a key and returns it, or "" if none was pressed.

    `number` is the descriptor of the terminal; without a terminal there are no keys. Keys need no Enter.
    """

    def pressed(timeout_s: float) -> str:
        if number is None:
            time.sleep(timeout_s)
        elif select.select([number], [], [], timeout_s)[0]:
            try:
                return os.read(number, 1).decode(errors="replace") or _CTRL_D
            except OSError:
                return _CTRL_D
        return ""

    with nullcontext() if number is None else modes.unbuffered(number):
        yield pressed


def _act(session: PlaygroundSession, key: str) -> bool:
    """Do the action of a key; return False to quit."""
    if key in ("q", _CTRL_D):
        return False
    match key:
        case "r":
            session.run()
        case "t":
            session.do("time")
        case "c":
            session.do("corpus")
        case "x":
            session.trace("")
        case "u":
            session.undo()
    return True
