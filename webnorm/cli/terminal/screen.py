"""The console of the command, text that names cannot turn into markup or control codes, and progress."""

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
    """Return one line without markup, with escapes for control characters."""
    return Text(one_line(text), style)


def wrapping_column(heading: str) -> Column:
    """Return a column with cells that wrap on a narrow console."""
    return Column(heading, overflow="fold")


def number_column(heading: str) -> Column:
    """Return a column of numbers, which never wrap: half a number would be another number."""
    return Column(heading, justify="right", no_wrap=True)


# Colours of verdicts and comparisons. The words themselves are printed too.
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
# The least size has room for a name and a few numbers. Sizes beyond any screen would only take memory.
_LEAST_WIDTH, _LEAST_HEIGHT, _MOST = 40, 2, 10_000
# Cells of two ^C, which a terminal echoes.
_ECHOED = 4
_WORD = re.compile(r"\S+\s*")
# Terminals that cannot move their cursor. A terminal without a name counts as one.
_DUMB = ("dumb", "unknown")
# Rich reads these variables too, and treats a forced colour as a terminal. `Screen` evaluates them instead.
_DECIDED_HERE = ("COLUMNS", "LINES", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "TERM")
# Less work than this predicts nothing, because adapters are opened and shaders compiled first.
_LEAST_SHARE, _LEAST_S, _FEWEST = 0.05, 1.0, 3
# The totals that follow from all the work so far and from its first half may differ by this factor.
_AGREE = 1.25


def is_tty(stream: IO[str] | None) -> bool:
    """Return whether a stream, which may be closed or missing, is a terminal."""
    try:
        return stream is not None and stream.isatty()
    except (AttributeError, ValueError):
        return False


def is_dumb() -> bool:
    """Return whether $TERM names a terminal without escape sequences."""
    name = os.environ.get("TERM", "").strip().lower()
    return name in _DUMB or (not name and sys.platform != "win32")


def wants_colour() -> bool | None:
    """Return the environment's choice of colour, or None if the terminal decides.

    The variables are NO_COLOR, FORCE_COLOR, CLICOLOR_FORCE and CLICOLOR, in this order.
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
    """Return the descriptor of the terminal that keys are read from; None if standard input is no
    terminal.
    """
    if not is_tty(sys.stdin) or sys.platform == "win32":
        return None
    try:
        return sys.stdin.fileno()
    except (OSError, ValueError):
        return None


def _size_of(name: str, least: int) -> int | None:
    """Return the number in $COLUMNS or $LINES, limited to readable sizes."""
    text = os.environ.get(name, "")
    return _within(int(text), least) if re.fullmatch(r"[0-9]{1,18}", text) else None


def _within(size: int, least: int) -> int:
    return max(least, min(size, _MOST))


def _is_laid_out(stream: IO[str] | None) -> bool:
    compatible = os.environ.get("TTY_COMPATIBLE")
    return compatible == "1" if compatible in ("0", "1") else is_tty(stream)


class Screen(Console):
    """A console without markup, which writes no control characters but its own.

    All printed text passes here, so the origin of a text does not matter. Text for columns is escaped
    before, with `escaped_line`, so that its width is right.
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
            # The reader of a pipe breaks lines itself.
            width=_size_of("COLUMNS", _LEAST_WIDTH) or (None if layout else _MOST),
            height=_size_of("LINES", _LEAST_HEIGHT),
            # The 16 colours that every terminal has, since a file may be shown on any terminal.
            color_system="standard" if forced else "auto" if layout else None,
            no_color=forced is False,
            force_interactive=False,
            _environ=environ,
        )
        # Rich's name for a screen that can be redrawn.
        self.is_interactive = self.animates

    @property
    def is_terminal(self) -> bool:
        """True if the layout is for a screen, with wrapped lines and panels.

        TTY_COMPATIBLE=1 sets this for a pipe whose log looks like a terminal, and TTY_COMPATIBLE=0 clears it.
        """
        return _is_laid_out(self.file)

    @property
    def animates(self) -> bool:
        """True if the screen can be redrawn. Only a terminal can, whatever the colours."""
        quiet = os.environ.get("TTY_INTERACTIVE") == "0"
        return is_tty(self.file) and self.is_terminal and not is_dumb() and not quiet

    @property
    def size(self) -> ConsoleDimensions:
        """Columns and lines. A terminal may report none, so there is a readable least size."""
        found = super().size
        return ConsoleDimensions(_within(found.width, _LEAST_WIDTH), _within(found.height, _LEAST_HEIGHT))

    @size.setter
    def size(self, given: tuple[int, int]) -> None:
        self._width, self._height = given

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as rich does, but without the blanks that tables leave at line ends in a pipe.

        With `soft_wrap` a pipe gets each line whole, and a terminal breaks it between words. An indented
        line quotes a command or a file; it stays whole so that it can be copied.
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
        """Return rich's text without control characters, so that its width is right."""
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield rich's segments, without control characters in their text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))

    def on_broken_pipe(self) -> NoReturn:
        """Raise BrokenPipeError for the command to handle; rich would end the process."""
        raise BrokenPipeError


