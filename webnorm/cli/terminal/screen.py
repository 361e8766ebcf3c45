"""The console of the command, text for it that nobody's names can turn into anything else, and progress."""

from __future__ import annotations

import os
import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from typing import IO, Any, NoReturn

from rich.cells import cell_len
from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType, RenderResult
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn
from rich.progress import Task as ProgressTask
from rich.segment import Segment
from rich.table import Column
from rich.text import Text

from webnorm.cli.terminal import modes
from webnorm.errors import one_line, printable


def escaped_line(text: str, style: str = "") -> Text:
    """One line as it is, brackets and all, with escapes for control characters."""
    return Text(one_line(text), style)


def wrapping_column(heading: str) -> Column:
    """A column whose cells are broken over lines where the console is narrow."""
    return Column(heading, overflow="fold")


def number_column(heading: str) -> Column:
    """A column of numbers, which are never broken: half of one would be another number."""
    return Column(heading, justify="right", no_wrap=True)


# Colours of verdicts and of what a comparison says, which stand in words beside them.
STYLES = {
    "pass": "green",
    "FAIL": "bold red",
    "expected failure": "yellow",
    "skip": "dim",
    "error": "red",
    "SAME": "green",
    "FASTER": "bold green",
    "SLOWER": "bold red",
    "BROKEN": "bold red",
    "UNCLEAR": "yellow",
}
# A name and a few figures find room. What is wider or higher than any screen would only take memory.
_LEAST_WIDTH, _LEAST_HEIGHT, _MOST = 40, 2, 10_000
# Cells of ^C, which may be pressed twice.
_ECHOED = 4
_WORD = re.compile(r"\S+\s*")
# Terminals that cannot move their cursor. Without a name, nothing is known of what they can.
_DUMB = ("dumb", "unknown")
# Rich reads these as well, and takes a forced colour for a terminal; `Screen` decides from them instead.
_DECIDED_HERE = ("COLUMNS", "LINES", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "TERM")
# Less work than this foretells nothing: adapters are opened and shaders compiled first.
_LEAST_SHARE, _LEAST_S, _FEWEST = 0.05, 1.0, 3
# The whole of the work and the half of it have to foretell totals that differ by no more than this factor.
_AGREE = 1.25


def is_tty(stream: IO[str] | None) -> bool:
    """Whether a stream, which may be closed or missing, leads to a terminal."""
    try:
        return stream is not None and stream.isatty()
    except (AttributeError, ValueError):
        return False


def is_dumb() -> bool:
    """Whether the terminal obeys no escape sequences, as far as $TERM says."""
    name = os.environ.get("TERM", "").strip().lower()
    return name in _DUMB or (not name and sys.platform != "win32")


