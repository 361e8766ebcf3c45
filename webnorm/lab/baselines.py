"""Results kept under a name, to hold later ones against: a file each in the user's data folder."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from webnorm.errors import WebnormError, nearest, shown
from webnorm.files import check_writable, data_folder, replacing, write_text
from webnorm.lab import result_files
from webnorm.lab.results import Report

# A file's name on any system, and no path.
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,99}", re.ASCII)
_SUFFIX = ".json"
# Behind the name, for what a newer one has replaced: nothing is lost by saving twice.
BEFORE = "~"
# Lists of names in a message.
_MOST_LISTED = 12


def folder() -> Path:
    """Where baselines are: $WEBNORM_BASELINES, or a folder of the user's data."""
    return Path(os.environ.get("WEBNORM_BASELINES") or data_folder("baselines"))


def path_of(name: str) -> Path:
    """A baseline's file; it need not exist. WebnormError for what is no name."""
    if name.endswith(_SUFFIX):
        raise WebnormError(f"a baseline's name is {shown(name)}; expected none of a file: --json writes one")
    if not _NAME.fullmatch(name.removesuffix(BEFORE)):
        raise WebnormError(
            f"a baseline's name is {shown(name)}; expected letters, digits, and . _ + - behind the first"
        )
    return folder() / f"{name}{_SUFFIX}"


def names() -> list[str]:
    """Those that there are."""
    try:
        return sorted(path.name.removesuffix(_SUFFIX) for path in folder().glob(f"*{_SUFFIX}"))
    except OSError:
        return []


def prepare(name: str) -> Path:
    """A baseline's file, about to be written; WebnormError now if it could not be written later."""
    path = path_of(name)
    if name.endswith(BEFORE):
        raise WebnormError(f"{shown(name)} is what `{name.removesuffix(BEFORE)}` was before; save that")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WebnormError(f"cannot make {path.parent}: {error.strerror}") from error
    check_writable(path)
    return path


def save(report: Report, name: str) -> Path:
    """Keep a report. What had the name has it with BEFORE behind it, in place of what had that."""
    path = prepare(name)
    with suppress(FileNotFoundError):
        old = path.read_bytes()
        with replacing(path_of(name + BEFORE)) as beside:
            beside.write_bytes(old)
    write_text(path, result_files.to_json(report))
    return path


def read(name: str) -> Report:
    """The report kept under a name; WebnormError without one, naming those that there are."""
    path = path_of(name)
    if not path.exists():
        raise WebnormError(f"no baseline {shown(name)}; {_there_are(name)}")
    return result_files.read(path)


def read_any(given: str) -> Report:
    """The report in a file, or of a baseline where there is no such file."""
    path = Path(given)
    named = _NAME.fullmatch(given.removesuffix(BEFORE)) is not None and not given.endswith(_SUFFIX)
    if path.exists() or not named:
        return result_files.read(path)
    if not path_of(given).exists():
        raise WebnormError(f"{shown(given)} is no file, and no baseline; {_there_are(given)}")
    return read(given)


def _there_are(name: str) -> str:
    found = names()
    near = nearest(name, found)
    if near:
        return f"did you mean {near!r}?"
    listed = ", ".join(found[:_MOST_LISTED]) + (", ..." if len(found) > _MOST_LISTED else "")
    return f"there is: {listed}" if found else "`webnorm bench --save NAME` keeps one"
