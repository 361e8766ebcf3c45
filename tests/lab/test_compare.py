from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench import verdicts as proof
from webnorm.errors import WebnormError
from webnorm.lab.report.comparison import BAND, Comparison, Verdicts, compare, gate_failures, gate_unknowns
from webnorm.lab.report.comparison_text import drift_text, pair_labels
from webnorm.lab.report.findings import Changes
from webnorm.lab.results.result import Report, Result
from webnorm.ops.norms.problem import NormProblem

DEVICE = {"adapter": "llvmpipe", "vendor": "Mesa", "driver": "25.1", "backend": "Vulkan", "type": "CPU"}
RUNS, ROUNDS = 5, 20
Times = list[list[float]]


def times(scale: float, spread: float, seed: int, runs: int = RUNS, between: float = 0.002) -> Times:
    """Return samples of runs around 1 ms times `scale`, with deviations within and between runs."""
    rng = np.random.default_rng(seed)
    moves = rng.normal(1, between, (runs, 1))
    drawn: Times = (1e6 * scale * moves * rng.normal(1.0, spread, (runs, ROUNDS))).tolist()
    return drawn


def result(runs: Sequence[Sequence[float]] | None, **changes: Any) -> Result:
    samples = [sample for run in runs or () for sample in run]
    timing: dict[str, Any] = {}
    if runs:
        timing = {"median_ns": float(np.median(samples)), "samples_ns": tuple(samples)}
        timing["runs"] = tuple(map(len, runs)) if len(runs) > 1 else None
    base = Result(
        op="layer_norm",
        kernel="registers",
        constants={"threads_per_row": 64},
        problem=NormProblem(rows=64, cols=768),
        status="pass",
        timing_method="timestamp",
        cache="cold",
        **timing,
    )
    return replace(base, **changes)


def copy(runs: Sequence[Sequence[float]], **changes: Any) -> Result:
    given: dict[str, Any] = {"op": "copy", "kernel": "copy", "constants": {"accesses": 1}, **changes}
    return result(runs, **given)


def report(*results: Result, complete: bool | None = None, **device: str) -> Report:
    return Report(device={**DEVICE, **device}, results=results, complete=complete)


def verdicts(*comparisons: Comparison) -> Verdicts:
    return Verdicts(comparisons, None)


def one(old: Result, new: Result) -> Comparison:
    (comparison,) = compare(report(old), report(new)).comparisons
    return comparison


def words(found: Verdicts) -> list[str]:
    return [comparison.verdict for comparison in found.comparisons]


# --- the same, faster, slower


def test_a_noisy_file_is_the_same_as_itself() -> None:
    flags = ("noisy", "throttled")
    noisy = report(
        *(result(times(1, 0.3, seed), constants={"n": seed}, flags=flags) for seed in range(5)),
        copy(times(1, 0.3, 9)),
    )
    assert words(compare(noisy, noisy)) == ["SAME"] * 5


def test_even_a_single_sample_is_the_same_as_itself() -> None:
    assert one(result([[5.0]]), result([[5.0]])).verdict == "SAME"


def test_repeated_measurements_in_a_file_are_paired_in_order() -> None:
    twice = report(result(times(1, 0.1, 1)), result(times(2, 0.1, 2), cache="warm"))
    assert words(compare(twice, twice)) == ["SAME", "SAME"]


def test_two_quiet_files_are_the_same() -> None:
    found = one(result(times(1, 0.005, 1)), result(times(1, 0.005, 2)))
    assert found.verdict == "SAME"
    assert found.low is not None and found.high is not None
    assert 1 - BAND <= found.low <= found.high <= 1 + BAND


def test_ten_percent_slower_is_slower_and_the_other_way_round_faster() -> None:
    fast, slow = result(times(1, 0.02, 1)), result(times(1.1, 0.02, 2))
    slower, faster = one(fast, slow), one(slow, fast)
    assert (slower.verdict, faster.verdict) == ("SLOWER", "FASTER")
    assert slower.ratio == pytest.approx(1.1, abs=0.02)
    assert slower.low is not None and slower.high is not None
    assert 1 < slower.low < 1.1 < slower.high < 1.2


