"""The check: every kernel against every case of the corpus, or against a user's own array."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from webnorm import lab
from webnorm.corpus import CASES, Case
from webnorm.device import Traits
from webnorm.errors import WebnormError
from webnorm.kernel import Kernel, chosen_variants
from webnorm.problem import DTYPES, Array, Options, Problem
from webnorm.results import Result
from webnorm.worker import Worker, WorkerDied


@dataclass(frozen=True)
class Request:
    """What to check. `every` takes all admitted constants of every kernel."""

    kernels: tuple[Kernel, ...]
    cases: tuple[Case, ...] = CASES
    roots: tuple[Path, ...] = ()
    chosen: Mapping[str, Sequence[int]] | None = None
    every: bool = False


def own_case(path: Path, eps: float) -> Case:
    """A case of the user's own: an array (..., cols) in an .npy file, without weight and bias.

    Raises WebnormError for a file that cannot be read, another dtype than float32, or no dimension.
    """
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is no .npy file"
        raise WebnormError(f"{path}: cannot read the array: {reason}") from error
    if not isinstance(array, np.ndarray) or array.ndim < 1 or array.shape[-1] < 1:
        raise WebnormError(f"{path}: expected an array of one or more dimensions and one column or more")
    if array.dtype not in DTYPES.values():
        raise WebnormError(f"{path}: dtype is {array.dtype}; expected {', '.join(DTYPES)}")
    x = np.ascontiguousarray(array.reshape(-1, array.shape[-1]))
    problem = Problem(
        rows=x.shape[0],
        cols=x.shape[1],
        eps=eps,
        distribution="given",
        options=Options(weight=False, bias=False),
    )

    def draw() -> dict[str, Array]:
        return {"x": x}

    return Case(name=path.name, source=str(path), problem=problem, draw=draw)


def run(request: Request, worker: Worker, traits: Traits) -> Iterator[Result]:
    """Yield a result for each kernel, constants and case."""
    for case in request.cases:
        arrays = case.draw()
        variants = [
            variant
            for kernel in request.kernels
            for variant in chosen_variants(kernel, case.problem, traits, request.chosen or {}, request.every)
        ]
        next_index = 0
        while next_index < len(variants):
            left = variants[next_index:]
            specs = tuple(lab.VariantSpec.of(variant) for variant in left)
            job = lab.CheckJob(case.name, case.problem, arrays, specs, request.roots)
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
                blank = lab.blank_result(variants[at], case.problem, case.name)
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
    if result.status == "pass" and case.breaks_one_pass and kernel.name == "one_pass":
        reason = f"passed a case that its formula cannot: {kernel.unstable}"
        return replace(result, status="fail", reason=reason)
    return result
