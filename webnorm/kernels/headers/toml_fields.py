"""TOML that is looked at before it is used: bounds, kinds, names; complaints with their place."""

from __future__ import annotations

import itertools
import re
import reprlib
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from webnorm.errors import SourceLocation, WebnormError, sentence, unknown
from webnorm.op import expression
from webnorm.op.expression import Tree

# Bounds of a header, several times what webnorm's own have: characters, values and tables, and how deep they
# are nested; characters of a name and of a sentence; entries of a table; values of an axis.
MOST_HEADER, MOST_VALUES, MOST_LEVELS = 1 << 15, 2000, 8
MOST_NAME, MOST_SENTENCE = 64, 2000
MOST_ENTRIES = {"tune": 24, "derive": 64, "require": 48, "pass": 16, "scratch": 12}
# What stands before a line's TOML.
_COMMENT = "// "
# A value behind its key, as far as it is on that line.
_VALUE = re.compile(
    r"""["']?\s*=\s*("(?:[^"\\]|\\.)*"|'[^']*'|\[.*\]|\{.*\}|[^\s,#\]}](?:[^,#\]}]*[^\s,#\]}])?)"""
)
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 60


def quoted(value: object) -> str:
    """A value of a header, in a few words."""
    return sentence(_REPR.repr(value), 120)


