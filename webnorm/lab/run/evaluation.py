"""Evaluation of a kernel's file, from its header to verdict and timing; each step is reported when done."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, cast

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
from webnorm.kernels.headers.traits import BROWSER, Traits, extended
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
from webnorm.lab.verify.trial import blank_result, expect_instability, try_plan, try_variant
from webnorm.op.corpus import steady_cases
from webnorm.op.dtypes import Array
from webnorm.op.fitting_problem import fitting_task
from webnorm.op.op import Op, Task
from webnorm.op.problem import Problem
from webnorm.op.registry import default_op, options_of

# In the form of --option.
_CAPPED = "max_workgroups=2"


@dataclass(frozen=True)
class EvaluationJob:
    """A kernel's file to evaluate for one of its ops.

    `dtype`, `options` and `scalars` apply to its problems; `scalars` contains those that differ from the op's
    defaults. `constants` are the user's values of tune axes. `x` is the mean and the standard deviation of an
    additional x.
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
        """Return the kernel with its constants for a problem."""
        return chosen_variants(kernel, problem, traits, self.constants)[0]


@dataclass(frozen=True)
class HeaderRead:
    """The event of a valid header: the op and the name of the kernel."""

    op: str
    kernel: str


@dataclass(frozen=True)
class TextsCompiled:
    """The event of shaders that compiled."""


@dataclass(frozen=True)
class ProblemVerdict:
    """The verdict on one problem; `given` marks the problem with the user's own x."""

    problem: str
    result: Result
    given: bool = False


def evaluate(device: Device, job: EvaluationJob) -> Iterator[Any]:
    """Evaluate a file as a task of the worker.

    Yields HeaderRead, the Shader of the first problem, TextsCompiled, and a ProblemVerdict for each problem.
    The first wrong problem gives an Examination at the end. Raises WebnormError, with a place if known, for a
    header, a template or a text that is rejected.
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
            yield posed.verdict(skipped)
            continue
        board = ProblemBuffers(device, task, posed.draw(), job.roots)
        shader = render_shader(variant, task.problem, device.target, device.traits, roots=job.roots)
        if not boards:
            yield shader
        boards.append((posed, board, board.bind(shader)))
    yield TextsCompiled()
    wrong = None
    for posed, board, plan in boards:
        result = try_plan(board, plan)[0]
        # A kernel may be unstable on difficult inputs only; the other problems have none.
        yield posed.verdict(result if posed.x is None else expect_instability(result, kernel))
        if result.status == "fail" and wrong is None:
            wrong = board, plan
    if wrong is not None:
        yield examine(*wrong)


@dataclass(frozen=True)
class RaceCheckResult:
    """The result of a search for endless loops and races on one problem.

    `fault` is the fault that was found. `unwatched` is the reason if the search was not possible. `refused`
    is true if the kernel does not support the problem.
    """

    fault: Hint | None = None
    unwatched: str | None = None
    refused: bool = False


def check_races(device: Device, job: EvaluationJob) -> Iterator[RaceCheckResult]:
    """Search for endless loops and races on workgroup memory, as a task of the worker.

    The search uses the problem with odd sizes, also with few workgroups that loop over all rows. Right
    kernels can contain races, because most races do no harm on most adapters.
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
        except CannotInstrument as unclear:
            # The kernel has run before, so that errors of the instrumented text are not the kernel's fault.
            yield RaceCheckResult(unwatched=str(unclear))
        else:
            yield RaceCheckResult(Hint(found.kind, str(found), found.place) if found else None)


def warm_up(device: Device, roots: tuple[Path, ...]) -> None:
    """Do the slow first steps of a process: compile a built-in kernel, and read the snippets in `roots`.

    Kernels in `roots` do not run.
    """
    op = default_op()
    own = EvaluationJob(wgsl_root() / op.name / f"{lesson_kernel(op)}.wgsl", None, ())
    deque(evaluate(device, own), maxlen=0)
    kernel = load(own.path)
    problem = _posed(kernel, own, device.traits)[0].task.problem
    with suppress(WebnormError):
        render_shader(
            own.variant(kernel, problem, device.traits), problem, device.target, device.traits, roots=roots
        )


