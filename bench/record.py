"""Record webnorm beside other libraries on one machine: copies, kernels and contenders, taken in turn.

    python -m bench.record --out bench/results/NAME [--section forward backward ...] [--cols 1024 ...]

writes NAME.json (readable by `webnorm compare`), NAME.md, NAME.csv and, where matplotlib is installed,
NAME.svg. On a GPU it takes the sections of bench/sections.py beside torch, torch.compile, Triton and Liger,
where they are installed; on a software adapter (--cpu asks for one) the section cpu beside NumPy, torch and
ONNX Runtime. What NAME.json already holds stays, but for the problems that are measured again. It is written
after every problem, the others at the end; --missing goes on with a NAME.json that is not whole, and --tables
writes the tables anew and measures nothing.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.arguments import command, positive, run
from bench.contenders import Contender, found_wrong
from bench.contenders.installed import Library, libraries
from bench.contenders.samplers import Sampler
from bench.record_plot import plot
from bench.record_tables import RECORDED, Summary, to_markdown
from bench.repeated import RepeatedRows
from bench.sections import SECTIONS, X_BYTES, Section
from webnorm.choice.auto import Chosen, choose
from webnorm.choice.defaults import best_variant, default_variant
from webnorm.errors import WebnormError
from webnorm.files import check_writable, write_text
from webnorm.gpu import timing
from webnorm.gpu.buffers import check_memory
from webnorm.gpu.device import AdapterInfo, Device, adapters, find_adapter, open_device
from webnorm.kernels.library import discover
from webnorm.kernels.traits import Traits
from webnorm.kernels.variants import Variant
from webnorm.lab import bench, jobs
from webnorm.lab.result_files import read, to_json
from webnorm.lab.results import Calls, Report, Result, origin_of
from webnorm.lab.tables import to_csv
from webnorm.lab.trial import with_samples
from webnorm.norms.ops import OPS, Task, plain
from webnorm.norms.problem import STORAGE, Problem
from webnorm.norms.reference import Answers

# How a record times: one caller's calls.
CALLS: Calls = "one by one"
# Axes that auto takes from the adapter's features.
_FIXED = ("subgroups",)
# What a record tells the versions of, where it is installed.
_ON_CUDA = ("torch", "triton", "liger-kernel")
_ON_THE_CPU = ("numpy", "torch", "onnxruntime")


# --- webnorm's side


def neighbours(variant: Variant, task: Task, traits: Traits) -> list[Variant]:
    """The variant, and the next to it on both sides of each axis, of those that can run."""
    problem = plain(task.problem) if variant.kernel.op.exact else task.problem
    found = [variant]
    for axis, values in variant.kernel.tune.items():
        if axis in _FIXED:
            continue
        own = variant.constants[axis]
        below = sorted((value for value in values if value < own), reverse=True)
        above = sorted(value for value in values if value > own)
        for side in (below, above):
            others = (Variant(variant.kernel, {**variant.constants, axis: value}) for value in side)
            fitting = (other for other in others if other.refusal(problem, traits) is None)
            found += itertools.islice(fitting, 1)
    return found


def variants(task: Task, traits: Traits) -> tuple[Chosen, list[Variant]]:
    """What webnorm chooses; and the copy and that choice, each with its neighbours, and the second choice.

    Raises WebnormError where no kernel can run the problem.
    """
    kernels = discover()
    ladder = [kernel for kernel in kernels if kernel.op is task.op]
    auto = choose(ladder, task, traits)
    second, _ = best_variant([one for one in ladder if one is not auto.variant.kernel], task.problem, traits)
    (copy,) = (kernel for kernel in kernels if kernel.op.exact)
    copies = neighbours(default_variant(copy, plain(task.problem), traits), task, traits)
    return auto, copies + neighbours(auto.variant, task, traits) + ([second] if second else [])


# --- the others


@dataclass
class Rival:
    """A contender's result so far, the bytes it has to move and, where it is right, how it is timed."""

    result: Result
    bytes: int
    sampler: Sampler | None = None
    samples: list[float] = field(default_factory=list)

    def measured(self, cold: bool) -> Result:
        """The result with its times, where there are any."""
        if self.sampler is None:
            return self.result
        return replace(
            with_samples(self.result, self.samples, self.bytes),
            dispatches_per_sample=self.sampler.runs,
            timing_method=self.sampler.method,
            cache="cold" if cold else "warm",
            calls=CALLS,
            flags=timing.flags(self.samples),
        )


