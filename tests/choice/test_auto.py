from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from testbed import KERNELS
from webnorm.choice.defaults import ChosenVariant, choose, choose_own
from webnorm.choice.tuning import Platform, TunedChoice, Tuning
from webnorm.errors import WebnormError
from webnorm.kernels.headers import header, library
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.traits import BROWSER, Traits
from webnorm.kernels.headers.variants import runnable_variants
from webnorm.kernels.rendering.render import render_shader
from webnorm.op.dtypes import STORAGE
from webnorm.op.op import Op, Task
from webnorm.op.registry import OPS
from webnorm.ops.norms.op import OPS as NORM_OPS
from webnorm.ops.norms.problem import NormProblem

BOTH = frozenset({"subgroups", "shader-f16"})
ADAPTERS = {
    "page": BROWSER,
    "page without subgroups": Traits(frozenset(), 256, 16384, software=False),
    "page with float16": Traits(BOTH, 256, 16384, software=False),
    "page of 128 invocations": Traits(frozenset(), 128, 16384, software=False),
    "desktop": Traits(BOTH, 1024, 49152, software=False),
    "desktop without subgroups": Traits(frozenset({"shader-f16"}), 1024, 49152, software=False),
    "desktop of 16 KiB": Traits(frozenset({"subgroups"}), 1024, 16384, software=False),
    "unified memory": Traits(BOTH, 1024, 32768, software=False),
    "mobile": Traits(frozenset({"shader-f16"}), 256, 32768, software=False),
    "small mobile": Traits(frozenset(), 128, 16384, software=False),
    "software": Traits(frozenset({"subgroups"}), 1024, 32768, software=True),
    "software page": Traits(frozenset(), 256, 16384, software=True),
}
COLS = (1, 3, 255, 256, 1023, 1024, 4096, 5119, 16384, 65536, 262144)
NORMS = NORM_OPS
OPTIONS: dict[bool, tuple[tuple[str, ...], ...]] = {
    False: ((), ("weight=false", "bias=false"), ("residual", "return_stats", "max_workgroups=7")),
    True: ((), ("saved_stats=false", "bias", "dh"), ("weight=false", "max_workgroups=7")),
}
PLATFORM = Platform(adapter="a", backend="Vulkan", driver="1", wgpu="1", webnorm="1")


