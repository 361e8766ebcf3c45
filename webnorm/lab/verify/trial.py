"""One variant on one problem, held against float64: right, wrong, refused or broken, and a Result in any
case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import wgpu

from webnorm import signals
from webnorm.errors import WebnormError, sentence
from webnorm.gpu import timing
from webnorm.gpu.schedule import CannotSlice, Plan
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.library import UnreadableKernel
from webnorm.kernels.headers.variants import Variant
from webnorm.kernels.wgsl.diagnostics import read_report
from webnorm.kernels.wgsl.tokens import CannotInstrument
from webnorm.lab.results.result import Result, Status
from webnorm.lab.verify.accuracy import Accuracy
from webnorm.lab.verify.problem_buffers import Golden, ProblemBuffers, RepeatedRowsDiffer
from webnorm.lab.verify.races import LoopsNotInstrumented, find_fault
from webnorm.op.problem import Problem

UNSTEADY = "the same input twice gave different bits"


def blank_result(
    variant: Variant, problem: Problem, case: str | None = None, reason: str | None = None
) -> Result:
    """A result of which only the names are known, and perhaps why there will be no more."""
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
    """The result; the failure of a kernel that is declared unstable is expected."""
    return replace(result, expected=True) if kernel.unstable and result.status == "fail" else result


def unreadable(broken: UnreadableKernel, problem: Problem, case: str | None = None) -> Result:
    """The result of a kernel's file that is none."""
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
    """The result with its errors and verdict."""
    known = {**vars(accuracy), "worst": str(accuracy.worst) if accuracy.worst else None}
    not_compared = known.pop("not_compared")
    del known["allowed"]
    found = replace(result, status="pass" if accuracy.ok else "fail", **known)
    return replace(found, status="skip", reason=not_compared) if accuracy.ok and not_compared else found


def with_samples(result: Result, samples: Sequence[float]) -> Result:
    """The result with samples in nanoseconds, and what follows from them and the bytes it has to move."""
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
    """Compute the problem with a variant, hold it against float64, and see whether it stays the same; with
    `watch`, look for endless loops and races on workgroup memory too.

    Gives the result, and for a variant that is right its plan and the bits of its outputs.
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
    """`try_variant` for a plan that the board has just prepared."""
    variant = plan.shader.variant
    result = replace(blank_result(variant, board.problem, case), **board.spent)
    try:
        golden = []
        for version in range(board.versions):
            at = board.run(plan, version)
            accuracy, bits = board.outcome(plan, version, at)
            if not accuracy.ok:
                wrong = with_accuracy(result, accuracy)
                moved = f" (after every {board.problem.batch_noun} had moved on by one)" if version else ""
                return replace(wrong, reason=f"{wrong.reason}{moved}"), None, ()
            board.keep(plan, version, at)
            golden.append(bits)
            if version == 0:
                result = with_accuracy(result, accuracy)
        steady = board.steady(plan) if board.problem.batch_size else True
        seen = _watched(board, variant) if watch and board.problem.batch_size else _Watched()
    except Exception as error:
        signals.let_through(error)
        return failed_result(board, variant, result, error), None, ()
    result = replace(result, deterministic=steady, watched=seen.watched, unwatched=seen.reason)
    if not steady or seen.fault:
        return replace(result, status="fail", reason=seen.fault if steady else UNSTEADY), None, ()
    if result.status == "skip":
        return result, None, ()
    return replace(result, reason=seen.loops_unknown), plan, tuple(golden)


@dataclass(frozen=True)
class _Watched:
    """Whether loops and the use of workgroup memory could be watched (None if not tried), the `reason`
    why not, the fault that was seen, and why it is not known whether the loops end.
    """

    watched: bool | None = None
    reason: str | None = None
    fault: str | None = None
    loops_unknown: str | None = None


def _watched(board: ProblemBuffers, variant: Variant) -> _Watched:
    """Look for endless loops, and races on workgroup memory, in a variant.

    The variant's own text has run by now: whatever goes wrong in watching it is no fault of the variant's.
    """
    try:
        problem, arrays = board.drawn_problem(variant), board.inputs_of(variant).arrays
        found = find_fault(board.device, variant, problem, arrays, board.roots)
        return _Watched(True, fault=None if found is None else str(found))
    except LoopsNotInstrumented as unclear:
        reason = f"whether its loops end could not be watched: {unclear}"
        return _Watched(False, str(unclear), loops_unknown=reason)
    except CannotInstrument as unclear:
        return _Watched(False, str(unclear))
    except Exception as error:
        signals.let_through(error)
        return _Watched(False, exception_text(error))


def failed_result(board: ProblemBuffers, variant: Variant, result: Result, error: Exception) -> Result:
    """The result of a variant that did not get as far as an answer: whatever went wrong is its own."""
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
            return replace(result, reason=wgpu_refusal(error))
    return replace(result, reason=exception_text(error))


def wgpu_refusal(error: wgpu.GPUError) -> str:
    """What wgpu says against running a plan."""
    return f"wgpu refused to run it: {read_report(str(error))[1]}"


def exception_text(error: BaseException) -> str:
    """An exception in one line; a mistake of the user's has nothing but its message."""
    text = sentence(str(error))
    if isinstance(error, WebnormError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
