"""A rendered text without what does nothing: what a problem does not need of the library's functions.

Snippets are written for every problem. Where all columns exist, `where_live` returns what it is given;
without a residual `load_input` is `load_x`. Only what stands in snippets is taken out, line by line:
whatever is written otherwise than the snippets are is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from webnorm.kernels.places import Splice

# Of a line that was changed: the number of the line that it was made of, and how.
Changes = dict[int, tuple[int, list[Splice]]]

_NAMED = re.compile(r"(?:@compute .*|fn (\w+)\(.*|(?:const|alias|var<(?:private|workgroup)>) (\w+)\b.*)")
_WORD = re.compile(r"\w+")
_FUNCTION = re.compile(r"fn (\w+)\((.*)\) -> \S+ \{")
_RETURN = re.compile(r" +return (.*);")
_LET = re.compile(r" +let (\w+) = [^(]*;(?: *//.*)?")
# What needs no brackets wherever it stands.
_ATOM = re.compile(r"[\w.]+(?:\([^()]*\)|\[[^][]*\]|\.\w+)*")


@dataclass(frozen=True)
class _Block:
    """Lines of a declaration at the top of a text, from its comment on; `body` is where it begins itself."""

    name: str
    begin: int
    body: int
    end: int


def plain(
    lines: Sequence[str], files: Sequence[str], is_library: Callable[[str], bool]
) -> tuple[list[str], list[int], Changes]:
    """The lines without what does nothing, the number of each, and what was changed in them; `files` are
    those that they came from.
    """
    text = list(lines)
    of_library = {file: is_library(file) for file in set(files)}
    library = [of_library[file] for file in files]
    changes: Changes = {}
    while _inlined(text, library, changes):
        pass
    dropped = _unused_lets(text, library) | _returned_lets(text, library, changes)
    kept = [line if at not in dropped else "" for at, line in enumerate(text)]
    blocks = [block for block in _blocks(kept) if library[block.body]]
    dropped |= {at for block in _unreachable(kept, blocks) for at in range(block.begin, block.end)}
    found: list[str] = []
    numbers: list[int] = []
    for at, line in enumerate(text):
        if at in dropped or not (line or (found and found[-1])):
            continue
        if line.lstrip() == "}" and not found[-1]:
            found.pop(), numbers.pop()
        found.append(line)
        numbers.append(at)
    return found, numbers, changes


def _blocks(lines: Sequence[str]) -> Iterator[_Block]:
    at = 0
    while at < len(lines):
        match = _NAMED.fullmatch(lines[at])
        if match is None:
            at += 1
            continue
        begin = at
        while begin and lines[begin - 1].startswith("//"):
            begin -= 1
        end = at + 1
        if lines[at].startswith(("fn ", "@compute ")):
            while end < len(lines) and lines[end - 1] != "}":
                end += 1
        yield _Block(match[1] or match[2] or "", begin, at, end)
        at = end


def _unreachable(lines: Sequence[str], blocks: Sequence[_Block]) -> list[_Block]:
    """Declarations that no entry point and nothing outside of them names, directly or through others."""
    named = {block.name: block for block in blocks if block.name}
    inside = {at for block in named.values() for at in range(block.begin, block.end)}
    waiting = [line for at, line in enumerate(lines) if at not in inside]
    reached = set[str]()
    while waiting:
        for word in _words(waiting.pop()):
            if word in named and word not in reached:
                reached.add(word)
                block = named[word]
                waiting += lines[block.body : block.end]
    return [block for name, block in named.items() if name not in reached]


def _unused_lets(lines: Sequence[str], library: Sequence[bool]) -> set[int]:
    """Values of snippets that the function around them does not use."""
    unused = set[int]()
    for block in _blocks(lines):
        words = {at: _words(lines[at]) for at in range(block.body, block.end)}
        for at in reversed(range(block.body, block.end)):
            match = _LET.fullmatch(lines[at]) if library[at] else None
            if match and not any(match[1] in named for i, named in words.items() if i != at):
                unused.add(at)
                del words[at]
    return unused


# Lines of the library stand in text after text.
@lru_cache(maxsize=1 << 13)
def _words(line: str) -> frozenset[str]:
    """The words of a line's code."""
    return frozenset(_WORD.findall(line.split("//")[0]))


def _returned_lets(lines: list[str], library: Sequence[bool], changes: Changes) -> set[int]:
    """Values of snippets that the next line returns: it returns what they were made of instead."""
    found = set[int]()
    for at in range(len(lines) - 1):
        made, given = re.fullmatch(r"( +)let (\w+) = (.*);", lines[at]), _RETURN.fullmatch(lines[at + 1])
        if made and given and library[at] and given[1] == made[2]:
            splice = Splice(made.end(1), made.start(3), "return ")
            lines[at + 1] = splice.of(lines[at])
            changes[at + 1] = (at, [*changes.get(at, (at, []))[1], splice])
            found.add(at)
    return found


def _inlined(lines: list[str], library: Sequence[bool], changes: Changes) -> bool:
    """Take one function out of its calls that returns a parameter, or calls another with its own."""
    for block in _blocks(lines):
        if not library[block.body] or block.end - block.body != 3:
            continue
        head, value = _FUNCTION.fullmatch(lines[block.body]), _RETURN.fullmatch(lines[block.body + 1])
        if head is None or value is None:
            continue
        parameters = [one.split(":")[0].strip() for one in head[2].split(",")]
        called = re.fullmatch(rf"(\w+)\({', '.join(parameters)}\)", value[1])
        if value[1] not in parameters and called is None:
            continue
        changed = {}
        call = f"{head[1]}("
        for at, line in enumerate(lines):
            if call not in line or block.body <= at < block.end or line.lstrip().startswith("//"):
                continue
            if called is not None:
                splices: list[Splice] | None = _renamed(line, head[1], called[1])
            else:
                splices = _with_argument(line, head[1], parameters.index(value[1]))
            if splices is None:
                break
            if splices:
                changed[at] = splices
        else:
            for at, done in changed.items():
                for splice in done:
                    lines[at] = splice.of(lines[at])
                changes[at] = (at, [*changes.get(at, (at, []))[1], *done])
            if changed:
                return True
    return False


def _renamed(line: str, name: str, new: str) -> list[Splice]:
    """What has a line call another function."""
    calls = re.finditer(rf"\b{name}(?=\()", line)
    return [Splice(*match.span(), new) for match in calls][::-1]


def _with_argument(line: str, name: str, index: int) -> list[Splice] | None:
    """What puts one argument in the place of each call of a line; None where that may mean something else."""
    splices: list[Splice] = []
    while match := re.search(rf"\b{name}\(", line):
        depth, begin, arguments = 1, match.end(), list[tuple[int, int]]()
        for at in range(match.end(), len(line)):
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(line[at], 0)
            if depth == 0 or (depth == 1 and line[at] == ","):
                arguments.append((begin, at))
                begin = at + 1
            if depth == 0:
                break
        else:
            return None
        begin, end = arguments[index]
        argument = line[begin:end].strip()
        if not re.search(r"[A-Za-z_]", argument):
            return None  # a number, whose type the function decides
        begin = line.index(argument, begin)
        before, after = line[: match.start()], line[at + 1 :]
        alone = re.search(r"(?:[(,=]|return) ?$", before) and re.match(r"[),;]", after)
        opened, closed = ("", "") if alone or _ATOM.fullmatch(argument) else ("(", ")")
        # From the right, so that what is on the left stays where it is.
        done = Splice(begin + len(argument), at + 1, closed), Splice(match.start(), begin, opened)
        for splice in done:
            line = splice.of(line)
        splices += done
    return splices
