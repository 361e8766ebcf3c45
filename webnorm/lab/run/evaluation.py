"""A kernel's file, checked from header to verdict, and timed; each step is reported when it is done."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, cast

from webnorm import signals
from webnorm.choice.defaults import choose, chosen_variants, extreme_variants, nearest_variant
from webnorm.errors import WebnormError, unknown
from webnorm.gpu import timing
from webnorm.gpu.buffers import check_memory
from webnorm.gpu.device import Device
from webnorm.gpu.schedule import Plan
from webnorm.kernels.headers.drafts import lesson_kernel
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.library import discover, select
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.kernels.headers.traits import BROWSER, Traits
from webnorm.kernels.headers.variants import Variant
from webnorm.kernels.rendering.render import Shader, render_shader
from webnorm.kernels.wgsl.tokens import CannotInstrument
from webnorm.lab.diagnose.examination import examine
from webnorm.lab.diagnose.hints import Hint
from webnorm.lab.diagnose.trace import Trace, trace
from webnorm.lab.results.ranking import best
from webnorm.lab.results.result import Result
from webnorm.lab.run import jobs
from webnorm.lab.run.bench import copies_of, sets_for, with_share_of_copy
from webnorm.lab.run.check import with_expectation
from webnorm.lab.verify.problem_buffers import Golden, ProblemBuffers
from webnorm.lab.verify.races import find_fault
from webnorm.lab.verify.timed_work import TimedVariant, TimingSetup, timing_setup
from webnorm.lab.verify.trial import blank_result, exception_text, expect_instability, try_plan, try_variant
from webnorm.op.corpus import steady_cases
from webnorm.op.dtypes import Array
from webnorm.op.fitting_problem import fitting_task
from webnorm.op.op import Op, Task
from webnorm.op.problem import Problem
from webnorm.op.registry import default_op, options_of

# As --option takes it.
_CAPPED = "max_workgroups=2"


@dataclass(frozen=True)
class EvaluationJob:
    """A kernel's file, for one of the ops that it serves, with what its problems are to have and values of
    its tune axes that the user chose. `x` is the mean and the standard deviation of one more x, `scalars` the
    scalars that are not the op's defaults.
    """

    path: Path
    op: str | None
    roots: tuple[Path, ...]
    dtype: str = "float32"
    options: tuple[str, ...] = ()
    constants: Mapping[str, Sequence[int]] = field(default_factory=dict)
    x: tuple[float, float] | None = None
    scalars: Mapping[str, float] = field(default_factory=dict)

    def variant(self, kernel: Kernel, problem: Problem, traits: Traits) -> Variant:
        """The kernel with its constants for a problem."""
        return chosen_variants(kernel, problem, traits, self.constants)[0]


@dataclass(frozen=True)
class HeaderRead:
    """The header could be read: the op and the name of the kernel."""

    op: str
    kernel: str


@dataclass(frozen=True)
class TextsCompiled:
    """The texts were accepted."""


@dataclass(frozen=True)
class ProblemVerdict:
    """The verdict on one problem; `given` marks that of the x that somebody chose."""

    problem: str
    result: Result
    given: bool = False


def evaluate(device: Device, job: EvaluationJob) -> Iterator[Any]:
    """The worker's task: HeaderRead, then the Shader of the first problem, that it is Compiled, a
    ProblemVerdict for each problem; of the first that is wrong an Examination.

    Raises WebnormError, with a place where there is one, for a header, a template or a text that is refused.
    """
    kernel = load(job.path, job.op)
    for axis in job.constants:
        if axis not in kernel.tune:
            raise unknown(f"constant of {kernel.label}", axis, kernel.tune)
    yield HeaderRead(kernel.op.name, kernel.name)
    boards: list[tuple[_Posed, ProblemBuffers, Plan]] = []
    for posed in _posed(kernel, job, device.traits):
        task = posed.task
        variant = job.variant(kernel, task.problem, device.traits)
        refusal = variant.refusal(task.problem, device.traits)
        if refusal is not None:
            skipped = replace(blank_result(variant, task.problem, reason=refusal), status="skip")
            yield posed.judged(skipped)
            continue
        board = ProblemBuffers(device, task, posed.draw(), job.roots)
        shader = render_shader(variant, task.problem, "native", device.traits, roots=job.roots)
        if not boards:
            yield shader
        boards.append((posed, board, board.bind(shader)))
    yield TextsCompiled()
    wrong = None
    for posed, board, plan in boards:
        result = try_plan(board, plan)[0]
        # What a header declares is of hard values: each kernel has to be right on gentle ones.
        yield posed.judged(result if posed.x is None else expect_instability(result, kernel))
        if result.status == "fail" and wrong is None:
            wrong = board, plan
    if wrong is not None:
        yield examine(*wrong)


@dataclass(frozen=True)
class RaceCheckResult:
    """A problem on which loops and workgroup memory were watched: the endless loop or the race that was seen,
    and why they could not be watched; it is `refused` where the kernel does not take the problem.
    """

    fault: Hint | None = None
    unwatched: str | None = None
    refused: bool = False


def check_races(device: Device, job: EvaluationJob) -> Iterator[RaceCheckResult]:
    """The worker's task: endless loops, and races on workgroup memory, in the odd problem, also where few
    workgroups walk over all of its rows. What is right may race: most races do no harm on most adapters.
    """
    kernel = load(job.path, job.op)
    capped = (_CAPPED,) if _CAPPED.partition("=")[0] in kernel.op.options else ()
    for options in dict.fromkeys((job.options, (*job.options, *capped))):
        _, posed, *_ = _posed(kernel, replace(job, options=options), device.traits)
        problem = posed.task.problem
        variant = job.variant(kernel, problem, device.traits)
        refusal = variant.refusal(problem, device.traits)
        if refusal is not None:
            yield RaceCheckResult(unwatched=refusal, refused=True)
            continue
        try:
            found = find_fault(device, variant, problem, posed.draw(), job.roots)
        except Exception as error:
            signals.let_through(error)
            # The text has run by now: whatever goes wrong in watching it is no fault of the kernel's.
            yield RaceCheckResult(
                unwatched=str(error) if isinstance(error, CannotInstrument) else exception_text(error)
            )
        else:
            yield RaceCheckResult(Hint(found.kind, str(found), found.place) if found else None)


def warm_up(device: Device, roots: tuple[Path, ...]) -> None:
    """Do once what takes a process longest the first time: compiling, on a kernel of webnorm's own, and
    reading the snippets that kernels in `roots` are made of. Whatever stands in `roots`, it is not run.
    """
    op = default_op()
    own = EvaluationJob(wgsl_root() / op.name / f"{lesson_kernel(op)}.wgsl", None, ())
    deque(evaluate(device, own), maxlen=0)
    kernel = load(own.path)
    problem = _posed(kernel, own, device.traits)[0].task.problem
    with suppress(WebnormError):
        render_shader(
            own.variant(kernel, problem, device.traits), problem, "native", device.traits, roots=roots
        )


@dataclass(frozen=True)
class TraceJob:
    """A kernel's file to be traced on one of the problems that it is judged on, by its number."""

    job: EvaluationJob
    index: int
    filter: str


