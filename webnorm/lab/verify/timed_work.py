"""The proof that timed dispatches did the work.

It consists of three checks. Outputs are right after timed dispatches. Dispatches on buffers without earlier
results take about as long. No kernel moves more bytes per second than a copy.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from webnorm.choice.defaults import default_variant
from webnorm.gpu import timing
from webnorm.gpu.compute_programs import PreparedDispatches
from webnorm.gpu.schedule import Plan
from webnorm.gpu.stopwatch import Stopwatch
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.lab.results import intervals
from webnorm.lab.results.result import Result
from webnorm.lab.verify.clobber import ClobberedDispatches
from webnorm.lab.verify.problem_buffers import Golden, ProblemBuffers, RepeatedRowsDiffer
from webnorm.lab.verify.trial import UNSTEADY, with_accuracy
from webnorm.op.dtypes import Array
from webnorm.op.op import Op, Task, make_inputs
from webnorm.op.problem import Problem
from webnorm.op.registry import copy_op

# A processor raises its clock within milliseconds.
SOFTWARE_SETTLES_S = 0.1
# A dispatch on overwritten buffers may take this many times as long as the others, because of noise and of
# caches after a write.
MOST_SLOWER = 1.3
# The most dispatches that are timed alone for each sample of many dispatches.
_ALONE = 16
# The first number of pairs is needed for a failure, because other users of a device disturb several pairs in
# a row. After it, a ratio closer to 1 than to the limit passes. The second number is the most pairs.
_MANY_RATIOS, _MOST_RATIOS = 15, 31
# The share of pairs whose bits are read back, which takes longer than timing them.
_READ_BACK = 0.5
# The number of samples with unpredictable lengths.
_ENDS = 3
# A pass of one dispatch takes longer than its share of a pass of many. The extra time depends on the kernel,
# but does not exceed this many times the copy's.
_USUAL_EXTRA = 2.0
# The time that a software adapter needs to switch pipelines, plus the time for each invocation of a
# workgroup. llvmpipe needed up to 90 us for 1024 invocations with unoptimized code. On a shared machine it
# needed 40 us for the copy's 64 invocations.
_SWITCHING_NS, _INVOCATION_NS = 4e4, 100.0
# Larger percentages of a copy are not explained by clocks and chance. The first limit is for ops that write
# as much as they read, the second for ops that only read or only write: memory is faster without switches
# between both. On an H200 a copy reached 88 % of the memory's nominal rate, argmax 94 %.
SUSPICIOUS_PERCENT, SUSPICIOUS_ONE_SIDED_PERCENT = 105.0, 120.0
_FEW_SETS = 8


@dataclass
class TimedVariant:
    """A right variant with its plan, the digests of its outputs (None to skip this check), and samples."""

    index: int
    result: Result
    plan: Plan
    golden: Golden | None
    sampler: timing.Sampler
    dispatches: int
    samples: list[float]


@dataclass(frozen=True)
class TimingSetup:
    """The setup to time variants: their board, a stopwatch, and the device's pace, measured with a copy.

    `copying` contains the copy's plan and its dispatches per sample.
    """

    board: ProblemBuffers
    stopwatch: Stopwatch
    pace: timing.Pace
    copying: tuple[Plan, int]


def timing_setup(board: ProblemBuffers, settle_s: float) -> TimingSetup:
    """Return a setup with the default copy; GPUs get `settle_s` seconds to settle, processors less."""
    copy = load(wgsl_root() / "copy" / "copy.wgsl")
    traits, stopwatch = board.device.traits, Stopwatch(board.device)
    plan = board.prepare(default_variant(copy, board.copied, traits))
    sampler, dispatches = stopwatch.sampler(plan, board.turns)
    settle_s = min(settle_s, SOFTWARE_SETTLES_S) if traits.software else settle_s
    return TimingSetup(board, stopwatch, timing.Pace(sampler, settle_s), (plan, dispatches))


def sampler(setup: TimingSetup, plan: Plan) -> tuple[timing.Sampler, int]:
    """Return a sampler of a plan, and its dispatches per sample.

    All memory of the plan is overwritten before each sample, so that a kernel cannot use earlier results.
    """
    turns, clobbering = setup.board.turns, setup.board.clobbering(plan)
    dispatches = setup.stopwatch.dispatches(plan, turns)
    return lambda: _sample(setup, clobbering, plan, turns.take(dispatches)), dispatches


def _sample(
    setup: TimingSetup, clobbering: Callable[[range], PreparedDispatches], plan: Plan, dispatches: range
) -> timing.Reading:
    """Start a sample in the way in which all samples are taken."""
    setup.board.device.run_pass(clobbering(dispatches).encode)
    return setup.stopwatch.submit(plan, dispatches)


def check_timed_work(setup: TimingSetup, one: TimedVariant, usual_ns: float) -> Result:
    """Return the result of a variant after its timed runs, with a failure if these did not do all the work.

    The first check is `check_ragged_samples`. The second runs dispatches that are each the first on their set
    after it was overwritten: their bits must be right, and apart from `usual_ns` they must take about as
    long.
    """
    ended = check_ragged_samples(setup, one)
    if ended.status == "fail":
        return ended
    board, plan = setup.board, one.plan
    switching_ns = _switching_ns(board, plan)
    usual_ns += switching_ns
    found = first_dispatch_time(setup, plan, one.dispatches, usual_ns, golden=one.golden)
    if found.slower:
        # Other work on the device may be the reason. It then also slows a copy down, by a factor, or by a
        # constant time if threads wait for a processor.
        copy = first_dispatch_time(setup, *setup.copying, usual_ns)
        ratio = copy.ratio if copy.slower else 1.0
        disturbed_ns = _USUAL_EXTRA * copy.extra_ns[1] + switching_ns
        # Earlier measurements with a smaller allowance then do not count.
        earlier = () if copy.slower or disturbed_ns > usual_ns else found.ratios
        usual_ns = max(usual_ns, disturbed_ns)
        found = first_dispatch_time(setup, plan, one.dispatches, usual_ns, ratio, earlier, one.golden)
    if found.strayed is not None:
        return _strayed(board, one, found.strayed)
    # Calls at once overlap within a sample, but not with the dispatches that overwrite buffers.
    if found.slower and board.calls == "one by one":
        reason = (
            f"on buffers without its own results a dispatch takes {found.ratio:.3g} times as long as in the "
            "samples, which skip work that earlier dispatches have done"
        )
        return replace(one.result, status="fail", reason=reason)
    return one.result


def check_ragged_samples(setup: TimingSetup, one: TimedVariant) -> Result:
    """Take samples of unpredictable lengths, and return the result: all sets must contain the right bits.

    The first of these samples is long enough to be added to the variant's samples. The others are not added,
    because samples of different variants are compared round by round.
    """
    board, pace = setup.board, setup.pace
    usual = max(one.dispatches, board.sets)
    clobbering = board.clobbering(one.plan)
    for number, least in enumerate((usual, *[board.sets] * (_ENDS - 1))):
        pace.ready()
        dispatches = board.turns.take(random.randrange(least, 2 * usual))
        taken = _sample(setup, clobbering, one.plan, dispatches)()
        pace.worked()
        if number == 0:
            one.samples.append(taken)
        if one.golden is not None and not board.holds(one.plan, one.golden, dispatches):
            return _strayed(board, one, dispatches)
    return one.result


def clobber_overhead(setup: TimingSetup) -> float:
    """Return the extra nanoseconds that a dispatch may take on overwritten buffers, measured with a copy."""
    return _USUAL_EXTRA * first_dispatch_time(setup, *setup.copying).extra_ns[0]


def _switching_ns(board: ProblemBuffers, plan: Plan) -> float:
    """Return the nanoseconds to switch to a plan whose code and stacks are not in a cache any more."""
    if not board.device.traits.software:
        return 0.0
    shader = plan.shader
    # A pass without workgroups is not dispatched.
    run = [each for each in shader.passes if shader.workgroup_count(each, shader.problem.batch_size)]
    return _SWITCHING_NS + _INVOCATION_NS * max((each.workgroup_size for each in run), default=0)


def suspicious_percent(op: Op, problem: Problem) -> float:
    """Return the percentage of a copy's bytes per second above which a time is suspicious."""
    more = SUSPICIOUS_ONE_SIDED_PERCENT - SUSPICIOUS_PERCENT
    return SUSPICIOUS_PERCENT + more * op.one_sidedness(problem)


