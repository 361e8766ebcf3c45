"""The console of the command, text for it that nobody's names can turn into anything else, and progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
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


# A name and a few figures find room.
_LEAST_WIDTH = 40


class Screen(Console):
    """A console without markup, which writes no control characters but its own.

    Whatever is printed passes here, so that it does not matter where a text came from. What is to be laid out
    in columns is better escaped before: see `plain`.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=False)
        # $COLUMNS of 0 would leave nothing to read.
        if self.width < _LEAST_WIDTH:
            self.width = _LEAST_WIDTH

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


@contextmanager
def progress(doing: str) -> Iterator[Callable[[str | None, float | None], None]]:
    """A progress bar on stderr, where that is a terminal: called with the work at hand and the share done.

    None for the work takes the bar away until the next call, so that a line can be printed in its place.
    """
    console = Screen(stderr=True)
    with Progress(
        SpinnerColumn(),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
        console=console,
        transient=True,
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
