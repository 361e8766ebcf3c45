"""Checks of a header's TOML: limits, types and names. Errors include the place."""

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

# Limits of a header, several times the sizes of webnorm's own: characters, values and tables, nesting depth,
# characters of a name and of a sentence, and entries of each table.
MOST_HEADER, MOST_VALUES, MOST_LEVELS = 1 << 15, 2000, 8
MOST_NAME, MOST_SENTENCE = 64, 2000
MOST_ENTRIES = {"tune": 24, "derive": 64, "require": 48, "pass": 16, "scratch": 12}
# The prefix of each header line.
_COMMENT = "// "
# A value after its key, up to the end of the line.
_VALUE = re.compile(
    r"""["']?\s*=\s*("(?:[^"\\]|\\.)*"|'[^']*'|\[.*\]|\{.*\}|[^\s,#\]}](?:[^,#\]}]*[^\s,#\]}])?)"""
)
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 60


def quoted(value: object) -> str:
    """Return a short representation of a header's value."""
    return sentence(_REPR.repr(value), 120)


class TomlFields:
    """The TOML of a file from a line on; `table` is the parsed content."""

    def __init__(self, path: Path, start: int, toml: str) -> None:
        self.path, self.start, self.lines = path, start, toml.splitlines()
        if len(toml) > MOST_HEADER:
            raise self.at(0, f"the header has {len(toml)} characters; expected at most {MOST_HEADER}")
        try:
            self.table = tomllib.loads(toml)
        except tomllib.TOMLDecodeError as error:
            match = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
            line, column = (int(match[1]), int(match[2])) if match else (len(self.lines), None)
            text = self.lines[line - 1].strip() if 1 <= line <= len(self.lines) else ""
            message = _syntax_message(re.sub(r" \(at .*\)", "", str(error)), text)
            raise self.at(line, message, column, 1) from error
        except (ValueError, RecursionError) as error:
            # tomllib reports no line for numbers of thousands of digits and for deep nesting.
            longest = max(range(len(self.lines)), key=lambda at: len(self.lines[at]))
            what = "a value is nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise self.at(longest + 1, f"header is not valid TOML: {what}") from error
        self.measure()

    def at(self, line: int, message: str, column: int | None = 1, length: int = 0) -> WebnormError:
        """Return the error for a place in the header. Lines count from 1; column None is the line's end."""
        before, text = (_COMMENT, self.lines[line - 1]) if 1 <= line <= len(self.lines) else ("", "")
        column = min(column or len(text) + 1, len(text) + 1)
        # In a file without a header this is the first line.
        number = max(1, self.start + line)
        place = SourceLocation(
            str(self.path), number, len(before) + column, min(length, len(text) + 1 - column)
        )
        return WebnormError(f"{self.path}:{number}: {sentence(message)}", place)

    def measure(self) -> None:
        """Raise WebnormError for a header that exceeds the limits, before it is used."""
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
        """Return an error at the line of a key or table.

        Parameters
        ----------
        near
            The key or table. A key inside a line (an inline table) is the second choice, the header's first
            line the last.
        holding
            Text that the line must contain, if several lines have the key.
        index
            The number of the line among several, from 0.
        meant
            The part of the value to mark; None for the whole value, "" for the key.
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
        begin, end = _value_span(match, near, meant)
        return self.at(line, message, begin + 1, end - begin)

    def wrong_value(
        self, near: str, what: str, value: object, wanted: str, holding: str = "", index: int = 0
    ) -> WebnormError:
        """Return the error for a value that is not of the `wanted` kind."""
        message = f"{what} is {quoted(value)}; expected {wanted}"
        return self.complaint(near, message, holding, index, meant=None)

    def check_known(self, near: str, kind: str, name: str, names: Collection[str], holding: str = "") -> None:
        """Raise WebnormError for a name that is not in `names`."""
        if name not in names:
            raise self.complaint(near, str(unknown(kind, name, names)), holding, meant=name)

    def one_of(self, key: str, value: object, names: Collection[str], wanted: str) -> str:
        """Return a value that has to be one of some names."""
        if not isinstance(value, str):
            raise self.wrong_value(key, key, value, wanted)
        self.check_known(key, key, value, names, value)
        return value

    def text(self, key: str) -> str:
        """Return the sentence of a header key."""
        if key not in self.table:
            raise self.complaint(key, f"header key {key!r} is missing; expected a sentence")
        return self.sentence(key, self.table[key], f"header key {key!r}")

    def sentence(self, near: str, value: object, what: str) -> str:
        """Return a value that has to be a text and not empty."""
        if not isinstance(value, str) or not value:
            raise self.wrong_value(near, what, value, "a sentence")
        return value

    def mapping(self, key: str) -> Mapping[str, Any]:
        """Return a table of the header; empty if it is missing."""
        value = self.table.get(key, {})
        if not isinstance(value, dict):
            raise self.wrong_value(key, f"header key {key!r}", value, "a table")
        self.check_few(key, key, len(value), MOST_ENTRIES.get(key))
        return value

    def check_few(self, near: str, what: str, count: int, most: int | None, of: str = "entries") -> None:
        """Raise WebnormError if `count` exceeds `most`."""
        if most is not None and count > most:
            raise self.complaint(near, f"{what} has {count} {of}; expected at most {most}")

    def tree(self, near: str, text: object, known: Sequence[str], index: int = 0) -> Tree:
        """Parse an expression over known names; `index` is as in `complaint`."""
        if not isinstance(text, str | int):
            raise self.wrong_value(near, near, text, "an expression", index=index)
        try:
            tree = expression.parse(text)
            expression.check_names(tree, known, text)
        except WebnormError as error:
            raise self.complaint(near, str(error), str(text), index, str(text)) from error
        return tree

    def check_keys(self, table: Mapping[str, Any], keys: set[str], where: str) -> None:
        """Raise WebnormError for an unknown key."""
        for key in table:
            self.check_known(key, f"{where} key", key, keys)

    def array(self, key: str) -> Sequence[Mapping[str, Any]]:
        """Return an array of tables; empty if it is missing."""
        entries = self.table.get(key, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise self.wrong_value(key, key, entries, f"[[{key}]] tables")
        self.check_few(key, key, len(entries), MOST_ENTRIES.get(key))
        return entries

    def tables(
        self, key: str, keys: set[str], optional: Set[str] = frozenset()
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the tables of an array after checking that each has these keys."""
        for index, entry in enumerate(self.array(key)):
            self.check_keys(entry, keys | optional, key)
            for name in sorted(keys - set(entry)):
                raise self.complaint(key, f"a [[{key}]] table lacks the key {name!r}", "[[", index)
            yield entry


def _syntax_message(reason: str, text: str) -> str:
    """Return the message for a line that tomllib rejects for a reason."""
    key, equals, _ = text.partition("=")
    if reason == "Cannot overwrite a value" and equals:
        return f"header key {quoted(key.strip())} is given twice; keep one of the two lines"
    if re.fullmatch(r"Cannot declare .* twice", reason):
        return f"{text} is given twice in the header; keep one of the two tables, with the keys of both"
    message = f"header is not valid TOML: {reason}"
    message += f" in {quoted(text)}" if text else ""
    if "Invalid value" in reason:
        message += '; expected a number, a list, or a text in quotes, such as "mean"'
    return message


def _value_span(key: re.Match[str], near: str, meant: str | None) -> tuple[int, int]:
    """Return the begin and end of a part of a value in a line; the match ends with the key."""
    line, behind, found = key.string, key.end(), None
    if meant is None:
        found = _VALUE.match(line, behind)
    elif meant not in ("", near):
        found = re.compile(rf"(?<!\w)(){re.escape(meant)}(?!\w)").search(line, behind)
    if found is None:
        return behind - len(near), behind
    return found.start(1), found.end()
