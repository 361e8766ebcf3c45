"""Parsing of a kernel's file and its header, table by table."""

from __future__ import annotations

import keyword
import math
import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cache, reduce
from pathlib import Path
from typing import Any, overload

from webnorm import signals
from webnorm.errors import WebnormError, nearest, sentence, unknown
from webnorm.files.atomic import absolute, resolved
from webnorm.kernels.headers import sources
from webnorm.kernels.headers.kernel import AccuracyRules, Kernel, KernelPass, Per, Requirement, ScratchBuffer
from webnorm.kernels.headers.plain import (
    PlainText,
    entry_points,
    is_plain,
    read_plain,
    reads_grid,
    subgroup_sizes,
)
from webnorm.kernels.headers.toml_fields import TomlFields
from webnorm.kernels.headers.traits import IMMEDIATES, KNOWN_FEATURES, SUBGROUP_SIZE_CONTROL, unknown_feature
from webnorm.kernels.headers.variants import COUNTS, MOST_POINTS, WORKGROUP_BYTES, names_of, template_names_of
from webnorm.op import expression
from webnorm.op.expression import Tree
from webnorm.op.op import Op
from webnorm.op.registry import OPS, is_op_folder, load_op

Table = Mapping[str, Any]
TABLES = ("features", "tune", "default", "derive")
_ARRAYS = ("require", "pass", "scratch")
# Additional keys for headers of plain WGSL.
_PLAIN_KEYS = ("bindings", "workgroup_count")
_KEYS = {
    "ops",
    "layout",
    "summary",
    "differs",
    "unstable",
    "rung",
    "preference",
    "accuracy",
    *TABLES,
    *_ARRAYS,
}
MOST_ON_AXIS, LARGEST_ON_AXIS = 128, 2**31
# Points of the axes times the parts of the rules evaluated at each: six times the value of the gradients'
# `registers`, whose filtering takes half a second.
MOST_WORK = 1 << 28
# Words that cannot be names in a template or an expression.
_RESERVED = {
    "true",
    "false",
    "none",
    "params",
    "cost",
    "parameters",
    *keyword.kwlist,
    *expression.FUNCTIONS,
}


@cache
def layouts() -> Mapping[str, Table]:
    """Return the layouts by name: header tables that many kernels share.

    A layout describes how rows are distributed over invocations. It is a TOML file of webnorm with axes,
    derived constants, rules, scratch buffers and passes. It may itself extend another layout.
    """
    tables: dict[str, Table] = {
        path.stem: tomllib.loads(path.read_text(encoding="utf-8"))
        for path in sorted((sources.wgsl_root() / "layouts").glob("*.toml"))
    }
    return {name: _complete_layout(table, tables) for name, table in tables.items()}


def _complete_layout(table: Table, tables: Mapping[str, Table]) -> Table:
    return (
        merge_layout(table, _complete_layout(tables[table["layout"]], tables)) if "layout" in table else table
    )


def merge_layout(header: Table, layout: Table) -> dict[str, Any]:
    """Merge a header with its layout.

    The header's axes and derived constants replace the layout's of the same name, and its passes replace
    passes with the same entry point. Its passes and scratch buffers come before the layout's, its rules after
    them. Derived constants are sorted by dependency. Layouts have one more table than headers: `otherwise`
    contains the values of names for ops that do not have them.
    """
    # If a name is an axis in one file and derived in the other, the header decides.
    fixed, free = header.get("derive", {}).keys(), header.get("tune", {}).keys()
    dropped = {"tune": fixed, "default": fixed, "derive": free}
    whole = dict(header)
    for table in TABLES:
        given = layout.get(table, {})
        left = {name: given[name] for name in given if name not in dropped.get(table, ())}
        whole[table] = left | header.get(table, {})
    whole["derive"] = _in_order(whole["derive"])
    whole["otherwise"] = {**layout.get("otherwise", {}), **header.get("otherwise", {})}
    for table, name in (("pass", "entry_point"), ("scratch", "name")):
        entries = header.get(table, [])
        taken = [entry.get(name) for entry in entries]
        whole[table] = [*entries, *(entry for entry in layout.get(table, []) if entry[name] not in taken)]
    whole["require"] = [*layout.get("require", []), *header.get("require", [])]
    return whole


