"""Running one variant on one problem, the way every test does it."""

from __future__ import annotations

import itertools
import random
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

import tally
import tiers
from webnorm.choice.defaults import default_variant
from webnorm.gpu.buffers import Inputs, Outputs, check_memory
from webnorm.gpu.compute_programs import _words_of
from webnorm.gpu.device import Device
from webnorm.gpu.pipelines import compile_shader
from webnorm.gpu.schedule import Plan
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.library import discover, select
from webnorm.kernels.headers.traits import Traits
from webnorm.kernels.headers.variants import Variant, runnable_variants
from webnorm.kernels.rendering.render import Shader, render_shader
from webnorm.lab.run.search import distance
from webnorm.lab.verify.accuracy import Accuracy, assess
from webnorm.op.corpus import Case, problems
from webnorm.op.dtypes import STORAGE, Array
from webnorm.op.expression import parse
from webnorm.op.op import Expected, ExpectedOutputs, Op, Task, make_inputs
from webnorm.ops.norms.case import OPTION_CASES, OPTION_GRID, NormCase
from webnorm.ops.norms.op import complete_inputs
from webnorm.ops.norms.problem import NormProblem

KERNELS = tuple(discover())
NORMS = tuple(kernel for kernel in KERNELS if kernel.op.name == "layer_norm")
STABLE = tuple(kernel for kernel in KERNELS if kernel.unstable is None and not kernel.op.is_copy)


def named_alike(kernels: Iterable[Kernel]) -> dict[str, tuple[Kernel, ...]]:
    """The kernels of one name, of both norms or of their gradients, which share most of their text."""
    found: dict[str, tuple[Kernel, ...]] = {}
    for kernel in kernels:
        name = f"{'backward' if kernel.op.gradient else 'forward'}-{kernel.name}"
        found[name] = (*found.get(name, ()), kernel)
    return found


def of_one_file(kernels: Iterable[Kernel]) -> list[tuple[Kernel, ...]]:
    """The kernels of each file: one that serves both norms is one text but for what they compute."""
    found: dict[Path, tuple[Kernel, ...]] = {}
    for kernel in kernels:
        found[kernel.path] = (*found.get(kernel.path, ()), kernel)
    return list(found.values())


FAMILIES = named_alike(KERNELS)
GPU = Traits(frozenset({"subgroups"}), max_invocations=1024, workgroup_storage=49152, software=False)
SOFTWARE = Traits(frozenset({"subgroups"}), max_invocations=1024, workgroup_storage=32768, software=True)
# The columns that rows of values are repeated to. Whole fours, which some kernels need, and no power of two,
# where sums of a constant are exact.
STACK_COLS = 4092
Trial = TypeVar("Trial", bound=tuple[Any, ...])
# Every output, and whether its guard is intact.
Outcome = Mapping[str, tuple[Array, bool]]


def covering(trials: Iterable[Trial]) -> list[Trial]:
    """Some of the trials, (variant, problem, ...), which have every pair of values of two axes that occurs in
    any of them. The op and what a problem is made of are axes too, and whatever follows it in the trial.
    """
    listed = list(trials)
    if not listed:
        return []
    random.Random(0).shuffle(listed)
    described = []
    for variant, problem, *more in listed:
        of_problem = {"op": variant.kernel.op.name, "cols": problem.cols, "dtype": problem.dtype}
        described.append(
            {**variant.constants, **of_problem, "options": str(problem.options), **dict(enumerate(more))}
        )
    # A number for each axis's value, and one for each pair of them: all trials are looked at again and again.
    numbers: dict[object, dict[object, int]] = {}
    for values in described:
        for axis, value in values.items():
            numbers.setdefault(axis, {}).setdefault(value, len(numbers[axis]))
    codes = {
        axis: np.array([of[values[axis]] if axis in values else len(of) for values in described])
        for axis, of in numbers.items()
    }
    pairs, count = [], 0
    for one, other in itertools.combinations(codes, 2):
        width = len(numbers[other]) + 1
        pairs.append(count + codes[one] * width + codes[other])
        count += (len(numbers[one]) + 1) * width
    of_trial = np.stack(pairs, axis=1)
    missing = np.ones(count, dtype=bool)
    kept = []
    while (added := missing[of_trial].sum(axis=1)).any():
        best = int(added.argmax())
        missing[of_trial[best]] = False
        kept.append(listed[best])
    return kept


