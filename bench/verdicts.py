"""How often `webnorm compare` is wrong on this machine, and how often it finds what is 10 % slower.

    python -m bench.verdicts --out FOLDER [--adapter ADAPTER] [--files 21] [--runs 15] [--budget 6]

Runs of `webnorm bench` follow one another, each in a fresh process; --runs of them make a file, as `webnorm
bench --runs` merges them. Each file is compared with the next: nothing changed, so that FASTER and SLOWER are
false. Then KERNEL has the times of another kernel in the new file, about 10 % slower on llvmpipe, which stood
in the same rounds: SLOWER is right. The runs stay in the folder; what is there is not taken again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from bench.arguments import positive, run
from webnorm.errors import WebnormError
from webnorm.lab.report.comparison import compare
from webnorm.lab.results import intervals, result_files
from webnorm.lab.results.result import Report, Result
from webnorm.lab.run import bench

ROWS, COLS = 256, 1024
# The kernel with the first of the constants is what becomes slower.
KERNEL, AXIS, CONSTANTS = "registers", "threads_per_row", (32, 16)
SLOWER = "naive"
OTHERS = (SLOWER, "welford_subgroup")


@dataclass(frozen=True)
class VerdictRates:
    """Of `pairs` of results that did not change `false` were called FASTER or SLOWER, of `changes` to what is
    slower `found` were called SLOWER. `drifts` is how far the copies moved from file to file: new over old
    time.
    """

    false: int
    pairs: int
    found: int
    changes: int
    drifts: tuple[float, ...]


def rates(files: Sequence[Report]) -> VerdictRates:
    """The verdicts on each file and the next."""
    verdicts = [compare(old, new) for old, new in pairwise(files)]
    unchanged = [one for found in verdicts for one in found.comparisons if one.ratio is not None]
    slower = [
        one
        for old, new in pairwise(files)
        for one in compare(with_times_of(KERNEL, old), with_times_of(SLOWER, new)).comparisons
        if one.result.kernel == KERNEL
    ]
    return VerdictRates(
        false=sum(one.verdict in ("FASTER", "SLOWER") for one in unchanged),
        pairs=len(unchanged),
        found=sum(one.verdict == "SLOWER" for one in slower),
        changes=len(slower),
        drifts=tuple(found.drift.ratio for found in verdicts if found.drift),
    )


def found_in(file: Report, kernel: str) -> Result:
    """The kernel's result, with the first of the constants where it has AXIS."""
    return next(
        r for r in file.results if r.kernel == kernel and r.constants.get(AXIS, CONSTANTS[0]) == CONSTANTS[0]
    )


def with_times_of(kernel: str, file: Report) -> Report:
    """The copies, KERNEL with the times of a kernel of the same rounds, and the kernel beside them."""
    own = found_in(file, KERNEL)
    changed = replace(found_in(file, kernel), kernel=own.kernel, constants=own.constants)
    copies = [result for result in file.results if result.roofline]
    return replace(file, results=(*copies, changed, found_in(file, OTHERS[1])))


def of_runs(found: Sequence[Report], count: int) -> Iterator[Report]:
    """The runs as files of `count` runs each; what is left over makes none."""
    for at in range(0, len(found) - count + 1, count):
        members = found[at : at + count]
        yield replace(
            members[0], results=tuple(bench.merge_runs([one.results for one in members])), complete=True
        )


def truth(files: Sequence[Report]) -> float:
    """The slower kernel's time over KERNEL's, by all runs."""
    ratios = [
        intervals.log_ratios(found_in(file, SLOWER).samples_by_run, found_in(file, KERNEL).samples_by_run)
        for file in files
    ]
    return float(np.exp(np.median(np.concatenate(ratios))))


def measure(folder: Path, count: int, budget: float, adapter: str | None) -> Iterator[Report]:
    """Take the runs that the folder lacks, and read all of them."""
    command = [sys.executable, "-m", "webnorm", "bench", "--rows", str(ROWS), "--cols", str(COLS)]
    command += [word for kernel in (KERNEL, *OTHERS) for word in ("--kernel", kernel)]
    command += ["--constant", f"{AXIS}={','.join(map(str, CONSTANTS))}", "--budget", str(budget)]
    command += ["--adapter", adapter] if adapter is not None else []
    for number in range(count):
        path = folder / f"run-{number:03}.json"
        if not path.exists():
            done = subprocess.run(
                [*command, "--json", str(path)], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise WebnormError(f"run {number} failed: {done.stderr.strip()}")
            print(f"run {number + 1} of {count}", file=sys.stderr)
        yield result_files.read(path)


def main() -> None:
    """Parse the arguments, measure what is missing, judge and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="the folder of runs")
    parser.add_argument("--adapter")
    parser.add_argument("--files", type=positive, default=21)
    parser.add_argument("--runs", type=positive, default=15, help="runs of each file")
    parser.add_argument("--budget", type=float, default=6.0, help="seconds of timing in a run")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    found = list(measure(given.out, given.files * given.runs, given.budget, given.adapter))
    files = list(of_runs(found, given.runs))
    told = rates(files)
    print(f"{len(files)} files of {given.runs} runs of {given.budget:g} s, {ROWS}x{COLS}")
    print(f"copies: time new over old {min(told.drifts):.2f} to {max(told.drifts):.2f}")
    print(f"false: {told.false} of {told.pairs} pairs of results that did not change")
    print(f"found: {told.found} of {told.changes} slowdowns of {100 * (truth(files) - 1):.1f} %")


if __name__ == "__main__":
    run(main)