def _broken(text: Text, width: int) -> Text:
    """Return the text with line breaks between words, so that lines fit the width."""
    lines = []
    for line in text.split("\n", allow_blank=True):
        whole = line.plain.startswith(" ")
        for part in [line] if whole else line.divide(_beginnings(line.plain, width)):
            if not whole:
                part.rstrip()
            lines.append(part)
    return Text("\n").join(lines)


def _beginnings(line: str, width: int) -> Iterator[int]:
    """Yield the positions at which to break a line; a word that is too wide gets its own line."""
    taken = 0
    for word in _WORD.finditer(line):
        if taken and taken + cell_len(word[0].rstrip()) > width:
            yield word.start()
            taken = 0
        taken += cell_len(word[0])


class TimeLeft:
    """An estimate of the remaining time, from the finished share of the work and the seconds spent.

    One share of the work may take ten times as long as another. So the estimate counts as known only while
    the total that follows from all the work so far is near the total that followed from its first half. An
    estimate above the last one shown is not shown until it has come down again.
    """

    def __init__(self) -> None:
        self._seen: list[tuple[float, float]] = []
        self._total: float | None = None
        self._shown = float("inf")

    def record(self, share: float, spent: float) -> None:
        """Record the share that is done after `spent` seconds."""
        if self._seen and share < self._seen[-1][0]:
            # A smaller share means that other work has begun.
            self._seen.clear()
        if not self._seen or share > self._seen[-1][0]:
            self._seen.append((share, spent))
        self._total = self._predicted(spent)

    def _predicted(self, spent: float) -> float | None:
        """Return the seconds of the whole work, or None if unknown."""
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
        """Return the remaining time after `spent` seconds, or else the time spent."""
        rest = None if self._total is None else self._total - spent
        if rest is None or rest <= 0 or rest > self._shown:
            return in_words(spent)
        self._shown = rest
        return f"{in_words(rest)} left"


def in_words(seconds: float) -> str:
    """Return a short text for a time: 8 s, 3 min, 2.1 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


class _TimeColumn(ProgressColumn):
    """The remaining time, or the time spent while the remaining time is unknown."""

    def __init__(self, left: TimeLeft) -> None:
        self._left = left
        super().__init__(table_column=Column(no_wrap=True, min_width=9))

    def render(self, task: ProgressTask) -> Text:
        """Return the column's current text."""
        return Text(self._left.text(task.elapsed or 0.0), "cyan")


class _Bar(Progress):
    """Rich's progress bar, with room at its end for the ^C that a terminal echoes.

    On a full line the echo would wrap to the next line, and the bar would stay on the screen.
    """

    def get_renderable(self) -> RenderableType:
        """Return the bar, which is narrower than the console."""
        return _Narrower(super().get_renderable())


@dataclass(frozen=True)
class _Narrower:
    shown: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from console.render(self.shown, options.update_width(options.max_width - _ECHOED))


@contextmanager
def progress(doing: str) -> Iterator[Callable[[str | None, float | None], None]]:
    """Show a progress bar on stderr if it can be animated, and yield a function that updates it.

    The function takes the current work and the finished share. None for the work hides the bar until the
    next call, so that a line can be printed. None for the share keeps the last share.
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
                left.record(share, progress.tasks[0].elapsed or 0.0)
            progress.update(task, description=one_line(text), completed=share)
            progress.start()

        yield update
