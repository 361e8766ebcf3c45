"""The tables of docs/numerics.md and docs/kernels.md, from the adapter at hand and the kernels' headers.

python -m bench.numerics            print both tables
python -m bench.numerics --write    put them into the docs, between their markers
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

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
from webnorm.device import Device
from webnorm.kernel import Kernel, default_variant
from webnorm.reference import layer_norm
from webnorm.results import write_text

DOCS = Path(__file__).parents[1] / "docs"
ROWS, COLS = 16, 4096
MEANS = (0.0, 1e2, 1e3, 1e4, 1e6)
COLUMNS: tuple[tuple[str, str, dict[str, int]], ...] = (
    ("one_pass", "one_pass", {}),
    ("welford", "welford", {}),
    ("two_pass, hi/lo off", "two_pass", {"hi_lo_mean": 0}),
    ("two_pass", "two_pass", {}),
    ("registers, hi/lo off", "registers", {"hi_lo_mean": 0}),
    ("registers", "registers", {}),
)


def error(device: Device, kernel: Kernel, constants: dict[str, int], mean: float) -> float:
    """Largest |error| over ROWS normal rows of COLS columns around a mean, without weight and bias."""
    x = (np.random.default_rng(0).standard_normal((ROWS, COLS)) + mean).astype(np.float32)
    problem = Problem(rows=ROWS, cols=COLS, distribution="given", options=Options(weight=False, bias=False))
    chosen = {**default_variant(kernel, problem, device.traits).constants, **constants}
    shader = render_shader(Variant(kernel, chosen), problem, "native", device.traits)
    inputs, outputs = Inputs(device, problem, {"x": x}), Outputs(device, problem, ["y"])
    Plan(device, shader, inputs, outputs, compile_shader(device, shader)).run()
    y, _ = outputs.read("y")
    return float(np.abs(y - layer_norm(x, None, None, problem.eps)).max())


def numerics_table() -> str:
    """Errors by mean and kernel, as Markdown."""
    device, kernels = open_device(), discover()
    lines = [
        f"{device.adapter}, {ROWS} rows of {COLS}:",
        "",
        "| mean / sd | " + " | ".join(heading for heading, _, _ in COLUMNS) + " |",
        "|---|" + "---|" * len(COLUMNS),
    ]
    for mean in MEANS:
        cells = (
            f"{error(device, select(kernels, name), constants, mean):.1e}" for _, name, constants in COLUMNS
        )
        lines.append(f"| {mean:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def kernels_table(kernels: list[Kernel]) -> str:
    """The ladder, from the kernels' headers."""
    lines = ["| kernel | what it is | what it changes | needs | constants |", "|---|---|---|---|---|"]
    for kernel in kernels:
        needs = ", ".join(
            name if tree == 1 else f"{name} (optional)" for name, tree in kernel.features.items()
        )
        summary = kernel.summary + (f" **Unstable**: {kernel.unstable}." if kernel.unstable else "")
        constants = ", ".join(f"`{axis}`" for axis in kernel.tune)
        lines.append(f"| `{kernel.label}` | {summary} | {kernel.differs} | {needs or '-'} | {constants} |")
    return "\n".join(lines)


def between_markers(page: Path, table: str) -> str:
    """The page with the table in place of what stands between its markers."""
    head, rest = page.read_text(encoding="utf-8").split("<!-- table -->\n", 1)
    _, tail = rest.split("<!-- end of table -->", 1)
    return f"{head}<!-- table -->\n{table}\n<!-- end of table -->{tail}"


def main() -> None:
    """Print or write the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="put the tables into docs/")
    write = parser.parse_args().write
    for name, table in (("numerics.md", numerics_table()), ("kernels.md", kernels_table(discover()))):
        if write:
            write_text(DOCS / name, between_markers(DOCS / name, table))
        else:
            print(table, end="\n\n")


if __name__ == "__main__":
    main()
