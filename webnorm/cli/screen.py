"""The console of the command, text for it that nobody's names can turn into anything else, and progress."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn
from rich.progress import Task as ProgressTask
from rich.segment import Segment
from rich.table import Column
from rich.text import Text

from webnorm.errors import one_line, printable


def plain(text: str, style: str = "") -> Text:
    """One line as it is, brackets and all, with escapes for control characters."""
    return Text(one_line(text), style)


def words(heading: str) -> Column:
    """A column whose cells are broken over lines where the console is narrow."""
    return Column(heading, overflow="fold")


def figures(heading: str) -> Column:
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
# Of all that is to be done, what tells how long the rest will take.
_LEAST_SHARE = 0.02
# A name and a few figures find room.
_LEAST_WIDTH = 40
# Cells of ^C, which may be pressed twice.
_ECHOED = 4
_WORD = re.compile(r"\S+\s*")
# Whoever reads a pipe breaks lines as it suits them.
_PIPE_WIDTH = 10_000


class Screen(Console):
    """A console without markup, which writes no control characters but its own.

    Whatever is printed passes here, so that it does not matter where a text came from. What is to be laid out
    in columns is better escaped before: see `plain`.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=False)
        if not self.is_terminal and not os.environ.get("COLUMNS"):
            self.width = _PIPE_WIDTH
        # $COLUMNS of 0 would leave nothing to read.
        elif self.width < _LEAST_WIDTH:
            self.width = _LEAST_WIDTH

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


class _TimeLeft(ProgressColumn):
    """How long it will take if it goes on as it began; rich's own wants steps of equal length."""

    def render(self, task: ProgressTask) -> Text:
        """What is spent, as long as what is left would be a guess."""
        share, spent = task.completed, task.elapsed or 0.0
        if share < _LEAST_SHARE or spent < 1.0:
            return Text(_seconds(spent), "cyan")
        return Text(f"{_seconds(spent * (1.0 - share) / share)} left", "cyan")


def _seconds(seconds: float) -> str:
    """In words that a glance takes in: 8 s, 3 min, 2.1 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


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
    """A progress bar on stderr, where that is a terminal: called with the work at hand and the share done.

    None for the work takes the bar away until the next call, so that a line can be printed in its place.
    """
    console = Screen(stderr=True)
    with _Bar(
        SpinnerColumn(),
        BarColumn(bar_width=10),
        _TimeLeft(table_column=Column(no_wrap=True, min_width=9)),
        TextColumn(
            "{task.description}",
            markup=False,
            table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1),
        ),
        console=console,
        transient=True,
        expand=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task(doing, total=1.0)

        def update(text: str | None, share: float | None) -> None:
            if progress.disable:
                return
            if text is None:
                progress.stop()
            else:
                progress.update(task, description=one_line(text), completed=share)
                progress.start()

        yield update