def enter(contender: Contender, library: Library, task: Task, answers: Mapping[str, Answers]) -> Rival:
    """Prepare a contender and hold it against float64; a wrong one is not timed.

    `answers` are those of the task's op and of the copy. Whatever a library raises is its own result.
    """
    op = contender.op(task)
    size = op.minimum_bytes(plain(task.problem) if op.exact else task.problem)
    result = Result(op=op.name, kernel=contender.name, constants={}, problem=task.problem, status="error")
    if contender.compute is None:
        return Rival(replace(result, status="skip", reason=contender.absent), size)
    try:
        sampler = library.sampler(contender.compute, library.inputs)
        outputs = library.to_numpy(sampler.outputs())
    except Exception as error:
        first_line = str(error).partition("\n")[0]
        return Rival(replace(result, reason=f"{type(error).__name__}: {first_line}"), size)
    largest, reason = found_wrong(outputs, answers[op.name], task.problem.dtype)
    result = replace(result, max_abs_error=largest, reason=reason, status="fail" if reason else "pass")
    return Rival(result, size, None if reason else sampler)


# --- one problem


def measure(device: Device, task: Task, rounds: int, alone: bool = False) -> list[Result]:
    """The results of the copies, webnorm's variants and, unless it is alone, the contenders, in turn."""
    traits = device.traits
    sets = bench.sets_for(task, traits)
    auto, own = variants(task, traits)
    check_memory(task, device, sets)
    board = RepeatedRows(device, task, sets)
    answers = {variant.kernel.op.name: board.answers(variant, {}) for variant in (own[0], auto.variant)}
    rivals = [
        enter(contender, library, task, answers)
        for library in (() if alone else libraries(task, board.arrays, sets, traits.software))
        for contender in library.contenders
    ]
    specs = [jobs.VariantSpec.of(variant) for variant in own]
    rule = timing.Rule(least=rounds, most=rounds, budget_s=600)
    results: dict[int, Result] = {}
    # What is recorded as webnorm's choice, and what it is held against, is checked on all rows.
    whole = (0, own.index(auto.variant))

    def sample_rivals() -> None:
        for rival in rivals:
            if rival.sampler is not None:
                rival.samples.append(rival.sampler.sample())

    for event in jobs.time_side_by_side(board, specs, rule, board.block, whole, sample_rivals):
        if isinstance(event, jobs.Found):
            results[event.index] = event.result
    at = own.index(auto.variant)
    results[at] = replace(results[at], auto=auto.source)
    found = [results[index] for index in range(len(own))]
    found += [rival.measured(board.cold) for rival in rivals]
    return bench.against_copy(found)


# --- files


def measured(report: Report) -> set[tuple[str | None, Problem]]:
    """Sections and problems of a report, without those that an older webnorm timed several calls at once."""
    otherwise = {(one.case, one.problem) for one in report.results if one.timed and one.calls != CALLS}
    return {(one.case, one.problem) for one in report.results} - otherwise


def description(device: Device) -> dict[str, Any]:
    """The device, the processor, and the versions of what was measured beside webnorm."""
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
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"


def merged(old: Report | None, new: Report) -> Report:
    """The old report with the new one's results in place of those of the same section, op and problem.

    Of the old ones those go that were timed in another way: no table has both. Raises WebnormError
    where they come from different adapters.
    """
    if old is None:
        return new
    mine, theirs = new.device["adapter"], old.device.get("adapter")
    if mine != theirs:
        raise WebnormError(f"the record at --out is of {theirs!r}, not of {mine!r}: name another file")
    staying = measured(old) - measured(new)
    kept = [one for one in old.results if (one.case, one.problem) in staying]
    recorded = {**old.device.get(RECORDED, {}), **new.device[RECORDED]}
    return replace(new, device={**new.device, RECORDED: recorded}, results=(*kept, *new.results))


def beside(out: Path, suffix: str) -> Path:
    """NAME with a suffix; a dot in NAME begins none."""
    return out.with_name(out.name + suffix)


