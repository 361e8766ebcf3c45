"""Bounds of a shader's text that no driver tells politely: workgroup memory, and how deep it is nested."""

from __future__ import annotations

import re
from collections.abc import Iterable

_WORKGROUP_VARIABLE = re.compile(
    r"var\s*<\s*workgroup\s*>\s*(\w+)\s*:\s*(?:array\s*<\s*([\w<>]+?)\s*,\s*(\d{1,12})u?\s*>|([\w<>]+))\s*;"
)


_ALIAS = re.compile(r"alias\s+(\w+)\s*=\s*([\w<>]+)\s*;")
_FUNCTION = re.compile(r"^fn\s+(\w+)", re.MULTILINE)
_VECTOR = re.compile(r"vec([234])(?:<(\w+)>|([fuih]))")


def workgroup_bytes(text: str, entry_points: Iterable[str]) -> int:
    """Bytes of workgroup memory of the entry point that uses most, as WebGPU counts them.

    Each variable is rounded up to 16; WGSL lays a vec3 out as a vec4.
    """
    aliases = dict(_ALIAS.findall(text))
    sizes: dict[str, int] = {}
    for name, element, count, single in _WORKGROUP_VARIABLE.findall(text):
        kind = element or single
        size = _bytes_of(aliases.get(kind, kind)) * int(count or 1)
        sizes[name] = -(-size // 16) * 16
    functions = _FUNCTION.split(_WORKGROUP_VARIABLE.sub("", text))
    words = {
        name: set(re.findall(r"\w+", body))
        for name, body in zip(functions[1::2], functions[2::2], strict=True)
    }

    def used(entry: str) -> set[str]:
        seen, waiting = set[str](), [entry]
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting += words.get(name, set()) - seen
        return seen

    return max((sum(sizes.get(name, 0) for name in used(entry)) for entry in entry_points), default=0)


def _bytes_of(kind: str) -> int:
    """Bytes of a scalar or a vector of WGSL."""
    vector = _VECTOR.fullmatch(kind)
    lanes, scalar = (vector[1], vector[2] or vector[3]) if vector else ("1", kind)
    return (2 if scalar in ("f16", "h") else 4) * (4 if lanes == "3" else int(lanes))


# Compilers descend into what is nested, one call for each level and operator, until their stack is full.
_MOST_NESTED, _MOST_OPERATORS = 200, 2000
_OPERATOR = r"\}\s*else\b|[-+*/%&|^<>!~=.]"
_OPERATORS = re.compile(_OPERATOR)
_BRACKETS = re.compile(r"[^][(){}]+")
_ROUND = str.maketrans("[]{}", "()()")
_NESTING = re.compile(rf"[([{{]|{_OPERATOR}|[)\]}}]|[;,]")


def nesting_too_deep(code: str) -> tuple[int, str] | None:
    """The line, from 0 on, of what a compiler may not survive, and what it is; of a text without comments."""
    if _is_shallow(code):
        return None
    # For each open bracket the operators of the statement, or the argument, that is being read, with those in
    # brackets that closed since it began; and the most that an argument before it has.
    counts, most = [0], [0]

    def close() -> int:
        return max(counts.pop(), most.pop()) if len(counts) > 1 else 0

    for found in _NESTING.finditer(code):
        mark = found[0]
        if mark in "([{":
            counts.append(0)
            most.append(0)
        elif mark == ",":
            most[-1] = max(most[-1], counts[-1])
            counts[-1] = 0
        elif mark == ";":
            counts[-1] = most[-1] = 0
        elif mark in ")]":
            inner = close()
            counts[-1] += inner
        elif mark == "}":
            close()
            counts[-1] = 0
        else:
            if mark.startswith("}"):
                close()
            counts[-1] += 1
        if len(counts) > _MOST_NESTED:
            return code.count("\n", 0, found.start()), f"more than {_MOST_NESTED} brackets in each other"
        if counts[-1] > _MOST_OPERATORS:
            return code.count("\n", 0, found.start()), f"more than {_MOST_OPERATORS} operators in a row"
    return None


def _is_shallow(code: str) -> bool:
    """Whether a text is far from any bound, as most are: told in a third of the time."""
    brackets = _BRACKETS.sub("", code).translate(_ROUND)
    deep = 0
    while "()" in brackets and deep < _MOST_NESTED:
        brackets = brackets.replace("()", "")
        deep += 1
    return deep + brackets.count("(") < _MOST_NESTED and len(_OPERATORS.findall(code)) <= _MOST_OPERATORS
