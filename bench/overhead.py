"""Measure the overhead of calls: the first call, a call on resident data, a round trip of NumPy arrays.

    python -m bench.overhead [--adapter ADAPTER] [--op OP] [--rows 64] [--cols 256] [--json FILE]

Separate processes without the driver's disk caches measure the first call and its parts. They run once with
an empty cache folder, and once with webnorm's compiled templates in it. A steady call is compared with its
minimum work. For GpuArrays that is encoding and submitting a bound plan. For NumPy arrays it is the writes,
that plan and the API's own reads, because wgpu's `read_buffer` is slower. All functions take turns, ten calls
in a row, and the device is idle before each sample. A sample ends when the last function returns: if nothing
is read back, the device may still be working. "thread" is the processor time of the calling thread. On a
software adapter, whose device is the processor, it excludes the device's work.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

import webnorm
from bench.arguments import bare_parser, positive, run
from webnorm.choice.defaults import choose_own
from webnorm.choice.tuning import Platform, applicable
from webnorm.errors import WebnormError
from webnorm.files.atomic import cache_folder, check_writable, write_text
from webnorm.gpu import timing
from webnorm.gpu.buffers import write
from webnorm.gpu.device import Device, find_adapter, open_device
from webnorm.gpu.pool import STAGING_USAGE, BufferPool, read_buffers
from webnorm.gpu.schedule import Plan
from webnorm.gpu.stopwatch import WARM_UP_RUNS, Stopwatch
from webnorm.kernels.headers.variants import Variant
from webnorm.lab.process.worker import TaskFailed, Worker, WorkerDied
from webnorm.lab.results.tables import time_text
from webnorm.lab.verify.problem_buffers import ProblemBuffers
from webnorm.op.dtypes import DTYPES, STORAGE
from webnorm.op.op import Op, Task, make_inputs
from webnorm.op.registry import OPS
from webnorm.ops.norms.op import OPS as NORM_OPS

# These variables disable the disk caches of Mesa and NVIDIA for compiled shaders.
_NO_DISK_CACHE = {"MESA_SHADER_CACHE_DISABLE": "true", "__GL_SHADER_DISK_CACHE": "0"}
# A single call after a wait costs more, because the processor's caches are cold.
_IN_A_ROW = 10
# The staging memory that calls also use.
_STAGING_BYTES = 1 << 27
_MINIMUM_WORK = {
    "call on GpuArrays": "  encode and submit",
    "call on NumPy arrays": "  write, encode and submit, read",
}


@dataclass(frozen=True)
class OverheadLine:
    """A line of the table.

    `median_ns` is in nanoseconds. `ratio` is the ratio to the minimum work, if there is one. `thread_ns` is
    the median processor time of the thread, for repeated calls.
    """

    what: str
    median_ns: float
    ratio: float | None = None
    thread_ns: float | None = None


def call_of(op: Op, arrays: Mapping[str, Any], device: Device) -> Callable[[], Any]:
    """Return a call of the op's Python function; `arrays` are its arguments by name."""
    given = {"normalized_shape": arrays["x"].shape[1], "eps": op.scalars["eps"], "device": device}
    return partial(getattr(webnorm, op.name), **given, **arrays)


def chosen(device: Device, task: Task) -> Variant:
    """Return the variant that a call uses."""
    tuning, _ = applicable(Platform.of(device.adapter.description()))
    return choose_own(task, device.traits, tuning).variant


def bound(device: Device, task: Task, variant: Variant) -> tuple[ProblemBuffers, Plan]:
    """Return the problem's buffers and the variant's plan."""
    board = ProblemBuffers(device, task, make_inputs(task.op, task.problem), ())
    return board, board.prepare(variant)


def first_call(device: Device, task: Task) -> Iterator[float]:
    """Yield the nanoseconds of a process's first call on GpuArrays; runs in a worker."""
    arrays = make_inputs(task.op, task.problem)
    on_device = {name: webnorm.GpuArray.from_numpy(array, device) for name, array in arrays.items()}
    yield timing.elapsed(call_of(task.op, on_device, device))


def first_parts(device: Device, task: Task) -> Iterator[dict[str, float]]:
    """Yield the nanoseconds of the first choice, rendering, compilation and pipelines; runs in a worker."""
    began = time.perf_counter_ns()
    variant = chosen(device, task)
    spent = float(time.perf_counter_ns() - began)
    board, _ = bound(device, task, variant)
    yield {"choose_ns": spent, **board.spent}


def first(adapter: str | None, task: Task) -> list[OverheadLine]:
    """Time the first call and its parts: choosing, rendering, compiling and making pipelines."""
    lines: list[OverheadLine] = []
    # Recorded tunings are in the cache folder, which is replaced below.
    os.environ.setdefault("WEBNORM_TUNINGS", str(cache_folder("tunings")))
    with TemporaryDirectory() as one, TemporaryDirectory() as other, _environment():
        # Each task finds its folder empty in the first round, and filled in the second.
        for what in ("first call on GpuArrays, nothing kept", "first call on GpuArrays"):
            whole = _alone(adapter, first_call, task, one)
            parts = _alone(adapter, first_parts, task, other)
            lines.append(OverheadLine(what, whole))
            lines += [OverheadLine(f"  {name.removesuffix('_ns')}", spent) for name, spent in parts.items()]
    return lines


