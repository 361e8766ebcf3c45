"""The folder of an export: writing it completely or not at all, and reading it back with its digests."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from webnorm.errors import WebnormError
from webnorm.files.atomic import keep_mode, lies_in, lock, read_bytes, read_json, resolved

Files = dict[str, bytes]
MANIFEST, LAB_INDEX, MODEL_LISTING = "manifest.json", "bundles/index.json", "norms.json"
# The folder of the norms in a model's package.
NORMS = "norms"
# The page of a package.
PAGE = "verify.html"


@dataclass(frozen=True)
class FolderKind:
    """A kind of folder that webnorm writes: the file that lists its files, and words for messages.

    `option` is the option that names the folder. With `force` the command has --force.
    """

    listing: str
    noun: str
    option: str = "--out"
    force: bool = True


PACKAGE = FolderKind(MANIFEST, "an exported package")
LAB = FolderKind(LAB_INDEX, "an exported lab")
MODEL = FolderKind(MODEL_LISTING, "an exported model")
VISITS = FolderKind("page/files.json", "a page of visits", "--page", force=False)
_KINDS = (PACKAGE, LAB, MODEL, VISITS)


def digests(files: Files) -> dict[str, str]:
    """Return the SHA-256 of each file, for the listing of an export."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def check_folder(folder: Path, force: bool = False, *, kind: FolderKind = PACKAGE) -> None:
    """Raise WebnormError if a folder cannot be written, or contains something other than such an export."""
    named = f"{kind.option} {folder}"
    try:
        parent = next((one for one in resolved(folder).parents if one.exists()), None)
        if parent is not None and not parent.is_dir():
            raise WebnormError(f"{named}: {parent.name} is a file; expected a folder")
        if not folder.exists():
            return
        if not folder.is_dir():
            raise WebnormError(f"{named}: is a file; expected a folder")
        if not force and any(folder.iterdir()) and not is_export(folder, kind):
            or_force = ", or use --force to write into it (files of other names stay)" if kind.force else ""
            raise WebnormError(f"{named}: exists and is not {kind.noun}; choose another folder{or_force}")
    except OSError as error:
        raise WebnormError(f"{named}: cannot be read: {error.strerror or error}") from error


def is_export(folder: Path, kind: FolderKind) -> bool:
    """Return whether a folder has the listing of this kind."""
    try:
        data = read_json(folder / kind.listing)
    except (OSError, ValueError):
        return False
    return isinstance(data, dict) and "webnorm" in data and "schema" in data


