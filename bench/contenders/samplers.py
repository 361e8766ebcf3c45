"""Times of a contender: as a CUDA graph between two events, as one program of JAX's, or by the wall clock."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from bench.contenders import Compute
from webnorm.gpu import stopwatch, timing


class Sampler(Protocol):
    """A contender ready to be timed: what it computed of the first set, and nanoseconds per run."""

    method: timing.Method
    runs: int

    def outputs(self) -> Mapping[str, Any]:
        """The outputs of the first set of buffers, computed again, of the library's own type."""

    def sample(self) -> float:
        """Nanoseconds per run, over `runs` runs in a row that take the sets in turn."""


class CudaGraph:
    """All sets of buffers computed in a row, captured as one graph: no Python and no launches in between.

    Every set keeps its own outputs, as webnorm's do: memory that were used again at once would stay in the
    cache. What a contender computes on the first calls (compilation, tuning) happens before the capture.
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
        # JAX's threads make calls meanwhile that a capture forbids to all threads unless told otherwise; both
        # libraries fail then, and JAX in everything that follows.
        with self._cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
            self._outputs = [compute(one) for one in sets]
        self._sets, self._replays = len(sets), 1
        once = min(self._time() for _ in range(stopwatch.WARM_UP_RUNS))
        self._replays = math.ceil(stopwatch.SAMPLE_NS[self.method] / max(once, 1.0))
        self.runs = self._replays * self._sets

    def outputs(self) -> Mapping[str, Any]:
        """The outputs of the first set, after another replay."""
        self._graph.replay()
        self._cuda.synchronize()
        return self._outputs[0]

    def sample(self) -> float:
        """Nanoseconds per run."""
        return self._time() / self.runs

    def _time(self) -> float:
        begin, end = (self._cuda.Event(enable_timing=True) for _ in range(2))
        # The first replay is not timed: while it runs, the others are queued up behind it.
        self._graph.replay()
        begin.record()
        for _ in range(self._replays):
            self._graph.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e6


class JaxProgram:
    """All sets of buffers computed many times by one program (see jax_ops), by the wall clock: what two of
    them in a row take longer than one. What it takes to start a program and to wait for it is in both, and
    the second is queued up while the first one runs.
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
        """The outputs of the first set, computed again."""
        self._time(1)
        found: Mapping[str, Any] = self._outputs[0]
        return found

    def sample(self) -> float:
        """Nanoseconds per run."""
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
    """Calls in a row on the CPU, which are done when they return."""

    method: timing.Method = "wall clock"

    def __init__(self, compute: Compute, sets: Sequence[Mapping[str, Any]]) -> None:
        self._compute, self._sets = compute, sets
        self.runs = len(sets)
        once = min(self.sample() for _ in range(stopwatch.WARM_UP_RUNS))
        self.runs = max(len(sets), math.ceil(stopwatch.SAMPLE_NS[self.method] / max(once, 1.0)))

    def outputs(self) -> Mapping[str, Any]:
        """The outputs of the first set."""
        return self._compute(self._sets[0])

    def sample(self) -> float:
        """Nanoseconds per run."""
        began = time.perf_counter_ns()
        for index in range(self.runs):
            self._compute(self._sets[index % len(self._sets)])
        return (time.perf_counter_ns() - began) / self.runs