def trace_file(device: Device, job: TraceJob) -> Iterator[Trace]:
    """The worker's task: the trace; raises WebnormError as `trace` does."""
    kernel = load(job.job.path, job.job.op)
    posed = _posed(kernel, job.job, device.traits)[job.index]
    problem = posed.task.problem
    variant = job.job.variant(kernel, problem, device.traits)
    yield trace(device, variant, problem, posed.draw(), job.job.roots, job.filter)


@dataclass(frozen=True)
class _Posed:
    """A problem that a kernel is judged on; `x` is the mean and the deviation of one that somebody chose."""

    task: Task
    x: tuple[float, float] | None = None

    def draw(self) -> dict[str, Array]:
        posing = _posing(self.task.op)
        draw = posing.draw_playground if self.x is None else posing.draw_given
        drawn: dict[str, Array] = draw(self.task, *(self.x or ()))
        return drawn

    def judged(self, result: Result) -> ProblemVerdict:
        told = "" if self.x is None else ", x {:g} ± {:g}".format(*self.x)
        return ProblemVerdict(f"{self.task.problem}{told}", result, self.x is not None)


def _posing(op: Op) -> Any:
    """The module that poses the problems of an op; one for any op where it has none of its own."""
    return op.hook("evaluation") or import_module("webnorm.op.small_problems")


