"""The errors of the norm family's forward kernels for rows with a large mean, as a Markdown table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from bench import markdown
from webnorm import Inputs, Outputs, Plan, compile_shader, render_shader
from webnorm.choice.defaults import choose
from webnorm.gpu.device import Device
from webnorm.kernels.headers.library import own_kernels
from webnorm.op.dtypes import Array
from webnorm.op.op import Task
from webnorm.op.registry import OPS, options_of

MEANS = (0.0, 1e2, 1e4, 1e6)
# The columns of a row in all problems, except with heads.
_COLS = 4096
# A gate for which the sigmoid is 1.
_OPEN = 100.0


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

    def errors(self, device: Device, mean: float) -> tuple[float, float]:
        """Return the errors of the kernel that `auto` chooses, and of the short formula."""
        task, arrays = self.task, self.arrays(mean)
        variant = choose(own_kernels(self.op), task, device.traits).variant
        shader = render_shader(variant, task.problem, device.target, device.traits)
        inputs = Inputs(device, arrays)
        outputs = Outputs(device, task.problem, task.op.outputs(task.problem))
        Plan(device, shader, inputs.buffers, outputs.buffers, compile_shader(device, shader)).run()
        name, *_ = (one.name for one in task.op.outputs(task.problem))
        y, _ = outputs.read(name)
        exact = task.op.reference(arrays, task.problem)[name].value
        x = next(iter(arrays.values()))
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            short = self.formula(x.reshape(-1, self.cols), np.float32(getattr(task.problem, "eps", 0.0)))
            return self.error(y, exact), self.error(short.reshape(exact.shape), exact)


_PLAIN = ("weight=false", "bias=false")
PROBLEMS = (
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
    for problem in PROBLEMS:
        both = [problem.errors(device, mean) for mean in MEANS]
        cells = [*(own for own, _ in both), *(short for _, short in both)]
        texts = ("NaN" if np.isnan(one) else f"{one:.1e}" for one in cells)
        lines.append(markdown.row([problem.name, *texts]))
    return "\n".join(lines)
