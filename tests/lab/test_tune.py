from __future__ import annotations

import json
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import broken
from commands import webnorm, webnorm_interrupted
from patience import HANG_S
from testbed import GPU, KERNELS, SOFTWARE
from webnorm.choice.defaults import choose
from webnorm.errors import WebnormError
from webnorm.gpu import timing
from webnorm.gpu.device import Device
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.library import discover
from webnorm.kernels.headers.traits import Traits
from webnorm.kernels.headers.variants import Variant, all_variants, header_names
from webnorm.lab.process.worker import Worker
from webnorm.lab.results.result import Result
from webnorm.lab.run import jobs, search, tune
from webnorm.op.op import Task
from webnorm.op.presets import preset_tasks, quick_tasks, tasks
from webnorm.op.registry import OPS
from webnorm.ops.norms.measured import ranked
from webnorm.ops.norms.op import OPS as NORM_OPS
from webnorm.ops.norms.presets import PRESETS
from webnorm.ops.norms.problem import NormProblem


def field(op: str = "rms_norm", rows: int = 4096, cols: int = 1024) -> list[Variant]:
    """Return the candidates for a GPU."""
    (task,) = tasks(op, [(rows, cols)])
    return tune.candidates(KERNELS, task, GPU, choose(KERNELS, task, GPU).variant)


class Fake(search.SearchDevice):
    """Simulated trials with a fixed time for each candidate, without noise."""

    def __init__(
        self,
        times: Mapping[int, float],
        wrong: Set[int] = frozenset(),
        broken: Set[int] = frozenset(),
        same: Mapping[int, Hashable] | None = None,
    ) -> None:
        self.times, self.wrong, self.broken, self.same = times, wrong, broken, same or {}
        self.timed: list[int] = []
        self.held: set[int] = set()
        self.most_held = 0

    def fingerprint(self, index: int) -> Hashable:
        return self.same.get(index, index)

    def time(self, indices: Sequence[int]) -> list[float]:
        if self.broken & {*indices}:
            raise WebnormError("no room")
        self.timed += indices
        self.held |= {*indices}
        self.most_held = max(self.most_held, len(self.held))
        return [self.times[index] for index in indices]

    def fault(self, index: int) -> str | None:
        return "[0, 0] is 2, expected 1" if index in self.wrong else None

    def release(self, index: int) -> None:
        self.held.discard(index)


def race(
    candidates: list[Variant], fake: Fake, spent: Callable[[], float] = lambda: 0.0
) -> tuple[search.Finalists, list[search.VariantDropped]]:
    events = list(search.Search(candidates, fake, spent).run())
    (finalists,) = (event for event in events if isinstance(event, search.Finalists))
    return finalists, [event for event in events if isinstance(event, search.VariantDropped)]


# --- The search.


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("op", ["rms_norm", "layer_norm"])
def test_the_fastest_right_variant_is_never_pruned(op: str, seed: int) -> None:
    candidates = field(op)
    rng = np.random.default_rng(seed)
    times = dict(enumerate(rng.uniform(1.0, search.SLOW_KERNEL, len(candidates))))
    wrong = set(rng.choice(np.arange(1, len(candidates)), 20, replace=False).tolist())
    broken = set(rng.choice(np.arange(1, len(candidates)), 20, replace=False).tolist())
    # Wrong variants tend to be fast, because they skip work.
    times |= {index: times[index] / 10 for index in wrong}
    fake = Fake(times, wrong, broken)
    finalists, dropped = race(candidates, fake)
    fastest = min(set(times) - wrong - broken, key=lambda index: times[index])
    assert fastest == 0 or finalists.indices[0] == fastest
    assert {one.index for one in dropped} <= wrong | broken
    assert all(times[index] <= 1.03 * times[fastest] for index in finalists.indices)
    assert fake.held <= {0, *finalists.indices}
    assert fake.most_held <= search.STAGES[0][1] + 1


