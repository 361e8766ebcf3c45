"""The author's calls of a function of webnorm's snippets, in which something goes wrong."""

from __future__ import annotations

import re

from webnorm.errors import SourceLocation
from webnorm.kernels.rendering.render import Shader
from webnorm.kernels.source_map.snippet_callers import CallGraph


def author_calls(shader: Shader, line: int) -> tuple[str, list[SourceLocation]]:
    """The function of a snippet of webnorm's that contains a line of a text, from 1, and the author's calls
    of it in the template; an empty name and none for another line.
    """
    if shader.caller(line) is None:
        return "", []
    lines = shader.text.splitlines()
    library = [shader.caller(number) is not None for number in range(1, len(lines) + 1)]
    functions = CallGraph(lines, library)
    name = functions.around(line)
    found = []
    for number in functions.calls(name) if name else ():
        called = re.search(rf"\b{name}\b", lines[number - 1])
        column = called.start() + 1 if called else None
        found.append(shader.place(number, column, len(name) if called else 0))
    return name, [place for place in found if place is not None]