def test_a_significant_but_small_change_gives_no_verdict() -> None:
    # 1.9 % slower: the interval excludes 1 but exceeds the band.
    found = one(result(times(1, 0.004, 1)), result(times(1.019, 0.004, 2)))
    assert found.low is not None and found.low > 1
    assert found.verdict in ("SAME", "UNCLEAR")


# --- runs


def test_variation_between_runs_is_no_change() -> None:
    """The samples of the two files differ significantly, but so do the runs within each file."""
    old, new = (result(times(1, 0.001, seed, between=0.1)) for seed in (3, 4))
    found = one(old, new)
    assert found.ratio is not None and abs(found.ratio - 1) > 0.02
    assert found.verdict == "UNCLEAR" and found.low is not None and found.low < 1 < (found.high or 0)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [(1, 1, "1 run each"), (1, 5, "1 run on one side"), (5, 2, "2 runs on one side")],
)
def test_too_few_runs_give_no_verdict(old: int, new: int, said: str) -> None:
    found = one(result(times(1, 0.01, 1, old)), result(times(9, 0.01, 2, new)))
    assert (found.verdict, found.low) == ("UNCLEAR", None)
    assert found.ratio == pytest.approx(9, rel=0.02)
    assert found.reason == f"{said}; at least 3 show the variation between runs: webnorm bench --runs 5"


def test_three_runs_show_a_large_change() -> None:
    assert one(result(times(1, 0.01, 1, 3)), result(times(1.2, 0.01, 2, 3))).verdict == "SLOWER"


# --- the copy


def test_a_slower_machine_makes_no_slower_kernel() -> None:
    """The copies of the same rounds are as much slower, run by run."""
    old, new = (times(1, 0.01, seed, between=0.1) for seed in (1, 2))
    slowed = [[1.5 * sample for sample in run] for run in new]
    before = report(copy([[0.5 * sample for sample in run] for run in old]), result(old))
    after = report(copy([[0.5 * sample for sample in run] for run in slowed]), result(slowed))
    found = compare(before, after)
    assert words(found) == ["SAME"]
    assert found.drift is not None and found.drift.problems == 1
    assert 1.2 < found.drift.ratio < 2 and (found.drift.spread or 0) > 0.05
    assert words(compare(report(result(old)), report(result(slowed)))) != ["SAME"]


def test_one_copy_serves_a_whole_comparison() -> None:
    """The old file's fastest copy is used for both, even if another is faster in the new one."""
    quiet = times(1, 0.005, 1)
    old = report(copy(times(1.0, 0.005, 2)), copy(times(1.1, 0.005, 3), constants={"a": 2}), result(quiet))
    new = report(copy(times(1.0, 0.005, 4)), copy(times(0.5, 0.005, 5), constants={"a": 2}), result(quiet))
    found = compare(old, new)
    assert found.drift is not None and found.drift.ratio == pytest.approx(1, abs=0.01)
    # The kernel's samples are equal, but the copy was sampled again.
    assert words(found) == ["SAME"]


def test_a_copy_in_only_one_file_is_no_yardstick() -> None:
    here, there = {"accesses": 1}, {"accesses": 2}
    old = report(copy(times(0.5, 0.01, 1), constants=here), result(times(1, 0.01, 2)))
    new = report(copy(times(0.5, 0.01, 3), constants=there), result(times(1, 0.01, 4)))
    found = compare(old, new)
    assert found.drift is None
    assert words(found) == ["SAME"] and repr(Changes(found)) == "<Changes: 1 SAME>"
    assert words(compare(report(*old.results[:1]), report(*new.results[:1]))) == [
        "ONLY IN OLD",
        "ONLY IN NEW",
    ]
    assert found.remarks == (
        "1 without a copy that both reports contain: plain times are compared, which include changes of the "
        "machine",
    )


