"""WGSL as tokens, with matching brackets and ends of statements, and checks of size.

The checks cover workgroup memory and nesting depth, for which drivers report no useful errors.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

# A line comment ends at any of WGSL's line breaks, which include the form feed.
_COMMENT = re.compile(r"//[^\n-\r\x85\u2028\u2029]*|/\*")
_NESTED = re.compile(r"/\*|\*/")
_TOKEN = re.compile(
    r"""(?P<space>[\s\u200e\u200f]+)
    |(?P<word>[^\W\d]\w*)
    |(?P<number>0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?[iufh]?
        |(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[iufh]?)
    |(?P<mark>[][(){}<>=!&|^~*/%+.,:;@-])""",
    re.VERBOSE,
)
_CLOSING = {")": "(", "]": "[", "}": "{"}
_BUILTINS = {
    "local_invocation_index": "u32",
    "workgroup_id": "vec3<u32>",
    "num_workgroups": "vec3<u32>",
}
_WORKGROUP_VARIABLE = re.compile(
    r"var\s*<\s*workgroup\s*>\s*(\w+)\s*:\s*(?:array\s*<\s*([\w<>]+?)\s*,\s*(\d{1,12})u?\s*>|([\w<>]+))\s*;"
)
_ALIAS = re.compile(r"alias\s+(\w+)\s*=\s*([\w<>]+)\s*;")
_FUNCTION = re.compile(r"^fn\s+(\w+)", re.MULTILINE)
_VECTOR = re.compile(r"vec([234])(?:<(\w+)>|([fuih]))")


class CannotInstrument(Exception):
    """The text was not understood, so it cannot be instrumented."""


class UnterminatedComment(CannotInstrument):
    """A comment is not closed; it begins at `start`."""

    def __init__(self, start: int) -> None:
        super().__init__("the comment is not closed; expected */")
        self.start = start


class WgslToken(NamedTuple):
    """A word, a number, or any other single character: `>>` is two tokens, because it may close two types."""

    text: str
    kind: str
    start: int
    line: int


class TokenizedShader:
    """The numbered tokens of a text; raises CannotInstrument if the text is not understood.

    `partner` maps each bracket to its other end. `around` has, for each token, the opening bracket of the
    innermost pair around it, or -1.
    """

    def __init__(self, text: str) -> None:
        self.text = without_comments(text)
        self.tokens = tokenize(self.text)
        self.partner: dict[int, int] = {}
        self.around: list[int] = []
        self._places = defaultdict[str, list[int]](list)
        opened: list[int] = []
        for number, token in enumerate(self.tokens):
            self._places[token.text].append(number)
            if token.text in _CLOSING:
                if not opened or self[opened[-1]] != _CLOSING[token.text]:
                    raise CannotInstrument(f"line {token.line}: {token.text} has no opening bracket")
                first = opened.pop()
                self.partner[first], self.partner[number] = number, first
            self.around.append(opened[-1] if opened else -1)
            if token.text in _CLOSING.values():
                opened.append(number)
        if opened:
            raise CannotInstrument(f"line {self.tokens[opened[-1]].line}: {self[opened[-1]]} is not closed")

    def __getitem__(self, number: int) -> str:
        """Return the text of a token, empty for a number out of range."""
        return self.tokens[number].text if 0 <= number < len(self.tokens) else ""

    def places(self, *texts: str) -> list[int]:
        """Return the numbers of the tokens with one of these texts, in order."""
        return sorted(number for text in set(texts) for number in self._places.get(text, ()))

    def follows(self, number: int, *texts: str) -> bool:
        """Return whether the tokens from a number on have these texts."""
        return all(self[number + more] == text for more, text in enumerate(texts))

    def operator(self, number: int, pattern: re.Pattern[str]) -> str | None:
        """Match a pattern at the begin of a token: an operator of several characters contains no blanks."""
        found = pattern.match(self.text, self.tokens[number].start) if number < len(self.tokens) else None
        return found[0] if found else None

    def end_of_statement(self, number: int) -> int:
        """Return the number of the semicolon that ends the statement of a token."""
        for end in range(number, len(self.tokens)):
            if self[end] == ";" and self.around[end] == self.around[number]:
                return end
        raise CannotInstrument(f"line {self.tokens[number].line}: the statement lacks a semicolon")

    def changed(self, changes: Mapping[int, str]) -> str:
        """Return the text with some tokens replaced; line numbers stay the same."""
        parts, after = [], 0
        for number, text in sorted(changes.items()):
            token = self.tokens[number]
            parts += [self.text[after : token.start], text]
            after = token.start + len(token.text)
        return "".join([*parts, self.text[after:]])


@dataclass(frozen=True)
class EntryPointInfo:
    """An entry point with access to the numbers of its invocation and workgroup.

    `index` is WGSL text for the invocation's number within its workgroup, `group` for the workgroup's number.
    `changes` to the tokens add the missing parameters; `body` is the first token of its body.
    """

    index: str
    group: str
    changes: Mapping[int, str]
    body: int


def entry_point(code: TokenizedShader, name: str, prefix: str) -> EntryPointInfo:
    """Find an entry point by name; added parameters start with the prefix. Raises CannotInstrument."""
    start = next((at for at in code.places("fn") if code[at + 1] == name), -1)
    if start < 0:
        raise CannotInstrument(f"the entry point {name} was not found")
    opened = start + 2
    closed = code.partner.get(opened, opened)
    body = next((at for at in range(closed, len(code.tokens)) if code[at] == "{"), -1)
    if code[opened] != "(" or body < 0:
        raise CannotInstrument(f"line {code.tokens[start].line}: the entry point {name} was not understood")
    names, added = dict[str, str](), ""
    for builtin, kind in _BUILTINS.items():
        names[builtin] = _parameter(code, range(opened, closed), builtin)
        if not names[builtin]:
            names[builtin] = f"{prefix}{builtin}"
            added += f", @builtin({builtin}) {names[builtin]}: {kind}"
    # The parameters before them may end with a comma, or there may be none.
    changes = {closed: (added.removeprefix(",") if code[closed - 1] in (",", "(") else added) + ")"}
    index, group, counts = names.values()
    return EntryPointInfo(index, f"{group}.y * {counts}.x + {group}.x", changes, body)


def _parameter(code: TokenizedShader, inside: range, builtin: str) -> str:
    """Return the name of the parameter for a builtin, empty if there is none."""
    named = False
    for at in inside:
        named = named or code.follows(at, "@", "builtin", "(", builtin)
        if named and code[at + 1] == ":":
            return code[at]
    return ""


def tokenize(text: str) -> list[WgslToken]:
    """Return the tokens of a text without comments. Raises CannotInstrument."""
    tokens = []
    at, line = 0, 1
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            raise CannotInstrument(f"line {line}: {text[at]!r} is not the start of a WGSL token")
        if found.lastgroup == "space":
            line += found[0].count("\n")
        else:
            tokens.append(WgslToken(found[0], found.lastgroup, at, line))
        at = found.end()
    return tokens


def without_comments(text: str) -> str:
    """Replace comments by blanks, so that positions stay the same. Raises UnterminatedComment."""
    parts, after = [], 0
    for start, end in comments(text):
        parts += [text[after:start], re.sub(r"[^\n]", " ", text[start:end])]
        after = end
    return "".join([*parts, text[after:]])


def comments(text: str) -> Iterator[tuple[int, int]]:
    """Yield the begin and end of each comment. Raises UnterminatedComment for one that is not closed."""
    end = 0
    while found := _COMMENT.search(text, end):
        end, depth = found.end(), int(found[0] == "/*")
        while depth:
            mark = _NESTED.search(text, end)
            if mark is None:
                raise UnterminatedComment(found.start())
            depth += 1 if mark[0] == "/*" else -1
            end = mark.end()
        yield found.start(), end


def workgroup_bytes(text: str, entry_points: Iterable[str]) -> int:
    """Return the bytes of workgroup memory of the entry point that uses most, as WebGPU counts them.

    Each variable is rounded up to 16 bytes, and a vec3 takes the space of a vec4.
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
    """Return the bytes of a WGSL scalar or vector type."""
    vector = _VECTOR.fullmatch(kind)
    lanes, scalar = (vector[1], vector[2] or vector[3]) if vector else ("1", kind)
    return (2 if scalar in ("f16", "h") else 4) * (4 if lanes == "3" else int(lanes))


# Compilers recurse for each nesting level and operator, until their stack overflows.
_MOST_NESTED, _MOST_OPERATORS = 200, 2000
_OPERATOR = r"\}\s*else\b|[-+*/%&|^<>!~=.]"
_OPERATORS = re.compile(_OPERATOR)
_BRACKETS = re.compile(r"[^][(){}]+")
_ROUND = str.maketrans("[]{}", "()()")
_NESTING = re.compile(rf"[([{{]|{_OPERATOR}|[)\]}}]|[;,]")


def nesting_too_deep(code: str) -> tuple[int, str] | None:
    """Return the line, from 0, and a description of nesting that may crash a compiler, else None.

    The text must not contain comments.
    """
    if _is_shallow(code):
        return None
    # For each open bracket, `counts` has the operators of the current statement or argument, including those
    # in brackets already closed within it. `most` has the largest count of the earlier arguments.
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
            return code.count("\n", 0, found.start()), f"brackets are nested more than {_MOST_NESTED} deep"
        if counts[-1] > _MOST_OPERATORS:
            return code.count("\n", 0, found.start()), f"more than {_MOST_OPERATORS} operators in a row"
    return None


def _is_shallow(code: str) -> bool:
    """Return whether a text is clearly within the limits, as most are. This takes a third of the time."""
    brackets = _BRACKETS.sub("", code).translate(_ROUND)
    deep = 0
    while "()" in brackets and deep < _MOST_NESTED:
        brackets = brackets.replace("()", "")
        deep += 1
    return deep + brackets.count("(") < _MOST_NESTED and len(_OPERATORS.findall(code)) <= _MOST_OPERATORS
