"""Make the tables of numerics.md, norm-family.md and kernels.md in docs/, from the adapter and the headers.

python -m bench.numerics                        print the tables
python -m bench.numerics --write                write them between the docs' markers
python -m bench.numerics --engine all --write   write only the table of the norm family by engine
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench import markdown
from bench.arguments import bare_parser, run
from bench.family_accuracy import engine_table, family_table
from webnorm import (
    Inputs,
    Options,
    Outputs,
    Plan,
    Problem,
    Variant,
    compile_shader,
    discover,
    open_device,
    render_shader,
    select,
)
from webnorm.choice.defaults import default_variant
from webnorm.engines.catalog import selected_engines
from webnorm.errors import WebnormError
from webnorm.files.atomic import write_text
from webnorm.gpu.device import Device
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.rendering.render import Shader
from webnorm.op.op import Task
from webnorm.ops.norms.op import complete_inputs
from webnorm.ops.rows import normalize

DOCS = Path(__file__).parents[1] / "docs"
ROWS, COLS = 16, 4096
MEANS = (0.0, 1e2, 1e3, 1e4, 1e6)
# For the gradient kernel registers: the number of words of the saved mean, or 0 if none is saved.
GRADIENT_COLUMNS = {"saved mean, one word": 1, "saved mean, two words": 2, "computed anew": 0}
COLUMNS: tuple[tuple[str, str, dict[str, int]], ...] = (
    ("one_pass", "one_pass", {}),
    ("welford", "welford", {}),
    ("two_pass, hi/lo off", "two_pass", {"hi_lo_mean": 0}),
    ("two_pass", "two_pass", {}),
    ("registers", "registers", {}),
)


def error(device: Device, kernel: Kernel, constants: dict[str, int], mean: float) -> float:
    """Return the largest |error| over normal rows around a mean, without weight and bias."""
    problem = Problem(rows=ROWS, cols=COLS, distribution="given", options=Options(weight=False, bias=False))
    chosen = {**default_variant(kernel, problem, device.traits).constants, **constants}
    shader = render_shader(Variant(kernel, chosen), problem, device.target, device.traits)
    return largest_error(device, shader, mean)


def largest_error(device: Device, shader: Shader, mean: float) -> float:
    """Return the largest |error| of a layer_norm shader without weight and bias."""
    problem, op = shader.problem, shader.variant.kernel.op
    normal = np.random.default_rng(0).standard_normal((problem.rows, problem.cols))
    x = (normal + mean).astype(np.float32)
    inputs, outputs = Inputs(device, {"x": x}), Outputs(device, problem, op.outputs(problem))
    Plan(device, shader, inputs.buffers, outputs.buffers, compile_shader(device, shader)).run()
    y, _ = outputs.read("y")
    return float(np.abs(y - normalize(x, problem.eps, has_mean=True).xhat).max())


def gradient_error(device: Device, kernel: Kernel, words: int, mean: float) -> float:
    """Return the largest |error| of dweight over these rows, relative to the largest |dweight|."""
    x = (np.random.default_rng(0).standard_normal((ROWS, COLS)) + mean).astype(np.float32)
    options = Options(bias=False, saved_stats=words > 0)
    problem = Problem(rows=ROWS, cols=COLS, distribution="given", options=options)
    arrays = complete_inputs(Task(kernel.op, problem), {"x": x}, np.random.default_rng(1))
    if words == 1:
        arrays["stats"][:, 1] = 0.0
    shader = render_shader(
        default_variant(kernel, problem, device.traits), problem, device.target, device.traits
    )
    inputs, outputs = Inputs(device, arrays), Outputs(device, problem, kernel.op.outputs(problem))
    Plan(device, shader, inputs.buffers, outputs.buffers, compile_shader(device, shader)).run()
    dweight, _ = outputs.read("dweight")
    # The reference computes the mean from x, so that an inexact saved mean counts as an error.
    given = {name: array for name, array in arrays.items() if name != "stats"}
    unsaved = replace(problem, options=replace(options, saved_stats=False))
    expected = kernel.op.reference(given, unsaved)["dweight"].value
    return float(np.abs(dweight - expected).max() / np.abs(expected).max())


def gradient_table() -> str:
    """Return a Markdown table of dweight's errors by mean and by the source of the mean."""
    device, kernel = open_device(), select(discover(), "registers", "layer_norm_backward")
    lines = [
        f"{device.adapter}, {ROWS} rows of {COLS}:",
        "",
        markdown.row(["mean / sd", *GRADIENT_COLUMNS]),
        "|---|" + "---|" * len(GRADIENT_COLUMNS),
    ]
    for mean in MEANS:
        cells = (f"{gradient_error(device, kernel, words, mean):.1e}" for words in GRADIENT_COLUMNS.values())
        lines.append(markdown.row([f"{mean:g}", *cells]))
    return "\n".join(lines)


def numerics_table() -> str:
    """Return a Markdown table of errors by mean and kernel."""
    device, kernels = open_device(), discover()
    lines = [
        f"{device.adapter}, {ROWS} rows of {COLS}:",
        "",
        markdown.row(["mean / sd", *(heading for heading, _, _ in COLUMNS)]),
        "|---|" + "---|" * len(COLUMNS),
    ]
    for mean in MEANS:
        cells = (
            f"{error(device, select(kernels, name), constants, mean):.1e}" for _, name, constants in COLUMNS
        )
        lines.append(markdown.row([f"{mean:g}", *cells]))
    return "\n".join(lines)


def kernels_table(kernels: list[Kernel]) -> str:
    """Return a Markdown table of the kernels, from their headers."""
    lines = ["| kernel | what it is | what it changes | needs | constants |", "|---|---|---|---|---|"]
    for kernel in kernels:
        needs = ", ".join(
            name if tree == 1 else f"{name} (optional)" for name, tree in kernel.features.items()
        )
        summary = kernel.summary + (f" **Unstable**: {kernel.unstable}." if kernel.unstable else "")
        constants = ", ".join(f"`{axis}`" for axis in kernel.tune)
        lines.append(f"| `{kernel.label}` | {summary} | {kernel.differs} | {needs or '-'} | {constants} |")
    return "\n".join(lines)


def between_markers(page: Path, name: str, table: str) -> str:
    """Return the page with the table between its markers."""
    opening, closing = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    head, rest = page.read_text(encoding="utf-8").split(opening, 1)
    _, tail = rest.split(closing, 1)
    return f"{head}{opening}{table}\n{closing}{tail}"


def own_tables() -> Iterator[tuple[str, str, str]]:
    """Yield the page, the marker and the text of each table that needs no other engine."""
    yield "numerics.md", "table", numerics_table()
    yield "numerics.md", "gradient table", gradient_table()
    yield "norm-family.md", "table", family_table(open_device())
    yield "kernels.md", "table", kernels_table(discover())


def engine_tables(names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the page, the marker and the text of the table by engine."""
    engines, missing = selected_engines(names)
    if missing:
        raise WebnormError(f"the table needs every engine: {' '.join(missing.values())}")
    yield "norm-family.md", "engine table", engine_table(engines)


def main() -> None:
    """Print or write the tables."""
    parser = bare_parser(__doc__)
    parser.add_argument(
        "--engine", action="append", help="an engine, as of `webnorm check`, or all. Repeatable."
    )
    parser.add_argument("--write", action="store_true", help="write the tables into docs/")
    given = parser.parse_args()
    for page, name, table in engine_tables(given.engine) if given.engine else own_tables():
        if given.write:
            write_text(DOCS / page, between_markers(DOCS / page, name, table))
        else:
            print(table, end="\n\n")


if __name__ == "__main__":
    run(main)
