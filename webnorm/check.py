"""The check: every kernel against every case of the corpus, or against a user's own array."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from webnorm import lab
from webnorm.auto import choose
from webnorm.corpus import CASES, Case, Changes, problems
from webnorm.device import Traits
from webnorm.errors import unknown
from webnorm.kernel import Kernel, Variant, chosen_variants
from webnorm.npy import read_rows
from webnorm.ops import OPS, Op
from webnorm.problem import STORAGE, Options, Problem
from webnorm.results import Result
from webnorm.tuning import Tuning
from webnorm.worker import Worker, WorkerDied

NORMS = tuple(name for name, op in OPS.items() if not op.exact)


def dtypes_named(text: str) -> tuple[str, ...]:
    """The storage types of a list like "float32,float16", or "all"."""
    if text == "all":
        return STORAGE
    found = tuple(text.split(","))
    for name in found:
        if name not in STORAGE:
            raise unknown("dtype", name, {*STORAGE, "all"})
    return found


@dataclass(frozen=True)
class Request:
    """What to check. `every` takes all admitted constants of every kernel; `changes` replace the cases'.

    What auto chooses from `ladder` and `tunings` is checked too; an empty ladder leaves it out.
    """

    kernels: tuple[Kernel, ...]
    cases: tuple[Case, ...] = CASES
    dtypes: tuple[str, ...] = ("float32",)
    changes: Changes = field(default_factory=Changes)
    roots: tuple[Path, ...] = ()
    chosen: Mapping[str, Sequence[int]] | None = None
    every: bool = False
    ladder: tuple[Kernel, ...] = ()
    tunings: tuple[Tuning, ...] = ()

    @property
    def ops(self) -> list[Op]:
        """The ops that have kernels here."""
        return list({kernel.op.name: kernel.op for kernel in (*self.kernels, *self.ladder)}.values())

    @cached_property
    def tasks(self) -> list[tuple[Case, Problem, Op]]:
        """Each case as a problem of an op."""
        return [
            (case, problem, op)
            for op in self.ops
            for case, problem in problems(self.cases, op, self.dtypes, self.changes)
        ]

    def count(self) -> int:
        """How many results there will be, where every kernel has one variant."""
        return sum(
            sum(kernel.op is op for kernel in self.kernels) + bool(self.ladder) for _, _, op in self.tasks
        )

    def variants(self, op: Op, problem: Problem, traits: Traits) -> list[Variant]:
        """What a task is checked with."""
        found = [
            variant
            for kernel in self.kernels
            if kernel.op is op
            for variant in chosen_variants(kernel, problem, traits, self.chosen or {}, self.every)
        ]
        if self.ladder:
            chosen = choose(self.ladder, op, problem, traits, self.tunings).variant
            found += [chosen] if chosen not in found else []
        return found

    def refuse_options(self) -> None:
        """Raise WebnormError for options that the kernels' ops lack, where these are why there is no task."""
        for op in self.ops:
            op.check(Problem(rows=1, cols=1, options=op.defaults.changed(self.changes.options or ())))


def own_case(path: Path) -> Case:
    """A case of the user's own: an array (..., cols) in an .npy file, without weight and bias.

    Raises WebnormError for a file that holds no such array (see read_rows).
    """
    x, dtype = read_rows(path)
    return Case(
        name=path.name,
        source=str(path),
        shape=(x.shape[0], x.shape[1]),
        x=lambda rng: x,
        options=Options(weight=False, bias=False),
        given=dtype,
    )


def run(request: Request, worker: Worker, traits: Traits) -> Iterator[Result]:
    """Yield a result for each kernel, constants and case."""
    for case, problem, op in request.tasks:
        arrays = case.draw(op, problem)
        variants = request.variants(op, problem, traits)
        next_index = 0
        while next_index < len(variants):
            left = variants[next_index:]
            specs = tuple(lab.VariantSpec.of(variant) for variant in left)
            job = lab.CheckJob(case.name, problem, arrays, specs, request.roots)
            first, at = next_index, next_index
            try:
                for event in worker.stream(lab.check_variants, job):
                    match event:
                        case lab.Began(index):
                            at = first + index
                        case lab.Found(index, result):
                            next_index = first + index + 1
                            yield judged(result, left[index].kernel, case)
            except WorkerDied as death:
                blank = lab.blank_result(variants[at], problem, case.name)
                yield replace(blank, reason=str(death))
                next_index = at + 1


def judged(result: Result, kernel: Kernel, case: Case) -> Result:
    """The result, marked as expected or turned into a failure where the kernel is declared unstable.

    An unstable kernel has to fail where the corpus says its formula must: if it passes, the check has gone
    blind. It may fail where a stable kernel must not.
    """
    if kernel.unstable is None:
        return result
    if result.status == "fail":
        return replace(result, expected=True)
    if result.status == "pass" and must_fail(kernel, case, result.problem):
        reason = f"passed a case that its formula cannot: {kernel.unstable}"
        return replace(result, status="fail", reason=reason)
    return result


def must_fail(kernel: Kernel, case: Case, problem: Problem) -> bool:
    """Whether a kernel of the one-pass formula cannot be right here.

    x of a narrower type is rounded so coarsely that its variance may be large where float32's is small.
    """
    return kernel.name == "one_pass" and case.breaks_one_pass and problem.dtype == "float32"
