"""Parameters as immediates: equal bits, slices, scalars that change, refusals, traces and races."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import webnorm
from immediates import WORK, assert_equal, compared, with_immediates
from testbed import GPU, KERNELS, kernel_named, needs
from webnorm.choice.defaults import default_variant, fitting_variant, nearest_variant
from webnorm.gpu.device import Device, open_device
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.kernel import Kernel, ScratchBuffer
from webnorm.kernels.headers.parameters import word_count
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.kernels.headers.traits import BROWSER, IMMEDIATES
from webnorm.kernels.headers.variants import runnable_variants
from webnorm.kernels.rendering.render import render_shader
from webnorm.lab.diagnose.trace import trace
from webnorm.lab.run.jobs import count_cost
from webnorm.lab.verify.races import find_fault
from webnorm.op import expression
from webnorm.op.expression import parse
from webnorm.op.op import make_inputs
from webnorm.ops.norms.problem import NormOptions, NormProblem

PROBLEM = NormProblem(rows=7, cols=64)


@pytest.fixture
def immediates(device: Device) -> Device:
    needs(device, [IMMEDIATES])
    return device


def mine(folder: Path, name: str, old: str = "", new: str = "") -> Path:
    """Write a changed copy of one of webnorm's kernels that gets immediates where there are any."""
    text = (wgsl_root() / "layer_norm" / f"{name}.wgsl").read_text(encoding="utf-8")
    layout = '// layout = "row_per_workgroup"\n'
    used = f'// {IMMEDIATES} = "has_{IMMEDIATES}"\n'
    assert text.count(layout) == 1 and "[features]" not in text and (not old or text.count(old) == 1)
    path = folder / "layer_norm" / "mine.wgsl"
    path.parent.mkdir(exist_ok=True)
    text = text.replace(layout, f"{layout}// [features]\n{used}")
    path.write_text(text.replace(old, new) if old else text, encoding="utf-8")
    return path


def test_immediates_change_no_bit(immediates: Device) -> None:
    assert_equal([compared(immediates, work) for work in WORK])


def test_without_the_feature_there_is_a_uniform(tmp_path: Path) -> None:
    kernel = load(mine(tmp_path, "two_pass"))
    there = replace(BROWSER, features=BROWSER.features | {IMMEDIATES})
    for traits, declared in ((BROWSER, "@group(0) @binding(0) var<uniform>"), (there, "var<immediate>")):
        shader = render_shader(default_variant(kernel, PROBLEM, traits), PROBLEM, "browser", traits)
        assert f"{declared} params: Params;\n" in shader.text
        assert shader.immediates == (traits is there)
    lacking = open_device(without=frozenset({IMMEDIATES}))
    assert IMMEDIATES not in lacking.traits.features
    x = np.ones((3, 8), np.float32)
    assert (webnorm.layer_norm(x, 8, kernel=kernel.path, device=lacking) == 0.0).all()


def test_scalars_change_between_calls(immediates: Device, tmp_path: Path) -> None:
    """The calls share a compiled kernel, whose scalars are the words of each call."""
    own, x = mine(tmp_path, "two_pass"), np.random.default_rng(0).normal(size=(50, 64)).astype(np.float32)
    on_gpu = webnorm.GpuArray.from_numpy(x, immediates)
    for eps in (1e-5, 0.5, 1e-5, 2.0):
        expected = webnorm.layer_norm(x, 64, eps=eps, kernel="two_pass", device=immediates)
        np.testing.assert_array_equal(
            webnorm.layer_norm(x, 64, eps=eps, kernel=own, device=immediates), expected
        )
        kept = webnorm.layer_norm(on_gpu, 64, eps=eps, kernel=own)
        np.testing.assert_array_equal(kept.numpy(), expected)


def test_options_slices_and_races_of_the_corpus(immediates: Device, tmp_path: Path) -> None:
    mine(tmp_path, "two_pass")
    cases = ("cols-3", "bindings-61-residual", "dispatches-70", "residual-70", "stats-61", "int8-61")
    results = webnorm.check("mine", cases=cases, wgsl=[tmp_path], seed=1).results
    assert {one.status for one in results} == {"pass"} and all(one.watched for one in results)