def impossible_times(setup: TimingSetup, running: Sequence[TimedVariant]) -> dict[int, str]:
    """Return the variants that are faster than their bytes allow, with a reason each.

    The limit is the best copy's time for as many bytes, apart from the time of an empty dispatch. Existing
    samples may be few and disturbed. Variants beyond the limit are therefore timed again, together with an
    empty dispatch and every copy. The result has to be significant round by round.
    """
    board = setup.board
    copies = [one for one in running if one.result.roofline]
    if not copies:
        return {}
    copy = min(copies, key=lambda one: timing.statistics(one.samples).median)
    size = copy_op().minimum_bytes(board.copied)

    ops = {one.index: one.plan.shader.variant.kernel.op for one in running if not one.result.roofline}
    most = {index: suspicious_percent(op, board.problem) for index, op in ops.items()}

    def percents(one: TimedVariant, own: Array, copying: Array, empty: Array | float = 0.0) -> Array:
        """Return the time at the limit in percent of the measured time, round by round."""
        share = ops[one.index].certain_bytes(board.problem) / size
        return 100 * (empty + (copying - empty) * share) / own

    def suspected(one: TimedVariant) -> bool:
        own, copying = np.array(one.samples), np.array(copy.samples)
        return float(np.median(percents(one, own, copying))) > most[one.index]

    suspects = [one for one in running if size and not one.result.roofline and suspected(one)]
    if not suspects:
        return {}
    samplers = [_empty_sampler(board), *(one.sampler for one in [*copies, *suspects])]
    empty, *taken = np.array([_round(setup.pace, samplers) for _ in range(_MANY_RATIOS)]).T
    every, owns = taken[: len(copies)], taken[len(copies) :]
    copying = min(every, key=lambda times: float(np.median(times)))
    if np.median(copying) < 2 * np.median(empty):
        # For such a small problem the overhead of a dispatch exceeds the time to move its bytes.
        return {}
    found = {}
    for one, own in zip(suspects, owns, strict=True):
        low = min(intervals.median_interval(percents(one, own, times, empty))[0] for times in every)
        if low > most[one.index]:
            percent = np.median(percents(one, own, copying))
            found[one.index] = (
                f"{percent:.0f} % of copy, which is impossible for a kernel that reads and writes each byte "
                "once: it skipped work, or other work on the device slowed the copy down"
            )
    return found


