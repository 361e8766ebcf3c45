"""Whether what was timed did the work: outputs after timed dispatches, dispatches that find nothing of their
own, and no more bytes than a copy moves.
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
# A dispatch that finds nothing of its own may take so many times as long as the others: noise, and what
# caches make of buffers that were just written.
MOST_SLOWER = 1.3
# Dispatches that are timed by themselves for each sample of many, at most.
_ALONE = 16
# Pairs or rounds of samples before anyone is blamed, since who shares a device is disturbed for several in a
# row, and after which a ratio that is nearer to 1 than to the limit is not looked into; and at most.
_MANY_RATIOS, _MOST_RATIOS = 15, 31
# The share of pairs whose bits are read back, which takes longer than to time them.
_LOOKED_AT = 0.5
# Samples that end where no one could know.
_ENDS = 3
# A pass of one dispatch takes longer than its share of a pass of many; of several kernels the one more, the
# other less, but not so many times as much.
_USUAL_EXTRA = 2.0
# What it takes a program on the CPU to turn from one pipeline to another: itself, and for each of a
# workgroup's invocations. llvmpipe took up to 90 us for 1024, with code that is not optimised, and 40 for
# the 64 of a copy on a machine that others use.
_SWITCHING_NS, _INVOCATION_NS = 4e4, 100.0
# A larger share of a copy than clocks and luck explain: of an op that writes as much as it reads, and of one
# that only reads or only writes, since memory that does not turn from one to the other is faster. A copy
# reached 88 % of the nominal rate of an H200's memory, argmax 94 %.
SUSPICIOUS_PERCENT, SUSPICIOUS_ONE_SIDED_PERCENT = 105.0, 120.0
_FEW_SETS = 8


@dataclass
class TimedVariant:
    """A variant that is right: how to run it, the bits of its outputs (None where a sieve vouches for it),
    and how it is sampled.
    """

    index: int
    result: Result
    plan: Plan
    golden: Golden | None
    sampler: timing.Sampler
    dispatches: int
    samples: list[float]


@dataclass(frozen=True)
class TimingSetup:
    """What variants are timed with: their board, a clock, and the device's pace by a copy; `copying` is the
    copy's plan, and the dispatches of its samples.
    """

    board: ProblemBuffers
    stopwatch: Stopwatch
    pace: timing.Pace
    copying: tuple[Plan, int]


def timing_setup(board: ProblemBuffers, settle_s: float) -> TimingSetup:
    """With a copy as it runs by default; a GPU comes to rest within these seconds, a processor sooner."""
    copy = load(wgsl_root() / "copy" / "copy.wgsl")
    traits, stopwatch = board.device.traits, Stopwatch(board.device)
    plan = board.prepare(default_variant(copy, board.copied, traits))
    sampler, dispatches = stopwatch.sampler(plan, board.turns)
    settle_s = min(settle_s, SOFTWARE_SETTLES_S) if traits.software else settle_s
    return TimingSetup(board, stopwatch, timing.Pace(sampler, settle_s), (plan, dispatches))


def sampler(setup: TimingSetup, plan: Plan) -> tuple[timing.Sampler, int]:
    """Samples of a plan, and how many dispatches each has. All that the plan could remember of the last one
    is spoiled before each: what a kernel knows when a sample begins it knows of no one's call.
    """
    turns, spoiling = setup.board.turns, setup.board.spoiling(plan)
    dispatches = setup.stopwatch.dispatches(plan, turns)
    return lambda: _sample(setup, spoiling, plan, turns.take(dispatches)), dispatches


def _sample(
    setup: TimingSetup, spoiling: Callable[[range], PreparedDispatches], plan: Plan, dispatches: range
) -> timing.Reading:
    """A sample under way, as all that count are taken."""
    setup.board.device.run_pass(spoiling(dispatches).encode)
    return setup.stopwatch.submit(plan, dispatches)


def check_timed_work(setup: TimingSetup, one: TimedVariant, usual_ns: float) -> Result:
    """The result of a variant after its timed runs, which have to be runs that did all the work.

    First come its `ends`. Then dispatches that are each the first on their set since all was spoiled: their
    bits must be right, and they must take about as long, but for `usual_ns`.
    """
    ended = check_ragged_samples(setup, one)
    if ended.status == "fail":
        return ended
    board, plan = setup.board, one.plan
    switching_ns = _switching_ns(board, plan)
    usual_ns += switching_ns
    found = first_dispatch_time(setup, plan, one.dispatches, usual_ns, golden=one.golden)
    if found.slower:
        # Unless something else keeps the device busy just now, which a copy then suffers from, too: it takes
        # so many times as long, or so much longer where threads wait for a processor before they begin.
        copy = first_dispatch_time(setup, *setup.copying, usual_ns)
        ratio = copy.ratio if copy.slower else 1.0
        disturbed_ns = _USUAL_EXTRA * copy.extra_ns[1] + switching_ns
        # What was measured with less allowed for is no evidence then.
        earlier = () if copy.slower or disturbed_ns > usual_ns else found.ratios
        usual_ns = max(usual_ns, disturbed_ns)
        found = first_dispatch_time(setup, plan, one.dispatches, usual_ns, ratio, earlier, one.golden)
    if found.strayed is not None:
        return _strayed(board, one, found.strayed)
    # Calls at once overlap as they like in a sample, and not across what spoils.
    if found.slower and board.calls == "one by one":
        reason = (
            f"on buffers that hold nothing of its own a dispatch takes {found.ratio:.3g} times as long as in "
            "the samples: those leave out work that earlier dispatches have done"
        )
        return replace(one.result, status="fail", reason=reason)
    return one.result


def check_ragged_samples(setup: TimingSetup, one: TimedVariant) -> Result:
    """The result after samples like the others, but of lengths that no one could know: every set of buffers
    must then hold the right bits.

    One of them is no shorter and counts like the others: one, since samples of a round stand side by side.
    """
    board, pace = setup.board, setup.pace
    usual = max(one.dispatches, board.sets)
    spoiling = board.spoiling(one.plan)
    for number, least in enumerate((usual, *[board.sets] * (_ENDS - 1))):
        pace.ready()
        dispatches = board.turns.take(random.randrange(least, 2 * usual))
        taken = _sample(setup, spoiling, one.plan, dispatches)()
        pace.worked()
        if number == 0:
            one.samples.append(taken)
        if one.golden is not None and not board.holds(one.plan, one.golden, dispatches):
            return _strayed(board, one, dispatches)
    return one.result


def clobber_overhead(setup: TimingSetup) -> float:
    """Nanoseconds that a dispatch may take longer on spoiled buffers: what a copy does, which remembers
    nothing.
    """
    return _USUAL_EXTRA * first_dispatch_time(setup, *setup.copying).extra_ns[0]


def _switching_ns(board: ProblemBuffers, plan: Plan) -> float:
    """What it takes to turn from what spoils to a plan, whose code and stacks are no longer in a cache."""
    if not board.device.traits.software:
        return 0.0
    shader = plan.shader
    # A pass of no workgroups is no dispatch.
    run = [each for each in shader.passes if shader.workgroup_count(each, shader.problem.batch_size)]
    return _SWITCHING_NS + _INVOCATION_NS * max((each.workgroup_size for each in run), default=0)


def suspicious_percent(op: Op, problem: Problem) -> float:
    """The share of a copy's bytes per second, in percent, above which a time is not believed."""
    more = SUSPICIOUS_ONE_SIDED_PERCENT - SUSPICIOUS_PERCENT
    return SUSPICIOUS_PERCENT + more * op.one_sidedness(problem)


