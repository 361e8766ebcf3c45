"""Mutants of a packaged op's kernels. Each changes one text of a file, and a case must fail."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

from testbed import run
from webnorm.choice.defaults import default_variant
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.op.corpus import Case, whole_corpus
from webnorm.op.op import Task
from webnorm.op.registry import OPS


class KernelMutant(NamedTuple):
    """A change of `old` to `new` in a file of wgsl/, and the kernels that the test tries until one fails."""

    name: str
    file: str
    old: str
    new: str
    kernels: tuple[str, ...]


def cases_of_op(op: str, patterns: Sequence[str], seed: int = 1) -> list[Case]:
    """Return the cases of an op's corpus whose names match, in the order of the patterns.

    A pattern without a match raises ValueError.
    """
    corpus = whole_corpus(seed, [op])
    found = []
    for pattern in patterns:
        matching = [case for case in corpus if fnmatch(case.name, f"{op}-{pattern}")]
        if not matching:
            raise ValueError(f"no case of {op} is called {pattern!r}")
        found += matching
    return found


def failure(
    device: Device, kernel: Kernel, cases: Sequence[Case], dtypes: Sequence[str] = ("float32",)
) -> str | None:
    """Return the first case that a kernel fails, with the reason; None if it passes all that fit it."""
    ran = 0
    for case in cases:
        for dtype in dtypes:
            problem: Any = case.problem(kernel.op, dtype)
            variant = default_variant(kernel, problem, device.traits)
            if variant.refusal(problem, device.traits) is not None:
                continue
            ran += 1
            try:
                _, accuracy = run(device, variant, problem, case.draw(Task(kernel.op, problem)))
            except WebnormError as error:
                return f"{case.name}: {error}"
            if not accuracy.ok:
                return f"{case.name} {dtype}: {accuracy.reason}"
    assert ran, f"no case fits {kernel.label}"
    return None


def survivors(
    op: str, mutants: Sequence[KernelMutant], cases: Sequence[Case], device: Device, folder: Path
) -> Iterator[str]:
    """Yield the names of the mutants that pass every case, in a copy of the library's files."""
    tree = folder / "wgsl"
    shutil.copytree(wgsl_root(), tree)
    for mutant in mutants:
        path = tree / mutant.file
        text = path.read_text(encoding="utf-8")
        if mutant.old not in text:
            raise ValueError(
                f"{mutant.file}: mutant {mutant.name!r} replaces {mutant.old!r}, which is not there"
            )
        path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        kernels = [load(tree / op / f"{name}.wgsl", op) for name in mutant.kernels]
        if not any(failure(device, kernel, cases) for kernel in kernels):
            yield mutant.name
        path.write_text(text, encoding="utf-8")


def difference_quotient(op: str, arrays: dict[str, Any], along: Any, problem: Any, step: float = 1e-5) -> Any:
    """Return the change of an op's first output in float64 when x moves along a direction, per step."""
    kind = OPS[op]
    name = kind.outputs(problem)[0].name
    ends = [
        kind.reference({**arrays, "x": arrays["x"] + sign * step * along}, problem)[name].value
        for sign in (1.0, -1.0)
    ]
    return (ends[0] - ends[1]) / (2.0 * step)