@contextmanager
def _environment() -> Iterator[None]:
    """Restore the environment variables at the end."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _alone(adapter: str | None, work: Callable[[Device, Task], Iterator[Any]], task: Task, cache: str) -> Any:
    """Run a task in a new process with this cache folder, and return its result."""
    os.environ["XDG_CACHE_HOME"] = cache
    try:
        with Worker(adapter) as worker:
            (found,) = worker.stream(work, task)
    except (WorkerDied, TaskFailed) as death:
        raise WebnormError(f"the first call failed: {death}") from death
    return found


def in_a_row(work: Callable[[], Any]) -> None:
    """Run the work several times."""
    for _ in range(_IN_A_ROW):
        work()


def steady(device: Device, task: Task, rounds: int) -> list[OverheadLine]:
    """Time calls after the first, and their minimum work."""
    works = _works(device, task)
    samples: dict[str, list[float]] = {what: [] for what in works}
    busy: dict[str, list[float]] = {what: [] for what in works}
    watch = Stopwatch(device)
    for at in range(WARM_UP_RUNS + rounds):
        for what, work in works.items():
            watch.wait()
            began = time.thread_time_ns()
            spent = timing.elapsed(partial(in_a_row, work)) / _IN_A_ROW
            if at >= WARM_UP_RUNS:
                samples[what].append(spent)
                busy[what].append((time.thread_time_ns() - began) / _IN_A_ROW)
    medians = {what: timing.statistics(own).median for what, own in samples.items()}
    return [
        OverheadLine(
            what,
            median,
            median / medians[_MINIMUM_WORK[what]] if what in _MINIMUM_WORK else None,
            timing.statistics(busy[what]).median,
        )
        for what, median in medians.items()
    ]


def _works(device: Device, task: Task) -> dict[str, Callable[[], Any]]:
    """Return the timed functions, in the order of the table."""
    op, problem = task.op, task.problem
    board, plan = bound(device, task, chosen(device, task))
    arrays = board.arrays
    resident = {name: webnorm.GpuArray.from_numpy(array, device) for name, array in arrays.items()}
    outputs = [
        (plan.buffers[tensor.name][0], tensor.shape_in(problem), DTYPES[tensor.dtype(problem)])
        for tensor in op.outputs(problem)
    ]
    read_back = partial(read_buffers, device, BufferPool(_STAGING_BYTES, STAGING_USAGE), outputs)

    def upload() -> None:
        for name, array in arrays.items():
            write(device, plan.buffers[name][0], array)

    def round_trip() -> None:
        upload()
        encoder = device.handle.create_command_encoder()
        compute = encoder.begin_compute_pass()
        plan.encode(compute)
        compute.end()
        # One submission, as a call makes it.
        read_back(encoder)

    def transfers() -> None:
        upload()
        read_back()

    return {
        "call on GpuArrays": call_of(op, resident, device),
        "  encode and submit": plan.run,
        "call on NumPy arrays": call_of(op, arrays, device),
        "  write, encode and submit, read": round_trip,
        "  write and read": transfers,
    }


def table(lines: list[OverheadLine]) -> Table:
    """Return the table; a call's minimum work is indented below it."""
    shown = Table()
    shown.add_column("what")
    shown.add_column("median", justify="right")
    shown.add_column("ratio", justify="right")
    shown.add_column("thread", justify="right")
    for line in lines:
        ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
        thread = "" if line.thread_ns is None else time_text(line.thread_ns)
        shown.add_row(line.what, time_text(line.median_ns), ratio, thread)
    return shown


def main() -> None:
    """Parse the arguments, measure, print and write."""
    parser = bare_parser(__doc__)
    parser.add_argument("--adapter")
    parser.add_argument("--op", choices=[op.name for op in NORM_OPS], default="layer_norm")
    parser.add_argument("--dtype", choices=STORAGE, default="float32")
    parser.add_argument("--rows", type=positive, default=64)
    parser.add_argument("--cols", type=positive, default=256)
    parser.add_argument("--rounds", type=positive, default=100)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.json is not None:
        check_writable(given.json)
    os.environ.update(_NO_DISK_CACHE)
    op = OPS[given.op]
    problem = op.problem(given.rows, given.cols, dtype=given.dtype)
    task = Task(op, problem)
    device = open_device(find_adapter(given.adapter))
    lines = first(given.adapter, task) + steady(device, task, given.rounds)
    Console().print(f"{op.name} {problem} on {device.adapter}", table(lines), sep="\n", highlight=False)
    if given.json is not None:
        report = {
            "device": device.description(),
            "op": op.name,
            "problem": problem.as_json(),
            "lines": [asdict(line) for line in lines],
        }
        write_text(given.json, json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    run(main)
