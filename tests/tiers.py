"""The two tiers of tests: `make test` must cover some things, and leaves the rest to `make test-all`.

Each process of a run records what its tests cover. After a whole run of the first tier, the controlling
process compares these records with the list of needed things. The run fails if something is missing.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from pages import DOCUMENTS, ROOT, name_of
from webnorm.cli.verb_table import VERBS
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.library import discover
from webnorm.op.dtypes import NARROWING, STORAGE
from webnorm.op.expression import parse
from webnorm.ops.norms.problem import NormProblem

# The argument of pytest's -m that selects the first tier.
FIRST = "not slow"
# Each fixture takes half a minute: the whole lab, the site with it, and the examples as apps.
SLOW_FIXTURES = frozenset({"lab_folder", "site", "apps"})
# A kind of thing, and its name: ("verb", "bench"), ("kernel", "layer_norm/naive", "dtype=float16").
Thing = tuple[str, ...]
_met: set[Thing] = set()
# Things that no test can cover on this machine, with the reason.
_excused: dict[Thing, str] = {}
# The number of tests that the run leaves out, by folder.
_left = Counter[str]()


def mark_slow(items: Iterable[pytest.Item]) -> None:
    """Mark tests as slow that use a slow fixture, and the cases that a marker `sampled` leaves out."""
    seen = Counter[str]()
    for item in items:
        if SLOW_FIXTURES & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.slow)
        marker = item.get_closest_marker("sampled")
        if marker is not None:
            test = item.nodeid.partition("[")[0]
            kept = marker.kwargs.get("ids", ())
            if kept:
                keeps = item.nodeid.partition("[")[2].removesuffix("]") in kept
            else:
                keeps = seen[test] % marker.args[0] == 0
            seen[test] += 1
            if not keeps:
                item.add_marker(pytest.mark.slow)


def meet(*thing: str) -> None:
    """Record that a test covers a thing."""
    _met.add(thing)


def excuse(*thing: str, reason: str) -> None:
    """Record that no test can cover a thing here, or all things whose names start like this."""
    _excused[thing] = reason


def met_by(kernel: Kernel, problem: NormProblem) -> set[Thing]:
    """Return what a kernel's run on a problem covers: its storage types, and each option, set or not."""
    names = [f"dtype={problem.dtype}"]
    for name in kernel.op.options:
        value, default = (getattr(options, name) for options in (problem.options, kernel.op.defaults))
        # A choice that always has a value counts as set if it is another than its default.
        is_set = value != default if isinstance(default, str) else bool(value)
        names.append(name if is_set else f"no {name}")
        names += [f"out_dtype={value}"] if name == "out_dtype" and value else []
    return {("kernel", kernel.label, name) for name in names}


def meet_kernel(kernel: Kernel, problem: NormProblem) -> None:
    """Record a kernel that computed a problem."""
    _met.update(met_by(kernel, problem))


def needed_of(kernel: Kernel) -> set[Thing]:
    """Return what tests must cover of a kernel: every storage type, and every option, set and not set."""
    rules = [require.rule for require in kernel.require]
    names = [f"dtype={dtype}" for dtype in STORAGE]
    for name in kernel.op.options:
        refused = [parse(text) for text in (f"not has_{name}", f"{name} == 0")]
        names += [name] if all(rule not in rules for rule in refused) else []
        names += [f"no {name}"] if parse(name) not in rules else []
    if "out_dtype" in kernel.op.options:
        names += [f"out_dtype={dtype}" for dtype in NARROWING]
    return {("kernel", kernel.label, name) for name in names}


def verbs() -> Iterator[str]:
    """Yield the command's verbs. A verb in a group has the group's name first, as in "store add"."""
    for name, (place, _) in VERBS.items():
        module, found = place.split(":")
        if found == "VERBS":
            yield from (
                f"{name} {verb}".strip() for verb in import_module(f"webnorm.cli.verbs.{module}").VERBS
            )
        else:
            yield name


def meet_verb(arguments: Iterable[str]) -> None:
    """Record the verb of a command that succeeded."""
    words = [*arguments]
    name = next(
        (name for name in sorted(verbs(), reverse=True) if words[: len(name.split())] == name.split()), None
    )
    if name is not None and "--help" not in words:
        meet("verb", name)


def rooms() -> set[str]:
    """Return the rooms of the code: webnorm's folders and modules, and bench."""
    found = {f"webnorm.{path.parent.name}" for path in (ROOT / "webnorm").glob("*/__init__.py")}
    found |= {f"webnorm.{path.stem}" for path in (ROOT / "webnorm").glob("[a-z]*.py")}
    return found | {"bench"}


def meet_rooms(files: Iterable[Path]) -> None:
    """Record the rooms from which test files import something."""
    known = rooms()
    for path in files:
        for name in _imported(ast.parse(path.read_text(encoding="utf-8"))):
            house, *inside = name.split(".")
            for room in {house, ".".join((house, *inside[:1]))} & known:
                meet("room", room)


def _imported(tree: ast.Module) -> Iterator[str]:
    """Yield the full names that a module imports. Optional modules are imported by names in strings."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom():
                yield from (f"{node.module}.{one.name}" for one in node.names)
            case ast.Import():
                yield from (one.name for one in node.names)
            case ast.Constant(value=str(text)) if text.startswith("webnorm."):
                yield text


def needed() -> set[Thing]:
    """Return all things that the first tier must cover."""
    things = {thing for kernel in discover() for thing in needed_of(kernel)}
    things |= {("verb", name) for name in verbs()}
    things |= {("page", name_of(page)) for page in DOCUMENTS}
    things |= {("room", room) for room in rooms()}
    return things | {("browser", "chromium"), ("browser", "firefox")}


def missing() -> list[str]:
    """Return what the first tier did not cover, one line for each group of things."""
    prefixes = [*_excused]
    left = {thing for thing in needed() - _met if not any(thing[: len(one)] == one for one in prefixes)}
    groups: dict[Thing, list[str]] = {}
    for *group, name in sorted(left):
        groups.setdefault(tuple(group), []).append(name)
    return [f"{' '.join(group)}: {', '.join(names)}" for group, names in groups.items()]


def excuses() -> list[str]:
    """Return what no test can cover on this machine, each with the reason."""
    return [f"{' '.join(thing)}: {reason}" for thing, reason in sorted(_excused.items())]


def leave(nodes: Iterable[str]) -> None:
    """Record the ids of tests that a run leaves out."""
    _left.update("/".join(node.split("::")[0].split("/")[:2]) for node in nodes)


def left() -> str:
    """Return the number of tests that the run left out, by folder."""
    folders = ", ".join(f"{folder} {count:,}" for folder, count in _left.most_common())
    return f"{_left.total():,} tests: {folders}"


def noted() -> dict[str, Any]:
    """Return the records of this process, as lists that pytest-xdist can send."""
    excused = [[[*thing], reason] for thing, reason in _excused.items()]
    return {"met": [[*thing] for thing in _met], "excused": excused, "left": {**_left}}


def add(notes: dict[str, Any]) -> None:
    """Add the records of another process. Every process leaves out the same tests."""
    _met.update(tuple(thing) for thing in notes["met"])
    _excused.update((tuple(thing), reason) for thing, reason in notes["excused"])
    _left.update(Counter(notes["left"]) - _left)
