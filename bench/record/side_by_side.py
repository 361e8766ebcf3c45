"""Measure one problem of a record: check webnorm's variants and the contenders, then time them in turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bench.contenders import Contender, found_wrong, said, some_rows
from bench.contenders.installed import ContenderLibrary, libraries, release
from bench.contenders.samplers import Sampler
from bench.record.laps import Laps
from bench.record.variants import OwnVariants, TunedVariants, own_variants
from webnorm.gpu import timing
from webnorm.gpu.buffers import check_memory
from webnorm.gpu.device import Device
from webnorm.gpu.schedule import Plan
from webnorm.kernels.headers.variants import Variant
from webnorm.lab.results.result import Calls, Result
from webnorm.lab.run import bench, jobs
from webnorm.lab.verify import timed_work
from webnorm.lab.verify.problem_buffers import Golden, RepeatedRows
from webnorm.lab.verify.trial import blank_result, failed_result, try_variant, with_samples
from webnorm.op.dtypes import DTYPES, Array
from webnorm.op.op import ExpectedOutputs, Op, Task, make_inputs
from webnorm.op.problem import Problem
from webnorm.op.registry import OPS, as_copy_problem

# A record times the consecutive calls of one caller.
CALLS: Calls = "one by one"
# The fewest rounds per problem. Thirds of them show whether the copy drifted.
_LEAST_ROUNDS = 9
# The goal for (p80 - p20) / median / sqrt(rounds). The standard error of a median is three quarters of it.
_SPREAD = 0.003
_BUDGET_S = 600.0
# A copy of 64 MiB measures the device's pace, with more sets than a cache can contain.
_PACE_ROWS, _PACE_COLS, _PACE_SETS = 16384, 1024, 4

# Different values of an input in a run without a comparison.
_FEW_VALUES = 1 << 16
# The reason of results that were timed without a comparison.
UNCHECKED = "not compared with float64"

# A variant that is right so far: its number, result and plan, and the bits of its outputs if known.
_Right = tuple[int, Result, Plan, Golden | None]


@dataclass(frozen=True)
class KnownResults:
    """Findings about a problem before it is measured.

    `results` has the variants' results on the problem's block, by name. `faults` has the reasons why
    contenders must not be tried in this process.
    """

    results: dict[str, Result] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    tuned: TunedVariants | None = None


# --- contenders


@dataclass
class ContenderRun:
    """A contender's result, the bytes that it must move, and its sampler if it is right."""

    result: Result
    bytes: int
    sampler: Sampler | None = None
    samples: list[float] = field(default_factory=list)

    def measured(self, cold: bool) -> Result:
        """Return the result with its times, if there are any."""
        if self.sampler is None:
            return self.result
        return replace(
            with_samples(replace(self.result, bytes=self.bytes), self.samples),
            dispatches_per_sample=self.sampler.runs,
            timing_method=self.sampler.method,
            cache="cold" if cold else "warm",
            calls=CALLS,
            flags=timing.flags(self.samples),
        )


def enter(
    contender: Contender,
    library: ContenderLibrary,
    task: Task,
    answers: Mapping[str, ExpectedOutputs],
    fault: str | None = None,
) -> ContenderRun:
    """Prepare a contender and check it against float64; a wrong one is not timed.

    `answers` are the answers of the task's op and of the copy. Any error of a library becomes its result. A
    contender with a `fault` is not tried.
    """
    op = contender.op(task)
    size = op.minimum_bytes(as_copy_problem(task.problem) if op.is_copy else task.problem)
    result = Result(op=op.name, kernel=contender.name, constants={}, problem=task.problem, status="error")
    if contender.compute is None:
        return ContenderRun(replace(result, status="skip", reason=contender.absent), size)
    if fault is not None:
        return ContenderRun(replace(result, reason=fault), size)
    few, rows = some_rows(answers[op.name])
    try:
        adapt = contender.adapt
        sets = [adapt(one) for one in library.inputs] if adapt else library.inputs
        sampler = library.sampler(contender.compute, sets)
        outputs = library.to_numpy(sampler.outputs(), rows)
    except Exception as error:
        return ContenderRun(replace(result, reason=said(error)), size)
    # The error scales of packaged ops are the errors of a float32 kernel. A library may round between steps,
    # where values are about 1.
    least = 0.0 if task.op.source is None else 1.0
    largest, reason = found_wrong(outputs, few, task.problem.dtype, least)
    result = replace(result, max_abs_error=largest, reason=reason, status="fail" if reason else "pass")
    return ContenderRun(result, size, None if reason else sampler)


def _entered(
    board: RepeatedRows, task: Task, own: OwnVariants, known: KnownResults, laps: Laps
) -> Iterator[ContenderRun]:
    """Prepare all contenders of this machine."""
    chosen = (own.variants[index] for index in own.whole)
    answers = {variant.kernel.op.name: board.answers(variant, {}) for variant in chosen}
    software = board.device.traits.software
    for library in libraries(task, board.arrays, board.sets, software):
        laps.mark("rivals' inputs")
        for contender in library.contenders:
            yield enter(contender, library, task, answers, known.faults.get(contender.name))
            laps.mark(contender.name)


# --- webnorm's variants


