"""Recorded tunings: one JSON file per device with the variants that `webnorm tune` found fastest.

The files are in the cache folder, or in $WEBNORM_TUNINGS.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from msgspec import Meta, Struct

from webnorm import signals
from webnorm._version import __version__
from webnorm.errors import WebnormError
from webnorm.files import atomic, forms
from webnorm.files.atomic import cache_folder
from webnorm.files.forms import Name, Size
from webnorm.op.dtypes import DTYPES
from webnorm.op.op import Task
from webnorm.op.problem import Problem
from webnorm.op.registry import problem_from_json

SCHEMA = 1
# Enough for thousands of choices. The limit is low because calls from Python read the file.
_MOST_BYTES = 8 << 20
# A choice also serves batches within a factor of 2, where the work per workgroup is similar. From LARGE_BYTES
# on, data keep any device busy, so a larger batch changes only the time.
BATCH_FACTOR = 2.0
LARGE_BYTES = 64 << 20
_Ratio = Annotated[float, Meta(gt=0)]


@dataclass(frozen=True, kw_only=True)
class Platform:
    """The platform that a tuning applies to: the device (name and backend) and the software versions."""

    adapter: Name
    backend: Name
    driver: Name
    wgpu: Name
    webnorm: Name

    @classmethod
    def of(cls, description: Mapping[str, Any]) -> Platform:
        """Return the platform from the description of an adapter or a device."""
        given = {name: str(description[name]) for name in ("adapter", "backend", "driver", "wgpu")}
        return cls(**given, webnorm=__version__)

    @property
    def device(self) -> tuple[str, str]:
        """The name and backend that identify the device."""
        return self.adapter, self.backend

    @property
    def file_name(self) -> str:
        """The file name for the device, such as "nvidia-h200-vulkan.json"."""
        return re.sub(r"[^a-z0-9]+", "-", " ".join(self.device).lower()).strip("-") + ".json"


@dataclass(frozen=True, kw_only=True)
class TunedChoice:
    """The fastest variant found for a problem.

    Attributes
    ----------
    speedup
        The median time of the rules' choice divided by the time of this variant, in one run. It is 1 if they
        are the same variant, and None if the rules' choice cannot run.
    percent_of_copy
        The throughput in percent of the copy kernel's; None if the copy was not timed.
    tried
        The number of variants that were timed.
    """

    op: Name
    # An instance of the op's own problem type.
    problem: Any
    kernel: Name
    constants: Mapping[str, int]
    speedup: _Ratio | None
    percent_of_copy: _Ratio | None
    tried: Size

    def serves(self, problem: Problem) -> bool:
        """Return whether the choice applies to a problem: a similar batch, and everything else equal."""
        batches = (self.problem.batch_size, problem.batch_size)
        if _but_batch(self.problem) != _but_batch(problem) or 0 in batches:
            return False
        elements = min(self.problem.elements, problem.elements)
        both_large = elements * DTYPES[problem.dtype].itemsize >= LARGE_BYTES
        return both_large or self.distance(problem) <= math.log2(BATCH_FACTOR)

    @property
    def key(self) -> tuple[Any, ...]:
        """The key of the choice, unique within a tuning."""
        return self.op, self.problem.batch_size, *_but_batch(self.problem)

    def distance(self, problem: Problem) -> float:
        """Return the distance of the two batch sizes in octaves."""
        return abs(math.log2(problem.batch_size / self.problem.batch_size))


def _but_batch(problem: Problem) -> tuple[Any, ...]:
    """Return the properties of a problem that its best variant depends on, without the batch."""
    named = sorted(problem.options.STORAGE_OF_TENSORS)
    options = replace(problem.options, **cast(Any, dict.fromkeys(named)))
    return problem.with_batch(1).shape_text, problem.dtype, *map(problem.storage, named), options


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """The choices recorded on a platform; `date` is the day of the last one, as YYYY-MM-DD."""

    platform: Platform
    date: str
    choices: tuple[TunedChoice, ...] = ()

    def matching(self, task: Task) -> list[TunedChoice]:
        """Return the choices that serve a task, sorted by the distance of their batch sizes."""
        found = [one for one in self.choices if one.op == task.op.name and one.serves(task.problem)]
        return sorted(found, key=lambda choice: choice.distance(task.problem))

    def has(self, task: Task) -> bool:
        """Return whether there is a choice for exactly this task."""
        key = (task.op.name, task.problem.batch_size, *_but_batch(task.problem))
        return any(choice.key == key for choice in self.choices)

    def with_choice(self, choice: TunedChoice) -> Tuning:
        """Return this tuning with a choice added, which replaces one for the same problem."""
        others = (one for one in self.choices if one.key != choice.key)
        return replace(self, date=_today(), choices=(*others, choice))

    def objection(self, platform: Platform) -> str | None:
        """Return the reason why the tuning does not apply to a platform (other device, stale), or None."""
        if self.platform.device != platform.device:
            return f"it is for another device, {self.platform.adapter} ({self.platform.backend})"
        for name, then in asdict(self.platform).items():
            now = getattr(platform, name)
            if then != now:
                return f"it is stale: recorded with {name} {then}, this is {now}"
        return None


# --- the tuning of a platform


def path_of(platform: Platform) -> Path:
    """Return the path of the user's tuning file for a device; it need not exist."""
    return _folder() / platform.file_name


def _folder() -> Path:
    return Path(os.environ.get("WEBNORM_TUNINGS") or cache_folder("tunings"))


def _removal_command(path: Path) -> str:
    """Return the command that removes this file; --out is added for a file outside the tunings' folder."""
    return f"`webnorm tune {'' if path.parent == _folder() else f'--out {path} '}--remove`"


