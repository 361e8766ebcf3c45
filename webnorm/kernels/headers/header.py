"""Reading a kernel's file: its header, checked table by table."""

from __future__ import annotations

import keyword
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cache, reduce
from pathlib import Path
from typing import Any, overload

from webnorm import signals
from webnorm.errors import WebnormError, nearest, sentence, unknown
from webnorm.files.atomic import absolute, resolved
from webnorm.kernels.headers import sources
from webnorm.kernels.headers.kernel import AccuracyRules, Kernel, KernelPass, Per, Requirement, ScratchBuffer
from webnorm.kernels.headers.plain import PlainText, entry_points, is_plain, read_plain
from webnorm.kernels.headers.toml_fields import TomlFields
from webnorm.kernels.headers.variants import COUNTS, MOST_POINTS, WORKGROUP_BYTES, names_of, template_names_of
from webnorm.op import expression
from webnorm.op.expression import Tree
from webnorm.op.op import Op
from webnorm.op.registry import OPS, is_op_folder, load_op

Table = Mapping[str, Any]
TABLES = ("features", "tune", "default", "derive")
KNOWN_FEATURES = ("subgroups", "shader-f16")
_ARRAYS = ("require", "pass", "scratch")
# What headers of plain WGSL may have beside the others.
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
# Points of the axes times the parts of the rules that are worked out at each: six times what it is with the
# gradients' registers, of which half a second tells what can run.
MOST_WORK = 1 << 28
# What a template or an expression does not take for a name.
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
    """The layouts by name: how rows are shared out among invocations, which many headers have in common.

    A layout is a TOML file of webnorm's own with tables of a header: axes, derived constants, rules, scratch
    buffers and passes. It may name a layout that it completes in turn.
    """
    tables: dict[str, Table] = {
        path.stem: tomllib.loads(path.read_text(encoding="utf-8"))
        for path in sorted((sources.wgsl_root() / "layouts").glob("*.toml"))
    }
    return {name: _whole(table, tables) for name, table in tables.items()}


def _whole(table: Table, tables: Mapping[str, Table]) -> Table:
    return laid_out(table, _whole(tables[table["layout"]], tables)) if "layout" in table else table


def laid_out(header: Table, layout: Table) -> dict[str, Any]:
    """A header with what its layout says. The header goes first: its axes and derived constants take the
    place of the layout's of the same name, its passes that of the same entry point; its passes and scratch
    buffers come before the layout's, its rules behind. Derived constants stand behind those that they need.
    """
    # What is an axis in one place and derived in the other is what the header says.
    fixed, free = header.get("derive", {}).keys(), header.get("tune", {}).keys()
    dropped = {"tune": fixed, "default": fixed, "derive": free}
    whole = dict(header)
    for table in TABLES:
        given = layout.get(table, {})
        left = {name: given[name] for name in given if name not in dropped.get(table, ())}
        whole[table] = left | header.get(table, {})
    whole["derive"] = _in_order(whole["derive"])
    for table, name in (("pass", "entry_point"), ("scratch", "name")):
        entries = header.get(table, [])
        taken = [entry.get(name) for entry in entries]
        whole[table] = [*entries, *(entry for entry in layout.get(table, []) if entry[name] not in taken)]
    whole["require"] = [*layout.get("require", []), *header.get("require", [])]
    return whole


def _in_order(derived: Table) -> dict[str, Any]:
    """What needs no other first; the rest as it is where each needs another."""
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
    """The folder that a kernel's file and its snippets have to lie in, and the name of the file's folder.

    It is the folder above that of the op, as with --wgsl, or the file's own where that is no op.
    """
    # Not resolved: a link in the place of an op's folder may lead out, too.
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
    """The error for a file of a kernel that cannot be opened."""
    return WebnormError(f"{path}: cannot read the kernel: {error.strerror or error}")


def check_name(path: Path) -> None:
    """Raise WebnormError for a file whose name would be shown as something else, or whose folders have names
    that does not fit in one line of a template's text (kernels.source_map.markers).
    """
    for what, name, forbidden in (
        ("name", path.name, rf"{sources.FORBIDDEN.pattern}|[\t\n]"),
        ("path", str(absolute(path)), "[\n\r\ufdd0\ufdd1]"),
    ):
        if found := re.search(forbidden, name):
            held = sources.code_point(found[0])
            raise WebnormError(f"{sentence(str(path))}: its {what} holds {held}; rename it")


