"""The state of a watched kernel file, as immutable snapshots that every view shows.

A snapshot never changes. The next one has a higher `revision`, and views wait for it.
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
    """The file changed after the text that is being saved was read."""


class KernelUnfit(WebnormError):
    """The kernel is wrong or unstable, so it is exported only on request (`force`)."""


@dataclass(frozen=True, kw_only=True)
class LocatedMistake:
    """An error that keeps a kernel from being checked, with its place in the template.

    `by` names the step that reports the error: the reading of the header or of the template, a compiler, or
    the run. `own` is True if `file` is the edited file. `source` is the text of the line. The other fields
    are those in errors.SourceLocation.
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
    """A step of an attempt: its state, its duration in milliseconds and a note."""

    name: StageName
    state: Literal["waiting", "running", "done", "failed", "skipped"] = "waiting"
    ms: float | None = None
    note: str = ""

    @property
    def ended(self) -> bool:
        """True if the step finished, failed or was skipped."""
        return self.state in ("done", "failed", "skipped")


@dataclass(frozen=True)
class RenderedText:
    """A rendered shader text and the source of each of its lines.

    `origins` has one pair per line: an index into `files` (0 is the edited file) and a line number there.
    """

    text: str
    files: tuple[str, ...]
    origins: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class LiveTime:
    """One timing out of several that were sampled in turn."""

    name: Literal["attempt", "previous", "best", "goal", "copy"]
    result: Result
    proved: bool


@dataclass(frozen=True)
class CorpusProgress:
    """The progress of the corpus run.

    `done` out of `of` cases were tried. `wrong` counts failures that the header does not declare; `failed`
    lists the first of them. `expected` counts failures that the header declares. `skipped` counts cases that
    the kernel or the adapter refuses.
    """

    done: int
    of: int
    failed: tuple[Mapping[str, str], ...] = ()
    wrong: int = 0
    expected: int = 0
    skipped: int = 0


@dataclass(frozen=True, kw_only=True)
class AttemptState:
    """The results for one version of the kernel's text.

    `ok` is None until the verdict, and also if a step was stopped at its time limit. Any fault makes it
    False.
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
        """Return the attempt with one stage changed; a new stage is appended."""
        if all(stage.name != name for stage in self.stages):
            return replace(self, stages=(*self.stages, StageTime(name, **changes)))
        changed = (replace(one, **changes) if one.name == name else one for one in self.stages)
        return replace(self, stages=tuple(changed))

    @property
    def time(self) -> Result | None:
        """The attempt's own timing, or None."""
        return next((one.result for one in self.times if one.name == "attempt"), None)

    @property
    def left_out(self) -> tuple[str, ...]:
        """The requested steps that did not finish."""
        return tuple(stage.name for stage in self.stages if stage.state != "done")

    @property
    def checked(self) -> bool:
        """True if the kernel ran on any problem: an adapter may lack a feature that it needs."""
        return any(one.result.status != "skip" for one in self.shapes)

    @property
    def status(self) -> Status:
        """The outcome, as the history shows it."""
        if self.ok is None:
            return "unjudged"
        if self.mistakes:
            return "error"
        return "pass" if self.ok else "fail"


@dataclass(frozen=True, kw_only=True)
class HistoryEntry:
    """An attempt in the history.

    `median_ns` is in nanoseconds per dispatch of `problem`. `hinted` is True if a hint named the bug.
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
        """Return the history entry of an attempt."""
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
    """The watched file. `base` is the digest of the text that an edit starts from."""

    name: str
    path: str
    text: str = ""
    missing: bool = False
    op: str | None = None
    kernel: str | None = None

    @property
    def base(self) -> str:
        """The SHA-256 of the text."""
        return text_digest(self.text)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a playground session.

    Without `run`, a save starts nothing. `time` and `corpus` switch two optional stages. `trace` is a filter
    of records: "" keeps all, None disables tracing. `rows`, `cols` and `sizes` set the sizes of the timed
    problem; by default they suit the adapter. `scalars` apply to every problem. `x` is the mean and standard
    deviation of an additional input. `lesson` names the current lesson. `time_limit_s` is how long a step may
    send no message, in seconds; None means the default.
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
    # The command's options and the page's snapshots use these two names.
    rows: int | None = None
    cols: int | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    scalars: Mapping[str, float] = field(default_factory=dict)
    time_limit_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Everything that a view shows.

    `good` is the last attempt that could be checked. `working` names the running stage.
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
    """The newest snapshot: threads change it, and others wait for changes."""

    def __init__(self, first: Snapshot) -> None:
        self._now, self._changed = first, threading.Condition()

    @property
    def now(self) -> Snapshot:
        """The newest snapshot."""
        return self._now

    def change(self, **changes: Any) -> Snapshot:
        """Publish a new snapshot with these fields changed, and return it."""
        with self._changed:
            self._now = replace(self._now, **changes, revision=self._now.revision + 1)
            self._changed.notify_all()
            return self._now

    def wait(self, revision: int, timeout_s: float) -> Snapshot | None:
        """Return the newest snapshot once its revision is higher than `revision`; None after `timeout_s`."""
        return self.until(lambda now: now.revision > revision, timeout_s)

    def until(self, condition: Callable[[Snapshot], object], timeout_s: float) -> Snapshot | None:
        """Return the first snapshot from now on that meets a condition; None after `timeout_s`."""
        with self._changed:
            self._changed.wait_for(lambda: condition(self._now), timeout_s)
            return self._now if condition(self._now) else None


def text_digest(text: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def snapshot_as_json(value: Any) -> Any:
    """Return a snapshot, or a part of one, as JSON values.

    Fields that are None are omitted. A number that is not finite becomes text: "inf", "-inf" or "nan".
    Results have the form of results files. Text is valid UTF-8 even if a path is not.
    """
    if isinstance(value, Result):
        return result_as_json(value)
    if is_dataclass(value) and not isinstance(value, type):
        values = {one.name: snapshot_as_json(getattr(value, one.name)) for one in fields(value)}
        if isinstance(value, WatchedFile):
            values["base"] = value.base
        return {name: one for name, one in values.items() if one is not None}
    if isinstance(value, Mapping):
        return {name: snapshot_as_json(one) for name, one in value.items()}
    if isinstance(value, str):
        return utf8(value)
    if isinstance(value, Sequence):
        return [snapshot_as_json(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
