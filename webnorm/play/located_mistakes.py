"""What is wrong with a text, at its place in the file that is edited, or in another that it is made of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from webnorm.errors import WebnormError
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.kernels.rendering.render import display_path
from webnorm.play.state import LocatedMistake

By = Literal["header", "template", "naga", "tint", "run"]


@dataclass(frozen=True)
class MistakeLocator:
    """The edited file, by which its own mistakes are told from others', and its text."""

    path: Path
    text: str

    @property
    def own_name(self) -> str:
        """How messages name the edited file."""
        return display_path(str(self.path.resolve()))

    def mistake(self, by: By, error: WebnormError) -> LocatedMistake:
        """An error of the reading, the compiling or the running as what is shown of it."""
        place, message = error.place, str(error)
        if place is None:
            return LocatedMistake(by=by, message=message)
        own = place.file in (self.own_name, str(self.path))
        lines = (self.text if own else _text_of(place.file)).splitlines()
        source = lines[place.line - 1] if place.line <= len(lines) else ""
        # Which are shown by themselves.
        message = message.removeprefix(f"{place.file}:{place.line}: ").removesuffix(f": {source.strip()}")
        return LocatedMistake(
            by=by,
            message=message,
            file=place.file,
            own=own,
            line=place.line,
            column=place.column,
            length=place.length,
            source=source,
        )


def _text_of(file: str) -> str:
    """The text of a snippet, named as messages name it; nothing where it cannot be read."""
    path = Path(file)
    try:
        return (path if path.is_absolute() else wgsl_root().parent / path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError):
        return ""
