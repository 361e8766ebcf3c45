from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broken import HONEST
from testbed import GPU, NORMS, STABLE, compute, kernel_named, needs, of_one_file, run, run_shader, suited
from webnorm.choice.defaults import default_variant
from webnorm.errors import WebnormError, size_in_bytes
from webnorm.gpu.buffers import GUARD_BYTES, buffer_bytes, check_memory, check_reference
from webnorm.gpu.device import Device, adapters, open_device
from webnorm.gpu.schedule import grid, slices, window
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.variants import Variant
from webnorm.kernels.rendering.render import Shader, render_shader
from webnorm.lab.verify.problem_buffers import ProblemBuffers
from webnorm.lab.verify.trial import try_variant
from webnorm.op.op import Task, make_inputs
from webnorm.ops.norms.corpus import PROMISES
from webnorm.ops.norms.problem import NormProblem


def shader_for(name: str, problem: NormProblem, device: Device | None = None) -> Shader:
    traits = device.traits if device else GPU
    return render_shader(default_variant(kernel_named(name), problem, traits), problem, "native", traits)


FORWARD = tuple(kernel for kernel in STABLE if not kernel.op.gradient)
BACKWARD = tuple(kernel for kernel in STABLE if kernel.op.gradient)
SLICED = tuple(kernel for kernel in BACKWARD if kernel.takes_slices)
SHADERS = {
    (name, cols): shader_for(name, NormProblem(rows=1, cols=cols))
    for name in ("naive", "registers", "copy")
    for cols in (1, 3, 64, 1023)
}


@settings(max_examples=200)
@given(
    st.sampled_from(sorted(SHADERS)),
    st.integers(1, 50_000),
    st.integers(5_000, 200_000),
    st.integers(1, 70),
    st.sampled_from([32, 64, 256]),
)
def test_slices(key: tuple[str, int], rows: int, binding: int, dimension: int, alignment: int) -> None:
    shader = SHADERS[key]
    problem = NormProblem(rows=rows, cols=key[1])
    limits = {
        "max-storage-buffer-binding-size": binding,
        "min-storage-buffer-offset-alignment": alignment,
        "max-compute-workgroups-per-dimension": dimension,
    }
    if shader.workgroup_count(shader.passes[0], 1) > dimension * dimension:
        with pytest.raises(WebnormError, match="workgroups for a row"):
            slices(shader, problem, limits)
        return
    parts = slices(shader, problem, limits)
    inner_bytes = problem.cols * 4
    (x, *_) = shader.bindings
    assert parts[0].first == 0
    if (
        buffer_bytes(rows * inner_bytes) <= binding
        and shader.workgroup_count(shader.passes[0], rows) <= dimension**2
    ):
        assert len(parts) == 1
    assert sum(part.count for part in parts) == rows
    most = max(part.count for part in parts)
    for part, after in zip(parts, [*parts[1:], None], strict=True):
        assert part.count >= 1
        # Rows that share words are in one slice.
        assert part.first % 4 == 0 or most < 4
        place = window(x, part, rows, alignment)
        assert place.offset % alignment == 0
        assert place.offset + 4 * place.start == part.first * inner_bytes
        assert place.size <= binding
        assert place.size % 16 == 0
        end = (part.first + part.count) * inner_bytes
        if after is None:
            assert place.offset + place.size >= end + GUARD_BYTES
        else:
            assert after.first == part.first + part.count
            assert 0 <= place.offset + place.size - end < 16
        across, down = grid(shader.workgroup_count(shader.passes[0], part.count), dimension)
        assert 1 <= across <= dimension and 1 <= down <= dimension


def test_no_rows_no_slices() -> None:
    shader = shader_for("naive", NormProblem(rows=0, cols=3))
    assert slices(shader, NormProblem(rows=0, cols=3), {}) == []


def test_grid() -> None:
    assert grid(1, 65535) == (1, 1)
    assert grid(65536, 65535) == (32768, 2)
    with pytest.raises(ValueError, match="17"):
        grid(17, 4)


@pytest.fixture(scope="module")
def small() -> Iterator[Device]:
    if not adapters():
        pytest.skip("wgpu finds no adapter; `webnorm doctor --fix` installs one")
    yield open_device(
        limits={"max-storage-buffer-binding-size": 65536, "max-compute-workgroups-per-dimension": 4}
    )