def _round(pace: timing.Pace, samplers: Sequence[timing.Sampler]) -> list[float]:
    """Return one sample of each, taken in turn."""
    pace.ready()
    taken = [sample()() for sample in samplers]
    pace.worked()
    return taken


def _empty_sampler(board: ProblemBuffers) -> timing.Sampler:
    """Return a sampler of a dispatch with almost no work."""
    copy = copy_op()
    problem, sets = copy.problem(1, 16, dtype=board.problem.dtype), min(board.sets, _FEW_SETS)
    arrays = make_inputs(copy, problem)
    tiny = ProblemBuffers(board.device, Task(copy, problem), arrays, (), sets, board.calls)
    setup = timing_setup(tiny, 0.0)
    return sampler(setup, setup.copying[0])[0]


class FirstDispatchTime(NamedTuple):
    """The time of a dispatch on overwritten buffers, compared with a dispatch in a sample.

    Each pair gives the extra nanoseconds, and the ratio of times after subtraction of the usual extra time.
    `slower` is true if the ratio is too large. `strayed` contains dispatches that left wrong bits, if any.
    """

    extras_ns: tuple[float, ...]
    ratios: tuple[float, ...]
    slower: bool
    strayed: range | None = None

    @property
    def ratio(self) -> float:
        """The median ratio."""
        return float(np.median(self.ratios))

    @property
    def extra_ns(self) -> tuple[float, float]:
        """The bounds of the extra nanoseconds, at least 0."""
        low, high = intervals.median_interval(np.array(self.extras_ns))
        return max(0.0, low), max(0.0, high)


