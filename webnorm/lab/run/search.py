"""The search for the fastest variant of one problem, in the worker process.

Every sample is divided by a sample of the reference variant taken just before it, so that a slow moment of
the machine affects both. A variant that sets the bar for others is checked against float64 first, because the
fastest variant may be wrong.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from webnorm.errors import WebnormError
from webnorm.gpu import timing
from webnorm.gpu.backend import wgpu
from webnorm.gpu.device import Device
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.variants import Variant
from webnorm.kernels.rendering.render import render_shader
from webnorm.lab.results.ranking import grouped
from webnorm.lab.run import jobs
from webnorm.lab.verify.problem_buffers import ProblemBuffers
from webnorm.lab.verify.timed_work import timing_setup
from webnorm.lab.verify.trial import try_variant, wgpu_refusal

# A kernel's first variant has its header's default constants. If it takes three times as long as another
# kernel, other constants do not make up for that.
SLOW_KERNEL = 3.0
# The first pairs of samples of a variant: a median of three tolerates one slow moment.
FIRST_PAIRS = 3
# Stages: the largest ratio to the leader that stays, the largest number of variants that stay, and the rounds
# they then run. The first ratio is wide, since three pairs may flatter a leader. The finalists of the last
# stage are measured as in a benchmark.
STAGES = ((1.5, 16, 4), (1.1, 8, 8), (1.03, 4, 0))
# The share of the budget for trying variants; the rest is for comparing the good ones.
EXPLORING = 2 / 3


@dataclass(frozen=True)
class SearchProgress:
    """The search's current step as text, and the spent share of its budget."""

    what: str
    share: float = 0.0


@dataclass(frozen=True)
class VariantDropped:
    """The event of a variant that is dropped because it cannot run or is wrong."""

    index: int
    reason: str


@dataclass(frozen=True)
class Finalists:
    """The finalists other than the reference, the fastest first, and the number of tried variants."""

    indices: tuple[int, ...]
    tried: int


Event = jobs.VariantBegan | SearchProgress | VariantDropped | Finalists