def test_a_kernel_that_is_far_behind_gets_one_probe() -> None:
    candidates = field()
    slow = {index for index, variant in enumerate(candidates) if variant.kernel.name == "naive"}
    assert len(slow) > 1
    fake = Fake({index: 10.0 if index in slow else 1.0 + index / 1000 for index in range(len(candidates))})
    finalists, _ = race(candidates, fake)
    assert len(slow & set(fake.timed)) == 1
    assert finalists.tried == len(candidates) - len(slow) + 1


def test_a_kernel_whose_first_variant_fails_is_probed_again() -> None:
    candidates = field()
    first, second = [i for i, variant in enumerate(candidates) if variant.kernel.name == "workgroup"][:2]
    times = {index: 2.0 for index in range(len(candidates))} | {first: 0.01, second: 1.0}
    finalists, dropped = race(candidates, Fake(times, wrong={first}))
    assert dropped == [search.VariantDropped(first, "[0, 0] is 2, expected 1")]
    assert finalists.indices == (second,)


def test_another_variant_is_the_reference_if_the_first_cannot_run() -> None:
    candidates = field()
    times = {index: 1.0 + index / 10000 for index in range(len(candidates))}
    finalists, dropped = race(candidates, Fake(times, broken={0}))
    assert dropped == [search.VariantDropped(0, "no room")] and finalists.indices
    assert race(candidates, Fake(times, broken=set(times)))[0] == search.Finalists((), 0)