@pytest.fixture(scope="module")
def narrow() -> Iterator[Device]:
    """Open a device with small bindings.

    It has enough workgroups for the pass that adds a gradient's sums.
    """
    if not adapters():
        pytest.skip("wgpu finds no adapter; `webnorm doctor --fix` installs one")
    yield open_device(
        limits={"max-storage-buffer-binding-size": 65536, "max-compute-workgroups-per-dimension": 64}
    )


def in_turn(kernels: Iterable[Kernel], trials: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Pair the kernels of each file with every trial.

    The two norms share the file's text, so they take turns.
    """
    return [
        pytest.param(kernel, *trial, id="-".join(map(str, (kernel.label, *trial))))
        for first, family in enumerate(of_one_file(kernels))
        for at, trial in enumerate(trials, first)
        for kernel in [family[at % len(family)]]
    ]


@pytest.mark.sampled(6)
@pytest.mark.opengl
@pytest.mark.parametrize(
    ("kernel", "rows", "cols"),
    in_turn(FORWARD, [(1500, 96), (130, 1023), (40, 4095), (5000, 3), (20, 4096)]),
)
def test_a_device_of_small_limits(kernel: Kernel, rows: int, cols: int, small: Device) -> None:
    problem = kernel.op.problem(rows, cols)
    variant = default_variant(kernel, problem, small.traits)
    needs(small, variant.features(problem, small.traits))
    shader = render_shader(variant, problem, "native", small.traits)
    assert len(slices(shader, problem, small.limits)) > 1
    _, accuracy = run(small, variant, problem)
    assert accuracy.ok, accuracy.reason


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("rows", "cols", "dtype", "options"),
    [
        (*shape, ("float16", "bfloat16")[(i + j) % 2], options)
        for i, shape in enumerate([(1501, 97), (130, 1023), (20, 4095), (12001, 3)])
        for j, options in enumerate([[], ["residual", "return_stats", "max_workgroups=5"]])
    ],
)
def test_rows_that_share_words_in_slices(
    rows: int, cols: int, dtype: str, options: list[str], small: Device
) -> None:
    kernel = kernel_named("registers")
    problem = NormProblem(rows=rows, cols=cols, dtype=dtype, options=kernel.op.defaults.changed(options))
    constants = {
        **default_variant(kernel, problem, small.traits).constants,
        "vector_width": 2,
        "rows_per_workgroup": 4,
        "threads_per_row": 64,
    }
    variant = Variant(kernel, constants)
    shader = render_shader(variant, problem, "native", small.traits)
    assert len(slices(shader, problem, small.limits)) > 1
    _, accuracy = run(small, variant, problem)
    assert accuracy.ok, accuracy.reason


def four_groups(kernel: Kernel, problem: NormProblem, device: Device) -> Variant:
    """Return a variant with few records of sums, so that they fit a small binding on every adapter."""
    constants = default_variant(kernel, problem, device.traits).constants
    return Variant(kernel, {**constants, "groups": 4} if "groups" in kernel.tune else constants)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("kernel", "rows", "cols", "dtype"),
    in_turn(
        SLICED,
        [
            (1500, 96, "float32"),
            (12000, 3, "float32"),
            (400, 199, "float16"),
            (301, 254, "float16"),
            (12000, 16, "float32"),
        ],
    ),
)
def test_slices_add_to_the_same_sums(
    kernel: Kernel, rows: int, cols: int, dtype: str, narrow: Device
) -> None:
    options = kernel.op.defaults.changed(["bias", "residual_bias", "dh"])
    problem = NormProblem(rows=rows, cols=cols, dtype=dtype, options=options)
    variant = four_groups(kernel, problem, narrow)
    shader = render_shader(variant, problem, "native", narrow.traits)
    assert len(slices(shader, problem, narrow.limits)) > 1
    _, accuracy = run(narrow, variant, problem)
    assert accuracy.ok, accuracy.reason


@pytest.mark.parametrize("op", ["layer_norm_backward", "rms_norm_backward"])
@pytest.mark.parametrize("name", ["one_dispatch", "two_dispatch"])
def test_rows_that_have_to_be_taken_at_once_are_not_cut(name: str, op: str, narrow: Device) -> None:
    kernel = kernel_named(name, op)
    assert not kernel.takes_slices
    problem = kernel.op.problem(1500, 96)
    variant = default_variant(kernel, problem, narrow.traits)
    expected = r"needs all rows at once, but .* takes \d+ slices here; use fewer rows or another kernel"
    with pytest.raises(WebnormError, match=expected):
        run(narrow, variant, problem)
    _, accuracy = run(narrow, variant, dataclasses.replace(problem, rows=150))
    assert accuracy.ok, accuracy.reason


def test_sums_that_do_not_fit_a_binding(narrow: Device) -> None:
    problem = NormProblem(rows=20, cols=4096)
    kernel = kernel_named("tiles", "layer_norm_backward")
    with pytest.raises(WebnormError, match=r"needs 131072 bytes for partials; .* to 65536 bytes"):
        run(narrow, four_groups(kernel, problem, narrow), problem)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("kernel", "name"),
    in_turn(
        [kernel for kernel in SLICED if "groups" in kernel.tune],
        [(case.name,) for case in PROMISES if case.narrow and case.problem(SLICED[0].op)],
    ),
)
def test_rows_are_cut_however_many_groups_share_them(kernel: Kernel, name: str, device: Device) -> None:
    """A case splits the work, even if a large GPU uses many records."""
    (case,) = (case for case in PROMISES if case.name == name)
    problem = case.problem(kernel.op)
    assert problem is not None
    constants = default_variant(kernel, problem, device.traits).constants
    variant = Variant(kernel, {**constants, "groups": max(kernel.tune["groups"])})
    board = ProblemBuffers(
        device, Task(kernel.op, problem), case.draw(Task(kernel.op, problem)), (), narrow=case.narrow
    )
    result, plan, _ = try_variant(board, variant, case.name)
    assert result.status == "pass", result.reason
    assert plan is not None
    if case.narrow == "dispatches":
        assert all(count > 1 for one in plan._schedule.dispatches for count in one.grid)
    else:
        assert plan.dispatches > len(plan.shader.passes)


@pytest.mark.sampled(6)
@pytest.mark.opengl
@pytest.mark.parametrize(("kernel", "cap"), in_turn(STABLE, [(1,), (3,), (50,)]))
def test_a_cap_on_the_number_of_workgroups(kernel: Kernel, cap: int, device: Device) -> None:
    options = kernel.op.defaults.changed(["bias", f"max_workgroups={cap}"])
    cols = (45, 300)[(STABLE.index(kernel) + cap) % 2]
    problem = suited(kernel, NormProblem(rows=70, cols=cols, options=options))
    variant = default_variant(kernel, problem, device.traits)
    needs(device, variant.features(problem, device.traits))
    shader = render_shader(variant, problem, "native", device.traits)
    assert all(shader.workgroup_count(each, problem.rows) <= cap for each in shader.passes)
    _, accuracy = run(device, variant, problem)
    assert accuracy.ok, accuracy.reason


@pytest.mark.opengl
@pytest.mark.parametrize("kernel", BACKWARD, ids=lambda kernel: kernel.label)
def test_no_rows_give_sums_of_0(kernel: Kernel, device: Device) -> None:
    problem = kernel.op.problem(0, 12)
    variant = default_variant(kernel, problem, device.traits)
    shader = render_shader(variant, problem, "native", device.traits)
    outputs = compute(device, shader, make_inputs(kernel.op, problem))
    assert outputs["dx"][0].shape == (0, 12)
    assert not outputs["dweight"][0].any()


@pytest.mark.sampled(3)
@pytest.mark.opengl
@pytest.mark.parametrize(
    ("op", "rows", "cols", "options"),
    [
        (("layer_norm", "rms_norm")[(i + j) % 2], *shape, options)
        for i, shape in enumerate([(1500, 97), (9000, 3), (40, 4094)])
        for j, options in enumerate(["return_stats", "residual,out_dtype=int8", "out_dtype=float8_e5m2"])
    ],
)
def test_slices_that_begin_inside_a_word(op: str, rows: int, cols: int, options: str, small: Device) -> None:
    """With narrow types and odd columns, a slice's first row shares a word with the slice before it."""
    kernel = kernel_named("registers", op)
    problem = NormProblem(
        rows=rows, cols=cols, dtype="float16", options=kernel.op.defaults.changed(options.split(","))
    )
    variant = default_variant(kernel, problem, small.traits)
    shader = render_shader(variant, problem, "native", small.traits)
    assert len(slices(shader, problem, small.limits)) > 1
    _, accuracy = run(small, variant, problem)
    assert accuracy.ok, accuracy.reason


@pytest.mark.opengl
def test_copies_are_split_too(small: Device) -> None:
    problem = NormProblem(rows=333, cols=1021)
    _, accuracy = run(small, default_variant(kernel_named("copy"), problem, small.traits), problem)
    assert accuracy.ok, accuracy.reason


def test_a_row_over_the_binding_limit(small: Device) -> None:
    problem = NormProblem(rows=2, cols=20000)
    with pytest.raises(WebnormError, match=r"takes 80000 bytes; .* limits to 65536 bytes"):
        run(small, default_variant(kernel_named("two_pass"), problem, small.traits), problem)


def test_slices_without_end(small: Device, tmp_path: Path) -> None:
    """A header's workgroup count may require one slice per row."""
    path = tmp_path / "layer_norm" / "naive.wgsl"
    path.parent.mkdir()
    path.write_text(re.sub(r'(?<=workgroup_count = ").*(?=")', "16 * rows", HONEST))
    problem = NormProblem(rows=5000, cols=8)
    variant = default_variant(load(path), problem, small.traits)
    with pytest.raises(WebnormError, match=r"needs 5000 slices for .* on this device; the limit is 4096"):
        run(small, variant, problem)


def test_too_large_a_problem_is_refused_before_anything_is_allocated(device: Device) -> None:
    problem = NormProblem(rows=10**8, cols=1024)
    op = kernel_named("registers").op
    limit = device.limits["max-buffer-size"]
    largest = re.escape(size_in_bytes(limit))
    with pytest.raises(WebnormError, match=rf"x takes 381\.5 GiB; .* largest buffer is {largest}"):
        check_memory(Task(op, problem), device)
    if device.memory:
        fits_one = NormProblem(rows=limit // 4096 // 2, cols=1024)
        with pytest.raises(WebnormError, match=r"this machine has .* of memory"):
            check_memory(Task(op, fits_one), device, sets=10**4)


@pytest.mark.opengl
def test_without_subgroups() -> None:
    if not adapters():
        pytest.skip("wgpu finds no adapter; `webnorm doctor --fix` installs one")
    plain = open_device(without=frozenset({"subgroups"}))
    assert "subgroups" not in plain.traits.features
    problem = NormProblem(rows=7, cols=300)
    for kernel in NORMS:
        variant = default_variant(kernel, problem, plain.traits)
        if kernel.name in ("welford_subgroup", "row_in_registers"):
            assert "lacks" in (variant.refusal(problem, plain.traits) or "")
        else:
            assert run(plain, variant, problem)[1].ok


@pytest.mark.parametrize(
    ("name", "cols", "old", "new", "reason"),
    [
        (
            "two_pass",
            50,
            "if (row_exists && live(j, thread)) {",
            "if (row_exists) {",
            "past the end",
        ),
        ("naive", 48, "if (row_exists) {", "if (row_exists && at != 7u) {", "never written"),
        ("two_pass", 50, "min(access(j, thread), ACCESSES - 1u)", "access(j, thread) + 7u", "NaN"),
        # Rows after the last one read x's guard and write the result over y's guard. That NaN has other bits.
        (
            "naive",
            50,
            "row_index < params.rows;\n    let row = min(row_index, params.rows - 1u);",
            "true;\n    let row = row_index;",
            "wrote past the end",
        ),
        ("copy", 50, "params.rows * 50u + 0u", "params.rows * 50u + 1u", "wrote past the end"),
    ],
)
def test_the_harness_sees(name: str, cols: int, old: str, new: str, reason: str, device: Device) -> None:
    """The harness sees writes past the end, missing elements, and reads past the end of x."""
    problem = NormProblem(rows=9, cols=cols)
    shader = shader_for(name, problem, device)
    assert old in shader.text
    _, accuracy = run_shader(
        device,
        dataclasses.replace(shader, text=shader.text.replace(old, new)),
        make_inputs(shader.variant.kernel.op, problem),
    )
    assert not accuracy.ok
    assert reason in (accuracy.reason or "")


def test_outputs_start_poisoned(device: Device) -> None:
    problem = NormProblem(rows=5, cols=5)
    shader = shader_for("naive", problem, device)
    text = shader.text.replace("    let row_exists = ", "    let row_exists = false && ")
    y, accuracy = run_shader(
        device, dataclasses.replace(shader, text=text), make_inputs(shader.variant.kernel.op, problem)
    )
    assert np.isnan(y).all()
    assert accuracy.non_finite == 25


def test_answers_that_the_machine_cannot_hold_are_refused_before_they_are_drawn() -> None:
    check_reference(NormProblem(rows=1024, cols=1024))
    with pytest.raises(WebnormError, match=r"float64 reference take .* this machine has"):
        check_reference(NormProblem(rows=10**7, cols=10**7))
