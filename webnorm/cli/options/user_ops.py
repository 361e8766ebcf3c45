"""The user's ops that a command line names. They are loaded before the verb runs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

from webnorm.errors import UnknownName, WebnormError

# Parameters of verbs that may be paths of kernels' files.
_FILES = ("kernel", "names", "name", "file", "files", "source")
# A suggestion of more folders would be too long.
_MOST_FOLDERS = 3


def load(params: MutableMapping[str, Any]) -> None:
    """Load the ops in the folders of --wgsl, the ops that --op names by path, and the ops of kernel files.

    The op's name replaces a path in --op. Without --op, the kernel files set the op if they are all of one
    op. Raises WebnormError for an op that cannot be loaded, unless it is one of several in a folder of
    --wgsl.
    """
    roots = params.get("wgsl") or ()
    if roots:
        from webnorm.op.op_folders import load_op_folders

        load_op_folders([Path(root) for root in roots])
    if isinstance(params.get("op"), str):
        params["op"] = ",".join(_name(part) for part in params["op"].split(","))
    folders = dict.fromkeys(_folders(params))
    if folders:
        from webnorm.op.registry import load_op

        names = [load_op(folder).name for folder in folders]
        if "op" in params and params["op"] is None and len(names) == 1:
            params["op"] = names[0]


def with_folder(error: UnknownName, params: Iterable[Any]) -> WebnormError:
    """Return the error for an unknown op or case, with a hint if a folder near by has the op, or for a list.

    `params` are the parameters of the verb.
    """
    # The names of an op's cases begin with the op.
    op = {"op": error.name, "case": error.name.partition("-")[0]}.get(error.kind)
    folders = folders_called(op) if op else []
    if not folders and error.kind == "op" and not error.suggested:
        return WebnormError(f"{error}, or a folder that contains op.py")
    if not folders and error.kind == "case":
        joint = " " if error.suggested else "; "
        return WebnormError(f"{error}{joint}`webnorm check --cases` lists them")
    if not folders:
        return error
    option = "--op " if any("--op" in one.opts for one in params) else ""
    return WebnormError(f"{error.problem}; did you mean {' or '.join(f'{option}{one}' for one in folders)}?")


def folders_called(name: str) -> list[str]:
    """Return the op folders of this name one level below the working folder, or those in such a folder."""
    from webnorm.op.registry import is_op_folder, op_folders

    if not re.fullmatch(r"\w+", name):
        return []
    try:
        near = [f"{one.as_posix()}/{name}" for one in sorted(Path().iterdir()) if is_op_folder(one / name)]
    except OSError:
        return []
    return near or [one.as_posix() for one in op_folders(Path(name))][:_MOST_FOLDERS]


def _name(part: str) -> str:
    """Return the name of the op for one part of --op."""
    from webnorm.op.registry import is_op_folder, load_op

    path = Path(part.strip())
    is_path = os.sep in part or "/" in part or part.strip() in (".", "..")
    return load_op(path).name if is_path or (part and is_op_folder(path)) else part


def _folders(params: MutableMapping[str, Any]) -> Iterator[Path]:
    """Yield the op folders that contain kernel files of the command line."""
    for name in _FILES:
        given = params.get(name)
        for one in [given] if isinstance(given, str | Path) else given or ():
            path = Path(str(one))
            if path.suffix.casefold() == ".wgsl":
                # Imported here, because most commands name no file.
                from webnorm.op.registry import is_op_folder

                if is_op_folder(path.parent):
                    yield path.parent.resolve()
