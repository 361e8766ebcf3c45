"""What one template may ask for by name: a file of the kernel's folders, and none that is being included."""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import lru_cache
from pathlib import PurePosixPath, PureWindowsPath

from webnorm.errors import sentence
from webnorm.kernels.headers import sources

# Characters of a template's name.
_MOST_NAME = 255


class IncludeRefused(Exception):
    """An include that is refused: unlike one that is not found, none that a template can ignore."""

    def __init__(self, name: object, reason: str) -> None:
        super().__init__(f"cannot include {sentence(repr(name), 80)}: {reason}")


@lru_cache(maxsize=256)
def check_name(template: str) -> None:
    """Raise IncludeRefused for the name of what must not be included."""
    if len(template) > _MOST_NAME:
        raise IncludeRefused(
            template, f"its name has {len(template)} characters; expected at most {_MOST_NAME}"
        )
    path = PurePosixPath(template.replace("\\", "/"))
    if path.is_absolute() or PureWindowsPath(template).anchor or ".." in path.parts:
        raise IncludeRefused(template, "it lies outside of the kernel's folders")
    if sources.FORBIDDEN.search(template):
        raise IncludeRefused(template, "it is not a valid file name")


def note_include(includes: dict[str, set[str]], template: str, included: str) -> None:
    """Note that a template includes another, among all that a rendering includes; raises IncludeRefused where
    that leads back to it.

    Without that Python's stack fills up, which takes seconds and ends at a line that is not to blame.
    """
    includes.setdefault(template, set()).add(included)
    if circle := _way(includes, included, template):
        raise IncludeRefused(included, f"circular: {' -> '.join([template, *circle])}")


def _way(includes: Mapping[str, Set[str]], start: str, end: str) -> list[str]:
    """The templates from one to another, each included by the one before; none where none leads there."""
    ways = {start: [start]}
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name == end:
            return ways[name]
        for included in includes.get(name, set()) - ways.keys():
            ways[included] = [*ways[name], included]
            waiting.append(included)
    return []