def problems(op: Op) -> Iterator[NormProblem]:
    """Yield every shape in every type; the options take turns over them."""
    turns = OPTIONS[op.gradient]
    for at, (cols, rows, dtype) in enumerate(itertools.product(COLS, (1, 1000, 1 << 18), STORAGE)):
        # Each set of options meets every type and every number of rows.
        options = op.defaults.changed(turns[(at + at // 3 + at // 9) % len(turns)])
        yield NormProblem(rows=rows, cols=cols, dtype=dtype, options=options)


def recorded(op: Op, problem: NormProblem, kernel: str, constants: dict[str, int]) -> Tuning:
    choice = TunedChoice(
        op=op.name,
        problem=problem,
        kernel=kernel,
        constants=constants,
        speedup=1.5,
        percent_of_copy=90.0,
        tried=9,
    )
    return Tuning(platform=PLATFORM, date="2026-01-01", choices=(choice,))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("op", NORMS, ids=lambda op: op.name)
@pytest.mark.parametrize("name", ADAPTERS)
def test_a_choice_can_run(op: Op, name: str) -> None:
    traits = ADAPTERS[name]
    none = 0
    for problem in problems(op):
        try:
            chosen = choose(KERNELS, Task(op, problem), traits)
        except WebnormError as error:
            assert str(error).startswith(f"no kernel of {op.name} can run {problem} on this adapter: ")
            none += 1
            with pytest.raises(WebnormError, match=re.escape(str(error))):
                choose_own(Task(op, problem), traits)
            continue
        assert chosen.source == "rules"
        assert choose_own(Task(op, problem), traits) == chosen
        assert chosen.variant.kernel.unstable is None
        assert chosen.variant.refusal(problem, traits) is None, f"{chosen.variant} for {problem}"
    # Some kernel runs rows of any length, with two exceptions. llvmpipe ends long loops, and the last pass of
    # a gradient needs the 256 invocations that WebGPU guarantees.
    assert none == 0 or traits.software or (op.gradient and traits.max_invocations < 256)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("op", NORMS, ids=lambda op: op.name)
@pytest.mark.parametrize("name", ADAPTERS)
def test_a_choice_fits_workgroup_memory_and_uses_no_feature_that_is_missing(op: Op, name: str) -> None:
    traits = ADAPTERS[name]
    for cols in (255, 1024, 5119, 16384):
        for pairs in OPTIONS[op.gradient]:
            problem = NormProblem(rows=1000, cols=cols, dtype="float16", options=op.defaults.changed(pairs))
            try:
                variant = choose(KERNELS, Task(op, problem), traits).variant
            except WebnormError:
                continue
            shader = render_shader(variant, problem, "browser", traits)
            assert shader.workgroup_bytes <= traits.workgroup_storage, f"{variant} for {problem}"
            assert shader.features <= traits.features
            assert ("enable subgroups" in shader.text) <= ("subgroups" in traits.features)
            assert all(each.workgroup_size <= traits.max_invocations for each in shader.passes)


@pytest.mark.slow
@pytest.mark.parametrize("op", NORMS, ids=lambda op: op.name)
def test_a_tuning_of_a_larger_adapter_is_used_only_if_it_runs(op: Op) -> None:
    desktop = ADAPTERS["desktop"]
    followers = [traits for traits in ADAPTERS.values() if not op.gradient or traits.max_invocations >= 256]
    sources = set()
    for cols in (255, 1024, 16384):
        problem = NormProblem(rows=1000, cols=cols, dtype="float16", options=op.defaults)
        by_rules = [choose(KERNELS, Task(op, problem), traits) for traits in followers]
        ladder = [kernel for kernel in KERNELS if kernel.op == op and kernel.unstable is None]
        for kernel in ladder:
            # At most ten random variants per kernel.
            variants = list(runnable_variants(kernel, problem, desktop))
            for variant in random.Random(0).sample(variants, min(10, len(variants))):
                tuning = recorded(op, problem, kernel.name, dict(variant.constants))
                for traits, otherwise in zip(followers, by_rules, strict=True):
                    chosen = choose(KERNELS, Task(op, problem), traits, tuning)
                    sources.add(chosen.source)
                    runs = variant.refusal(problem, traits) is None
                    assert chosen == (ChosenVariant(variant, "tuning") if runs else otherwise)
                    assert choose_own(Task(op, problem), traits, tuning) == chosen
    assert sources == {"tuning", "rules"}


def test_a_choice_whose_kernel_is_gone_is_ignored() -> None:
    op, traits = OPS["layer_norm"], ADAPTERS["desktop"]
    task = Task(op, NormProblem(rows=1000, cols=1024))
    by_rules = choose(KERNELS, task, traits)
    constants = {"threads_per_row": 64, "hi_lo_mean": 1}
    right = recorded(op, task.problem, "two_pass", constants)
    assert choose(KERNELS, task, traits, right).source == "tuning"
    for kernel, other in (
        ("three_pass", constants),
        ("one_pass", {"threads_per_row": 64}),
        ("two_pass", {**constants, "threads_per_row": 65}),
        ("two_pass", {"threads_per_row": 64}),
        ("two_pass", {**constants, "lanes": 1}),
    ):
        assert choose(KERNELS, task, traits, recorded(op, task.problem, kernel, other)) == by_rules


def test_a_first_choice_reads_one_header(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    make = header._Header.kernel

    def noted(self: header._Header, name: str) -> Kernel:
        made.append(self.path.stem)
        return make(self, name)

    monkeypatch.setattr(header._Header, "kernel", noted)
    library._own_kernel.cache_clear()
    for op in NORMS:
        problem = op.problem(1000, 1024)
        assert choose_own(Task(op, problem), ADAPTERS["desktop"]).variant.kernel.name in made[-1:]
    assert len(made) == len(NORMS)


def test_the_error_without_any_kernel_has_the_reason() -> None:
    kernels = [replace(kernel, unstable="a reason") for kernel in KERNELS]
    with pytest.raises(WebnormError, match="no kernel of rms_norm can run 2x3 float32 on this"):
        choose(kernels, Task(OPS["rms_norm"], NormProblem(rows=2, cols=3)), BROWSER)