def option_problems(op: Op) -> Iterator[tuple[Case, NormProblem]]:
    """The corpus's cases of options as problems of an op. An option meets each storage type on one row
    length, and the next option on another: compiling takes most of the time. The cases outside of the grid
    get every type.
    """
    for i, case in enumerate(OPTION_GRID):
        yield from problems([case], op, [STORAGE[(i + i // len(STORAGE)) % len(STORAGE)]])
    yield from problems([case for case in OPTION_CASES if case not in OPTION_GRID], op, STORAGE)


def widened(cases: Sequence[NormCase], op: Op, dtype: str) -> Iterator[tuple[NormCase, NormProblem]]:
    """Yield cases as problems of an op; short rows without parameters all get the same number of columns."""
    for case, problem in problems(cases, op, [dtype]):
        assert isinstance(case, NormCase)
        plain = not case.options.weight and not case.options.bias and max(case.shape) <= 4096
        yield case, replace(problem, cols=STACK_COLS if plain else problem.cols)


def rows_of(stack: Sequence[Case], op: Op, problem: NormProblem) -> dict[str, Array]:
    """The input arrays of cases that are rows of one problem, repeated to its columns."""
    if stack[0].shape == (problem.rows, problem.cols):
        return stack[0].draw(Task(op, problem))
    rows = []
    for case in stack:
        own = case.problem(op, problem.dtype)
        assert own is not None
        x = case.draw(Task(op, own))["x"]
        rows.append(np.tile(x, (1, -(-problem.cols // own.cols)))[:, : problem.cols])
    return complete_inputs(Task(op, problem), {"x": np.concatenate(rows)}, np.random.default_rng(0))


def problem_of(op: Op, **values: Any) -> Any:
    """A problem of the op's own type, with the op's default options unless others are given."""
    return op.problem_type(**{"options": op.defaults} | values)


def suited(kernel: Kernel, problem: NormProblem) -> NormProblem:
    """The problem as the kernel takes it: in whole fours of columns, with options that it needs or without
    those that it lacks.
    """
    rules = [require.rule for require in kernel.require]
    cols = problem.cols + (-problem.cols % 4 if parse("cols % 4 == 0") in rules else 0)
    options = problem.options
    if parse("saved_stats") in rules:
        options = replace(options, saved_stats=True)
    if parse("not has_residual_bias") in rules:
        options = replace(options, residual_bias=False)
    return replace(problem, cols=cols, options=options)


def needs(device: Device, features: Iterable[str]) -> None:
    """Skip the test where the device lacks one of the features."""
    missing = sorted(set(features) - device.traits.features)
    if missing:
        pytest.skip(f"{device.adapter} has no {', '.join(missing)}")


def nearest(kernel: Kernel, problem: NormProblem, traits: Traits, **wanted: int) -> Variant:
    """The variant with the constants that are wanted which is nearest to the default of those that can run:
    what is the default elsewhere may go ill with them.
    """
    default = default_variant(kernel, problem, traits)
    tune = {**kernel.tune, **{axis: [value] for axis, value in wanted.items()}}
    return min(runnable_variants(kernel, problem, traits, tune), key=lambda one: distance(one, default))


def kernel_named(name: str, op: str = "layer_norm") -> Kernel:
    return select(KERNELS, name, op)


def compute(device: Device, shader: Shader, arrays: Mapping[str, Array]) -> Outcome:
    """Every output, computed once on poisoned buffers."""
    tally.count(shader)
    tiers.meet_kernel(shader.variant.kernel, shader.problem)
    problem, op = shader.problem, shader.variant.kernel.op
    check_memory(Task(op, problem), device)
    inputs, outputs = Inputs(device, arrays), Outputs(device, problem, op.outputs(problem))
    Plan(device, shader, inputs.buffers, outputs.buffers, compile_shader(device, shader)).run()
    return outputs.read_all()


def run_shader(device: Device, shader: Shader, arrays: Mapping[str, Array]) -> tuple[Array, Accuracy]:
    """The main output and the verdict on all of them."""
    got = compute(device, shader, arrays)
    main = shader.variant.kernel.op.outputs(shader.problem)[0].name
    return got[main][0], assess_outputs(shader, arrays, got)


def spoil_workgroup_memory(device: Device) -> None:
    """Leave NaN in it: wgpu does not clear it, and what an earlier run of the same rows left there would hide
    that a kernel reads memory before writing it.
    """
    words = device.traits.workgroup_storage // 4
    text = f"""
        @group(0) @binding(0) var<storage, read_write> kept: array<u32>;
        var<workgroup> memory: array<u32, {words}>;
        @compute @workgroup_size(64) fn main(@builtin(local_invocation_index) at: u32) {{
            for (var i = at; i < {words}u; i += 64u) {{ memory[i] = 0x7fc00000u; }}
            workgroupBarrier();
            kept[at] = memory[{words - 1}u - at];
        }}"""
    # Many more workgroups than run at once, so that every core is given some.
    _words_of(device.handle, text, 64, workgroups=1024)


def assess_outputs(shader: Shader, arrays: Mapping[str, Array], got: Outcome) -> Accuracy:
    """Return the accuracy of every output; if h was written, y must be its norm."""
    return assess(got, answers(shader, arrays, got), shader)


def answers(shader: Shader, arrays: Mapping[str, Array], got: Outcome) -> ExpectedOutputs:
    """Return the expected value of every output."""
    h = {"h": got["h"][0]} if "h" in got else {}
    return shader.variant.kernel.op.reference({**arrays, **h}, shader.problem)


def assess_rows(shader: Shader, got: Outcome, expected: ExpectedOutputs, rows: slice) -> Accuracy:
    """Return the accuracy of some rows, as if no others had been computed."""
    outputs, wanted = dict(got), dict(expected)
    for tensor in shader.variant.kernel.op.outputs(shader.problem):
        if tensor.batched:
            array, guard_intact = got[tensor.name]
            outputs[tensor.name] = array[rows], guard_intact
            whole = expected[tensor.name]
            value, unit, shaky = np.broadcast_arrays(whole.value, whole.error_scale, whole.mean_error_scale)
            wanted[tensor.name] = Expected(value[rows], unit[rows], shaky[rows])
    return assess(outputs, wanted, shader)


def run(
    device: Device,
    variant: Variant,
    problem: NormProblem,
    arrays: Mapping[str, Array] | None = None,
    roots: Sequence[Path] = (),
) -> tuple[Array, Accuracy]:
    """Render for the device and compute once."""
    shader = render_shader(variant, problem, "native", device.traits, roots=roots)
    return run_shader(device, shader, make_inputs(variant.kernel.op, problem) if arrays is None else arrays)


def rows_around(means: Sequence[float], cols: int, rows_each: int = 4) -> Array:
    """Normal rows with standard deviation 1 around each mean, float32."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((rows_each * len(means), cols)) + np.repeat(means, rows_each)[:, None]
    rounded: Array = x.astype(np.float32)
    return rounded


def tracked(kernel: Kernel) -> bool:
    """Return true if git tracks the kernel's file. A new file has no snapshot yet.

    In a copy without a repository, or without git, nothing was.
    """
    if shutil.which("git") is None:
        return True
    command = ["git", "ls-files", "--error-unmatch", str(kernel.path)]
    status = subprocess.run(command, cwd=kernel.path.parent, capture_output=True, check=False).returncode
    # 128 where there is no repository.
    return status != 1
