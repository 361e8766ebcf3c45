"""A rendered text without what its problem does not need of webnorm's own functions and values.

Snippets are written for every problem. Where all columns exist, `where_live` returns what it is given;
without a residual `load_input` is `load_x`. Only lines that are webnorm's own are changed: what a user wrote
is compiled as written, and a compiler names what stands there.

The text is read once. Brackets that do not match leave it as it is, and so does a name that is declared
twice, or that may mean something else than the function: the compiler has to see those.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from webnorm.kernels.places import Splice
from webnorm.kernels.tokens import Unwatchable, comments, without_comments

# Of a line that was changed: the number of the line that it was made of, and how.
Changes = dict[int, tuple[int, list[Splice]]]

_TOKEN = re.compile(r"//.*|[^\W\d]\w*|\d[\w.]*|[^\s\w]")
_WORD = re.compile(r"[^\W\d]\w*")
_LET = re.compile(r" +let (\w+) = ([^(;]*);(?: *//.*)?")
_MADE = re.compile(r"( +)let (\w+) = ([^;]*);")
_RETURN = re.compile(r" +return ([^;]*);")
# Of a function's tokens with a blank between each two.
_FUNCTION = re.compile(
    r"fn \w+ \( (?P<parameters>[^()]*) \) - > [^{;]+ \{ "
    r"(?:let (?P<variable>\w+) = (?P<made>[^;]*) ; )?return (?P<value>[^;]*) ; \}"
)
# Lines of a function that may be one of those.
_LONGEST = 4
_OPENING = {"(": ")", "[": "]", "{": "}"}
_CLOSING = frozenset(_OPENING.values())
_DECLARING = frozenset({"fn", "const", "alias", "var", "struct", "override"})
# What may be left out where nothing names it. Bindings, overrides and entry points have attributes, and are
# what a pipeline is made with.
_REMOVABLE = frozenset({"fn", "const", "alias", "var"})


class _Token(NamedTuple):
    text: str
    begin: int
    end: int


@dataclass(frozen=True)
class _Line:
    """A line's code. `named` are its words but for members, `other` those of them that are no calls, and
    `residue` the brackets that close what was open before it, and those that it leaves open.
    """

    tokens: tuple[_Token, ...]
    named: frozenset[str]
    other: frozenset[str]
    residue: str


# Lines of the library stand in text after text.
@lru_cache(maxsize=1 << 13)
def _read(line: str) -> _Line:
    """Read a line that no block comment reaches into."""
    tokens = [_Token(found[0], *found.span()) for found in _TOKEN.finditer(line)]
    if tokens and tokens[-1].text.startswith("//"):
        tokens.pop()
    named, other, residue = set[str](), set[str](), list[str]()
    before = ""
    for at, token in enumerate(tokens):
        text = token.text
        if _WORD.match(text) and before != ".":
            named.add(text)
            if before == "@" or at + 1 == len(tokens) or tokens[at + 1].text != "(":
                other.add(text)
        elif text in _CLOSING and residue and _OPENING.get(residue[-1]) == text:
            residue.pop()
        elif text in _CLOSING or text in _OPENING:
            residue.append(text)
        before = text
    return _Line(tuple(tokens), frozenset(named), frozenset(other), "".join(residue))


@dataclass(frozen=True)
class _Declaration:
    """A declaration at the top of a text, in the lines from `begin` to before `end`; `alone` tells that they
    hold nothing else. `is_plain` is one without attributes.
    """

    keyword: str
    name: str
    begin: int
    end: int
    alone: bool
    is_plain: bool


class _Mismatched(Exception):
    """A text whose brackets do not belong together."""


def plain(lines: Sequence[str], own: Sequence[bool]) -> tuple[list[str], list[int], Changes]:
    """The lines without what does nothing, the number of each, and what was changed in them; `own` tells
    which of them are webnorm's.
    """
    text, changes = list(lines), Changes()
    try:
        code, free = _code(text, own)
        found = list(_declarations([_read(line) for line in code]))
    except (Unwatchable, _Mismatched):
        return *_tidied(text, set()), changes
    _inline(text, code, found, free, changes)
    declared = {one.name for one in found}
    dropped = {at for one in found if one.keyword == "fn" for at in _unused_lets(code, one, free, declared)}
    dropped |= _returned_lets(text, code, free, changes)
    return *_tidied(text, dropped | _unreachable(text, code, found, free, dropped)), changes


def _code(lines: Sequence[str], own: Sequence[bool]) -> tuple[list[str], list[bool]]:
    """The lines with blanks for block comments, and which of them are webnorm's and have no part of one."""
    if not any("/*" in line for line in lines):
        return list(lines), list(own)
    whole, free = "\n".join(lines), list(own)
    code, line, at = list(lines), 0, 0
    blank = without_comments(whole).split("\n")
    for start, end in comments(whole):
        line += whole.count("\n", at, start)
        last = line + whole.count("\n", start, end)
        if whole.startswith("/*", start):
            free[line : last + 1] = [False] * (last + 1 - line)
            code[line : last + 1] = blank[line : last + 1]
        line, at = last, end
    return code, free


