"""Record a benchmark of webnorm and other libraries on one machine; all kernels are sampled in turn.

    python -m bench.record --out bench/results/NAME [--section forward backward ...] [--cols 1024 ...]

writes NAME.json (which `webnorm compare` reads), NAME.md, NAME.csv and, if matplotlib is installed, NAME.svg.
On a GPU it runs the sections of bench/record/sections.py and compares with torch, torch.compile, Triton,
Liger, QuACK and JAX, if they are installed. On a software adapter (see --cpu) it runs the section cpu and
compares with NumPy, torch and ONNX Runtime. Existing results in NAME.json stay, unless their problems are
measured again. NAME.json is updated after each problem, and the other files at the end. --missing measures
the problems that NAME.json lacks. --tables writes the tables again and measures nothing. --page also writes
the block NAME of docs/performance.md.

Worker processes on all cores compile some problems ahead. While these problems are timed, nothing else runs.
A line per problem shows how its time was spent.
"""

from __future__ import annotations

import argparse
import datetime
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from bench.arguments import bare_parser, command, positive, run, whole
from bench.record import page_block
from bench.record import (
    tuning as tuned,
)
from bench.record.files import description, measured, merged, of_this_draw, record_file, write_tables
from bench.record.laps import Laps
from bench.record.preparing import PreparePool, share_caches
from bench.record.sections import HELD_OUT_SEED, SECTIONS, X_BYTES, Section
from bench.record.side_by_side import KnownResults, measure, pace_of
from bench.record.tables import Summary
from bench.record.times import RECORDED
from bench.record.variants import TunedVariants
from webnorm.choice import tuning
from webnorm.errors import WebnormError
from webnorm.files.atomic import cache_folder, check_writable, write_text
from webnorm.gpu import timing
from webnorm.gpu.device import AdapterInfo, adapters, find_adapter, open_device
from webnorm.lab.process.worker import TaskFailed, Worker, WorkerDied
from webnorm.lab.results.result import Report, Result, origin_of
from webnorm.lab.results.result_files import read, to_json
from webnorm.op.dtypes import STORAGE
from webnorm.op.op import Task
from webnorm.op.registry import OPS
from webnorm.ops.norms.op import OPS as NORM_OPS
from webnorm.ops.norms.problem import NormProblem

# Problems that are prepared together: enough to keep all cores busy most of the time, and few enough that an
# interrupted run has results.
_AHEAD = 24
# Seconds in which a search tries some fifty variants.
_SEARCH_S = 3.0
# Results are written after every problem. For a large record, writing takes at most one second in so many.
_SELDOM = 20


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = bare_parser(__doc__, "python -m bench.record")
    add = parser.add_argument
    add("--out", type=Path, required=True, help="files to write, without suffix")
    add("--section", nargs="+", choices=SECTIONS, help="by default those for the adapter")
    add("--adapter", help="index or name")
    add("--cpu", action="store_true", help="use the software adapter and the section cpu")
    add("--op", nargs="+", choices=[op.name for op in NORM_OPS])
    add("--dtype", nargs="+", choices=STORAGE)
    add("--cols", type=int, nargs="+", help="only these numbers of columns of the sections")
    add("--mebibytes", type=positive, nargs="+", default=[X_BYTES >> 20], help="of x, if rows are free")
    add("--held-out", type=whole, default=HELD_OUT_SEED, metavar="SEED", help="seed of drawn columns")
    add("--rounds", type=positive, default=30, help="at most; fewer if the samples agree")
    search_help = "seconds of tuning in each held-out problem"
    add("--search", type=seconds, default=_SEARCH_S, metavar="SECONDS", help=search_help)
    add("--search-everywhere", action="store_true", help="tune in the other problems, too")
    add("--tuned", type=Path, metavar="FILE", help="tuning file; its problems are not searched")
    add("--processes", type=whole, help="number that prepare problems; on a GPU by default cores - 1")
    add("--ahead", type=positive, default=_AHEAD, help="number of problems prepared together")
    add("--cache", type=Path, metavar="FOLDER", help="folder of the compilers' caches")
    add("--prepare-only", action="store_true", help="fill the cache folder, and measure nothing")
    add("--missing", action="store_true", help="only problems that NAME.json lacks")
    add("--tables", action="store_true", help="write the tables again, measure nothing")
    add("--page", action="store_true", help="also write the block NAME of docs/performance.md")
    return parser.parse_args()


