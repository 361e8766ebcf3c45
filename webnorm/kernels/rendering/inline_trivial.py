"""Functions of a text that return what they are given, or what another returns: taken out of their calls."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from webnorm.kernels.source_map.line_map import Splice
from webnorm.kernels.wgsl.declarations import (
    CLOSING,
    OPENING,
    WORD,
    Declaration,
    DeclarationLine,
    LineToken,
    MismatchedBrackets,
    code_of,
    declarations,
    read_line,
)
from webnorm.kernels.wgsl.tokens import CannotInstrument

# Of a line that was changed: the number of the line that it was made of, and how.
Changes = dict[int, tuple[int, list[Splice]]]

# Of a function's tokens with a blank between each two.
_FUNCTION = re.compile(
    r"fn \w+ \( (?P<parameters>[^()]*) \) - > [^{;]+ \{ "
    r"(?:let (?P<variable>\w+) = (?P<made>[^;]*) ; )?return (?P<value>[^;]*) ; \}"
)
# Lines of a function that may be one of those.
_LONGEST = 4


class _Trivial(NamedTuple):
    """A function that returns its parameter number `argument`, or else calls `called` with all of its own.

    `typed` says that the arguments take their types from `called`, too, which is none of WGSL's own.
    """

    arity: int
    argument: int | None = None
    called: str = ""
    typed: bool = False


def inline_calls(lines: Sequence[str], own: Sequence[bool]) -> tuple[list[str], Changes]:
    """The lines, and what was changed in them."""
    text, changes = list(lines), Changes()
    try:
        code, free = code_of(text, own)
        found = list(declarations([read_line(line) for line in code]))
    except (CannotInstrument, MismatchedBrackets):
        return text, changes
    inline_trivial(text, code, found, free, changes)
    return text, changes


def inline_trivial(
    text: list[str],
    code: list[str],
    found: Sequence[Declaration],
    free: Sequence[bool],
    changes: Changes,
) -> None:
    """Take trivial functions of webnorm's out of its own calls."""
    counts = Counter(one.name for one in found)
    functions = {one.name for one in found if one.keyword == "fn" and counts[one.name] == 1}
    lines = [read_line(line) for line in code]
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
    lines: Sequence[DeclarationLine], found: Sequence[Declaration], free: Sequence[bool], functions: Set[str]
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
        depth += (text in OPENING) - (text in CLOSING)
        if depth < 0:
            return found if at == len(value) - 1 else []
        if text == "," and not depth:
            found.append([])
        else:
            found[-1].append(text)
    return []


def _splices(tokens: Sequence[LineToken], trivial: Mapping[str, _Trivial]) -> Iterator[Splice]:
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
            has_type = [any(WORD.match(token.text) for token in tokens[slice(*each)]) for each in arguments]
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


def _partners(tokens: Sequence[LineToken]) -> dict[int, int]:
    """The closing bracket of each opening one of a line."""
    found, opened = dict[int, int](), list[int]()
    for at, (text, _, _) in enumerate(tokens):
        if text in OPENING:
            opened.append(at)
        elif text in CLOSING and opened:
            found[opened.pop()] = at
    return found


def _ranges(
    tokens: Sequence[LineToken], begin: int, end: int, partner: Mapping[int, int]
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


def _is_alone(tokens: Sequence[LineToken], begin: int, end: int) -> bool:
    """Whether the text in the place of a call needs no brackets, whatever it is."""
    before = [token.text for token in tokens[max(begin - 2, 0) : begin]]
    after = tokens[end + 1].text if end + 1 < len(tokens) else ""
    assigned = before[-1:] == ["="] and before[0] not in ("=", "!", "<", ">")
    return after in (")", ",", ";") and (assigned or before[-1:] in (["("], [","], ["return"]))


def _is_atom(tokens: Sequence[LineToken], begin: int, end: int, partner: Mapping[int, int]) -> bool:
    """Whether an expression is a name, with what is called, indexed or taken of it."""
    at = begin + 1
    while at < end:
        if tokens[at].text == ".":
            at += 2
        elif tokens[at].text in ("(", "["):
            at = partner.get(at, end) + 1
        else:
            return False
    return bool(WORD.match(tokens[begin].text))


def _spliced(line: str, splices: Iterable[Splice]) -> str:
    for splice in splices:
        line = splice.of(line)
    return line
