"""The errors of the norm family's forward kernels for rows with a large mean, as a Markdown table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bench import markdown
from webnorm import Inputs, Outputs, Plan, Variant, compile_shader, render_shader
from webnorm.choice.defaults import choose, fitting_variant
from webnorm.gpu.device import Device
from webnorm.kernels.headers.library import own_kernels
from webnorm.kernels.headers.traits import Traits
from webnorm.kernels.rendering.render import Shader
from webnorm.lab.process.worker import Worker, explain_worker_failure
from webnorm.lab.verify.accuracy import header_terms
from webnorm.op.dtypes import Array
from webnorm.op.op import Task
from webnorm.op.registry import OPS, options_of

MEANS = (0.0, 1e2, 1e4, 1e6)
# The columns of a row in all problems, except with heads.
_COLS = 4096
# A gate for which the sigmoid is 1.
_OPEN = 100.0
# The terms that one accumulator of a kernel may add without larger errors.
_SHORT_SUM = 64
# SwiftShader compiles for seconds, and on a busy machine for minutes.
_TIME_LIMIT_S = 600.0


def _one_pass(x: Array, eps: np.float32) -> Array:
    mean = x.mean(-1, keepdims=True)
    variance = (x * x).mean(-1, keepdims=True) - mean * mean
    return np.asarray((x - mean) / np.sqrt(variance + eps))


def _root_mean_square(x: Array, eps: np.float32) -> Array:
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + eps))


def _length(x: Array, _: np.float32) -> Array:
    return np.asarray(x / np.sqrt((x * x).sum(-1, keepdims=True)))


def _exponentials(x: Array, _: np.float32) -> Array:
    found = np.exp(x)
    return np.asarray(found / found.sum(-1, keepdims=True))


@dataclass(frozen=True)
class AccuracyProblem:
    """A problem whose output is the normalized input, and the short formula for rows in float32.

    `cols` elements are normalized together. `others` are inputs of one value. If `relative` is True, errors
    are relative to each element, otherwise to max(1, |element|).
    """

    name: str
    op: str
    sizes: tuple[int, ...]
    options: tuple[str, ...]
    formula: Callable[[Array, np.float32], Array]
    relative: bool = False
    cols: int = _COLS
    others: Mapping[str, float] = field(default_factory=dict)

    @property
    def task(self) -> Task:
        """The problem as a task."""
        op = OPS[self.op]
        return Task(op, op.problem(*self.sizes, options=options_of(op, self.options)))

    @property
    def output(self) -> str:
        """The name of the normalized output, which is the first one."""
        return next(iter(self.task.op.outputs(self.task.problem))).name

    def arrays(self, mean: float) -> dict[str, Array]:
        """Return the inputs: the first one is normal around the mean."""
        task = self.task
        first, *others = task.op.inputs(task.problem)
        normal = np.random.default_rng(0).standard_normal(first.shape_in(task.problem))
        found = {first.name: (normal + mean).astype(np.float32)}
        for one in others:
            found[one.name] = np.full(one.shape_in(task.problem), self.others[one.name], np.float32)
        return found

    def error(self, y: Array, exact: Array) -> float:
        """Return the largest error of y; NaN if y has a NaN."""
        unit = np.abs(exact) if self.relative else np.maximum(1.0, np.abs(exact))
        return float((np.abs(y - exact) / unit).max())

    def chosen(self, traits: Traits) -> Variant:
        """Return the variant that `auto` chooses."""
        return choose(own_kernels(self.op), self.task, traits).variant

    def accurate_shaders(self, device: Device) -> Iterator[Shader]:
        """Yield the shaders of all kernels that fit, except for those whose headers declare larger errors."""
        for kernel in own_kernels(self.op):
            variant, _ = fitting_variant(kernel, self.task.problem, device.traits)
            if variant is not None:
                shader = render_shader(variant, self.task.problem, device.target, device.traits)
                terms = header_terms(shader)
                if not kernel.unstable and not terms.rounded_mean and terms.serial <= _SHORT_SUM:
                    yield shader

    def errors(self, device: Device, shader: Shader) -> list[float]:
        """Return the largest error of a shader for each mean."""
        task, pipelines, found = self.task, compile_shader(device, shader), []
        for mean in MEANS:
            arrays = self.arrays(mean)
            inputs = Inputs(device, arrays)
            outputs = Outputs(device, task.problem, task.op.outputs(task.problem))
            Plan(device, shader, inputs.buffers, outputs.buffers, pipelines).run()
            y, _ = outputs.read(self.output)
            found.append(self.error(y, self.exact(arrays)))
        return found

    def exact(self, arrays: Mapping[str, Array]) -> Array:
        """Return the output in float64."""
        return self.task.op.reference(arrays, self.task.problem)[self.output].value

    def short_error(self, mean: float) -> float:
        """Return the largest error of the short formula."""
        arrays, eps = self.arrays(mean), np.float32(getattr(self.task.problem, "eps", 0.0))
        exact, x = self.exact(arrays), next(iter(arrays.values()))
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return self.error(self.formula(x.reshape(-1, self.cols), eps).reshape(exact.shape), exact)


_PLAIN = ("weight=false", "bias=false")
PROBLEMS = (
    AccuracyProblem("`layer_norm`", "layer_norm", (16, _COLS), _PLAIN, _one_pass),
    AccuracyProblem(
        "`rms_norm`", "rms_norm", (16, _COLS), ("weight=false",), _root_mean_square, relative=True
    ),
    AccuracyProblem("`group_norm`", "group_norm", (2, 32, 1024, 8), _PLAIN, _one_pass),
    AccuracyProblem(
        "`modulated_norm`, LayerNorm", "modulated_norm", (2, 8, _COLS), ("scale=false", "shift=false"),
        _one_pass,
    ),
    AccuracyProblem(
        "`gated_norm`, LayerNorm", "gated_norm", (16, 1, _COLS),
        ("norm=layer_norm", "activation=sigmoid", "weight=false"), _one_pass, others={"z": _OPEN},
    ),
    AccuracyProblem(
        "`qk_norm`, LayerNorm", "qk_norm", (2, 64, 4, 4, 0, 0, 128),
        ("norm=layer_norm", "key=false", "weight=false"), _one_pass, cols=128,
    ),
    AccuracyProblem(
        "`qk_norm`, RMSNorm", "qk_norm", (2, 64, 4, 4, 0, 0, 128),
        ("key=false", "weight=false"), _root_mean_square, relative=True, cols=128,
    ),
    AccuracyProblem("`l2_norm`", "l2_norm", (16, _COLS), (), _length, relative=True),
    AccuracyProblem("`softmax`", "softmax", (16, 1, _COLS), (), _exponentials, relative=True),
)  # fmt: skip


def family_table(device: Device) -> str:
    """Return a Markdown table of errors by op and mean, of webnorm and of the short formulas."""
    lines = [
        f"{device.adapter}:",
        "",
        markdown.row(["op", *(f"{mean:g}" for mean in MEANS), *(f"short, {mean:g}" for mean in MEANS)]),
        "|---|" + "---:|" * (2 * len(MEANS)),
    ]
    for one in PROBLEMS:
        shader = render_shader(one.chosen(device.traits), one.task.problem, device.target, device.traits)
        cells = [*one.errors(device, shader), *map(one.short_error, MEANS)]
        lines.append(markdown.row([one.name, *map(_text, cells)]))
    return "\n".join(lines)


def _text(error: float) -> str:
    return "NaN" if np.isnan(error) else f"{error:.1e}"


def engine_table(engines: Sequence[str]) -> str:
    """Return a Markdown table of the largest error by op and engine."""
    columns = map(engine_errors, engines)
    lines = [markdown.row(["op", *engines]), "|---|" + "---:|" * len(engines)]
    for one, *errors in zip(PROBLEMS, *columns, strict=True):
        lines.append(markdown.row([one.name, *map(_text, errors)]))
    return "\n".join(lines)


def engine_errors(engine: str) -> list[float]:
    """Return the largest error of each problem in an engine, over all means and accurate kernels."""
    failure = explain_worker_failure(f"measuring the norm family in {engine}")
    with failure, Worker(time_limit_s=_TIME_LIMIT_S, engine=engine) as worker:
        return [*worker.stream(_largest_errors, None)]


def _largest_errors(device: Device, job: None) -> Iterator[float]:
    """Yield the largest error of each problem, in a worker process."""
    for one in PROBLEMS:
        yield float(np.max([one.errors(device, shader) for shader in one.accurate_shaders(device)]))
