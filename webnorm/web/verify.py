"""Is an exported package right: its files, its shaders in Chrome's compiler, its answers in a browser.

Each step is a function of its own, so that the command can show what it found before the next begins.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webnorm import files
from webnorm.errors import WebnormError
from webnorm.web import tint
from webnorm.web.browser import PAGE, Browser, Visit
from webnorm.web.bundle import SCHEMA

_AGAIN = "export again"
# JSON has no infinity; webnorm writes such a number as a string.
_NUMBER = (int, float, str, type(None))
_TEXT = (str, type(None))
MANIFEST = "manifest.json"
_VERDICTS = ("pass", "fail", "skip")
_KINDS = {
    bool: "true or false",
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "a whole number",
    float: "a number",
    type(None): "null",
}

# What is used of a manifest and of a page's report: a dict names keys, a list has items of one form.
_MANIFEST = {
    "op": str,
    "has_mean": bool,
    "problem": {"dtype": str, "eps": _NUMBER, "options": dict},
    "tensors": [{"name": str, "access": str, "dtype": str, "shape": list}],
    "files": dict,
    "cols": [int],
    "shaders": [
        {
            "name": str,
            "file": str,
            "sha256": str,
            "embedded_sha256": str,
            "cols": int,
            "features": [str],
            "limits": dict,
            "bindings": [{"binding": int, "type": str}],
            "overrides": dict,
            "passes": [{"entry_point": str, "bindings": [int]}],
            "native": dict,
        }
    ],
    "vectors": [{"name": str, "file": str, "sha256": str, "cols": int, "rows": int}],
}
_NATIVE = {"verdict": str, "max_abs_error": _NUMBER, "vectors": dict}
_REPORT = {
    "adapter": dict,
    "features": [str],
    "chosen": dict,
    "reasons": dict,
    "shaders": [
        {
            "name": str,
            "skipped": _TEXT,
            "max_abs_error": _NUMBER,
            "vectors": [{"name": str, "verdict": str, "reason": _TEXT}],
            "timing": (dict, type(None)),
        }
    ],
}


@dataclass(frozen=True)
class Package:
    """An export whose files are what its manifest says."""

    folder: Path
    manifest: Mapping[str, Any]
    texts: Mapping[str, str]
    """WGSL by shader name, as index.js has it; none where node is missing, which loads it."""

    @property
    def paths(self) -> Sequence[Path]:
        """The files that were read."""
        names = {MANIFEST, "index.js", PAGE, *self.manifest["files"]}
        return [self.folder / name for name in (*names, *(one["file"] for one in _with_files(self.manifest)))]

    @property
    def shaders(self) -> Sequence[Mapping[str, Any]]:
        """The manifest's entries, in order of preference."""
        entries: Sequence[Mapping[str, Any]] = self.manifest["shaders"]
        return entries


@dataclass(frozen=True)
class Side:
    """How a shader did on one side, natively where it was exported or in the browser.

    `verdict` is "pass", "fail" or, where it was not run, "skip"; `reason` says why not.
    """

    verdict: str
    max_abs_error: float | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Line:
    """A shader on both sides. `complaints` are sentences; there are none if all is well."""

    name: str
    chosen: bool
    native: Side
    browser: Side
    gbps: float | None
    percent_of_copy: float | None
    complaints: tuple[str, ...]


@dataclass(frozen=True)
class Seen:
    """What a browser made of the package."""

    browser: str
    adapter: Mapping[str, Any]
    features: tuple[str, ...]
    lines: tuple[Line, ...]
    choices: tuple[str, ...]
    """For each number of columns a sentence: which shader was chosen and why."""
    remarks: tuple[str, ...]
    """What the page wrote to the console as errors."""
    complaints: tuple[str, ...]
    """What is wrong, all shaders together."""


