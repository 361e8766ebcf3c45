"""Examination of a wrong variant: it runs again, and its outputs show error locations and likely bugs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from webnorm.gpu.schedule import Plan
from webnorm.kernels.headers.variants import Variant
from webnorm.kernels.wgsl.tokens import CannotInstrument
from webnorm.lab.diagnose.heat_map import HeatMap, heat_map
from webnorm.lab.diagnose.hints import Hint, WrongResult, hints
from webnorm.lab.verify.accuracy import WorstElement, assess_output, tolerance
from webnorm.lab.verify.problem_buffers import ProblemBuffers
from webnorm.lab.verify.races import find_fault
from webnorm.op.dtypes import Array
from webnorm.op.op import Task

# Hints that explain an error completely, so that a search for races is not needed.
_SURE = ("poison", "guard", "formula")
_MOVED = (
    "right at first, and wrong after every {} was shifted by one: fits a kernel that keeps data from one "
    "dispatch to the next"
)
_APART = (
    "each dispatch alone was right: fits a kernel that reads what an earlier dispatch left in outputs, "
    "scratch or workgroup memory"
)


@dataclass(frozen=True)
class Examination:
    """The locations of a result's errors, and hints at their cause, the most certain hint first.

    `worst` and `map` describe the first wrong output. They are None if all outputs were right this time.
    """

    worst: WorstElement | None
    map: HeatMap | None
    hints: tuple[Hint, ...]


def examine(board: ProblemBuffers, plan: Plan) -> Examination:
    """Run a wrong plan again, twice per version of the inputs, until an output is wrong."""
    for version in range(board.versions):
        first, again = (board.read(plan, version, board.run(plan, version)) for _ in range(2))
        found = _examined(board, plan, version, first, again)
        if found is not None:
            return found
    return Examination(None, None, race_hint(board, plan.shader.variant) or (Hint("unsteady", _APART),))


def _examined(
    board: ProblemBuffers,
    plan: Plan,
    version: int,
    first: Mapping[str, tuple[Array, bool]],
    again: Mapping[str, tuple[Array, bool]],
) -> Examination | None:
    """Return the examination of two runs on a version of the inputs; None if both are right."""
    shader = plan.shader
    for outputs in (first, again):
        accuracy = board.assess(plan, outputs, version)
        failure = WrongResult(
            Task(shader.variant.kernel.op, shader.problem),
            board.arrays_of(version),
            outputs,
            board.answers(shader.variant, outputs, version),
            tolerance(shader),
            again if outputs is first else first,
        )
        found = hints(failure)
        if accuracy.ok and not found:
            continue
        if not any(hint.kind in _SURE for hint in found):
            found = (*race_hint(board, shader.variant), *found)
        if version:
            found = (Hint("unsteady", _MOVED.format(board.problem.batch_noun)), *found)
        if failure.wrong is None:
            return Examination(None, None, found)
        wrong = failure.wrong[0]
        return Examination(assess_output(wrong).worst, heat_map(wrong), found)
    return None


def race_hint(board: ProblemBuffers, variant: Variant) -> tuple[Hint, ...]:
    """Return the endless loop or race on workgroup memory that is found, if the search is possible."""
    if not board.problem.batch_size:
        return ()
    try:
        found = find_fault(board.device, variant, board.problem, board.arrays, board.roots)
    except CannotInstrument:
        return ()
    return (Hint(found.kind, str(found), found.place),) if found else ()