def first_dispatch_time(
    setup: TimingSetup,
    plan: Plan,
    dispatches: int,
    usual_ns: float = 0.0,
    usual_ratio: float = 1.0,
    earlier: Sequence[float] = (),
    golden: Golden | None = None,
) -> FirstDispatchTime:
    """Time dispatches that are each the first on an overwritten set of buffers, in turn with samples.

    A sample has `dispatches` dispatches. `usual_ns` and `usual_ratio` are the extra time and the ratio to
    allow for a kernel without memory. If the ratios are not conclusive, the `earlier` ones are added. The
    last dispatches have to leave the `golden` bits. With one set of buffers a random half of the pairs has
    to.
    """
    extra: list[float] = []
    ratios: list[float] = []
    for first, sample, last in _first_times(setup, plan, dispatches):
        extra.append(first - sample)
        # A small problem's time is a difference of large ones, and may be 0 or negative.
        ratios.append((first - usual_ns) / sample / usual_ratio if sample > 0 else 1.0)
        slower = _slower(ratios)
        if slower is None and len(ratios) == _MOST_RATIOS:
            slower = bool(earlier) and _slower([*earlier, *ratios]) is True
        # Several sets contain answers to both versions of the inputs.
        read_back = slower is not None or (setup.board.sets == 1 and random.random() < _READ_BACK)
        if golden is not None and read_back and not setup.board.holds(plan, golden, last):
            return FirstDispatchTime(tuple(extra), tuple(ratios), False, last)
        if slower is not None:
            return FirstDispatchTime(tuple(extra), tuple(ratios), slower)
    raise AssertionError("_first_times does not end")


def _slower(ratios: Sequence[float]) -> bool | None:
    """Return true if the ratios are too large; None if there are too few ratios to decide."""
    low, high = intervals.median_interval(np.array(ratios))
    if high < MOST_SLOWER:
        return False
    if len(ratios) < _MANY_RATIOS:
        return None
    near = float(np.median(ratios)) < (1 + MOST_SLOWER) / 2
    return True if low > MOST_SLOWER else False if near else None


def _first_times(setup: TimingSetup, plan: Plan, dispatches: int) -> Iterator[tuple[float, float, range]]:
    """Yield pairs without end: the time of a first dispatch, the time of one in a sample, and the numbers.

    With one set a dispatch is timed alone, if the clock is exact enough. Otherwise the overwriting dispatches
    run in between, and are also timed without the plan's, so that the difference is the plan's time.

    A GPU with several users gives each a slice of time, and work that exceeds its slice waits. On an H200
    with 16 busy processes that turned 5 us into 100 us, while samples of 0.6 ms took no longer than alone.
    With the GPU's clock the dispatches therefore are no more than in a sample. The clock may
    include the start of a pass or of threads, which can take longer than a small problem. The sample is then
    taken in the same way.
    """
    board, stopwatch = setup.board, setup.stopwatch
    sets, clobbering = board.sets, board.clobbering(plan)
    each = board.clobber_scratch(plan) if board.calls == "one by one" else None
    exact = stopwatch.method == "timestamp" and not board.device.traits.software
    count = dispatches
    if exact and sets > 1:
        count = min(
            count, stopwatch.dispatches(ClobberedDispatches(clobbering(range(1)), None, 1, plan), board.turns)
        )
    if count > sets:
        # All sets are overwritten before any is written again, so that each one must get a dispatch.
        count = -(-count // sets) * sets

    def difference(each: PreparedDispatches | None, every: int) -> tuple[timing.Reading, range]:
        numbers = board.turns.take(count)
        noise = clobbering(numbers)
        without = stopwatch.submit(ClobberedDispatches(noise, each, every, first=numbers.start), numbers)
        both = stopwatch.submit(ClobberedDispatches(noise, each, every, plan, numbers.start), numbers)
        return lambda: both() - without(), numbers

    while True:
        setup.pace.ready()
        if sets == 1:
            # The version of the inputs for the last dispatch is random: this may skip a number.
            board.turns.take(random.randrange(2))
        if exact:
            sample = _sample(setup, clobbering, plan, board.turns.take(dispatches))
        else:
            sample, _ = difference(None, count)
        if exact and sets == 1:
            numbers = [board.turns.take(1) for _ in range(min(dispatches, _ALONE))]
            singles = [_sample(setup, clobbering, plan, number) for number in numbers]
            sampled, first = sample(), float(np.median([reading() for reading in singles]))
            last = numbers[-1]
        else:
            single, last = difference(each, sets)
            sampled, first = sample(), single()
        setup.pace.worked()
        yield first, sampled, last


def _strayed(board: ProblemBuffers, one: TimedVariant, dispatches: range) -> Result:
    """Return the failure of a variant whose timed dispatches left other bits than the first one."""
    at = (dispatches.stop - 1) % board.sets
    result = replace(one.result, status="fail", deterministic=False)
    try:
        accuracy, _ = board.outcome(one.plan, board.version(one.plan, dispatches.stop - 1), at)
    except RepeatedRowsDiffer as error:
        return replace(result, reason=str(error))
    result = replace(with_accuracy(result, accuracy), status="fail")
    return replace(result, reason=accuracy.reason or UNSTEADY)