def test_a_copy_of_other_rounds_is_no_yardstick() -> None:
    """Two ops of one shape have their own copies, each before the results of its rounds."""
    problem = NormProblem(rows=64, cols=768)
    ops = ("layer_norm", "rms_norm")
    old = [
        part
        for i, op in enumerate(ops)
        for part in (copy(times(1, 0.2, i)), result(times(1, 0.01, 9), op=op))
    ]
    new = [
        part
        for i, op in enumerate(ops)
        for part in (
            copy([[(2 + i) * s for s in run] for run in times(1, 0.2, i)]),
            result(times(1, 0.01, 9), op=op),
        )
    ]
    assert all(one.problem == problem for one in old)
    found = compare(
        report(*old), report(*[replace(one, flags=("drifting",)) if one.roofline else one for one in new])
    )
    assert found.drift is not None and found.drift.problems == 2
    assert found.drift.ratio == pytest.approx(math.sqrt(6))


def test_copies_alone_are_compared_by_their_times() -> None:
    found = compare(report(copy(times(1, 0.01, 1))), report(copy(times(1.2, 0.01, 2))))
    assert words(found) == ["SLOWER"]


@pytest.mark.parametrize(
    ("copies", "kernels", "said", "words"),
    [
        (1.2, 1.32, "UNCLEAR", "20 % more time"),
        (1.2, 1.56, "SLOWER", ""),
        (0.8, 0.7, "UNCLEAR", "20 % less time"),
    ],
)
def test_a_difference_must_exceed_the_change_of_the_copies(
    copies: float, kernels: float, said: str, words: str
) -> None:
    """A machine that slows a copy down by a fifth may slow a kernel down by another tenth."""
    old = report(copy(times(1, 0.01, 1)), result(times(2, 0.01, 2)))
    new = report(copy(times(copies, 0.01, 3)), result(times(2 * kernels, 0.01, 4)))
    (found,) = compare(old, new).comparisons
    assert found.verdict == said
    assert found.reason == (f"the copy itself takes {words}, which is a larger change" if words else None)


def test_a_copy_that_broke_is_broken() -> None:
    right = copy(times(1, 0.01, 1))
    wrong = replace(right, status="fail", median_ns=None, samples_ns=None, runs=None, reason="off by 3")
    own = result(times(1, 0.01, 2)), result(times(1, 0.01, 3))
    assert words(compare(report(right, own[0]), report(wrong, own[1]))) == ["BROKEN", "SAME"]


# --- The rate of wrong verdicts.

# Standard deviations of log(time) in 60 runs of `bench.verdicts` on llvmpipe, on two shared cores. They are
# the changes per run of the copy, of all kernels relative to the copy, and of each kernel. One run in thirty
# is disturbed and changes five times as much.
COPY_MOVES, KERNELS_MOVE, ONE_MOVES, DISTURBED = 0.2, 0.045, 0.02, 1 / 30
# The variation of samples in a run; one in ten was disturbed by another process and took longer.
JITTER, MET, LONGER = 0.1, 0.1, 0.7
ROUNDS_SIMULATED = 60


def simulated(rng: np.random.Generator, count: int, kernels: dict[str, float]) -> Report:
    """Return a report of several runs; kernels take these multiples of the copy's time."""
    scale = np.where(rng.random((count, 1)) < DISTURBED, 5, 1)
    shared = scale * rng.normal(0, KERNELS_MOVE, (count, 1))
    copies = rng.normal(0, COPY_MOVES, (count, 1))

    def drawn(level: Any) -> Times:
        late = rng.exponential(LONGER, (count, ROUNDS_SIMULATED))
        late *= rng.random((count, ROUNDS_SIMULATED)) < MET
        found: Times = (1e6 * np.exp(level + rng.normal(0, JITTER, late.shape) + late)).tolist()
        return found

    names = [name.partition(" ") for name in kernels]
    own = [
        copies + math.log(multiple) + shared + scale * rng.normal(0, ONE_MOVES, (count, 1))
        for multiple in kernels.values()
    ]
    return report(
        copy(drawn(copies)),
        *(
            result(drawn(level), kernel=kernel, constants={proof.AXIS: int(value)} if value else {})
            for (kernel, _, value), level in zip(names, own, strict=True)
        ),
    )


