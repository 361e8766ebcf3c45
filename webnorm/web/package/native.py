"""Test vectors of an export, and native runs of its shaders on them.

The vectors are small inputs that broke other implementations, with the expected outputs in float64. The
accuracy in a browser is compared with the native accuracy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from safetensors.numpy import save

from webnorm.errors import WebnormError
from webnorm.gpu.backend import wgpu
from webnorm.gpu.buffers import Inputs, Outputs
from webnorm.gpu.device import Device, adapters, open_device
from webnorm.gpu.pipelines import Pipeline, compile_shader
from webnorm.gpu.schedule import Plan
from webnorm.kernels.headers.traits import device_features
from webnorm.kernels.rendering.render import Shader
from webnorm.kernels.wgsl.diagnostics import read_report
from webnorm.lab.process.worker import TaskFailed, Worker, WorkerDied
from webnorm.lab.verify.accuracy import Accuracy, assess
from webnorm.op.dtypes import DTYPES, Array
from webnorm.op.op import ExpectedOutputs, HeaderTerms, Op, Task, make_inputs
from webnorm.web.package.bundle import Bundle, BundledShader, bundle_of
from webnorm.web.package.request import ExportRequest, request_for

# cols is a name of the manifest's format, and of an option of `webnorm export`.

# Rounding an allowed error to float32 must not make it smaller.
_ROUNDED_UP = 1.0 + 2.0**-22
# naga supports subgroups and language features without these directives, and refuses them.
_REFUSED_DIRECTIVES = re.compile(r"^(?:enable subgroups|requires \w+);\n", re.MULTILINE)


@dataclass(frozen=True)
class TestVector:
    """The inputs of one problem in their storage types, and the expected outputs in float64."""

    name: str
    what: str
    # A problem of the op's own type.
    problem: Any
    arrays: Mapping[str, Array]
    answers: ExpectedOutputs

    @property
    def file(self) -> str:
        """Its path in an export."""
        axis = "all" if self.problem.AXIS == self.problem.BATCH else self.problem.axis
        return f"vectors/{axis}/{self.name}.safetensors"

    # The factor of the answers' error scale in the tolerance.
    base: float = 1.0
    # True if a page cannot compute the expected outputs itself.
    whole: bool = False

    def encoded(self) -> bytes:
        """Return a safetensors file: the inputs by name, the expected outputs in float32 as `expected.NAME`.

        If `whole`, the outputs are in float64, `allowed.NAME` contains the allowed errors, and
        `per_term.NAME` the error per term of one accumulator.
        """
        expected: dict[str, Array] = {}
        for name, answer in self.answers.items():
            with np.errstate(over="ignore"):
                expected[f"expected.{name}"] = answer.value.astype(np.float64 if self.whole else np.float32)
            if self.whole:
                value = expected[f"expected.{name}"]
                if answer.beyond_float32 is not None:
                    value[answer.beyond_float32] = np.nan
                # The tolerance is a multiple of the error scale.
                allowed = self.base * np.broadcast_to(answer.error_scale, value.shape)
                per_term = np.broadcast_to(answer.mean_error_scale, value.shape)
                with np.errstate(over="ignore"):
                    expected[f"allowed.{name}"] = (allowed * _ROUNDED_UP).astype(np.float32)
                    expected[f"per_term.{name}"] = (per_term * _ROUNDED_UP).astype(np.float32)
        arrays = {**self.arrays, **expected}
        # A single entry: the library writes several in any order, but equal exports must have equal bytes.
        metadata = {"what": self.what}
        return save({name: np.ascontiguousarray(array) for name, array in arrays.items()}, metadata)


def vectors_of(request: ExportRequest) -> list[TestVector]:
    """Return the vectors of an export, for each number of columns."""
    return [vector for cols in request.cols for vector in draw_vectors(request.task(cols))]


def draw_vectors(task: Task) -> Iterator[TestVector]:
    """Yield the vectors of an op for the columns, storage types and options of a problem."""
    op, problem = task.op, task.problem
    main = op.tensors[0].name
    if op.source is not None:
        yield from _own_vectors(task)
        return
    for number, (name, what, drawn) in enumerate(op.hook("export_inputs")(op, problem)):
        rng = np.random.default_rng([problem.seed, number])
        held = drawn.astype(DTYPES[problem.dtype])
        own = replace(problem.with_batch(len(drawn)), distribution="given")
        arrays = op.draw(Task(op, own), {main: held}, rng)
        yield TestVector(name, what, own, arrays, op.reference(arrays, own))


def _own_vectors(task: Task) -> Iterator[TestVector]:
    """Yield the vectors of a user's op, which draws all of its inputs."""
    for name, what, own in task.op.hook("export_inputs")(task.op, task.problem):
        arrays = make_inputs(task.op, own)
        base = task.op.hook("tolerance")(HeaderTerms(0, 0, 0), own).base
        answers = task.op.reference(arrays, own)
        yield TestVector(name, what, own, arrays, answers, base=base, whole=True)


def native_text(shader: Shader) -> Shader:
    """Return a shader for browsers with its text changed for wgpu."""
    return replace(shader, text=_REFUSED_DIRECTIVES.sub("", shader.text))


