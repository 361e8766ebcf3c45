"""Compare timings of the same kernels: two runs of `webnorm bench`, the record's, and CUDA's.

    python -m bench.record.agreement [--adapter ADAPTER] [--idle 10] [--rounds 30] [--write]

`webnorm bench` measures each of six problems in a new process on an idle device, and again at once in another
process. Then the record's code measures it in this process. On a CUDA card it also times torch's copy between
two CUDA events. --write writes the table into docs/measuring.md.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import markdown
from bench.arguments import bare_parser, positive, run
from bench.contenders import COPIES
from bench.numerics import DOCS, between_markers
from bench.record.side_by_side import measure
from webnorm.errors import WebnormError
from webnorm.files.atomic import write_text
from webnorm.gpu.device import AdapterInfo, find_adapter, open_device
from webnorm.lab.results.ranking import best
from webnorm.lab.results.result import Result
from webnorm.lab.results.result_files import read
from webnorm.lab.results.tables import time_text
from webnorm.op.op import Task
from webnorm.op.presets import tasks
from webnorm.op.registry import OPS

PAGE = DOCS / "measuring.md"
# Large problems, small problems and few long rows, forward and backward.
ON_A_GPU = (
    ("layer_norm", 16384, 1024, "float32"),
    ("rms_norm", 512, 1024, "float16"),
    ("layer_norm", 32, 131072, "float32"),
    ("rms_norm_backward", 32768, 1024, "bfloat16"),
    ("layer_norm_backward", 1024, 1024, "float32"),
    ("layer_norm_backward", 21856, 1536, "float16"),
)
ON_SOFTWARE = tuple((op, max(1, rows // 64), min(cols, 4096), dtype) for op, rows, cols, dtype in ON_A_GPU)
# The kernels whose order matters on a GPU.
FORWARD = ("auto", "registers", "workgroup_cache", "streaming", "split_row")
BACKWARD = ("auto", "registers", "tiles", "split_row")
# Kernels whose times differ by less have no order.
APART = 0.02

Key = tuple[str, str, tuple[tuple[str, int], ...]]


@dataclass(frozen=True)
class AgreementFigures:
    """One problem: two runs of `webnorm bench` and the record's, each with its results by variant."""

    task: Task
    first: Mapping[Key, Result]
    second: Mapping[Key, Result]
    recorded: Mapping[Key, Result]


def by_variant(results: Sequence[Result]) -> dict[Key, Result]:
    """Return the timed results by op, kernel and constants."""
    return {(r.op, r.kernel, tuple(sorted(r.constants.items()))): r for r in results if r.timed}


def benched(task: Task, adapter: AdapterInfo, idle_s: float) -> dict[Key, Result]:
    """Run `webnorm bench` in a new process after an idle time, and return its timed results."""
    problem = task.problem
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.json"
        command = [sys.executable, "-m", "webnorm", "bench", "--op", task.op.name, "--dtype", problem.dtype]
        command += ["--rows", str(problem.rows), "--cols", str(problem.cols)]
        command += ["--adapter", str(adapter.index), "--json", str(found)]
        for kernel in BACKWARD if task.op.gradient else FORWARD:
            command += ["--kernel", kernel]
        time.sleep(idle_s)
        done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
        if not found.exists():
            raise WebnormError(f"webnorm bench of {task} failed with exit status {done.returncode}")
        return by_variant(read(found).results)


def inversions(one: Mapping[Key, Result], other: Mapping[Key, Result]) -> list[str]:
    """Return pairs of the op's variants in a different order, with a clear difference in both runs."""
    times = {
        key: (one[key].median_ns or 0.0, other[key].median_ns or 0.0)
        for key in one.keys() & other.keys()
        if not one[key].roofline
    }
    found = []
    for a, b in itertools.combinations(times, 2):
        before, after = (times[a][side] / times[b][side] - 1 for side in (0, 1))
        if min(abs(before), abs(after)) > APART and before * after < 0:
            found.append(f"{a[1]}, {b[1]}")
    return found


def largest_gap(one: Mapping[Key, Result], other: Mapping[Key, Result]) -> float:
    """Return the largest relative difference between the medians of a common variant."""
    return max(
        (
            abs((one[key].median_ns or 0) / (other[key].median_ns or 1) - 1)
            for key in one.keys() & other.keys()
        ),
        default=0.0,
    )


def table(title: str, figures: Sequence[AgreementFigures]) -> str:
    """Return the figures as a Markdown table."""
    columns = ["problem", "bench: auto", "again", "all variants again", "record"]
    columns += ["copy, GB/s: bench", "again", "record", "CUDA's", "order"]
    lines = [title, "", markdown.row(columns), f"|---|{'---:|' * (len(columns) - 2)}---|"]
    lines += [row(one) for one in figures]
    return "\n".join(lines)


def row(one: AgreementFigures) -> str:
    """Return a problem's line: auto's time, the others' differences, copies, and changes of order."""
    runs = (one.first, one.second, one.recorded)
    auto = next(key for key, result in one.first.items() if result.auto)
    first, again, recorded = (found[auto].median_ns if auto in found else None for found in runs)
    own = [best([r for r in found.values() if r.roofline and r.kernel not in COPIES]) for found in runs]
    theirs = best([result for result in one.recorded.values() if result.kernel in COPIES])
    swapped = [*inversions(one.first, one.second), *inversions(one.first, one.recorded)]
    problem = one.task.problem
    cells = [
        f"`{one.task.op.name}` {problem.rows} x {problem.cols} {problem.dtype}",
        time_text(first),
        _beyond(again, first),
        f"{100 * largest_gap(one.first, one.second):.1f} %",
        _beyond(recorded, first),
        *("-" if copy is None else f"{copy.gbps:.0f}" for copy in (*own, theirs)),
        "; ".join(dict.fromkeys(swapped)) or "the same",
    ]
    return markdown.row(cells)


def _beyond(time_ns: float | None, other_ns: float | None) -> str:
    """Return how much longer a time is than another, in percent."""
    return f"{100 * (time_ns / other_ns - 1):+.1f} %" if time_ns and other_ns else "-"


def main() -> None:
    """Measure and print the table, and write it with --write."""
    parser = bare_parser(__doc__)
    parser.add_argument("--adapter")
    parser.add_argument("--idle", type=float, default=10.0, help="idle seconds before each first run")
    parser.add_argument("--rounds", type=positive, default=30)
    parser.add_argument("--write", action="store_true", help="write the table into docs/measuring.md")
    asked = parser.parse_args()
    adapter = find_adapter(asked.adapter)
    problems = [
        task
        for op, rows, cols, dtype in (ON_SOFTWARE if adapter.traits.software else ON_A_GPU)
        for task in tasks(op, [(rows, cols)], OPS[op].defaults, dtype=dtype)
    ]
    # These runs come first, because the device would not be idle once this process has opened it.
    runs = [[benched(task, adapter, idle) for idle in (asked.idle, 0.0)] for task in problems]
    device = open_device(adapter)
    figures = []
    title = f"{adapter}, `python -m bench.record.agreement --idle {asked.idle:g} --rounds {asked.rounds}`:"
    for task, (first, second) in zip(problems, runs, strict=True):
        recorded = by_variant(measure(device, task, asked.rounds))
        figures.append(AgreementFigures(task, first, second, recorded))
        print(row(figures[-1]), flush=True)
    print(made := table(title, figures))
    if asked.write:
        write_text(PAGE, between_markers(PAGE, "agreement", made))


if __name__ == "__main__":
    run(main)
