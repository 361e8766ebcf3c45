"""Prepare problems on all cores before they are timed: compile kernels, and check variants against float64.

A pool of processes prepares some problems ahead. The compiled code goes into disk caches, which the measuring
process reads: the driver's, inductor's, Triton's, QuACK's and JAX's. Meanwhile only compilers time kernels,
to tune them, and they take turns.
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

# A compiler that tries dozens of launches on a busy core may send no message for so long.
_SILENCE_S = 300.0
# Variants of a search that are compiled ahead; a search tries fewer.
_SEARCHED = 120
_OWN, _SEARCH = "own", "search"
# Compilers that tune by timing take this lock for each measurement.
_TURN = "card.lock"


def share_caches(folder: Path) -> None:
    """Set the compilers' cache folders for this process and its children.

    Call it before a contender's library is imported or a driver is loaded. Variables that the user has set
    are kept.
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
        # One process per core already compiles.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        # JAX also stores code that compiled fast.
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        # Otherwise the driver deletes old entries of a large cache.
        "__GL_SHADER_DISK_CACHE_SKIP_CLEANUP": "1",
    }
    for name, value in others.items():
        os.environ.setdefault(name, value)


# --- in the processes


@dataclass(frozen=True)
class PrepareUnit:
    """A unit of preparation.

    `what` is webnorm's variants of a task, the variants of a search, or the name of a contender. `turn` is
    the file of the timing lock.
    """

    task: Task
    what: str
    turn: Path


@dataclass(frozen=True)
class TryingVariant:
    """The variant that is being tried; it caused any error that follows."""

    name: str


@dataclass(frozen=True)
class TriedVariant:
    """The result of a variant on the block of a task."""

    name: str
    result: Result


@dataclass(frozen=True)
class ContenderFault:
    """The reason why the measuring process must not try a contender."""

    reason: str


def prepare(device: Device, unit: PrepareUnit) -> Iterator[TryingVariant | TriedVariant | ContenderFault]:
    """Prepare a unit; runs in a worker."""
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
            # The library raises the same error when it is measured. Only a broken process counts here.
            if installed.broken(unit.what):
                yield ContenderFault(f"it broke the process that ran it: {said(error)}")
        finally:
            installed.release()


def take_turns(lock: FileLock) -> None:
    """Make inductor take a lock whenever it times a kernel: concurrent work would make its choice random."""
    try:
        from torch._inductor.runtime import benchmarking
    except ImportError:
        return
    if hasattr(benchmarking, "set_gpu_benchmark_lock_context"):
        benchmarking.set_gpu_benchmark_lock_context(lambda: lock)
        return
    # torch 2.11 does not have that function.
    own: Any = benchmarking.benchmarker
    if "benchmark" not in vars(own):
        unlocked = own.benchmark

        def benchmark(*args: Any, **kwargs: Any) -> Any:
            with lock:
                return unlocked(*args, **kwargs)

        own.benchmark = benchmark


def _try_variants(device: Device, task: Task) -> Iterator[TryingVariant | TriedVariant]:
    """Check variants against float64 on the block of a task, and compile them for the whole task."""
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
    """Compile a variant for this number of sets, unless its text is already compiled."""
    problem = as_copy_problem(task.problem) if variant.kernel.op.is_copy else task.problem
    shader = render_shader(variant, problem, device.target, device.traits)
    if shader.text != known:
        compile_shader(device, shader, 1 if sets > 1 else 0)


# --- in the parent


@dataclass
class PreparedProblems:
    """The results of the processes by problem, and their time by activity."""

    known: dict[NormProblem, KnownResults] = field(default_factory=dict)
    seconds: Laps = field(default_factory=Laps)


class PreparePool:
    """A pool of worker processes with open devices; each unit goes to a free one."""

    def __init__(self, adapter: str, processes: int, folder: Path) -> None:
        self._turn = folder / _TURN
        self._workers = [Worker(adapter, _SILENCE_S) for _ in range(processes)]
        self._free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in self._workers:
            self._free.put(worker)

    def __enter__(self) -> PreparePool:
        return self

    def __exit__(self, *_: object) -> None:
        # All are killed first, because each may take long to free its memory on the card.
        self._kill()
        for worker in self._workers:
            worker.stop()

    def _kill(self) -> None:
        for worker in self._workers:
            worker.kill()

    def prepare(self, tasks: Sequence[Task], searched: Collection[Task], traits: Traits) -> PreparedProblems:
        """Prepare problems; `searched` are those with a search."""
        kinds = [*installed.COMPILING, _OWN]
        # The slowest units start first.
        units = [PrepareUnit(task, what, self._turn) for what in kinds for task in tasks]
        units += [PrepareUnit(task, _SEARCH, self._turn) for task in searched]
        found = PreparedProblems()
        threads = ThreadPoolExecutor(len(self._workers))
        try:
            done = threads.map(self._run, units)
            # This process needs the contenders' libraries, too.
            installed.start()
            for unit, events, spent in done:
                found.seconds.add(unit.what, spent)
                known = found.known.setdefault(unit.task.problem, KnownResults())
                _note(known, unit, events, traits)
        except BaseException:
            # An interrupt does not wait for compilers.
            threads.shutdown(wait=False, cancel_futures=True)
            self._kill()
            raise
        finally:
            threads.shutdown()
        return found

    def _run(self, unit: PrepareUnit) -> tuple[PrepareUnit, list[Any], float]:
        """Run a unit in a free worker; return its events, with the exception that ended it, and its time."""
        worker, began = self._free.get(), timing.clock()
        events: list[Any] = []
        try:
            for event in worker.stream(prepare, unit):
                events.append(event)
        except (WorkerDied, TaskFailed, WebnormError) as failure:
            events.append(failure)
        if any(isinstance(event, ContenderFault) for event in events):
            # The worker has lost its context on the card.
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
