"""What can be done before anything is timed, on all cores: compiling, and holding variants against float64.

A pool of processes prepares some problems ahead. What they compile lies in caches on disk, the driver's,
inductor's, Triton's, QuACK's and JAX's, where the measuring process finds it. Nothing is timed meanwhile, but
by compilers that time what they try: those take turns.
"""

from __future__ import annotations

import os
import queue
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock

from bench.contenders import installed, said
from bench.record.laps import Laps
from bench.record.side_by_side import KnownResults
from bench.record.tuning import searchable
from bench.record.variants import own_variants
from webnorm.errors import WebnormError
from webnorm.gpu import timing
from webnorm.gpu.device import Device
from webnorm.gpu.pipelines import compile_shader
from webnorm.kernels.headers.traits import Traits
from webnorm.kernels.headers.variants import Variant
from webnorm.kernels.rendering.render import render_shader
from webnorm.lab.process.worker import TaskFailed, Worker, WorkerDied
from webnorm.lab.results.result import Result
from webnorm.lab.run import bench
from webnorm.lab.verify.problem_buffers import RepeatedRows
from webnorm.lab.verify.trial import blank_result, try_variant
from webnorm.op.op import Task
from webnorm.op.registry import as_copy_problem
from webnorm.ops.norms.problem import NormProblem

# A compiler that tries dozens of launches, on a core that others use, gives no sign of life for so long.
_SILENCE_S = 300.0
# Variants of a search that are compiled ahead: more than it tries.
_SEARCHED = 120
_OWN, _SEARCH = "own", "search"
# Who tunes by timing takes this lock for each measurement.
_TURN = "card.lock"


def share_caches(folder: Path) -> None:
    """Have this process, and those that it starts, keep what is compiled in a folder. To be called before any
    library of the contenders is imported, or a driver loaded; what the user has set stays.
    """
    folder.mkdir(parents=True, exist_ok=True)
    places = {
        "TORCHINDUCTOR_CACHE_DIR": "inductor",
        "TRITON_CACHE_DIR": "triton",
        "QUACK_CACHE_DIR": "quack",
        "JAX_COMPILATION_CACHE_DIR": "jax",
        "__GL_SHADER_DISK_CACHE_PATH": "driver",
    }
    for name, place in places.items():
        (folder / place).mkdir(exist_ok=True)
        os.environ.setdefault(name, str(folder / place))
    others = {
        # As many processes as cores compile already.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        # Whatever took little time to compile, too.
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        # The driver would throw out what is older once its cache is large.
        "__GL_SHADER_DISK_CACHE_SKIP_CLEANUP": "1",
    }
    for name, value in others.items():
        os.environ.setdefault(name, value)


# --- in the processes


@dataclass(frozen=True)
class PrepareUnit:
    """What one process prepares at a time: webnorm's variants of a task, those that a search may try, or a
    contender by its name. `turn` is the lock of who times.
    """

    task: Task
    what: str
    turn: Path


@dataclass(frozen=True)
class TryingVariant:
    """A variant is being tried: whatever goes wrong next is its doing."""

    name: str


@dataclass(frozen=True)
class TriedVariant:
    """What the block of a task said of a variant."""

    name: str
    result: Result


@dataclass(frozen=True)
class ContenderFault:
    """A contender is not to be tried in the measuring process."""

    reason: str


def prepare(device: Device, unit: PrepareUnit) -> Iterator[TryingVariant | TriedVariant | ContenderFault]:
    """The worker's task."""
    if unit.what == _OWN:
        yield from _try_variants(device, unit.task)
    elif unit.what == _SEARCH:
        sets = bench.sets_for(unit.task, device.traits)
        for variant in searchable(unit.task, device.traits)[:_SEARCHED]:
            yield TryingVariant(str(variant))
            with suppress(WebnormError):
                _compile(device, variant, unit.task, sets)
    else:
        take_turns(FileLock(unit.turn))
        try:
            installed.rehearse(unit.what, unit.task, bench.sets_for(unit.task, device.traits))
        except Exception as error:
            # What a library raises it raises again where it is measured; some would take others along.
            if installed.broken(unit.what):
                yield ContenderFault(f"it broke the process that tried it: {said(error)}")
        finally:
            installed.release()


def take_turns(lock: FileLock) -> None:
    """Have inductor, in this process, take a lock whenever it times a kernel: beside others it would choose
    by chance.
    """
    try:
        from torch._inductor.runtime import benchmarking
    except ImportError:
        return
    if hasattr(benchmarking, "set_gpu_benchmark_lock_context"):
        benchmarking.set_gpu_benchmark_lock_context(lambda: lock)
        return
    # torch 2.11 has no such function.
    own: Any = benchmarking.benchmarker
    if "benchmark" not in vars(own):
        unlocked = own.benchmark

        def benchmark(*args: Any, **kwargs: Any) -> Any:
            with lock:
                return unlocked(*args, **kwargs)

        own.benchmark = benchmark