def _in_order(derived: Table) -> dict[str, Any]:
    """Sort derived constants by dependency; circular ones keep their order."""
    left, placed = dict(derived), dict[str, Any]()
    while left:
        ready = (
            name
            for name, text in left.items()
            if not (set(re.findall(r"\w+", str(text))) & left.keys()) - {name}
        )
        name = next(ready, next(iter(left)))
        placed[name] = left.pop(name)
    return placed


def home(path: Path) -> tuple[Path, str]:
    """Return the folder that must contain a kernel and its snippets, and the name of the kernel's folder.

    It is the parent of the op's folder, as with --wgsl, or the file's folder if that is not an op's.
    """
    # Not resolved, because an op's folder may be a link to another place.
    try:
        folder = absolute(path).parent
        if is_op_folder(folder):
            load_op(folder)
        if folder.name not in OPS:
            folder = resolved(folder)
    except OSError as error:
        raise unreadable(path, error) from error
    return folder.parent if folder.name in OPS else folder, folder.name


def unreadable(path: Path, error: OSError) -> WebnormError:
    """Return the error for a kernel's file that cannot be opened."""
    return WebnormError(f"{path}: cannot read the kernel: {error.strerror or error}")


def check_name(path: Path) -> None:
    """Raise WebnormError for a path that cannot be displayed, or that would break markers in templates.

    The markers (kernels.source_map.markers) contain the path and have to fit one line.
    """
    for what, name, forbidden in (
        ("name", path.name, rf"{sources.FORBIDDEN.pattern}|[\t\n]"),
        ("path", str(absolute(path)), "[\n\r\ufdd0\ufdd1]"),
    ):
        if found := re.search(forbidden, name):
            character = sources.code_point(found[0])
            raise WebnormError(f"{sentence(str(path))}: its {what} contains {character}; rename it")


@signals.deferring
def load(path: Path, op_name: str | None = None) -> Kernel:
    """Read a kernel file for one of its ops: `op_name` if it serves that, else the first.

    The message of a WebnormError names the file and, if known, the line.
    """
    source, default = _read(path, op_name)
    header = _header_of(path, source)
    ops = header.ops(default)
    kernel = header.kernel(op_name if op_name and op_name in ops else ops[0])
    header.check_read(kernel, source)
    return kernel


@signals.deferring
def load_all(path: Path, only: str | None = None) -> list[Kernel]:
    """Read a kernel file in an op's folder, and return a kernel for each of its ops, or for `only` alone.

    It raises errors as `load` does. Files that do not serve `only` are not parsed.
    """
    source, default = _read(path, None)
    header = _header_of(path, source, default if only is None else only, default)
    if header is None:
        return []
    kernels = [header.kernel(op) for op in header.ops(default) if only in (None, op)]
    for kernel in kernels:
        header.check_read(kernel, source)
    return kernels


@overload
def _header_of(path: Path, source: str) -> _Header: ...


@overload
def _header_of(path: Path, source: str, only: str, default: str) -> _Header | None: ...


def _header_of(path: Path, source: str, only: str = "", default: str = "") -> _Header | None:
    """Return the header of a kernel's text; None if the kernel cannot serve the op `only`.

    The header of plain WGSL may be in a TOML file of the same name. Missing parts are taken from the text.
    """
    toml_path = path.with_suffix(".toml")
    if not sources.has_header(source) and is_plain(source):
        start, toml = 0, _toml_text(toml_path)
        place = toml_path if toml else path
        return _Header(place, start, toml, path, source)
    start, toml = sources.split_header(source, path)
    # A header serves its folder's op or the ops it names, so a search of the text avoids most parsing.
    if only not in ("", default) and not re.search(rf"\b{only}\b", toml):
        return None
    body = sources.without_header(source, path)
    return _Header(path, start, toml, path, body if is_plain(body) else None)


def _toml_text(path: Path) -> str:
    if not path.exists():
        return ""
    try:
        return sources.read(path, path.parent)[0]
    except sources.SourceUnreadable as error:
        raise WebnormError(f"{path}: cannot read the header: {error.reason}") from error


def _read(path: Path, op_name: str | None) -> tuple[str, str]:
    """Return a file's text, and the op that it serves unless it names one: its folder, else `op_name`."""
    root, folder = home(path)
    check_name(path)
    try:
        source, _, _ = sources.read(path, root)
    except sources.SourceUnreadable as error:
        named, place = error.named(str(path))
        instead = "" if os.path.exists(path) else f"; expected a kernel file: {sources.files_instead(path)}"
        raise WebnormError(f"{named}: cannot read the kernel: {error.reason}{instead}", place) from error
    default = folder if folder in OPS or op_name is None else op_name
    if default not in OPS:
        raise WebnormError(f"{path}: its folder: {unknown('op', default, OPS)}")
    return source, default