@dataclass(frozen=True)
class TraceJob:
    """A kernel's file to trace on one of its evaluation problems, given by index."""

    job: EvaluationJob
    index: int
    filter: str


def trace_file(device: Device, job: TraceJob) -> Iterator[Trace]:
    """Yield the trace, as a task of the worker; raises WebnormError as `trace` does."""
    kernel = load(job.job.path, job.job.op)
    posed = _posed(kernel, job.job, device.traits)[job.index]
    problem = posed.task.problem
    variant = job.job.variant(kernel, problem, device.traits)
    yield trace(device, variant, problem, posed.draw(), job.job.roots, job.filter)


@dataclass(frozen=True)
class _Posed:
    """A problem of an evaluation; `x` is the mean and the standard deviation of the user's own x."""

    task: Task
    x: tuple[float, float] | None = None

    def draw(self) -> dict[str, Array]:
        posing = _posing(self.task.op)
        draw = posing.draw_playground if self.x is None else posing.draw_given
        drawn: dict[str, Array] = draw(self.task, *(self.x or ()))
        return drawn

    def verdict(self, result: Result) -> ProblemVerdict:
        suffix = "" if self.x is None else ", x {:g} ± {:g}".format(*self.x)
        return ProblemVerdict(f"{self.task.problem}{suffix}", result, self.x is not None)


def _posing(op: Op) -> Any:
    """Return the module with the evaluation problems of an op: its own, or the generic one."""
    return op.hook("evaluation") or import_module("webnorm.op.small_problems")


def _posed(kernel: Kernel, job: EvaluationJob, traits: Traits) -> list[_Posed]:
    """Return the evaluation problems of a kernel, adapted to its requirements if possible.

    Raises WebnormError for unknown options and scalars of its op.
    """
    posing, options = _posing(kernel.op), options_of(kernel.op, job.options)
    found = [_Posed(task) for task in posing.playground_tasks(kernel.op, job.dtype, options)]
    if job.x is not None:
        found.append(_Posed(posing.given_task(kernel.op, job.dtype, options), job.x))
    tasks = (Task(kernel.op, replace(one.task.problem, **cast(Any, job.scalars))) for one in found)
    fits, numbers = _fits(kernel, job, traits), kernel.rule_numbers
    return [_Posed(fitting_task(task, fits, numbers), one.x) for task, one in zip(tasks, found, strict=True)]


def _fits(kernel: Kernel, job: EvaluationJob, traits: Traits) -> Callable[[Problem], bool]:
    """Return a function that is true for problems that the kernel supports."""
    return lambda problem: job.variant(kernel, problem, traits).refusal(problem, traits) is None


@dataclass(frozen=True)
class RenderFailure:
    """The reason why there is no shader for browsers."""

    reason: str


def render_for_browsers(
    device: Device, job: EvaluationJob
) -> Iterator[Shader | RenderFailure | WebnormError]:
    """Yield each shader for browsers, with and without subgroups, or a reason, as a task of the worker.

    There are also shaders for browsers with other features that the kernel declares. If the default constants
    exceed a browser's limits, the shaders are the ones that an export would contain.
    """
    kernel = load(job.path, job.op)
    tasks = [posed.task for posed in _posed(kernel, job, device.traits)]
    texts = set[str]()
    for base in (BROWSER, replace(BROWSER, features=frozenset())):
        for more, traits in extended(base, kernel.features):
            for task in tasks:
                try:
                    shader = _browser_shader(kernel, job, task, traits)
                except WebnormError as error:
                    yield error
                    continue
                if isinstance(shader, RenderFailure):
                    # Browsers with more features only count if they have a shader.
                    if not more:
                        yield shader
                elif shader.text not in texts:
                    texts.add(shader.text)
                    # Computes the places in this process, because the parent does not render.
                    shader.place(1)
                    yield shader


