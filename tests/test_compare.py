from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from webnorm.compare import BAND, Comparison, compare, ratio_interval, slower_than
from webnorm.errors import WebnormError
from webnorm.problem import Problem
from webnorm.results import Report, Result

DEVICE = {"adapter": "llvmpipe", "vendor": "Mesa", "driver": "25.1", "backend": "Vulkan", "type": "CPU"}


def samples(scale: float, spread: float, seed: int, count: int = 50) -> tuple[float, ...]:
    """Times around 1 ms times `scale`, with a relative standard deviation of `spread`."""
    draws = np.random.default_rng(seed).normal(1.0, spread, count)
    return tuple(float(sample) for sample in 1e6 * scale * draws)


def result(times: Sequence[float] | None, **changes: Any) -> Result:
    return replace(
        Result(
            op="layer_norm",
            kernel="registers",
            constants={"threads_per_row": 64},
            problem=Problem(rows=64, cols=768),
            status="pass",
            median_ns=float(np.median(times)) if times else None,
            samples_ns=tuple(times) if times else None,
            timing_method="timestamp",
            cache="cold",
        ),
        **changes,
    )


def report(*results: Result, **device: str) -> Report:
    return Report(device={**DEVICE, **device}, results=results)


def one(old: Result, new: Result) -> Comparison:
    (comparison,) = compare(report(old), report(new))
    return comparison


def test_a_noisy_file_is_the_same_as_itself() -> None:
    noisy = report(*(result(samples(1, 0.3, seed), constants={"n": seed}) for seed in range(5)))
    assert {comparison.verdict for comparison in compare(noisy, noisy)} == {"SAME"}


def test_even_a_single_sample_is_the_same_as_itself() -> None:
    assert one(result([5.0]), result([5.0])).verdict == "SAME"


def test_what_was_measured_twice_in_one_file_is_paired_in_order() -> None:
    twice = report(result(samples(1, 0.1, 1)), result(samples(2, 0.1, 2), cache="warm"))
    assert [comparison.verdict for comparison in compare(twice, twice)] == ["SAME", "SAME"]


def test_two_quiet_runs_are_the_same() -> None:
    found = one(result(samples(1, 0.005, 1)), result(samples(1, 0.005, 2)))
    assert found.verdict == "SAME"
    assert found.low is not None and found.high is not None
    assert 1 - BAND <= found.low <= found.high <= 1 + BAND


def test_ten_percent_slower_is_slower_and_the_other_way_round_faster() -> None:
    fast, slow = result(samples(1, 0.02, 1)), result(samples(1.1, 0.02, 2))
    slower, faster = one(fast, slow), one(slow, fast)
    assert (slower.verdict, faster.verdict) == ("SLOWER", "FASTER")
    assert slower.ratio == pytest.approx(1.1, abs=0.02)
    assert slower.low is not None and slower.high is not None
    assert 1 < slower.low < 1.1 < slower.high < 1.2


def test_noise_that_overlaps_is_unclear() -> None:
    found = one(result(samples(1, 0.3, 1)), result(samples(1.05, 0.3, 2)))
    assert found.verdict == "UNCLEAR"
    assert found.low is not None and found.high is not None
    assert found.low < 1 < found.high


def test_a_sure_but_trifling_change_is_no_verdict() -> None:
    # 1.9 % slower for certain: the interval excludes 1 but reaches beyond the band.
    found = one(result(samples(1, 0.004, 1)), result(samples(1.019, 0.004, 2)))
    assert found.low is not None and found.low > 1
    assert found.verdict in ("SAME", "UNCLEAR")


def test_few_samples_are_unclear_however_far_apart() -> None:
    found = one(result([1.0, 1.0, 1.0, 1.0]), result([9.0] * 50))
    assert found.verdict == "UNCLEAR"
    assert found.reason == "4 and 50 samples; 5 are needed"


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
def test_a_sample_that_is_no_time_is_unclear_even_against_itself(bad: float) -> None:
    broken = result((*samples(1, 0.01, 1), bad), median_ns=1e6)
    assert one(broken, broken).verdict == "UNCLEAR"


