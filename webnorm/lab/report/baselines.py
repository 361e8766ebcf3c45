"""Results kept under a name, to hold later ones against: a file each in the user's data folder."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from webnorm import signals
from webnorm.errors import WebnormError, nearest, shown
from webnorm.files.atomic import check_writable, data_folder, lock, replacing
from webnorm.lab.report.comparison import first_and_more, problem_labels
from webnorm.lab.results import result_files
from webnorm.lab.results.result import Report
from webnorm.op.selection import matches

# A file's name on any system, and no path.
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,99}", re.ASCII)
_SUFFIX = ".json"
# Behind the name, for what a newer one has replaced: nothing is lost by saving twice.
BEFORE = "~"
# Lists of names in a message.
_MOST_LISTED = 12


def baselines_folder() -> Path:
    """Where baselines are: $WEBNORM_BASELINES, or a folder of the user's data."""
    return Path(os.environ.get("WEBNORM_BASELINES") or data_folder("baselines"))


def baseline_path(name: str) -> Path:
    """A baseline's file; it need not exist. WebnormError for what is no name."""
    if name.endswith(_SUFFIX):
        raise WebnormError(f"a baseline's name is {shown(name)}; expected none of a file: --json writes one")
    if not _NAME.fullmatch(name.removesuffix(BEFORE)):
        raise WebnormError(
            f"a baseline's name is {shown(name)}; expected letters, digits, and . _ + - behind the first"
        )
    return baselines_folder() / f"{name}{_SUFFIX}"


@signals.deferring
def baseline_names() -> list[str]:
    """Those that there are."""
    try:
        found = sorted(path.name.removesuffix(_SUFFIX) for path in baselines_folder().glob(f"*{_SUFFIX}"))
    except OSError:
        return []
    return [name for name in found if _NAME.fullmatch(name.removesuffix(BEFORE))]


def matching_baselines(patterns: Sequence[str] | None) -> list[str]:
    """Those whose name is, or fits, one of the patterns; all where there is none. WebnormError for a pattern
    that none fits.
    """
    found = baseline_names()
    for pattern in patterns or ():
        if not any(matches(pattern, name) for name in found):
            raise WebnormError(f"no baseline {shown(pattern)}; {_there_are(pattern)}")
    return [name for name in found if not patterns or any(matches(pattern, name) for pattern in patterns)]


@dataclass(frozen=True)
class Baseline:
    """A baseline: when it was measured (UTC, ISO 8601), the adapter's name, and what was measured in how many
    runs, "" and None where that is not known; or the reason why it cannot be read.
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
    def what(self) -> str:
        """What it has, in some words."""
        if self.reason is not None:
            return self.reason
        cut = ", interrupted" if self.complete is False else ""
        return f"{self.runs} run{'' if self.runs == 1 else 's'}{cut}: {first_and_more(self.problems)}"


def to_json(found: Sequence[Baseline]) -> str:
    """A list of objects, for programs."""
    told = []
    for one in found:
        data = {**vars(one), "path": str(one.path)}
        unknown = {"reason"} if one.reason is None else data.keys() - {"name", "path", "reason"}
        told.append({name: value for name, value in data.items() if name not in unknown})
    return json.dumps(told, indent=1)


@signals.deferring
def inspect_baseline(name: str) -> Baseline:
    """A baseline that there is, readable or not."""
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
    """Remove a baseline; WebnormError where that cannot be."""
    path = baseline_path(name)
    try:
        path.unlink()
    except OSError as error:
        raise WebnormError(f"cannot remove {path}: {error.strerror}") from error
    return path


def prepare_baseline(name: str) -> Path:
    """A baseline's file, about to be written; WebnormError now if it could not be written later."""
    path = baseline_path(name)
    if name.endswith(BEFORE):
        raise WebnormError(f"{shown(name)} is what `{name.removesuffix(BEFORE)}` was before; save that")
    result_files.make_folder(path.parent)
    check_writable(path)
    return path


@signals.deferring
def save_baseline(report: Report, name: str) -> Path:
    """Keep a report. What had the name has it with BEFORE behind it, in place of what had that."""
    path = prepare_baseline(name)
    # Who saves at the same moment replaces what is saved here, not what was there before.
    with lock(path), replacing(path) as beside:
        beside.write_text(result_files.to_json(report), encoding="utf-8")
        # Only now: where there is no room for the new one, both old ones stay.
        with suppress(FileNotFoundError):
            old = path.read_bytes()
            with replacing(baseline_path(name + BEFORE)) as before:
                before.write_bytes(old)
    return path


@signals.deferring
def read_baseline(name: str) -> Report:
    """The report kept under a name; WebnormError without one, naming those that there are."""
    path = baseline_path(name)
    if not path.exists():
        raise WebnormError(f"no baseline {shown(name)}; {_there_are(name)}")
    return result_files.read(path)


@signals.deferring
def read_file_or_baseline(given: str) -> Report:
    """The report in a file, or of a baseline where there is no such file."""
    if not given:
        raise WebnormError("the report is ''; expected a file, or the name of a baseline")
    path = Path(given)
    named = _NAME.fullmatch(given.removesuffix(BEFORE)) is not None and not given.endswith(_SUFFIX)
    if path.exists() or not named:
        return result_files.read(path)
    if not baseline_path(given).exists():
        raise WebnormError(f"{shown(given)} is no file, and no baseline; {_there_are(given)}")
    return read_baseline(given)


def _there_are(name: str) -> str:
    found = baseline_names()
    near = nearest(name, found)
    if near:
        return f"did you mean {near!r}?"
    listed = ", ".join(found[:_MOST_LISTED]) + (", ..." if len(found) > _MOST_LISTED else "")
    return f"there is: {listed}" if found else "`webnorm bench --save NAME` keeps one"