def seconds(text: str) -> float:
    """Parse a number of seconds from 0 to an hour."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < 3600:
        raise argparse.ArgumentTypeError(f"it is {text!r}; expected a number of seconds from 0 to 3600")
    return found


@dataclass(frozen=True)
class WantedProblem:
    """A problem of a section."""

    name: str
    section: Section
    task: Task


def chosen(asked: argparse.Namespace, software: bool) -> list[WantedProblem]:
    """Return the requested problems, each once."""
    found: dict[tuple[str, NormProblem], WantedProblem] = {}
    for name, section in SECTIONS.items():
        if name not in asked.section if asked.section else section.software != software:
            continue
        for mebibytes in asked.mebibytes:
            for task in section.tasks(mebibytes << 20, asked.held_out):
                problem = task.problem
                if (
                    task.op.name in (asked.op or OPS)
                    and problem.dtype in (asked.dtype or STORAGE)
                    and problem.cols in (asked.cols or (problem.cols,))
                ):
                    found.setdefault((name, problem), WantedProblem(name, section, task))
    return list(found.values())


def software_adapter() -> AdapterInfo:
    """Return the preferred software adapter; WebnormError if there is none."""
    found = next((one for one in adapters() if one.traits.software), None)
    if found is None:
        raise WebnormError("--cpu needs a software adapter and finds none; install one, such as llvmpipe")
    return found


class RecordRun:
    """The devices and worker processes of a run, and the state that all problems share."""

    def __init__(self, asked: argparse.Namespace, adapter: AdapterInfo, open_ones: ExitStack) -> None:
        self._asked = asked
        self.device_with = cache(lambda limits: open_device(adapter, limits=dict(limits)))
        self._traits = self.device_with(()).traits
        software = self._traits.software
        self.processes = asked.processes
        if self.processes is None:
            self.processes = 0 if software else max(1, (os.cpu_count() or 1) - 1)
        folder = _cache_of(asked)
        self._pool = open_ones.enter_context(PreparePool(str(adapter.index), max(1, self.processes), folder))
        self._searcher = open_ones.enter_context(Worker(str(adapter.index)))
        self._tuning = tuning.read(asked.tuned) if asked.tuned else None
        self._pace: timing.Pace | None = None
        self._known: dict[NormProblem, KnownResults] = {}

    def prepare(self, wanted: Sequence[WantedProblem]) -> None:
        """Compile the kernels of these problems, and check webnorm's variants against float64."""
        # Sections with a page's limits need another device than the processes have.
        some = [one for one in wanted if not one.section.limits]
        if not some or not self.processes:
            return
        began = timing.clock()
        searched = [one.task for one in some if self._searches(one)]
        prepared = self._pool.prepare([one.task for one in some], searched, self._traits)
        self._known = prepared.known
        spent = timing.clock() - began
        print(
            f"prepared {len(some)} problems in {spent:.1f} s; {self.processes} processes: {prepared.seconds}",
            flush=True,
        )

    def results(self, one: WantedProblem) -> list[Result]:
        """Measure a problem, and print how its time was spent."""
        laps = Laps()
        device = self.device_with(tuple(one.section.limits.items()))
        if self._pace is None and not device.traits.software:
            self._pace = pace_of(device)
            laps.mark("pace")
        # Known results are of a device without a page's limits.
        known = KnownResults()
        if not one.section.limits:
            known = replace(self._known.get(one.task.problem, known), tuned=self._tuned(one))
        laps.mark("search")
        results = measure(device, one.task, self._asked.rounds, one.section.alone, known, self._pace, laps)
        laps.mark("the rest")
        print(f"{laps}: {one.task}: {Summary.of(results)}", flush=True)
        return [replace(result, case=one.name) for result in results]

    def _searches(self, one: WantedProblem) -> bool:
        return bool(
            self._asked.search
            and (one.section.drawn or self._asked.search_everywhere)
            and not one.section.limits
            and not (self._tuning and self._tuning.matching(one.task))
        )

    def _tuned(self, one: WantedProblem) -> TunedVariants | None:
        """Return the tuned variants of a problem, if tuning is requested."""
        if self._tuning:
            recorded = tuned.recorded(one.task, self._traits, self._tuning)
            if recorded is not None:
                return recorded
        if not self._searches(one):
            return None
        try:
            return tuned.searched(one.task, self._traits, self._searcher, self._asked.search)
        except (WorkerDied, TaskFailed) as failure:
            print(f"the search in {one.task} failed: {failure}", flush=True)
            return None


