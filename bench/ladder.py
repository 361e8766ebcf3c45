"""Write docs/ladder.md: the cost, speed and WGSL of each rung of LayerNorm.

python -m bench.ladder [--adapter ADAPTER]            measure on the adapter and print
python -m bench.ladder [--adapter ADAPTER] --write    write the results between the page's markers
python -m bench.ladder --write --steps                write the steps only, with the page's figures
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from pathlib import Path

from bench import markdown
from bench.arguments import bare_parser
from bench.numerics import DOCS, ROWS, between_markers, largest_error
from webnorm.choice.defaults import default_variant
from webnorm.files.atomic import write_text
from webnorm.gpu import timing
from webnorm.gpu.device import Device, find_adapter, open_device
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.library import discover, select
from webnorm.kernels.headers.traits import Traits
from webnorm.kernels.headers.variants import Variant
from webnorm.kernels.rendering.render import Shader, render_shader
from webnorm.lab.process.worker import Worker
from webnorm.lab.run import bench, jobs
from webnorm.op.op import Task
from webnorm.op.registry import OPS
from webnorm.ops.norms.problem import NormOptions, NormProblem

PAGE = DOCS / "ladder.md"
RUNGS = (
    "naive",
    "one_pass",
    "two_pass",
    "welford",
    "welford_subgroup",
    "row_in_registers",
    "registers",
    "workgroup_cache",
    "streaming",
    "split_row",
)
PROBLEM = NormProblem(rows=1024, cols=1024)
# Bodies and counts use a GPU's constants, even on a software adapter. The timed variants use the constants
# that suit the adapter.
GPU = Traits(frozenset({"subgroups"}), max_invocations=1024, workgroup_storage=49152, software=False)
MEANS = (0.0, 1e4)
# x has 64 MiB, as in the record, and 16 MiB on a software adapter.
TIMED_ROWS, TIMED_ROWS_ON_SOFTWARE = 16384, 4096
HEAD = (
    "| rung | x read | y written | barriers a row | subgroup operations a row | largest error | "
    "at a mean of 10⁴ | % of copy |\n|---|---:|---:|---:|---:|---:|---:|---:|"
)
# The text for a rung without a measured share of the copy.
UNMEASURED = "not measured"


def kernel_of(rung: str) -> Kernel:
    """Return the kernel of a rung."""
    return select(discover(), rung)


def variant_of(rung: str) -> Variant:
    """Return a rung with its constants on a GPU."""
    return default_variant(kernel_of(rung), PROBLEM, GPU)


def body(rung: str) -> str:
    """Return the rendered shader without the library's declarations at its start."""
    shader = render_shader(variant_of(rung), PROBLEM, "native", GPU)
    lines = shader.text.splitlines()
    own = [Path(file).parent.name != "lib" for file, _ in shader.origins]
    begin = next(at for at, line in enumerate(lines) if own[at] and line and not line.startswith("//"))
    while lines[begin - 1].startswith("//"):
        begin -= 1
    return "\n".join(["```wgsl", *lines[begin:], "```"])


def costs(device: Device, rung: str) -> list[str]:
    """Count reads of x and writes of y per element, and barriers and subgroup operations per row."""
    counted = jobs.count_cost(device, variant_of(rung), PROBLEM)
    values = (counted.row_reads, counted.writes, counted.barriers, counted.subgroup_operations)
    return ["-" if value is None else f"{value:.4g}" for value in values]


def errors(device: Device, rung: str) -> list[str]:
    """Return the largest error for each mean, over rows without weight and bias."""
    options = NormOptions(weight=False, bias=False)
    problem = NormProblem(rows=ROWS, cols=PROBLEM.cols, distribution="given", options=options)
    shader: Shader = render_shader(variant_of(rung), problem, "native", GPU)
    return [f"{largest_error(device, shader, mean):.1e}" for mean in MEANS]


def shares(adapter: str | None) -> Mapping[str, float | None]:
    """Return each rung's speed in percent of the best copy, all sampled in turn."""
    kernels = discover()
    with Worker(adapter) as worker:
        _, traits = bench.device_of(worker)
        rows = TIMED_ROWS_ON_SOFTWARE if traits.software else TIMED_ROWS
        request = bench.BenchRequest(
            tasks=(Task(OPS["layer_norm"], NormProblem(rows=rows, cols=PROBLEM.cols)),),
            kernels=tuple(map(kernel_of, RUNGS)),
            copies=tuple(kernel for kernel in kernels if kernel.op.is_copy),
            rule=timing.StoppingRule(),
        )
        results = [event for event in bench.run(request, worker, traits) if isinstance(event, list)]
    return {result.kernel: result.percent_of_copy for result in results[-1]}


def table(device: Device, shared: Mapping[str, float | None]) -> str:
    """Return a Markdown table of costs, errors and shares of the copy."""
    lines = [
        f"{device.adapter}, subgroups of {device.subgroup_size or 1}, {datetime.date.today()}:",
        "",
        HEAD,
    ]
    for rung in RUNGS:
        share = shared.get(rung)
        timed = UNMEASURED if share is None else f"{share:.0f}"
        cells = [f"`{rung}`", *costs(device, rung), *errors(device, rung), timed]
        lines.append(markdown.row(cells))
    return "\n".join(lines)


def rows_of(text: str) -> dict[str, str]:
    """Return the rows of a table by rung."""
    return {found[1]: found[0] for found in re.finditer(r"^\| `(\w+)` \|.*\|$", text, re.M)}


def table_of(page: str) -> str:
    """Return the table in a page."""
    return page.split("<!-- table -->\n", 1)[1].split("<!-- end of table -->", 1)[0]


def step(rung: str, rows: Mapping[str, str]) -> str:
    """Return a rung's section: its change, its figures below the previous rung's, and its WGSL."""
    below = RUNGS[max(RUNGS.index(rung) - 1, 0)]
    figures = dict.fromkeys((rows[below], rows[rung]))
    return "\n".join([f"*{kernel_of(rung).differs}*", "", HEAD, *figures, "", body(rung)])


def main() -> None:
    """Print or write the page's generated parts."""
    parser = bare_parser(__doc__)
    parser.add_argument("--adapter")
    parser.add_argument("--write", action="store_true", help="write the results into docs/ladder.md")
    parser.add_argument("--steps", action="store_true", help="measure nothing, keep the page's table")
    given = parser.parse_args()
    if given.steps:
        made, rows = {}, rows_of(table_of(PAGE.read_text(encoding="utf-8")))
    else:
        made = {"table": table(open_device(find_adapter(given.adapter)), shares(given.adapter))}
        rows = rows_of(made["table"])
    made |= {rung: step(rung, rows) for rung in RUNGS}
    for name, text in made.items():
        if given.write:
            write_text(PAGE, between_markers(PAGE, name, text))
        else:
            print(text, end="\n\n")


if __name__ == "__main__":
    main()
