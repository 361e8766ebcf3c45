"""Make the data behind `kernel="auto"` from sweeps, and print the loss of its choices.

    python -m bench.sweep.landscape SWEEP.jsonl|RECORD.json ... [--write] [--best]

The inputs are lines of `bench.sweep`, and records. Timings are grouped by op, storage type and kind of
problem. --write writes them into webnorm/ops/norms/sweeps/, without held-out problems. The printed loss
compares the choice with the fastest measured variant, for held-out problems and with each number of columns
left out in turn. --best prints the speed of the fastest variants for the largest x, in percent of the copy.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import markdown
from bench.arguments import bare_parser, json_lines, run
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

# A timing is dropped if its copy took so many times as long as the fastest copy: the card was busy or asleep.
_DISTURBED = 1.08
# Results below so many percent are dropped, because a device that is short of memory is that slow.
_LEAST = 5.0
# A problem with fewer variants does not show which one is the fastest.
_FEWEST = 5
# A problem is dropped if its fastest variant is below _POOR times the median of its _NEIGHBOURS nearest
# problems. Only problems whose x has a similar number of elements count, within the factor _LIKE.
_POOR, _NEIGHBOURS, _LIKE = 0.8, 6, 2.0
# The largest distance of neighbours' columns, in logarithms: much longer rows are slower for good reasons.
_NEAR = 0.25
_SHOWN = (256, 768, 1024, 2048, 4096, 5120, 8192, 12288, 16384, 32768)
# The range of columns that are left out in turn.
_LEFT_OUT = (256, 16384)


class SweepPoint:
    """A problem of a sweep: the speed of each variant in percent of a copy."""

    def __init__(self, rows: int, cols: int) -> None:
        self.rows, self.cols = rows, cols
        self.percents: dict[MeasuredVariant, float] = {}

    def like(self, other: SweepPoint) -> bool:
        """Return True for the same alignment of rows to Vecs and a similar number of elements."""
        sizes = self.rows * self.cols / (other.rows * other.cols)
        return (self.cols % 4 == 0) == (other.cols % 4 == 0) and 1 / _LIKE < sizes < _LIKE

    def distance(self, other: SweepPoint) -> float:
        """Return the logarithmic distance of the columns."""
        return abs(math.log(self.cols / other.cols))

    def entry(self) -> SweepEntry:
        """Return the entry that the choice reads."""
        return SweepEntry(self.rows, self.cols, list(self.percents.items()))


# Points by the name of their file, and by rows and columns.
Series = dict[str, dict[tuple[int, int], SweepPoint]]


def series_of(lines: Iterable[Mapping[str, Any]]) -> Series:
    """Group the undisturbed lines of sweeps; the better of two timings of a variant counts.

    The longest rows are left out, because rules decide there. A problem is also left out if most variants of
    a kernel could not be timed, because one of them may have been the fastest.
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
    """Return the variant of a line, with its constants in the order of the first line."""
    op, kernel, constants = line["op"], line["kernel"], line["constants"]
    order = axes.setdefault((op, kernel), list(constants))
    if set(order) != set(constants):
        raise WebnormError(
            f"{op}/{kernel} was timed with {', '.join(constants)} and with {', '.join(order)}; "
            "use sweeps of one version of the kernel"
        )
    return MeasuredVariant(kernel, tuple((name, constants[name]) for name in order))


def _well_tried(points: Iterable[SweepPoint], itemsize: int) -> dict[tuple[int, int], SweepPoint]:
    """Return the points whose fastest variant is not far behind the fastest of their neighbours.

    For the other points the sweep had no good variant, so the order of its variants says little.
    """
    points = list(points)

    def poor(point: SweepPoint) -> bool:
        alike = [other for other in points if other is not point and other.like(point)]
        near = [other for other in alike if point.distance(other) < _NEAR]
        neighbours = sorted(near, key=point.distance)[:_NEIGHBOURS]
        bests = [max(other.percents.values()) for other in neighbours]
        # Small problems are exempt: their times depend on effects that differ from problem to problem.
        large = itemsize * point.rows * point.cols > measured.FEW_BYTES
        return large and len(bests) >= 3 and max(point.percents.values()) < _POOR * statistics.median(bests)

    return {(point.rows, point.cols): point for point in points if not poor(point)}