@pytest.mark.parametrize(("count", "power"), [(20, 19), (5, 0)])
def test_verdicts_are_seldom_false_and_ten_percent_is_found(count: int, power: int) -> None:
    """Compare 20 pairs of files, with enough runs for such a machine, and with few runs that find little."""
    rng = np.random.default_rng(0)
    kernels = {f"{proof.KERNEL} {value}": 2.0 for value in proof.CONSTANTS}
    kernels |= dict.fromkeys(proof.OTHERS, 2.5) | {proof.SLOWER: 2.2}
    found = proof.rates([simulated(rng, count, kernels) for _ in range(21)])
    assert (found.pairs, found.changes) == (80, 20)
    assert found.false <= 0.05 * found.pairs
    assert found.found >= power
    # The speed of the machine changed too.
    assert max(found.drifts) > 1.05 and min(found.drifts) < 0.95


# --- Unclear results.


@pytest.mark.parametrize("flag", ["noisy", "throttled", "suspicious", "drifting"])
def test_a_flagged_result_is_unclear(flag: str) -> None:
    fast, slow = result(times(1, 0.01, 1)), result(times(2, 0.01, 2), flags=(flag,))
    for found, age in ((one(fast, slow), "new"), (one(slow, fast), "old")):
        assert (found.verdict, found.low, found.reason) == ("UNCLEAR", None, f"the {age} result is {flag}")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("few samples",), "has few samples"),
        (("few samples", "drifting", "interrupted"), "is drifting, interrupted and has few samples"),
    ],
)
def test_flags_form_a_sentence(flags: tuple[str, ...], said: str) -> None:
    fast, slow = result(times(1, 0.01, 1)), result(times(2, 0.01, 2), flags=flags)
    assert one(fast, slow).reason == f"the new result {said}"
    copies = copy(times(1, 0.01, 3)), copy(times(1, 0.01, 4), flags=flags)
    (found,) = compare(report(copies[0], fast), report(copies[1], replace(slow, flags=()))).comparisons
    assert found.reason == f"the new copy {said}"


def test_the_copies_rates_match_the_percentage_next_to_them() -> None:
    """With two speeds the medians of samples differ from the means that a comparison uses."""
    fast = [[1e3] * 11 + [2e3] * 9] * 3
    slow = [[1e3] * 9 + [2e3] * 11] * 3
    old, new = (copy(own, bytes=10**6, gbps=10**6 / np.median(own)) for own in (fast, slow))
    found = compare(report(old, result(fast)), report(new, result(slow))).drift
    assert found is not None and found.old_gbps is not None and found.new_gbps is not None
    assert 1.01 < found.ratio < 1.5 and found.old_gbps / found.new_gbps == pytest.approx(found.ratio)
    rates = f"{found.old_gbps:.4g} -> {found.new_gbps:.4g} GB/s (mean of the middle half)"
    assert drift_text(found).startswith(f"copies: {rates}, {100 * found.ratio - 100:.1f} % more time ")


def test_a_copy_that_drifted_makes_all_unclear() -> None:
    old = report(copy(times(1, 0.01, 1)), result(times(1, 0.01, 2)))
    new = report(copy(times(1, 0.01, 3), flags=("drifting",)), result(times(2, 0.01, 4)))
    (found,) = compare(old, new).comparisons
    assert (found.verdict, found.reason) == ("UNCLEAR", "the new copy is drifting")


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
def test_an_invalid_sample_is_unclear_even_compared_with_itself(bad: float) -> None:
    broken = result([*times(1, 0.01, 1), [bad]], median_ns=1e6)
    assert one(broken, broken).verdict == "UNCLEAR"


@pytest.mark.parametrize("change", [{"timing_method": "wall clock"}, {"cache": "warm"}, {"calls": "at once"}])
def test_times_of_different_methods_are_unclear(change: dict[str, str]) -> None:
    same = times(1, 0.01, 1)
    found = one(result(same), result(same, **change))
    assert found.verdict == "UNCLEAR"
    assert found.ratio is None
    assert found.reason is not None and next(iter(change.values())) in found.reason