def _count_along_x(one: Mapping[str, Any], wide: bool) -> dict[str, Any]:
    """Put all workgroups of a plain WGSL pass along x, unless the text reads the grid's width."""
    count = one.get("workgroup_count")
    return {} if wide or isinstance(count, list) or count is None else {"workgroup_count": [count, 1]}


def _with_subgroup_sizes(features: Mapping[str, Tree], passes: Sequence[KernelPass]) -> dict[str, Tree]:
    """Add the features of passes that fix the size of their subgroups to the declared features."""
    found = dict(features)
    for size in (each.subgroup_size for each in passes if each.subgroup_size != 0):
        for name in ("subgroups", SUBGROUP_SIZE_CONTROL):
            found[name] = ["or", found[name], size] if name in found else size
    return found


def conditional_expression(value: object) -> object:
    """Return the expression for a default that is a list of [test, value] pairs and a final value.

    A value may itself be such a list. Any other default is returned unchanged.
    """
    if not isinstance(value, list) or len(value) < 2:
        return value
    *rows, last = value
    if not all(isinstance(row, list) and len(row) == 2 for row in rows):
        return value
    tests = [f"({conditional_expression(one)}) if ({test}) else " for test, one in rows]
    return f"{''.join(tests)}({conditional_expression(last)})"