def _browser_shader(kernel: Kernel, job: EvaluationJob, task: Task, traits: Traits) -> Shader | RenderFailure:
    """Return the shader for browsers with these traits, or the reason why there is none."""
    variant = job.variant(kernel, task.problem, traits)
    refusal = variant.refusal(task.problem, traits)
    if refusal is not None:
        nearest = None if job.constants else nearest_variant(kernel, task.problem, traits)[0]
        if nearest is None:
            which = "with" if "subgroups" in traits.features else "without"
            return RenderFailure(f"no shader for browsers {which} subgroups: {refusal}")
        variant = nearest
    return render_shader(variant, task.problem, "browser", traits, roots=job.roots)


@dataclass(frozen=True)
class CaseJob:
    """A case of the corpus as a task, for a kernel's file."""

    job: EvaluationJob
    case: str
    task: Task


def try_case(device: Device, job: CaseJob) -> Iterator[Result]:
    """Yield the verdict on a case, the same as `webnorm check`'s, as a task of the worker."""
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


# --- Live timing: an attempt, in turn with the copy, the attempt before it and the best kernel.

# The user waits for these times. Results of the other kernels are kept between attempts, and times are shown
# before their proof.

TimedName = Literal["attempt", "previous", "best", "goal", "copy"]
# A timed variant with its role and a key of its text.
Asked = tuple[TimedName, str, Variant]
# The rule is short, because differences of a few percent are left to `webnorm bench`.
RULE = timing.StoppingRule(least=5, most=15, spread=0.03, budget_s=1.0, settle_s=0.2)
# Times are reported after this number of rounds, before their proof.
_REPORTED_AFTER = 3


@dataclass(frozen=True)
class KernelRevision:
    """A kernel's file and the hash of its text, including snippets."""

    path: Path
    hash: str


@dataclass(frozen=True)
class LiveTimingJob:
    """A kernel to time on a task.

    `constants` are the user's values of tune axes. `previous` is an earlier text of the kernel, and `goal`
    another kernel of the op to time. `roots` contain the snippets of both texts.
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
    """A result with its role; `proved` is true after the proof that the timed work was done."""

    name: TimedName
    result: Result
    proved: bool


@dataclass
class _TimingState:
    """The state between attempts: a task's buffers and clock, and its right variants."""

    setup: TimingSetup
    right: dict[str, tuple[Result, Plan, Golden]] = field(default_factory=dict)
    proved: set[str] = field(default_factory=set)
    # The fastest copy, if known.
    copy: Variant | None = None

    def tried(
        self, key: str, variant: Variant, own: Plan | None = None
    ) -> tuple[Result, Plan | None, Golden]:
        """Return the same as try_variant, computed once per key; `own` is the plan if it exists already."""
        if key in self.right:
            return self.right[key]
        board = self.setup.board
        result, plan, golden = try_variant(board, variant) if own is None else try_plan(board, own)
        if plan is not None:
            self.right[key] = result, plan, golden
        return result, plan, golden


