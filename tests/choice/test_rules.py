"""The rules for GPUs: their choices exist and run where they were measured, and pages have their own."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed import run_shader
from webnorm.choice.defaults import best_variant, default_variant
from webnorm.gpu.device import Device
from webnorm.kernels.headers.library import discover
from webnorm.kernels.headers.traits import BROWSER, Traits
from webnorm.kernels.headers.variants import Variant, header_names
from webnorm.kernels.rendering.render import render_shader
from webnorm.op.dtypes import STORAGE
from webnorm.op.op import make_inputs
from webnorm.op.registry import OPS
from webnorm.ops.norms import rules
from webnorm.ops.norms.op import OPS as NORM_OPS
from webnorm.ops.norms.problem import NormProblem

GPU = Traits(frozenset({"subgroups", "shader-f16"}), 1024, 49152, software=False)
SOFTWARE = replace(GPU, software=True)
PAGE = replace(BROWSER, features=frozenset())
ADAPTERS = (
    GPU,
    BROWSER,
    PAGE,
    SOFTWARE,
    replace(GPU, workgroup_storage=16384),
    replace(PAGE, max_invocations=128),
)
KERNELS = {(kernel.op.name, kernel.name): kernel for kernel in discover()}
NORMS = [op.name for op in NORM_OPS]
COLS = (64, 256, 768, 1023, 1024, 2048, 4095, 4096, 5119, 5120, 8192, 16384, 20480)


def problem_of(op: str, cols: int, dtype: str, rows: int = 0) -> NormProblem:
    return NormProblem(rows=rows or (1 << 26) // cols, cols=cols, dtype=dtype, options=OPS[op].defaults)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("op", NORMS)
@given(cols=st.integers(1, 40000), rows=st.integers(1, 1 << 15), traits=st.sampled_from(ADAPTERS))
@settings(max_examples=25)
def test_any_problem_has_a_choice_that_runs_on_any_adapter(
    op: str, dtype: str, cols: int, rows: int, traits: Traits
) -> None:
    chosen = best_for(problem_of(op, cols, dtype, rows), op, traits)
    assert chosen.kernel.name not in {"naive", "one_pass"}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("cols", [96, 1096, 3001, 6920])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("op", NORMS)
def test_the_choice_for_a_gpu_is_correct(op: str, dtype: str, cols: int, device: Device) -> None:
    """The choice for a GPU is right on the test's adapter, whose subgroups may have another size.

    It gets few rows to save time.
    """
    traits = replace(device.traits, software=False)
    chosen = best_for(problem_of(op, cols, dtype), op, traits)
    problem = problem_of(op, cols, dtype, rows=37)
    shader = render_shader(chosen, problem, "native", traits)
    _, accuracy = run_shader(device, shader, make_inputs(OPS[op], problem))
    assert accuracy.ok, (chosen, accuracy)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("cols", COLS)
@pytest.mark.parametrize("op", NORMS)
def test_the_choice_is_the_first_that_runs_of_what_was_measured(op: str, cols: int, dtype: str) -> None:
    problem = problem_of(op, cols, dtype)
    names = header_names(OPS[op], problem, GPU)
    variants = (
        Variant(KERNELS[op, one.kernel], dict(one.constants))
        for one in rules.suggestions(op, names)
        if one.constants
    )
    first = next(variant for variant in variants if variant.refusal(problem, GPU) is None)
    chosen = best_for(problem, op, GPU)
    assert (chosen.kernel.name, chosen.constants) == (first.kernel.name, first.constants)
    # A caller who names only the kernel gets the same constants.
    assert default_variant(chosen.kernel, problem, GPU).constants == chosen.constants


@pytest.mark.parametrize("rows", [1, 16, 64, 4096])
@pytest.mark.parametrize("cols", [20480, 32767, 65536, 262144])
@pytest.mark.parametrize("op", NORMS)
def test_long_rows_have_kernels_that_exist(op: str, cols: int, rows: int) -> None:
    names = header_names(OPS[op], problem_of(op, cols, "float32", rows), GPU)
    for kernel, suggested in rules.suggestions(op, names):
        axes = KERNELS[op, kernel].tune
        for constants in [suggested] if suggested else rules.constants(op, kernel, names):
            assert all(value in axes[axis] for axis, value in constants.items()), (kernel, constants)


def best_for(problem: NormProblem, op: str, traits: Traits) -> Variant:
    ladder = [kernel for kernel in KERNELS.values() if kernel.op.name == op]
    variant, _ = best_variant(ladder, problem, traits)
    assert variant is not None and variant.refusal(problem, traits) is None
    return variant


def chosen_for(op: str, rows: int, cols: int, dtype: str = "float32", traits: Traits = GPU) -> str:
    return best_for(problem_of(op, cols, dtype, rows), op, traits).kernel.name


def test_few_long_rows_are_split_and_many_rows_have_a_workgroup_each() -> None:
    for rows, cols in ((2, 1 << 20), (64, 65536), (32, 131072), (16, 262144), (96, 98304)):
        assert chosen_for("layer_norm", rows, cols) == chosen_for("rms_norm", rows, cols) == "split_row"
    # One workgroup per row is as fast if there are enough rows, or if the rows are shorter.
    assert chosen_for("layer_norm", 200, 65536) == "workgroup_cache"
    assert (
        chosen_for("layer_norm", 64, 40960, "float16") == chosen_for("layer_norm", 64, 20480) == "registers"
    )
    # For a longer row, a workgroup reads the part beyond its memory twice more, whatever the number of rows.
    assert (
        chosen_for("rms_norm", 256, 262144, "bfloat16") == chosen_for("layer_norm", 9, 70000) == "split_row"
    )
    assert chosen_for("layer_norm", 4096, 16384) == chosen_for("rms_norm", 64, 16384) == "registers"
    # A page's workgroups have less memory.
    assert chosen_for("layer_norm", 64, 14336, traits=BROWSER) == "registers"
    assert chosen_for("layer_norm", 64, 20480, traits=BROWSER) == "split_row"
    assert chosen_for("layer_norm", 4096, 20480, traits=BROWSER) == "workgroup_cache"
    assert chosen_for("rms_norm", 512, 32768, "float16", BROWSER) == "split_row"
    # Measurements on a GPU do not apply to a CPU.
    assert chosen_for("layer_norm", 2, 1 << 20, traits=SOFTWARE) == "streaming"


def test_long_rows_that_no_vector_divides_are_split_sooner() -> None:
    assert chosen_for("layer_norm", 1024, 40960) == "registers"
    assert chosen_for("layer_norm", 1024, 40961) == chosen_for("layer_norm", 16, 20481) == "split_row"
    assert chosen_for("layer_norm", 1024, 20481) == "registers"
    assert chosen_for("layer_norm", 1024, 40961, "float16") == "registers"
    # Registers take at most 64 columns for each of 1024 invocations.
    assert chosen_for("rms_norm", 256, 65537, "float16") == "split_row"


def test_long_rows_of_a_gradient_leave_registers() -> None:
    assert chosen_for("layer_norm_backward", 4096, 16384) == "registers"
    for dtype in ("float32", "float16", "bfloat16"):
        for op in ("layer_norm_backward", "rms_norm_backward"):
            for rows, cols in (
                (1, 262144),
                (16, 32768),
                (64, 20480),
                (200, 32768),
                (16, 65536),
                (64, 262144),
            ):
                assert chosen_for(op, rows, cols, dtype) == "two_dispatch"
            assert chosen_for(op, 512, 65536, dtype) == "split_row"
            assert chosen_for(op, 4096, 65536, dtype) == "tiles"
            # At 16 M elements split_row is slower than two_dispatch in float32, and faster in types of two
            # bytes.
            several = "two_dispatch" if dtype == "float32" else "split_row"
            assert chosen_for(op, 256, 65536, dtype) == several
    assert chosen_for("rms_norm_backward", 256, 20480) == "registers"
    assert chosen_for("layer_norm_backward", 256, 20480) == "split_row"


@pytest.mark.parametrize("op", ["layer_norm_backward", "rms_norm_backward"])
def test_few_long_rows_are_split_where_two_dispatches_cannot(op: str) -> None:
    for change in ("saved_stats=false", "residual_bias"):
        options = OPS[op].defaults.changed([change])
        problem = replace(problem_of(op, 65536, "float16", 64), options=options)
        assert best_for(problem, op, GPU).kernel.name == "split_row"
    assert chosen_for(op, 64, 65537, "float16") == "split_row"


@pytest.mark.parametrize("dtype", STORAGE)
@pytest.mark.parametrize("op", NORMS)
def test_data_of_long_rows_do_not_apply_to_short_rows(op: str, dtype: str) -> None:
    """Kernels that split rows were measured with long rows only; at 8x48 one of them once ranked first."""
    for rows, cols in itertools.product((1, 8, 100, 5000), (1, 3, 8, 48, 64, 130, 512, 1000)):
        assert chosen_for(op, rows, cols, dtype) in ("registers", "one_dispatch")


@pytest.mark.parametrize("op", ["layer_norm_backward", "rms_norm_backward"])
def test_a_gradient_of_few_elements_takes_one_dispatch(op: str) -> None:
    def chosen(rows: int, cols: int, *changes: str, dtype: str = "float32", traits: Traits = GPU) -> Variant:
        options = OPS[op].defaults.changed(changes)
        return best_for(replace(problem_of(op, cols, dtype, rows), options=options), op, traits)

    for traits in (GPU, BROWSER, PAGE, replace(PAGE, max_invocations=128)):
        for rows, cols in ((1024, 1024), (2048, 1024), (128, 768), (64, 4096), (512, 4096)):
            found = chosen(rows, cols, traits=traits)
            assert found.kernel.name == "one_dispatch"
            axes = found.constants
            assert axes["threads_per_row"] * axes["rows_per_workgroup"] <= traits.max_invocations
    # The more elements, the longer the rows must be. Types of two bytes allow twice as many elements.
    assert chosen(512, 8192).kernel.name == chosen(4096, 1024).kernel.name == "one_dispatch"
    assert chosen(1024, 8192, dtype="float16").kernel.name == "one_dispatch"
    for other in (
        chosen(1024, 8192),
        chosen(8192, 1024, dtype="float16"),
        chosen(8192, 512),
        chosen(4096, 128),
        chosen(1024, 1023),
        chosen(1024, 1024, "saved_stats=false"),
        chosen(1024, 1024, "residual_bias"),
        chosen(1024, 1024, "max_workgroups=7"),
        chosen(1024, 1024, traits=SOFTWARE),
    ):
        assert other.kernel.name == "registers"
    # If one_dispatch cannot run, each of a few long rows gets its own workgroup.
    assert chosen(64, 4096, "saved_stats=false").constants["rows_per_workgroup"] == 1


@pytest.mark.parametrize("op", ["layer_norm_backward", "rms_norm_backward"])
def test_one_dispatch_where_nothing_was_measured(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "ranked", lambda *_: ())

    def chosen(rows: int, cols: int, dtype: str = "float32", traits: Traits = GPU) -> tuple[int, ...]:
        axes = ("threads_per_row", "rows_per_workgroup", "column_chunks", "batch")
        variant = best_for(problem_of(op, cols, dtype, rows), op, traits)
        assert variant.kernel.name == "one_dispatch"
        return tuple(variant.constants[axis] for axis in axes)

    assert chosen(1024, 1024) == chosen(2048, 1024) == (128, 4, 4, 4)
    assert chosen(256, 1024) == (128, 2, 4, 4)
    assert chosen(1024, 1024, "float16") == (128, 4, 4, 4)
    for traits in (BROWSER, PAGE):
        assert chosen(1024, 1024, traits=traits) == (128, 2, 4, 4)
    for traits in (GPU, BROWSER, PAGE):
        assert chosen(128, 768, traits=traits) == (128, 2, 2, 4)
        assert chosen(64, 4096, traits=traits) == (256, 1, 8, 4)
        assert chosen(100, 8192, "float16", traits) == (256, 1, 16, 4)
    assert chosen(1024, 1024, traits=replace(PAGE, max_invocations=128)) == (128, 1, 4, 4)


@pytest.mark.parametrize("cols", [256, 1024, 4096, 8192])
def test_a_page_without_subgroups_still_has_rows_in_registers(cols: int) -> None:
    portable = replace(BROWSER, features=frozenset())
    for op in NORMS:
        variant = default_variant(KERNELS[op, "registers"], problem_of(op, cols, "float32"), portable)
        assert variant.refusal(problem_of(op, cols, "float32"), portable) is None
        assert variant.constants["subgroups"] == 0