def _cache_of(asked: argparse.Namespace) -> Path:
    return asked.cache or cache_folder("record")


def record(asked: argparse.Namespace, before: Report | None) -> Iterator[Report]:
    """Measure the requested problems, and yield the whole record after each."""
    adapter = software_adapter() if asked.cpu else find_adapter(asked.adapter)
    wanted = chosen(asked, adapter.traits.software)
    if not wanted:
        raise WebnormError(
            "nothing to record: no requested section has such a problem; bench/record/sections.py lists them"
        )
    if before is not None:
        before = of_this_draw(before, {one.name for one in wanted}, asked.held_out)
    if asked.missing and before is not None:
        there = measured(before)
        wanted = [one for one in wanted if (one.name, one.task.problem) not in there]
        print(f"{len(wanted)} problems are missing", flush=True)
    with ExitStack() as open_ones:
        bench = RecordRun(asked, adapter, open_ones)
        if asked.prepare_only:
            if not bench.processes:
                raise WebnormError("--prepare-only: no process prepares; expected --processes 1 or more")
            bench.prepare(wanted)
        else:
            yield from _recorded(asked, bench, wanted, before)


def _recorded(
    asked: argparse.Namespace, bench: RecordRun, wanted: Sequence[WantedProblem], before: Report | None
) -> Iterator[Report]:
    about = description(bench.device_with(()))
    line = command("bench.record", asked.out, asked.cache, asked.tuned)
    # A record is published, and the name of the machine stays private.
    origin = replace(origin_of(line), host="")
    recorded: dict[str, str] = {}
    found: list[Result] = []
    for done, one in enumerate(wanted):
        if done % asked.ahead == 0:
            bench.prepare(wanted[done : done + asked.ahead])
        found += bench.results(one)
        drawn = f", columns drawn with seed {asked.held_out}" if one.section.drawn else ""
        recorded[one.name] = f"{datetime.date.today()}, `{line}`{drawn}"
        yield merged(
            before,
            Report(
                device={**about, RECORDED: recorded},
                results=tuple(found),
                complete=done + 1 == len(wanted),
                origin=origin,
            ),
        )


def main() -> None:
    """Measure the requested problems and write the files."""
    asked = arguments()
    for suffix in (".json", ".md", ".csv", ".svg"):
        check_writable(record_file(asked.out, suffix))
    if asked.page:
        page_block.check(asked.out)
    json = record_file(asked.out, ".json")
    if asked.tables and not json.exists():
        raise WebnormError(f"--tables needs a record, and {json} does not exist")
    report = before = read(json) if json.exists() else None
    if not (asked.tables or asked.cpu):
        share_caches(_cache_of(asked))
    writing = Laps()
    try:
        for report in () if asked.tables else record(asked, before):
            writing.mark("not writing")
            if writing.seconds["not writing"] >= _SELDOM * writing.seconds.get("writing", 0.0):
                write_text(json, to_json(report))
                writing.mark("writing")
    finally:
        if report is not None:
            if report is not before:
                write_text(json, to_json(report))
            write_tables(asked.out, report)
            if asked.page:
                page_block.write(asked.out, report)


if __name__ == "__main__":
    run(main)
