"""What is known of a kernel's file at a moment: one snapshot for everyone who shows it.

A snapshot is never changed, only followed by the next, whose `revision` is higher. Views wait for that.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal

from webnorm.errors import WebnormError, utf8
from webnorm.lab.diagnose.heat_map import HeatMap
from webnorm.lab.diagnose.hints import Hint
from webnorm.lab.diagnose.trace import Trace
from webnorm.lab.results.result import Result
from webnorm.lab.results.result_files import result_as_json as result_as_json
from webnorm.lab.run.evaluation import ProblemVerdict
from webnorm.lab.run.jobs import ShaderCost
from webnorm.lab.verify.accuracy import WorstElement

StageName = Literal[
    "render", "compile", "verdict", "where", "time", "race", "tint", "trace", "corpus", "cost"
]
Status = Literal["pass", "fail", "error", "unjudged"]
By = Literal["header", "template", "naga", "tint", "run"]


class SaveConflict(WebnormError):
    """The file changed since the text that is saved was read."""


class KernelUnfit(WebnormError):
    """The kernel is wrong or unstable: its package is for who asks for it all the same."""


@dataclass(frozen=True, kw_only=True)
class LocatedMistake:
    """What keeps a text from being judged, at its place in the template; see errors.SourceLocation.

    `own` tells that `file` is the one that is edited; `source` is the text of that line. `by` says who
    complains: the reading of the header or of the template, a compiler, or the run.
    """

    by: By
    message: str
    file: str | None = None
    own: bool = False
    line: int | None = None
    column: int | None = None
    length: int = 0
    source: str = ""


@dataclass(frozen=True)
class StageTime:
    """A step of an attempt, and how long it took, in milliseconds."""

    name: StageName
    state: Literal["waiting", "running", "done", "failed", "skipped"] = "waiting"
    ms: float | None = None
    note: str = ""

    @property
    def ended(self) -> bool:
        """Whether it came to an end, good or bad, or was skipped."""
        return self.state in ("done", "failed", "skipped")


@dataclass(frozen=True)
class RenderedText:
    """A rendered text; each of its lines has the number of a file, 0 for the edited one, and a line of it."""

    text: str
    files: tuple[str, ...]
    origins: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class LiveTime:
    """A time beside others that were sampled in turn with it."""

    name: Literal["attempt", "previous", "best", "goal", "copy"]
    result: Result
    proved: bool


@dataclass(frozen=True)
class CorpusProgress:
    """How far the corpus has been tried, and what failed there: how many cases against what the header says,
    the first of them, and how many as it says; `skipped` are those that the kernel or the adapter refuses.
    """

    done: int
    of: int
    failed: tuple[Mapping[str, str], ...] = ()
    wrong: int = 0
    expected: int = 0
    skipped: int = 0


@dataclass(frozen=True, kw_only=True)
class AttemptState:
    """What is known of one text. `ok` is None until the verdict, and where a step was stopped at its time
    limit; anything against the text makes it False.
    """

    number: int
    hash: str
    saved: str
    stages: tuple[StageTime, ...] = ()
    mistakes: tuple[LocatedMistake, ...] = ()
    rendered: RenderedText | None = None
    shapes: tuple[ProblemVerdict, ...] = ()
    worst: WorstElement | None = None
    map: HeatMap | None = None
    hints: tuple[Hint, ...] = ()
    times: tuple[LiveTime, ...] = ()
    trace: Trace | None = None
    cost: ShaderCost | None = None
    corpus: CorpusProgress | None = None
    ok: bool | None = None

    def with_stage(self, name: StageName, **changes: Any) -> AttemptState:
        """The attempt with a stage changed, which comes last where it is new."""
        if all(stage.name != name for stage in self.stages):
            return replace(self, stages=(*self.stages, StageTime(name, **changes)))
        changed = (replace(one, **changes) if one.name == name else one for one in self.stages)
        return replace(self, stages=tuple(changed))

    @property
    def time(self) -> Result | None:
        """Its own time, if it was taken."""
        return next((one.result for one in self.times if one.name == "attempt"), None)

    @property
    def left_out(self) -> tuple[str, ...]:
        """The steps that were asked for and not taken to their end."""
        return tuple(stage.name for stage in self.stages if stage.state != "done")

    @property
    def judged(self) -> bool:
        """Whether it ran on any problem: an adapter may lack what a kernel needs."""
        return any(one.result.status != "skip" for one in self.shapes)

    @property
    def status(self) -> Status:
        """How it ended, as its history tells."""
        if self.ok is None:
            return "unjudged"
        if self.mistakes:
            return "error"
        return "pass" if self.ok else "fail"


@dataclass(frozen=True, kw_only=True)
class HistoryEntry:
    """An attempt in the history; times are nanoseconds per dispatch of `problem`. `hinted` tells that a hint
    explained what was wrong.
    """

    number: int
    hash: str
    saved: str
    status: Status
    hinted: bool = False
    median_ns: float | None = None
    gbps: float | None = None
    percent_of_copy: float | None = None
    problem: str | None = None

    @classmethod
    def of(cls, attempt: AttemptState) -> HistoryEntry:
        """What the history keeps of an attempt."""
        entry = cls(
            number=attempt.number,
            hash=attempt.hash,
            saved=attempt.saved,
            status=attempt.status,
            hinted=any(hint.kind == "formula" for hint in attempt.hints),
        )
        time = attempt.time
        if time is None or not time.timed:
            return entry
        return replace(
            entry,
            median_ns=time.median_ns,
            gbps=time.gbps,
            percent_of_copy=time.percent_of_copy,
            problem=str(time.problem),
        )


@dataclass(frozen=True, kw_only=True)
class WatchedFile:
    """The file that is watched. `base` is the digest of its text, from which an edit begins."""

    name: str
    path: str
    text: str = ""
    missing: bool = False
    op: str | None = None
    kernel: str | None = None

    @property
    def base(self) -> str:
        """The digest of the text."""
        return text_digest(self.text)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is done at each save: nothing without `run`; `time` and `corpus` are further stages.

    `trace` is a filter of records, "" for all of them and None for no tracing. `rows` and `cols` are those of
    the problem that is timed, None for what suits the adapter; `sizes` has sizes of any name for it. Every
    problem has the `scalars`. `x` is the mean and the standard deviation of
    one more x to be judged on, `lesson` the name of the lesson that is under way. `time_limit_s` is how long
    a step may be silent, None for the usual.
    """

    run: bool = True
    time: bool = True
    corpus: bool = True
    dtype: str = "float32"
    options: tuple[str, ...] = ()
    constants: Mapping[str, int] = field(default_factory=dict)
    trace: str | None = None
    x: tuple[float, float] | None = None
    lesson: str | None = None
    # As the command's options and the page's snapshots call them.
    rows: int | None = None
    cols: int | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    scalars: Mapping[str, float] = field(default_factory=dict)
    time_limit_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Everything that is shown. `good` is the last attempt whose text could be judged; `working` names the
    stage that runs.
    """

    file: WatchedFile
    settings: Settings
    revision: int = 0
    device: Mapping[str, Any] = field(default_factory=dict)
    working: StageName | None = None
    attempt: AttemptState | None = None
    good: AttemptState | None = None
    history: tuple[HistoryEntry, ...] = ()
    notices: tuple[str, ...] = ()


class PlaygroundState:
    """The newest snapshot, changed by one thread and waited for by others."""

    def __init__(self, first: Snapshot) -> None:
        self._now, self._changed = first, threading.Condition()

    @property
    def now(self) -> Snapshot:
        """The newest snapshot."""
        return self._now

    def change(self, **changes: Any) -> Snapshot:
        """Follow the snapshot by one with these fields changed."""
        with self._changed:
            self._now = replace(self._now, **changes, revision=self._now.revision + 1)
            self._changed.notify_all()
            return self._now

    def wait(self, revision: int, timeout_s: float) -> Snapshot | None:
        """The newest snapshot once its revision is higher; None where it is not in time."""
        return self.until(lambda now: now.revision > revision, timeout_s)

    def until(self, holds: Callable[[Snapshot], object], timeout_s: float) -> Snapshot | None:
        """The first snapshot from now on that is so; None where there is none in time."""
        with self._changed:
            self._changed.wait_for(lambda: holds(self._now), timeout_s)
            return self._now if holds(self._now) else None


def text_digest(text: str) -> str:
    """SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def snapshot_as_json(value: Any) -> Any:
    """A snapshot, or a part of one, as JSON has it: what is None is left out, and a number that is not finite
    is text: "inf", "-inf", "nan". Results are those of results files. Text is UTF-8, whatever a path holds.
    """
    if isinstance(value, Result):
        return result_as_json(value)
    if is_dataclass(value) and not isinstance(value, type):
        found = {one.name: snapshot_as_json(getattr(value, one.name)) for one in fields(value)}
        if isinstance(value, WatchedFile):
            found["base"] = value.base
        return {name: one for name, one in found.items() if one is not None}
    if isinstance(value, Mapping):
        return {name: snapshot_as_json(one) for name, one in value.items()}
    if isinstance(value, str):
        return utf8(value)
    if isinstance(value, Sequence):
        return [snapshot_as_json(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
