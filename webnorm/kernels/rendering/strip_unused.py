"""A rendered text without what its problem does not need of webnorm's own functions and values.

Snippets are written for every problem. Where all columns exist, `where_live` returns what it is given;
without a residual `load_input` is `load_x`. Only lines that are webnorm's own are changed: what a user wrote
is compiled as written, and a compiler's message names what is there.

The text is read once. Brackets that do not match leave it as it is, and so does a name that is declared
twice, or that may mean something else than the function: the compiler has to see those.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence, Set

from webnorm.kernels.rendering.inline_trivial import Changes, inline_trivial
from webnorm.kernels.source_map.line_map import Splice
from webnorm.kernels.wgsl.declarations import (
    Declaration,
    MismatchedBrackets,
    code_of,
    declarations,
    read_line,
)
from webnorm.kernels.wgsl.tokens import CannotInstrument

_LET = re.compile(r" +let (\w+) = ([^(;]*);(?: *//.*)?")
_MADE = re.compile(r"( +)let (\w+) = ([^;]*);")
_RETURN = re.compile(r" +return ([^;]*);")
# What may be left out where nothing names it. Bindings, overrides and entry points have attributes, and are
# what a pipeline is made with.
_REMOVABLE = frozenset({"fn", "const", "alias", "var"})


def strip_unused(lines: Sequence[str], own: Sequence[bool]) -> tuple[list[str], list[int], Changes]:
    """The lines without what does nothing, the number of each, and what was changed in them; `own` says
    which of them are webnorm's.
    """
    text, changes = list(lines), Changes()
    try:
        code, free = code_of(text, own)
        found = list(declarations([read_line(line) for line in code]))
    except (CannotInstrument, MismatchedBrackets):
        return *_tidied(text, set()), changes
    inline_trivial(text, code, found, free, changes)
    declared = {one.name for one in found}
    dropped = {at for one in found if one.keyword == "fn" for at in _unused_lets(code, one, free, declared)}
    dropped |= _returned_lets(text, code, free, changes)
    return *_tidied(text, dropped | _unreachable(text, code, found, free, dropped)), changes


def _tidied(text: Sequence[str], dropped: Set[int]) -> tuple[list[str], list[int]]:
    """What is left, without blank lines that follow one another or come before a brace."""
    found, numbers = list[str](), list[int]()
    for at, line in enumerate(text):
        if at in dropped or not (line or (found and found[-1])):
            continue
        if line.lstrip() == "}" and found and not found[-1]:
            found.pop(), numbers.pop()
        found.append(line)
        numbers.append(at)
    return found, numbers


def _unused_lets(
    code: Sequence[str], function: Declaration, free: Sequence[bool], declared: Set[str]
) -> set[int]:
    """Values of webnorm's that a function does not use; not those that it could not make."""
    known, ready = set[str](), dict[int, str]()
    uses = Counter[str]()
    before = ""
    for at in range(function.begin, function.end):
        line = read_line(code[at])
        let = _LET.fullmatch(code[at]) if free[at] and before in (";", "{", "}") else None
        if let is not None and line.named - {"let", let[1]} - known <= declared:
            ready[at] = let[1]
        known |= line.named
        uses.update(line.named)
        before = line.tokens[-1].text if line.tokens else before
    unused = set[int]()
    for at, name in reversed(ready.items()):
        if uses[name] == 1:
            unused.add(at)
            uses.subtract(read_line(code[at]).named)
    return unused


def _returned_lets(text: list[str], code: list[str], free: Sequence[bool], changes: Changes) -> set[int]:
    """Values of webnorm's that the next line returns: it returns what they were made of instead."""
    found = set[int]()
    for at in range(len(code) - 1):
        made = _MADE.fullmatch(code[at]) if free[at] and free[at + 1] else None
        given = _RETURN.fullmatch(code[at + 1]) if made else None
        if made and given and given[1] == made[2]:
            splice = Splice(made.end(1), made.start(3), "return ")
            text[at + 1] = code[at + 1] = splice.of(code[at])
            changes[at + 1] = (at, [*changes.get(at, (at, []))[1], splice])
            found.add(at)
    return found


def _unreachable(
    text: Sequence[str],
    code: Sequence[str],
    found: Sequence[Declaration],
    free: Sequence[bool],
    dropped: Set[int],
) -> set[int]:
    """Lines of declarations of webnorm's that nothing else names, directly or through others.

    One that names something of the user's stays: the compiler has to see what became of it.
    """
    counts = Counter(one.name for one in found)
    mine = [one.alone and all(free[one.begin : one.end]) for one in found]
    users = {one.name for one, own in zip(found, mine, strict=True) if not own}

    def words(lines: Iterable[int]) -> set[str]:
        return set[str]().union(*(read_line(code[at]).named for at in lines if at not in dropped))

    named = {
        one.name: (one, words(range(one.begin, one.end)))
        for one, own in zip(found, mine, strict=True)
        if own and one.is_plain and one.keyword in _REMOVABLE and counts[one.name] == 1
    }
    waiting = [{name} for name, (_, of) in named.items() if not of.isdisjoint(users)]
    inside = {at for one, _ in named.values() for at in range(one.begin, one.end)}
    waiting.append(words(at for at in range(len(code)) if at not in inside))
    left = dict(named)
    while waiting:
        waiting += [left.pop(word)[1] for word in waiting.pop() & left.keys()]
    unreachable = set[int]()
    for one, _ in left.values():
        begin = one.begin
        while begin and text[begin - 1].startswith("//") and free[begin - 1]:
            begin -= 1
        unreachable |= set(range(begin, one.end))
    return unreachable
