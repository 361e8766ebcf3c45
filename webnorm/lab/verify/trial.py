"""A trial of one variant on one problem: it gives a Result that is right, wrong, refused or broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from webnorm import signals
from webnorm.errors import WebnormError, sentence
from webnorm.gpu import timing
from webnorm.gpu.backend import wgpu
from webnorm.gpu.schedule import CannotSlice, Plan
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.library import UnreadableKernel
from webnorm.kernels.headers.variants import Variant
from webnorm.kernels.wgsl.diagnostics import read_report
from webnorm.kernels.wgsl.tokens import CannotInstrument
from webnorm.lab.results.result import Result, Status
from webnorm.lab.verify.accuracy import Accuracy
from webnorm.lab.verify.problem_buffers import Golden, ProblemBuffers, RepeatedRowsDiffer
from webnorm.lab.verify.races import LoopsNotInstrumented, RaceOrLoopFault, find_fault
from webnorm.op.problem import Problem

UNSTEADY = "two runs on the same input gave different bits"


def blank_result(
    variant: Variant, problem: Problem, case: str | None = None, reason: str | None = None
) -> Result:
    """Return a result with names only, and a reason if there will be no more."""
    return Result(
        op=variant.kernel.op.name,
        kernel=variant.kernel.name,
        constants=dict(variant.constants),
        problem=problem,
        status="error",
        reason=reason,
        case=case,
    )


def expect_instability(result: Result, kernel: Kernel) -> Result:
    """Return the result, with a failure of an unstable kernel marked as expected.

    Instability explains neither a race nor an endless loop.
    """
    expected = kernel.unstable and result.status == "fail" and result.fault is None
    return replace(result, expected=True) if expected else result


def unreadable(broken: UnreadableKernel, problem: Problem, case: str | None = None) -> Result:
    """Return the result of an unreadable kernel file."""
    return Result(
        op=broken.op.name,
        kernel=broken.name,
        constants={},
        problem=problem,
        status="error",
        reason=broken.reason,
        case=case,
    )


def with_accuracy(result: Result, accuracy: Accuracy) -> Result:
    """Return the result with its errors and verdict."""
    known = {**vars(accuracy), "worst": str(accuracy.worst) if accuracy.worst else None}
    not_compared = known.pop("not_compared")
    del known["allowed"]
    found = replace(result, status="pass" if accuracy.ok else "fail", **known)
    return replace(found, status="skip", reason=not_compared) if accuracy.ok and not_compared else found


def with_samples(result: Result, samples: Sequence[float]) -> Result:
    """Return the result with samples in nanoseconds, and the statistics and rates from them."""
    found, size = timing.statistics(samples), result.bytes
    return replace(
        result,
        median_ns=found.median,
        p20_ns=found.p20,
        p80_ns=found.p80,
        samples_ns=tuple(samples),
        gbps=size / found.median if size and found.median > 0 else None,
        gflops=result.flops / found.median if result.flops and found.median > 0 else None,
    )


def try_variant(
    board: ProblemBuffers, variant: Variant, case: str | None = None, watch: bool = False
) -> tuple[Result, Plan | None, Golden]:
    """Run a variant on the problem, compare it with float64, and check that it is deterministic.

    With `watch` also search for endless loops and races on workgroup memory. Returns the result, and for a
    right variant its plan and the digests of its outputs.
    """
    try:
        plan = board.prepare(variant)
    except Exception as error:
        signals.let_through(error)
        return failed_result(board, variant, blank_result(variant, board.problem, case), error), None, ()
    return try_plan(board, plan, case, watch)


def try_plan(
    board: ProblemBuffers, plan: Plan, case: str | None = None, watch: bool = False
) -> tuple[Result, Plan | None, Golden]:
    """Return the same as `try_variant`, for a plan that the board has just prepared."""
    variant = plan.shader.variant
    result = replace(blank_result(variant, board.problem, case), **board.spent)
    try:
        golden = []
        for version in range(board.versions):
            at = board.run(plan, version)
            accuracy, bits = board.outcome(plan, version, at)
            if not accuracy.ok:
                wrong = with_accuracy(result, accuracy)
                moved = f" (after every {board.problem.batch_noun} was shifted by one)" if version else ""
                wrong = replace(wrong, reason=f"{wrong.reason}{moved}")
                return _with_search(board, variant, wrong) if watch else wrong, None, ()
            board.keep(plan, version, at)
            golden.append(bits)
            if version == 0:
                result = with_accuracy(result, accuracy)
        steady = board.steady(plan) if board.problem.batch_size else True
        seen = _search(board, variant) if watch else _SearchResult()
    except Exception as error:
        signals.let_through(error)
        return failed_result(board, variant, result, error), None, ()
    result = replace(result, deterministic=steady, watched=seen.watched, unwatched=seen.reason)
    if not steady or seen.fault:
        result = replace(result, status="fail", reason=None if steady else UNSTEADY)
        return _with_fault(result, seen.fault), None, ()
    if result.status == "skip":
        return result, None, ()
    return replace(result, reason=seen.loops_unknown), plan, tuple(golden)


@dataclass(frozen=True)
class _SearchResult:
    """The result of a search for endless loops and races on workgroup memory.

    `watched` is None if it was not tried, and `reason` says why it was not possible. `fault` is the fault
    that was found. `loops_unknown` is the reason if the kernel's loops may not end.
    """

    watched: bool | None = None
    reason: str | None = None
    fault: RaceOrLoopFault | None = None
    loops_unknown: str | None = None


def _search(board: ProblemBuffers, variant: Variant) -> _SearchResult:
    """Search for endless loops and races on workgroup memory in a variant.

    The variant's own text has run before, so that errors of the instrumented text are not its fault.
    """
    if not board.problem.batch_size:
        return _SearchResult()
    try:
        problem, arrays = board.drawn_problem(variant), board.inputs_of(variant).arrays
        return _SearchResult(True, fault=find_fault(board.device, variant, problem, arrays, board.roots))
    except LoopsNotInstrumented as unclear:
        reason = f"it is unknown whether its loops end: {unclear}"
        return _SearchResult(False, str(unclear), loops_unknown=reason)
    except CannotInstrument as unclear:
        return _SearchResult(False, str(unclear))


def _with_search(board: ProblemBuffers, variant: Variant, wrong: Result) -> Result:
    """Search for the cause of a wrong result, and return the result with what the search found.

    An exception of the search is added to the reason, because the result is wrong in any case.
    """
    try:
        seen = _search(board, variant)
    except Exception as error:
        signals.let_through(error)
        failed = failed_result(board, variant, wrong, error).reason
        return replace(wrong, reason=f"{wrong.reason}; the search for races failed: {failed}")
    return _with_fault(replace(wrong, watched=seen.watched, unwatched=seen.reason), seen.fault)


def _with_fault(wrong: Result, fault: RaceOrLoopFault | None) -> Result:
    """Return a wrong result with a race or an endless loop, if there is one, added to the reason."""
    if fault is None:
        return wrong
    reason = "; ".join(filter(None, (wrong.reason, str(fault))))
    return replace(wrong, reason=reason, fault=fault.kind)


def failed_result(board: ProblemBuffers, variant: Variant, result: Result, error: Exception) -> Result:
    """Return the result of a variant that an exception stopped, also after right answers to some inputs."""
    match error:
        case RepeatedRowsDiffer():
            return replace(result, status="fail", reason=str(error))
        case CannotSlice():
            return replace(result, status="skip", reason=str(error))
        case WebnormError():
            try:
                refused = variant.refusal(board.problem_of(variant), board.device.traits) is not None
            except WebnormError:
                refused = False
            status: Status = "skip" if refused else "error"
            return replace(result, status=status, reason=str(error), place=error.place)
        case wgpu.GPUError():
            return replace(result, status="error", reason=wgpu_refusal(error))
    return replace(result, status="error", reason=exception_text(error))


def wgpu_refusal(error: wgpu.GPUError) -> str:
    """Return the reason why wgpu refuses to run a plan."""
    return f"wgpu refused to run it: {read_report(str(error))[1]}"


def exception_text(error: BaseException) -> str:
    """Return an exception in one line; a WebnormError, which is a user's mistake, only has its message."""
    text = sentence(str(error))
    if isinstance(error, WebnormError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
