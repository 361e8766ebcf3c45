"""The lab's page as a static site, with a bundle for each op, its options, length and type."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webnorm._version import __version__
from webnorm.choice.defaults import chosen_variants
from webnorm.errors import shell_command
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.library import discover
from webnorm.kernels.headers.traits import Traits
from webnorm.kernels.headers.variants import Variant
from webnorm.op.dtypes import STORAGE
from webnorm.op.op import Op, Task
from webnorm.op.problem import Problem
from webnorm.op.registry import OPS, copy_op, options_of
from webnorm.web.folder import LAB_INDEX, Files
from webnorm.web.package.bundle import (
    SCHEMA,
    Bundle,
    Chooser,
    bundle_shaders,
    named_variants,
)
from webnorm.web.package.manifest import LAB_CLASSES
from webnorm.web.package.request import TO_A_FOLDER, Update, no_update
from webnorm.web.pages import json_text, page_files

# The rows of each number of columns that `webnorm bench` takes where none is named, so that results compare.
_GPU_ROWS, _SOFTWARE_ROWS = (
    {cols: rows for rows, cols in copy_op().problem_type.default_sizes(software, quick=False)}
    for software in (False, True)
)
_LAB_COLS = tuple(sorted({*_GPU_ROWS, *_SOFTWARE_ROWS}))
_LAB_DTYPES = tuple(STORAGE)
# What can be chosen in place of an op's own options, in the words of --option. Each takes shaders of its own:
# there is one number of columns for them, of middling length.
_OPTION_COLS = 1024
_FORWARD_OPTIONS = (
    ("residual",),
    ("return_stats",),
    ("zero_centered_weight",),
    ("weight=false", "bias=false"),
)
_BACKWARD_OPTIONS = (("saved_stats=false",), ("dh",), ("weight=false", "bias=false"))
# Elements of a problem: several times the cache of a large GPU, and what SwiftShader does in milliseconds.
LAB_ELEMENTS, LAB_SOFTWARE_ELEMENTS = 1 << 24, 1 << 17


@dataclass(frozen=True)
class LabOffer:
    """What can be chosen on the page: an op, options in the words of --option, columns, a storage type."""

    op: Op
    options: tuple[str, ...]
    cols: int
    dtype: str

    @property
    def name(self) -> str:
        """What its file is called."""
        words = [word.replace("=", "-") for word in self.options]
        return "-".join([self.op.name, str(self.cols), self.dtype, *words])

    @property
    def task(self) -> Task:
        """The op, and a problem of one row."""
        options = options_of(self.op, self.options)
        return Task(self.op, self.op.problem(1, self.cols, dtype=self.dtype, options=options))

    @property
    def rows(self) -> Mapping[str, int]:
        """How many suit a kind of adapter."""
        return {
            "gpu": _suggested(_GPU_ROWS, self.cols),
            "handheld": LAB_ELEMENTS // self.cols,
            "software": _suggested(_SOFTWARE_ROWS, self.cols),
        }

    def __str__(self) -> str:
        return ", ".join([self.op.name, f"{self.cols} columns", self.dtype, *self.options])


def _suggested(known: Mapping[int, int], cols: int) -> int:
    """The rows that are known, else as many elements as the largest of those have."""
    return known.get(cols) or max(rows * own for own, rows in known.items()) // cols


def lab_offers() -> Iterator[LabOffer]:
    """All that there is to choose."""
    for op in OPS.values():
        others = () if op.is_copy else _BACKWARD_OPTIONS if op.gradient else _FORWARD_OPTIONS
        for options in ((), *others):
            columns = [cols for cols in _LAB_COLS if cols == _OPTION_COLS or not options]
            for cols, dtype in itertools.product(columns, _LAB_DTYPES):
                yield LabOffer(op, options, cols, dtype)


def lab_files(roots: tuple[Path, ...] = (), update: Update = no_update) -> Files:
    """The files of the lab: a page, and every kernel for several problems. `update` as in `package`."""
    kernels = discover(roots)
    files = page_files("lab", "index.html")
    entries: list[dict[str, Any]] = []
    # The places of the lines of an op's texts, each once: most of what shaders say others say, too.
    lines: dict[str, dict[str, int]] = {name: {} for name in OPS}
    every = list(lab_offers())
    for done, offer in enumerate(every):
        update(str(offer), done / len(every))
        op, own = offer.op.name, lines[offer.op.name]
        bundle = _lab_bundle(offer, [kernel for kernel in kernels if kernel.op is offer.op], roots)
        read = bundle_as_json(bundle)
        texts = {
            name: [own.setdefault(line, len(own)) for line in text.split("\n")]
            for name, text in read["texts"].items()
        }
        files[f"bundles/{offer.name}.json"] = _compact({**read, "texts": texts})
        entries.append(
            {
                "file": f"{offer.name}.json",
                "lines": f"{op}-lines.json",
                "op": op,
                "options": list(offer.options),
                "cols": offer.cols,
                "dtype": offer.dtype,
                "rows": offer.rows,
                "kernels": sorted({one.shader.variant.kernel.name for one in bundle.carried}),
            }
        )
    files |= {f"bundles/{op}-lines.json": _compact(list(own)) for op, own in lines.items()}
    usual = {"gpu": _GPU_ROWS, "handheld": _GPU_ROWS, "software": _SOFTWARE_ROWS}
    first = {machine: next(iter(rows)) for machine, rows in usual.items()}
    index = {"schema": SCHEMA, "webnorm": __version__, "first_cols": first, "bundles": entries}
    return files | {LAB_INDEX: json_text(index)}


def _compact(data: Any) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()


def bundle_as_json(bundle: Bundle) -> dict[str, Any]:
    """A bundle as the lab's modules take it; its texts keep their comments."""
    texts = {one.name: one.text for one in bundle.carried}
    return {"manifest": {**bundle.manifest(), "vectors": []}, "texts": texts}