def time_live(device: Device, job: LiveTimingJob) -> Iterator[LiveResult | timing.RoundDone]:
    """Yield finished rounds and each result, before and after its proof, as a task of the worker.

    Raises WebnormError for a kernel that cannot be read, and for a task that exceeds the memory.
    """
    state = _state(device, job)
    asked = list(_asked(state, device, job))
    running = []
    # The attempt is right on other problems, or it would not be timed. The check on this problem comes after
    # timing, because it takes longer than the first rounds.
    own = state.setup.board.prepare(asked[0][2])
    unproved = replace(blank_result(asked[0][2], job.task.problem), status="pass")
    for index, (_, key, variant) in enumerate(asked):
        result, plan, golden = state.tried(key, variant) if index else (unproved, own, ())
        if plan is not None:
            running.append(jobs.timed_variant(state.setup, index, result, plan, golden))
    for event in jobs.fill_samples(state.setup, running, job.rule):
        if isinstance(event, timing.RoundDone):
            yield event
            if event.done == _REPORTED_AFTER:
                so_far = {one.index: jobs.with_times(state.setup, one.result, one) for one in running}
                yield from _live_results(asked, so_far, proved=False)
    result, plan, golden = state.tried(asked[0][1], asked[0][2], own)
    if plan is None:
        yield LiveResult("attempt", expect_instability(result, asked[0][2].kernel), True)
        return
    running[0].result, running[0].golden = result, golden
    yield from _proved(state, asked, running)


def _proved(
    state: _TimingState, asked: Sequence[Asked], running: Sequence[TimedVariant]
) -> Iterator[LiveResult]:
    """Yield the results after the proof that the timed work was done."""
    found: dict[int, Result] = {}
    known = {one.index for one in running if asked[one.index][1] in state.proved}
    for verdict in jobs.check_all_timed_work(state.setup, running, known):
        if isinstance(verdict, jobs.VariantResult):
            _, key, variant = asked[verdict.index]
            found[verdict.index] = expect_instability(verdict.result, variant.kernel)
            if verdict.result.status == "pass":
                state.proved.add(key)
    _remember(state, asked, found)
    yield from _live_results(asked, found, proved=True)


def _asked(state: _TimingState, device: Device, job: LiveTimingJob) -> Iterator[Asked]:
    """Yield the variants to time; an earlier text that cannot run any more is left out."""
    task, traits = job.task, device.traits

    def chosen(name: TimedName, text: KernelRevision) -> Asked:
        kernel = load(text.path, task.op.name)
        if kernel.op != task.op:
            raise WebnormError(f"{kernel.label} is not a kernel of {task.op.name}; save one of that op")
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
        # The text may belong to another op by now.
        with suppress(WebnormError):
            kernel = select(kernels, job.goal, task.op.name)
            variant = chosen_variants(kernel, task.problem, traits, {})[0]
            yield "goal", str(variant), variant
    copies = copies_of([one for one in kernels if one.op.is_copy], task.problem, traits)
    for variant in copies if state.copy is None else [state.copy]:
        yield "copy", str(variant), variant


def _remember(state: _TimingState, asked: Sequence[Asked], found: Mapping[int, Result]) -> None:
    """Keep the fastest copy and the variants timed now, for the next attempt."""
    copies = {index: found[index] for index in found if asked[index][0] == "copy"}
    fastest = best(list(copies.values()))
    state.copy = next((asked[index][2] for index, one in copies.items() if one is fastest), state.copy)
    keys = {key for name, key, variant in asked if name != "copy" or variant == state.copy}
    state.right = {key: one for key, one in state.right.items() if key in keys}
    state.proved &= keys


def _live_results(asked: Sequence[Asked], found: Mapping[int, Result], proved: bool) -> Iterator[LiveResult]:
    """Yield the results with their percentage of the copy; only the fastest copy is reported."""
    results = dict(zip(found, with_share_of_copy(list(found.values())), strict=True))
    fastest = best([one for one in results.values() if one.roofline])
    for index, result in results.items():
        if asked[index][0] != "copy" or result is fastest:
            yield LiveResult(asked[index][0], result, proved)


# The last state of the process is kept, since inputs and answers take longer to compute than the timing.
_states: dict[str, _TimingState] = {}


def _state(device: Device, job: LiveTimingJob) -> _TimingState:
    key = repr((job.task.op.name, job.task.problem, job.roots))
    if key not in _states:
        _states.clear()
        board = jobs.buffers_for_task(device, job.task, job.roots, sets_for(job.task, device.traits))
        _states[key] = _TimingState(timing_setup(board, job.rule.settle_s))
    return _states[key]