def test_a_result_that_stays_wrong_is_the_same() -> None:
    wrong = result(None, status="fail", reason="off by 3")
    assert one(wrong, wrong).verdict == "SAME"
    assert one(wrong, result(times(1, 0.01, 1))).verdict == "NOT TIMED"


def test_a_result_that_becomes_wrong_is_broken() -> None:
    found = one(result(times(1, 0.01, 1)), result(None, status="fail", reason="off by 3"))
    assert found.verdict == "BROKEN"
    assert found.reason == "the new result is 'fail' and has no time: off by 3"


def test_results_pair_by_variant_problem_and_case() -> None:
    base = result(times(1, 0.01, 1))
    others = [
        replace(base, op="rms_norm"),
        replace(base, kernel="naive"),
        replace(base, constants={"threads_per_row": 32}),
        replace(base, problem=NormProblem(rows=64, cols=768, eps=1e-6)),
        replace(base, case="normal"),
    ]
    both = replace(base, kernel="two_pass")
    for other in others:
        found = compare(report(both, base), report(both, other))
        assert words(found) == ["SAME", "ONLY IN OLD", "ONLY IN NEW"]
    shuffled = compare(report(base, *others), report(*reversed(others), base))
    assert words(shuffled) == ["SAME"] * 6


@pytest.mark.parametrize("key", ["adapter", "vendor", "driver", "backend", "type"])
def test_another_device_is_refused_unless_allowed(key: str) -> None:
    same = times(1, 0.01, 1)
    old, new = report(result(same)), Report(device={**DEVICE, key: "other"}, results=(result(same),))
    with pytest.raises(WebnormError, match=f"{key} is '{DEVICE[key]}' in the old report and 'other'"):
        compare(old, new)
    assert words(compare(old, new, any_device=True)) == ["SAME"]


def test_another_wgpu_is_no_other_device() -> None:
    own = result(times(1, 0.01, 1))
    assert words(compare(report(own, wgpu="0.31"), report(own, wgpu="0.32"))) == ["SAME"]


def test_reports_without_a_problem_in_common_are_a_mistake() -> None:
    """Both contain a copy of the same shape, but no results to compare it with."""
    yardstick, base = copy(times(1, 0.01, 1)), result(times(1, 0.01, 2))
    other = replace(base, op="rms_norm")
    wider = replace(other, problem=NormProblem(rows=64, cols=1024))
    with pytest.raises(WebnormError) as mistake:
        compare(report(yardstick, base), report(yardstick, other, wider, replace(wider, kernel="naive")))
    assert str(mistake.value) == (
        "the reports have no problem in common: layer_norm, 64x768 float32 in the old one, rms_norm, 64x768 "
        "float32 and 1 more in the new one"
    )
    with pytest.raises(WebnormError, match="layer_norm, 64x768 float32 in the old one, none in the new one"):
        compare(report(base), report())
    with pytest.raises(WebnormError, match="in common"):
        compare(report(base), report(replace(base, case="normal")))


# --- The gate.

FAST, SLOW = result(times(1, 0.01, 1)), result(times(1.1, 0.01, 2))


def test_the_gate_fails_only_for_larger_slowdowns() -> None:
    slower = compare(report(FAST), report(SLOW))
    assert gate_failures(slower, 5) == ["1 is slower by more than 5 %"]
    assert gate_failures(slower, 15) == []
    assert gate_failures(compare(report(SLOW), report(FAST)), 0) == []


def test_the_gate_fails_for_broken_results() -> None:
    wrong = result(None, status="fail", reason="off by 3", kernel="naive")
    right = replace(FAST, kernel="naive")
    broken = compare(report(FAST, right), report(FAST, wrong))
    assert gate_failures(broken, 50) == ["1 is broken"] and gate_unknowns(broken, 50) == []
    assert gate_failures(compare(report(FAST, wrong), report(FAST, right)), 0) == []