def _declarations(lines: Sequence[_Line]) -> Iterator[_Declaration]:
    """The declarations of a text, in order. Raises _Mismatched."""
    opened, head = list[str](), list[str]()
    begin, starts_line = 0, False
    for number, line in enumerate(lines):
        if opened and _is_inside(line.residue, len(opened)):
            _close(opened, line.residue)
            continue
        for at, (text, _, _) in enumerate(line.tokens):
            if not head and not opened:
                begin, starts_line = number, at == 0
            if text in _CLOSING:
                _close(opened, text)
            if not opened:
                head.append(text)
            if text in _OPENING:
                opened.append(text)
            if not opened and text in (";", "}"):
                yield _declaration(head, begin, number + 1, starts_line and at == len(line.tokens) - 1)
                head = []
    if opened or head:
        raise _Mismatched


def _is_inside(residue: str, depth: int) -> bool:
    """Whether brackets of a line leave some of those open that were so before it."""
    return sum(bracket in _CLOSING for bracket in residue) < depth


def _close(opened: list[str], residue: str) -> None:
    for bracket in residue:
        if bracket in _OPENING:
            opened.append(bracket)
        elif not opened or _OPENING[opened.pop()] != bracket:
            raise _Mismatched


def _declaration(head: Sequence[str], begin: int, end: int, alone: bool) -> _Declaration:
    """What the tokens outside of brackets declare; those of attributes stand in front."""
    at = 0
    while head[at] == "@":
        at += 4 if head[at + 2 : at + 4] == ["(", ")"] else 2
        if at >= len(head):
            raise _Mismatched
    keyword, is_plain = head[at], at == 0
    if keyword not in _DECLARING:
        return _Declaration("", "", begin, end, alone, is_plain)
    at = head.index(">", at) if keyword == "var" and head[at + 1] == "<" and ">" in head else at
    return _Declaration(keyword, "".join(head[at + 1 : at + 2]), begin, end, alone, is_plain)


def _tidied(text: Sequence[str], dropped: Set[int]) -> tuple[list[str], list[int]]:
    """What is left, without blank lines that follow one another or stand before a brace."""
    found, numbers = list[str](), list[int]()
    for at, line in enumerate(text):
        if at in dropped or not (line or (found and found[-1])):
            continue
        if line.lstrip() == "}" and found and not found[-1]:
            found.pop(), numbers.pop()
        found.append(line)
        numbers.append(at)
    return found, numbers


# --- functions that return what they are given, or what another returns


class _Trivial(NamedTuple):
    """A function that returns its parameter number `argument`, or else calls `called` with all of its own.

    `typed` tells that the arguments take their types from `called`, too, which is none of WGSL's own.
    """

    arity: int
    argument: int | None = None
    called: str = ""
    typed: bool = False


