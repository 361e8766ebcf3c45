"""Running one variant on one problem, the way every test does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from webnorm.accuracy import Accuracy, assess, tolerance
from webnorm.device import Device, Traits
from webnorm.kernel import Kernel, Variant, discover, select
from webnorm.plan import Inputs, Outputs, Plan, check_memory, compile_shader
from webnorm.problem import Array, Problem, make_inputs
from webnorm.render import Shader, render_shader

KERNELS = tuple(discover())
NORMS = tuple(kernel for kernel in KERNELS if kernel.op.name == "layer_norm")
GPU = Traits(frozenset({"subgroups"}), max_invocations=1024, workgroup_storage=49152, software=False)
SOFTWARE = Traits(frozenset({"subgroups"}), max_invocations=1024, workgroup_storage=32768, software=True)


def kernel_named(name: str) -> Kernel:
    return select(KERNELS, name)


def run_shader(device: Device, shader: Shader, arrays: Mapping[str, Array]) -> tuple[Array, Accuracy]:
    """Compute once on poisoned outputs."""
    problem = shader.problem
    check_memory(problem, shader.variant.kernel.op, device)
    inputs, outputs = Inputs(device, problem, arrays), Outputs(device, problem, ["y"])
    Plan(device, shader, inputs, outputs, compile_shader(device, shader)).run()
    y, guard_intact = outputs.read("y")
    expected = shader.variant.kernel.op.reference(arrays, problem.eps)
    return y, assess(y, expected, arrays, problem.eps, tolerance(shader), guard_intact)


def run(
    device: Device,
    variant: Variant,
    problem: Problem,
    arrays: Mapping[str, Array] | None = None,
    roots: Sequence[Path] = (),
) -> tuple[Array, Accuracy]:
    """Render for the device and compute once."""
    shader = render_shader(variant, problem, "native", device.traits, roots=roots)
    return run_shader(device, shader, make_inputs(problem) if arrays is None else arrays)


def rows_around(means: Sequence[float], cols: int, rows_each: int = 4) -> Array:
    """Normal rows with standard deviation 1 around each mean, float32."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((rows_each * len(means), cols)) + np.repeat(means, rows_each)[:, None]
    rounded: Array = x.astype(np.float32)
    return rounded
