"""Measure how often `webnorm compare` is wrong on this machine, and how often it finds a 10 % slowdown.

    python -m bench.verdicts --out FOLDER [--adapter ADAPTER] [--files 21] [--runs 15] [--budget 6]

`webnorm bench` runs repeatedly, each time in a new process. --runs of these runs form a file, as `webnorm
bench --runs` merges them. Each file is compared with the next. Nothing changed, so every FASTER and SLOWER is
false. Then the new file gets the times of a slower kernel of the same rounds (about 10 % on llvmpipe) under
KERNEL's name. There SLOWER is right. The runs stay in the folder, and existing runs are not repeated.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from bench.arguments import bare_parser, positive, run
from webnorm.errors import WebnormError
from webnorm.lab.report.comparison import compare
from webnorm.lab.results import intervals, result_files
from webnorm.lab.results.result import Report, Result
from webnorm.lab.run import bench

ROWS, COLS = 256, 1024
# KERNEL with the first constant is the variant that becomes slower.
KERNEL, AXIS, CONSTANTS = "registers", "threads_per_row", (32, 16)
SLOWER = "naive"
OTHERS = (SLOWER, "welford_subgroup")


@dataclass(frozen=True)
class VerdictRates:
    """The error rates of verdicts.

    Out of `pairs` of unchanged results, `false` were reported as FASTER or SLOWER. Out of `changes` to a
    slower kernel, `found` were reported as SLOWER. `drifts` are the ratios of the copies' new to old times.
    """

    false: int
    pairs: int
    found: int
    changes: int
    drifts: tuple[float, ...]


def rates(files: Sequence[Report]) -> VerdictRates:
    """Compare each file with the next, and return the error rates."""
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
    """Return the kernel's result, with the first constant if it has AXIS."""
    return next(
        r for r in file.results if r.kernel == kernel and r.constants.get(AXIS, CONSTANTS[0]) == CONSTANTS[0]
    )


def with_times_of(kernel: str, file: Report) -> Report:
    """Return the copies, KERNEL with the times of another kernel, and an unchanged control kernel."""
    own = found_in(file, KERNEL)
    changed = replace(found_in(file, kernel), kernel=own.kernel, constants=own.constants)
    copies = [result for result in file.results if result.roofline]
    return replace(file, results=(*copies, changed, found_in(file, OTHERS[1])))


def of_runs(found: Sequence[Report], count: int) -> Iterator[Report]:
    """Yield files of `count` runs each; surplus runs are dropped."""
    for at in range(0, len(found) - count + 1, count):
        members = found[at : at + count]
        yield replace(
            members[0], results=tuple(bench.merge_runs([one.results for one in members])), complete=True
        )


def truth(files: Sequence[Report]) -> float:
    """Return the slower kernel's time divided by KERNEL's, over all runs."""
    ratios = [
        intervals.log_ratios(found_in(file, SLOWER).samples_by_run, found_in(file, KERNEL).samples_by_run)
        for file in files
    ]
    return float(np.exp(np.median(np.concatenate(ratios))))


def measure(folder: Path, count: int, budget: float, adapter: str | None) -> Iterator[Report]:
    """Run the missing runs, and yield all of them."""
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
    """Parse the arguments, measure the missing runs, and print the error rates."""
    parser = bare_parser(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--adapter")
    parser.add_argument("--files", type=positive, default=21)
    parser.add_argument("--runs", type=positive, default=15, help="runs per file")
    parser.add_argument("--budget", type=float, default=6.0, help="seconds of timing per run")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    found = list(measure(given.out, given.files * given.runs, given.budget, given.adapter))
    files = list(of_runs(found, given.runs))
    measured = rates(files)
    print(f"{len(files)} files of {given.runs} runs of {given.budget:g} s, {ROWS}x{COLS}")
    drifts = measured.drifts
    print(f"copies: ratio of new to old time {min(drifts):.2f} to {max(drifts):.2f}")
    print(f"false: {measured.false} of {measured.pairs} pairs of unchanged results")
    print(f"found: {measured.found} of {measured.changes} slowdowns of {100 * (truth(files) - 1):.1f} %")


if __name__ == "__main__":
    run(main)
