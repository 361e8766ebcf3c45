"""The steps of an attempt: each runs a task in the worker and records its findings in the attempt."""

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
    """The edited file and its text, which turn errors into located mistakes."""

    path: Path
    text: str

    @property
    def own_name(self) -> str:
        """The name of the edited file in messages."""
        return display_path(str(self.path.resolve()))

    def mistake(self, by: By, error: WebnormError) -> LocatedMistake:
        """Return an error of reading, compiling or running as a mistake with its place and source line."""
        place, message = error.place, str(error)
        if place is None:
            return LocatedMistake(by=by, message=message)
        own = place.file in (self.own_name, str(self.path))
        lines = (self.text if own else _text_of(place.file)).splitlines()
        source = lines[place.line - 1] if place.line <= len(lines) else ""
        # Views show the place and the source line themselves.
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
    """Return the text of a snippet, given its name in messages; "" if it cannot be read."""
    path = Path(file)
    try:
        return (path if path.is_absolute() else wgsl_root().parent / path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError):
        return ""


# Default limits: seconds without a message from the worker after which a step is stopped.
LIMITS_S: dict[StageName, float] = {"verdict": 5.0}
USUAL_LIMIT_S = 10.0
# Rendering has its own limits, whose errors say more, so this one is generous.
_RENDERING_S = 60.0
# Default sizes of the timed problem, as (rows, columns). Several buffer sets of the GPU's problem exceed its
# cache, and a software adapter runs its problem in about a millisecond. A user's op has its own defaults.
_TIMED_GPU, _TIMED_SOFTWARE = (4096, 1024), (256, 768)
# A software adapter halves the batch until the largest tensor has at most this many elements.
_SOFTWARE_ELEMENTS = 1 << 18
# Corpus failures that a snapshot lists.
_MOST_FAILED = 20


class StageSkipped(Exception):
    """The reason why a step cannot run here; it is not the kernel's fault."""


@dataclass(kw_only=True)
class AttemptRun:
    """A running attempt, with the findings that later steps need.

    `previous` is the earlier text that is timed in turn with this one. `publish` shows a changed attempt.
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
    locator: MistakeLocator
    publish: Callable[[AttemptState], None]
    stage_entered: Callable[[StageName], None]
    op: Op | None = None
    kernel: str = ""
    shader: Shader | None = None
    limit_s: float = field(default_factory=lambda: USUAL_LIMIT_S)
    goal: str | None = None
    failed_before: frozenset[str] = frozenset()
    left_cases: list[tuple[Case, Task]] | None = None
    # Both belong to the running stage. The note may say, for example, which checks were not possible.
    found_fault: bool = False
    note: str = ""

    def change(self, **changes: Any) -> None:
        """Change fields of the attempt and publish it."""
        self.attempt = replace(self.attempt, **changes)
        self.publish(self.attempt)

    def fail(self, **changes: Any) -> None:
        """Record a fault that the running stage found in the kernel."""
        self.found_fault = True
        self.change(ok=False, **changes)

    def enter(self, stage: StageName) -> None:
        """Start a stage."""
        self.stage_entered(stage)
        self.found_fault, self.note = False, ""
        usual = self.settings.time_limit_s or LIMITS_S.get(stage, USUAL_LIMIT_S)
        self.limit_s = _RENDERING_S if stage == "render" else usual
        self.worker.allow(self.limit_s)

    def ask(self, work: Any, job: Any) -> Iterator[Any]:
        """Run a task in the worker and yield its events."""
        yield from self.worker.stream(work, job, self.limit_s)

    @property
    def job(self) -> EvaluationJob:
        """The worker's job for this file and these settings."""
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
    """Return the timed problem; WebnormError for sizes, options or scalars that the op does not have."""
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
    """Read, render, compile and check the kernel; for wrong outputs find the place and the likely bug.

    Raises WebnormError if the text is rejected, and StageSkipped if the kernel accepts none of the problems.
    """
    run.enter("render")
    for event in run.ask(evaluation.evaluate, run.job):
        match event:
            case evaluation.HeaderRead(op, kernel):
                run.op, run.kernel = OPS[op], kernel
            case Shader():
                run.shader = event
                run.change(rendered=_rendered(event, run.locator))
                run.enter("compile")
            case evaluation.TextsCompiled():
                run.enter("verdict")
                # There is no shader if the adapter can run none of the problems.
                run.note = (run.shader and loose_tolerance_warning(run.shader)) or ""
            case evaluation.ProblemVerdict():
                record = run.fail if _is_wrong(event.result) else run.change
                record(shapes=(*run.attempt.shapes, event))
                if event.result.status == "error":
                    raise WebnormError(event.result.reason or "the kernel could not be run")
            case Examination():
                run.enter("where")
                run.change(worst=event.worst, map=event.map, hints=event.hints)
    results = [one.result for one in run.attempt.shapes]
    if not run.attempt.checked:
        raise StageSkipped(f"the kernel cannot be checked here: {results[0].reason}")
    if not any(map(_is_wrong, results)):
        run.change(ok=True)