class Search:
    """Finds the fastest of the candidates while `spent`, the share of the budget, is below 1.

    The first candidate that runs and is right is the reference. The first candidate of each kernel is a probe
    and is tried before the others, regardless of the budget. Then two choices alternate: the next candidate
    in the given order of expected speed, and the candidate whose constants are closest to the best so far.
    """

    def __init__(
        self, candidates: Sequence[Variant], trials: SearchDevice, spent: Callable[[], float]
    ) -> None:
        self.candidates, self.trials, self.spent = candidates, trials, spent
        self.untried = np.ones(len(candidates), bool)
        # The kernels are in the order of their first candidates.
        kernels = grouped(range(len(candidates)), self.kernel)
        self.neighbourhoods = {
            name: _Neighbourhood(np.array(indices), np.array([_doublings(candidates[i]) for i in indices]))
            for name, indices in kernels.items()
        }
        # The times of the remaining candidates as multiples of the reference's.
        self.ratios: dict[int, list[float]] = {}
        # Each kernel's fastest candidate so far.
        self.best: dict[str, int] = {}
        self.reference: int | None = None
        self.right: set[int] = set()
        self.seen: set[Hashable] = set()
        self.tried = 0
        self.probed = False

    def run(self) -> Iterator[Event]:
        """Yield the events of the search, and the finalists at the end."""
        for kernel in self.neighbourhoods:
            yield from self.probe(kernel)
        self.probed = True
        fastest = min(map(self.ratio, self.ratios), default=0.0)
        kept = {self.kernel(i) for i in self.ratios if self.ratio(i) <= SLOW_KERNEL * fastest}
        for kernel, neighbourhood in self.neighbourhoods.items():
            if kernel not in kept:
                self.untried[neighbourhood.indices] = False
        by_nearness = False
        while self.untried.any() and self.spent() < EXPLORING:
            index = self.nearest() if by_nearness else int(np.argmax(self.untried))
            by_nearness = not by_nearness
            yield from self.attempt(index)
        for bar, most, rounds in STAGES:
            yield from self.prune(bar, most)
            for _ in range(rounds if len(self.ratios) > 1 else 0):
                if self.spent() >= 1:
                    break
                yield self.doing(f"{len(self.ratios)} remaining")
                yield from self.round()
        yield Finalists(tuple(i for i in self.ranking() if i != self.reference), self.tried)

    def kernel(self, index: int) -> str:
        """Return the name of a candidate's kernel."""
        return self.candidates[index].kernel.name

    def ratio(self, index: int) -> float:
        """Return a candidate's time as a multiple of the reference's."""
        return statistics.median(self.ratios[index])

    def ranking(self) -> list[int]:
        """Return the remaining candidates, the fastest first."""
        return sorted(self.ratios, key=self.ratio)

    def probe(self, kernel: str) -> Iterator[Event]:
        """Try a kernel's candidates until one is right."""
        for index in self.neighbourhoods[kernel].indices:
            yield from self.attempt(int(index), check=True)
            if index in self.ratios:
                return

    def attempt(self, index: int, check: bool = False) -> Iterator[Event]:
        """Time a candidate for the first time, unless another one ran the same text."""
        self.untried[index] = False
        yield jobs.VariantBegan(index)
        try:
            fingerprint = self.trials.fingerprint(index)
            if fingerprint in self.seen:
                return
            self.seen.add(fingerprint)
            reason = self.trials.fault(index) if check else None
            if reason is None:
                ratios = [self.pair(index) for _ in range(FIRST_PAIRS)]
        except WebnormError as error:
            reason = str(error)
        if reason is not None:
            self.trials.release(index)
            yield VariantDropped(index, reason)
            return
        self.ratios[index] = ratios
        self.tried += 1
        best = self.best.setdefault(self.kernel(index), index)
        if self.ratio(index) < self.ratio(best):
            self.best[self.kernel(index)] = index
        if check:
            self.right.add(index)
        if self.reference is None:
            self.reference = index
        if index != self.reference:
            self.trials.release(index)
        yield self.doing(f"{self.tried} of {len(self.candidates)} tried")

    def doing(self, what: str) -> SearchProgress:
        """Return the progress, with the best speedup over the reference so far."""
        best = min(map(self.ratio, self.ratios), default=1.0)
        # The first call of `spent` starts the budget, which excludes the probes.
        return SearchProgress(f"{what}, best {1 / best:.2f}x", min(1.0, self.spent()) if self.probed else 0.0)

    def pair(self, index: int) -> float:
        """Return a sample of a candidate divided by one of the reference; 1 for the reference itself."""
        if self.reference is None:
            self.trials.time([index])
            return 1.0
        reference, own = self.trials.time([self.reference, index])
        return own / reference

    def nearest(self) -> int:
        """Return the untried candidate closest to its kernel's best one, from the fastest kernel with any."""
        for best in sorted(self.best.values(), key=self.ratio):
            neighbourhood = self.neighbourhoods[self.kernel(best)]
            if self.untried[neighbourhood.indices].any():
                return neighbourhood.nearest(self.candidates[best], self.untried)
        return int(np.argmax(self.untried))

    def prune(self, bar: float, most: int) -> Iterator[Event]:
        """Drop the candidates that are much slower than the fastest right one."""
        while self.ratios:
            leader = self.ranking()[0]
            if leader in self.right:
                break
            yield jobs.VariantBegan(leader)
            reason = self.trials.fault(leader)
            if reason is None:
                self.right.add(leader)
            else:
                yield VariantDropped(leader, reason)
                self.leave(leader)
        for place, index in enumerate(self.ranking()):
            if index != self.reference and (place >= most or self.ratio(index) > bar * self.ratio(leader)):
                self.leave(index)

    def leave(self, index: int) -> None:
        """Remove a candidate from the search."""
        del self.ratios[index]
        self.trials.release(index)

    def round(self) -> Iterator[Event]:
        """Take one more sample of each remaining candidate in turn."""
        for index in [i for i in self.ratios if i != self.reference]:
            yield jobs.VariantBegan(index)
            try:
                self.ratios[index].append(self.pair(index))
            except WebnormError as error:
                yield VariantDropped(index, str(error))
                self.leave(index)


