"""Reading a kernel's file: its header, checked table by table."""

from __future__ import annotations

import itertools
import keyword
import math
import re
import reprlib
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, cast, get_args

from webnorm.errors import WebnormError, unknown
from webnorm.files import absolute, resolved
from webnorm.kernels import expression
from webnorm.kernels.expression import Tree
from webnorm.kernels.kernel import AccuracyRules, Kernel, Pass, Per, Require, Scratch
from webnorm.kernels.names import ADAPTER_NAMES, PROBLEM_NAMES, TEMPLATE_NAMES
from webnorm.kernels.sources import FORBIDDEN, Unreadable, code_point, one_line, read, split_header
from webnorm.kernels.variants import MOST_POINTS
from webnorm.norms.ops import OPS, Op

KNOWN_FEATURES = ("subgroups", "shader-f16")
# The keys that a [[scratch]] table has, and those that it may have.
_SCRATCH: tuple[set[str], set[str]] = ({"name", "words"}, {"records"})


_KEYS = {
    "summary",
    "differs",
    "rung",
    "preference",
    "unstable",
    "features",
    "tune",
    "default",
    "derive",
    "require",
    "pass",
    "scratch",
    "accuracy",
}


# Bounds of a header, several times what webnorm's own have: characters, values and tables, and how deep they
# are nested; characters of a name and of a sentence; entries of a table; values of an axis.
MOST_HEADER, MOST_VALUES, MOST_LEVELS = 1 << 15, 2000, 4
MOST_NAME, MOST_SENTENCE = 64, 2000
MOST_ENTRIES = {"tune": 24, "derive": 64, "require": 48, "pass": 16, "scratch": 12}
MOST_ON_AXIS, LARGEST_ON_AXIS = 128, 2**31
# Points of the axes times the parts of the rules that are worked out at each: eight times what it is with the
# gradients' registers, which take seconds.
MOST_WORK = 1 << 27


# What a template or an expression does not take for a name.
_RESERVED = {
    *keyword.kwlist,
    "true",
    "false",
    "none",
    "min",
    "max",
    "ceil_div",
    "params",
    "cost",
    "parameters",
}


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 60


def _quoted(value: object) -> str:
    """A value of a header, in a few words."""
    return one_line(_REPR.repr(value), 120)


def home(path: Path) -> tuple[Path, str]:
    """The folder that a kernel's file and its snippets have to lie in, and the name of the file's folder.

    It is the folder above that of the op, as with --wgsl, or the file's own where that is no op.
    """
    # Not resolved: a link in the place of an op's folder may lead out, too.
    try:
        folder = absolute(path).parent
        if folder.name not in OPS:
            folder = resolved(folder)
    except OSError as error:
        raise unreadable(path, error) from error
    return folder.parent if folder.name in OPS else folder, folder.name


def unreadable(path: Path, error: OSError) -> WebnormError:
    """The error for a file of a kernel that cannot be opened."""
    return WebnormError(f"{path}: cannot read the kernel: {error.strerror or error}")


def load(path: Path, op_name: str | None = None) -> Kernel:
    """Read a kernel file. Its folder is the op, unless `op_name` says otherwise.

    Raises WebnormError that names the file and, where there is one, the line.
    """
    root, folder = home(path)
    found = re.search(rf"{FORBIDDEN.pattern}|[\t\n\r]", path.name)
    if found:
        raise WebnormError(f"{one_line(str(path))}: its name holds {code_point(found[0])}")
    try:
        source, _, _ = read(path, root)
    except Unreadable as error:
        place = str(path) if error.line is None else f"{path}:{error.line}"
        raise WebnormError(f"{place}: cannot read the kernel: {error.reason}") from error
    name = op_name or folder
    if name not in OPS:
        raise unknown(f"op (the folder of {path})", name, OPS)
    start, toml = split_header(source, path)
    return _Header(path, start, toml).kernel(OPS[name])


