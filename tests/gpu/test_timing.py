"""The start, order and end of timing, its statistics and flags, with a fake clock."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import wgpu
from card import Card

from testbed import kernel_named
from webnorm.choice.defaults import default_variant
from webnorm.gpu import timing
from webnorm.gpu.device import Device, open_device
from webnorm.gpu.pipelines import compile_shader
from webnorm.gpu.schedule import Plan
from webnorm.gpu.stopwatch import Stopwatch, TimedDispatches
from webnorm.kernels.headers.traits import Traits
from webnorm.kernels.headers.variants import Variant
from webnorm.kernels.rendering.render import render_shader
from webnorm.lab.results.result import Calls, Result
from webnorm.lab.results.tables import drift_remarks
from webnorm.lab.run import jobs
from webnorm.lab.run.bench import sets_for, with_share_of_copy
from webnorm.lab.verify.problem_buffers import ProblemBuffers
from webnorm.lab.verify.timed_work import (
    SUSPICIOUS_ONE_SIDED_PERCENT,
    SUSPICIOUS_PERCENT,
    TimedVariant,
    TimingSetup,
    suspicious_percent,
)
from webnorm.op.op import Task, make_inputs
from webnorm.op.registry import OPS, as_copy_problem
from webnorm.ops.norms.problem import NormProblem

GPU = Traits(frozenset(), 1024, 32768, software=False)
CPU = Traits(frozenset(), 1024, 32768, software=True)


def rounds_until_enough(
    sample: float, jitter: float, rule: timing.StoppingRule, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, float]:
    """Return the rounds and seconds until the rule stops a plan.

    Each of its samples takes `sample` seconds.
    """
    now = 0.0
    monkeypatch.setattr(timing, "clock", lambda: now)
    samples: list[list[float]] = [[], []]
    began = timing.clock()
    while not timing.enough(samples, rule, began):
        for index, own in enumerate(samples):
            own.append(100.0 + (jitter if (len(own) + index) % 2 else 0.0))
            now += sample
    return len(samples[0]), now


def test_quiet_samples_stop_after_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = timing.StoppingRule(least=7, most=50, spread=0.01, budget_s=100)
    assert rounds_until_enough(0.001, 0.0, rule, monkeypatch)[0] == 7


def test_noise_asks_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = timing.StoppingRule(least=5, most=1000, spread=0.01, budget_s=1e9)
    some, _ = rounds_until_enough(0.001, 5.0, rule, monkeypatch)
    more, _ = rounds_until_enough(0.001, 20.0, rule, monkeypatch)
    assert 5 < some < more < 1000


def test_the_most_rounds_and_the_budget_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    noisy = timing.StoppingRule(least=5, most=12, spread=1e-9, budget_s=1e9)
    assert rounds_until_enough(0.001, 50.0, noisy, monkeypatch)[0] == 12
    short = timing.StoppingRule(least=5, most=10**6, spread=1e-9, budget_s=3.0)
    rounds, seconds = rounds_until_enough(0.5, 50.0, short, monkeypatch)
    assert (rounds, seconds) == (3, 3.0)


def test_statistics() -> None:
    found = timing.statistics([5.0, 1.0, 2.0, 3.0, 4.0, 6.0])
    assert (found.median, found.p20, found.p80) == (3.5, 2.0, 5.0)
    assert found.spread == pytest.approx(3 / 3.5)


def test_flags() -> None:
    assert timing.flags([100.0] * 30) == ()
    assert timing.flags([100.0, 150.0] * 15) == ("noisy",)
    assert "throttled" in timing.flags([100.0] * 20 + [130.0] * 10)
    assert timing.flags([100.0] * 5) == ()
    assert timing.flags([100.0, 200.0, 100.0, 200.0]) == ("few samples",)


def result(op: str, gbps: float | None) -> Result:
    problem = NormProblem(rows=1, cols=1)
    status: Any = "pass" if gbps else "fail"
    return Result(op=op, kernel=op, constants={}, problem=problem, status=status, gbps=gbps)


def test_the_best_copy_counts_and_too_good_is_suspicious() -> None:
    """This applies to every adapter, because a program on the CPU has the same memory as its copy."""
    found = with_share_of_copy(
        [
            result("copy", 50.0),
            result("copy", 100.0),
            result("layer_norm", 90.0),
            result("layer_norm", SUSPICIOUS_PERCENT + 1),
            result("layer_norm", None),
        ]
    )
    assert [one.percent_of_copy for one in found] == [50.0, 100.0, 90.0, SUSPICIOUS_PERCENT + 1, None]
    assert [one.flags for one in found] == [(), (), (), ("suspicious",), ()]


def test_a_kernel_that_only_reads_may_beat_a_copy() -> None:
    """A gradient reads x and dy and writes dx. This is a third of the way from a copy to reads only."""
    problem = NormProblem(rows=1, cols=1024)
    assert suspicious_percent(OPS["layer_norm"], problem) == SUSPICIOUS_PERCENT
    assert suspicious_percent(OPS["layer_norm_backward"], problem) == pytest.approx(110.0)
    reads = replace(OPS["layer_norm"], tensors=OPS["layer_norm"].inputs(problem))
    assert suspicious_percent(reads, problem) == SUSPICIOUS_ONE_SIDED_PERCENT


COPY = OPS["copy"]


def test_sets_keep_the_cache_out_on_gpus_only() -> None:
    small, large = NormProblem(rows=1024, cols=1024), NormProblem(rows=65536, cols=4096)
    assert sets_for(Task(COPY, small), CPU) == 1
    assert sets_for(Task(COPY, small), GPU) == 128
    assert sets_for(Task(COPY, NormProblem(rows=1, cols=1)), GPU) == 1024
    assert sets_for(Task(COPY, large), GPU) == 1
    assert sets_for(Task(COPY, NormProblem(rows=65536, cols=1024)), GPU) == 2


@pytest.mark.slow
def test_without_timestamp_queries_the_wall_clock_is_used(device: Device) -> None:
    plain = open_device(without=frozenset({"timestamp-query"}))
    assert not plain.timestamps
    problem = NormProblem(rows=64, cols=256)
    variant = default_variant(kernel_named("two_pass"), problem, plain.traits)
    task = Task(variant.kernel.op, problem)
    job = jobs.TimingJob(
        task,
        (jobs.VariantSpec.of(variant),),
        (),
        sets=2,
        rule=timing.StoppingRule(least=2, most=2),
    )
    (found,) = [event for event in jobs.time_variants(plain, job) if isinstance(event, jobs.VariantResult)]
    assert found.result.timing_method == "wall clock"
    assert found.result.median_ns and found.result.median_ns > 0
    assert found.result.cache == "warm" and (found.result.dispatches_per_sample or 0) >= 1
    assert found.result.deterministic


def test_a_kernel_whose_timed_bits_differ_fails(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check compares the buffers of the timed runs. Here another kernel does those runs."""
    problem = NormProblem(rows=8, cols=64)
    variant = default_variant(kernel_named("naive"), problem, device.traits)
    honest = Stopwatch.submit
    stray = default_variant(kernel_named("copy"), problem, device.traits)

    def dishonest(self: Stopwatch, plan: TimedDispatches, dispatches: range) -> timing.Reading:
        if not isinstance(plan, Plan):
            return honest(self, plan, dispatches)
        shader = render_shader(stray, as_copy_problem(problem), "native", device.traits)
        x, y = ({name: plan.buffers[name]} for name in ("x", "y"))
        return honest(self, Plan(device, shader, x, y, compile_shader(device, shader)), dispatches)

    monkeypatch.setattr(Stopwatch, "submit", dishonest)
    task = Task(variant.kernel.op, problem)
    job = jobs.TimingJob(
        task,
        (jobs.VariantSpec.of(variant),),
        (),
        sets=1,
        rule=timing.StoppingRule(least=1, most=1),
    )
    (found,) = [event for event in jobs.time_variants(device, job) if isinstance(event, jobs.VariantResult)]
    assert found.result.status == "fail" and found.result.deterministic is False
    assert found.result.median_ns is None