def _try_variants(device: Device, task: Task) -> Iterator[TryingVariant | TriedVariant]:
    """Hold variants against float64 on the block of a task, and compile what the whole of it needs."""
    sets = bench.sets_for(task, device.traits)
    block = RepeatedRows(device, task, sets).block
    own = own_variants(task, device.traits)
    for variant in own.variants:
        yield TryingVariant(str(variant))
        result, plan, _ = try_variant(block, variant)
        if plan is not None:
            _compile(device, variant, task, sets, plan.shader.text)
        yield TriedVariant(str(variant), result)


def _compile(device: Device, variant: Variant, task: Task, sets: int, known: str | None = None) -> None:
    """Compile a variant as a board of so many sets does, unless it is a text that was compiled already."""
    problem = as_copy_problem(task.problem) if variant.kernel.op.is_copy else task.problem
    shader = render_shader(variant, problem, "native", device.traits)
    if shader.text != known:
        compile_shader(device, shader, 1 if sets > 1 else 0)


# --- in the parent


@dataclass
class PreparedProblems:
    """What the processes found, by problem, and how long they were at it, by what they did."""

    known: dict[NormProblem, KnownResults] = field(default_factory=dict)
    seconds: Laps = field(default_factory=Laps)


class PreparePool:
    """So many worker processes, each with the device open; units go to whichever is free."""

    def __init__(self, adapter: str, processes: int, folder: Path) -> None:
        self._turn = folder / _TURN
        self._workers = [Worker(adapter, _SILENCE_S) for _ in range(processes)]
        self._free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in self._workers:
            self._free.put(worker)

    def __enter__(self) -> PreparePool:
        return self

    def __exit__(self, *_: object) -> None:
        # At once: one may take long to give back what it has of a card, and none is to wait for it.
        self._kill()
        for worker in self._workers:
            worker.stop()

    def _kill(self) -> None:
        for worker in self._workers:
            worker.kill()

    def prepare(self, tasks: Sequence[Task], searched: Collection[Task], traits: Traits) -> PreparedProblems:
        """Prepare problems, some of which are going to be searched."""
        kinds = [*installed.COMPILING, _OWN]
        # What takes longest begins first.
        units = [PrepareUnit(task, what, self._turn) for what in kinds for task in tasks]
        units += [PrepareUnit(task, _SEARCH, self._turn) for task in searched]
        found = PreparedProblems()
        threads = ThreadPoolExecutor(len(self._workers))
        try:
            done = threads.map(self._run, units)
            # This process will need them, too.
            installed.start()
            for unit, events, spent in done:
                found.seconds.add(unit.what, spent)
                known = found.known.setdefault(unit.task.problem, KnownResults())
                _note(known, unit, events, traits)
        except BaseException:
            # Whoever interrupts a run does not wait for compilers.
            threads.shutdown(wait=False, cancel_futures=True)
            self._kill()
            raise
        finally:
            threads.shutdown()
        return found

    def _run(self, unit: PrepareUnit) -> tuple[PrepareUnit, list[Any], float]:
        """What came of a unit, the exception that ended it included, and how long it took."""
        worker, began = self._free.get(), timing.clock()
        events: list[Any] = []
        try:
            for event in worker.stream(prepare, unit):
                events.append(event)
        except (WorkerDied, TaskFailed, WebnormError) as failure:
            events.append(failure)
        if any(isinstance(event, ContenderFault) for event in events):
            # Its context on the card is gone.
            worker.stop()
        self._free.put(worker)
        return unit, events, timing.clock() - began


def _note(known: KnownResults, unit: PrepareUnit, events: Sequence[Any], traits: Traits) -> None:
    trying = ""
    for event in events:
        match event:
            case TryingVariant(name):
                trying = name
            case TriedVariant(name, result):
                known.results[name] = result
            case ContenderFault(reason):
                known.faults[unit.what] = reason
            case WorkerDied() if unit.what in installed.COMPILING:
                known.faults[unit.what] = str(event)
            case WorkerDied() if unit.what == _OWN:
                own = own_variants(unit.task, traits).variants
                culprits = [variant for variant in own if str(variant) == trying]
                known.results.update(
                    (str(one), blank_result(one, unit.task.problem, reason=str(event))) for one in culprits
                )
