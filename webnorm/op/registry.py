"""The registry of ops: webnorm's own, and the loaded user ops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from webnorm.errors import WebnormError, unknown
from webnorm.op.op import Op
from webnorm.op.options import Options, unknown_option
from webnorm.op.packaged_ops import OP_FILE, PackagedOps
from webnorm.op.problem import Problem

# The package whose folders are webnorm's own ops.
_OWN = "webnorm.ops"


class _Registry(Mapping[str, Op]):
    """The ops by name, loaded on first use. A user's op takes the place of a packaged one of its name."""

    def __getitem__(self, name: str) -> Op:
        return _users[name] if name in _users else _packaged()[name]

    def __contains__(self, name: object) -> bool:
        return name in _users or name in _packaged()

    def __iter__(self) -> Iterator[str]:
        yield from _packaged()
        yield from (name for name in _users if name not in _packaged())

    def __len__(self) -> int:
        return len(_packaged().keys() | _users.keys())


@cache
def _packaged() -> PackagedOps:
    return PackagedOps(_OWN)


OPS: Mapping[str, Op] = _Registry()
# The user ops that this process has loaded, and the errors of others, by name.
_users: dict[str, Op] = {}
_broken: dict[str, str] = {}


def register(op: Op) -> None:
    """Add a user op to OPS; it replaces an op of the same folder, or a packaged one of its name.

    Raises
    ------
    WebnormError
        webnorm has an op of this name that cannot be replaced, or another folder has one.
    """
    if any(op.name == one.name for one in _packaged().listed):
        raise WebnormError(f"{_folder(op)}: {op.name} is an op of webnorm; rename the folder")
    known = _users.get(op.name)
    if known is not None and _folder(known) != _folder(op):
        raise WebnormError(
            f"{_folder(op)}: {_folder(known)} has an op {op.name}, too; rename one of the folders"
        )
    _users[op.name] = op
    _broken.pop(op.name, None)
    _clear_caches()


def unregister(name: str) -> None:
    """Remove a user op from OPS. Other names have no effect."""
    _users.pop(name, None)
    _broken.pop(name, None)
    _clear_caches()


def unregister_others(names: Iterable[str]) -> None:
    """Remove the user ops that have none of these names, such as the ops of an earlier task."""
    for name in _users.keys() - {*names}:
        unregister(name)


def _clear_caches() -> None:
    for kept in (computing_ops, problem_types, _options_types, flag_names):
        kept.cache_clear()


def is_op_folder(folder: Path) -> bool:
    """Return True if a folder has an op.py."""
    try:
        return (folder / OP_FILE).is_file()
    except OSError:
        return False


def op_folders(root: Path) -> list[Path]:
    """Return the folders directly below `root` that have an op.py; none if `root` cannot be read."""
    try:
        return sorted(folder for folder in root.iterdir() if is_op_folder(folder))
    except OSError:
        return []


def load_op(folder: Path | str) -> Op:
    """Load and register the op of a user folder, and return it: see op_folders.load_op_folder."""
    # A call of a norm does not need these imports.
    from webnorm.op.op_folders import load_op_folder

    return load_op_folder(folder)


def note_broken(name: str, reason: str) -> None:
    """Make `op_named` raise this reason for a user op that cannot be loaded."""
    _broken[name] = reason


def broken_ops() -> Mapping[str, str]:
    """Return the reasons why user ops could not be loaded, by name."""
    return dict(_broken)


def user_ops() -> Mapping[str, Op]:
    """Return the loaded user ops by name."""
    return dict(_users)


def _folder(op: Op) -> str:
    return op.source.folder if op.source is not None else op.name


def op_named(name: str) -> Op:
    """Return the op of that name; raise WebnormError if there is none."""
    if name in _broken:
        raise WebnormError(_broken[name])
    if name not in OPS:
        raise unknown("op", name, OPS)
    return OPS[name]