def lines_in(path: Path) -> list[dict[str, Any]]:
    """Read a sweep, or a record as lines of a sweep; WebnormError if it is neither."""
    return list(_as_swept(read(path))) if path.suffix == ".json" else json_lines(path, "bench.sweep")


def _as_swept(report: Report) -> Iterator[dict[str, Any]]:
    """Yield lines for a record's webnorm variants with the current constants."""
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
    """Return the name of the file for a line."""
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
    """Return a file for `ops.norms.measured`: a line per point, in tenths of a percent."""
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
    """Return the loss of the choice for a problem to the fastest measured variant, in percent.

    None if no known variant was measured there.
    """
    expected = measured.expected(known, there.rows, there.cols, itemsize)
    timed = [variant for variant in expected if variant in there.shares]
    if not timed:
        return None
    return 100 * (1 - math.exp(there.shares[max(timed, key=expected.__getitem__)]))


def left_out(known: Sequence[SweepLandscape], itemsize: int) -> Iterator[tuple[SweepEntry, float]]:
    """Yield each entry of the first landscape, and the loss if its number of columns is left out."""
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
    """Return the landscapes that the choice would use with these files; `kernel` is as in `ranked`."""

    def read(other: str) -> SweepLandscape:
        return measured.decode(files[other]) if other in files else SweepLandscape()

    op, dtype, kind = (*name.split("-"), measured.PLAIN)[:3]
    return measured.known_from(read, op, dtype, kind, kernel)


def best_table(found: Series, cols: Sequence[int]) -> str:
    """Return a table of the fastest variants' speed in percent of the copy, for the largest x.

    A star marks an x of less than half of the largest size, whose percentages are not comparable.
    """
    lines = markdown.head("", [*map(str, cols)])
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
        lines.append(markdown.row([name.replace("-", " "), *cells]))
    return "\n".join(lines)


def _summary(losses: Sequence[float]) -> str:
    if not losses:
        return "nothing"
    ordered = sorted(losses)
    return (
        f"{statistics.mean(ordered):.2f} % (nine in ten at most {ordered[int(0.9 * len(ordered))]:.1f}, "
        f"one of {len(ordered)} {ordered[-1]:.1f})"
    )


def _loss_text(known: Sequence[SweepLandscape], held_out: Sequence[SweepEntry], itemsize: int) -> str:
    unseen = [loss(known, entry, itemsize) for entry in held_out]
    return (
        f"{len(known[0].entries)} problems; the choice loses "
        f"{_summary([lost for _, lost in left_out(known, itemsize)])} left out, "
        f"{_summary([lost for lost in unseen if lost is not None])} held out"
    )


def main() -> None:
    """Group the sweeps, write the data with --write, and print the losses."""
    parser = bare_parser(__doc__)
    parser.add_argument("sweeps", type=Path, nargs="+")
    parser.add_argument("--write", action="store_true", help="write the data into the package")
    parser.add_argument("--best", action="store_true", help="print the speed of the fastest variants")
    asked = parser.parse_args()
    lines = [line for path in asked.sweeps for line in lines_in(path)]
    found = series_of(line for line in lines if not line.get("held_out"))
    held_out = series_of(line for line in lines if line.get("held_out"))
    if not found:
        raise WebnormError(
            "the sweeps have only held-out times; add lines of bench.sweep that are not held out"
        )
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
                print(f"{label}: {_loss_text(known, held.entries, _itemsize(name))}")


if __name__ == "__main__":
    run(main)