class _Header(TomlFields):
    """A parser of a header's tables."""

    def free(self, name: object, known: Sequence[str], kind: str, holding: str = "") -> str:
        """Return a name after checking that Jinja, the header and the problem do not use it."""
        if not isinstance(name, str):
            raise self.wrong_value("name", kind, name, "a name")
        if (
            not name.isidentifier()
            or name in known
            or name in template_names_of(self.op)
            or name in _RESERVED
        ):
            raise self.complaint(name, f"{kind} {name!r} is not an identifier, or is in use", holding)
        return name

    def axis(self, name: str, values: object) -> tuple[int, ...]:
        self.free(name, names_of(self.op), "axis")
        if not isinstance(values, list) or not values or not all(isinstance(v, int) for v in values):
            raise self.wrong_value(name, f"axis {name}", values, "a list of integers or booleans")
        self.check_few(name, f"axis {name}", len(values), MOST_ON_AXIS, "values")
        numbers = tuple(map(int, values))
        for number in numbers:
            if not 0 <= number <= LARGEST_ON_AXIS:
                message = f"axis {name} has {number}; expected 0 to {LARGEST_ON_AXIS}"
                raise self.complaint(name, message, meant=str(number))
            if numbers.count(number) > 1:
                raise self.complaint(name, f"axis {name} has {number} twice", meant=str(number))
        return numbers

    def __init__(
        self, path: Path, start: int, toml: str, kernel_path: Path, plain: str | None = None
    ) -> None:
        super().__init__(path, start, toml)
        self.kernel_path, self.plain = kernel_path, plain
        self.otherwise: Mapping[str, int] = {}
        self.check_keys(self.table, _KEYS if plain is None else {*_KEYS, *_PLAIN_KEYS}, "header")
        if plain is not None:
            self.table = {**self.table, **self._keys_from_text(plain)}
        # The file's own definitions, without the layout's.
        self.own = self.table
        if "layout" in self.table:
            for table in TABLES:
                self.mapping(table)
            for table in _ARRAYS:
                self.array(table)
            known = layouts()
            name = self.one_of("layout", self.table["layout"], known, f"one of {', '.join(known)}")
            self.table = merge_layout(self.table, known[name])

    def _keys_from_text(self, text: str) -> dict[str, Any]:
        """Return the keys that a plain WGSL header leaves out, derived from the text."""
        found: dict[str, Any] = {}
        table = self.table
        axes = {*table.get("tune", ()), *table.get("derive", ())}
        entries = entry_points(text, axes)
        if "summary" not in table:
            found["summary"] = "Plain WGSL."
        counts = table.get("workgroup_count")
        if "pass" not in table:
            if len(entries) != 1:
                listed = ", ".join(entries) or "none"
                raise self.at(
                    0, f"the text has the compute entry points {listed}; expected one, or [[pass]] tables"
                )
            if counts is None:
                raise self.at(
                    0,
                    f"the number of workgroups of {next(iter(entries))} is unknown; add workgroup_count to a "
                    f"header or to {self.kernel_path.stem}.toml next to the file, such as "
                    'workgroup_count = "rows"',
                )
            found["pass"] = [{"entry_point": next(iter(entries)), "workgroup_count": counts}]
        passes = table.get("pass", found.get("pass"))
        if isinstance(passes, list):
            wide, fixed = reads_grid(text), subgroup_sizes(text, axes)
            found["pass"] = [
                {
                    "workgroup_size": entries[entry],
                    "subgroup_size": fixed.get(entry, 0),
                    **one,
                    **_count_along_x(one, wide),
                }
                if isinstance(one, dict) and (entry := one.get("entry_point")) in entries
                else one
                for one in passes
            ]
        return found

    def plain_text(self, op: Op, scratch: Sequence[str], constants: Sequence[str]) -> PlainText | None:
        """Return the interface of plain WGSL; None for a template."""
        if self.plain is None:
            return None
        names = self.mapping("bindings")
        for name, value in names.items():
            listed = value if isinstance(value, list) else [value]
            if not all(isinstance(one, str) for one in listed):
                raise self.wrong_value(
                    name, f"bindings {name}", value, "the name of a tensor, a size or a scalar"
                )
        return read_plain(self.kernel_path, self.plain, op, names, scratch, constants)

    def ops(self, folder: str) -> tuple[str, ...]:
        """Return the ops that the kernel serves: the folder's, unless the header names them."""
        named = self.table.get("ops", [folder])
        if not isinstance(named, list) or not named:
            raise self.wrong_value("ops", "ops", named, "a list of ops")
        for name in named:
            self.check_known("ops", "op", str(name), OPS)
        return tuple(dict.fromkeys(named))

    def kernel(self, op_name: str) -> Kernel:
        """Return the kernel for an op."""
        op = self.op = OPS[op_name]
        defined = {*names_of(op), *self.mapping("tune"), *self.mapping("derive")}
        self.otherwise = {
            name: value for name, value in self.mapping("otherwise").items() if name not in defined
        }
        tune = {name: self.axis(name, values) for name, values in self.mapping("tune").items()}
        # Each table adds names for the expressions of the next.
        known = [*names_of(op)]
        default = self.defaults(tune, known)
        derive = self.derived(known)
        features = self.features(known)
        rung = self.table.get("rung", 0)
        if not isinstance(rung, int) or isinstance(rung, bool) or rung < 0:
            raise self.wrong_value("rung", "rung", rung, "an integer from 0")
        scratch = tuple(self.scratch(known, op))
        kernel = Kernel(
            op=op,
            name=self.kernel_path.stem,
            path=self.kernel_path,
            summary=self.text("summary"),
            differs=self.differs(op),
            rung=rung,
            preference=self.tree("preference", self.table.get("preference", rung), names_of(op)),
            unstable=self.text("unstable") if "unstable" in self.table else None,
            features=features,
            tune=tune,
            default=default,
            derive=derive,
            require=tuple(self.requires(known)),
            passes=tuple(self.passes(known, op, [one.name for one in scratch])),
            scratch=scratch,
            accuracy=self.accuracy(known),
            plain=self.plain_text(op, [one.name for one in scratch], [*tune, *derive]),
        )
        self.require_walkable(kernel)
        return replace(kernel, features=self.all_features(kernel))

    def tree(self, near: str, text: object, known: Sequence[str], index: int = 0) -> Tree:
        """Parse an expression over known names, and names for which the layout has a value."""
        tree = super().tree(near, text, [*known, *self.otherwise], index)
        unknown_names = expression.names(tree) & self.otherwise.keys()
        return expression.simplify(tree, self.otherwise) if unknown_names else tree

    def defaults(self, tune: Mapping[str, Sequence[int]], known: list[str]) -> dict[str, Tree]:
        """Return the default of each axis, and add the axes to the known names."""
        given = self.mapping("default")
        self.check_keys(given, set(tune), "default")
        default: dict[str, Tree] = {}
        for axis in tune:
            # Index 1, because the axis's values are on an earlier line with the same key.
            default[axis] = self.tree(axis, conditional_expression(given.get(axis, tune[axis][0])), known, 1)
            known.append(axis)
        return default

    def derived(self, known: list[str]) -> dict[str, Tree]:
        """Return the derived constants, and add them to the known names."""
        derive: dict[str, Tree] = {}
        for name, text in self.mapping("derive").items():
            self.free(name, known, "derived constant", str(text))
            derive[name] = self.tree(name, text, known)
            known.append(name)
        return derive

    def features(self, known: Sequence[str]) -> dict[str, Tree]:
        features = {}
        for name, text in self.mapping("features").items():
            if name not in KNOWN_FEATURES:
                raise self.complaint(name, str(unknown_feature(name)), meant=name)
            if name == SUBGROUP_SIZE_CONTROL:
                message = f"feature {name!r} follows from subgroup_size; set it in [[pass]] instead"
                raise self.complaint(name, message)
            features[name] = self.tree(name, text, known)
        return features

    def all_features(self, kernel: Kernel) -> dict[str, Tree]:
        """Return the declared features, and those that follow from the passes and from plain WGSL."""
        found, plain = dict(kernel.features), kernel.plain
        if plain is not None:
            if IMMEDIATES in found and not plain.immediate:
                message = f"feature {IMMEDIATES!r} is declared, but the text has no var<immediate>"
                raise self.complaint(IMMEDIATES, f"{message}; remove the feature, or declare the variable")
            # A directive alone does not make the parameters immediates.
            used = plain.features - {IMMEDIATES} | ({IMMEDIATES} if plain.immediate else set())
            found |= dict.fromkeys(used, 1)
        return _with_subgroup_sizes(found, kernel.passes)

    def check_read(self, kernel: Kernel, source: str) -> None:
        """Raise WebnormError for a name of the file that nothing reads, which may be misspelt.

        webnorm's own kernels are skipped, because a test checks them.
        """
        if kernel.path.is_relative_to(sources.wgsl_root()) or kernel.plain is not None:
            return
        of = {**kernel.default, **kernel.derive}
        others = [*kernel.features.values(), *vars(kernel.accuracy).values()]
        others += [one.rule for one in kernel.require]
        for each in kernel.passes:
            others += [each.workgroup_size, each.workgroup_count, each.when, each.iterations]
            others += [each.subgroup_size]
        others += [tree for one in kernel.scratch for tree in (one.records, one.words)]
        read_by = Counter(name for tree in (*of.values(), *others) for name in expression.names(tree))
        read_by.subtract(name for name, tree in of.items() if name in expression.names(tree))
        names = [*self.own.get("tune", {}), *self.own.get("derive", {})]
        names = [name for name in names if not read_by[name]]
        scratch = [one["name"] for one in self.own.get("scratch", [])]
        left = {*names, *scratch} - {WORKGROUP_BYTES, *COUNTS}
        if not left:
            return
        found = sources.template_names(sources.without_header(source, self.path), home(self.path)[0])
        for name in [name for name in names if name in left - found.tags if found.whole]:
            near = nearest(name, {*COUNTS, *found.tags, *(one for one in of if read_by[one])} - {name}, 0.6)
            hint = f"; did you mean {near!r}?" if near else ""
            message = f"nothing reads {name!r}, neither the header nor the text{hint}"
            raise self.complaint(name, message)
        for name in [name for name in scratch if name not in found.text | found.tags if found.whole]:
            raise self.complaint("name", f"nothing reads the scratch buffer {name!r}", name, meant=name)

    def require_walkable(self, kernel: Kernel) -> None:
        """Raise WebnormError if the axes have too many points."""
        points = math.prod(len(values) for values in kernel.tune.values())
        trees = [*kernel.derive.values(), *(require.rule for require in kernel.require)]
        trees += [tree for each in kernel.passes for tree in (each.workgroup_size, each.iterations)]
        parts = sum(expression.size(tree) for tree in trees)
        if points > MOST_POINTS or points * parts > MOST_WORK:
            raise self.complaint(
                "tune",
                f"the axes have {points} points, and the rules have {parts} parts to evaluate at each; "
                f"the limit is {min(MOST_POINTS, MOST_WORK // max(parts, 1))} points",
            )

    def differs(self, op: Op) -> str:
        """Return the sentence on other kernels of the op. A user's op may have only one kernel."""
        if op.source is not None:
            return str(self.table.get("differs", ""))
        if "differs" not in self.table:
            # A kernel of a user's op has no such key, and may have lost its folder.
            raise self.complaint(
                "differs",
                f"header key 'differs' is missing; expected a sentence on the other kernels of {op.name}. "
                "If the kernel is for another op, put it next to that op's op.py",
            )
        return self.text("differs")

    def requires(self, known: Sequence[str]) -> Iterator[Requirement]:
        for entry in self.tables("require", {"rule", "why"}):
            why = self.sentence("why", entry["why"], "why")
            yield Requirement(self.tree("rule", entry["rule"], known), why)

    def passes(self, known: Sequence[str], op: Op, scratch: Sequence[str]) -> Iterator[KernelPass]:
        keys = {"entry_point", "workgroup_size", "workgroup_count"}
        entries = list(self.tables("pass", keys, {"per", "bindings", "when", "iterations", "subgroup_size"}))
        if not entries:
            raise self.complaint("summary", "the header has no [[pass]] table; add at least one [[pass]]")
        names = {*(tensor.name for tensor in op.tensors), *scratch}
        for entry in entries:
            # `per` names the size that is cut into slices. An op without such a size has one slice.
            pers: dict[str, Per] = {op.problem_type.BATCH or "slice": "slice", "call": "call"}
            per = pers[self.one_of("per", entry.get("per", next(iter(pers))), pers, " or ".join(pers))]
            bound = entry.get("bindings")
            grid = self.grid(entry["workgroup_count"], known)
            count = reduce(lambda tree, one: ["*", tree, one], grid)
            yield KernelPass(
                self.entry_point(entry["entry_point"]),
                self.tree("workgroup_size", entry["workgroup_size"], known),
                count,
                per,
                None if bound is None else self.bindings(bound, names),
                self.tree("when", entry.get("when", 1), known),
                self.tree("iterations", entry.get("iterations", 0), known),
                tuple(grid) if len(grid) > 1 else (),
                self.subgroup_size(entry.get("subgroup_size", 0), known),
            )

    def subgroup_size(self, size: object, known: Sequence[str]) -> Tree:
        """Return the subgroup size of a pass. A number is checked here, because no adapter may have it."""
        tree = self.tree("subgroup_size", size, known)
        # An error in a part, such as a division by zero, is reported where the value is needed.
        number = expression.constant(tree)
        if number is not None and (number < 0 or number & (number - 1)):
            wanted = "a power of two, or 0 if the driver chooses"
            raise self.wrong_value("subgroup_size", "subgroup_size", number, wanted)
        return tree

    def grid(self, counts: object, known: Sequence[str]) -> list[Tree]:
        """Return the workgroups: one total count, or a count for each of two or three directions."""
        if not isinstance(counts, list):
            return [self.tree("workgroup_count", counts, known)]
        if len(counts) not in (2, 3):
            raise self.wrong_value(
                "workgroup_count", "workgroup_count", counts, "an expression, or a list of 2 or 3"
            )
        return [self.tree("workgroup_count", one, known) for one in counts]

    def entry_point(self, name: object) -> str:
        """Return the name of an entry point after checking that it is valid in WGSL."""
        if isinstance(name, str) and name.isidentifier() and name != "_" and not name.startswith("__"):
            return name
        holding = name if isinstance(name, str) else ""
        raise self.wrong_value("entry_point", "entry_point", name, "the name of a WGSL function", holding)

    def bindings(self, bound: object, names: Set[str]) -> tuple[str, ...]:
        if not isinstance(bound, list) or not all(isinstance(name, str) for name in bound):
            raise self.wrong_value("bindings", "bindings", bound, "a list of tensors and scratch buffers")
        for name in bound:
            self.check_known("bindings", "binding", name, names, name)
            if bound.count(name) > 1:
                raise self.complaint("bindings", f"bindings names {name!r} twice", name, meant=name)
        return tuple(bound)

    def scratch(self, known: Sequence[str], op: Op) -> Iterator[ScratchBuffer]:
        taken = [*known, *(tensor.name for tensor in op.tensors)]
        for entry in self.tables("scratch", {"name", "words"}, {"records"}):
            name = self.free(entry["name"], taken, "scratch buffer", "name")
            taken.append(name)
            yield ScratchBuffer(
                name,
                "records" not in entry,
                self.tree("records", entry.get("records", op.problem_type.BATCH or 1), known),
                self.tree("words", entry["words"], known),
            )

    def accuracy(self, known: Sequence[str]) -> AccuracyRules:
        table = self.mapping("accuracy")
        keys = {"serial_terms", "column_terms", "rounded_mean"}
        self.check_keys(table, keys, "accuracy")
        trees = {key: self.tree(key, table.get(key, 0), known) for key in keys}
        return AccuracyRules(**trees)
