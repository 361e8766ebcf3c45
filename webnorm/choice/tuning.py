"""Recorded tunings: for one device, the variants that `webnorm tune` found fastest, in a JSON file.

They lie in the cache folder, or in $WEBNORM_TUNINGS.
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
# Some thousands of choices; a call from Python reads it.
_MOST_BYTES = 8 << 20
# What a choice for another batch is worth: within a factor of 2 a workgroup has as many elements of it, give
# or take one; and data of this size keep any device busy, so that a larger batch changes nothing but the
# time.
BATCH_FACTOR = 2.0
LARGE_BYTES = 64 << 20
_Ratio = Annotated[float, Meta(gt=0)]


@dataclass(frozen=True, kw_only=True)
class Platform:
    """What a tuning holds for: the device by its name and backend, and the software that drove it."""

    adapter: Name
    backend: Name
    driver: Name
    wgpu: Name
    webnorm: Name

    @classmethod
    def of(cls, description: Mapping[str, Any]) -> Platform:
        """The platform of an adapter's or a device's description."""
        given = {name: str(description[name]) for name in ("adapter", "backend", "driver", "wgpu")}
        return cls(**given, webnorm=__version__)

    @property
    def device(self) -> tuple[str, str]:
        """What tells this device from others."""
        return self.adapter, self.backend

    @property
    def file_name(self) -> str:
        """The device's name as a file's, such as "nvidia-h200-vulkan.json"."""
        return re.sub(r"[^a-z0-9]+", "-", " ".join(self.device).lower()).strip("-") + ".json"


@dataclass(frozen=True, kw_only=True)
class TunedChoice:
    """The variant to take for a problem.

    `speedup` is the median time of the variant that the rules choose over this one's, in one run (1 where
    they are the same, None where that one cannot run), `percent_of_copy` this one's share of the copy (None
    where that was not timed), `tried` how many variants were timed.
    """

    op: Name
    # Of its op's own type.
    problem: Any
    kernel: Name
    constants: Mapping[str, int]
    speedup: _Ratio | None
    percent_of_copy: _Ratio | None
    tried: Size

    def serves(self, problem: Problem) -> bool:
        """Whether this is for such a problem: all but the batch is the same, and the batches are alike."""
        batches = (self.problem.batch_size, problem.batch_size)
        if _but_batch(self.problem) != _but_batch(problem) or 0 in batches:
            return False
        elements = min(self.problem.elements, problem.elements)
        both_large = elements * DTYPES[problem.dtype].itemsize >= LARGE_BYTES
        return both_large or self.distance(problem) <= math.log2(BATCH_FACTOR)

    @property
    def key(self) -> tuple[Any, ...]:
        """What no two choices of a tuning have in common."""
        return self.op, self.problem.batch_size, *_but_batch(self.problem)

    def distance(self, problem: Problem) -> float:
        """How far the problem's batch is from this one's, in octaves."""
        return abs(math.log2(problem.batch_size / self.problem.batch_size))


def _but_batch(problem: Problem) -> tuple[Any, ...]:
    """What of a problem its best variant depends on, the batch left out."""
    named = sorted(problem.options.STORAGE_OF_TENSORS)
    options = replace(problem.options, **cast(Any, dict.fromkeys(named)))
    return problem.with_batch(1).shape_text, problem.dtype, *map(problem.storage, named), options


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """The choices recorded on a platform; `date` is that of the last one, as YYYY-MM-DD."""

    platform: Platform
    date: str
    choices: tuple[TunedChoice, ...] = ()

    def matching(self, task: Task) -> list[TunedChoice]:
        """The choices that serve a task, the one of the most similar batch first."""
        found = [one for one in self.choices if one.op == task.op.name and one.serves(task.problem)]
        return sorted(found, key=lambda choice: choice.distance(task.problem))

    def has(self, task: Task) -> bool:
        """Whether there is a choice for this very task."""
        key = (task.op.name, task.problem.batch_size, *_but_batch(task.problem))
        return any(choice.key == key for choice in self.choices)

    def having(self, choice: TunedChoice) -> Tuning:
        """Return the tuning with a new choice, which replaces one for the same problem."""
        others = (one for one in self.choices if one.key != choice.key)
        return replace(self, date=_today(), choices=(*others, choice))

    def objection(self, platform: Platform) -> str | None:
        """Why this does not hold on a platform: it is another device's, or stale; None when it does."""
        if self.platform.device != platform.device:
            return f"it is of another device, {self.platform.adapter} ({self.platform.backend})"
        for name, then in asdict(self.platform).items():
            now = getattr(platform, name)
            if then != now:
                return f"it is stale: recorded with {name} {then}, this is {now}"
        return None


# --- which apply


def path_of(platform: Platform) -> Path:
    """The user's own file for a device; it need not exist."""
    return _folder() / platform.file_name