@dataclass(frozen=True)
class Verification:
    """All that was found; a package that Tint refuses is not opened in a browser."""

    package: Package
    refused: tuple[tint.Verdict, ...]
    seen: Seen | None

    @property
    def passed(self) -> bool:
        """Whether every step was taken and found nothing wrong."""
        return not self.refused and self.seen is not None and not self.seen.complaints


def verify(
    folder: Path,
    browser: Browser | None = None,
    *,
    without: Sequence[str] = (),
    quick: bool = False,
) -> Verification:
    """All steps, in a browser that is open already or in one opened for this.

    `without` names features that the page is not to ask for; `quick` leaves the timing out.
    Raises WebnormError for a damaged package and where a step cannot be taken.
    """
    package = read_package(folder)
    refused = refused_by_tint(package)
    if refused:
        return Verification(package, refused, None)
    query = page_query(without, quick)
    if browser is not None:
        return Verification(package, (), judged(package, browser.visit(folder, query)))
    with Browser() as own:
        return Verification(package, (), judged(package, own.visit(folder, query)))


# --- The files


def read_package(folder: Path) -> Package:
    """Read an export; WebnormError if a file is missing or is not what `webnorm export` wrote."""
    manifest = _read_manifest(folder)
    expected = {**manifest["files"], **{one["file"]: one["sha256"] for one in _with_files(manifest)}}
    for name, digest in expected.items():
        path = folder / name
        if not files.lies_in(path, folder):
            raise WebnormError(f"{folder / MANIFEST}: {name!r} lies outside of the folder; {_AGAIN}")
        found = hashlib.sha256(_read(path)).hexdigest()
        if found != digest:
            raise _damaged(path, found, str(digest))
    for path in (folder / "index.js", folder / PAGE):
        _keep_inside(path, folder)
        _read(path)
    return Package(folder, manifest, _texts(folder / "index.js", manifest) if shutil.which("node") else {})


def _texts(index: Path, manifest: Mapping[str, Any]) -> dict[str, str]:
    """The shaders that an index.js exports; WebnormError unless they are those of the manifest."""
    if not _in_utf8(files.absolute(index), files.resolved(index)):
        raise WebnormError(
            f"{index.parent}: its path is not UTF-8, and node loads nothing from there; "
            "expected a package in a folder whose name is"
        )
    try:
        texts: dict[str, str] = tint.run_node("texts.mjs", index)
    except WebnormError as error:
        raise WebnormError(f"{index}: node cannot load it: {error}; {_AGAIN}") from error
    if not isinstance(texts, dict):
        raise WebnormError(f"{index}: exports no texts; {_AGAIN}")
    for one in manifest["shaders"]:
        text = texts.get(one["name"])
        digest = hashlib.sha256(text.encode()).hexdigest() if isinstance(text, str) else None
        if digest != one["embedded_sha256"]:
            raise _damaged(index, digest, one["embedded_sha256"], f"text of {one['name']}: ")
    return texts


def _in_utf8(*paths: Path) -> bool:
    try:
        return all(str(path).encode() for path in paths)
    except UnicodeEncodeError:
        return False