def wants_colour() -> bool | None:
    """What the environment says about colour: NO_COLOR, FORCE_COLOR, CLICOLOR_FORCE, CLICOLOR, in this order.

    None where it leaves that to the terminal.
    """
    given = {name: os.environ.get(name, "") for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE")}
    if given["NO_COLOR"]:
        return False
    if given["FORCE_COLOR"]:
        return given["FORCE_COLOR"].lower() not in ("0", "false")
    if given["CLICOLOR_FORCE"] not in ("", "0"):
        return True
    return False if os.environ.get("CLICOLOR") == "0" else None


def key_source() -> int | None:
    """The descriptor of the terminal that keys are read from; None where standard input is none."""
    if not is_tty(sys.stdin) or sys.platform == "win32":
        return None
    try:
        return sys.stdin.fileno()
    except (OSError, ValueError):
        return None


def _size_of(name: str, least: int) -> int | None:
    """The number in $COLUMNS or $LINES, within what can be read."""
    text = os.environ.get(name, "")
    return _within(int(text), least) if re.fullmatch(r"[0-9]{1,18}", text) else None


def _within(size: int, least: int) -> int:
    return max(least, min(size, _MOST))


def _is_laid_out(stream: IO[str] | None) -> bool:
    compatible = os.environ.get("TTY_COMPATIBLE")
    return compatible == "1" if compatible in ("0", "1") else is_tty(stream)


class Screen(Console):
    """A console without markup, which writes no control characters but its own.

    Whatever is printed passes here, so that it does not matter where a text came from. What is to be laid out
    in columns is better escaped before: see `plain`.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        stream = sys.stderr if stderr else sys.stdout
        forced = wants_colour()
        layout = _is_laid_out(stream)
        environ = {name: value for name, value in os.environ.items() if name not in _DECIDED_HERE}
        environ["TERM"] = "dumb" if is_dumb() else os.environ.get("TERM", "")
        super().__init__(
            stderr=stderr,
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=False,
            # Whoever reads a pipe breaks lines as it suits them.
            width=_size_of("COLUMNS", _LEAST_WIDTH) or (None if layout else _MOST),
            height=_size_of("LINES", _LEAST_HEIGHT),
            # What terminals have had for forty years: a file may be shown on any.
            color_system="standard" if forced else "auto" if layout else None,
            no_color=forced is False,
            force_interactive=False,
            _environ=environ,
        )
        # Rich's word for what may be drawn over.
        self.is_interactive = self.animates

    @property
    def is_terminal(self) -> bool:
        """Whether it is laid out for a screen: lines are broken, panels drawn.

        TTY_COMPATIBLE says so of a pipe that a terminal's log is made of, or denies it.
        """
        return _is_laid_out(self.file)

    @property
    def animates(self) -> bool:
        """Whether what was drawn can be drawn over: by a terminal alone, whatever colours are asked for."""
        quiet = os.environ.get("TTY_INTERACTIVE") == "0"
        return is_tty(self.file) and self.is_terminal and not is_dumb() and not quiet

    @property
    def size(self) -> ConsoleDimensions:
        """Columns and lines: at least what can be read, since a terminal may have none at all."""
        found = super().size
        return ConsoleDimensions(_within(found.width, _LEAST_WIDTH), _within(found.height, _LEAST_HEIGHT))

    @size.setter
    def size(self, given: tuple[int, int]) -> None:
        self._width, self._height = given

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as rich does; a pipe gets no blanks at the ends of lines, which fill up a table's columns.

        With `soft_wrap` a pipe gets each line whole, and a terminal breaks it between words; an indented one,
        which quotes a command or a file, stays in one piece that can be copied.
        """
        if self.is_terminal:
            text = objects[0] if options.get("soft_wrap") else None
            if isinstance(text, str | Text):
                whole = self.render_str(text) if isinstance(text, str) else text
                objects = (_broken(whole, self.width), *objects[1:])
            super().print(*objects, **options)
            return
        with self.capture() as captured:
            super().print(*objects, **options)
        for line in captured.get().splitlines(keepends=True):
            self.file.write(line.rstrip(" \n") + "\n" * line.endswith("\n"))

    def render_str(self, text: str, **options: Any) -> Text:
        """The text as rich's own, without control characters, so that it takes the room that it is given."""
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Rich's segments, without control characters in their text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))

    def on_broken_pipe(self) -> NoReturn:
        """Leave it to the command that nobody reads on; rich would end the process."""
        raise BrokenPipeError


def _broken(text: Text, width: int) -> Text:
    """The text with more line feeds: between words, so that lines fit which begin with one."""
    lines = []
    for line in text.split("\n", allow_blank=True):
        whole = line.plain.startswith(" ")
        for part in [line] if whole else line.divide(_beginnings(line.plain, width)):
            if not whole:
                part.rstrip()
            lines.append(part)
    return Text("\n").join(lines)


def _beginnings(line: str, width: int) -> Iterator[int]:
    """Where a line goes on as another; a word that is wider has one to itself."""
    taken = 0
    for word in _WORD.finditer(line):
        if taken and taken + cell_len(word[0].rstrip()) > width:
            yield word.start()
            taken = 0
        taken += cell_len(word[0])


class TimeLeft:
    """The rest of some work, from the shares that are done and the seconds that they took.

    Work does not go on as it began: a share of it may take ten times as long as another. So the rest counts
    as known only while the total that follows from all the work so far is near the one that followed from its
    first half. Where it proves too short it is not shown any more, until it fits what was shown.
    """

    def __init__(self) -> None:
        self._seen: list[tuple[float, float]] = []
        self._total: float | None = None
        self._shown = float("inf")

    def saw(self, share: float, spent: float) -> None:
        """Take note of the share that is done after so many seconds."""
        if self._seen and share < self._seen[-1][0]:
            # Other work: nothing is known of it.
            self._seen.clear()
        if not self._seen or share > self._seen[-1][0]:
            self._seen.append((share, spent))
        self._total = self._foretold(spent)

    def _foretold(self, spent: float) -> float | None:
        """The seconds of the whole work; None where they are not known."""
        share = self._seen[-1][0]
        half = bisect_right(self._seen, share / 2, key=itemgetter(0)) - 1
        if share < _LEAST_SHARE or spent < _LEAST_S or len(self._seen) < _FEWEST or half < 0:
            return None
        half_share, half_spent = self._seen[half]
        if half_share <= 0:
            return None
        total, before = spent / share, half_spent / half_share
        return total if before / _AGREE <= total <= before * _AGREE else None

    def text(self, spent: float) -> str:
        """The rest after so many seconds, or these seconds."""
        rest = None if self._total is None else self._total - spent
        if rest is None or rest <= 0 or rest > self._shown:
            return in_words(spent)
        self._shown = rest
        return f"{in_words(rest)} left"


def in_words(seconds: float) -> str:
    """Seconds as a glance takes them in: 8 s, 3 min, 2.1 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


class _TimeColumn(ProgressColumn):
    """The time that is left, or the time spent as long as the rest is not known."""

    def __init__(self, left: TimeLeft) -> None:
        self._left = left
        super().__init__(table_column=Column(no_wrap=True, min_width=9))

    def render(self, task: ProgressTask) -> Text:
        """The column's text now."""
        return Text(self._left.text(task.elapsed or 0.0), "cyan")


class _Bar(Progress):
    """Rich's, with room at its end for what a terminal echoes of Ctrl-C.

    Behind a line that is full that would go to the next one, and leave this one on the screen for good.
    """

    def get_renderable(self) -> RenderableType:
        """The bar, less wide than the console."""
        return _Narrower(super().get_renderable())


@dataclass(frozen=True)
class _Narrower:
    shown: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from console.render(self.shown, options.update_width(options.max_width - _ECHOED))


@contextmanager
def progress(doing: str) -> Iterator[Callable[[str | None, float | None], None]]:
    """A progress bar on stderr, where that can be animated: called with the work at hand and the share done.

    None for the work takes the bar away until the next call, so that a line can be printed in its place.
    None for the share leaves the bar where it is.
    """
    console = Screen(stderr=True)
    if not console.animates:
        yield lambda text, share: None
        return
    left = TimeLeft()
    with (
        modes.drawn_on(console.file.fileno()),
        _Bar(
            SpinnerColumn(),
            BarColumn(bar_width=10),
            _TimeColumn(left),
            TextColumn(
                "{task.description}",
                markup=False,
                table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1),
            ),
            console=console,
            transient=True,
            expand=True,
        ) as progress,
    ):
        task = progress.add_task(doing, total=1.0)

        def update(text: str | None, share: float | None) -> None:
            if text is None:
                progress.stop()
                return
            if share is not None:
                left.saw(share, progress.tasks[0].elapsed or 0.0)
            progress.update(task, description=one_line(text), completed=share)
            progress.start()

        yield update
