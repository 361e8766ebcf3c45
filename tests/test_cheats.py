"""The harness against kernels that want to look right or fast: each of them has to be found out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cheats import CHOOSY, IDLE, WRONG, Cheat
from lab import kernel_named
from webnorm import check, lab, timing
from webnorm.corpus import CASES, Case, drawn_cases, whole_corpus
from webnorm.device import Device
from webnorm.kernel import Kernel, default_variant, load, wgsl_root
from webnorm.ops import OPS
from webnorm.problem import Problem
from webnorm.results import Result


class Here:
    """A worker that works in this process."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def stream(self, task: Any, job: Any) -> Iterator[Any]:
        """What the task yields."""
        yield from task(self.device, job)


def timed(device: Device, paths: list[Path], problem: Problem, sets: int, calls: str) -> dict[str, Result]:
    specs = tuple(lab.VariantSpec.of(default_variant(load(path), problem, device.traits)) for path in paths)
    rule = timing.Rule(least=5, most=10, settle_s=0.05)
    job = lab.TimingJob(problem, specs, (), sets, rule, calls)  # type: ignore[arg-type]
    found = [event.result for event in lab.time_variants(device, job) if isinstance(event, lab.Found)]
    return {result.kernel: result for result in found}


def checked(device: Device, kernel: Kernel, cases: tuple[Case, ...], whole: bool = False) -> list[Result]:
    request = check.Request((kernel,), cases, whole=whole)
    return list(check.run(request, Here(device), device.traits))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rows", "cols", "sets", "calls"), [(512, 1024, 1, "one by one"), (64, 256, 4, "at once")]
)
def test_who_leaves_out_work_is_found_out(
    rows: int, cols: int, sets: int, calls: str, device: Device, tmp_path: Path
) -> None:
    problem = Problem(rows=rows, cols=cols)
    honest = [wgsl_root() / "copy" / "copy.wgsl", wgsl_root() / "layer_norm" / "naive.wgsl"]
    found = timed(device, honest + [cheat.write(tmp_path) for cheat in IDLE], problem, sets, calls)
    assert [found[name].status for name in ("copy", "naive")] == ["pass", "pass"]
    # Of calls at once only the bits are proved, and that one's are right.
    untold = {"remembers_statistics_of_both_versions"} if calls == "at once" else set()
    assert {cheat.name for cheat in IDLE if found[cheat.name].status != "fail"} <= untold


def test_a_memory_that_is_right_is_told_by_its_time(device: Device, tmp_path: Path) -> None:
    (memo,) = (cheat for cheat in IDLE if cheat.name == "remembers_statistics_of_both_versions")
    found = timed(device, [memo.write(tmp_path)], Problem(rows=512, cols=1024), 1, "one by one")
    assert "takes" in (found[memo.name].reason or "") and "times as long" in (found[memo.name].reason or "")


@pytest.mark.parametrize(("cheat", "names"), WRONG, ids=lambda part: getattr(part, "name", ""))
def test_who_is_wrong_where_nobody_looked_is_found_out(
    cheat: Cheat, names: tuple[str, ...], device: Device, tmp_path: Path
) -> None:
    """None of them fails on the benign case but those that no case is benign for."""
    kernel = load(cheat.write(tmp_path))
    cases = tuple(case for case in whole_corpus(3) if case.name.startswith(names) and not case.for_gpus)
    assert "fail" in {result.status for result in checked(device, kernel, cases)}


def test_the_kernel_that_cheats_are_made_of_is_right(device: Device, tmp_path: Path) -> None:
    kernel = load(Cheat("naive").write(tmp_path))
    names = tuple(name for _, names in WRONG for name in names)
    cases = tuple(case for case in whole_corpus(3) if case.name.startswith(names) and not case.for_gpus)
    assert {result.status for result in checked(device, kernel, cases)} == {"pass"}


def test_a_kernel_that_refuses_most_of_the_corpus_fails(device: Device, tmp_path: Path) -> None:
    kernel = load(CHOOSY.write(tmp_path))
    *others, verdict = checked(device, kernel, CASES[:12], whole=True)
    assert {result.status for result in others} == {"pass", "skip"}
    assert verdict.status == "fail" and "refuses" in (verdict.reason or "")
    # Who chose the cases knows what he asked for.
    assert all(result.case != "whole corpus" for result in checked(device, kernel, CASES[:12]))


def test_one_dispatch_is_given_the_statistics_that_it_needs(device: Device) -> None:
    kernel = kernel_named("one_dispatch", "layer_norm_backward")
    (case,) = (case for case in CASES if case.name == "shift-1e2")
    (found,) = checked(device, kernel, (case,))
    assert found.status == "pass" and found.problem.options.saved_stats


def test_a_seed_repeats_what_is_drawn_and_another_does_not() -> None:
    op = OPS["layer_norm"]

    def drawn(seed: int) -> list[Any]:
        found = []
        for case in (*whole_corpus(seed)[:3], *drawn_cases(seed)):
            problem = case.problem(op)
            if problem is not None:
                found.append((case.shape, case.options, case.eps, case.draw(op, problem)["x"].tobytes()))
        return found

    assert drawn(7) == drawn(7)
    assert all(one != other for one, other in zip(drawn(7), drawn(8), strict=False))


def test_more_than_a_copy_can_is_a_failure_on_any_adapter(device: Device, tmp_path: Path) -> None:
    """A kernel whose work is done before it is timed, as far as the clock can see."""
    problem = Problem(rows=256, cols=1024)
    copy, honest = wgsl_root() / "copy" / "copy.wgsl", wgsl_root() / "layer_norm" / "registers.wgsl"
    slow = tmp_path / "copy" / "slow.wgsl"
    slow.parent.mkdir()
    busy = "for (var i = 0u; i < 200u; i++) { sum += x[min(i, end - 1u)]; }"
    text = copy.read_text().replace(
        "    let first = start", f"    var sum = vec4<u32>();\n    {busy}\n    let first = start"
    )
    slow.write_text(text.replace("] = value", "] = select(0u, 1u, sum.x == 12345u) + value"))
    found = timed(device, [slow, honest], problem, 1, "one by one")
    assert found["slow"].status == "pass", found["slow"].reason
    assert found["registers"].status == "fail" and "% of copy" in (found["registers"].reason or "")