def _with_files(manifest: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from manifest["shaders"]
    yield from manifest["vectors"]


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    _keep_inside(path, folder)
    try:
        manifest: dict[str, Any] = files.read_json(path)
    except NotADirectoryError:
        raise WebnormError(f"{folder}: expected the folder of an export, not a file") from None
    except FileNotFoundError:
        if folder.exists():
            raise WebnormError(
                f"{folder}: no manifest.json, so this is no exported package; expected a folder that "
                "`webnorm export OP` wrote"
            ) from None
        raise WebnormError(f"{folder}: no such folder; expected one that `webnorm export OP` wrote") from None
    except OSError as error:
        raise _unreadable(path, error) from error
    except ValueError as error:
        raise WebnormError(f"{path}: not JSON ({error}); {_AGAIN}") from error
    _check_form(manifest, {"schema": int}, str(path))
    if manifest["schema"] != SCHEMA:
        raise WebnormError(
            f"{path}: schema is {manifest['schema']}; expected {SCHEMA}: {_AGAIN} with this webnorm"
        )
    _check_form(manifest, _MANIFEST, str(path))
    if not manifest["shaders"]:
        raise WebnormError(f"{path}: shaders is empty; {_AGAIN}")
    for one in manifest["shaders"]:
        known = {binding["binding"] for binding in one["bindings"]}
        for step in one["passes"]:
            if not known.issuperset(step["bindings"]):
                raise WebnormError(f"{path}: {one['name']} binds what it does not declare; {_AGAIN}")
        if "verdict" in one["native"]:
            where = f"{one['name']}.native"
            _check_form(one["native"], _NATIVE, str(path), where)
            if one["native"]["verdict"] not in _VERDICTS:
                got = json.dumps(one["native"]["verdict"])[:40]
                raise WebnormError(
                    f"{path}: {where}.verdict is {got}; expected {', '.join(_VERDICTS)}: {_AGAIN}"
                )
            for name, vector in one["native"]["vectors"].items():
                _check_form(vector, {"verdict": str}, str(path), f"{where}.vectors.{name}")
    return manifest


def _keep_inside(path: Path, folder: Path) -> None:
    """Raise WebnormError for a link out of the folder, which may lead to anything."""
    try:
        linked = path.is_symlink()
    except OSError as error:
        raise _unreadable(path, error) from error
    if linked and not files.lies_in(path, folder):
        raise WebnormError(f"{path}: it is a link that leads out of the folder, or nowhere; {_AGAIN}")


def _read(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():
            raise WebnormError(f"{path}: expected a file; {_AGAIN}")
        return files.read_bytes(path)
    except FileNotFoundError:
        raise WebnormError(f"{path}: the file is missing; {_AGAIN}") from None
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> WebnormError:
    return WebnormError(f"{path}: cannot be read: {error.strerror or error}")


def _damaged(path: Path, digest: str | None, expected: str, what: str = "") -> WebnormError:
    got = "missing" if digest is None else f"{digest[:12]}..."
    return WebnormError(
        f"{path}: {what}sha256 is {got}, and manifest.json expects {expected[:12]}...: "
        f"changed since the export; {_AGAIN}"
    )


def _check_form(data: Any, form: Any, file: str, where: str = "") -> None:
    """Raise WebnormError unless the data has the form (see _MANIFEST) at least; `where` leads up to it."""
    kind = type(form) if isinstance(form, dict | list) else form
    if not isinstance(data, kind):
        names = (_KINDS[one] for one in (kind if isinstance(kind, tuple) else (kind,)))
        got = json.dumps(data)[:40]
        raise WebnormError(
            f"{file}: {where or 'all of it'} is {got}; expected {' or '.join(names)}: {_AGAIN}"
        )
    if isinstance(form, dict):
        for key, value in form.items():
            place = f"{where}.{key}" if where else key
            if key not in data:
                raise WebnormError(f"{file}: {place} is missing; {_AGAIN}")
            _check_form(data[key], value, file, place)
    elif isinstance(form, list):
        for i, item in enumerate(data):
            _check_form(item, form[0], file, f"{where}[{i}]")


# --- The shaders


def refused_by_tint(package: Package) -> tuple[tint.Verdict, ...]:
    """What Tint and Dawn say of each shader that they refuse."""
    return tuple(verdict for verdict in tint.check(list(_sources(package))) if not verdict.ok)


def _sources(package: Package) -> Iterator[tint.Source]:
    for one in package.shaders:
        types = {binding["binding"]: binding["type"] for binding in one["bindings"]}
        passes = tuple(
            tint.Pass(
                step["entry_point"],
                tuple((i, types[i]) for i in step["bindings"]),
                constants=one["overrides"],
            )
            for step in one["passes"]
        )
        yield tint.Source(
            one["name"], package.texts[one["name"]], passes, tuple(one["features"]), one["limits"]
        )


# --- The answers


def page_query(without: Sequence[str] = (), quick: bool = False) -> str:
    """The query that tells the page which features not to ask for, and to leave the timing out."""
    parts = ([f"without={','.join(without)}"] if without else []) + (["quick"] if quick else [])
    return f"?{'&'.join(parts)}" if parts else ""


def judged(package: Package, visit: Visit) -> Seen:
    """Hold a page's report against the manifest, which knows what had to be run and how it did natively.

    Raises WebnormError for a page that could not check.
    """
    report = visit.report
    if isinstance(report, dict) and report.get("error"):
        raise WebnormError(f"{PAGE} could not check: {report['error']}")
    _check_form(report, _REPORT, f"the report of {PAGE}")
    for cols, name in report["chosen"].items():
        _check_form(name, _TEXT, f"the report of {PAGE}", f"chosen.{cols}")
    reported = {one["name"]: one for one in report["shaders"]}
    names = {
        cols: [one["name"] for one in package.manifest["vectors"] if one["cols"] == cols]
        for cols in package.manifest["cols"]
    }
    chosen: Mapping[str, str | None] = report["chosen"]
    lines = tuple(
        _line(one, reported.get(one["name"]), names.get(one["cols"], []), chosen) for one in package.shaders
    )
    right = {line.name for line in lines if line.browser.verdict == "pass"}
    reasons = report["reasons"]
    return Seen(
        browser=visit.browser,
        adapter=report["adapter"],
        features=tuple(report["features"]),
        lines=lines,
        choices=tuple(f"{cols} columns: {reasons.get(str(cols), 'no choice was made')}" for cols in names),
        remarks=visit.remarks,
        complaints=(
            *(f"{line.name}: {complaint}" for line in lines for complaint in line.complaints),
            # A page that ran nothing, or not what it would choose, has proved nothing.
            *(
                f"{cols} columns: no chosen shader passed"
                for cols in names
                if chosen.get(str(cols)) not in right
            ),
        ),
    )


def _line(
    entry: Mapping[str, Any],
    reported: Mapping[str, Any] | None,
    vectors: Sequence[str],
    chosen: Mapping[str, str | None],
) -> Line:
    native, native_vectors = _native(entry["native"])
    complaints = []
    if native.verdict == "fail":
        complaints.append("it failed natively where it was exported")
    if reported is None:
        complaints.append(f"{PAGE} did not report on it")
        return Line(entry["name"], False, native, Side("skip"), None, None, tuple(complaints))
    if reported["skipped"] is not None:
        browser = Side("skip", reason=reported["skipped"])
    else:
        found = {one["name"]: one for one in reported["vectors"]}
        for name in vectors:
            if name not in found:
                complaints.append(f"{name} was not run")
            elif found[name]["verdict"] != "pass":
                differs = " (natively it passes)" if native_vectors.get(name) == "pass" else ""
                complaints.append(f"{name}{differs}: {found[name]['reason']}")
        right = vectors and all(name in found and found[name]["verdict"] == "pass" for name in vectors)
        browser = Side("pass" if right else "fail", _number(reported["max_abs_error"]))
    timing = reported["timing"] or {}
    return Line(
        name=entry["name"],
        chosen=chosen.get(str(entry["cols"])) == entry["name"],
        native=native,
        browser=browser,
        gbps=_number(timing.get("gbps")),
        percent_of_copy=_number(timing.get("percent_of_copy")),
        complaints=tuple(complaints),
    )


def _native(entry: Mapping[str, Any]) -> tuple[Side, dict[str, str]]:
    """The manifest's native result, and the verdict on each vector."""
    if "verdict" not in entry:
        return Side("skip", reason=entry.get("reason")), {}
    vectors = {name: one["verdict"] for name, one in entry.get("vectors", {}).items()}
    return Side(entry["verdict"], _number(entry.get("max_abs_error"))), vectors


def _number(value: Any) -> float | None:
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
