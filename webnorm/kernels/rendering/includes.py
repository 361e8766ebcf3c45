"""Checks of a template's includes: names inside the kernel's folders, and no circular includes."""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import lru_cache
from pathlib import PurePosixPath, PureWindowsPath

from webnorm.errors import sentence
from webnorm.kernels.headers import sources

# Characters of a template's name.
_MOST_NAME = 255


class IncludeRefused(Exception):
    """A refused include. A template cannot ignore it, unlike an include that is not found."""

    def __init__(self, name: object, reason: str) -> None:
        super().__init__(f"cannot include {sentence(repr(name), 80)}: {reason}")


@lru_cache(maxsize=256)
def check_name(template: str) -> None:
    """Raise IncludeRefused for a name that must not be included."""
    if len(template) > _MOST_NAME:
        raise IncludeRefused(template, f"its name has {len(template)} characters; the limit is {_MOST_NAME}")
    path = PurePosixPath(template.replace("\\", "/"))
    if path.is_absolute() or PureWindowsPath(template).anchor or ".." in path.parts:
        raise IncludeRefused(template, "it is outside of the kernel's folders")
    if sources.FORBIDDEN.search(template):
        raise IncludeRefused(template, "it is not a valid file name")


def note_include(includes: dict[str, set[str]], template: str, included: str) -> None:
    """Record that a template includes another. Raises IncludeRefused for a circular include.

    Without this check Python's stack would overflow, which takes seconds and reports an unrelated line.
    """
    includes.setdefault(template, set()).add(included)
    if circle := _include_path(includes, included, template):
        raise IncludeRefused(included, f"circular: {' -> '.join([template, *circle])}")


def _include_path(includes: Mapping[str, Set[str]], start: str, end: str) -> list[str]:
    """Return a chain of includes from one template to another; empty if there is none."""
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