def time_attempt(run: AttemptRun) -> None:
    """Time the attempt in turn with the copy, the previous attempt and the best built-in kernel."""
    run.enter("time")
    job = evaluation.LiveTimingJob(
        run.timed_task, run.text, run.job.constants, run.roots, run.previous, run.goal
    )
    for event in run.ask(evaluation.time_live, job):
        if isinstance(event, evaluation.LiveResult):
            others = tuple(one for one in run.attempt.times if one.name != event.name)
            record = run.fail if event.name == "attempt" and _is_wrong(event.result) else run.change
            record(times=(*others, LiveTime(event.name, event.result, event.proved)))
    own = run.attempt.time
    if own is None or not (own.timed or _is_wrong(own)):
        reason = (own and own.reason) or "no sample was taken"
        raise StageSkipped(f"the kernel was not timed on {job.task.problem}: {reason}")


def check_races(run: AttemptRun) -> None:
    """Check for endless loops and data races in workgroup memory, which a right output may hide."""
    run.enter("race")
    watched = tuple(run.ask(evaluation.check_races, run.job))
    found = tuple(one.fault for one in watched if one.fault is not None)
    if found:
        run.fail(hints=(*found[:1], *run.attempt.hints))
        return
    tried = [one for one in watched if not one.refused] or watched
    reason = next((one.unwatched for one in tried if one.unwatched is not None), None)
    if reason is not None:
        raise StageSkipped(f"endless loops and data races were not checked: {reason}")


def ask_tint(run: AttemptRun) -> None:
    """Compile the browsers' shaders with Tint, Chrome's compiler; errors get their template places."""
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
            mistakes.append(run.locator.mistake("tint", event))
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
                # A snippet that is included twice counts as one mistake, not as one per declaration.
                place = error.place and (error.place.file, error.place.line)
                known = any((one.file, one.line) == place for one in mistakes)
                if shader.caller(message.line or 0) and known:
                    continue
                mistakes.append(run.locator.mistake("tint", error))
    if mistakes:
        found = tuple(dict.fromkeys((*run.attempt.mistakes, *mistakes)))
        run.fail(mistakes=found)


def trace_attempt(run: AttemptRun) -> None:
    """Collect the values that `trace` tags in the text record, with their float64 references."""
    run.enter("trace")
    wrong = (at for at, one in enumerate(run.attempt.shapes) if one.result.status == "fail")
    job = evaluation.TraceJob(run.job, next(wrong, 0), run.settings.trace or "")
    try:
        for found in run.ask(evaluation.trace_file, job):
            run.change(trace=found)
            if not found.count:
                rule = run.settings.trace
                kept = f" that the filter {rule!r} keeps" if rule else ""
                raise StageSkipped(f"the kernel's trace(...) calls recorded no value{kept}")
    except WebnormError:
        # Otherwise views would show the earlier trace of another filter as this one.
        run.change(trace=None)
        raise


def count_cost(run: AttemptRun) -> None:
    """Count the memory accesses, barriers and subgroup operations."""
    run.enter("cost")
    assert run.shader is not None
    spec = jobs.VariantSpec.of(run.shader.variant)
    for found in run.ask(count_costs, CostJob(((run.timed_task.problem, spec),), run.roots)):
        run.change(cost=found)


def try_corpus(run: AttemptRun) -> None:
    """Run the corpus in the background, and resume after an interruption.

    Cases that the last attempt failed come first, then the cases that are checked for data races.
    """
    run.enter("corpus")
    assert run.op is not None
    if run.left_cases is None:
        run.left_cases = _corpus(run, run.op) or None
        if run.left_cases is None:
            raise StageSkipped(
                f"the corpus of {run.op.name} has no case for {run.settings.dtype} that can run here"
            )
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
        raise StageSkipped(f"{refuses}; the others prove too little")


def _corpus(run: AttemptRun, op: Op) -> list[tuple[Case, Task]]:
    """Return the cases of an op in the order in which they run."""
    found = problems(
        [*steady_cases(op).values()], op, [run.settings.dtype], Overrides(None, run.settings.scalars)
    )
    wanted = [(case, Task(op, own)) for case, own in found if not (case.for_gpus and run.software)]
    return sorted(wanted, key=lambda one: (one[0].name not in run.failed_before, not one[0].watched))


def _is_wrong(result: Result) -> bool:
    """Return True for a failure that the header does not declare."""
    return result.status in ("fail", "error") and not result.expected


def _count(run: AttemptRun, case: Case, result: Result) -> None:
    corpus = run.attempt.corpus
    assert corpus is not None
    failed, wrong = corpus.failed, corpus.wrong
    if _is_wrong(result):
        failure = {"case": case.name, "problem": str(result.problem), "reason": result.reason or ""}
        failed, wrong = (*failed, failure)[:_MOST_FAILED], wrong + 1
    corpus = replace(
        corpus,
        done=corpus.done + 1,
        failed=failed,
        wrong=wrong,
        expected=corpus.expected + bool(result.expected),
        skipped=corpus.skipped + (result.status == "skip"),
    )
    record = run.fail if wrong else run.change
    record(corpus=corpus)


def _rendered(shader: Shader, locator: MistakeLocator) -> RenderedText:
    numbers = {locator.own_name: 0}
    origins = tuple((numbers.setdefault(file, len(numbers)), line) for file, line in shader.origins)
    return RenderedText(shader.text, tuple(numbers), origins)