def _posed(kernel: Kernel, job: EvaluationJob, traits: Traits) -> list[_Posed]:
    """The problems that a kernel is checked on, which meet its requirements where such problems are found.

    Raises WebnormError for options and scalars that its op lacks.
    """
    posing, options = _posing(kernel.op), options_of(kernel.op, job.options)
    found = [_Posed(task) for task in posing.playground_tasks(kernel.op, job.dtype, options)]
    if job.x is not None:
        found.append(_Posed(posing.given_task(kernel.op, job.dtype, options), job.x))
    tasks = (Task(kernel.op, replace(one.task.problem, **cast(Any, job.scalars))) for one in found)
    fits, numbers = _fits(kernel, job, traits), kernel.rule_numbers
    return [_Posed(fitting_task(task, fits, numbers), one.x) for task, one in zip(tasks, found, strict=True)]


def _fits(kernel: Kernel, job: EvaluationJob, traits: Traits) -> Callable[[Problem], bool]:
    """Whether a kernel takes a problem."""
    return lambda problem: job.variant(kernel, problem, traits).refusal(problem, traits) is None


@dataclass(frozen=True)
class RenderFailure:
    """A text that browsers would get, and why there is none."""

    reason: str


def render_for_browsers(
    device: Device, job: EvaluationJob
) -> Iterator[Shader | RenderFailure | WebnormError]:
    """The worker's task: each text that browsers get, with subgroups and without, or why there is none.

    Where the default constants need more than a page has, the texts are those that an export would have.
    """
    kernel = load(job.path, job.op)
    tasks = [posed.task for posed in _posed(kernel, job, device.traits)]
    texts = set[str]()
    for traits in (BROWSER, replace(BROWSER, features=frozenset())):
        for task in tasks:
            try:
                variant = job.variant(kernel, task.problem, traits)
                refusal = variant.refusal(task.problem, traits)
                if refusal is not None:
                    nearest = None if job.constants else nearest_variant(kernel, task.problem, traits)[0]
                    if nearest is None:
                        which = "with" if traits.features else "without"
                        yield RenderFailure(f"no text for browsers {which} subgroups: {refusal}")
                        continue
                    variant = nearest
                shader = render_shader(variant, task.problem, "browser", traits, roots=job.roots)
            except WebnormError as error:
                yield error
                continue
            if shader.text not in texts:
                texts.add(shader.text)
                # Worked out here: who asks for places renders nothing.
                shader.place(1)
                yield shader


@dataclass(frozen=True)
class CaseJob:
    """A case of the corpus, as a task, for a kernel's file."""

    job: EvaluationJob
    case: str
    task: Task


def try_case(device: Device, job: CaseJob) -> Iterator[Result]:
    """The worker's task: the verdict on a case, as `webnorm check` has it."""
    kernel, task = load(job.job.path, job.job.op), job.task
    case = steady_cases(task.op)[job.case]
    fits = _fits(kernel, job.job, device.traits)
    if not fits(task.problem):
        task = case.other_task(task, fits, kernel.rule_numbers)
    check_memory(task, device)
    own = job.job.variant(kernel, task.problem, device.traits)
    variants = [own]
    if case.varies_constants and not job.job.constants:
        try:
            variants += extreme_variants(own, task.problem, device.traits)
        except WebnormError as error:
            yield blank_result(own, task.problem, case.name, str(error))
            return
    board = ProblemBuffers(device, task, case.draw(task), job.job.roots, narrow=case.narrow)
    for variant in variants:
        result, *_ = try_variant(board, variant, case.name, watch=case.watched)
        result = with_expectation(result, kernel, case)
        if result.status in ("fail", "error"):
            yield replace(result, reason=f"{result.reason}{other_constants(result, own)}")
            return
    yield result


