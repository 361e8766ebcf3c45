"""A folder that is said to be an export: a package, a lab, or what it looks like instead."""

from __future__ import annotations

from pathlib import Path

from webnorm.errors import WebnormError, path_argument, shell_word
from webnorm.kernels.headers.sources import wgsl_files
from webnorm.op.registry import OPS
from webnorm.web.folder import LAB_INDEX, MANIFEST, is_export
from webnorm.web.lab_site.folder import ExportedLab, read_lab
from webnorm.web.package.reader import ExportedPackage, read_package

_EXPECTED = f"expected a folder that `webnorm export` wrote ({MANIFEST}, or {LAB_INDEX} of a lab)"
# So many of a folder's names say what it is.
_FEW = 3


def read_exported(folder: Path) -> ExportedPackage | ExportedLab:
    """Read a package or a lab; WebnormError for what is neither, or is not as it was written."""
    try:
        if (folder / MANIFEST).exists():
            return read_package(folder)
        if (folder / LAB_INDEX).exists():
            return read_lab(folder)
        what = _looks(folder)
    except OSError as error:
        raise WebnormError(f"{folder}: cannot be read: {error.strerror or error}") from error
    raise WebnormError(f"{folder}: {what}; {_EXPECTED}")


def _looks(folder: Path) -> str:
    """What a folder looks like that is no export."""
    if not folder.is_dir():
        return "a file, not a folder" if folder.exists() else "no such folder"
    around = next((one for one in folder.absolute().parents if _is_any(one)), None)
    if around is not None:
        return f"a part of the export {around}"
    names = sorted(one.name for one in folder.iterdir())
    if not names:
        return "an empty folder"
    exports = [name for name in names if _is_any(folder / name)]
    if exports:
        return f"a folder that holds exports: {_named(exports)}"
    if any(any(wgsl_files(folder / op)) for op in OPS):
        return f"a folder of kernels, which `webnorm check --wgsl {shell_word(path_argument(folder))}` takes"
    if "package.json" in names:
        return "an npm package that webnorm did not write"
    return f"no export: it holds {_named(names)}"


def _is_any(folder: Path) -> bool:
    return is_export(folder, lab=False) or is_export(folder, lab=True)


def _named(names: list[str]) -> str:
    more = len(names) - _FEW
    shown = [*names[:_FEW], f"{more} more"] if more > 0 else names
    *first, last = shown
    return f"{', '.join(first)} and {last}" if first else last
