"""Record the speed of the browser shaders relative to the native kernels, on one adapter, in one run.

    python -m bench.browser --out bench/results/NAME.md [--dawn] [--op OP --rows 65536 --cols 1024 ...]

webnorm renders an exported shader for 256 invocations and 16 KiB of workgroup memory, which every page may
use. wgpu runs it without its `enable` line. The copy, the native variant at its defaults and every exported
shader for GPUs take turns. Their dispatches rotate through sets of buffers that exceed the cache. With
--dawn, Chrome's WebGPU also runs the shader that a page would choose, in node, relative to its own copy.
"""

from __future__ import annotations

import datetime
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bench.arguments import add_dawn, check_dawn, command, ops_and_dtypes, parser, run, shapes
from webnorm.choice.defaults import best_variant
from webnorm.errors import WebnormError
from webnorm.files.atomic import check_writable, write_text
from webnorm.gpu import timing
from webnorm.gpu.device import Device, find_adapter, open_device
from webnorm.gpu.schedule import Plan
from webnorm.kernels.headers.library import discover
from webnorm.lab.run import bench
from webnorm.lab.verify.problem_buffers import ProblemBuffers, RepeatedRows
from webnorm.lab.verify.timed_work import timing_setup
from webnorm.op.op import Op, Task
from webnorm.op.registry import OPS
from webnorm.web import lab_site, tint
from webnorm.web.folder import write_folder
from webnorm.web.package.bundle import bundle_of
from webnorm.web.package.native import native_text
from webnorm.web.package.request import ExportRequest
from webnorm.web.pages import page_files

_SHAPES = ((65536, 1024), (16384, 4096), (8192, 8192))
_DAWN = Path(__file__).with_name("dawn.mjs")
_ABOUT = (
    "Each shader that `webnorm export` writes for GPUs gave right outputs on every run. It was sampled in "
    "turn with the native kernel and the copy, by timestamps, over buffers that are rotated past the cache. "
    "wgpu ran it without its lines `enable` and `requires`. Dawn is Chrome's WebGPU in node; its percentages "
    "refer to its own copy."
)


@dataclass(frozen=True)
class BrowserCost:
    """The outcome of one candidate.

    `gbps` is the minimum number of bytes that a kernel must move, divided by the median time. `percent` is
    relative to the copy that was sampled in turn with it.
    """

    name: str
    kernel: str
    median_ns: float
    gbps: float
    percent: float
    max_abs_error: float


def request(op: Op, cols: int, dtype: str) -> ExportRequest:
    """Return the export whose shaders are measured."""
    kernels = tuple(kernel for kernel in discover() if kernel.op is op)
    options = replace(op.defaults, saved_stats=False)
    return ExportRequest(op=op, cols=(cols,), kernels=kernels, dtype=dtype, options=options)


def candidates(board: ProblemBuffers, op: Op, cols: int, dtype: str) -> Iterator[tuple[str, Plan]]:
    """Yield the copy, the native variant and the exported shaders for GPUs."""
    traits = board.device.traits
    by_op = {name: [k for k in discover() if k.op.name == name] for name in ("copy", op.name)}
    for label, kernels in (("copy", by_op["copy"]), ("native", by_op[op.name])):
        variant, _ = best_variant(kernels, board.problem, traits)
        if variant is not None:
            yield label, board.prepare(variant)
    for one in bundle_of(request(op, cols, dtype)).shaders:
        if not one.for_software:
            yield (
                f"browser, {one.adapter_class}",
                board.bind(replace(native_text(one.shader), problem=board.problem)),
            )