@pytest.mark.parametrize("change", [{"timing_method": "wall clock"}, {"cache": "warm"}])
def test_times_taken_in_different_ways_are_unclear(change: dict[str, str]) -> None:
    times = samples(1, 0.01, 1)
    found = one(result(times), result(times, **change))
    assert found.verdict == "UNCLEAR"
    assert found.ratio is None
    assert found.reason is not None and next(iter(change.values())) in found.reason


def test_what_was_wrong_and_stays_so_is_the_same() -> None:
    wrong = result(None, status="fail", reason="off by 3")
    assert one(wrong, wrong).verdict == "SAME"
    now_right = one(wrong, result(samples(1, 0.01, 1)))
    assert now_right.verdict == "NOT TIMED"
    assert slower_than([now_right], 0.0) == []


def test_what_is_no_longer_right_is_broken() -> None:
    found = one(result(samples(1, 0.01, 1)), result(None, status="fail", reason="off by 3"))
    assert found.verdict == "BROKEN"
    assert slower_than([found], 50.0) == [found]
    assert found.reason == "the new result is 'fail' and has no time: off by 3"


def test_results_pair_by_variant_problem_and_case() -> None:
    times = samples(1, 0.01, 1)
    base = result(times)
    others = [
        replace(base, op="rms_norm"),
        replace(base, kernel="naive"),
        replace(base, constants={"threads_per_row": 32}),
        replace(base, problem=Problem(rows=64, cols=768, eps=1e-6)),
        replace(base, case="normal"),
    ]
    for other in others:
        found = compare(report(base), report(other))
        assert [comparison.verdict for comparison in found] == ["ONLY IN OLD", "ONLY IN NEW"]
    shuffled = compare(report(base, *others), report(*reversed(others), base))
    assert [comparison.verdict for comparison in shuffled] == ["SAME"] * 6


@pytest.mark.parametrize("key", ["adapter", "vendor", "driver", "backend", "type"])
def test_another_device_is_refused_unless_allowed(key: str) -> None:
    times = samples(1, 0.01, 1)
    old, new = report(result(times)), report(result(times), **{key: "other"})
    with pytest.raises(WebnormError, match=f"{key} is '{DEVICE[key]}' in the old report and 'other'"):
        compare(old, new)
    assert compare(old, new, any_device=True)[0].verdict == "SAME"


def test_another_wgpu_is_no_other_device() -> None:
    assert compare(report(wgpu="0.31"), report(wgpu="0.32")) == ()


def test_the_interval_is_repeatable_and_holds_the_truth_about_as_often_as_it_says() -> None:
    drawn = [(samples(1, 0.1, 2 * seed, 30), samples(1.2, 0.1, 2 * seed + 1, 30)) for seed in range(100)]
    intervals = [ratio_interval(old, new) for old, new in drawn]
    assert intervals[0] == ratio_interval(*drawn[0])
    # Of 100 intervals of 95 %, fewer than 88 would come about once in 300 times.
    assert sum(low <= 1.2 <= high for low, high in intervals) >= 88


def test_slower_than_takes_only_what_is_slower_by_more() -> None:
    fast = result(samples(1, 0.01, 1))
    slow = result(samples(1.1, 0.01, 2))
    noisy = result(samples(1.4, 0.9, 3, 6), median_ns=1.4e6)
    comparisons = [one(fast, slow), one(slow, fast), one(fast, noisy)]
    assert slower_than(comparisons, 5) == comparisons[:1]
    assert slower_than(comparisons, 15) == []


@pytest.mark.parametrize("percent", [math.nan, -1.0, math.inf])
def test_slower_than_refuses_what_is_no_percentage(percent: float) -> None:
    with pytest.raises(WebnormError, match="percent is"):
        slower_than([], percent)
