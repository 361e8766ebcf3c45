"""Test vectors of an export, small inputs that broke other implementations, with the float64 answers; and
exported text run natively on them: the accuracy that a browser's is compared with.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import wgpu
from safetensors.numpy import save

from webnorm.errors import WebnormError
from webnorm.gpu.buffers import Inputs, Outputs
from webnorm.gpu.device import Device, adapters, open_device
from webnorm.gpu.pipelines import Pipeline, compile_shader
from webnorm.gpu.schedule import Plan
from webnorm.kernels.rendering.render import Shader
from webnorm.kernels.wgsl.diagnostics import read_report
from webnorm.lab.process.worker import TaskFailed, Worker, WorkerDied
from webnorm.lab.verify.accuracy import Accuracy, assess
from webnorm.op.dtypes import DTYPES, Array
from webnorm.op.op import ExpectedOutputs, HeaderTerms, Op, Task, make_inputs
from webnorm.web.package.bundle import Bundle, BundledShader, bundle_of
from webnorm.web.package.request import ExportRequest, request_for

# cols: a name of the manifest's format, and of an option of `webnorm export`.

# Allowed errors are written in float32, never smaller than they are.
_ROUNDED_UP = 1.0 + 2.0**-22
# naga has subgroups and their ids without asking, and refuses the directives.
_REFUSED_DIRECTIVES = ("enable subgroups;\n", "requires subgroup_id;\n")


@dataclass(frozen=True)
class TestVector:
    """Inputs of one problem in their storage types, and the answers in float64."""

    name: str
    what: str
    # Of its op's own type.
    problem: Any
    arrays: Mapping[str, Array]
    answers: ExpectedOutputs

    @property
    def file(self) -> str:
        """Where it lies in an export."""
        axis = "all" if self.problem.AXIS == self.problem.BATCH else self.problem.axis
        return f"vectors/{axis}/{self.name}.safetensors"

    # What the tolerance multiplies the answers' error scale by.
    base: float = 1.0
    # Whether a page cannot work the answers out itself.
    whole: bool = False

    def encoded(self) -> bytes:
        """A safetensors file: the inputs by name, the answers rounded to float32 as `expected.NAME`.

        Where it is `whole` the answers are in float64, with the allowed errors as `allowed.NAME`, and
        `per_term.NAME` what each term adds that one accumulator adds.
        """
        expected: dict[str, Array] = {}
        for name, answer in self.answers.items():
            with np.errstate(over="ignore"):
                expected[f"expected.{name}"] = answer.value.astype(np.float64 if self.whole else np.float32)
            if self.whole:
                value = expected[f"expected.{name}"]
                if answer.beyond_float32 is not None:
                    value[answer.beyond_float32] = np.nan
                # A scale is in units of what the tolerance multiplies it by.
                allowed = self.base * np.broadcast_to(answer.error_scale, value.shape)
                per_term = np.broadcast_to(answer.mean_error_scale, value.shape)
                with np.errstate(over="ignore"):
                    expected[f"allowed.{name}"] = (allowed * _ROUNDED_UP).astype(np.float32)
                    expected[f"per_term.{name}"] = (per_term * _ROUNDED_UP).astype(np.float32)
        arrays = {**self.arrays, **expected}
        # One entry: the library writes several in any order, and equal exports have equal bytes.
        metadata = {"what": self.what}
        return save({name: np.ascontiguousarray(array) for name, array in arrays.items()}, metadata)


def vectors_of(request: ExportRequest) -> list[TestVector]:
    """The vectors of an export, those of each number of columns."""
    return [vector for cols in request.cols for vector in draw_vectors(request.task(cols))]


def draw_vectors(task: Task) -> Iterator[TestVector]:
    """The vectors of an op for the columns, storage types and options of a problem."""
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
    """The vectors of an op of the user's, which draws all of its inputs."""
    for name, what, own in task.op.hook("export_inputs")(task.op, task.problem):
        arrays = make_inputs(task.op, own)
        base = task.op.hook("tolerance")(HeaderTerms(0, 0, 0), own).base
        answers = task.op.reference(arrays, own)
        yield TestVector(name, what, own, arrays, answers, base=base, whole=True)


def native_text(shader: Shader) -> Shader:
    """A shader rendered for browsers with the text that wgpu takes."""
    text = shader.text
    for directive in _REFUSED_DIRECTIVES:
        text = text.replace(directive, "")
    return replace(shader, text=text)


def native_entries(
    request: ExportRequest, bundle: Bundle, vectors: Sequence[TestVector]
) -> Iterator[dict[str, Any]]:
    """What each shader does natively; in a process of its own where a text may be foreign."""
    if not adapters():
        yield from ({"reason": "no WebGPU adapter where this was exported"} for _ in bundle.carried)
    elif request.foreign:
        try:
            with Worker() as worker:
                yield from worker.stream(try_in_worker, request.words)
        except (WorkerDied, TaskFailed) as death:
            raise WebnormError(f"{bundle.name}: running it natively failed: {death}") from death
    else:
        yield from _try_all(open_device(), bundle, vectors)


def try_in_worker(device: Device, words: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    """The worker's side: the request is made anew there."""
    request = request_for(*words)
    yield from _try_all(device, bundle_of(request), vectors_of(request))


def _try_all(device: Device, bundle: Bundle, vectors: Sequence[TestVector]) -> Iterator[dict[str, Any]]:
    for one in bundle.carried:
        axis = one.shader.problem.axis
        fixed = one.shader.problem.AXIS == one.shader.problem.BATCH
        own = [vector for vector in vectors if fixed or vector.problem.axis == axis]
        yield try_natively(device, one, own)


def try_natively(device: Device, one: BundledShader, vectors: Sequence[TestVector]) -> dict[str, Any]:
    """The manifest's entry `native`: the verdict on each vector, or why the text was not run."""
    shader = native_text(replace(one.shader, text=one.embedded))
    traits = device.traits
    missing = sorted(shader.features - traits.features)
    if missing:
        return {"reason": f"{device.adapter.name} lacks {', '.join(missing)}"}
    widest = max(each.workgroup_size for each in shader.passes)
    if widest > traits.max_invocations:
        return {"reason": f"{device.adapter.name} has {traits.max_invocations} invocations per workgroup"}
    try:
        pipelines = compile_shader(device, shader)
        found = {
            vector.name: _accuracy(device, replace(shader, problem=vector.problem), pipelines, vector)
            for vector in vectors
        }
    except wgpu.GPUError as error:
        raise WebnormError(
            f"{shader.variant}: wgpu refused to run it: {read_report(str(error))[1]}"
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


def _number(value: float) -> float | str:
    """JSON has no infinity: such a number is a string there, as in a results file."""
    return value if math.isfinite(value) else str(value)


def _verdict(accuracy: Accuracy) -> str:
    """A vector of whose answers nothing was compared passes as little as it fails."""
    if not accuracy.ok:
        return "fail"
    return "skip" if accuracy.not_compared else "pass"


def _together(found: Collection[Accuracy]) -> dict[str, str]:
    """The verdict on all vectors, and where none was compared the reason."""
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