def _tried(
    board: RepeatedRows, own: OwnVariants, known: Mapping[str, Result], found: dict[int, Result]
) -> Iterator[_Right]:
    """Yield the right variants; the results of the others go to `found`.

    Webnorm's choice and the first copy are checked on all rows. The others are checked on the block, here or
    in advance.
    """
    for index, variant in enumerate(own.variants):
        plan: Plan | None
        golden: Golden | None = None
        if index in own.whole:
            result, plan, golden = try_variant(board, variant)
        else:
            result = known.get(str(variant)) or try_variant(board.block, variant)[0]
            result, plan = _on_the_board(board, variant, replace(result, problem=board.problem))
        if plan is None:
            found[index] = result
        else:
            yield index, result, plan, golden


def _prepared(board: RepeatedRows, own: OwnVariants, found: dict[int, Result]) -> Iterator[_Right]:
    """Yield all variants that compile, without running them; the results of the others go to `found`."""
    for index, variant in enumerate(own.variants):
        unchecked = replace(blank_result(variant, board.problem), status="pass", reason=UNCHECKED)
        result, plan = _on_the_board(board, variant, unchecked)
        if plan is None:
            found[index] = result
        else:
            yield index, result, plan, None


def _repeated_inputs(op: Op, problem: Problem) -> dict[str, Array]:
    """Return normal values for the inputs of a run that is not checked; many repeat, to draw them quickly."""
    values = np.random.default_rng(0).standard_normal(_FEW_VALUES, np.float32)
    return {
        one.name: np.resize(values.astype(DTYPES[one.dtype(problem)]), one.shape_in(problem))
        for one in op.inputs(problem)
    }


def _on_the_board(board: RepeatedRows, variant: Variant, result: Result) -> tuple[Result, Plan | None]:
    """Return a variant's result so far, and its plan on the whole board if it is right."""
    if result.status != "pass":
        return result, None
    try:
        return result, board.prepare(variant)
    except Exception as error:
        return failed_result(board, variant, replace(result, status="error"), error), None


# --- one problem


def pace_of(device: Device) -> timing.Pace:
    """Return the device's pace for all problems of a record; it settles once, and again after idling."""
    copying = Task(OPS["copy"], OPS["copy"].problem(rows=_PACE_ROWS, cols=_PACE_COLS))
    return timed_work.timing_setup(
        RepeatedRows(device, copying, _PACE_SETS), timing.StoppingRule().settle_s
    ).pace


def rule_of(rounds: int) -> timing.StoppingRule:
    """Return a rule with at most this number of rounds, and fewer if all samples agree."""
    return timing.StoppingRule(
        least=min(_LEAST_ROUNDS, rounds), most=rounds, spread=_SPREAD, budget_s=_BUDGET_S
    )


def measure(
    device: Device,
    task: Task,
    rounds: int,
    alone: bool = False,
    known: KnownResults | None = None,
    pace: timing.Pace | None = None,
    laps: Laps | None = None,
    checked: bool = True,
) -> list[Result]:
    """Measure the copies, webnorm's variants and, unless `alone`, the contenders, in turn.

    Without `checked` nothing is compared with float64, the timed work is not proved, and inputs repeat a few
    values. Results then have the reason UNCHECKED. Contenders are checked, so this needs `alone`.
    """
    assert checked or alone
    known, laps = known or KnownResults(), laps or Laps()
    sets = bench.sets_for(task, device.traits)
    own = own_variants(task, device.traits, known.tuned)
    check_memory(task, device, sets)
    board = RepeatedRows(device, task, sets, draw=make_inputs if checked else _repeated_inputs)
    laps.mark("inputs")
    results: dict[int, Result] = {}
    right = list(_tried(board, own, known.results, results) if checked else _prepared(board, own, results))
    laps.mark("own")
    rivals = [] if alone else list(_entered(board, task, own, known, laps))
    results |= _timed(board, right, rivals, own, rule_of(rounds), pace, laps, checked)
    at = own.whole[1]
    tried = known.tuned.tried if known.tuned else None
    results[at] = replace(results[at], auto=own.auto.source, tried=tried)
    found = [results[index] for index in range(len(own.variants))]
    found += [rival.measured(board.cold) for rival in rivals]
    del rivals
    release()
    return bench.with_share_of_copy(found)


def _timed(
    board: RepeatedRows,
    right: Sequence[_Right],
    rivals: Sequence[ContenderRun],
    own: OwnVariants,
    rule: timing.StoppingRule,
    pace: timing.Pace | None,
    laps: Laps,
    checked: bool,
) -> dict[int, Result]:
    """Time the variants in turn with the contenders; if `checked`, verify that the timed work was done."""
    if not right:
        return {}
    if pace is not None:
        pace.settled = True
        pace.ready()
    setup = timed_work.timing_setup(board, rule.settle_s)
    if pace is not None:
        setup = replace(setup, pace=pace)
    running = [jobs.timed_variant(setup, *one) for one in right]
    laps.mark("warming up")

    def sample_rivals() -> list[list[float]]:
        laps.mark("own timing")
        timed = [rival for rival in rivals if rival.sampler is not None]
        for rival in timed:
            assert rival.sampler is not None
            rival.samples.append(rival.sampler.sample())
        laps.mark("rivals' timing")
        return [rival.samples for rival in timed]

    for _ in jobs.fill_samples(setup, running, rule, sample_rivals):
        pass
    if not checked:
        return {one.index: jobs.with_times(setup, one.result, one) for one in running}
    # The record's claims concern webnorm's choice and a copy. The others only have their outputs checked.
    others = {one.index for one in running if not one.result.roofline} - {*own.whole}
    verdicts = jobs.check_all_timed_work(setup, running, others)
    found = {event.index: event.result for event in verdicts if isinstance(event, jobs.VariantResult)}
    laps.mark("proof")
    return found