def _lab_bundle(offer: LabOffer, kernels: Sequence[Kernel], roots: tuple[Path, ...]) -> Bundle:
    """Every kernel of an op that can run the problem on some class of adapters; of a copy all constants."""
    command = shell_command(["webnorm", "export", "--lab", *TO_A_FOLDER])
    task = offer.task
    if task.op.is_copy:
        return _bundle(task, _copies(task, kernels), roots, command)
    return read_bundle(task, kernels, roots, command)


def _copies(task: Task, kernels: Sequence[Kernel]) -> dict[str, Chooser]:
    """A copy in each of its constants, of which a page takes the fastest as `webnorm bench` does."""
    widest = LAB_CLASSES["portable-1024"]
    variants = [
        variant
        for kernel in kernels
        for variant in chosen_variants(kernel, task.problem, widest, {}, every=True)
    ]
    return {"-".join([one.kernel.name, *map(str, one.constants.values())]): _only(one) for one in variants}


def _only(variant: Variant) -> Chooser:
    """This variant for all classes that can run it."""

    def choose(problem: Problem, traits: Traits) -> tuple[Variant | None, str]:
        refusal = variant.refusal(problem, traits)
        return (variant, "") if refusal is None else (None, refusal)

    return choose


def read_bundle(task: Task, kernels: Sequence[Kernel], roots: tuple[Path, ...], command: str) -> Bundle:
    """A bundle with every kernel that can run a problem on some class of adapters, unstable ones, too."""
    choosers = {kernel.name: named_variants(kernel) for kernel in kernels}
    able = {
        name: choose
        for name, choose in choosers.items()
        if any(choose(task.problem, traits)[0] for traits in LAB_CLASSES.values())
    }
    return _bundle(task, able, roots, command)


def _bundle(task: Task, choosers: Mapping[str, Chooser], roots: tuple[Path, ...], command: str) -> Bundle:
    """What each of these choose, under their names."""
    op, problem = task.op, task.problem
    return Bundle(
        name=f"{op.name}-{problem.cols}-{problem.dtype}",
        task=task,
        cols=(problem.cols,),
        command=command,
        carried=tuple(
            one
            for name, choose in choosers.items()
            for one in bundle_shaders(
                problem, choose, command, prefix=name, classes=LAB_CLASSES, roots=roots
            )[0]
        ),
    )