class _Header:
    """Checks one header table by table; every complaint carries file and line."""

    def __init__(self, path: Path, start: int, toml: str) -> None:
        self.path, self.start, self.lines = path, start, toml.splitlines()
        if len(toml) > MOST_HEADER:
            raise self.at(0, f"the header has {len(toml)} characters; expected at most {MOST_HEADER}")
        try:
            self.table = tomllib.loads(toml)
        except tomllib.TOMLDecodeError as error:
            match = re.search(r"\(at line (\d+), column \d+\)", str(error))
            message = re.sub(r" \(at .*\)", "", str(error))
            raise self.at(
                int(match[1]) if match else len(self.lines), f"header is not TOML: {message}"
            ) from error
        except (ValueError, RecursionError) as error:
            # tomllib has no line for a number of thousands of digits and for brackets in brackets.
            longest = max(range(len(self.lines)), key=lambda at: len(self.lines[at]))
            what = "a value is nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise self.at(longest + 1, f"header is not TOML: {what}") from error
        self.measure()

    def at(self, line: int, message: str) -> WebnormError:
        """The error with a line of the header, from 1."""
        return WebnormError(f"{self.path}:{self.start + line}: {one_line(message)}")

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
                raise self.complaint(near, f"{_quoted(near)} has more than {MOST_NAME} characters")
            if isinstance(value, dict | list):
                if level > MOST_LEVELS:
                    raise self.complaint(near, f"{_quoted(near)} is nested more than {MOST_LEVELS} deep")
                inside = value.items() if isinstance(value, dict) else ((near, part) for part in value)
                waiting += [(key, part, level + 1) for key, part in inside]
            elif isinstance(value, int) and abs(value) > expression.LARGEST:
                raise self.complaint(near, f"{near} is a number of {value.bit_length()} bits; expected fewer")
            elif isinstance(value, str) and len(value) > MOST_SENTENCE:
                raise self.complaint(
                    near, f"{near} has {len(value)} characters; expected at most {MOST_SENTENCE}"
                )

    def complaint(self, near: str, message: str, holding: str = "", index: int = 0) -> WebnormError:
        """The error with the line of the key or table `near`: the one that holds a text, or the index-th.

        A key deeper in a line (an inline table) is the second choice; the header's first line the last.
        """
        key = rf"{re.escape(near)}\b"
        stripped = [line.strip() for line in self.lines]
        for pattern in (re.compile(rf"\[*\s?[\"']?{key}"), re.compile(rf".*\b{key}")):
            found = [i for i, text in enumerate(stripped, 1) if pattern.match(text)]
            found = [i for i in found if holding in self.lines[i - 1]] or found
            if found:
                break
        return self.at(found[min(index, len(found) - 1)] if found else 0, message)

    def text(self, key: str) -> str:
        return self.sentence(key, self.table.get(key), f"header key {key!r}")

    def sentence(self, near: str, value: object, what: str) -> str:
        if not isinstance(value, str) or not value:
            raise self.complaint(near, f"{what} is {_quoted(value)}; expected a sentence")
        return value

    def mapping(self, table: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        value = table.get(key, {})
        if not isinstance(value, dict):
            raise self.complaint(key, f"header key {key!r} is {_quoted(value)}; expected a table")
        self.few(key, value)
        return value

    def few(self, key: str, entries: Collection[object]) -> None:
        most = MOST_ENTRIES.get(key, len(entries))
        if len(entries) > most:
            raise self.complaint(key, f"{key} has {len(entries)} entries; expected at most {most}")

    def tree(self, near: str, text: object, known: Sequence[str]) -> Tree:
        if not isinstance(text, str | int):
            raise self.complaint(near, f"{near} is {_quoted(text)}; expected an expression")
        try:
            tree = expression.parse(text)
            expression.check_names(tree, known, text)
        except WebnormError as error:
            raise self.complaint(near, str(error), str(text)) from error
        return tree

    def only(self, table: Mapping[str, Any], keys: set[str], where: str) -> None:
        for key in table:
            if key not in keys:
                raise self.complaint(key, str(unknown(f"{where} key", key, keys)))

    def free(self, name: object, known: Sequence[str], kind: str, holding: str = "") -> str:
        """A name that is not taken yet, by Jinja, the header or the problem."""
        if not isinstance(name, str):
            raise self.complaint("name", f"{kind} is {_quoted(name)}; expected a name")
        if not name.isidentifier() or name in known or name in TEMPLATE_NAMES or name in _RESERVED:
            raise self.complaint(name, f"{kind} {name!r} is no free identifier", holding)
        return name

    def axis(self, name: str, values: object) -> tuple[int, ...]:
        self.free(name, (*PROBLEM_NAMES, *ADAPTER_NAMES), "axis")
        if not isinstance(values, list) or not values or not all(isinstance(v, int) for v in values):
            raise self.complaint(
                name, f"axis {name} is {_quoted(values)}; expected a list of integers or booleans"
            )
        if len(values) > MOST_ON_AXIS:
            raise self.complaint(
                name, f"axis {name} has {len(values)} values; expected at most {MOST_ON_AXIS}"
            )
        numbers = tuple(int(value) for value in values)
        for number in numbers:
            if not 0 <= number <= LARGEST_ON_AXIS:
                raise self.complaint(name, f"axis {name} has {number}; expected 0 to {LARGEST_ON_AXIS}")
            if numbers.count(number) > 1:
                raise self.complaint(name, f"axis {name} has {number} twice")
        return numbers

    def kernel(self, op: Op) -> Kernel:
        self.only(self.table, _KEYS, "header")
        tune = {name: self.axis(name, values) for name, values in self.mapping(self.table, "tune").items()}
        known = [*PROBLEM_NAMES, *ADAPTER_NAMES]
        defaults = self.mapping(self.table, "default")
        self.only(defaults, set(tune), "default")
        default: dict[str, Tree] = {}
        for axis in tune:
            default[axis] = self.tree(axis, defaults.get(axis, tune[axis][0]), known)
            known.append(axis)
        derive: dict[str, Tree] = {}
        for name, text in self.mapping(self.table, "derive").items():
            self.free(name, known, "derived constant", str(text))
            derive[name] = self.tree(name, text, known)
            known.append(name)
        features = {}
        for name, text in self.mapping(self.table, "features").items():
            if name not in KNOWN_FEATURES:
                raise self.complaint(name, str(unknown("feature", name, KNOWN_FEATURES)))
            features[name] = self.tree(name, text, known)
        unstable = self.text("unstable") if "unstable" in self.table else None
        rung = self.table.get("rung", 0)
        if not isinstance(rung, int) or isinstance(rung, bool):
            raise self.complaint("rung", f"rung is {_quoted(rung)}; expected an integer")
        scratch = tuple(self.scratch(known, op))
        kernel = Kernel(
            op=op,
            name=self.path.stem,
            path=self.path,
            summary=self.text("summary"),
            differs=self.text("differs"),
            rung=rung,
            preference=self.tree(
                "preference", self.table.get("preference", rung), (*PROBLEM_NAMES, *ADAPTER_NAMES)
            ),
            unstable=unstable,
            features=features,
            tune=tune,
            default=default,
            derive=derive,
            require=tuple(self.requires(known)),
            passes=tuple(self.passes(known, op, [one.name for one in scratch])),
            scratch=scratch,
            accuracy=self.accuracy(known),
        )
        self.require_walkable(kernel)
        return kernel

    def require_walkable(self, kernel: Kernel) -> None:
        """Complain about axes that nobody can walk over."""
        points = math.prod(len(values) for values in kernel.tune.values())
        trees = [*kernel.derive.values(), *(require.rule for require in kernel.require)]
        trees += [tree for step in kernel.passes for tree in (step.workgroup_size, step.iterations)]
        parts = sum(expression.size(tree) for tree in trees)
        if points > MOST_POINTS or points * parts > MOST_WORK:
            raise self.complaint(
                "tune",
                f"the axes have {points} points, with rules of {parts} parts to be worked out at each; "
                f"expected at most {min(MOST_POINTS, MOST_WORK // max(parts, 1))} points",
            )

    def tables(
        self, key: str, keys: set[str], optional: Set[str] = frozenset()
    ) -> Iterator[Mapping[str, Any]]:
        entries = self.table.get(key, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise self.complaint(key, f"{key} is {_quoted(entries)}; expected [[{key}]] tables")
        self.few(key, entries)
        for index, entry in enumerate(entries):
            self.only(entry, keys | optional, key)
            for name in sorted(keys - set(entry)):
                raise self.complaint(key, f"a [[{key}]] table lacks the key {name!r}", "[[", index)
            yield entry

    def requires(self, known: Sequence[str]) -> Iterator[Require]:
        for entry in self.tables("require", {"rule", "why"}):
            why = self.sentence("why", entry["why"], "why")
            yield Require(self.tree("rule", entry["rule"], known), why)

    def passes(self, known: Sequence[str], op: Op, scratch: Sequence[str]) -> Iterator[Pass]:
        keys, optional = (
            {"entry_point", "workgroup_size", "workgroup_count"},
            {"per", "bindings", "when", "iterations"},
        )
        entries = list(self.tables("pass", keys, optional))
        if not entries:
            raise self.complaint("summary", "a kernel has at least one [[pass]] table; this header has none")
        names = {*(tensor.name for tensor in op.tensors), *scratch}
        for entry in entries:
            per = entry.get("per", "rows")
            if not isinstance(per, str):
                raise self.complaint("per", f"per is {_quoted(per)}; expected {' or '.join(get_args(Per))}")
            if per not in get_args(Per):
                raise self.complaint("per", str(unknown("per", per, get_args(Per))), str(per))
            bound = entry.get("bindings")
            yield Pass(
                self.entry_point(entry["entry_point"]),
                self.tree("workgroup_size", entry["workgroup_size"], known),
                self.tree("workgroup_count", entry["workgroup_count"], known),
                cast(Per, per),
                None if bound is None else self.bindings(bound, names),
                self.tree("when", entry.get("when", 1), known),
                self.tree("iterations", entry.get("iterations", 0), known),
            )

    def entry_point(self, name: object) -> str:
        """The name of a function, as WGSL takes it."""
        if isinstance(name, str) and name.isidentifier() and name != "_" and not name.startswith("__"):
            return name
        raise self.complaint(
            "entry_point",
            f"entry_point is {_quoted(name)}; expected the name of a WGSL function",
            name if isinstance(name, str) else "",
        )

    def bindings(self, bound: object, names: Set[str]) -> tuple[str, ...]:
        if not isinstance(bound, list) or not all(isinstance(name, str) for name in bound):
            raise self.complaint(
                "bindings", f"bindings is {_quoted(bound)}; expected a list of tensors and scratch buffers"
            )
        for name in bound:
            if name not in names:
                raise self.complaint("bindings", str(unknown("binding", name, names)), name)
            if bound.count(name) > 1:
                raise self.complaint("bindings", f"bindings names {name!r} twice", name)
        return tuple(bound)

    def scratch(self, known: Sequence[str], op: Op) -> Iterator[Scratch]:
        taken = [*known, *(tensor.name for tensor in op.tensors)]
        for entry in self.tables("scratch", *_SCRATCH):
            name = self.free(entry["name"], taken, "scratch buffer", "name")
            taken.append(name)
            yield Scratch(
                name,
                "records" not in entry,
                self.tree("records", entry.get("records", "rows"), known),
                self.tree("words", entry["words"], known),
            )

    def accuracy(self, known: Sequence[str]) -> AccuracyRules:
        table = self.mapping(self.table, "accuracy")
        keys = {"serial_terms", "column_terms", "rounded_mean"}
        self.only(table, keys, "accuracy")
        trees = {key: self.tree(key, table.get(key, 0), known) for key in keys}
        return AccuracyRules(**trees)
