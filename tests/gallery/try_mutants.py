"""Check the mutants of a module of this folder.

`python tests/gallery/try_mutants.py mutants_elements [OP ...]` prints each mutant with the check that found
it.
"""

from __future__ import annotations

import importlib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import webnorm
from webnorm.op.registry import load_op

SEED = 1
OPS = Path(__file__).resolve().parents[2] / "examples" / "ops"


def mutated(op: str, mutant: Any) -> str:
    """Return the text of a mutant. Raises ValueError if its kernel lacks the text to replace."""
    kernel = OPS / op / f"{mutant.kernel}.wgsl"
    text = kernel.read_text(encoding="utf-8")
    if mutant.old not in text:
        raise ValueError(f"{kernel}: mutant {mutant.name!r} replaces {mutant.old!r}, which is not there")
    return text.replace(mutant.old, mutant.new)


def checked(op: str, mutants: Sequence[Any], dtype: str = "float32") -> Iterator[tuple[Any, str, str]]:
    """Check the mutants of an op in a copy of its folder.

    Yield each mutant, its count of failed cases, and the reason of the first failure. None stands for a
    kernel without mistakes.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / op
        folder.mkdir()
        shutil.copy(OPS / op / "op.py", folder)
        by_kernel: dict[str, Any] = {}
        for kernel in dict.fromkeys(one.kernel for one in mutants):
            # The kernels themselves must pass. If a mutant fails because of its kernel's faults, this proves
            # nothing.
            by_kernel[kernel] = None
            shutil.copy(OPS / op / f"{kernel}.wgsl", folder)
        for index, mutant in enumerate(mutants):
            by_kernel[f"mutant_{index}"] = mutant
            (folder / f"mutant_{index}.wgsl").write_text(mutated(op, mutant), encoding="utf-8")
        load_op(folder)
        results = webnorm.check([*by_kernel], op=op, dtype=dtype, seed=SEED).results
        for kernel, mutant in by_kernel.items():
            found = [one for one in results if one.kernel == kernel]
            dead = [one for one in found if one.status in ("fail", "error")]
            yield mutant, f"{len(dead)} of {len(found)}", (dead[0].reason or "no reason") if dead else ""


def main(module: str, *ops: str) -> int:
    """Print each mutant and the check that found it. Return the number of survivors and failing kernels."""
    wrong = 0
    for op, mutants in importlib.import_module(module).MUTANTS.items():
        if ops and op not in ops:
            continue
        for mutant, count, reason in checked(op, mutants):
            dead = bool(reason)
            wrong += dead == (mutant is None)
            name = "a kernel itself" if mutant is None else f"{mutant.kernel}: {mutant.name}"
            print(f"{'dead ' if dead else 'ALIVE'} {op}/{name} ({count}) {reason}", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(min(main(*sys.argv[1:]), 1))
