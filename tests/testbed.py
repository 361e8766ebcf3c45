"""Functions that run one variant on one problem, in the same way for all tests."""

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

# The kernels of the copy and the norms. Tests of other ops are in tests/ops.
KERNELS = tuple(kernel for kernel in discover() if kernel.op.source is None)
NORMS = tuple(kernel for kernel in KERNELS if kernel.op.name == "layer_norm")
STABLE = tuple(kernel for kernel in KERNELS if kernel.unstable is None and not kernel.op.is_copy)


def named_alike(kernels: Iterable[Kernel]) -> dict[str, tuple[Kernel, ...]]:
    """Return the kernels by name.

    The kernels of both norms, or of both gradients, share a name and most text.
    """
    found: dict[str, tuple[Kernel, ...]] = {}
    for kernel in kernels:
        name = f"{'backward' if kernel.op.gradient else 'forward'}-{kernel.name}"
        found[name] = (*found.get(name, ()), kernel)
    return found


def of_one_file(kernels: Iterable[Kernel]) -> list[tuple[Kernel, ...]]:
    """Return the kernels of each file. A file for both norms is one text except for the computed formula."""
    found: dict[Path, tuple[Kernel, ...]] = {}
    for kernel in kernels:
        found[kernel.path] = (*found.get(kernel.path, ()), kernel)
    return list(found.values())


FAMILIES = named_alike(KERNELS)
GPU = Traits(frozenset({"subgroups"}), max_invocations=1024, workgroup_storage=49152, software=False)
SOFTWARE = Traits(frozenset({"subgroups"}), max_invocations=1024, workgroup_storage=32768, software=True)
# The number of columns of repeated rows. It is a multiple of four, which some kernels need. It is no power of
# two, because then sums of a constant would be exact.
STACK_COLS = 4092
Trial = TypeVar("Trial", bound=tuple[Any, ...])
# Every output, and True if its guard is intact.
Outcome = Mapping[str, tuple[Array, bool]]


def covering(trials: Iterable[Trial]) -> list[Trial]:
    """Return some of the trials that contain every pair of two axes' values of all trials.

    A trial is (variant, problem, ...). The op, the problem's parts and the other members of a trial are also
    axes.
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
    # Every value of an axis and every pair gets a number, because the loop reads all trials again and again.
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
    """Yield the corpus's cases of options as problems of an op.

    An option meets each storage type on one row length, and the next option on another, because compiling
    takes most of the time. The cases outside of the grid get every type.
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
    """Return the input arrays of cases that are rows of one problem.

    Each row repeats up to the problem's columns.
    """
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
    """Return a problem of the op's own type, with the op's default options unless `values` has others."""
    return op.problem_type(**{"options": op.defaults} | values)


def suited(kernel: Kernel, problem: NormProblem) -> NormProblem:
    """Return the problem in a form that the kernel supports.

    Its columns become a multiple of four. Required options are set, and unsupported options are not.
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
    """Skip the test if the device lacks one of the features."""
    missing = sorted(set(features) - device.traits.features)
    if missing:
        pytest.skip(f"{device.adapter} has no {', '.join(missing)}")


def nearest(kernel: Kernel, problem: NormProblem, traits: Traits, **wanted: int) -> Variant:
    """Return the runnable variant with the wanted constants that is nearest to the default.

    The default's other constants may not fit the wanted ones.
    """
    default = default_variant(kernel, problem, traits)
    tune = {**kernel.tune, **{axis: [value] for axis, value in wanted.items()}}
    return min(runnable_variants(kernel, problem, traits, tune), key=lambda one: distance(one, default))


def kernel_named(name: str, op: str = "layer_norm") -> Kernel:
    return select(KERNELS, name, op)


def compute(device: Device, shader: Shader, arrays: Mapping[str, Array]) -> Outcome:
    """Compute every output once, on poisoned buffers."""
    tally.count(shader)
    tiers.meet_kernel(shader.variant.kernel, shader.problem)
    problem, op = shader.problem, shader.variant.kernel.op
    check_memory(Task(op, problem), device)
    inputs, outputs = Inputs(device, arrays), Outputs(device, problem, op.outputs(problem))
    Plan(device, shader, inputs.buffers, outputs.buffers, compile_shader(device, shader)).run()
    return outputs.read_all()


def run_shader(device: Device, shader: Shader, arrays: Mapping[str, Array]) -> tuple[Array, Accuracy]:
    """Return the main output, and the accuracy of all outputs."""
    got = compute(device, shader, arrays)
    main = shader.variant.kernel.op.outputs(shader.problem)[0].name
    return got[main][0], assess_outputs(shader, arrays, got)


def spoil_workgroup_memory(device: Device) -> None:
    """Fill workgroup memory with NaN.

    wgpu does not clear it. A kernel that reads memory before writing it could find the right values of an
    earlier run there.
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
    # Many more workgroups than run at once, so that every core gets some.
    _words_of(device.handle, text, 64, workgroups=1024)


def assess_outputs(shader: Shader, arrays: Mapping[str, Array], got: Outcome) -> Accuracy:
    """Return the accuracy of every output; if h was written, y must be its norm."""
    return assess(got, answers(shader, arrays, got), shader)


def answers(shader: Shader, arrays: Mapping[str, Array], got: Outcome) -> ExpectedOutputs:
    """Return the expected values of every output."""
    h = {"h": got["h"][0]} if "h" in got else {}
    return shader.variant.kernel.op.reference({**arrays, **h}, shader.problem)


def assess_rows(shader: Shader, got: Outcome, expected: ExpectedOutputs, rows: slice) -> Accuracy:
    """Return the accuracy of some rows, without the other rows."""
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
    """Return normal rows with standard deviation 1 around each mean, in float32."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((rows_each * len(means), cols)) + np.repeat(means, rows_each)[:, None]
    rounded: Array = x.astype(np.float32)
    return rounded


def tracked(kernel: Kernel) -> bool:
    """Return True if git tracks the kernel's file. A new file has no snapshot yet.

    Without git or a repository, all files count as tracked.
    """
    if shutil.which("git") is None:
        return True
    command = ["git", "ls-files", "--error-unmatch", str(kernel.path)]
    status = subprocess.run(command, cwd=kernel.path.parent, capture_output=True, check=False).returncode
    # The status is 128 if there is no repository.
    return status != 1