def _inline(
    text: list[str],
    code: list[str],
    found: Sequence[_Declaration],
    free: Sequence[bool],
    changes: Changes,
) -> None:
    """Take trivial functions of webnorm's out of its own calls."""
    counts = Counter(one.name for one in found)
    functions = {one.name for one in found if one.keyword == "fn" and counts[one.name] == 1}
    lines = [_read(line) for line in code]
    trivial = _trivial(dict(_returning(lines, found, free, functions)), functions, counts.keys())
    for one in found:
        if one.keyword != "fn" or not one.alone or not trivial:
            continue
        # A word that is anything but a call somewhere in a function may be another thing in all of it.
        other = frozenset[str]().union(*(line.other for line in lines[one.begin : one.end]))
        for at in range(one.begin, one.end):
            names = lines[at].named & trivial.keys() if free[at] else ()
            taken = {name: trivial[name] for name in names if other.isdisjoint((name, trivial[name].called))}
            if taken:
                splices = sorted(_splices(lines[at].tokens, taken), reverse=True)
                if splices:
                    changes[at] = at, splices
                    text[at] = code[at] = _spliced(code[at], splices)


def _returning(
    lines: Sequence[_Line], found: Sequence[_Declaration], free: Sequence[bool], functions: Set[str]
) -> Iterator[tuple[str, tuple[list[str], list[str]]]]:
    """The functions of webnorm's that do nothing but return, with their parameters and what they return."""
    for one in found:
        if one.name not in functions or not one.alone or one.end - one.begin > _LONGEST:
            continue
        if not all(free[one.begin : one.end]):
            continue
        tokens = [token.text for line in lines[one.begin : one.end] for token in line.tokens]
        made = _FUNCTION.fullmatch(" ".join(tokens))
        if made is None or made["variable"] not in (None, made["value"]):
            continue
        parts = [part.split(" ") for part in made["parameters"].split(" , ")]
        if all(len(part) > 2 and part[1] == ":" for part in parts):
            yield one.name, ([part[0] for part in parts], (made["made"] or made["value"]).split(" "))


def _trivial(
    returning: Mapping[str, tuple[list[str], list[str]]], functions: Set[str], declared: Set[str]
) -> dict[str, _Trivial]:
    """What each of these functions comes to; those that lead back to themselves are left out."""
    known: dict[str, _Trivial | None] = {}
    for name in returning:
        # A function waits for the one that it calls, not in Python's stack: names may form a long chain.
        waiting = {} if name in known else {name: None}
        while waiting:
            last = next(reversed(waiting))
            parameters, value = returning[last]
            found = _reduced(parameters, value, known, returning)
            if isinstance(found, str) and found in waiting:
                known.update(waiting)
                waiting = {}
            elif isinstance(found, str) and found in returning and found not in known:
                waiting[found] = None
            else:
                if isinstance(found, str):
                    arity, typed = len(parameters), found in functions
                    found = _Trivial(arity, None, found, typed) if typed or found not in declared else None
                known[last] = found
                del waiting[last]
    return {name: one for name, one in known.items() if one is not None}


def _reduced(
    parameters: list[str], value: list[str], known: Mapping[str, _Trivial | None], returning: Container[str]
) -> _Trivial | str | None:
    """What an expression comes to: one of the parameters, or the name of what is called with all of them.

    It is the name, too, of another of the `returning`, which has to be known first.
    """
    while len(value) > 1:
        called, arguments = value[0], _arguments(value)
        if called in parameters or not arguments:
            return None
        inner = known.get(called)
        if inner is not None and len(arguments) == inner.arity:
            if inner.argument is not None:
                value = arguments[inner.argument]
                continue
            called = inner.called
        is_pending = called in returning and called not in known
        return called if is_pending or arguments == [[name] for name in parameters] else None
    return _Trivial(len(parameters), parameters.index(value[0])) if value[0] in parameters else None


def _arguments(value: Sequence[str]) -> list[list[str]]:
    """The arguments of a call; nothing for another expression."""
    found, depth = list[list[str]]([[]]), 0
    if value[1] != "(":
        return []
    for at, text in enumerate(value[2:], 2):
        depth += (text in _OPENING) - (text in _CLOSING)
        if depth < 0:
            return found if at == len(value) - 1 else []
        if text == "," and not depth:
            found.append([])
        else:
            found[-1].append(text)
    return []