class TomlFields:
    """TOML of a file from a line on; `table` is what it says."""

    def __init__(self, path: Path, start: int, toml: str) -> None:
        self.path, self.start, self.lines = path, start, toml.splitlines()
        if len(toml) > MOST_HEADER:
            raise self.at(0, f"the header has {len(toml)} characters; expected at most {MOST_HEADER}")
        try:
            self.table = tomllib.loads(toml)
        except tomllib.TOMLDecodeError as error:
            match = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
            message = "header is not TOML: " + re.sub(r" \(at .*\)", "", str(error))
            line, column = (int(match[1]), int(match[2])) if match else (len(self.lines), None)
            raise self.at(line, message, column, 1) from error
        except (ValueError, RecursionError) as error:
            # tomllib has no line for a number of thousands of digits and for brackets in brackets.
            longest = max(range(len(self.lines)), key=lambda at: len(self.lines[at]))
            what = "a value is nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise self.at(longest + 1, f"header is not TOML: {what}") from error
        self.measure()

    def at(self, line: int, message: str, column: int | None = 1, length: int = 0) -> WebnormError:
        """The error with a line of the header, from 1, and what is meant of it; None is its end."""
        before, text = (_COMMENT, self.lines[line - 1]) if 1 <= line <= len(self.lines) else ("", "")
        column = min(column or len(text) + 1, len(text) + 1)
        # Of a file without a header it is the first line.
        number = max(1, self.start + line)
        place = SourceLocation(
            str(self.path), number, len(before) + column, min(length, len(text) + 1 - column)
        )
        return WebnormError(f"{self.path}:{number}: {sentence(message)}", place)

    def measure(self) -> None:
        """Complain about what no header needs, before anything else looks at it."""
        waiting: list[tuple[str, Any, int]] = [("", self.table, 0)]
        for count in itertools.count():
            if not waiting:
                return
            if count > MOST_VALUES:
                raise self.at(0, f"the header has more than {MOST_VALUES} values")
            near, value, level = waiting.pop()
            if len(near) > MOST_NAME:
                raise self.complaint(near, f"{quoted(near)} has more than {MOST_NAME} characters")
            if isinstance(value, dict | list):
                if level > MOST_LEVELS:
                    raise self.complaint(near, f"{quoted(near)} is nested more than {MOST_LEVELS} deep")
                inside = value.items() if isinstance(value, dict) else ((near, part) for part in value)
                waiting += [(key, part, level + 1) for key, part in inside]
            elif isinstance(value, int) and abs(value) > expression.LARGEST:
                raise self.complaint(near, f"{near} is a number of {value.bit_length()} bits; expected fewer")
            elif isinstance(value, str):
                self.check_few(near, near, len(value), MOST_SENTENCE, "characters")

    def complaint(
        self, near: str, message: str, holding: str = "", index: int = 0, meant: str | None = ""
    ) -> WebnormError:
        """The error with the line of the key or table `near`: the one that holds a text, or the index-th.

        A key deeper in a line (an inline table) is the second choice; the header's first line the last. The
        place is what is `meant` of its value, None for all of it; the key where that is not found, or empty.
        """
        key = rf"{re.escape(near)}\b"
        for pattern in (re.compile(rf"\s*\[*\s?[\"']?{key}"), re.compile(rf".*\b{key}")):
            found = [(i, match) for i, line in enumerate(self.lines, 1) if (match := pattern.match(line))]
            found = [(i, match) for i, match in found if holding in match.string] or found
            if found:
                break
        else:
            return self.at(0, message)
        line, match = found[min(index, len(found) - 1)]
        begin, end = _meant(match, near, meant)
        return self.at(line, message, begin + 1, end - begin)

    def unfit(
        self, near: str, what: str, value: object, wanted: str, holding: str = "", index: int = 0
    ) -> WebnormError:
        """The error for a value of another kind than is wanted."""
        message = f"{what} is {quoted(value)}; expected {wanted}"
        return self.complaint(near, message, holding, index, meant=None)

    def check_known(self, near: str, kind: str, name: str, names: Collection[str], holding: str = "") -> None:
        """Complain about a name that is none of those that there are."""
        if name not in names:
            raise self.complaint(near, str(unknown(kind, name, names)), holding, meant=name)

    def one_of(self, key: str, value: object, names: Collection[str], wanted: str) -> str:
        """A value that has to be one of some names."""
        if not isinstance(value, str):
            raise self.unfit(key, key, value, wanted)
        self.check_known(key, key, value, names, value)
        return value

    def text(self, key: str) -> str:
        """A sentence of the header."""
        return self.sentence(key, self.table.get(key), f"header key {key!r}")

    def sentence(self, near: str, value: object, what: str) -> str:
        """A text that is not empty."""
        if not isinstance(value, str) or not value:
            raise self.unfit(near, what, value, "a sentence")
        return value

    def mapping(self, key: str) -> Mapping[str, Any]:
        """A table of the header; empty where there is none."""
        value = self.table.get(key, {})
        if not isinstance(value, dict):
            raise self.unfit(key, f"header key {key!r}", value, "a table")
        self.check_few(key, key, len(value), MOST_ENTRIES.get(key))
        return value

    def check_few(self, near: str, what: str, count: int, most: int | None, of: str = "entries") -> None:
        """Complain about more than any header needs."""
        if most is not None and count > most:
            raise self.complaint(near, f"{what} has {count} {of}; expected at most {most}")

    def tree(self, near: str, text: object, known: Sequence[str], index: int = 0) -> Tree:
        """An expression over known names; `index` as `complaint` has it."""
        if not isinstance(text, str | int):
            raise self.unfit(near, near, text, "an expression", index=index)
        try:
            tree = expression.parse(text)
            expression.check_names(tree, known, text)
        except WebnormError as error:
            raise self.complaint(near, str(error), str(text), index, str(text)) from error
        return tree

    def only(self, table: Mapping[str, Any], keys: set[str], where: str) -> None:
        """Complain about keys that mean nothing."""
        for key in table:
            self.check_known(key, f"{where} key", key, keys)

    def array(self, key: str) -> Sequence[Mapping[str, Any]]:
        """An array of tables; empty where there is none."""
        entries = self.table.get(key, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise self.unfit(key, key, entries, f"[[{key}]] tables")
        self.check_few(key, key, len(entries), MOST_ENTRIES.get(key))
        return entries

    def tables(
        self, key: str, keys: set[str], optional: Set[str] = frozenset()
    ) -> Iterator[Mapping[str, Any]]:
        """An array of tables, each with these keys."""
        for index, entry in enumerate(self.array(key)):
            self.only(entry, keys | optional, key)
            for name in sorted(keys - set(entry)):
                raise self.complaint(key, f"a [[{key}]] table lacks the key {name!r}", "[[", index)
            yield entry


def _meant(key: re.Match[str], near: str, meant: str | None) -> tuple[int, int]:
    """Where something begins and ends in a line, behind its key, which a match ends with."""
    line, behind, found = key.string, key.end(), None
    if meant is None:
        found = _VALUE.match(line, behind)
    elif meant not in ("", near):
        found = re.compile(rf"(?<!\w)(){re.escape(meant)}(?!\w)").search(line, behind)
    if found is None:
        return behind - len(near), behind
    return found.start(1), found.end()