@pytest.mark.parametrize("gone", [[], [result(None, status="skip", kernel="naive")]])
def test_the_gate_fails_for_missing_results(gone: list[Result]) -> None:
    less = compare(report(FAST, replace(FAST, kernel="naive")), report(FAST, *gone))
    assert gate_failures(less, 5) == [] and gate_unknowns(less, 5) == ["1 is missing in NEW"]
    assert gate_unknowns(less, 5, allow_missing=True) == []
    assert gate_unknowns(compare(report(FAST), report(FAST, replace(FAST, kernel="naive"))), 5) == []


def test_the_gate_refuses_an_interrupted_run() -> None:
    whole, part, unknown = (report(FAST, complete=complete) for complete in (True, False, None))
    assert gate_unknowns(compare(part, whole), 5) == ["OLD comes from an interrupted run"]
    assert gate_unknowns(compare(whole, part), 5) == ["NEW comes from an interrupted run"]
    assert gate_unknowns(compare(part, part), 5, allow_missing=True) == []
    assert gate_unknowns(compare(unknown, whole), 5) == []


def test_the_gate_does_not_pass_without_results() -> None:
    skipped = result(None, status="skip")
    single = compare(report(result(times(1, 0.01, 1, 1))), report(result(times(1, 0.01, 2, 1))))
    for nothing in (compare(report(skipped), report(skipped)), single):
        assert gate_unknowns(nothing, 5, allow_missing=True) == ["nothing could be compared"]
    apart = compare(report(FAST), report(replace(FAST, kernel="naive")))
    assert gate_unknowns(apart, 5) == ["1 is missing in NEW", "nothing could be compared"]


def test_unclear_results_are_unknown_and_fail_only_on_request() -> None:
    doubtful = replace(SLOW, kernel="naive", flags=("throttled",))
    found = compare(report(FAST, replace(FAST, kernel="naive")), report(FAST, doubtful))
    assert (found.unclear, gate_failures(found, 5)) == (1, [])
    assert gate_failures(found, 5, fail_unclear=True) == ["1 is unclear"]
    assert gate_unknowns(found, 5) == ["1 is unclear, and may be slower by more than 5 %"]


def test_the_gate_passes_unclear_results_within_the_limit() -> None:
    wide = verdicts(Comparison(result=FAST, verdict="UNCLEAR", ratio=1.01, low=0.97, high=1.06))
    assert gate_unknowns(wide, 10) == [] and gate_failures(wide, 10) == []
    assert gate_unknowns(wide, 5) == ["1 is unclear, and may be slower by more than 5 %"]


@pytest.mark.parametrize("percent", [math.nan, -1.0, math.inf])
def test_the_gate_refuses_an_invalid_percentage(percent: float) -> None:
    with pytest.raises(WebnormError, match="percent is"):
        gate_failures(verdicts(), percent)


def test_another_seed_is_the_same_problem() -> None:
    old = report(copy(times(1, 0.01, 1)), result(times(2, 0.01, 2)))
    drawn = (replace(one, problem=replace(one.problem, seed=7)) for one in old.results)
    assert {one.verdict for one in compare(old, report(*drawn)).comparisons} == {"SAME"}


def test_lines_of_a_problem_are_grouped_and_named_by_constants_if_needed() -> None:
    def of(cols: int, kernel: str, threads: int) -> Result:
        problem = NormProblem(rows=8, cols=cols)
        return result(
            times(1.0, 0.01, 0), kernel=kernel, problem=problem, constants={"threads_per_row": threads}
        )

    old = report(of(48, "a", 4), of(64, "a", 8))
    new = report(of(48, "a", 4), of(48, "b", 4), of(64, "a", 8), of(64, "a", 16))
    found = compare(old, new).comparisons
    name = pair_labels(found)
    assert [(each.result.problem.cols, name(each)) for each in found] == [
        (48, "a"),
        (48, "b"),
        (64, "a threads_per_row=8"),
        (64, "a threads_per_row=16"),
    ]