def _splices(tokens: Sequence[_Token], trivial: Mapping[str, _Trivial]) -> Iterator[Splice]:
    """The changes that take trivial functions out of their calls in a line. None touches another."""
    partner = _partners(tokens)
    # Parts of the line, and of one that is left of a call whether it needs no brackets of its own there.
    waiting: list[tuple[int, int, bool | None]] = [(0, len(tokens), None)]
    while waiting:
        begin, end, left = waiting.pop()
        at = begin
        while at < end:
            name, closed = tokens[at], partner.get(at + 1, -1)
            one = trivial.get(name.text)
            at += 1
            if one is None or closed < 0 or (at > 1 and tokens[at - 2].text in ("fn", ".")):
                continue
            arguments = list(_ranges(tokens, at + 1, closed, partner))
            if len(arguments) != one.arity:
                continue
            # A number may take its type from the function.
            has_type = [any(_WORD.match(token.text) for token in tokens[slice(*each)]) for each in arguments]
            if one.argument is None:
                if one.typed or all(has_type):
                    yield Splice(name.begin, name.end, one.called)
                continue
            first, last = arguments[one.argument]
            if not has_type[one.argument]:
                continue
            whole = at - 1 == begin and closed == end - 1 and left is not None
            alone = bool(left) if whole else _is_alone(tokens, at - 1, closed)
            again = (
                tokens[first].text in trivial
                and trivial[tokens[first].text].argument is not None
                and partner.get(first + 1) == last - 1
            )
            safe = alone or again or _is_atom(tokens, first, last, partner)
            opened, ended = ("", "") if safe else ("(", ")")
            yield Splice(name.begin, tokens[first].begin, opened)
            yield Splice(tokens[last - 1].end, tokens[closed].end, ended)
            waiting.append((first, last, alone or bool(opened)))
            at = closed + 1


def _partners(tokens: Sequence[_Token]) -> dict[int, int]:
    """The closing bracket of each opening one of a line."""
    found, opened = dict[int, int](), list[int]()
    for at, (text, _, _) in enumerate(tokens):
        if text in _OPENING:
            opened.append(at)
        elif text in _CLOSING and opened:
            found[opened.pop()] = at
    return found


def _ranges(
    tokens: Sequence[_Token], begin: int, end: int, partner: Mapping[int, int]
) -> Iterator[tuple[int, int]]:
    """The arguments between two brackets."""
    at = first = begin
    while at < end:
        if tokens[at].text == ",":
            yield first, at
            first = at + 1
        at = partner.get(at, at) + 1
    if first < end:
        yield first, end


def _is_alone(tokens: Sequence[_Token], begin: int, end: int) -> bool:
    """Whether what stands in the place of a call needs no brackets, whatever it is."""
    before = [token.text for token in tokens[max(begin - 2, 0) : begin]]
    after = tokens[end + 1].text if end + 1 < len(tokens) else ""
    assigned = before[-1:] == ["="] and before[0] not in ("=", "!", "<", ">")
    return after in (")", ",", ";") and (assigned or before[-1:] in (["("], [","], ["return"]))


def _is_atom(tokens: Sequence[_Token], begin: int, end: int, partner: Mapping[int, int]) -> bool:
    """Whether an expression is a name, with what is called, indexed or taken of it."""
    at = begin + 1
    while at < end:
        if tokens[at].text == ".":
            at += 2
        elif tokens[at].text in ("(", "["):
            at = partner.get(at, end) + 1
        else:
            return False
    return bool(_WORD.match(tokens[begin].text))


def _spliced(line: str, splices: Iterable[Splice]) -> str:
    for splice in splices:
        line = splice.of(line)
    return line


# --- what nothing uses


def _unused_lets(
    code: Sequence[str], function: _Declaration, free: Sequence[bool], declared: Set[str]
) -> set[int]:
    """Values of webnorm's that a function does not use; not those that it could not make."""
    known, ready = set[str](), dict[int, str]()
    uses = Counter[str]()
    before = ""
    for at in range(function.begin, function.end):
        line = _read(code[at])
        let = _LET.fullmatch(code[at]) if free[at] and before in (";", "{", "}") else None
        if let is not None and declared.issuperset(line.named - {"let", let[1]} - known):
            ready[at] = let[1]
        known |= line.named
        uses.update(line.named)
        before = line.tokens[-1].text if line.tokens else before
    unused = set[int]()
    for at, name in reversed(ready.items()):
        if uses[name] == 1:
            unused.add(at)
            uses.subtract(_read(code[at]).named)
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
    found: Sequence[_Declaration],
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
        return set[str]().union(*(_read(code[at]).named for at in lines if at not in dropped))

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