def packaged_op(name: str) -> Op:
    """Return the op of that name that comes with webnorm, even if a user's op has the same name."""
    return _packaged()[name]


@cache
def copy_op() -> Op:
    """Return the copy op, next to which the others are timed."""
    return next(op for op in _packaged().listed if op.is_copy)


def as_copy_problem(problem: Problem) -> Problem:
    """Return the copy's problem for a problem of another op."""
    return copy_op().copied_problem(problem)


@cache
def computing_ops() -> tuple[str, ...]:
    """Return the names of all ops but the copy."""
    return tuple(name for name in OPS if name not in not_computing())


def not_computing() -> dict[str, str]:
    """Return the reasons why the other ops are not `computing_ops`."""
    copies = (op.name for op in _packaged().listed if op.is_copy)
    return dict.fromkeys(copies, "only measures what a norm is compared with")


@cache
def problem_types() -> tuple[type[Problem], ...]:
    """Return the problem types of the ops."""
    return tuple(dict.fromkeys(op.problem_type for op in OPS.values()))


def default_op() -> Op:
    """Return the default op: the first that computes."""
    return next((OPS[name] for name in computing_ops()), copy_op())


def distributions() -> tuple[str, ...]:
    """Return the names of all distributions, except the ones of packaged ops: users' ops have them too."""
    kinds = (op.problem_type for op in (*_packaged().listed, *_users.values()))
    return tuple(dict.fromkeys(name for kind in kinds for name in kind.DISTRIBUTIONS))


def listed_option_words() -> list[str]:
    """Return the values of --option that help lists: of all ops but the packaged ops of `define_op`."""
    return option_words((*(op.name for op in _packaged().listed), *_users))


def option_words(ops: Iterable[str]) -> list[str]:
    """Return the values of --option for some ops, except the options with a flag of their own."""
    found: dict[str, None] = {}
    for kind in dict.fromkeys(type(OPS[name].defaults) for name in ops):
        for field in fields(kind):
            if isinstance(field.default, bool):
                word = f"{field.name}=false" if field.default else field.name
                words = [] if field.name in kind.IGNORABLE else [word]
            else:
                values = kind.VALUES.get(field.name, ("",))
                words = [f"{field.name}={value}" for value in values if value is not None]
            found |= dict.fromkeys(words)
    return [*found]


@cache
def _options_types() -> tuple[type[Any], ...]:
    return tuple(dict.fromkeys(type(op.defaults) for op in OPS.values()))


def options_of(op: Op, pairs: Sequence[str]) -> Options:
    """Return an op's default options with some set from text, in the form of Options.changed.

    Raises
    ------
    UnsupportedProblem
        The op lacks an option that another op has, or has no options.
    WebnormError
        No op has the option.
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
    """Return an op's options that are flags, by their names in headers.

    A flag with the name of a tensor of these options becomes `has_NAME`.
    """
    kind = type(op.defaults)
    # Each op of `define_op` has an options type of its own.
    ops = (op, *(one for one in _packaged().listed if type(one.defaults) is kind))
    tensors = {tensor.name for one in ops for tensor in one.tensors}
    return {f"has_{name}" if name in tensors else name: name for name in kind.flags()}


def problem_from_json(op_name: object, data: Mapping[str, Any]) -> Problem:
    """Return the problem of an op that `Problem.as_json` described; raise WebnormError for foreign data.

    A copy may have the problem of the op next to which it was timed. For an op that is not loaded, the
    problem has only the recorded values.
    """
    op = OPS.get(str(op_name))
    if op is None or (op.is_copy and not any(one.takes(data) for one in problem_types())):
        # Most results belong to loaded ops, which do not need this import.
        from webnorm.op.recorded_problem import recorded_problem

        return recorded_problem(str(op_name), data)
    kinds = (one for one in problem_types() if op.is_copy and one.takes(data))
    return next(kinds, op.problem_type).from_json(data)