def native_entries(
    request: ExportRequest, bundle: Bundle, vectors: Sequence[TestVector]
) -> Iterator[dict[str, Any]]:
    """Yield the native result of each shader. A user's texts run in a separate process."""
    if not adapters():
        yield from ({"reason": "the exporting machine has no WebGPU adapter"} for _ in bundle.shaders)
    elif request.foreign:
        try:
            with Worker() as worker:
                yield from worker.stream(try_in_worker, request.words)
        except (WorkerDied, TaskFailed) as death:
            raise WebnormError(f"{bundle.name}: the native run failed: {death}") from death
    else:
        yield from _try_all(open_device(), bundle, vectors)


def try_in_worker(device: Device, words: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    """Run in the worker: make the request again and run its shaders."""
    request = request_for(*words)
    yield from _try_all(device, bundle_of(request), vectors_of(request))


def _try_all(device: Device, bundle: Bundle, vectors: Sequence[TestVector]) -> Iterator[dict[str, Any]]:
    for one in bundle.shaders:
        axis = one.shader.problem.axis
        fixed = one.shader.problem.AXIS == one.shader.problem.BATCH
        own = [vector for vector in vectors if fixed or vector.problem.axis == axis]
        yield try_natively(device, one, own)


def try_natively(device: Device, one: BundledShader, vectors: Sequence[TestVector]) -> dict[str, Any]:
    """Return the manifest's entry `native`: the verdict on each vector, or the reason why nothing was run."""
    shader = replace(one.shader, text=one.embedded)
    if device.target == "native":
        shader = native_text(shader)
    if lacking := _lacking(device, shader):
        return {"reason": lacking}
    try:
        pipelines = _compiled(device, shader, one.shader)
        found = {
            vector.name: _accuracy(device, replace(shader, problem=vector.problem), pipelines, vector)
            for vector in vectors
        }
    except wgpu.GPUError as error:
        raise WebnormError(
            f"{shader.variant}: wgpu refused the shader: {read_report(str(error))[1]}"
        ) from error
    furthest = max(found.values(), key=lambda accuracy: accuracy.max_abs_error)
    return {
        "adapter": device.adapter.name,
        **_together(found.values()),
        "max_abs_error": _number(furthest.max_abs_error),
        "allowed": _number(furthest.allowed),
        "max_rel_error": _number(max(accuracy.max_rel_error for accuracy in found.values())),
        "vectors": {
            name: {
                "verdict": _verdict(accuracy),
                "max_abs_error": _number(accuracy.max_abs_error),
                "allowed": _number(accuracy.allowed),
                "max_rel_error": _number(accuracy.max_rel_error),
                **({} if accuracy.reason is None else {"reason": accuracy.reason}),
            }
            for name, accuracy in found.items()
        },
    }


def _lacking(device: Device, shader: Shader) -> str | None:
    """Return the reason why a device cannot run a shader for browsers, or None."""
    traits, name = device.traits, device.adapter.name
    missing = shader.features - traits.features
    if of_device := device_features(missing):
        return f"{name} lacks {', '.join(of_device)}"
    if missing:
        return f"the WGSL compiler here lacks {', '.join(sorted(missing))}"
    least, most = traits.subgroup_min_size, traits.subgroup_max_size
    for size in shader.subgroup_sizes:
        if not least <= size <= most:
            return f"{name} has subgroups of {least} to {most} invocations, not of {size}"
    widest = max(each.workgroup_size for each in shader.passes)
    if widest > traits.max_invocations:
        return f"{name} has {traits.max_invocations} invocations per workgroup"
    return None


def _compiled(device: Device, shader: Shader, readable: Shader) -> list[Pipeline]:
    """Compile a shader whose text may be minified. The text of `readable` gives the line of an error."""
    try:
        return compile_shader(device, shader)
    except WebnormError:
        compile_shader(device, native_text(readable))
        raise


def _number(value: float) -> float | str:
    """Return a number for JSON; infinity becomes a string, as in a results file."""
    return value if math.isfinite(value) else str(value)


def _verdict(accuracy: Accuracy) -> str:
    """Return the verdict on a vector; "skip" if no output could be compared."""
    if not accuracy.ok:
        return "fail"
    return "skip" if accuracy.not_compared else "pass"


def _together(found: Collection[Accuracy]) -> dict[str, str]:
    """Return the verdict on all vectors, with the reason if none could be compared."""
    verdicts = {_verdict(accuracy) for accuracy in found}
    reasons = [accuracy.not_compared for accuracy in found if accuracy.not_compared]
    if verdicts == {"skip"}:
        return {"verdict": "skip", "reason": reasons[0]}
    return {"verdict": "fail" if "fail" in verdicts else "pass"}


def _accuracy(device: Device, shader: Shader, pipelines: Sequence[Pipeline], vector: TestVector) -> Accuracy:
    op: Op = shader.variant.kernel.op
    outputs = Outputs(device, vector.problem, op.outputs(vector.problem))
    inputs = Inputs(device, vector.arrays)
    Plan(device, shader, inputs.buffers, outputs.buffers, pipelines).run()
    got = outputs.read_all()
    answers = vector.answers
    if any(op.named[name].feeds for name in got):
        answers = op.reference({**vector.arrays, "h": got["h"][0]}, vector.problem)
    return assess(got, answers, shader)