@signals.holding
def load(path: Path, op_name: str | None = None) -> Kernel:
    """Read a kernel file for one of the ops that it serves: `op_name` if that is one, else the first.

    Raises WebnormError that names the file and, where there is one, the line.
    """
    source, default = _read(path, op_name)
    header = _header_of(path, source)
    ops = header.ops(default)
    kernel = header.kernel(op_name if op_name and op_name in ops else ops[0])
    header.check_read(kernel, source)
    return kernel


@signals.holding
def load_all(path: Path, only: str | None = None) -> list[Kernel]:
    """Read a kernel file in an op's folder: a kernel for each op that it serves, or for that one alone.

    Raises as `load` does; what does not serve that one is hardly looked at.
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
    """The header of a kernel's text; None where it cannot be one of the op `only`.

    That of plain WGSL may be a TOML file of the same name, or be left out in part: what the text says is
    taken from there.
    """
    beside = path.with_suffix(".toml")
    if not sources.has_header(source) and is_plain(source):
        start, toml = 0, _toml_beside(beside)
        place = beside if toml else path
        return _Header(place, start, toml, path, source)
    start, toml = sources.split_header(source, path)
    # A header serves its folder's op, or those that it names: most need not be parsed.
    if only not in ("", default) and not re.search(rf"\b{only}\b", toml):
        return None
    body = sources.without_header(source, path)
    return _Header(path, start, toml, path, body if is_plain(body) else None)


def _toml_beside(path: Path) -> str:
    if not path.exists():
        return ""
    try:
        return sources.read(path, path.parent)[0]
    except sources.SourceUnreadable as error:
        raise WebnormError(f"{path}: cannot read the header: {error.reason}") from error


def _read(path: Path, op_name: str | None) -> tuple[str, str]:
    """A file's text, and the op that it serves where it names none: its folder, else `op_name`."""
    root, folder = home(path)
    check_name(path)
    try:
        source, _, _ = sources.read(path, root)
    except sources.SourceUnreadable as error:
        named, place = error.named(str(path))
        raise WebnormError(f"{named}: cannot read the kernel: {error.reason}", place) from error
    default = folder if folder in OPS or op_name is None else op_name
    if default not in OPS:
        raise WebnormError(f"{path}: its folder: {unknown('op', default, OPS)}")
    return source, default


def _along_x(one: Mapping[str, Any], wide: bool) -> dict[str, Any]:
    """The count of a pass of plain WGSL as it is meant: along x, unless the text looks how wide a grid is."""
    count = one.get("workgroup_count")
    return {} if wide or isinstance(count, list) or count is None else {"workgroup_count": [count, 1]}


def written_out(value: object) -> object:
    """Return the text of a default that is a list of [test, value] and, last, the value where no test holds.

    A value may be such a list, too. What is neither stays as it is.
    """
    if not isinstance(value, list) or len(value) < 2:
        return value
    *rows, last = value
    if not all(isinstance(row, list) and len(row) == 2 for row in rows):
        return value
    tests = [f"({written_out(one)}) if ({test}) else " for test, one in rows]
    return f"{''.join(tests)}({written_out(last)})"