def write_folder(files: Files, folder: Path) -> None:
    """Write the files into a staging folder next to the target, then move each by a rename.

    Unchanged files of an older export are removed; files of other names stay. Raises WebnormError if the
    folder cannot be written, and then leaves it unchanged.
    """
    kind = next((one for one in _KINDS if one.listing in files), PACKAGE)
    try:
        # The staging folder is next to a link's target, since a rename does not cross file systems.
        target = resolved(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        around = target if target.exists() else target.parent
        with ExitStack() as stack:
            # Not a TemporaryDirectory: Python 3.11 recurses forever if it cannot be removed.
            staging = Path(mkdtemp(prefix=".webnorm-", dir=around))
            stack.callback(shutil.rmtree, staging, ignore_errors=True)
            (staging / "new").mkdir(mode=0o755)
            for name, content in files.items():
                path = staging / "new" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            # Other processes that write this folder wait; the folder may not exist yet.
            above = target.parent if os.access(target.parent, os.W_OK) else target
            with lock(above / f"{target.name}.export"):
                if target.exists():
                    left = [name for name in _left(target, kind.listing) if name not in files]
                    _replace(staging, target, [*files, *left])
                    _clear(target, left)
                else:
                    os.rename(staging / "new", target)
    except OSError as error:
        raise WebnormError(f"{kind.option} {folder}: cannot be written: {error.strerror or error}") from error


def _replace(staging: Path, folder: Path, names: Sequence[str]) -> None:
    """Replace or remove files; if anything fails, restore all of them.

    If the process is killed meanwhile, each file is old or new, and none is missing.
    """
    changed: list[tuple[Path, Path]] = []
    try:
        for name in names:
            path, old, new = folder / name, staging / "old" / name, staging / "new" / name
            old.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(path):
                _keep(path, old, follows=new.exists())
            changed.append((path, old))
            if new.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                keep_mode(new, old)
                os.replace(new, path)
    except BaseException:
        for path, old in reversed(changed):
            if not os.path.lexists(old) or old.is_dir():
                path.unlink(missing_ok=True)
            if os.path.lexists(old):
                os.replace(old, path)
        raise


def _keep(path: Path, old: Path, follows: bool) -> None:
    """Keep a copy of an old file. If a new file `follows`, the old one also stays in place if possible."""
    if follows:
        # Folders and some file systems allow no hard links.
        with suppress(OSError):
            os.link(path, old, follow_symlinks=False)
            return
    os.rename(path, old)


def _left(folder: Path, listing: str) -> Iterator[str]:
    """Yield the files of the existing export that are unchanged since it was written."""
    try:
        listed = read_json(folder / listing)["files"]
        for name, digest in listed.items():
            path = folder / name
            if (
                lies_in(path, folder)
                and path.is_file()
                and hashlib.sha256(read_bytes(path)).hexdigest() == digest
            ):
                yield name
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return


def _clear(folder: Path, gone: Sequence[str]) -> None:
    """Remove folders that contained only removed files."""
    for name in gone:
        # If a folder is not empty, its parents are not empty either.
        with suppress(OSError):
            for around in takewhile(lambda one: one != folder, (folder / name).parents):
                around.rmdir()


def kernels_of(files: Files) -> tuple[set[tuple[str, str]], set[str]]:
    """Return the kernels of a package or a lab as (op, kernel), and its ops."""
    if MANIFEST in files:
        manifest = json.loads(files[MANIFEST])
        entries = [{"op": manifest["op"], "kernels": [shader["kernel"] for shader in manifest["shaders"]]}]
    else:
        entries = json.loads(files[LAB_INDEX])["bundles"]
    found = {(entry["op"], name) for entry in entries for name in entry["kernels"]}
    return found, {entry["op"] for entry in entries}


# --- reading an export back

AGAIN = "export again"


def read_listing(folder: Path, name: str) -> Any:
    """Return the JSON that lists a folder's files.

    Raises FileNotFoundError and NotADirectoryError unchanged, and WebnormError for anything else.
    """
    path = folder / name
    keep_inside(path, folder)
    try:
        return read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise _unreadable(path, error) from error
    except ValueError as error:
        raise WebnormError(f"{path}: not JSON ({error}); {AGAIN}") from error


def check_digests(folder: Path, listing: str, digests: Mapping[str, str]) -> None:
    """Raise WebnormError for a file that differs from its listed SHA-256, or is outside of the folder."""
    for name, digest in digests.items():
        path = folder / name
        if not lies_in(path, folder):
            raise WebnormError(f"{folder / listing}: {name!r} is outside of the folder; {AGAIN}")
        check_digest(path, read_file(path), digest, listing)


def keep_inside(path: Path, folder: Path) -> None:
    """Raise WebnormError for a link out of the folder, which could lead to any file."""
    try:
        linked = path.is_symlink()
    except OSError as error:
        raise _unreadable(path, error) from error
    if linked and not lies_in(path, folder):
        raise WebnormError(f"{path}: this link leads out of the folder, or nowhere; {AGAIN}")


def read_file(path: Path) -> bytes:
    """Return the content of a file. Raises WebnormError if it is missing or cannot be read."""
    try:
        if path.exists() and not path.is_file():
            raise WebnormError(f"{path}: expected a file; {AGAIN}")
        return read_bytes(path)
    except FileNotFoundError:
        raise WebnormError(f"{path}: the file is missing; {AGAIN}") from None
    except OSError as error:
        raise _unreadable(path, error) from error


def check_digest(path: Path, content: bytes | None, expected: str, listing: str, what: str = "") -> None:
    """Raise WebnormError if content is missing or differs from its digest in the listing.

    `what` names a part of the file, for the message.
    """
    digest = None if content is None else hashlib.sha256(content).hexdigest()
    if digest != expected:
        got = "missing" if digest is None else f"{digest[:12]}..."
        raise WebnormError(
            f"{path}: {what}sha256 is {got}, but {listing} expects {expected[:12]}...: "
            f"changed since the export; {AGAIN}"
        )


def _unreadable(path: Path, error: OSError) -> WebnormError:
    return WebnormError(f"{path}: cannot be read: {error.strerror or error}")
