"""Time a contender: as a CUDA graph between two events, as one JAX program, or by the wall clock."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from bench.contenders import Compute
from webnorm.gpu import stopwatch, timing


class Sampler(Protocol):
    """A contender that is ready to be timed."""

    method: timing.Method
    runs: int

    def outputs(self) -> Mapping[str, Any]:
        """Compute the first set again, and return its outputs in the library's own type."""

    def sample(self) -> float:
        """Return nanoseconds per run, over `runs` runs in a row that use the sets in turn."""


class CudaGraph:
    """A CUDA graph that computes all sets of buffers in a row, without Python or launches in between.

    Every set has its own outputs, as in webnorm, because memory that is reused at once would stay in the
    cache. The first calls of a contender (compilation, tuning) happen before the capture.
    """

    method: timing.Method = "timestamp"

    def __init__(self, compute: Compute, sets: Sequence[Mapping[str, Any]]) -> None:
        import torch

        self._cuda: Any = torch.cuda
        stream = self._cuda.Stream()
        stream.wait_stream(self._cuda.current_stream())
        with self._cuda.stream(stream):
            for _ in range(stopwatch.WARM_UP_RUNS):
                compute(sets[0])
        stream.synchronize()
        self._graph = self._cuda.CUDAGraph()
        # JAX's threads make calls during the capture, which forbids them in all threads by default. Then both
        # libraries fail, and JAX also fails in all later calls.
        with self._cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
            self._outputs = [compute(one) for one in sets]
        self._sets, self._replays = len(sets), 1
        once = min(self._time() for _ in range(stopwatch.WARM_UP_RUNS))
        self._replays = math.ceil(stopwatch.SAMPLE_NS[self.method] / max(once, 1.0))
        self.runs = self._replays * self._sets

    def outputs(self) -> Mapping[str, Any]:
        """Replay the graph, and return the outputs of the first set."""
        self._graph.replay()
        self._cuda.synchronize()
        return self._outputs[0]

    def sample(self) -> float:
        """Return nanoseconds per run."""
        return self._time() / self.runs

    def _time(self) -> float:
        begin, end = (self._cuda.Event(enable_timing=True) for _ in range(2))
        # The first replay is not timed. The others are queued while it runs.
        self._graph.replay()
        begin.record()
        for _ in range(self._replays):
            self._graph.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e6


class JaxProgram:
    """A program that computes all sets of buffers many times (see jax_ops), timed by the wall clock.

    A sample is the time that two programs in a row take longer than one. Both times include the start of a
    program and the wait for its end. JAX queues the second program while the first one runs.
    """

    method: timing.Method = "wall clock"

    def __init__(self, compute: Compute, sets: Sequence[Mapping[str, Any]], size: int) -> None:
        import jax

        from bench.contenders import jax_ops

        self._jax, self._sets = jax, list(sets)
        count = jax_ops.trips(len(sets), size)
        self.runs = count * len(sets)
        self._program = jax_ops.program(compute, count)
        shapes = jax_ops.outputs_of(compute, self._sets)
        self._outputs = jax.tree.map(lambda one: jax.numpy.zeros(one.shape, one.dtype), shapes)
        for _ in range(stopwatch.WARM_UP_RUNS):
            self._time(1)

    def outputs(self) -> Mapping[str, Any]:
        """Compute the first set again, and return its outputs."""
        self._time(1)
        found: Mapping[str, Any] = self._outputs[0]
        return found

    def sample(self) -> float:
        """Return nanoseconds per run."""
        one = self._time(1)
        return (self._time(2) - one) / self.runs

    def _time(self, programs: int) -> float:
        self._jax.block_until_ready(self._outputs)
        began = time.perf_counter_ns()
        for _ in range(programs):
            self._outputs = self._program(self._sets, self._outputs)
        self._jax.block_until_ready(self._outputs)
        return float(time.perf_counter_ns() - began)


class WallClock:
    """Calls in a row on the CPU, which finish before they return."""

    method: timing.Method = "wall clock"

    def __init__(self, compute: Compute, sets: Sequence[Mapping[str, Any]]) -> None:
        self._compute, self._sets = compute, sets
        self.runs = len(sets)
        once = min(self.sample() for _ in range(stopwatch.WARM_UP_RUNS))
        self.runs = max(len(sets), math.ceil(stopwatch.SAMPLE_NS[self.method] / max(once, 1.0)))

    def outputs(self) -> Mapping[str, Any]:
        """Compute the first set, and return its outputs."""
        return self._compute(self._sets[0])

    def sample(self) -> float:
        """Return nanoseconds per run."""
        began = time.perf_counter_ns()
        for index in range(self.runs):
            self._compute(self._sets[index % len(self._sets)])
        return (time.perf_counter_ns() - began) / self.runs