class _Header(TomlFields):
    """A header, table by table."""

    def free(self, name: object, known: Sequence[str], kind: str, holding: str = "") -> str:
        """A name that is not taken yet, by Jinja, the header or the problem."""
        if not isinstance(name, str):
            raise self.unfit("name", kind, name, "a name")
        if (
            not name.isidentifier()
            or name in known
            or name in template_names_of(self.op)
            or name in _RESERVED
        ):
            raise self.complaint(name, f"{kind} {name!r} is no free identifier", holding)
        return name

    def axis(self, name: str, values: object) -> tuple[int, ...]:
        self.free(name, names_of(self.op), "axis")
        if not isinstance(values, list) or not values or not all(isinstance(v, int) for v in values):
            raise self.unfit(name, f"axis {name}", values, "a list of integers or booleans")
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
        self.only(self.table, _KEYS if plain is None else {*_KEYS, *_PLAIN_KEYS}, "header")
        if plain is not None:
            self.table = {**self.table, **self._said_by_text(plain)}
        # What the file itself defines, not its layout.
        self.own = self.table
        if "layout" in self.table:
            for table in TABLES:
                self.mapping(table)
            for table in _ARRAYS:
                self.array(table)
            known = layouts()
            name = self.one_of("layout", self.table["layout"], known, f"one of {', '.join(known)}")
            self.table = laid_out(self.table, known[name])

    def _said_by_text(self, text: str) -> dict[str, Any]:
        """What a header of plain WGSL may leave out, where it does."""
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
                raise self.at(0, f"the text has the compute entry points {listed}; expected [[pass]] tables")
            if counts is None:
                raise self.at(
                    0,
                    f"nothing says how many workgroups {next(iter(entries))} takes; expected a header, or "
                    f"{self.kernel_path.stem}.toml next to it, with workgroup_count, such as "
                    'workgroup_count = "rows"',
                )
            found["pass"] = [{"entry_point": next(iter(entries)), "workgroup_count": counts}]
        passes = table.get("pass", found.get("pass"))
        if isinstance(passes, list):
            wide = re.search(r"\bnum_workgroups\b", text) is not None
            found["pass"] = [
                {"workgroup_size": entries[entry], **one, **_along_x(one, wide)}
                if isinstance(one, dict) and (entry := one.get("entry_point")) in entries
                else one
                for one in passes
            ]
        return found

    def plain_text(self, op: Op, scratch: Sequence[str], constants: Sequence[str]) -> PlainText | None:
        """The interface of plain WGSL; None for a template."""
        if self.plain is None:
            return None
        names = self.mapping("bindings")
        for name, value in names.items():
            listed = value if isinstance(value, list) else [value]
            if not all(isinstance(one, str) for one in listed):
                raise self.unfit(name, f"bindings {name}", value, "the name of a tensor, a size or a scalar")
        return read_plain(self.kernel_path, self.plain, op, names, scratch, constants)

    def ops(self, folder: str) -> tuple[str, ...]:
        """The ops that the kernel serves: `folder`, unless the header names them."""
        named = self.table.get("ops", [folder])
        if not isinstance(named, list) or not named:
            raise self.unfit("ops", "ops", named, "a list of ops")
        for name in named:
            self.check_known("ops", "op", str(name), OPS)
        return tuple(dict.fromkeys(named))

    def kernel(self, op_name: str) -> Kernel:
        """The kernel for an op."""
        op = self.op = OPS[op_name]
        tune = {name: self.axis(name, values) for name, values in self.mapping("tune").items()}
        # What an expression may use grows from table to table.
        known = [*names_of(op)]
        default = self.defaults(tune, known)
        derive = self.derived(known)
        features = self.features(known)
        rung = self.table.get("rung", 0)
        if not isinstance(rung, int) or isinstance(rung, bool):
            raise self.unfit("rung", "rung", rung, "an integer")
        scratch = tuple(self.scratch(known, op))
        kernel = Kernel(
            op=op,
            name=self.kernel_path.stem,
            path=self.kernel_path,
            summary=self.text("summary"),
            # What an op of the user's has may be its only kernel.
            differs=self.text("differs") if op.source is None else str(self.table.get("differs", "")),
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
        return kernel

    def defaults(self, tune: Mapping[str, Sequence[int]], known: list[str]) -> dict[str, Tree]:
        """Of each axis, which is known from then on."""
        given = self.mapping("default")
        self.only(given, set(tune), "default")
        default: dict[str, Tree] = {}
        for axis in tune:
            # Its line comes after the one that has the axis's values.
            default[axis] = self.tree(axis, written_out(given.get(axis, tune[axis][0])), known, 1)
            known.append(axis)
        return default

    def derived(self, known: list[str]) -> dict[str, Tree]:
        """The derived constants, each of which is known from then on."""
        derive: dict[str, Tree] = {}
        for name, text in self.mapping("derive").items():
            self.free(name, known, "derived constant", str(text))
            derive[name] = self.tree(name, text, known)
            known.append(name)
        return derive

    def features(self, known: Sequence[str]) -> dict[str, Tree]:
        features = {}
        for name, text in self.mapping("features").items():
            self.check_known(name, "feature", name, KNOWN_FEATURES)
            features[name] = self.tree(name, text, known)
        return features

    def check_read(self, kernel: Kernel, source: str) -> None:
        """Complain about a name of the file's own that nothing reads: it may be misspelt.

        Of webnorm's kernels a test holds that there is none.
        """
        if kernel.path.is_relative_to(sources.wgsl_root()) or kernel.plain is not None:
            return
        of = {**kernel.default, **kernel.derive}
        others = [*kernel.features.values(), *vars(kernel.accuracy).values()]
        others += [one.rule for one in kernel.require]
        for each in kernel.passes:
            others += [each.workgroup_size, each.workgroup_count, each.when, each.iterations]
        others += [tree for one in kernel.scratch for tree in (one.records, one.words)]
        read_by = Counter(name for tree in (*of.values(), *others) for name in expression.names(tree))
        read_by.subtract(name for name, tree in of.items() if name in expression.names(tree))
        names = [*self.own.get("tune", {}), *self.own.get("derive", {})]
        names = [name for name in names if not read_by[name]]
        scratch = [one["name"] for one in self.own.get("scratch", [])]
        left = {*names, *scratch} - {WORKGROUP_BYTES, *COUNTS}
        if not left:
            return
        found = sources.looked_up(sources.without_header(source, self.path), home(self.path)[0])
        for name in [name for name in names if name in left - found.tags if found.whole]:
            near = nearest(name, {*COUNTS, *found.tags, *(one for one in of if read_by[one])} - {name}, 0.6)
            hint = f"; did you mean {near!r}?" if near else ""
            message = f"nothing reads {name!r}, neither the header nor the text{hint}"
            raise self.complaint(name, message)
        for name in [name for name in scratch if name not in found.text | found.tags if found.whole]:
            raise self.complaint("name", f"nothing reads the scratch buffer {name!r}", name, meant=name)

    def require_walkable(self, kernel: Kernel) -> None:
        """Complain about axes that nobody can walk over."""
        points = math.prod(len(values) for values in kernel.tune.values())
        trees = [*kernel.derive.values(), *(require.rule for require in kernel.require)]
        trees += [tree for each in kernel.passes for tree in (each.workgroup_size, each.iterations)]
        parts = sum(expression.size(tree) for tree in trees)
        if points > MOST_POINTS or points * parts > MOST_WORK:
            raise self.complaint(
                "tune",
                f"the axes have {points} points, with rules of {parts} parts to be worked out at each; "
                f"expected at most {min(MOST_POINTS, MOST_WORK // max(parts, 1))} points",
            )

    def requires(self, known: Sequence[str]) -> Iterator[Requirement]:
        for entry in self.tables("require", {"rule", "why"}):
            why = self.sentence("why", entry["why"], "why")
            yield Requirement(self.tree("rule", entry["rule"], known), why)

    def passes(self, known: Sequence[str], op: Op, scratch: Sequence[str]) -> Iterator[KernelPass]:
        keys = {"entry_point", "workgroup_size", "workgroup_count"}
        entries = list(self.tables("pass", keys, {"per", "bindings", "when", "iterations"}))
        if not entries:
            raise self.complaint("summary", "a kernel has at least one [[pass]] table; this header has none")
        names = {*(tensor.name for tensor in op.tensors), *scratch}
        for entry in entries:
            # A header names the size that is cut.
            # An op without such a size has one slice.
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
            )

    def grid(self, counts: object, known: Sequence[str]) -> list[Tree]:
        """The workgroups in each direction: one count that a plan arranges, or a list of two or three."""
        if not isinstance(counts, list):
            return [self.tree("workgroup_count", counts, known)]
        if len(counts) not in (2, 3):
            raise self.unfit(
                "workgroup_count", "workgroup_count", counts, "an expression, or a list of 2 or 3"
            )
        return [self.tree("workgroup_count", one, known) for one in counts]

    def entry_point(self, name: object) -> str:
        """The name of a function, as WGSL takes it."""
        if isinstance(name, str) and name.isidentifier() and name != "_" and not name.startswith("__"):
            return name
        holding = name if isinstance(name, str) else ""
        raise self.unfit("entry_point", "entry_point", name, "the name of a WGSL function", holding)

    def bindings(self, bound: object, names: Set[str]) -> tuple[str, ...]:
        if not isinstance(bound, list) or not all(isinstance(name, str) for name in bound):
            raise self.unfit("bindings", "bindings", bound, "a list of tensors and scratch buffers")
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
        self.only(table, keys, "accuracy")
        trees = {key: self.tree(key, table.get(key, 0), known) for key in keys}
        return AccuracyRules(**trees)
