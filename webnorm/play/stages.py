"""What is done with a text, step by step: each asks the worker, and says what it found of the attempt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from webnorm.errors import LimitReached, WebnormError
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.kernels.rendering.render import Shader, display_path
from webnorm.lab.diagnose.examination import Examination
from webnorm.lab.results.result import Result
from webnorm.lab.run import evaluation, jobs
from webnorm.lab.run.evaluation import EvaluationJob
from webnorm.lab.run.jobs import CostJob, count_costs
from webnorm.lab.run.standby_worker import StandbyWorker
from webnorm.lab.verify.accuracy import loose_tolerance_warning
from webnorm.op.corpus import Case, Overrides, problems, steady_cases
from webnorm.op.op import Op, Task
from webnorm.op.registry import OPS, options_of
from webnorm.play.state import (
    AttemptState,
    By,
    CorpusProgress,
    LiveTime,
    LocatedMistake,
    RenderedText,
    Settings,
    StageName,
)
from webnorm.web import tint


@dataclass(frozen=True)
class MistakeLocator:
    """The edited file, which distinguishes its own mistakes from others', and its text."""

    path: Path
    text: str

    @property
    def own_name(self) -> str:
        """How messages name the edited file."""
        return display_path(str(self.path.resolve()))

    def mistake(self, by: By, error: WebnormError) -> LocatedMistake:
        """An error of the reading, the compiling or the running as what is shown of it."""
        place, message = error.place, str(error)
        if place is None:
            return LocatedMistake(by=by, message=message)
        own = place.file in (self.own_name, str(self.path))
        lines = (self.text if own else _text_of(place.file)).splitlines()
        source = lines[place.line - 1] if place.line <= len(lines) else ""
        # Which are shown by themselves.
        message = message.removeprefix(f"{place.file}:{place.line}: ").removesuffix(f": {source.strip()}")
        return LocatedMistake(
            by=by,
            message=message,
            file=place.file,
            own=own,
            line=place.line,
            column=place.column,
            length=place.length,
            source=source,
        )


def _text_of(file: str) -> str:
    """The text of a snippet, named as messages name it; nothing where it cannot be read."""
    path = Path(file)
    try:
        return (path if path.is_absolute() else wgsl_root().parent / path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError):
        return ""


# Seconds of silence after which a step is given up where nobody says otherwise.
LIMITS_S: dict[StageName, float] = {"verdict": 5.0}
USUAL_LIMIT_S = 10.0
# A rendering has bounds of its own, which say more where they are reached.
_RENDERING_S = 60.0
# Problems that are timed where nobody says which, as (rows, columns): what a GPU cannot keep in its cache
# with several sets of it, and what a program on the CPU does in a millisecond. Ops of the user's have
# default sizes of their own.
_TIMED_GPU, _TIMED_SOFTWARE = (4096, 1024), (256, 768)
# Elements of the largest tensor that a software adapter times, as far as a smaller batch helps.
_SOFTWARE_ELEMENTS = 1 << 18
# Failures of the corpus that are told.
_MOST_FAILED = 20


class StageSkipped(Exception):
    """A step that cannot be done here, and why: no fault of the kernel's."""


@dataclass(kw_only=True)
class AttemptRun:
    """An attempt under way. `tell` shows the attempt as it has become.

    `previous` is the text to be timed beside it. What one step finds and a later one needs is kept here.
    """

    attempt: AttemptState
    path: Path
    text: evaluation.KernelRevision
    previous: evaluation.KernelRevision | None
    op_name: str | None
    roots: tuple[Path, ...]
    settings: Settings
    software: bool
    worker: StandbyWorker
    tint: tint.OpenTint
    located: MistakeLocator
    tell: Callable[[AttemptState], None]
    entered: Callable[[StageName], None]
    op: Op | None = None
    kernel: str = ""
    shader: Shader | None = None
    limit_s: float = field(default_factory=lambda: USUAL_LIMIT_S)
    goal: str | None = None
    failed_before: frozenset[str] = frozenset()
    left_cases: list[tuple[Case, Task]] | None = None
    # Whether the stage that runs has, and what it says of itself, such as what it could not look at.
    found_fault: bool = False
    note: str = ""

    def change(self, **changes: Any) -> None:
        """Say what is newly known of the attempt."""
        self.attempt = replace(self.attempt, **changes)
        self.tell(self.attempt)

    def against(self, **changes: Any) -> None:
        """Say what the stage has found that speaks against the text."""
        self.found_fault = True
        self.change(ok=False, **changes)

    def enter(self, stage: StageName) -> None:
        """A stage begins."""
        self.entered(stage)
        self.found_fault, self.note = False, ""
        usual = self.settings.time_limit_s or LIMITS_S.get(stage, USUAL_LIMIT_S)
        self.limit_s = _RENDERING_S if stage == "render" else usual
        self.worker.allow(self.limit_s)

    def ask(self, work: Any, job: Any) -> Iterator[Any]:
        """What a task yields in the worker."""
        yield from self.worker.stream(work, job, self.limit_s)

    @property
    def job(self) -> EvaluationJob:
        """The file and what is asked of it, as the worker takes it."""
        own = self.settings
        chosen = {axis: (value,) for axis, value in own.constants.items()}
        return EvaluationJob(
            self.path, self.op_name, self.roots, own.dtype, own.options, chosen, own.x, own.scalars
        )

    @property
    def timed_task(self) -> Task:
        """The problem that is timed."""
        assert self.op is not None
        return Task(self.op, timed_problem(self.op, self.settings, self.software))