def test_the_same_text_is_timed_once() -> None:
    candidates = field()
    fake = Fake({i: 1.0 for i in range(len(candidates))}, same={i: i // 2 for i in range(len(candidates))})
    assert race(candidates, fake)[0].tried == -(-len(candidates) // 2)


def test_every_sample_follows_one_of_the_reference() -> None:
    candidates = field()
    fake = Fake({index: 1.0 + index / 1000 for index in range(len(candidates))})
    race(candidates, fake)
    # From the second candidate on there are three pairs of the reference and the candidate.
    assert fake.timed[3:9] == [0, fake.timed[4]] * 3
    pairs = list(zip(fake.timed[3::2], fake.timed[4::2], strict=True))
    assert all(reference == 0 for reference, _ in pairs)
    # In the last rounds every remaining candidate has one sample.
    owns = [own for _, own in pairs]
    left = next(count for count in range(2, len(owns)) if owns[-count] in owns[-count + 1 :]) - 1
    assert left > 1 and {*owns[-left:]} == {*owns[-2 * left : -left]}


def test_a_search_out_of_time_has_tried_neighbours_of_the_best() -> None:
    candidates = field()
    best = len(candidates) // 2
    times = {
        index: 1.0 + 0.1 * search.distance(variant, candidates[best])
        if variant.kernel == candidates[best].kernel
        else 5.0
        for index, variant in enumerate(candidates)
    }
    fake = Fake(times)
    finalists, _ = race(candidates, fake, lambda: len(fake.timed) / 800)
    assert finalists.tried < len(candidates) / 2
    assert finalists.indices[0] == best


def test_a_search_out_of_time_has_tried_the_expected_candidates() -> None:
    """The search finds the fast candidate although all its neighbours are slow."""
    candidates = field()
    kernels = {variant.kernel.name for variant in candidates}
    expected = len(kernels) + 20
    fake = Fake({index: 1.0 if index == expected else 2.0 for index in range(len(candidates))})
    finalists, _ = race(candidates, fake, lambda: len(fake.timed) / 600)
    assert finalists.tried < len(candidates) / 2
    assert finalists.indices[0] == expected


def test_a_search_reads_a_kernel_once(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file takes 10 ms to read, and a gradient has thousands of candidates."""
    (task,) = tasks("copy", [(4, 64)])
    variants = [variant for kernel in KERNELS if kernel.op is task.op for variant in all_variants(kernel)]
    read: list[Path] = []

    def counted(path: Path, op: str | None = None) -> Kernel:
        read.append(path)
        return load(path, op)

    monkeypatch.setattr(search, "load", counted)
    specs = tuple(jobs.VariantSpec.of(variant) for variant in variants)
    job = jobs.TimingJob(task, specs, (), 1, timing.StoppingRule(budget_s=0.01))
    found = list(search.search_variants(device, job))
    assert isinstance(found[-1], search.Finalists) and len(variants) > 1
    assert len(read) == 1


# --- Candidates and the choice.


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("traits", "cols"), [(GPU, 1024), (SOFTWARE, 61)], ids=["GPU", "software"])
@pytest.mark.parametrize("op", [op.name for op in NORM_OPS])
def test_candidates_can_run_and_are_as_exact_as_the_rules_choice(op: str, traits: Traits, cols: int) -> None:
    options = [] if op in ("layer_norm", "rms_norm") else ["saved_stats=false"]
    (task,) = tasks(op, [(64, cols)], OPS[op].defaults.changed(options), dtype="float16")
    rules = choose(KERNELS, task, traits).variant
    found = tune.candidates(KERNELS, task, traits, rules)
    assert found[0] == rules and len({str(variant) for variant in found}) == len(found) > 20
    # Variants that round the mean are excluded.
    assert {variant.kernel.name for variant in found} >= {
        "naive" if op != "layer_norm" else "streaming",
        "registers",
    }
    for variant in found:
        assert variant.refusal(task.problem, traits) is None
        assert variant.kernel.unstable is None
        assert variant.constants.get("hi_lo_mean", 1) == 1


def test_candidates_are_in_the_order_of_expected_speed() -> None:
    (task,) = tasks("layer_norm", [(4096, 3000)])
    rules = choose(KERNELS, task, GPU).variant
    found = tune.candidates(KERNELS, task, GPU, rules)
    assert str(found[0]) == str(rules) and len({str(one) for one in found}) == len(found)
    defaults = {one.kernel.name for one in found}
    expected = [dict(one.constants) for one in ranked("layer_norm", header_names(task.op, task.problem, GPU))]
    assert len(expected) > 20
    behind = [dict(one.constants) for one in found[len(defaults) : len(defaults) + 20]]
    assert behind == [one for one in expected if one in behind]


def timed(kernel: str, samples: list[float], status: Any = "pass") -> Result:
    return Result(
        op="layer_norm",
        kernel=kernel,
        constants={},
        problem=NormProblem(rows=1, cols=1),
        status=status,
        median_ns=float(np.median(samples)) if status == "pass" else None,
        samples_ns=tuple(samples),
    )


QUIET = [100.0 + 0.01 * i for i in range(11)]
NOISY = [100.0 + 10 * (i % 5) for i in range(11)]


@pytest.mark.parametrize(
    ("samples", "factor", "stays"),
    [
        (QUIET, 0.995, True),
        (QUIET, 0.97, False),
        (NOISY, 0.97, True),
        (NOISY, 0.5, False),
        (QUIET, 1.1, True),
    ],
)
def test_the_rules_choice_stays_unless_another_is_clearly_faster(
    samples: list[float], factor: float, stays: bool
) -> None:
    task = Task(OPS["layer_norm"], NormProblem(rows=1, cols=1))
    others = [timed("rival", [factor * one for one in reversed(samples)]), timed("wrong", [1.0], "fail")]
    choice = tune._choice(task, [timed("rules", samples), *others], 7)
    assert choice is not None and choice.tried == 7
    assert choice.kernel == ("rules" if stays else "rival")
    assert choice.speedup == pytest.approx(1.0 if stays else 1 / factor)


def test_the_replacement_of_a_choice_that_does_not_run() -> None:
    task = Task(OPS["layer_norm"], NormProblem(rows=1, cols=1))
    choice = tune._choice(task, [timed("rules", QUIET, "fail"), timed("rival", QUIET)], 2)
    assert choice is not None and (choice.kernel, choice.speedup) == ("rival", None)
    assert tune._choice(task, [timed("rules", QUIET, "fail")], 1) is None


def test_grids() -> None:
    standard = tune.tuning_tasks(None, {}, (), (), software=False, quick=False)
    assert len(standard) == 4 * 2 * len(tune.LENGTHS)
    for task in standard:
        size = 2 if task.problem.dtype == "float16" else 4
        assert task.problem.rows * task.problem.cols * size == 64 << 20
    assert len(tune.tuning_tasks(None, {}, (), (), software=True, quick=True)) == 4
    named = tune.tuning_tasks(
        ("rms_norm",),
        {"rows": (3, 5), "cols": (7,)},
        ("bfloat16",),
        ("residual",),
        software=True,
        quick=False,
    )
    assert [str(task.problem) for task in named] == [f"{m}x7 bfloat16, no bias, residual" for m in (3, 5)]
    twice = tune.tuning_tasks(
        ("rms_norm",), {"rows": (3, 3), "cols": (7, 7)}, (), (), software=True, quick=True
    )
    assert len(twice) == 1


@pytest.mark.parametrize("software", [True, False])
def test_the_tasks_of_a_preset(software: bool) -> None:
    name = "transformer"
    preset = PRESETS[name]
    assert preset_tasks(name, (), (), software, quick=False, scalars={}) == preset.tasks
    assert preset_tasks(name, (), (), software, quick=True, scalars={}) == quick_tasks(preset, software)
    both = preset_tasks(name, ("float16", "bfloat16"), ("residual",), software, quick=True, scalars={})
    assert len(both) == 2 * len(quick_tasks(preset, software)) < len(preset.tasks)
    assert {task.problem.dtype for task in both} == {"float16", "bfloat16"}
    assert all(task.problem.options.residual for task in both)


# --- On a device.


@pytest.mark.slow
def test_wrong_and_crashing_kernels_are_dropped_with_a_reason(tmp_path: Path, device: Device) -> None:
    deadly, died = broken.deadly(device)
    kernels = discover([broken.write(tmp_path, "wrong", "unparsable", deadly)])
    (task,) = tasks("layer_norm", [(16, 48)])
    with Worker(time_limit_s=HANG_S) as worker:
        request = tune.TuneRequest((task,), tuple(kernels), 2.0, (tmp_path,))
        events = list(tune.run(request, worker, device.traits))
    tuned = events[-1]
    assert isinstance(tuned, tune.TuneResult) and tuned.choice is not None
    assert tuned.choice.kernel not in broken.REPLACED
    for name, word in (("wrong", "expected"), ("unparsable", "expected"), (deadly, died)):
        (line,) = (line for line in tuned.dropped if f"/{name}" in line and word in line)
        assert "\n" not in line


TUNE = ["tune", "--op", "rms_norm", "--cols", "48", "--dtype", "float32", "--budget", "0.5"]


@pytest.mark.slow
@pytest.mark.opengl
def test_tune_records_what_auto_follows(
    tmp_path: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEBNORM_TUNINGS", str(tmp_path / "tunings"))
    done = webnorm([*TUNE, "--rows", "8"], tmp_path)
    assert done.returncode == 0 and done.stderr == ""
    assert "rms_norm, 8x48 float32, no bias: " in done.stdout and "variants tried" in done.stdout
    (path,) = (tmp_path / "tunings").iterdir()
    assert f"1 choice is in {path}" in done.stdout
    again = webnorm([*TUNE, "--rows", "8"], tmp_path)
    assert "1 of 1 problems are recorded" in again.stdout and "tried" not in again.stdout
    assert "rms_norm, 8x48" in webnorm(["tune", "--list"], tmp_path).stdout
    elsewhere = webnorm(["tune", "--list", "--out", "none.json"], tmp_path)
    assert elsewhere.stdout == "nothing is recorded: none.json does not exist\n"

    # The recorded choice differs from the rules' choice, which shows that auto follows the record.
    data = json.loads(path.read_text())
    data["choices"][0] |= {"kernel": "workgroup", "constants": {"threads_per_row": 16}}
    path.write_text(json.dumps(data))
    bench = ["bench", "--op", "rms_norm", "--rows", "8", "--cols", "48", "--budget", "0.2", "-k", "auto"]
    shown = webnorm([*bench, "--json", "out.json"], tmp_path)
    assert (
        "auto picks workgroup threads_per_row=16 (recorded tuning): the best variant measured" in shown.stdout
    )
    (result,) = (r for r in json.loads((tmp_path / "out.json").read_text())["results"] if r["op"] != "copy")
    assert (result["kernel"], result["auto"]) == ("workgroup", "tuning")
    show = ["show", "auto", "--op", "rms_norm", "--rows", "8", "--cols", "48"]
    assert "rms_norm/workgroup for" in webnorm(show, tmp_path).stdout
    assert "rms_norm/workgroup for" not in webnorm([*show, "--target", "browser"], tmp_path).stdout

    path.write_text(json.dumps({**data, "platform": {**data["platform"], "driver": "old"}}))
    ignored = webnorm(bench, tmp_path)
    assert ignored.returncode == 0 and "(built-in rules)" in " ".join(ignored.stdout.split()), ignored.stdout
    assert ignored.stderr.count("\n") == 1 and "is ignored: it is stale" in ignored.stderr
    stale = webnorm(["tune", "--list"], tmp_path)
    assert "rms_norm, 8x48" in stale.stdout and "does not apply here: it is stale" in stale.stderr
    path.write_text("no JSON")
    for arguments in (["tune", "--list"], TUNE):
        refused = webnorm(arguments, tmp_path)
        assert refused.returncode == 2 and "webnorm tune --remove" in refused.stderr
        assert refused.stderr.count("\n") == 1
    # Commands that only read it continue without it.
    check = ["check", "--op", "rms_norm", "-k", "auto", "--case", "rows-1"]
    for arguments in (bench, show, check, [*bench[:-1], "naive"]):
        done = webnorm(arguments, tmp_path)
        assert done.returncode == 0 and done.stdout, done.stdout
        assert done.stderr.startswith(f"webnorm: the tuning {path} is broken: ")
        assert done.stderr.endswith("--remove`; until then it is ignored\n") and done.stderr.count("\n") == 1
    assert "(built-in rules)" in " ".join(webnorm(bench, tmp_path).stdout.split())
    assert path.read_text() == "no JSON"
    assert webnorm(["tune", "--remove"], tmp_path).stdout == f"removed {path}\n"
    assert not path.exists()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is sent another way on Windows")
def test_an_interrupted_run_is_resumed(tmp_path: Path, device: Device) -> None:
    path = tmp_path / "tuning.json"
    arguments = [*TUNE, "--rows", "8,32,128", "--out", str(path)]
    done = webnorm_interrupted(arguments, tmp_path, path.name)
    assert done.returncode == 130
    assert done.stderr == "webnorm: interrupted; finished results are kept\n"
    first = json.loads(path.read_text())["choices"]
    assert 1 <= len(first) < 3
    done = webnorm(arguments, tmp_path)
    assert f"{len(first)} of 3 problems are recorded" in done.stdout
    choices = json.loads(path.read_text())["choices"]
    assert choices[: len(first)] == first
    assert [choice["problem"]["rows"] for choice in choices] == [8, 32, 128]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["tune", "--op", "copy"],
            "op 'copy' only measures what a norm is compared with; expected",
        ),
        (["tune", "--preset", "equinoxe"], "unknown preset 'equinoxe'; did you mean 'equinox'"),
        (
            ["tune", "--preset", "equinox", "--cols", "3"],
            "--preset and --cols cannot be combined",
        ),
        (["tune", "--dtype", "half"], "unknown dtype 'half'"),
        (["tune", "--op", "layer_norm", "--option", "dh"], "layer_norm has no option dh"),
        (["tune", "--cols", "0"], "--cols is '0'; expected 1 or more"),
        (["tune", "--rows", "8,0"], "--rows is '8,0', which has 0; expected 1 or more (a comma"),
        (
            ["tune", "--list", "--remove"],
            "--list cannot be combined with --remove: it prints a list and exits",
        ),
        (["show", "auto", "-c", "threads_per_row=8"], "auto chooses its own constants"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], message: str, mistake: Callable[[list[str]], str], device: Device
) -> None:
    assert message in mistake(arguments)
