"""Make of sweeps what `kernel="auto"` chooses by, and say how far choices are from the best elsewhere.

    python -m bench.sweep.landscape SWEEP.jsonl|RECORD.json ... [--write] [--best]

Takes the lines of `bench.sweep`, and what webnorm's variants reached in a record, groups them by op, storage
type and kind of problem, and with --write puts them into webnorm/choice/sweeps/. What was held out is left
out of that: there the choice is held against the fastest that was measured. So it is where each number of
columns is left out in turn. --best prints what the fastest variants reached where x is largest, in percent
of the copy.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.arguments import json_lines, run
from bench.record.sections import SECTIONS
from bench.record.side_by_side import CALLS
from webnorm.errors import WebnormError
from webnorm.files.atomic import write_text
from webnorm.kernels.headers.library import discover
from webnorm.lab.results.result import Report, Result
from webnorm.lab.results.result_files import read
from webnorm.op.dtypes import DTYPES
from webnorm.ops.norms import measured
from webnorm.ops.norms.measured import MeasuredVariant, SweepEntry, SweepLandscape
from webnorm.ops.norms.problem import NormProblem

# A copy that took so many times as long as the quickest beside it: the card had other work, or slept.
_DISTURBED = 1.08
# What reached so few percent says little: a device that is short of memory takes as long.
_LEAST = 5.0
# With fewer variants a problem does not tell what the fastest is.
_FEWEST = 5
# A problem whose fastest is below so much of what is usual for so many around it, with x of as many elements
# within a factor.
_POOR, _BESIDE, _LIKE = 0.8, 6, 2.0
# And whose columns are within so much, in logarithms: far longer rows are slower for good reasons.
_NEAR = 0.25
_SHOWN = (256, 768, 1024, 2048, 4096, 5120, 8192, 12288, 16384, 32768)
# Columns from which a row is long enough, and up to which rows are held: left out in turn.
_LEFT_OUT = (256, 16384)


class SweepPoint:
    """A problem of a sweep: what each variant reached there, in percent of a copy."""

    def __init__(self, rows: int, cols: int) -> None:
        self.rows, self.cols = rows, cols
        self.percents: dict[MeasuredVariant, float] = {}

    def like(self, other: SweepPoint) -> bool:
        """Whether both start rows at whole Vecs, or neither, and x has about as many elements."""
        sizes = self.rows * self.cols / (other.rows * other.cols)
        return (self.cols % 4 == 0) == (other.cols % 4 == 0) and 1 / _LIKE < sizes < _LIKE

    def distance(self, other: SweepPoint) -> float:
        """How far apart numbers of columns are."""
        return abs(math.log(self.cols / other.cols))

    def entry(self) -> SweepEntry:
        """As the choice reads it."""
        return SweepEntry(self.rows, self.cols, list(self.percents.items()))


# By the name of a file, by rows and columns.
Series = dict[str, dict[tuple[int, int], SweepPoint]]


def series_of(lines: Iterable[Mapping[str, Any]]) -> Series:
    """The lines of sweeps that were not disturbed, grouped; of a variant that was timed twice the better.

    What rules decide is left out: the longest rows. So are problems of which most variants of a kernel could
    not be timed: one may have been the best.
    """
    lines = [line for line in lines if line["cols"] <= measured.MOST_COLS]
    found: Series = defaultdict(dict)
    axes: dict[tuple[str, str], list[str]] = {}
    for line in _undisturbed([line for line in lines if "ns" in line]):
        share = 100 * line["bytes_over_copy"] * line["copy_ns"] / line["ns"]
        if share >= _LEAST:
            percents = found[_name(line)].setdefault(_key(line), SweepPoint(*_key(line))).percents
            variant = _variant(line, axes)
            percents[variant] = max(share, percents.get(variant, 0.0))
    timed: Counter[tuple[str, tuple[int, int], str]] = Counter()
    for line in lines:
        timed[_name(line), _key(line), line["kernel"]] += 1 if "ns" in line else -1
    lost = {(name, key) for (name, key, _), more in timed.items() if more <= 0}
    kept = {
        name: _well_tried(
            (
                point
                for key, point in points.items()
                if len(point.percents) >= _FEWEST and (name, key) not in lost
            ),
            _itemsize(name),
        )
        for name, points in found.items()
    }
    return {name: points for name, points in kept.items() if points}


def _variant(line: Mapping[str, Any], axes: dict[tuple[str, str], list[str]]) -> MeasuredVariant:
    """The variant of a line, its constants in the order in which they were first seen."""
    op, kernel, constants = line["op"], line["kernel"], line["constants"]
    order = axes.setdefault((op, kernel), list(constants))
    if set(order) != set(constants):
        raise WebnormError(
            f"{op}/{kernel} was timed with {', '.join(constants)} and with {', '.join(order)}: "
            "expected times of one version of it"
        )
    return MeasuredVariant(kernel, tuple((name, constants[name]) for name in order))


def _well_tried(points: Iterable[SweepPoint], itemsize: int) -> dict[tuple[int, int], SweepPoint]:
    """Those of which the fastest is not far behind the fastest of their neighbours: of the others, the sweep
    had no variant that is good there, and the order of what it had says little.
    """
    points = list(points)

    def poor(point: SweepPoint) -> bool:
        alike = [other for other in points if other is not point and other.like(point)]
        near = [other for other in alike if point.distance(other) < _NEAR]
        beside = sorted(near, key=point.distance)[:_BESIDE]
        bests = [max(other.percents.values()) for other in beside]
        # Few elements take their time for other reasons, that differ from problem to problem.
        large = itemsize * point.rows * point.cols > measured.FEW_BYTES
        return large and len(bests) >= 3 and max(point.percents.values()) < _POOR * statistics.median(bests)

    return {(point.rows, point.cols): point for point in points if not poor(point)}


def lines_in(path: Path) -> list[dict[str, Any]]:
    """The lines of a sweep; of a record as a sweep would have them. WebnormError where it is neither."""
    return list(_as_swept(read(path))) if path.suffix == ".json" else json_lines(path, "bench.sweep")


def _as_swept(report: Report) -> Iterator[dict[str, Any]]:
    """The variants of a record, but contenders, that have the constants of today."""
    axes = {(kernel.op.name, kernel.name): kernel.tune.keys() for kernel in discover()}
    groups: dict[tuple[str | None, NormProblem], list[Result]] = defaultdict(list)
    for result in report.results:
        section = SECTIONS.get(result.case or "")
        usable = result.constants and result.timed and result.calls == CALLS
        if section and not section.limits and not section.software and usable:
            groups[result.case, result.problem].append(result)
    for (case, problem), results in groups.items():
        copies = [one for one in results if one.op == "copy" and one.bytes]
        if not copies:
            continue
        copy = min(copies, key=lambda one: one.median_ns or math.inf)
        for one in results:
            if one.op != "copy" and one.constants.keys() == axes.get((one.op, one.kernel)):
                assert copy.bytes and one.bytes
                yield {
                    "op": one.op,
                    "dtype": problem.dtype,
                    "rows": problem.rows,
                    "cols": problem.cols,
                    "kernel": one.kernel,
                    "constants": one.constants,
                    "options": {
                        "residual": problem.options.residual,
                        "saved_stats": problem.options.saved_stats,
                    },
                    "held_out": SECTIONS[case or ""].drawn,
                    "bytes_over_copy": one.bytes / copy.bytes,
                    "ns": one.median_ns,
                    "copy_ns": copy.median_ns,
                }


def _name(line: Mapping[str, Any]) -> str:
    """The name of the file that a line belongs to."""
    options = line.get("options", {})
    kind = measured.kind_of(line["op"], options.get("residual", False), options.get("saved_stats", True))
    return measured.file_name(line["op"], line["dtype"], kind)


def _itemsize(name: str) -> int:
    return DTYPES[name.split("-")[1]].itemsize


def _key(line: Mapping[str, Any]) -> tuple[int, int]:
    return line["rows"], line["cols"]


def _undisturbed(lines: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    quickest: dict[tuple[Any, ...], float] = {}
    for line in lines:
        key = line["dtype"], line["rows"], line["cols"]
        quickest[key] = min(line["copy_ns"], quickest.get(key, math.inf))
    for line in lines:
        if line["copy_ns"] <= _DISTURBED * quickest[line["dtype"], line["rows"], line["cols"]]:
            yield line


def to_json(points: Iterable[SweepPoint]) -> str:
    """Points as a file that `ops.norms.measured` reads: a line for each, in tenths of a percent."""
    points = sorted(points, key=lambda point: (point.cols, point.rows))
    variants = sorted({variant for point in points for variant in point.percents})
    numbers = {variant: at for at, variant in enumerate(variants)}
    axes = {variant.kernel: [name for name, _ in variant.constants] for variant in variants}
    entries = []
    for point in points:
        reached = sorted((numbers[variant], round(10 * share)) for variant, share in point.percents.items())
        entries.append([point.rows, point.cols, *map(list, zip(*reached, strict=True))])
    listed = [[variant.kernel, [value for _, value in variant.constants]] for variant in variants]
    lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in entries)
    head = json.dumps({"axes": axes, "variants": listed}, separators=(",", ":"))
    return f'{head[:-1]},"entries":[\n{lines}\n]}}\n'


def loss(known: Sequence[SweepLandscape], there: SweepEntry, itemsize: int) -> float | None:
    """What the choice for a problem loses to the best that was measured there, in percent.

    None where none of what is known was measured there.
    """
    expected = measured.expected(known, there.rows, there.cols, itemsize)
    timed = [variant for variant in expected if variant in there.shares]
    if not timed:
        return None
    return 100 * (1 - math.exp(there.shares[max(timed, key=expected.__getitem__)]))


def left_out(known: Sequence[SweepLandscape], itemsize: int) -> Iterator[tuple[SweepEntry, float]]:
    """What is lost at each entry of the first landscape where all of as many columns are left out."""
    for entry in known[0].entries:
        if _LEFT_OUT[0] <= entry.cols <= _LEFT_OUT[1]:
            others = [
                replace(one, entries=[other for other in one.entries if other.cols != entry.cols])
                for one in known
            ]
            found = loss(others, entry, itemsize)
            if found is not None:
                yield entry, found


def known_by(name: str, files: Mapping[str, str], kernel: str | None) -> Sequence[SweepLandscape]:
    """What the choice would know of a name's problems with these files; `kernel` as `ranked` takes it."""

    def read(other: str) -> SweepLandscape:
        return measured.decode(files[other]) if other in files else SweepLandscape()

    op, dtype, kind = (*name.split("-"), measured.PLAIN)[:3]
    return measured.known_from(read, op, dtype, kind, kernel)


