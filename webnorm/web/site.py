"""The lab's page as a static site, with a package for each op, length and type."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from webnorm._version import __version__
from webnorm.kernels.kernel import Kernel
from webnorm.kernels.library import discover
from webnorm.norms.ops import OPS, Op, Task
from webnorm.web.bundle import LAB_CLASSES, SCHEMA, Bundle, carry, named, opening_comment
from webnorm.web.folder import LAB_INDEX, Files
from webnorm.web.pages import as_json, page_files
from webnorm.web.request import TO_A_FOLDER, Update, silent

# What the lab's page offers: short, middling and long rows, wide and narrow elements.
_LAB_COLS = (256, 1024, 4096)
_LAB_DTYPES = ("float32", "float16")
# Elements of a problem: several times the cache of a large GPU, and what SwiftShader does in milliseconds.
LAB_ELEMENTS, LAB_SOFTWARE_ELEMENTS = 1 << 24, 1 << 17


def lab(roots: tuple[Path, ...] = (), update: Update = silent) -> Files:
    """The files of the lab: a page, and every kernel for several problems. `update` as in `package`."""
    kernels = discover(roots)
    files = page_files("lab", "index.html")
    entries: list[dict[str, Any]] = []
    problems = list(itertools.product(OPS.values(), _LAB_COLS, _LAB_DTYPES))
    for op, cols, dtype in problems:
        update(f"{op.name}, {cols} columns, {dtype}", len(entries) / len(problems))
        bundle = _lab_bundle(op, cols, dtype, [kernel for kernel in kernels if kernel.op == op], roots)
        file = f"{bundle.name}.json"
        files[f"bundles/{file}"] = json.dumps(as_read(bundle)).encode()
        entries.append(
            {
                "file": file,
                "op": op.name,
                "cols": cols,
                "dtype": dtype,
                "rows": LAB_ELEMENTS // cols,
                "software_rows": LAB_SOFTWARE_ELEMENTS // cols,
            }
        )
    index = {"schema": SCHEMA, "webnorm": __version__, "bundles": entries}
    return files | {LAB_INDEX: as_json(index)}


def as_read(bundle: Bundle) -> dict[str, Any]:
    """A bundle as the lab's modules take it; its texts keep their comments."""
    texts = {one.name: one.text for one in bundle.carried}
    return {"manifest": {**bundle.manifest(), "vectors": []}, "texts": texts}


def _lab_bundle(op: Op, cols: int, dtype: str, kernels: Sequence[Kernel], roots: tuple[Path, ...]) -> Bundle:
    """Every kernel of an op that can run the lab's problem on some class of adapters."""
    command = shlex.join(["webnorm", "export", "--lab", *TO_A_FOLDER])
    problem = op.problem(1, cols, dtype, options=replace(op.defaults, saved_stats=False))
    return read_bundle(Task(op, problem), kernels, roots, command)


def read_bundle(task: Task, kernels: Sequence[Kernel], roots: tuple[Path, ...], command: str) -> Bundle:
    """A bundle with every kernel that can run a problem on some class of adapters, unstable ones, too."""
    op, problem = task.op, task.problem
    able = [k for k in kernels if any(named(k)(problem, traits)[0] for traits in LAB_CLASSES.values())]
    return Bundle(
        name=f"{op.name}-{problem.cols}-{problem.dtype}",
        task=task,
        cols=(problem.cols,),
        command=command,
        carried=tuple(
            one
            for kernel in able
            for one in carry(
                problem,
                named(kernel),
                opening_comment(command),
                prefix=kernel.name,
                classes=LAB_CLASSES,
                roots=roots,
            )
        ),
    )