# --- a device that slows down when it idles


def run_on(
    card: Card, pace: timing.Pace, rule: timing.StoppingRule, **samplers: timing.Sampler
) -> dict[str, float]:
    """Return the medians of samplers that take turns on a card."""
    samples: list[list[float]] = [[] for _ in samplers]
    for _ in timing.take_turns(list(samplers.values()), samples, rule, pace):
        pass
    return {name: float(np.median(own)) for name, own in zip(samplers, samples, strict=True)}


RULE = timing.StoppingRule(least=10, most=50, settle_s=0.5)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    card = Card()
    monkeypatch.setattr(timing, "clock", card.clock)
    return card


def paced(card: Card, settle_s: float = RULE.settle_s) -> timing.Pace:
    return timing.Pace(card.sampler("copy", 100.0), settle_s)


@pytest.mark.parametrize("idle", [0.0, 0.3, 10.0, 3600.0])
def test_a_figure_does_not_depend_on_how_long_the_device_idled(idle: float, card: Card) -> None:
    run_on(card, paced(card), RULE, copy=card.sampler("copy", 100.0))
    card.now += idle
    found = run_on(card, paced(card), RULE, copy=card.sampler("copy", 100.0), a=card.sampler("a", 70.0))
    assert found == pytest.approx({"copy": 100.0, "a": 70.0}, rel=1e-3)


