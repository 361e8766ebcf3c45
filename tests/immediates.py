"""Kernels that get their parameters as immediates, next to the same kernels with a uniform."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from testbed import kernel_named
from webnorm.choice.defaults import default_variant
from webnorm.gpu.buffers import Inputs, Outputs
from webnorm.gpu.device import Device
from webnorm.gpu.pipelines import compile_shader
from webnorm.gpu.schedule import Plan
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.traits import IMMEDIATES, name_in_expressions
from webnorm.kernels.rendering.render import render_shader
from webnorm.op.corpus import ForceSplit
from webnorm.op.op import make_inputs
from webnorm.ops.norms.problem import NormOptions, NormProblem


def with_immediates(kernel: Kernel) -> Kernel:
    """Return the kernel with immediates wherever there are any."""
    return replace(kernel, features={**kernel.features, IMMEDIATES: name_in_expressions(IMMEDIATES)})


class Work(NamedTuple):
    """A kernel on a problem, cut into slices as `narrow` says."""

    op: str
    kernel: str
    problem: NormProblem
    narrow: ForceSplit | None = None


ROWS = NormProblem(rows=301, cols=70, options=NormOptions(return_stats=True))
SUMS = NormProblem(rows=150, cols=61, dtype="float16")
# Sliced sums over rows need the words `_count` and `_kept`, and sliced rows need `_start`.
WORK = (
    Work("layer_norm", "naive", ROWS),
    Work("layer_norm", "two_pass", ROWS, "bindings"),
    Work("layer_norm", "two_pass", ROWS, "dispatches"),
    Work("layer_norm_backward", "naive", SUMS),
    Work("layer_norm_backward", "naive", SUMS, "bindings"),
)


class Compared(NamedTuple):
    """The comparison of a kernel with immediates with the same kernel."""

    text: str
    dispatches: int
    equal: bool
    intact: bool


def compared(device: Device, work: Work) -> Compared:
    """Run a kernel with immediates and with a uniform; compare the bits of all outputs, and the guards."""
    kernel, problem = kernel_named(work.kernel, work.op), work.problem
    arrays = make_inputs(kernel.op, problem)
    found = []
    for one in (kernel, with_immediates(kernel)):
        variant = default_variant(one, problem, device.traits)
        shader = render_shader(variant, problem, device.target, device.traits)
        inputs, outputs = Inputs(device, arrays), Outputs(device, problem, kernel.op.outputs(problem))
        pipelines = compile_shader(device, shader)
        plan = Plan(device, shader, inputs.buffers, outputs.buffers, pipelines, narrow=work.narrow)
        plan.run()
        found.append(outputs.read_all())
    uniform, immediate = ({name: array.tobytes() for name, (array, _) in one.items()} for one in found)
    intact = all(guard for one in found for _, guard in one.values())
    return Compared(shader.text, plan.dispatches, uniform == immediate, intact)


def compared_in_worker(device: Device, job: None) -> Iterator[list[Compared] | None]:
    """Yield the comparisons of all work, or None without immediates."""
    has_any = IMMEDIATES in device.traits.features
    yield [compared(device, work) for work in WORK] if has_any else None


def assert_equal(found: list[Compared]) -> None:
    """Assert that immediates were used in every work, and change no bit."""
    for work, one in zip(WORK, found, strict=True):
        assert "var<immediate> params: Params;" in one.text and "var<uniform>" not in one.text, work
        assert one.equal and one.intact, work
        assert one.dispatches > 1 or work.narrow != "bindings", work
