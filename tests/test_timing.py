"""The stopping rule, statistics and flags, with a clock that the test turns."""

from __future__ import annotations

import pytest

from lab import kernel_named
from webnorm import lab, timing
from webnorm.bench import SUSPICIOUS_PERCENT, against_copy, sets_for
from webnorm.device import Device, Traits, open_device
from webnorm.kernel import default_variant
from webnorm.ops import OPS, plain
from webnorm.plan import Plan, compile_shader
from webnorm.problem import Problem
from webnorm.render import render_shader
from webnorm.results import Result

GPU = Traits(frozenset(), 1024, 32768, software=False)
CPU = Traits(frozenset(), 1024, 32768, software=True)


def rounds_until_enough(
    sample: float, jitter: float, rule: timing.Rule, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, float]:
    """Rounds and seconds until the rule says stop, for a plan whose samples take `sample` seconds."""
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
    rule = timing.Rule(least=7, most=50, spread=0.01, budget_s=100)
    assert rounds_until_enough(0.001, 0.0, rule, monkeypatch)[0] == 7


def test_noise_asks_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = timing.Rule(least=5, most=1000, spread=0.01, budget_s=1e9)
    some, _ = rounds_until_enough(0.001, 5.0, rule, monkeypatch)
    more, _ = rounds_until_enough(0.001, 20.0, rule, monkeypatch)
    assert 5 < some < more < 1000


def test_the_most_rounds_and_the_budget_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    noisy = timing.Rule(least=5, most=12, spread=1e-9, budget_s=1e9)
    assert rounds_until_enough(0.001, 50.0, noisy, monkeypatch)[0] == 12
    short = timing.Rule(least=5, most=10**6, spread=1e-9, budget_s=3.0)
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
    assert timing.flags([100.0, 101.0]) == ()


def result(op: str, gbps: float | None) -> Result:
    status = "pass" if gbps else "fail"
    return Result(op=op, kernel=op, constants={}, problem=Problem(rows=1, cols=1), status=status, gbps=gbps)  # type: ignore[arg-type]


def test_the_best_copy_counts_and_too_good_is_suspicious() -> None:
    found = against_copy(
        [
            result("copy", 50.0),
            result("copy", 100.0),
            result("a", 90.0),
            result("b", SUSPICIOUS_PERCENT + 1),
            result("c", None),
        ],
        GPU,
    )
    assert [one.percent_of_copy for one in found] == [50.0, 100.0, 90.0, SUSPICIOUS_PERCENT + 1, None]
    assert [one.flags for one in found] == [(), (), (), ("suspicious",), ()]
    on_cpu = against_copy([result("copy", 100.0), result("b", 200.0)], CPU)
    assert on_cpu[1].flags == ()


COPY = OPS["copy"]


def test_sets_keep_the_cache_out_on_gpus_only() -> None:
    small, large = Problem(rows=1024, cols=1024), Problem(rows=65536, cols=4096)
    assert sets_for(COPY, small, CPU) == 1
    assert sets_for(COPY, small, GPU) == 64
    assert sets_for(COPY, large, GPU) == 1
    assert sets_for(COPY, Problem(rows=65536, cols=1024), GPU) == 2


def test_without_timestamp_queries_the_wall_clock_is_used(device: Device) -> None:
    plain = open_device(without=frozenset({"timestamp-query"}))
    assert not plain.timestamps
    problem = Problem(rows=64, cols=256)
    variant = default_variant(kernel_named("two_pass"), problem, plain.traits)
    job = lab.TimingJob(
        problem, (lab.VariantSpec.of(variant),), (), sets=2, rule=timing.Rule(least=2, most=2)
    )
    (found,) = [event for event in lab.time_variants(plain, job) if isinstance(event, lab.Found)]
    assert found.result.timing_method == "wall clock"
    assert found.result.median_ns and found.result.median_ns > 0
    assert found.result.cache == "cold" and (found.result.dispatches_per_sample or 0) >= 2
    assert found.result.deterministic


def test_a_kernel_whose_timed_bits_differ_fails(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffers that were timed are compared: here the timed run is another kernel's in disguise."""
    problem = Problem(rows=8, cols=64)
    variant = default_variant(kernel_named("naive"), problem, device.traits)
    honest = timing.Stopwatch.time
    stray = default_variant(kernel_named("copy"), problem, device.traits)

    def dishonest(self: timing.Stopwatch, plan: Plan, dispatches: int) -> float:
        shader = render_shader(stray, plain(problem), "native", device.traits)
        other = Plan(device, shader, plan.buffers, {}, compile_shader(device, shader))
        return honest(self, other, dispatches)

    monkeypatch.setattr(timing.Stopwatch, "time", dishonest)
    job = lab.TimingJob(
        problem, (lab.VariantSpec.of(variant),), (), sets=1, rule=timing.Rule(least=1, most=1)
    )
    (found,) = [event for event in lab.time_variants(device, job) if isinstance(event, lab.Found)]
    assert found.result.status == "fail" and found.result.deterministic is False
    assert found.result.median_ns is None
