"""Baselines: named results that later runs are compared with, one file each in the user's data folder."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from webnorm import signals
from webnorm.errors import WebnormError, counted, nearest, shown
from webnorm.files.atomic import check_writable, data_folder, lock, replacing
from webnorm.lab.report.comparison import first_and_more, problem_labels
from webnorm.lab.results import result_files
from webnorm.lab.results.result import Report
from webnorm.op.selection import matches

# Valid as a file name on any system, without a folder.
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,99}", re.ASCII)
_SUFFIX = ".json"
# The suffix of the previous baseline: a save renames it, so that saving twice loses nothing.
BEFORE = "~"
# The longest list of names in a message.
_MOST_LISTED = 12


def baselines_folder() -> Path:
    """Return the folder of baselines: $WEBNORM_BASELINES, or a folder in the user's data."""
    return Path(os.environ.get("WEBNORM_BASELINES") or data_folder("baselines"))


def baseline_path(name: str) -> Path:
    """Return a baseline's file, which need not exist; raise WebnormError for an invalid name."""
    if name.endswith(_SUFFIX):
        raise WebnormError(
            f"the baseline name is {shown(name)}; it must not be a file name: use --json to write a file"
        )
    if not _NAME.fullmatch(name.removesuffix(BEFORE)):
        raise WebnormError(
            f"the baseline name is {shown(name)}; it must start with a letter or digit, followed by letters, "
            "digits and . _ + -"
        )
    return baselines_folder() / f"{name}{_SUFFIX}"


@signals.deferring
def baseline_names() -> list[str]:
    """Return the names of all baselines."""
    try:
        found = sorted(path.name.removesuffix(_SUFFIX) for path in baselines_folder().glob(f"*{_SUFFIX}"))
    except OSError:
        return []
    return [name for name in found if _NAME.fullmatch(name.removesuffix(BEFORE))]


def matching_baselines(patterns: Sequence[str] | None) -> list[str]:
    """Return the baselines that match one of the patterns, or all without patterns.

    Raises WebnormError for a pattern that matches no baseline.
    """
    found = baseline_names()
    for pattern in patterns or ():
        if not any(matches(pattern, name) for name in found):
            raise WebnormError(f"no baseline {shown(pattern)}; {_suggestion(pattern)}")
    return [name for name in found if not patterns or any(matches(pattern, name) for pattern in patterns)]


@dataclass(frozen=True)
class Baseline:
    """A baseline's summary, or the `reason` why its file cannot be read.

    `recorded` is the time of the measurement (UTC, ISO 8601) and `device` the adapter's name. Unknown values
    are "" or None.
    """

    name: str
    path: Path
    recorded: str = ""
    device: str = ""
    complete: bool | None = None
    runs: int = 0
    problems: tuple[str, ...] = ()
    reason: str | None = None

    @property
    def summary(self) -> str:
        """The runs and problems in a few words, or the reason why the file cannot be read."""
        if self.reason is not None:
            return self.reason
        cut = ", interrupted" if self.complete is False else ""
        return f"{counted(self.runs, 'run')}{cut}: {first_and_more(self.problems)}"


def to_json(found: Sequence[Baseline]) -> str:
    """Return the baselines as JSON, a list of objects."""
    objects = []
    for one in found:
        data = {**vars(one), "path": str(one.path)}
        unknown = {"reason"} if one.reason is None else data.keys() - {"name", "path", "reason"}
        objects.append({name: value for name, value in data.items() if name not in unknown})
    return json.dumps(objects, indent=1)


@signals.deferring
def inspect_baseline(name: str) -> Baseline:
    """Return the summary of an existing baseline, readable or not."""
    path = baseline_path(name)
    try:
        report = result_files.read(path)
    except WebnormError as error:
        return Baseline(name, path, reason=str(error))
    return Baseline(
        name,
        path,
        recorded=report.origin.recorded if report.origin else "",
        device=str(report.device.get("adapter", "")),
        complete=report.complete,
        runs=max((len(one.samples_by_run) for one in report.results), default=0),
        problems=tuple(problem_labels(report.results).values()),
    )


def remove_baseline(name: str) -> Path:
    """Remove a baseline's file and return its path; raise WebnormError if that fails."""
    path = baseline_path(name)
    try:
        path.unlink()
    except OSError as error:
        raise WebnormError(f"cannot remove {path}: {error.strerror}") from error
    return path


def prepare_baseline(name: str) -> Path:
    """Return the file of a baseline that will be saved; raise WebnormError if it cannot be written."""
    path = baseline_path(name)
    if name.endswith(BEFORE):
        current = name.removesuffix(BEFORE)
        raise WebnormError(f"{shown(name)} is the previous version of `{current}`; save `{current}` instead")
    result_files.make_folder(path.parent)
    check_writable(path)
    return path


@signals.deferring
def save_baseline(report: Report, name: str) -> Path:
    """Save a report as baseline and return its file. The previous baseline is renamed to NAME~."""
    path = prepare_baseline(name)
    # The lock keeps a concurrent save from renaming the same previous baseline.
    with lock(path), replacing(path) as new:
        new.write_text(result_files.to_json(report), encoding="utf-8")
        # The rename comes last, so that a full disk leaves both old files in place.
        with suppress(FileNotFoundError):
            old = path.read_bytes()
            with replacing(baseline_path(name + BEFORE)) as before:
                before.write_bytes(old)
    return path


@signals.deferring
def read_baseline(name: str) -> Report:
    """Return a baseline's report; raise WebnormError, listing all baselines, if it does not exist."""
    path = baseline_path(name)
    if not path.exists():
        raise WebnormError(f"no baseline {shown(name)}; {_suggestion(name)}")
    return result_files.read(path)


@signals.deferring
def read_file_or_baseline(given: str) -> Report:
    """Return the report in a file, or in the baseline of that name if there is no such file."""
    if not given:
        raise WebnormError("the report is ''; it must be a file or the name of a baseline")
    path = Path(given)
    named = _NAME.fullmatch(given.removesuffix(BEFORE)) is not None and not given.endswith(_SUFFIX)
    if path.exists() or not named:
        return result_files.read(path)
    if not baseline_path(given).exists():
        raise WebnormError(f"{shown(given)} is neither a file nor a baseline; {_suggestion(given)}")
    return read_baseline(given)


def _suggestion(name: str) -> str:
    found = baseline_names()
    near = nearest(name, found)
    if near:
        return f"did you mean {near!r}?"
    listed = ", ".join(found[:_MOST_LISTED]) + (", ..." if len(found) > _MOST_LISTED else "")
    return f"baselines: {listed}" if found else "`webnorm bench --save NAME` saves one"