def measure(device: Device, op: Op, rows: int, cols: int, dtype: str, rounds: int) -> list[BrowserCost]:
    """Check every candidate against float64, then time all in turn."""
    problem = replace(request(op, cols, dtype).task(cols).problem, rows=rows)
    task = Task(op, problem)
    board = RepeatedRows(device, task, bench.sets_for(task, device.traits))
    rule = timing.StoppingRule(least=rounds, most=rounds, budget_s=600)
    setup = timing_setup(board, rule.settle_s)
    running = []
    for name, plan in candidates(board, op, cols, dtype):
        board.outputs(plan.shader.variant).poison()
        plan.run()
        accuracy, _ = board.outcome(plan)
        if not accuracy.ok:
            sys.exit(f"{name}, {problem}: {accuracy.reason}")
        running.append((name, plan, accuracy.max_abs_error))
    setup.pace.ready()
    samplers = [setup.stopwatch.sampler(plan, board.turns)[0] for _, plan, _ in running]
    samples: list[list[float]] = [[] for _ in running]
    for _ in timing.take_turns(samplers, samples, rule, setup.pace):
        pass
    lines: list[BrowserCost] = []
    for own, (name, plan, error) in zip(samples, running, strict=True):
        kernel = plan.shader.variant.kernel
        median = timing.statistics(own).median
        gbps = kernel.op.minimum_bytes(board.problem_of(plan.shader.variant)) / median
        copy = lines[0].gbps if lines else gbps
        lines.append(BrowserCost(name, kernel.name, median, gbps, 100 * gbps / copy, error))
    return lines


def through_dawn(op: Op, rows: int, cols: int, dtype: str, webgpu: Path) -> Iterator[BrowserCost]:
    """Run the copy and the exported shader that a page would choose on this machine, on Dawn in node.

    Raises WebnormError if node or Dawn fails, or if an output is wrong.
    """
    exact = OPS["copy"]
    kernels = [kernel for kernel in discover() if kernel.op is exact]
    copies = lab_site.read_bundle(
        Task(exact, exact.problem(rows, cols, dtype=dtype)), kernels, (), "bench.browser"
    )
    norm = bundle_of(request(op, cols, dtype))
    asked = {"norm": lab_site.bundle_as_json(norm), "copy": lab_site.bundle_as_json(copies), "rows": rows}
    with tempfile.TemporaryDirectory() as folder:
        write_folder({**page_files("lab"), "package.json": b'{"type": "module"}'}, Path(folder))
        Path(folder, "problem.json").write_text(json.dumps(asked), encoding="utf-8")
        report = tint.run_node(_DAWN, Path(folder), webgpu)
    classes = {one.name: one.adapter_class for one in norm.shaders}
    for one in report["found"]:
        name = f"Dawn, {classes.get(one['shader'], 'copy')}"
        if one["status"] != "pass":
            raise WebnormError(f"{name}, {rows}x{cols} {dtype} on {report['adapter']}: {one['reason']}")
        if "unsettled" in one["flags"]:
            name += " (unsettled)"
        yield BrowserCost(
            name, one["kernel"], one["median_ns"], one["gbps"], one["percent_of_copy"], one["max_abs_error"]
        )


def table(title: str, lines: list[BrowserCost]) -> str:
    """Return the lines as a Markdown table."""
    rows = [
        f"| {line.name} | {line.kernel} | {line.median_ns / 1000:.1f} | {line.gbps:.0f} | "
        f"{line.percent:.1f} | {line.max_abs_error:.1e} |"
        for line in lines
    ]
    head = [
        "| shader | kernel | median us | GB/s | % of copy | max abs error |",
        "|---|---|---:|---:|---:|---:|",
    ]
    return "\n".join([f"### {title}", "", *head, *rows, ""])


def main() -> None:
    """Parse the arguments, measure, write."""
    options = parser(__doc__, "the Markdown file to write")
    add_dawn(options, "also run on Dawn")
    arguments = options.parse_args()
    check_writable(arguments.out)
    if arguments.dawn:
        check_dawn(arguments.dawn)
    pairs = shapes(arguments, _SHAPES)
    device = open_device(find_adapter(arguments.adapter))
    ops, dtypes = ops_and_dtypes(arguments)
    line = command("bench.browser", arguments.out, arguments.dawn)
    text = [
        f"# Browser shaders on {device.adapter.name}\n",
        f"Recorded {datetime.date.today()} on {device.adapter} with `{line}`. {_ABOUT}\n",
    ]
    for name in ops:
        for dtype in dtypes:
            for rows, cols in pairs:
                lines = measure(device, OPS[name], rows, cols, dtype, arguments.rounds)
                if arguments.dawn:
                    lines += through_dawn(OPS[name], rows, cols, dtype, arguments.dawn)
                text.append(table(f"{name} {rows}x{cols} {dtype}", lines))
                print(text[-1], flush=True)
                # This writes the file after every shape, so that an interrupted run keeps its results.
                write_text(arguments.out, "\n".join(text))


if __name__ == "__main__":
    run(main)
