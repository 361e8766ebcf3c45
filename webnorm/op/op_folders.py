"""User folders with an `op.py`: found, tested in a child process, imported and registered."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from webnorm.errors import WebnormError, listing, nearest, sentence
from webnorm.op.built_op import BuiltOp, add_summary, located
from webnorm.op.definition import OpDefinition, check_free
from webnorm.op.op import Op, OpSource
from webnorm.op.op_trial import try_folder
from webnorm.op.packaged_ops import OP_FILE
from webnorm.op.registry import (
    OPS,
    is_op_folder,
    note_broken,
    op_folders,
    register,
    unregister,
    user_ops,
)

# Errors of folders with unchanged files. A watcher asks for them many times a second.
_refused: dict[OpSource, str] = {}
# Total size of a folder's Python files.
_MOST_BYTES = 1 << 20


def load_op_folder(folder: Path | str) -> Op:
    """Return the op of a folder, registered in OPS under the folder's name.

    The files are read once, and again after a change. An `op.py` is a program that runs with the rights of
    this process. A child process runs it first, with limits on time and memory, so a loop or an error ends
    there.

    Raises
    ------
    WebnormError
        The folder contains no valid op. The message names the file and the line.
    """
    place = _resolved(folder)
    source = OpSource(str(place), place.name, _digest(place))
    if (known := _loaded(source)) is not None:
        return known
    if source in _refused:
        raise WebnormError(_refused[source])
    try:
        check_free(source.name, f"{place}: the name of the folder")
        try_folder(place)
        op = _build(source)
        register(op)
    except WebnormError as error:
        _refused[source] = str(error)
        raise
    return op


def load_op_folders(roots: Sequence[Path]) -> None:
    """Load the op of every folder of these roots that has an op.py, and record the errors."""
    for root in roots:
        for folder in op_folders(root):
            try:
                load_op_folder(folder)
            except WebnormError as error:
                note_broken(folder.name, str(error))


def op_of_source(source: OpSource) -> Op:
    """Return the op of a source, and load it if this process does not have it yet.

    Raises
    ------
    WebnormError
        The files have changed, or are gone.
    """
    if (known := _loaded(source)) is not None:
        return known
    if _digest(source.files) != source.digest:
        raise WebnormError(f"{source.folder}/{OP_FILE} has changed since this run began; run it again")
    return load_op_of_source(source)


def load_op_of_source(source: OpSource) -> Op:
    """Load the op of a source from its files, and replace an op of the same name.

    Raises
    ------
    WebnormError
        The files contain no valid op.
    """
    op = _build(source)
    # The task decides between two folders of the same name.
    unregister(source.name)
    register(op)
    return op


def _loaded(source: OpSource) -> Op | None:
    """Return the op that this process has loaded from a source, or from copies in the source's folder."""
    known = user_ops().get(source.name)
    if known is None or known.source is None or known.source.digest != source.digest:
        return None
    return known if source.folder in (known.source.folder, known.source.sent_to) else None


def _build(source: OpSource) -> Op:
    folder = source.files
    module = _imported(source)
    # A module may bind one definition to two names.
    definitions = [*{id(one): one for one in vars(module).values() if isinstance(one, OpDefinition)}.values()]
    ops = [one for one in getattr(module, "OPS", ()) if isinstance(one, Op)]
    if len(definitions) + len(ops) != 1:
        raise WebnormError(
            f"{folder / OP_FILE} defines {len(definitions) + len(ops)} ops; expected one: op = define_op(...)"
        )
    if ops:
        return _renamed(ops[0], source)
    definition = definitions[0]
    add_summary(definition, module)
    if not definition.summary:
        raise WebnormError(f"{folder / OP_FILE}:1: expected a docstring that says what the op computes")
    try:
        return BuiltOp(definition, source.name, folder).build(source)
    except WebnormError as error:
        if str(error).startswith(str(folder)):
            raise
        raise WebnormError(f"{folder / OP_FILE}:{definition.line}: {error}") from error


def _renamed(op: Op, source: OpSource) -> Op:
    """Return an Op that a folder builds itself, under the folder's name."""
    return replace(op, name=source.name, source=source)


def _imported(source: OpSource) -> ModuleType:
    """Return the module of a folder's op.py, as a package, so that it can import the files next to it."""
    folder = source.files
    name = f"_webnorm_op_{source.name}_{source.digest[:16]}"
    spec = importlib.util.spec_from_file_location(
        name, folder / OP_FILE, submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        sys.modules.pop(name, None)
        if isinstance(error, KeyboardInterrupt):
            raise
        raise located(error, folder) from error
    finally:
        sys.dont_write_bytecode = writes
    return module


def _resolved(folder: Path | str) -> Path:
    try:
        place = Path(folder).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise WebnormError(f"{sentence(str(folder), 200)}: cannot be read: {error}") from error
    if not is_op_folder(place):
        if not place.exists():
            raise WebnormError(f"{place}: no such folder; {_likely(place)}")
        if place.is_file():
            raise WebnormError(f"{place}: is a file; expected a folder that contains {OP_FILE}")
        found = listing(str(one) for one in op_folders(place)) or "the folder of an op"
        raise WebnormError(f"{place}: contains no {OP_FILE}; expected {found}")
    return place


def _likely(place: Path) -> str:
    """Return what a user means by a folder that does not exist, as the end of a message."""
    if place.name in OPS:
        return f"{place.name} is an op of webnorm, which needs no folder"
    folders = {one.name: one for one in op_folders(place.parent)}
    near = nearest(place.name, {*folders, *OPS})
    if near is None:
        return f"expected a folder that contains {OP_FILE}"
    return f"did you mean {folders[near]}?" if near in folders else f"did you mean {near}, an op of webnorm?"


def _digest(folder: Path) -> str:
    digest, size = hashlib.blake2b(digest_size=16), 0
    try:
        for path in sorted(folder.glob("*.py")):
            size += path.stat().st_size
            if not path.is_file() or size > _MOST_BYTES:
                raise WebnormError(f"{path}: the Python files of an op have {_MOST_BYTES} bytes at most")
            digest.update(f"{path.name}\0".encode() + path.read_bytes())
    except OSError as error:
        raise WebnormError(f"{folder}: cannot be read: {error.strerror or error}") from error
    return digest.hexdigest()
