"""Coverage of the native tests: pairs of kernels with problems, and of constants with options.

    WEBNORM_TALLY=/tmp/tally make test
    .venv/bin/python tests/tally.py /tmp/tally

Each process appends a line for each computation. The counts are numbers of different pairs.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from webnorm.kernels.rendering.render import Shader


def count(shader: Shader) -> None:
    """Record a computation, if WEBNORM_TALLY names a file."""
    place = os.environ.get("WEBNORM_TALLY")
    if place is None:
        return
    variant, problem = shader.variant, shader.problem
    met = {"dtype": problem.dtype, **asdict(problem.options), "cols": problem.cols}
    line = json.dumps({"kernel": variant.kernel.label, "constants": dict(variant.constants), "met": met})
    with Path(place).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def counts(path: Path) -> dict[str, int]:
    """Return the number of distinct pairs in the lines of a file."""
    pairs: dict[str, set[object]] = {}

    def add(kind: str, *pair: object) -> None:
        pairs.setdefault(kind, set()).add(pair)

    for line in path.read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        kernel, constants, met = one["kernel"], one["constants"], one["met"]
        cols = met.pop("cols")
        dtype = met.pop("dtype")
        add("computations of different texts", line)
        add("(kernel, dtype)", kernel, dtype)
        add("(kernel, columns)", kernel, cols)
        for name, value in met.items():
            add("(kernel, option)", kernel, name, value)
            add("(option, dtype)", name, value, dtype)
            add("(option, columns)", name, value, cols)
        for one_axis, other in itertools.combinations(constants.items(), 2):
            add("(constant, constant) of a kernel", kernel, one_axis, other)
        for axis in constants.items():
            add("(constant, dtype) of a kernel", kernel, axis, dtype)
    return {kind: len(found) for kind, found in pairs.items()}


if __name__ == "__main__":
    for kind, number in counts(Path(sys.argv[1])).items():
        print(f"{number:6} {kind}")