def other_constants(result: Result, own: Variant) -> str:
    """Return the constants of a result that differ from the kernel's own, as the end of a reason, or ""."""
    found = [f"{name}={value}" for name, value in result.constants.items() if value != own.constants[name]]
    return f", with {' '.join(found)}" if found else ""


# --- an attempt, timed in turn with the copy, the attempt before it and the best there is

# A user waits: what is known of the others is kept from one attempt to the next, and times are
# shown before they are proved.

TimedName = Literal["attempt", "previous", "best", "goal", "copy"]
# What is timed, by what its text is known.
Asked = tuple[TimedName, str, Variant]
# What differs by less than a few per cent is for `webnorm bench` to separate.
RULE = timing.StoppingRule(least=5, most=15, spread=0.03, budget_s=1.0, settle_s=0.2)
# Rounds after which a time is reported that is not proved yet.
_TOLD_AFTER = 3


@dataclass(frozen=True)
class KernelRevision:
    """A kernel's file and what distinguishes its text, snippets included, from others."""

    path: Path
    hash: str


@dataclass(frozen=True)
class LiveTimingJob:
    """A kernel to be timed on a task, with values of its tune axes that a user chose; `previous` is an
    earlier text of it, `goal` a kernel of the op's that is timed, too. `roots` have snippets of both texts.
    """

    task: Task
    attempt: KernelRevision
    constants: Mapping[str, Sequence[int]]
    roots: tuple[Path, ...]
    previous: KernelRevision | None = None
    goal: str | None = None
    rule: timing.StoppingRule = RULE


@dataclass(frozen=True)
class LiveResult:
    """A result, and what it is to the attempt; `proved` once it is known that the work was done."""

    name: TimedName
    result: Result
    proved: bool


@dataclass
class _Stand:
    """What lasts from one attempt to the next: a task's buffers and clock, and variants that are right."""

    setup: TimingSetup
    right: dict[str, tuple[Result, Plan, Golden]] = field(default_factory=dict)
    proved: set[str] = field(default_factory=set)
    # The fastest, once it is known.
    copy: Variant | None = None

    def tried(
        self, key: str, variant: Variant, own: Plan | None = None
    ) -> tuple[Result, Plan | None, Golden]:
        """As try_variant, once for each key; of a plan where it was made already."""
        if key in self.right:
            return self.right[key]
        board = self.setup.board
        result, plan, golden = try_variant(board, variant) if own is None else try_plan(board, own)
        if plan is not None:
            self.right[key] = result, plan, golden
        return result, plan, golden


def time_live(device: Device, job: LiveTimingJob) -> Iterator[LiveResult | timing.RoundDone]:
    """The worker's task: rounds as they are done, and each result, before and after it is proved.

    Raises WebnormError for a kernel that cannot be read, and for a task that there is no room for.
    """
    stand = _stand(device, job)
    asked = list(_asked(stand, device, job))
    running = []
    # The attempt is right on other problems, or it would not be timed: whether it is on this one takes longer
    # than its first time.
    own = stand.setup.board.prepare(asked[0][2])
    unproved = replace(blank_result(asked[0][2], job.task.problem), status="pass")
    for index, (_, key, variant) in enumerate(asked):
        result, plan, golden = stand.tried(key, variant) if index else (unproved, own, ())
        if plan is not None:
            running.append(jobs.timed_variant(stand.setup, index, result, plan, golden))
    for event in jobs.fill_samples(stand.setup, running, job.rule):
        if isinstance(event, timing.RoundDone):
            yield event
            if event.done == _TOLD_AFTER:
                so_far = {one.index: jobs.with_times(stand.setup, one.result, one) for one in running}
                yield from _told(asked, so_far, proved=False)
    result, plan, golden = stand.tried(asked[0][1], asked[0][2], own)
    if plan is None:
        yield LiveResult("attempt", expect_instability(result, asked[0][2].kernel), True)
        return
    running[0].result, running[0].golden = result, golden
    yield from _proved(stand, asked, running)


