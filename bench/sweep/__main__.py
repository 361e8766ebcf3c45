"""Time many variants of many problems on a GPU, as the data for the choice of kernels and constants.

    python -m bench.sweep JOBS.jsonl --out TIMES.jsonl [--processes 14] [--seconds 540]

Each line of JOBS, which `bench.sweep.jobs` writes, is a problem with variants: {"op", "dtype", "rows",
"cols", "kernel", "constants": [...]}. Several processes render and compile. A process times its variants
while it has a lock, so only one problem uses the card at a time. Every variant is timed in turn with a copy
of the same bytes, one call after the other. Outputs are not checked, so a sweep does not find wrong kernels.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.arguments import INCONCLUSIVE, bare_parser, json_lines, positive, run
from webnorm.choice.defaults import default_variant
from webnorm.errors import WebnormError
from webnorm.gpu.buffers import buffer_bytes, write
from webnorm.gpu.device import Device, find_adapter, open_device
from webnorm.gpu.pipelines import compile_shader
from webnorm.gpu.schedule import Plan
from webnorm.gpu.stopwatch import SetRotation, Stopwatch
from webnorm.gpu.timing import Reading
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.library import discover
from webnorm.kernels.headers.variants import Variant
from webnorm.kernels.rendering.render import Shader, render_shader
from webnorm.op.dtypes import DTYPES
from webnorm.op.op import Task, Tensor
from webnorm.op.registry import OPS, as_copy_problem
from webnorm.ops.norms.problem import NormOptions, NormProblem

# The bytes of all sets of a problem: five times the cache of an H200.
_ROTATED_BYTES = 256 << 20
_ROUNDS = 5
_SAMPLE_NS = 6e5
_MOST_DISPATCHES = 256
# A variant that takes so many times as long as a copy of as many bytes is timed only once.
_SLOW = 2.0
# The number of copies before any timing. They take some milliseconds, in which the card finishes other work.
_AWAKE = 100
_BLOCK = 1 << 20
_TEXTS = 64
# The longest wait for a result, and the interval of time checks. A job takes seconds, so a longer silence
# means that jobs are lost.
_SILENCE_S, _LOOK_S = 120.0, 0.5
# The most bytes of buffers that a process keeps. Times on a card that is short of memory are meaningless.
_KEPT_BYTES = 4 << 30


def task_of(job: Mapping[str, Any]) -> Task:
    """Return the problem of a job."""
    op = OPS[job["op"]]
    options = replace(op.defaults, **job.get("options", {}))
    assert isinstance(options, NormOptions)
    problem = NormProblem(
        rows=job["rows"], cols=job["cols"], dtype=job["dtype"], eps=op.scalars["eps"], options=options
    )
    return Task(op, problem)


class SweepRunner:
    """A process's device, and the buffers that its problems share."""

    def __init__(self, adapter: str | None, lock: Any, waiting: Any) -> None:
        self.device: Device = open_device(find_adapter(adapter))
        self.watch = Stopwatch(self.device)
        self.lock, self.waiting = lock, waiting
        self.kernels: Mapping[tuple[str, str], Kernel] = {(one.op.name, one.name): one for one in discover()}
        self._buffers: dict[tuple[str, str, int], Any] = {}
        self._fence = self.device.create_buffer(16)
        # The pipelines of the last texts, because variants may differ only in their numbers of workgroups.
        self._pipelines: dict[str, Any] = {}

    def times(self, job: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return a line per variant of a job, with its time and the copy's in nanoseconds."""
        self._make_room()
        task = task_of(job)
        copy_task = Task(OPS["copy"], as_copy_problem(task.problem))
        kernel = self.kernels[job["op"], job["kernel"]]
        sets = max(2, math.ceil(_ROTATED_BYTES / (2 * task.op.minimum_bytes(task.problem))) * 2)
        bytes_over_copy = task.op.minimum_bytes(task.problem) / copy_task.op.minimum_bytes(copy_task.problem)
        copy = default_variant(self.kernels["copy", "copy"], copy_task.problem, self.device.traits)
        plans = [self._prepared(copy, copy_task, sets)]
        lines: list[dict[str, Any]] = []
        ready: list[dict[str, Any]] = []
        for constants in job["constants"]:
            line = {"constants": constants}
            lines.append(line)
            try:
                plans.append(self._prepared(Variant(kernel, constants), task, sets))
                ready.append(line)
            except WebnormError as error:
                line["error"] = str(error)
        with self.waiting.get_lock():
            self.waiting.value += 1
        with self.lock:
            with self.waiting.get_lock():
                self.waiting.value -= 1
            samples = self._timed(plans, _SLOW * bytes_over_copy)
        for line, own in zip(ready, samples[1:], strict=True):
            line["bytes_over_copy"] = bytes_over_copy
            line |= {"ns": statistics.median(own), "least": min(own), "samples": len(own)}
            line["copy_ns"] = statistics.median(samples[0])
        return lines

    def keep_awake(self) -> None:
        """Run copies whenever the card is free: a card that idles half of the time lowers its clock."""
        task = Task(OPS["copy"], NormProblem(rows=1 << 14, cols=1 << 12))
        copy = default_variant(self.kernels["copy", "copy"], task.problem, self.device.traits)
        plan = self._prepared(copy, task, 2)
        while True:
            with self.lock:
                flying = self.watch.submit(plan, range(8))
                while not self.waiting.value:
                    following = self.watch.submit(plan, range(8))
                    flying()
                    flying = following
                flying()
            time.sleep(2e-4)

    def _prepared(self, variant: Variant, task: Task, sets: int) -> Plan:
        """Render, compile and bind a variant."""
        refusal = variant.refusal(task.problem, self.device.traits)
        if refusal is not None:
            raise WebnormError(refusal)
        shader = render_shader(variant, task.problem, "native", self.device.traits)
        if shader.text not in self._pipelines:
            if len(self._pipelines) >= _TEXTS:
                self._pipelines.clear()
            self._pipelines[shader.text] = compile_shader(self.device, shader, 1)
        return self._plan(task, shader, self._pipelines[shader.text], sets)

    def _timed(self, plans: Sequence[Plan], slow: float) -> list[list[float]]:
        """Sample the plans in turn; the first is a copy, and the card never waits for the next plan.

        A plan that takes `slow` times as long as the copy is not timed again.
        """
        turns = SetRotation()
        self._in_a_row([(plans[0], turns.take(_AWAKE))])
        first = [self._in_a_row([(plan, turns.take(2)) for plan in plans]) for _ in range(2)]
        once = [min(pair) for pair in zip(*first, strict=True)]
        samples: list[list[float]] = [[] for _ in plans]
        going = [at for at, own in enumerate(once) if at == 0 or own <= slow * once[0]]
        for _ in range(_ROUNDS):
            counts = [min(max(2, math.ceil(_SAMPLE_NS / once[at])), _MOST_DISPATCHES) for at in going]
            planned = [(plans[at], turns.take(count)) for at, count in zip(going, counts, strict=True)]
            for at, found in zip(going, self._in_a_row(planned), strict=True):
                samples[at].append(found)
        return [own or [once[at]] for at, own in enumerate(samples)]

    def _in_a_row(self, planned: Sequence[tuple[Plan, range]]) -> list[float]:
        """Take a sample of each plan, in nanoseconds per dispatch, with three in flight at a time."""
        found: list[float] = []
        flying: list[Reading] = []
        for plan, dispatches in planned:
            flying.append(self.watch.submit(plan, dispatches))
            if len(flying) > 3:
                found.append(flying.pop(0)())
        return found + [reading() for reading in flying]

    def _plan(self, task: Task, shader: Shader, pipelines: Any, sets: int) -> Plan:
        op, problem = task.op, task.problem
        inputs: dict[str, list[Any]] = {}
        outputs: dict[str, list[Any]] = {}
        for tensor in op.present(problem):
            into = inputs if tensor.access == "read" else outputs
            into[tensor.name] = [self._buffer(tensor, problem, at) for at in range(sets)]
        return Plan(self.device, shader, inputs, outputs, pipelines, [self._fence])

    def _make_room(self) -> None:
        if sum(buffer.size for buffer in self._buffers.values()) > _KEPT_BYTES:
            for buffer in self._buffers.values():
                buffer.destroy()
            self._buffers.clear()

    def _buffer(self, tensor: Tensor, problem: NormProblem, at: int) -> Any:
        """Return a buffer for a tensor, and reuse an earlier one that is large enough."""
        size = buffer_bytes(tensor.data_bytes(problem))
        key = tensor.name, tensor.dtype(problem), at
        if key not in self._buffers or self._buffers[key].size < size:
            self._buffers[key] = self._filled(tensor, problem, size + size // 16 // 16 * 16)
        return self._buffers[key]

    def _filled(self, tensor: Tensor, problem: NormProblem, size: int) -> Any:
        buffer = self.device.create_buffer(size)
        if tensor.access != "read":
            return buffer
        dtype = DTYPES[tensor.dtype(problem)]
        count = min(_BLOCK, size) // dtype.itemsize // 12 * 12
        values = np.random.default_rng(0).standard_normal(count).astype(dtype)
        if tensor.name == "stats":
            values = np.abs(values) + np.float32(0.5)
        block = self.device.create_buffer(values.nbytes)
        write(self.device, block, values)
        encoder = self.device.handle.create_command_encoder()
        for begin in range(0, size, values.nbytes):
            encoder.copy_buffer_to_buffer(block, 0, buffer, begin, min(values.nbytes, size - begin))
        self.device.handle.queue.submit([encoder.finish()])
        return buffer


_runner: SweepRunner | None = None


def _begin(cards: Sequence[tuple[str | None, Any, Any]], numbers: Any) -> None:
    global _runner
    # Numbers are used in turn, and again for a process that replaces one that the driver killed.
    number = numbers.get()
    numbers.put(number)
    _runner = SweepRunner(*cards[number % len(cards)])


def _keep_awake(card: tuple[str | None, Any, Any]) -> None:
    SweepRunner(*card).keep_awake()


def _work(job: Mapping[str, Any]) -> list[dict[str, Any]]:
    assert _runner is not None
    about = {name: value for name, value in job.items() if name != "constants"}
    try:
        return [{**about, **line} for line in _runner.times(job)]
    except Exception as error:
        lost = f"{type(error).__name__}: {error}"
        return [{**about, "constants": constants, "error": lost} for constants in job["constants"]]


def timed(
    jobs: Sequence[Mapping[str, Any]], adapters: Sequence[str | None], processes: int, until: float
) -> Iterator[list[dict[str, Any]]]:
    """Run the jobs in processes, and yield the lines of each until the time is up."""
    context = multiprocessing.get_context("spawn")
    cards = [(adapter, context.Lock(), context.Value("i", 0)) for adapter in adapters]
    for card in cards:
        context.Process(target=_keep_awake, args=(card,), daemon=True).start()
    numbers = context.SimpleQueue()
    for number in range(processes):
        numbers.put(number)
    with context.Pool(processes, _begin, (cards, numbers)) as pool:
        yield from arriving(pool.imap_unordered(_work, jobs), until)


def arriving(results: Any, until: float) -> Iterator[list[dict[str, Any]]]:
    """Yield a pool's results until all have arrived or the time is up.

    If a driver kills a process, the pool starts a new one, but the job is lost and its result never arrives.
    So after a long silence a line is printed and the iteration ends.
    """
    heard = time.monotonic()
    while time.monotonic() < until:
        try:
            found = results.next(timeout=_LOOK_S)
        except multiprocessing.TimeoutError:
            if time.monotonic() - heard < _SILENCE_S:
                continue
            print(
                f"no result for {_SILENCE_S:.0f} s: the remaining jobs were lost with their processes",
                flush=True,
            )
            return
        except StopIteration:
            return
        heard = time.monotonic()
        yield found


def main() -> None:
    """Time the jobs until all are done or the time is up."""
    parser = bare_parser(__doc__)
    parser.add_argument("jobs", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--adapter", nargs="+", default=[None], help="several share the jobs")
    parser.add_argument("--processes", type=positive, default=14)
    parser.add_argument("--seconds", type=positive, default=540)
    asked = parser.parse_args()
    for adapter in asked.adapter:
        # An error must be raised here, because a pool restarts a process that cannot open it forever.
        find_adapter(adapter)
    began = time.monotonic()
    done = variants = 0
    jobs = json_lines(asked.jobs, "bench.sweep.jobs")
    with asked.out.open("w", encoding="utf-8") as out:
        for lines in timed(jobs, asked.adapter, asked.processes, began + asked.seconds):
            out.writelines(json.dumps(line) + "\n" for line in lines)
            out.flush()
            done, variants = done + 1, variants + len(lines)
            if done % 50 == 0:
                print(_progress(began, done, len(jobs), variants), flush=True)
    print(_progress(began, done, len(jobs), variants), flush=True)
    # The time was up, or there were no jobs.
    if done < len(jobs) or not jobs:
        sys.exit(INCONCLUSIVE)


def _progress(began: float, done: int, count: int, variants: int) -> str:
    return f"{time.monotonic() - began:6.1f} s: {done} of {count} jobs, {variants} variants"


if __name__ == "__main__":
    run(main)
