"""The cost of a shader in accesses, barriers and subgroup operations, counted by running it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from webnorm.gpu.buffers import Inputs, Outputs
from webnorm.gpu.device import Device
from webnorm.gpu.pipelines import compile_shader
from webnorm.gpu.schedule import Plan
from webnorm.kernels.headers.variants import Variant
from webnorm.kernels.rendering.render import Shader, render_shader
from webnorm.lab.run.jobs import VariantSpec
from webnorm.op.op import make_inputs
from webnorm.op.problem import Problem

# The order of `counters` in wgsl/lib/cost.wgsl.
_COUNTERS = ("row_reads", "parameter_reads", "writes", "barriers", "subgroup_operations")
_BATCH = 64
# A line with a barrier or a subgroup operation.
_COUNTED = re.compile(r"^( *)(?=[^/\n]*\b(workgroupBarrier|subgroup[A-Z]\w*)\()", re.MULTILINE)
_DECLARED = "@group(0) @binding({}) var<storage, read_write> cost: array<atomic<u32>>;"


@dataclass(frozen=True)
class ShaderCost:
    """What a shader does, None where its template does it without the library's helpers.

    Reads and writes of tensors are per element of x: `row_reads` of those with rows, `parameter_reads` of the
    others; scratch buffers are left out. Barriers are those that a workgroup passes, and subgroup operations
    those that a subgroup executes, both per row; barriers of several passes are not added up.
    """

    row_reads: float | None
    parameter_reads: float | None
    writes: float | None
    barriers: float | None
    subgroup_operations: float | None
    workgroup_bytes: int


def count_cost(device: Device, variant: Variant, problem: Problem, roots: Sequence[Path] = ()) -> ShaderCost:
    """Run an instrumented rendering on a few rows and read its counters.

    Raises WebnormError when the variant cannot run on the device.
    """
    op = variant.kernel.op
    problem = op.copied_problem(problem).with_batch(_BATCH)
    shader = render_shader(variant, problem, "native", device.traits, roots=roots, count_cost=True)
    declared = _DECLARED.format(len(shader.bindings) + 1)
    counting = f"{_COUNTED.sub(_with_counter, shader.text)}\n{declared}\n"
    inputs = Inputs(device, make_inputs(op, problem))
    outputs = Outputs(device, problem, op.outputs(problem))
    counters = device.create_buffer(4 * len(_COUNTERS))
    pipelines = compile_shader(device, replace(shader, text=counting), extra_bindings=1)
    plan = Plan(device, shader, inputs.buffers, outputs.buffers, pipelines, extra=[counters])
    plan.run()
    words = np.frombuffer(device.handle.queue.read_buffer(counters), np.uint32)
    counted = dict(zip(_COUNTERS, words.tolist(), strict=True))

    def accesses(kind: str, batched: bool, counter: str) -> float | None:
        """Such accesses per element; None where the kernel's own text has some."""
        # A text that uses neither the library nor its `tally` may call tensors by other names.
        if "&cost[" not in shader.text:
            return None
        names = [b.name for b in shader.bindings if b.tensors and (b.access, b.batched) == (kind, batched)]
        pattern = rf"\b(?:{'|'.join(names)})\[" if names else r"(?!)"
        return _counted(shader, pattern, counted[counter] / problem.batch / problem.inner)

    size = shader.passes[0].workgroup_size
    lanes = min(device.subgroup_size or 1, size)
    return ShaderCost(
        row_reads=accesses("read", True, "row_reads"),
        parameter_reads=accesses("read", False, "parameter_reads"),
        writes=accesses("read_write", True, "writes"),
        barriers=counted["barriers"] / size / problem.batch if len(shader.passes) == 1 else None,
        subgroup_operations=counted["subgroup_operations"] / lanes / problem.batch,
        workgroup_bytes=shader.workgroup_bytes,
    )


def _with_counter(found: re.Match[str]) -> str:
    """Each invocation counts before it comes to the line's operation."""
    counter = _COUNTERS.index("barriers" if found[2] == "workgroupBarrier" else "subgroup_operations")
    return f"{found[1]}atomicAdd(&cost[{counter}u], 1u); "


@dataclass(frozen=True)
class CostJob:
    """Variants to count, each on a problem's columns and options, in a worker process."""

    variants: tuple[tuple[Problem, VariantSpec], ...]
    roots: tuple[Path, ...]


def count_costs(device: Device, job: CostJob) -> Iterator[ShaderCost]:
    """The worker's task: the cost of each variant."""
    for problem, spec in job.variants:
        yield count_cost(device, spec.variant(), problem, job.roots)


def _counted(shader: Shader, access: str, value: float) -> float | None:
    """The value, unless the kernel's own text has such an access and does not tally what it does."""
    kernel = shader.variant.kernel
    own = (
        line
        for line, (file, _) in zip(shader.text.splitlines(), shader.origins, strict=True)
        if Path(file).parent.name != "lib"
    )
    raw = any(re.search(access, line.split("//")[0]) for line in own)
    return None if raw and "tally(" not in kernel.path.read_text(encoding="utf-8") else value
