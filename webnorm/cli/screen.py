"""The console of the command, and text for it that nobody's names can turn into anything else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from webnorm.errors import one_line, printable


def plain(text: str, style: str = "") -> Text:
    """One line as it is, brackets and all, with escapes for control characters."""
    return Text(one_line(text), style)


# A name and a few figures find room.
_LEAST_WIDTH = 40


class Screen(Console):
    """A console without markup, which writes no control characters but its own.

    Whatever is printed passes here, so that it does not matter where a text came from. What is to be laid out
    in columns is better escaped before: see `plain`.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=False)
        # $COLUMNS of 0 would leave nothing of what is told.
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