def best_table(found: Series, cols: Sequence[int]) -> str:
    """Percents of a copy that the fastest variants reached by columns, x as large as there is; with a star
    where it is less than half of the largest, beside which a share is not to be held.
    """
    lines = [f"| | {' | '.join(map(str, cols))} |", f"|---|{'---:|' * len(cols)}"]
    for name, points in sorted(found.items()):
        most = max(rows * each for rows, each in points)
        cells = []
        for each in cols:
            rows = max((rows for rows, other in points if other == each), default=None)
            if rows is None:
                cells.append("-")
                continue
            star = "*" if 2 * rows * each < most else ""
            cells.append(f"{max(points[rows, each].percents.values()):.1f}{star}")
        lines.append(f"| {name.replace('-', ' ')} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _summary(losses: Sequence[float]) -> str:
    if not losses:
        return "nothing"
    ordered = sorted(losses)
    return (
        f"{statistics.mean(ordered):.2f} % (nine in ten at most {ordered[int(0.9 * len(ordered))]:.1f}, "
        f"one of {len(ordered)} {ordered[-1]:.1f})"
    )


def _told(known: Sequence[SweepLandscape], held_out: Sequence[SweepEntry], itemsize: int) -> str:
    unseen = [loss(known, entry, itemsize) for entry in held_out]
    return (
        f"{len(known[0].entries)} problems; the choice loses "
        f"{_summary([lost for _, lost in left_out(known, itemsize)])} left out, "
        f"{_summary([lost for lost in unseen if lost is not None])} held out"
    )


def main() -> None:
    """Group, write if that is asked for, and tell what is lost where nothing is known."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sweeps", type=Path, nargs="+")
    parser.add_argument("--write", action="store_true", help="put the data into the package")
    parser.add_argument("--best", action="store_true", help="what the fastest reached")
    asked = parser.parse_args()
    lines = [line for path in asked.sweeps for line in lines_in(path)]
    found = series_of(line for line in lines if not line.get("held_out"))
    held_out = series_of(line for line in lines if line.get("held_out"))
    if not found:
        raise WebnormError("the sweeps have no times but held out ones; expected lines of bench.sweep")
    if asked.best:
        print(best_table(found, _SHOWN))
        return
    files = {name: to_json(points.values()) for name, points in found.items()}
    for name, text in sorted(files.items()):
        if asked.write:
            write_text(measured.FOLDER / f"{name}.json", text)
        own = measured.decode(text)
        for kernel in (None, measured.ONE_DISPATCH):
            if own.of(kernel).entries:
                known = known_by(name, files, kernel)
                held = SweepLandscape([point.entry() for point in held_out.get(name, {}).values()]).of(kernel)
                label = " ".join(filter(None, (name, kernel)))
                print(f"{label}: {_told(known, held.entries, _itemsize(name))}")


if __name__ == "__main__":
    run(main)
