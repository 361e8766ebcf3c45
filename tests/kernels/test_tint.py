"""Chrome's compiler accepts every browser rendering, including its pipeline, at a device's default limits."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from headless import needs_tint
from immediates import with_immediates
from testbed import FAMILIES, KERNELS, NORMS, covering, kernel_named, option_problems, suited
from webnorm.choice.defaults import default_variant
from webnorm.kernels.headers.traits import BROWSER, IMMEDIATES
from webnorm.kernels.headers.variants import Variant, runnable_variants
from webnorm.kernels.rendering.render import MOST_BUFFERS, RenderedPass, Shader, render_shader
from webnorm.ops.norms.problem import NormOptions, NormProblem
from webnorm.web import tint

pytestmark = needs_tint
OPTIONS = (
    NormOptions(),
    NormOptions(weight=False),
    NormOptions(bias=False),
    NormOptions(weight=False, bias=False),
)


def source(name: str, shader: Shader, text: str | None = None) -> tint.TintSource:
    kinds = {"read": "read-only-storage", "read_write": "storage"}

    def pipeline(each: RenderedPass) -> tint.TintEntryPoint:
        storage = ((one.index, kinds[one.access]) for one in each.bindings)
        return tint.TintEntryPoint(each.entry_point, ((0, "uniform"), *storage))

    passes = tuple(pipeline(each) for each in shader.passes)
    return tint.TintSource(name, text or shader.text, passes, tuple(sorted(shader.features)))


def browser_shader(variant: Variant, problem: NormProblem) -> Shader:
    return render_shader(variant, problem, "browser", BROWSER)


def complaints(sources: list[tint.TintSource]) -> list[tint.TintVerdict]:
    verdicts = tint.check_shaders(sources)
    assert [verdict.name for verdict in verdicts] == [one.name for one in sources]
    return [verdict for verdict in verdicts if verdict.messages]


def test_parameters_as_immediates() -> None:
    traits = replace(BROWSER, features=BROWSER.features | {IMMEDIATES})
    sources = []
    for kernel in map(with_immediates, KERNELS):
        problem = suited(kernel, NormProblem(rows=8, cols=64))
        shader = render_shader(default_variant(kernel, problem, traits), problem, "browser", traits)
        assert "var<immediate> params: Params;" in shader.text
        sources.append(tint.source_of(kernel.label, shader))
    assert complaints(sources) == []


def test_default_constants() -> None:
    sources = []
    columns = (1, 3, 64, 199, 768, 1023, 1024, 4095, 8192, 16384, 100003)
    # Every kernel meets each number of columns. The options take turns over both.
    for (i, kernel), (j, cols) in itertools.product(enumerate(KERNELS), enumerate(columns)):
        problem = suited(kernel, NormProblem(rows=8, cols=cols, options=OPTIONS[(i + j) % len(OPTIONS)]))
        variant = default_variant(kernel, problem, BROWSER)
        if variant.refusal(problem, BROWSER) is None:
            sources.append(source(f"{variant} {problem}", browser_shader(variant, problem)))
    assert len(sources) > 200
    assert complaints(sources) == []


@pytest.mark.slow
def test_every_option() -> None:
    sources = []
    for kernel in (kernel for kernel in KERNELS if not kernel.op.is_copy):
        for case, problem in option_problems(kernel.op):
            variant = default_variant(kernel, problem, BROWSER)
            if variant.refusal(problem, BROWSER) is None:
                shader = browser_shader(variant, problem)
                assert all(len(each.bindings) <= MOST_BUFFERS for each in shader.passes)
                sources.append(source(f"{variant} {case.name} {problem.dtype}", shader))
    assert len(sources) > 800
    assert complaints(sources) == []


@pytest.mark.slow
def test_all_pairs_of_constants() -> None:
    sources = []
    for family in FAMILIES.values():
        runnable = (
            (variant, problem)
            for kernel in family
            for cols, dtype in ((96, "float32"), (199, "float32"), (96, "float16"), (199, "bfloat16"))
            for problem in (suited(kernel, NormProblem(rows=8, cols=cols, dtype=dtype)),)
            for variant in runnable_variants(kernel, problem, BROWSER)
        )
        for variant, problem in covering(runnable):
            sources.append(source(str(variant), browser_shader(variant, problem)))
    assert len(sources) > 250
    assert complaints(sources) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "let row = min(row_index, params.rows - 1u);",
            "if (place > 100u) { return; }\n    let row = row_index;",
        ),
        ("if (subgroup_size < THREADS) {", "if (lane < THREADS) {"),
    ],
)
def test_non_uniform_control_flow_is_seen(old: str, new: str) -> None:
    problem = NormProblem(rows=8, cols=768)
    shader = browser_shader(default_variant(kernel_named("registers"), problem, BROWSER), problem)
    assert old in shader.text
    (complaint,) = complaints([source("mutant", shader, shader.text.replace(old, new))])
    assert not complaint.ok


def test_limits_are_seen() -> None:
    problem = NormProblem(rows=8, cols=768)
    kernel = kernel_named("two_pass")
    wide = Variant(kernel, {**default_variant(kernel, problem, BROWSER).constants, "threads_per_row": 512})
    (complaint,) = complaints([source("wide", browser_shader(wide, problem))])
    assert not complaint.ok


def test_no_kernel_is_left_out() -> None:
    problem = NormProblem(rows=8, cols=768)
    assert all(
        default_variant(kernel, problem, BROWSER).refusal(problem, BROWSER) is None for kernel in NORMS
    )
