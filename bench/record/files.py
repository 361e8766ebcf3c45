"""The files of a record: NAME.json, which later runs extend, and the tables made from it."""

from __future__ import annotations

import os
import platform
from collections.abc import Collection
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.record import lab_page
from bench.record.plot import plot
from bench.record.sections import SECTIONS
from bench.record.side_by_side import CALLS
from bench.record.tables import to_markdown
from bench.record.times import RECORDED, together
from webnorm.errors import WebnormError
from webnorm.files.atomic import write_text
from webnorm.gpu.device import Device
from webnorm.lab.plot.drawing import is_installed
from webnorm.lab.results.result import Report
from webnorm.lab.results.tables import to_csv
from webnorm.ops.norms.problem import NormProblem

# Packages whose versions a record contains, if they are installed.
_ON_CUDA = ("torch", "triton", "liger-kernel", "quack-kernels", "nvidia-cutlass-dsl", "jax")
_ON_THE_CPU = ("numpy", "torch", "onnxruntime")


def measured(report: Report) -> set[tuple[str | None, NormProblem]]:
    """Return a report's sections and problems, except those timed with several calls at once."""
    otherwise = {(one.case, one.problem) for one in report.results if one.timed and one.calls != CALLS}
    return {(one.case, one.problem) for one in report.results} - otherwise


def description(device: Device) -> dict[str, Any]:
    """Return the device, the processor, and the versions of the other libraries."""
    versions = {}
    for package in _ON_THE_CPU if device.traits.software else _ON_CUDA:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        **device.description(),
        "cpu": f"{processor()}, {os.cpu_count()} threads",
        "python": platform.python_version(),
        "packages": versions,
    }


def processor() -> str:
    """Return the processor's name, if the system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"


def merged(old: Report | None, new: Report) -> Report:
    """Merge two reports; new results replace old ones of the same section, op and problem.

    Old results with another timing method are dropped, because a table must not mix both. Raises WebnormError
    if the reports are from different adapters.
    """
    if old is None:
        return new
    mine, theirs = new.device["adapter"], old.device.get("adapter")
    if mine != theirs:
        raise WebnormError(f"the record at --out is of {theirs!r}, not of {mine!r}; use another file")
    staying = measured(old) - measured(new)
    kept = [one for one in old.results if (one.case, one.problem) in staying]
    recorded = together(old, new, replace(old, results=tuple(kept)))
    return replace(new, device={**new.device, RECORDED: recorded}, results=(*kept, *new.results))


def of_this_draw(report: Report, sections: Collection[str], seed: int) -> Report:
    """Drop the problems of these sections whose columns were drawn with another seed.

    Problems that were already seen are not held out any more.
    """
    drawn = {
        name: {task.problem.cols for task in SECTIONS[name].tasks(seed=seed)}
        for name in sections
        if SECTIONS[name].drawn
    }
    kept = (
        one for one in report.results if one.problem.cols in drawn.get(one.case or "", {one.problem.cols})
    )
    return replace(report, results=tuple(kept))


def record_file(out: Path, suffix: str) -> Path:
    """Return NAME with a suffix; a dot in NAME starts no suffix."""
    return out.with_name(out.name + suffix)


def write_tables(out: Path, report: Report) -> None:
    """Write NAME.md, NAME.csv and, if matplotlib is installed, NAME.svg.

    For a published record this also updates the data of the lab's page.
    """
    picture = record_file(out, ".svg")
    try:
        if is_installed():
            plot(report, picture)
    finally:
        write_text(record_file(out, ".md"), to_markdown(report, picture.name if picture.exists() else None))
        write_text(record_file(out, ".csv"), to_csv(report))
        lab_page.renew(out, report)