def _proved(stand: _Stand, asked: Sequence[Asked], running: Sequence[TimedVariant]) -> Iterator[LiveResult]:
    """The results once it is known that the work was done."""
    found: dict[int, Result] = {}
    known = {one.index for one in running if asked[one.index][1] in stand.proved}
    for verdict in jobs.check_all_timed_work(stand.setup, running, known):
        if isinstance(verdict, jobs.VariantResult):
            _, key, variant = asked[verdict.index]
            found[verdict.index] = expect_instability(verdict.result, variant.kernel)
            if verdict.result.status == "pass":
                stand.proved.add(key)
    _remember(stand, asked, found)
    yield from _told(asked, found, proved=True)


def _asked(stand: _Stand, device: Device, job: LiveTimingJob) -> Iterator[Asked]:
    """What is timed, and by what its text is known. An earlier one that cannot run any more is left out."""
    task, traits = job.task, device.traits

    def chosen(name: TimedName, text: KernelRevision) -> Asked:
        kernel = load(text.path, task.op.name)
        if kernel.op != task.op:
            raise WebnormError(f"{kernel.label} is no kernel of {task.op.name}")
        variant = chosen_variants(kernel, task.problem, traits, job.constants)[0]
        return name, f"{text.hash} {variant}", variant

    yield chosen("attempt", job.attempt)
    if job.previous is not None:
        with suppress(WebnormError):
            yield chosen("previous", job.previous)
    kernels = discover()
    if not task.op.is_copy:
        variant = choose(kernels, task, traits).variant
        yield "best", str(variant), variant
    if job.goal is not None:
        # The text may be of another op by now.
        with suppress(WebnormError):
            kernel = select(kernels, job.goal, task.op.name)
            variant = chosen_variants(kernel, task.problem, traits, {})[0]
            yield "goal", str(variant), variant
    copies = copies_of([one for one in kernels if one.op.is_copy], task.problem, traits)
    for variant in copies if stand.copy is None else [stand.copy]:
        yield "copy", str(variant), variant


def _remember(stand: _Stand, asked: Sequence[Asked], found: Mapping[int, Result]) -> None:
    """Keep what the next attempt is timed beside: the fastest copy, and what was timed now."""
    copies = {index: found[index] for index in found if asked[index][0] == "copy"}
    fastest = best(list(copies.values()))
    stand.copy = next((asked[index][2] for index, one in copies.items() if one is fastest), stand.copy)
    keys = {key for name, key, variant in asked if name != "copy" or variant == stand.copy}
    stand.right = {key: one for key, one in stand.right.items() if key in keys}
    stand.proved &= keys


def _told(asked: Sequence[Asked], found: Mapping[int, Result], proved: bool) -> Iterator[LiveResult]:
    """The results with their share of the copy; only the fastest copy is reported."""
    results = dict(zip(found, with_share_of_copy(list(found.values())), strict=True))
    fastest = best([one for one in results.values() if one.roofline])
    for index, result in results.items():
        if asked[index][0] != "copy" or result is fastest:
            yield LiveResult(asked[index][0], result, proved)


# The last one of the process: to draw inputs and to work out answers takes longer than the timing.
_stands: dict[str, _Stand] = {}


def _stand(device: Device, job: LiveTimingJob) -> _Stand:
    key = repr((job.task.op.name, job.task.problem, job.roots))
    if key not in _stands:
        _stands.clear()
        board = jobs.buffers_for_task(device, job.task, job.roots, sets_for(job.task, device.traits))
        _stands[key] = _Stand(timing_setup(board, job.rule.settle_s))
    return _stands[key]