def test_a_race_is_found(immediates: Device, tmp_path: Path) -> None:
    place = mine(tmp_path, "two_pass")
    text = place.read_text(encoding="utf-8")
    begin = text.index("@compute")
    racing = text[:begin] + "var<workgroup> shared_eps: f32;\n" + text[begin:]
    line = "    let rstd = inverseSqrt(variance + params.eps);\n"
    assert racing.count(line) == 1
    place.write_text(racing.replace(line, f"    shared_eps = params.eps;\n{line}"), encoding="utf-8")
    kernel = load(place)
    variant = default_variant(kernel, PROBLEM, immediates.traits)
    fault = find_fault(immediates, variant, PROBLEM, make_inputs(kernel.op, PROBLEM), ())
    assert fault is not None and "shared_eps" in fault.text


def test_traces_and_costs(immediates: Device, tmp_path: Path) -> None:
    line = "    let rstd = inverseSqrt(variance + params.eps);\n"
    own = mine(tmp_path, "two_pass", line, f'{line}{{{{ trace("rstd") }}}}\n{{{{ trace("params.rows") }}}}\n')
    kernel = load(own)
    variant = default_variant(kernel, PROBLEM, immediates.traits)
    found = trace(immediates, variant, PROBLEM, make_inputs(kernel.op, PROBLEM), (), "")
    assert {one.name for one in found.sites} == {"rstd", "params.rows"}
    rows = {one.values for one in found.records if found.sites[one.site].name == "params.rows"}
    assert rows == {(PROBLEM.rows,)}
    usual = kernel_named("two_pass")
    costs = [
        count_cost(immediates, default_variant(one, PROBLEM, immediates.traits), PROBLEM)
        for one in (usual, with_immediates(usual))
    ]
    assert costs[0] == costs[1]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.label)
def test_words_are_counted_before_the_rendering(kernel: Kernel) -> None:
    options = NormOptions(residual=True, return_stats=True)
    for problem in (PROBLEM, replace(PROBLEM, options=options)):
        if kernel.op.is_copy or kernel.op.gradient:
            problem = kernel.op.problem(problem.rows, problem.cols)
        variant, refused = fitting_variant(kernel, problem, GPU)
        assert variant is not None, refused
        shader = render_shader(variant, problem, "browser", GPU)
        names = variant.names(problem, GPU)
        assert expression.evaluate(word_count(kernel, problem), names) == len(shader.params)


def crowded(count: int, words: str = "1") -> Kernel:
    """Return a kernel with many scratch buffers of the whole call, and with an axis for immediates."""
    kernel = kernel_named("naive")
    buffers = (ScratchBuffer(f"note{at}", False, 1, parse(words)) for at in range(count))
    return replace(
        kernel,
        tune={**kernel.tune, "quick": (1, 0)},
        default={**kernel.default, "quick": 1},
        features={IMMEDIATES: "quick"},
        scratch=tuple(buffers),
    )


def test_a_variant_with_too_many_words_is_refused() -> None:
    """The words of naive are rows, eps, scale, x_start and y_start."""
    there = replace(BROWSER, features=BROWSER.features | {IMMEDIATES})
    for kernel in (crowded(5), crowded(9, "0 * cols")):
        assert default_variant(kernel, PROBLEM, there).constants["quick"] == 1
    kernel = crowded(6)
    full = default_variant(kernel, PROBLEM, there)
    assert full.refusal(PROBLEM, there) == "has 17 words of parameters; immediates hold at most 16"
    variant, _ = nearest_variant(kernel, PROBLEM, there)
    assert variant is not None and variant.constants == {**full.constants, "quick": 0}
    assert {one.constants["quick"] for one in runnable_variants(kernel, PROBLEM, there)} == {0}
    lacks = "needs the feature 'immediate_address_space', which the engine's WGSL lacks"
    assert full.refusal(PROBLEM, BROWSER) == lacks
