"""Which ops there are: webnorm's own, those of the user's that were loaded, and what all have together."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from webnorm.errors import WebnormError, unknown
from webnorm.op.op import Op
from webnorm.op.options import Options, unknown_option
from webnorm.op.problem import Problem

# The package whose folders are webnorm's own ops.
_OWN = "webnorm.ops"
# The file that makes a folder one of an op.
OP_FILE = "op.py"


def load_ops(package: str) -> Iterator[Op]:
    """Yield the ops of a package's folders: those that the `op.py` of each names in its OPS."""
    for folder in sorted(resources.files(package).iterdir(), key=lambda one: one.name):
        if folder.is_dir() and folder.joinpath(OP_FILE).is_file():
            yield from importlib.import_module(f"{package}.{folder.name}.op").OPS


class _Registry(Mapping[str, Op]):
    """The ops by name, loaded when they are first asked for."""

    def __getitem__(self, name: str) -> Op:
        return _users[name] if name in _users else _loaded()[name]

    def __iter__(self) -> Iterator[str]:
        yield from _loaded()
        yield from _users

    def __len__(self) -> int:
        return len(_loaded()) + len(_users)


@cache
def _loaded() -> Mapping[str, Op]:
    return {op.name: op for op in load_ops(_OWN)}


OPS: Mapping[str, Op] = _Registry()
# The ops of the user's that this process has loaded, by name; and why others could not be.
_users: dict[str, Op] = {}
_broken: dict[str, str] = {}


def register(op: Op) -> None:
    """Have OPS contain an op of the user's, in place of one of the same folder.

    Raises WebnormError for the name of one of webnorm's own, or of another folder's.
    """
    if op.name in _loaded():
        raise WebnormError(f"{_folder(op)}: {op.name} is an op of webnorm; rename the folder")
    known = _users.get(op.name)
    if known is not None and _folder(known) != _folder(op):
        raise WebnormError(
            f"{_folder(op)}: {_folder(known)} has an op {op.name}, too; rename one of the folders"
        )
    _users[op.name] = op
    _broken.pop(op.name, None)
    _forget_what_follows()


def unregister(name: str) -> None:
    """Have OPS contain an op of the user's no more; nothing happens for a name that is none."""
    _users.pop(name, None)
    _broken.pop(name, None)
    _forget_what_follows()


def _forget_what_follows() -> None:
    for kept in (computing_ops, problem_types, _options_types, flag_names):
        kept.cache_clear()


def is_op_folder(folder: Path) -> bool:
    """Whether a folder has an op.py."""
    try:
        return (folder / OP_FILE).is_file()
    except OSError:
        return False


def load_op(folder: Path | str) -> Op:
    """Return the op of a folder of the user's, loaded and registered: see op_folders.load_op_folder."""
    # Here: who calls a norm needs nothing of what it imports.
    from webnorm.op.op_folders import load_op_folder

    return load_op_folder(folder)


def note_broken(name: str, reason: str) -> None:
    """Have `op_named` raise with this reason for an op of the user's that cannot be loaded."""
    _broken[name] = reason


def broken_ops() -> Mapping[str, str]:
    """Return the ops of the user's that could not be loaded, by name, and why."""
    return dict(_broken)


def user_ops() -> Mapping[str, Op]:
    """Return the ops of the user's that are loaded, by name."""
    return dict(_users)


def _folder(op: Op) -> str:
    return op.source.folder if op.source is not None else op.name


def op_named(name: str) -> Op:
    """Return the op of that name; raises WebnormError without one."""
    if name in _broken:
        raise WebnormError(_broken[name])
    if name not in OPS:
        raise unknown("op", name, OPS)
    return OPS[name]


@cache
def copy_op() -> Op:
    """Return the op that the others are timed next to."""
    return next(op for op in OPS.values() if op.is_copy)


def as_copy_problem(problem: Problem) -> Problem:
    """Return the problem as the copy sees it."""
    return copy_op().copied_problem(problem)


@cache
def computing_ops() -> tuple[str, ...]:
    """Return the names of the ops that compute something; a copy is what they are compared with."""
    return tuple(name for name, op in OPS.items() if not op.is_copy)


def not_computing() -> dict[str, str]:
    """Return why each of the other ops is not among them."""
    return {name: "only measures what a norm is compared with" for name, op in OPS.items() if op.is_copy}


@cache
def problem_types() -> tuple[type[Problem], ...]:
    """Return the types of problems that the ops have."""
    return tuple(dict.fromkeys(op.problem_type for op in OPS.values()))


def default_op() -> Op:
    """Return the op that is meant where none is named: the first that computes."""
    return next((OPS[name] for name in computing_ops()), copy_op())


def distributions() -> tuple[str, ...]:
    """Return the names of the draws that problems have."""
    return tuple(dict.fromkeys(name for one in problem_types() for name in one.DISTRIBUTIONS))


def option_words() -> list[str]:
    """Return what --option takes: the options and values of all ops, but those with flags of their own."""
    found: dict[str, None] = {}
    for kind in _options_types():
        for field in fields(kind):
            if isinstance(field.default, bool):
                words = [] if field.name in kind.IGNORABLE else [field.name]
            else:
                words = [f"{field.name}={value}" for value in kind.VALUES.get(field.name, ("",))]
            found |= dict.fromkeys(words)
    return [*found]


@cache
def _options_types() -> tuple[type[Any], ...]:
    return tuple(dict.fromkeys(type(op.defaults) for op in OPS.values()))


def options_of(op: Op, pairs: Sequence[str]) -> Options:
    """Return an op's default options with some set from text, as Options.changed takes it.

    Raises UnsupportedProblem for an option that another op has, and for every one if this op has none;
    WebnormError for one that no op has.
    """
    own = {field.name for field in fields(op.defaults)}
    known = [field.name for kind in _options_types() for field in fields(kind)]
    for name in (pair.partition("=")[0] for pair in pairs):
        if own and name not in known:
            raise unknown_option(name, own, type(op.defaults).VALUES)
        if name not in own and name not in type(op.defaults).IGNORABLE:
            raise op.without_option(name)
    changed: Options = op.defaults.changed(pairs)
    return changed


@cache
def flag_names(op: Op) -> Mapping[str, str]:
    """Return an op's options that are flags by what headers call them.

    One that is named for a tensor of an op with these options says whether there is one.
    """
    kind = type(op.defaults)
    tensors = {tensor.name for one in OPS.values() if type(one.defaults) is kind for tensor in one.tensors}
    return {f"has_{name}" if name in tensors else name: name for name in kind.flags()}


def problem_from_json(op_name: object, data: Mapping[str, Any]) -> Problem:
    """Return the problem of an op as `Problem.as_json` gave it; raises WebnormError for foreign data.

    A copy may have the problem of the op that it was timed next to. An op that is not loaded here gets
    a problem that has only the recorded values.
    """
    op = OPS.get(str(op_name))
    if op is None or (op.is_copy and not any(one.takes(data) for one in problem_types())):
        # Here: most results are of ops that are loaded.
        from webnorm.op.recorded_problem import recorded_problem

        return recorded_problem(str(op_name), data)
    kinds = (one for one in problem_types() if op.is_copy and one.takes(data))
    return next(kinds, op.problem_type).from_json(data)