def write_tables(out: Path, report: Report) -> None:
    """NAME.md, NAME.csv and, where matplotlib is installed and there is enough to draw, NAME.svg."""
    picture = beside(out, ".svg")
    if find_spec("matplotlib"):
        plot(report, picture)
    write_text(beside(out, ".md"), to_markdown(report, picture.name if picture.exists() else None))
    write_text(beside(out, ".csv"), to_csv(report))


# --- the command


def arguments() -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="files to write, without suffix")
    parser.add_argument("--section", nargs="+", choices=SECTIONS, help="those that suit the adapter")
    parser.add_argument("--adapter", help="index or name")
    parser.add_argument("--cpu", action="store_true", help="the software adapter and the section cpu")
    parser.add_argument("--op", nargs="+", choices=[op for op in OPS if op != "copy"])
    parser.add_argument("--dtype", nargs="+", choices=STORAGE)
    parser.add_argument("--cols", type=int, nargs="+", help="of the sections' numbers of columns, these")
    parser.add_argument("--mebibytes", type=positive, default=X_BYTES >> 20, help="of x, where rows are free")
    parser.add_argument("--rounds", type=positive, default=30)
    parser.add_argument("--missing", action="store_true", help="of these, the problems that NAME.json lacks")
    parser.add_argument("--tables", action="store_true", help="measure nothing")
    return parser.parse_args()


def chosen(asked: argparse.Namespace, software: bool) -> Iterator[tuple[str, Section, Task]]:
    """The problems asked for, with the names of their sections."""
    for name, section in SECTIONS.items():
        if name in asked.section if asked.section else section.software == software:
            for task in section.tasks(asked.mebibytes << 20):
                problem = task.problem
                if (
                    task.op.name in (asked.op or OPS)
                    and problem.dtype in (asked.dtype or STORAGE)
                    and problem.cols in (asked.cols or (problem.cols,))
                ):
                    yield name, section, task


def software_adapter() -> AdapterInfo:
    """The preferred of the software adapters; WebnormError where there is none."""
    found = next((one for one in adapters() if one.traits.software), None)
    if found is None:
        raise WebnormError("--cpu needs a software adapter, such as Mesa's llvmpipe; there is none")
    return found


def record(asked: argparse.Namespace, before: Report | None) -> Iterator[Report]:
    """Measure what is asked for; the whole record after every problem."""
    adapter = find_adapter(asked.adapter)
    if asked.cpu:
        adapter = software_adapter()
    device_with = cache(lambda limits: open_device(adapter, limits=dict(limits)))
    about = description(device_with(()))
    line = command("bench.record", asked.out)
    recorded: dict[str, str] = {}
    found: list[Result] = []
    problems = list(chosen(asked, adapter.traits.software))
    if not problems:
        raise WebnormError(
            "nothing to record: no section asked for has such a problem; bench/sections.py lists them"
        )
    if asked.missing and before is not None:
        there = measured(before)
        problems = [one for one in problems if (one[0], one[2].problem) not in there]
        print(f"{len(problems)} problems are missing", flush=True)
    # A record is published; the name of the machine that made it is not.
    origin = replace(origin_of(line), host="")
    for done, (name, section, task) in enumerate(problems, 1):
        began = timing.clock()
        results = measure(device_with(tuple(section.limits.items())), task, asked.rounds, section.alone)
        print(f"{timing.clock() - began:5.1f} s  {task}: {Summary.of(results)}", flush=True)
        found += [replace(result, case=name) for result in results]
        recorded[name] = f"{datetime.date.today()}, `{line}`"
        yield merged(
            before,
            Report(
                device={**about, RECORDED: recorded},
                results=tuple(found),
                complete=done == len(problems),
                origin=origin,
            ),
        )


def main() -> None:
    """Measure what is asked for and write the files."""
    asked = arguments()
    for suffix in (".json", ".md", ".csv", ".svg"):
        check_writable(beside(asked.out, suffix))
    json = beside(asked.out, ".json")
    if asked.tables and not json.exists():
        raise WebnormError(f"--tables needs a record, and there is no {json}")
    report = before = read(json) if json.exists() else None
    try:
        for report in () if asked.tables else record(asked, before):
            write_text(json, to_json(report))
    finally:
        if report is not None:
            write_tables(asked.out, report)


if __name__ == "__main__":
    run(main)