def test_the_card_of_these_tests_shows_a_stopwatch_that_does_not_settle(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is a mutant: without the pace a time belongs to another clock, as on an H200."""
    monkeypatch.setattr(timing.Pace, "ready", lambda self: None)
    found = run_on(card, paced(card), RULE, a=card.sampler("a", 70.0))
    assert found["a"] > 1.5 * 70.0


def test_agreement_over_less_than_the_plateau_is_the_wrong_clock(card: Card) -> None:
    """This is the reason for a long settle_s.

    For a fifth of it, the lowest clock is stable and looks settled.
    """
    found = run_on(card, paced(card, RULE.settle_s / 5), RULE, a=card.sampler("a", 70.0))
    assert found["a"] > 1.5 * 70.0


@pytest.mark.parametrize("pause", [0.2, 2.0, 30.0])
def test_after_a_pause_of_the_host_the_device_is_brought_back(pause: float, card: Card) -> None:
    pace, plain = paced(card), card.sampler("a", 70.0)
    samples: list[list[float]] = [[]]
    for event in timing.take_turns([plain], samples, RULE, pace):
        if isinstance(event, timing.RoundDone) and event.done == 5:
            card.now += pause
    # The pause does not affect the current sample, which started before it.
    assert samples[0] == pytest.approx([70.0] * len(samples[0]), rel=1e-3)
    assert pace.settled


def test_a_pause_that_cost_nothing_costs_three_samples(card: Card) -> None:
    pace = paced(card)
    pace.ready()
    card.events.clear()
    card.now += 0.3
    pace.ready()
    assert card.events.count("submit copy") == 3
    pace.ready()
    assert card.events.count("submit copy") == 3


def test_a_device_that_never_comes_to_rest_is_said_to_be_unsettled(card: Card) -> None:
    card.plateau, card.rise = 0.0, 20.0
    pace = paced(card)
    began = card.now
    pace.ready()
    assert not pace.settled
    assert card.now - began == pytest.approx(pace.limit_s, abs=0.1)
    # It does not settle after the next pause either. A run of many kernels must not wait so long for each.
    card.now += 1.0
    began = card.now
    pace.ready()
    assert not pace.settled
    assert card.now - began == pytest.approx(0.5, abs=0.1)


def test_a_yardstick_of_seconds_is_not_called_unsettled(card: Card) -> None:
    card.worked = 100.0
    card.free = card.now
    pace = timing.Pace(card.sampler("copy", 100.0, seconds=3.0), 0.5)
    pace.ready()
    assert pace.settled and card.events.count("submit copy") <= 6


def test_noise_is_no_reason_to_wait(card: Card) -> None:
    """The samples of a busy machine scatter, but their halves agree within that scatter."""
    rng = np.random.default_rng(0)

    def noisy() -> timing.Reading:
        card.now += 1e-3
        return lambda: float(rng.lognormal(4.6, 0.3))

    began = card.now
    pace = timing.Pace(noisy, 0.1)
    pace.ready()
    assert pace.settled and card.now - began < 1.0


def test_the_next_sample_is_under_way_before_the_last_is_read(card: Card) -> None:
    pace = paced(card)
    pace.ready()
    card.events.clear()
    card.starved = 0.0
    run_on(card, pace, RULE, a=card.sampler("a", 70.0), b=card.sampler("b", 90.0))
    turns = [f"{what} {name}" for name in "ab" for what in ("submit", "read")]
    assert card.events[:6] == ["submit a", "submit b", "read a", "submit a", "read b", "submit b"]
    assert {*card.events} == {*turns}
    assert card.starved < 1e-3


def test_samples_between_rounds_find_an_empty_queue(card: Card) -> None:
    pace, rounds = paced(card), []
    samples: list[list[float]] = [[], []]

    def between() -> list[list[float]]:
        assert card.free <= card.now
        rounds.append([len(own) for own in samples])
        return []

    samplers = [card.sampler("a", 70.0), card.sampler("b", 90.0)]
    for _ in timing.take_turns(samplers, samples, RULE, pace, between):
        pass
    assert rounds == [[n, n] for n in range(1, len(samples[0]) + 1)]


def test_the_rule_applies_to_samples_between_rounds(card: Card) -> None:
    samples: list[list[float]] = [[]]
    others: list[float] = []

    def between() -> list[list[float]]:
        # The first six samples scatter, and the others do not.
        others.append(100.0 + 50.0 * (len(others) % 2) * (len(others) < 6))
        return [others]

    rule = timing.StoppingRule(least=3, most=50, spread=0.01, budget_s=60)
    for _ in timing.take_turns([card.sampler("a", 70.0)], samples, rule, paced(card), between):
        pass
    assert 6 < len(samples[0]) == len(others) < 50


def test_drift_is_distinguished_from_noise() -> None:
    rng = np.random.default_rng(0)
    assert not timing.drifting([100.0] * 30)
    assert timing.drifting([100.0] * 15 + [105.0] * 15)
    assert timing.drifting([105.0] * 15 + [100.0] * 15)
    assert not timing.drifting([100.0, 110.0])
    assert timing.ratio_moved([100.0] * 15 + [101.0] * 15)
    noisy = [float(one) for one in 100 * rng.lognormal(0, 0.3, 30)]
    assert not timing.drifting(noisy)
    assert timing.drift([100.0] * 10 + [110.0] * 10) == pytest.approx(0.1)


# --- one problem, then the next


class Recorder:
    """A compute pass on a device that overlaps dispatches unless wgpu puts a barrier between them.

    wgpu tracks whole buffers: a dispatch waits for the previous one if both bind a buffer that may be
    written.
    """

    def __init__(self, writable: dict[int, set[int]]) -> None:
        self.writable, self.group = writable, 0
        self.last: set[int] = set()
        self.waited: list[bool] = []

    def set_pipeline(self, pipeline: object) -> None:
        pass

    def set_bind_group(self, index: int, group: object) -> None:
        self.group = id(group)

    def dispatch_workgroups(self, *counts: int) -> None:
        now = self.writable[self.group]
        self.waited.append(bool(now & self.last))
        self.last = now


@pytest.mark.parametrize(("calls", "waits"), [("one by one", True), ("at once", False)])
@pytest.mark.parametrize("name", ["registers", "streaming"])
def test_a_call_waits_for_the_one_before(
    name: str, calls: Calls, waits: bool, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU, dispatches with separate sets of buffers overlap.

    No caller sees the times that they then take.
    """
    problem = NormProblem(rows=8, cols=64)
    op = OPS["layer_norm"]
    writable: dict[int, set[int]] = {}
    kept = []
    original = type(device.handle).create_bind_group

    def spying(handle: Any, *, layout: Any, entries: Any, **more: Any) -> Any:
        group = original(handle, layout=layout, entries=entries, **more)
        kept.append(group)
        buffers = [entry["resource"]["buffer"] for entry in entries]
        may_write = wgpu.BufferUsage.STORAGE
        writable[id(group)] = {id(b) for b in buffers if b.usage & may_write and b not in inputs()}
        return group

    board = ProblemBuffers(device, Task(op, problem), make_inputs(op, problem), (), sets=4, calls=calls)

    def inputs() -> list[Any]:
        given = board._inputs[board.op.name].buffers
        return [] if given is None else [b for own in given.buffers.values() for b in own]

    monkeypatch.setattr(type(device.handle), "create_bind_group", spying)
    plan = board.prepare(default_variant(kernel_named(name), problem, device.traits))
    recorder = Recorder(writable)
    for index in range(8):
        plan.encode(recorder, index)
    assert recorder.waited == [False] + [waits] * 7


@pytest.mark.slow
def test_calls_one_by_one_are_as_right(device: Device) -> None:
    """The pipeline binds the shared buffer after the shader's own buffers."""
    problem = NormProblem(rows=8, cols=64)
    variant = default_variant(kernel_named("registers", "layer_norm_backward"), problem, device.traits)
    spec, task = jobs.VariantSpec.of(variant), Task(variant.kernel.op, problem)
    for calls in ("one by one", "at once"):
        job = jobs.TimingJob(task, (spec,), (), 3, timing.StoppingRule(least=2, most=2, settle_s=0), calls)
        (found,) = [
            event for event in jobs.time_variants(device, job) if isinstance(event, jobs.VariantResult)
        ]
        assert (found.result.status, found.result.calls) == ("pass", calls)


def test_samples_go_on_with_the_sets_where_the_last_one_stopped(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If each sample started with the first set, the first sets would stay in the cache.

    Others would stay unused.
    """
    problem = NormProblem(rows=8, cols=64)
    board = ProblemBuffers(
        device, Task(OPS["layer_norm"], problem), make_inputs(OPS["layer_norm"], problem), (), sets=5
    )
    plan = board.prepare(default_variant(kernel_named("naive"), problem, device.traits))
    stopwatch = Stopwatch(device)
    monkeypatch.setattr(Stopwatch, "dispatches", lambda self, plan, turns: 3)
    sampler, _ = stopwatch.sampler(plan)
    taken: list[int] = []
    encode = Plan.encode

    def spying(self: Plan, compute: Any, index: int = 0) -> None:
        taken.append(index % self.sets)
        encode(self, compute, index)

    monkeypatch.setattr(Plan, "encode", spying)
    for _ in range(5):
        assert sampler()() > 0
    assert taken == [0, 1, 2, 3, 4] * 3


@pytest.mark.parametrize(("after", "flagged"), [(1e5, False), (8e4, True)])
def test_results_with_drifting_copies_are_flagged(
    after: float, flagged: bool, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device becomes faster in the middle of a run, as if its clock had not settled."""
    problem = NormProblem(rows=8, cols=64)
    specs = tuple(
        jobs.VariantSpec.of(default_variant(kernel_named(name, op), OPS[op].problem(8, 64), device.traits))
        for name, op in (("copy", "copy"), ("naive", "layer_norm"))
    )
    taken = itertools.count()

    def moving(self: Stopwatch, plan: Plan, dispatches: range) -> timing.Reading:
        took = 1e5 if next(taken) < 60 else after
        return lambda: took

    monkeypatch.setattr(Stopwatch, "submit", moving)
    monkeypatch.setattr(jobs, "check_timed_work", lambda setup, one, usual_ns: one.result)
    monkeypatch.setattr(jobs, "clobber_overhead", lambda *_: 0.0)
    task = Task(OPS["layer_norm"], problem)
    job = jobs.TimingJob(task, specs, (), 1, timing.StoppingRule(least=40, most=40, settle_s=0))
    found = [
        event.result for event in jobs.time_variants(device, job) if isinstance(event, jobs.VariantResult)
    ]
    assert [("drifting" in one.flags) for one in found] == [flagged] * 2
    assert drift_remarks(found) == (["at the end copy took 20.0 % less time"] if flagged else [])


@pytest.mark.parametrize(
    ("remembers", "proofs", "rest"),
    [(False, ["256", "naive"], ["1024", "64"]), (True, ["256", "1024", "naive"], ["64"])],
)
def test_the_copy_used_for_comparison_is_proved(
    remembers: bool, proofs: list[str], rest: list[str], device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check proves the fastest copy, or the next one if it fails.

    It still compares the slower copies' bits.
    """
    problem = NormProblem(rows=8, cols=64)
    took = {64: 3e5, 256: 1e5, 1024: 2e5}
    copies = [Variant(kernel_named("copy", "copy"), {"workgroup_size": size, "accesses": 1}) for size in took]
    naive = default_variant(kernel_named("naive", "layer_norm"), problem, device.traits)
    seen: dict[str, list[str]] = {"check_timed_work": [], "check_ragged_samples": []}

    def sampled(self: Stopwatch, plan: Plan, dispatches: range) -> timing.Reading:
        return lambda: took.get(plan.shader.variant.constants["workgroup_size"], 4e5)

    def proof(kind: str) -> Callable[..., Result]:
        def found(setup: TimingSetup, one: TimedVariant, *usual: Any) -> Result:
            name = str(one.result.constants["workgroup_size"]) if one.result.roofline else one.result.kernel
            seen[kind].append(name)
            wrong = remembers and (kind, name) == ("check_timed_work", "256")
            return replace(one.result, status="fail") if wrong else one.result

        return found

    monkeypatch.setattr(Stopwatch, "submit", sampled)
    monkeypatch.setattr(jobs, "clobber_overhead", lambda *_: 0.0)
    for kind in seen:
        monkeypatch.setattr(jobs, kind, proof(kind))
    specs = tuple(map(jobs.VariantSpec.of, [*copies, naive]))
    task = Task(OPS["layer_norm"], problem)
    job = jobs.TimingJob(task, specs, (), 1, timing.StoppingRule(least=3, most=3, settle_s=0))
    assert sum(isinstance(event, jobs.VariantResult) for event in jobs.time_variants(device, job)) == len(
        specs
    )
    assert seen == {"check_timed_work": proofs, "check_ragged_samples": rest}


def test_how_many_rounds_there_will_be_follows_the_budget_and_the_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timing, "clock", lambda: 10.0)
    rule = timing.StoppingRule(least=10, most=400, spread=0.01, budget_s=20.0)
    # At two rounds per second the budget allows forty. Two rounds are too few to estimate the noise.
    assert timing.rounds_asked([[1.0, 1.0], [2.0, 2.0]], rule, 9.0) == 40
    quiet = [[1.0] * 20, [2.0] * 21]
    assert timing.rounds_asked(quiet, rule, 9.0) == 20
    # (p80 - p20) / median is 0.099. A hundred rounds reduce the error to a tenth of it.
    noisy = [[1.0, 0.9505, 1.0495, 1.0, 0.9505, 1.0495] * 4]
    assert timing.rounds_asked(noisy, rule, 9.9) in (98, 99)
    assert timing.rounds_asked(noisy, rule, 0.0) == 48
    assert timing.rounds_asked([[1.0, 5.0] * 5], rule, 9.9999) == 400


def test_a_round_takes_the_percentiles_of_each_once(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    """`enough` and `rounds_asked` share one computation of each plan's percentiles."""
    pace = paced(card)
    pace.ready()
    taken: list[int] = []

    def counting(samples: Sequence[float]) -> timing.TimeStatistics:
        taken.append(len(samples))
        return original(samples)

    original = timing.statistics
    monkeypatch.setattr(timing, "statistics", counting)
    rule = timing.StoppingRule(least=8, most=8)
    samples: list[list[float]] = [[], []]
    rounds = [
        event
        for event in timing.take_turns([card.sampler("a", 70.0)] * 2, samples, rule, pace)
        if isinstance(event, timing.RoundDone)
    ]
    assert [one.of for one in rounds] == [8] * 8
    assert taken == [done for done in range(timing.FEW_SAMPLES, 9) for _ in samples]


def test_a_rule_of_few_rounds_goes_by_their_spread() -> None:
    few = timing.StoppingRule(least=2, most=400)
    assert timing.enough([[1.0, 1.0]], few, timing.clock())
    assert not timing.enough([[1.0]], few, timing.clock()) and not timing.enough([[]], few, timing.clock())
