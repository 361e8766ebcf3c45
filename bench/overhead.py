"""What a call costs beside its kernel: the first one, one on resident data, a round trip of NumPy arrays.

    python -m bench.overhead [--adapter ADAPTER] [--op OP] [--rows 64] [--cols 256] [--json FILE]

The first call and its parts are each measured in a process of its own, with the driver's caches on disk
switched off: where nothing is kept of any process before it, and where webnorm's compiled templates are. A
steady call is held against what it cannot do without: one on GpuArrays against encoding and submitting a plan
whose buffers are bound, one on NumPy arrays against the bare writes, that plan and the reads, which are the
API's own, since wgpu's `read_buffer` is slower. All are sampled in turn, ten calls in a row, and the device
is idle before each sample. A sample ends when the last function returns: where nothing is read back, the
device may still be at work. "thread" is the processor time of the thread that calls: what is left of a sample
where the device is this processor.
"""

from __future__ import annotations

import argparse
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
from bench.arguments import positive, run
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

# What keeps compiled shaders on disk: Mesa's cache and NVIDIA's.
_NO_DISK_CACHE = {"MESA_SHADER_CACHE_DISABLE": "true", "__GL_SHADER_DISK_CACHE": "0"}
# A lone call after a wait costs more, whatever it does: the processor's caches are cold.
_IN_A_ROW = 10
# Room to read into, as calls have it.
_STAGING_BYTES = 1 << 27
_AGAINST = {
    "call on GpuArrays": "  encode and submit",
    "call on NumPy arrays": "  write, encode and submit, read",
}


@dataclass(frozen=True)
class OverheadLine:
    """A median in nanoseconds, and where there is something to hold it against the ratio to that; of what is
    called again and again the median of the thread's processor time, too.
    """

    what: str
    median_ns: float
    ratio: float | None = None
    thread_ns: float | None = None


def call_of(op: Op, arrays: Mapping[str, Any], device: Device) -> Callable[[], Any]:
    """The op's function of the Python API on its inputs by name, which are its arguments' names."""
    given = {"normalized_shape": arrays["x"].shape[1], "eps": op.scalars["eps"], "device": device}
    return partial(getattr(webnorm, op.name), **given, **arrays)


def chosen(device: Device, task: Task) -> Variant:
    """The kernel that a call takes, and its constants."""
    tuning, _ = applicable(Platform.of(device.adapter.description()))
    return choose_own(task, device.traits, tuning).variant


def bound(device: Device, task: Task, variant: Variant) -> tuple[ProblemBuffers, Plan]:
    """The problem's buffers, and a plan of a variant."""
    board = ProblemBuffers(device, task, make_inputs(task.op, task.problem), ())
    return board, board.prepare(variant)


def first_call(device: Device, task: Task) -> Iterator[float]:
    """A worker's task: nanoseconds of a process's first call on GpuArrays."""
    arrays = make_inputs(task.op, task.problem)
    on_device = {name: webnorm.GpuArray.from_numpy(array, device) for name, array in arrays.items()}
    yield timing.elapsed(call_of(task.op, on_device, device))


def first_parts(device: Device, task: Task) -> Iterator[dict[str, float]]:
    """A worker's task: nanoseconds of the first choice, rendering, compilation and pipelines of a process."""
    began = time.perf_counter_ns()
    variant = chosen(device, task)
    spent = float(time.perf_counter_ns() - began)
    board, _ = bound(device, task, variant)
    yield {"choose_ns": spent, **board.spent}


def first(adapter: str | None, task: Task) -> list[OverheadLine]:
    """The first call, and what of it is choosing, rendering, compiling and making pipelines."""
    lines: list[OverheadLine] = []
    # Recorded tunings lie in the same folder.
    os.environ.setdefault("WEBNORM_TUNINGS", str(cache_folder("tunings")))
    with TemporaryDirectory() as one, TemporaryDirectory() as other, _environment():
        # Each of the two tasks finds its folder empty, and then as it left it.
        for what in ("first call on GpuArrays, nothing kept", "first call on GpuArrays"):
            whole = _alone(adapter, first_call, task, one)
            parts = _alone(adapter, first_parts, task, other)
            lines.append(OverheadLine(what, whole))
            lines += [OverheadLine(f"  {name.removesuffix('_ns')}", spent) for name, spent in parts.items()]
    return lines


@contextmanager
def _environment() -> Iterator[None]:
    """Leave the environment as it was found."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _alone(adapter: str | None, work: Callable[[Device, Task], Iterator[Any]], task: Task, cache: str) -> Any:
    """What a task gives in a process of its own, with a cache folder."""
    os.environ["XDG_CACHE_HOME"] = cache
    try:
        with Worker(adapter) as worker:
            (found,) = worker.stream(work, task)
    except (WorkerDied, TaskFailed) as death:
        raise WebnormError(f"the first call failed: {death}") from death
    return found


def in_a_row(work: Callable[[], Any]) -> None:
    """The work, several times."""
    for _ in range(_IN_A_ROW):
        work()


def steady(device: Device, task: Task, rounds: int) -> list[OverheadLine]:
    """Calls after the first, and what they are held against."""
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
            median / medians[_AGAINST[what]] if what in _AGAINST else None,
            timing.statistics(busy[what]).median,
        )
        for what, median in medians.items()
    ]


def _works(device: Device, task: Task) -> dict[str, Callable[[], Any]]:
    """What is timed, in the order of the table."""
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
        # One submission, as a call's.
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
    """The lines; what a call is held against stands indented below it."""
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--adapter")
    parser.add_argument("--op", choices=[op for op in OPS if op != "copy"], default="layer_norm")
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