def distance(one: Variant, other: Variant) -> int:
    """Return the doublings along the tune axes between two variants of a kernel; 0 to 1 counts as one."""
    return int(_distances(_doublings(one), other))


def _distances(places: Any, variant: Variant) -> Any:
    """Return the distances from places, along the last axis, to a variant."""
    return np.abs(places - _doublings(variant)).sum(axis=-1)


def _doublings(variant: Variant) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array([variant.constants[axis].bit_length() for axis in variant.kernel.tune])


@dataclass(frozen=True)
class _Neighbourhood:
    """The candidates of a kernel: their indices, and their places along its axes in doublings."""

    indices: np.ndarray[Any, np.dtype[np.int64]]
    places: np.ndarray[Any, np.dtype[np.int64]]

    def nearest(self, variant: Variant, untried: np.ndarray[Any, np.dtype[np.bool_]]) -> int:
        """Return the index of the untried candidate that is closest to a variant."""
        left = untried[self.indices]
        return int(self.indices[left][np.argmin(_distances(self.places[left], variant))])


# --- The search on a device.


def search_variants(device: Device, job: jobs.TimingJob) -> Iterator[Any]:
    """Search among a job's variants on a device; the first right one is the reference.

    The budget starts after inputs, answers and probes.
    """
    board = jobs.buffers_for_job(device, job)
    files = dict.fromkeys((spec.path, spec.op) for spec in job.variants)
    kernels = {file: load(*file) for file in files}
    candidates = [Variant(kernels[spec.path, spec.op], spec.constants) for spec in job.variants]
    # The time starts with the first call.
    began = cache(timing.clock)

    def spent() -> float:
        return (timing.clock() - began()) / job.rule.budget_s

    yield from Search(candidates, SearchDevice(board, candidates), spent).run()


class SearchDevice:
    """The search's access to a device; candidates are given by index."""

    def __init__(self, board: ProblemBuffers, candidates: Sequence[Variant]) -> None:
        self.board, self.candidates = board, candidates
        setup = timing_setup(board, timing.StoppingRule().settle_s)
        self.stopwatch, self.pace = setup.stopwatch, setup.pace
        self.samplers: dict[int, timing.Sampler] = {}

    def fingerprint(self, index: int) -> Hashable:
        """Return a value that is equal for candidates with the same text and dispatches.

        Raises WebnormError if a candidate cannot be rendered.
        """
        problem, device = self.board.problem, self.board.device
        shader = render_shader(
            self.candidates[index], problem, device.target, device.traits, roots=self.board.roots
        )
        counts = tuple(shader.workgroup_count(each, problem.batch_size) for each in shader.passes)
        records = tuple(
            shader.records(one, problem.batch_size) for one in shader.bindings if one.records is not None
        )
        return shader.text, counts, records

    def time(self, indices: Sequence[int]) -> list[float]:
        """Take one sample of each in nanoseconds per dispatch; raise WebnormError if one cannot run."""
        try:
            for index in indices:
                if index not in self.samplers:
                    plan = self.board.prepare(self.candidates[index])
                    self.pace.ready()
                    self.samplers[index], _ = self.stopwatch.sampler(plan)
                    self.pace.worked()
            self.pace.ready()
            readings = [self.samplers[index]() for index in indices]
            times = [reading() for reading in readings]
            self.pace.worked()
            return times
        except wgpu.GPUError as error:
            raise WebnormError(wgpu_refusal(error)) from error

    def fault(self, index: int) -> str | None:
        """Return the error of a candidate's answer, or None if it is right."""
        result, plan, _ = try_variant(self.board, self.candidates[index])
        return None if plan is not None else result.reason or "it is wrong"

    def release(self, index: int) -> None:
        """Release a candidate's resources on the device until it is timed again."""
        self.samplers.pop(index, None)