def _folder() -> Path:
    return Path(os.environ.get("WEBNORM_TUNINGS") or cache_folder("tunings"))


def _forgetting(path: Path) -> str:
    """The command that removes this file, and not the user's own where it is another."""
    return f"`webnorm tune {'' if path.parent == _folder() else f'--out {path} '}--forget`"


@signals.holding
def applicable(platform: Platform) -> tuple[Tuning | None, str | None]:
    """The tuning to use on a platform, or a word on why what there is does not hold: stale, broken..."""
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
    note = f"the tuning {path} is ignored: {objection}; {_forgetting(path)} removes it"
    if recorded.platform.device == platform.device:
        note += ", `webnorm tune` records a new one"
    return None, note


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise WebnormError(f"cannot read the tuning {path}: {error.strerror or error}") from error


@signals.holding
def resume(path: Path, platform: Platform) -> tuple[Tuning, str | None]:
    """The tuning in a file to go on with, and a word on why what it holds is replaced where that is stale.

    An empty one without a file. Raises WebnormError for a broken file, and for one of another device, which
    is not to be overwritten.
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
            f"the tuning {path} is not overwritten: {objection}; {_forgetting(path)} removes it"
        )
    return fresh, f"the tuning {path} is not gone on with: {objection}"


@signals.holding
def record(
    choices: Sequence[TunedChoice], path: Path, platform: Platform, waiting: Callable[[], None] = lambda: None
) -> Tuning:
    """Add choices to what is in a file at this moment, others having no turn meanwhile; returns all of it.

    `waiting` is called where another process keeps this one waiting. Raises WebnormError as `resume` does,
    and where the file cannot be written.
    """
    prepare(path)
    with atomic.lock(path, waiting):
        recorded, _ = resume(path, platform)
        for choice in choices:
            recorded = recorded.having(choice)
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


@signals.holding
def read(path: Path) -> Tuning:
    """The tuning in a file; raises WebnormError that says what is wrong with it and how to remove it."""
    try:
        head = forms.read(atomic.read_json(path, _MOST_BYTES), _Head)
        return Tuning(platform=head.platform, date=head.date, choices=_choices(head.choices, head.platform))
    except OSError as error:
        raise WebnormError(f"cannot read the tuning {path}: {error.strerror or error}") from error
    except (ValueError, WebnormError) as error:
        if not _removable(path):
            raise WebnormError(
                f"{path} is no tuning, or broken: {error}; name another file, or delete this one"
            ) from error
        raise WebnormError(
            f"the tuning {path} is broken: {error}; delete the file, or run {_forgetting(path)}"
        ) from error


@signals.holding
def write(tuning: Tuning, path: Path) -> None:
    """Write a tuning, a choice per line, and the folder it lies in; WebnormError where that cannot be."""
    head = json.dumps({"schema": SCHEMA, "platform": asdict(tuning.platform), "date": tuning.date})
    lines = ",\n".join(
        json.dumps({**vars(choice), "problem": choice.problem.as_json()}) for choice in tuning.choices
    )
    prepare(path)
    atomic.write_text(path, f'{head[:-1]}, "choices": [\n{lines}\n]}}\n')


def prepare(path: Path) -> None:
    """Make the folder of a tuning file; WebnormError now if the file could not be written later."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise WebnormError(f"cannot make the folder {path.parent}: {reason}") from error
    atomic.check_writable(path)


def tuning_lock(path: Path) -> AbstractContextManager[None]:
    """Hold off other processes that tune on a first call for this file: they would time each other's work.

    Raises WebnormError after half a minute.
    """
    return atomic.lock(path.with_suffix(".autotune"))


@signals.holding
def forget(path: Path) -> bool:
    """Remove a tuning file; whether there was one. WebnormError for a file that may be something else."""
    if not _exists(path):
        return False
    if not _removable(path):
        raise WebnormError(
            f"{path} is not removed: it is no tuning; expected a file that `webnorm tune` wrote, "
            "delete it yourself if it was one"
        )
    try:
        # Who has read it is about to write it again.
        with atomic.lock(path):
            path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise WebnormError(f"cannot remove the tuning {path}: {error.strerror or error}") from error
    return True


def _removable(path: Path) -> bool:
    """Whether a file is a tuning: it has a tuning's keys, or lies where only tunings do and may be broken."""
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
        # Another version may have other options: then this is stale, not broken.
        if platform.webnorm == __version__:
            raise
        return ()


def _choice(entry: Any, place: str) -> TunedChoice:
    data = forms.read(entry, dict[str, Any], place)
    if "problem" in data:
        with forms.at(f"{place}.problem"):
            data = {**data, "problem": problem_from_json(data.get("op"), data["problem"])}
    # Of an op of the user's, too, that this process has not loaded.
    return forms.read(data, TunedChoice, place)