def impossible_times(setup: TimingSetup, running: Sequence[TimedVariant]) -> dict[int, str]:
    """Those that are faster than the bytes they have to move can be, and what is said of them.

    The bound is what the best copy takes for as many bytes, beside what an empty dispatch takes. Whoever
    passes it by the samples so far, which may be few and disturbed, is timed again beside an empty dispatch
    and every copy: round by round there must be no doubt of it.
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
        """What the bound would take of what it took, round by round."""
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
        # Of so small a problem a device has more to do to begin and to end than to move it.
        return {}
    found = {}
    for one, own in zip(suspects, owns, strict=True):
        low = min(intervals.median_interval(percents(one, own, times, empty))[0] for times in every)
        if low > most[one.index]:
            percent = np.median(percents(one, own, copying))
            found[one.index] = (
                f"{percent:.0f} % of copy: nothing is faster for long that reads and writes each byte once; "
                "work was left out, or something else slowed the copy down"
            )
    return found


def _round(pace: timing.Pace, samplers: Sequence[timing.Sampler]) -> list[float]:
    """A sample of each, one after another."""
    pace.ready()
    taken = [sample()() for sample in samplers]
    pace.worked()
    return taken


def _empty_sampler(board: ProblemBuffers) -> timing.Sampler:
    """Samples of a dispatch that has next to nothing to do."""
    copy = copy_op()
    problem, sets = copy.problem(1, 16, dtype=board.problem.dtype), min(board.sets, _FEW_SETS)
    arrays = make_inputs(copy, problem)
    tiny = ProblemBuffers(board.device, Task(copy, problem), arrays, (), sets, board.calls)
    setup = timing_setup(tiny, 0.0)
    return sampler(setup, setup.copying[0])[0]


class FirstDispatchTime(NamedTuple):
    """What a dispatch on spoiled buffers takes compared with one of a sample: in each pair the nanoseconds
    more, and how many times as long once those that are usual are taken off; whether that is too many; and
    such dispatches that left wrong bits, where some did.
    """

    extras_ns: tuple[float, ...]
    ratios: tuple[float, ...]
    slower: bool
    strayed: range | None = None

    @property
    def ratio(self) -> float:
        """The median."""
        return float(np.median(self.ratios))

    @property
    def extra_ns(self) -> tuple[float, float]:
        """The nanoseconds more of which there is no doubt, and how many they may be; 0 at least."""
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
    """Time dispatches that are each the first on its set of buffers since everything was spoiled, in turn
    with samples of so many. What one may take longer without anything being remembered is `usual_ns`, and
    `usual_ratio` times of the rest. Where these do not tell, those and `earlier` ratios do.

    The last of them have to leave the `golden` bits and, with one set of buffers, those of half of the pairs,
    nobody knows which.
    """
    extra: list[float] = []
    ratios: list[float] = []
    for first, sample, last in _first_times(setup, plan, dispatches):
        extra.append(first - sample)
        # A small problem's time may be lost in what it is a difference of.
        ratios.append((first - usual_ns) / sample / usual_ratio if sample > 0 else 1.0)
        slower = _slower(ratios)
        if slower is None and len(ratios) == _MOST_RATIOS:
            slower = bool(earlier) and _slower([*earlier, *ratios]) is True
        # Several sets hold answers to both versions of the inputs.
        looked_at = slower is not None or (setup.board.sets == 1 and random.random() < _LOOKED_AT)
        if golden is not None and looked_at and not setup.board.holds(plan, golden, last):
            return FirstDispatchTime(tuple(extra), tuple(ratios), False, last)
        if slower is not None:
            return FirstDispatchTime(tuple(extra), tuple(ratios), slower)
    raise AssertionError("_first_times does not end")


def _slower(ratios: Sequence[float]) -> bool | None:
    """Whether these are of what takes more than it may; None while they do not tell."""
    low, high = intervals.median_interval(np.array(ratios))
    if high < MOST_SLOWER:
        return False
    if len(ratios) < _MANY_RATIOS:
        return None
    near = float(np.median(ratios)) < (1 + MOST_SLOWER) / 2
    return True if low > MOST_SLOWER else False if near else None


def _first_times(setup: TimingSetup, plan: Plan, dispatches: int) -> Iterator[tuple[float, float, range]]:
    """Again and again the time of such a dispatch, that of one in a sample, and which the first were.

    With one set a dispatch is timed by itself, if the clock can. Else what spoils lies between them, and is
    timed without them, too. A GPU that others use gives each of them a slice of its time, and what outlasts
    its own waits for theirs: on an H200 with 16 busy processes that made 100 us of 5, where samples of 0.6 ms
    took no longer than alone. So the GPU's clock gets no more of them than make a sample. Where the clock
    counts what a pass takes to begin, which may be longer than a small problem, or to wake threads, the
    sample is taken like that as well.
    """
    board, stopwatch = setup.board, setup.stopwatch
    sets, spoiling = board.sets, board.spoiling(plan)
    each = board.spoil_scratch(plan) if board.calls == "one by one" else None
    exact = stopwatch.method == "timestamp" and not board.device.traits.software
    count = dispatches
    if exact and sets > 1:
        count = min(
            count, stopwatch.dispatches(ClobberedDispatches(spoiling(range(1)), None, 1, plan), board.turns)
        )
    if count > sets:
        # What spoils goes over all sets before any is written again: none may be left so.
        count = -(-count // sets) * sets

    def difference(each: PreparedDispatches | None, every: int) -> tuple[timing.Reading, range]:
        numbers = board.turns.take(count)
        noise = spoiling(numbers)
        without = stopwatch.submit(ClobberedDispatches(noise, each, every, first=numbers.start), numbers)
        both = stopwatch.submit(ClobberedDispatches(noise, each, every, plan, numbers.start), numbers)
        return lambda: both() - without(), numbers

    while True:
        setup.pace.ready()
        if sets == 1:
            # The last of them takes one version of the inputs or the other: this passes over a number or not.
            board.turns.take(random.randrange(2))
        if exact:
            sample = _sample(setup, spoiling, plan, board.turns.take(dispatches))
        else:
            sample, _ = difference(None, count)
        if exact and sets == 1:
            numbers = [board.turns.take(1) for _ in range(min(dispatches, _ALONE))]
            singles = [_sample(setup, spoiling, plan, number) for number in numbers]
            sampled, first = sample(), float(np.median([reading() for reading in singles]))
            last = numbers[-1]
        else:
            single, last = difference(each, sets)
            sampled, first = sample(), single()
        setup.pace.worked()
        yield first, sampled, last


def _strayed(board: ProblemBuffers, one: TimedVariant, dispatches: range) -> Result:
    """The result of a variant whose timed dispatches left other bits than the first, with its errors."""
    at = (dispatches.stop - 1) % board.sets
    result = replace(one.result, status="fail", deterministic=False)
    try:
        accuracy, _ = board.outcome(one.plan, board.version(one.plan, dispatches.stop - 1), at)
    except RepeatedRowsDiffer as unlike:
        return replace(result, reason=str(unlike))
    result = replace(with_accuracy(result, accuracy), status="fail")
    return replace(result, reason=accuracy.reason or UNSTEADY)