@signals.deferring
def applicable(platform: Platform) -> tuple[Tuning | None, str | None]:
    """Return the tuning for a platform, or a note on why the recorded one is ignored: stale, broken..."""
    try:
        path = path_of(platform)
        if not _exists(path):
            return None, None
        recorded = read(path)
    except WebnormError as error:
        return None, f"{error}; until then it is ignored"
    objection = recorded.objection(platform)
    if objection is None:
        return recorded, None
    note = f"the tuning {path} is ignored: {objection}; {_removal_command(path)} removes it"
    if recorded.platform.device == platform.device:
        note += ", `webnorm tune` records a new one"
    return None, note


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise WebnormError(f"cannot read the tuning {path}: {error.strerror or error}") from error


@signals.deferring
def resume(path: Path, platform: Platform) -> tuple[Tuning, str | None]:
    """Return the tuning in a file to add choices to, and a note if it is stale and will be replaced.

    Without a file the tuning is empty. Raises WebnormError for a broken file, and for a file of another
    device, which must not be overwritten.
    """
    fresh = Tuning(platform=platform, date=_today())
    if not _exists(path):
        return fresh, None
    recorded = read(path)
    objection = recorded.objection(platform)
    if objection is None:
        return recorded, None
    if recorded.platform.device != platform.device:
        raise WebnormError(
            f"the tuning {path} is not overwritten: {objection}; {_removal_command(path)} removes it"
        )
    return fresh, f"the tuning {path} is replaced: {objection}"


@signals.deferring
def record(
    choices: Sequence[TunedChoice], path: Path, platform: Platform, waiting: Callable[[], None] = lambda: None
) -> Tuning:
    """Add choices to a tuning file under a lock, and return the complete tuning.

    `waiting` is called if another process keeps the file locked. Raises WebnormError as `resume` does, and if
    the file cannot be written.
    """
    prepare(path)
    with atomic.lock(path, waiting):
        recorded, _ = resume(path, platform)
        for choice in choices:
            recorded = recorded.with_choice(choice)
        write(recorded, path)
    return recorded


def _today() -> str:
    return datetime.date.today().isoformat()


# --- files


class _Head(Struct):
    schema: Literal[1]
    platform: Platform
    date: Name
    choices: list[Any]


@signals.deferring
def read(path: Path) -> Tuning:
    """Read a tuning file. The message of a WebnormError says what is wrong and how to remove the file."""
    try:
        head = forms.read(atomic.read_json(path, _MOST_BYTES), _Head)
        return Tuning(platform=head.platform, date=head.date, choices=_choices(head.choices, head.platform))
    except OSError as error:
        raise WebnormError(f"cannot read the tuning {path}: {error.strerror or error}") from error
    except (ValueError, WebnormError) as error:
        if not _removable(path):
            raise WebnormError(
                f"{path} is not a tuning, or is broken: {error}; name another file, or delete this one"
            ) from error
        raise WebnormError(
            f"the tuning {path} is broken: {error}; delete the file, or run {_removal_command(path)}"
        ) from error


@signals.deferring
def write(tuning: Tuning, path: Path) -> None:
    """Write a tuning, one choice per line, and create its folder. Raises WebnormError on failure."""
    head = json.dumps({"schema": SCHEMA, "platform": asdict(tuning.platform), "date": tuning.date})
    lines = ",\n".join(
        json.dumps({**vars(choice), "problem": choice.problem.as_json()}) for choice in tuning.choices
    )
    prepare(path)
    atomic.write_text(path, f'{head[:-1]}, "choices": [\n{lines}\n]}}\n')


def prepare(path: Path) -> None:
    """Create the folder of a tuning file. Raises WebnormError if the file could not be written there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise WebnormError(f"cannot create the folder {path.parent}: {reason}") from error
    atomic.check_writable(path)


def tuning_lock(path: Path) -> AbstractContextManager[None]:
    """Lock a file for tuning on a first call: processes that tune at once would disturb each other's timing.

    Raises WebnormError after half a minute.
    """
    return atomic.lock(path.with_suffix(".autotune"))


@signals.deferring
def forget(path: Path) -> bool:
    """Remove a tuning file, and return whether it existed. Raises WebnormError for any other kind of file."""
    if not _exists(path):
        return False
    if not _removable(path):
        raise WebnormError(
            f"{path} is not removed: it is not a tuning; name a file that `webnorm tune` wrote, "
            "or delete this one yourself"
        )
    try:
        # A process that has read the file under the lock is about to write it again.
        with atomic.lock(path):
            path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise WebnormError(f"cannot remove the tuning {path}: {error.strerror or error}") from error
    return True


def _removable(path: Path) -> bool:
    """Return whether a file is a tuning: it has a tuning's keys, or is in the tunings' folder."""
    try:
        if path.suffix == ".json" and atomic.resolved(path.parent) == atomic.resolved(_folder()):
            return True
        data = atomic.read_json(path, _MOST_BYTES)
    except (OSError, ValueError):
        return False
    return isinstance(data, dict) and {"schema", "platform", "choices"} <= set(data)


def _choices(entries: list[Any], platform: Platform) -> tuple[TunedChoice, ...]:
    try:
        return tuple(_choice(entry, f"choices[{index}]") for index, entry in enumerate(entries))
    except WebnormError:
        # Another version may have other options. The file is then stale rather than broken.
        if platform.webnorm == __version__:
            raise
        return ()


def _choice(entry: Any, place: str) -> TunedChoice:
    data = forms.read(entry, dict[str, Any], place)
    if "problem" in data:
        with forms.at(f"{place}.problem"):
            data = {**data, "problem": problem_from_json(data.get("op"), data["problem"])}
    # The op may be a user's that this process has not loaded.
    return forms.read(data, TunedChoice, place)