def timed_problem(op: Op, settings: Settings, software: bool) -> Any:
    """The problem that is timed. Raises WebnormError for sizes, options and scalars that the op lacks."""
    given = {**settings.sizes, "rows": settings.rows, "cols": settings.cols}
    named = {name: size for name, size in given.items() if size is not None}
    op.check_sizes(named)
    if op.source is not None:
        usual = op.problem_type.default_sizes(software, quick=software)[0]
    else:
        usual = _TIMED_SOFTWARE if software else _TIMED_GPU
    sizes = {**dict(zip(op.problem_type.SIZES, usual, strict=True)), **named}
    options = options_of(op, settings.options)
    found = op.problem(*sizes.values(), dtype=settings.dtype, options=options, **settings.scalars)
    if op.source is not None and software and op.problem_type.BATCH not in named:
        while op.elements(found) > _SOFTWARE_ELEMENTS and found.batch_size > 1:
            found = found.with_batch(found.batch_size // 2)
        op.check(found)
    return found


def evaluate_attempt(run: AttemptRun) -> None:
    """Header, text, compiler, verdict; where and why. Raises WebnormError for a text that is refused, and
    StageSkipped where the kernel takes none of the problems.
    """
    run.enter("render")
    for event in run.ask(evaluation.evaluate, run.job):
        match event:
            case evaluation.HeaderRead(op, kernel):
                run.op, run.kernel = OPS[op], kernel
            case Shader():
                run.shader = event
                run.change(rendered=_rendered(event, run.located))
                run.enter("compile")
            case evaluation.TextsCompiled():
                run.enter("verdict")
                # The adapter may run none of the problems: then there is no shader.
                run.note = (run.shader and loose_tolerance_warning(run.shader)) or ""
            case evaluation.ProblemVerdict():
                tell = run.against if _is_wrong(event.result) else run.change
                tell(shapes=(*run.attempt.shapes, event))
                if event.result.status == "error":
                    raise WebnormError(event.result.reason or "it could not be run")
            case Examination():
                run.enter("where")
                run.change(worst=event.worst, map=event.map, hints=event.hints)
    results = [one.result for one in run.attempt.shapes]
    if not run.attempt.judged:
        raise StageSkipped(f"it cannot be checked here: {results[0].reason}")
    if not any(map(_is_wrong, results)):
        run.change(ok=True)


def time_attempt(run: AttemptRun) -> None:
    """The time beside the copy, the attempt before and the best there is."""
    run.enter("time")
    job = evaluation.LiveTimingJob(
        run.timed_task, run.text, run.job.constants, run.roots, run.previous, run.goal
    )
    for event in run.ask(evaluation.time_live, job):
        if isinstance(event, evaluation.LiveResult):
            others = tuple(one for one in run.attempt.times if one.name != event.name)
            tell = run.against if event.name == "attempt" and _is_wrong(event.result) else run.change
            tell(times=(*others, LiveTime(event.name, event.result, event.proved)))
    own = run.attempt.time
    if own is None or not (own.timed or _is_wrong(own)):
        raise StageSkipped(
            f"it has no time on {job.task.problem}: {(own and own.reason) or 'none was taken'}"
        )


def check_races(run: AttemptRun) -> None:
    """Endless loops and races on workgroup memory, which a right kernel may have."""
    run.enter("race")
    watched = tuple(run.ask(evaluation.check_races, run.job))
    found = tuple(one.fault for one in watched if one.fault is not None)
    if found:
        run.against(hints=(*found[:1], *run.attempt.hints))
        return
    tried = [one for one in watched if not one.refused] or watched
    reason = next((one.unwatched for one in tried if one.unwatched is not None), None)
    if reason is not None:
        raise StageSkipped(f"loops and workgroup memory could not be watched: {reason}")


def ask_tint(run: AttemptRun) -> None:
    """What Chrome's compiler says of the texts that browsers get, at the template's places."""
    run.enter("tint")
    missing = tint.tint_unavailable()
    if missing is not None:
        raise StageSkipped(missing)
    shaders: list[Shader] = []
    mistakes: list[LocatedMistake] = []
    missing_texts: list[str] = []
    for event in run.ask(evaluation.render_for_browsers, run.job):
        if isinstance(event, LimitReached):
            raise event
        if isinstance(event, evaluation.RenderFailure):
            missing_texts.append(event.reason)
        elif isinstance(event, WebnormError):
            mistakes.append(run.located.mistake("tint", event))
        else:
            shaders.append(event)
    run.note = "; ".join(dict.fromkeys(missing_texts))
    if missing_texts and not shaders and not mistakes:
        raise StageSkipped(run.note)
    verdicts = run.tint.check([tint.source_of(str(at), one) for at, one in enumerate(shaders)])
    for shader, verdict in zip(shaders, verdicts, strict=True):
        for message in verdict.messages:
            if message.refuses:
                error = message.located_error(shader)
                # A snippet that is included twice is one mistake, not one for each of its declarations.
                place = error.place and (error.place.file, error.place.line)
                known = any((one.file, one.line) == place for one in mistakes)
                if shader.caller(message.line or 0) and known:
                    continue
                mistakes.append(run.located.mistake("tint", error))
    if mistakes:
        found = tuple(dict.fromkeys((*run.attempt.mistakes, *mistakes)))
        run.against(mistakes=found)


def trace_attempt(run: AttemptRun) -> None:
    """What `trace` tags in the text say, beside float64."""
    run.enter("trace")
    wrong = (at for at, one in enumerate(run.attempt.shapes) if one.result.status == "fail")
    job = evaluation.TraceJob(run.job, next(wrong, 0), run.settings.trace or "")
    try:
        for found in run.ask(evaluation.trace_file, job):
            run.change(trace=found)
            if not found.count:
                rule = run.settings.trace
                kept = f" that {rule!r} keeps" if rule else ""
                raise StageSkipped(f"no trace(...) of the kernel left a record{kept}")
    except WebnormError:
        # An earlier trace, of another filter, must not be taken for this one.
        run.change(trace=None)
        raise


def count_cost(run: AttemptRun) -> None:
    """The accesses, barriers and subgroup operations."""
    run.enter("cost")
    assert run.shader is not None
    spec = jobs.VariantSpec.of(run.shader.variant)
    for found in run.ask(count_costs, CostJob(((run.timed_task.problem, spec),), run.roots)):
        run.change(cost=found)


def try_corpus(run: AttemptRun) -> None:
    """The corpus, in the background: what failed at the last attempt comes first, then the cases that are
    watched for races. Goes on where it was interrupted.
    """
    run.enter("corpus")
    assert run.op is not None
    if run.left_cases is None:
        run.left_cases = _corpus(run, run.op) or None
        if run.left_cases is None:
            raise StageSkipped(f"{run.op.name} has no case for {run.settings.dtype} that is tried here")
        run.change(corpus=CorpusProgress(0, len(run.left_cases)))
    while run.left_cases:
        case, task = run.left_cases[0]
        job = evaluation.CaseJob(run.job, case.name, task)
        for result in run.ask(evaluation.try_case, job):
            _count(run, case, result)
        run.left_cases.pop(0)
    corpus = run.attempt.corpus
    assert corpus is not None
    if 2 * corpus.skipped > corpus.of:
        refuses = f"the kernel refuses {corpus.skipped} of {corpus.of} cases"
        raise StageSkipped(f"{refuses}: what it gets right on the others proves little")


def _corpus(run: AttemptRun, op: Op) -> list[tuple[Case, Task]]:
    """The cases of an op, those that come first at the beginning."""
    found = problems(
        [*steady_cases(op).values()], op, [run.settings.dtype], Overrides(None, run.settings.scalars)
    )
    wanted = [(case, Task(op, own)) for case, own in found if not (case.for_gpus and run.software)]
    return sorted(wanted, key=lambda one: (one[0].name not in run.failed_before, not one[0].watched))


def _is_wrong(result: Result) -> bool:
    """Whether it speaks against the text: other than its header says."""
    return result.status in ("fail", "error") and not result.expected


def _count(run: AttemptRun, case: Case, result: Result) -> None:
    corpus = run.attempt.corpus
    assert corpus is not None
    failed, wrong = corpus.failed, corpus.wrong
    if _is_wrong(result):
        told = {"case": case.name, "problem": str(result.problem), "reason": result.reason or ""}
        failed, wrong = (*failed, told)[:_MOST_FAILED], wrong + 1
    corpus = replace(
        corpus,
        done=corpus.done + 1,
        failed=failed,
        wrong=wrong,
        expected=corpus.expected + bool(result.expected),
        skipped=corpus.skipped + (result.status == "skip"),
    )
    tell = run.against if wrong else run.change
    tell(corpus=corpus)


def _rendered(shader: Shader, located: MistakeLocator) -> RenderedText:
    numbers = {located.own_name: 0}
    origins = tuple((numbers.setdefault(file, len(numbers)), line) for file, line in shader.origins)
    return RenderedText(shader.text, tuple(numbers), origins)
