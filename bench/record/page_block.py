"""The block of a record in docs/performance.md: its picture, and webnorm next to the fastest other."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from bench import markdown
from bench.contenders import COPIES, NAMES
from bench.numerics import between_markers
from bench.record import times
from bench.record.plot import plot
from bench.record.tables import Summary, summaries
from webnorm.errors import WebnormError
from webnorm.files.atomic import write_text
from webnorm.lab.results.result import Report
from webnorm.op.dtypes import DTYPES

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
# The panels of the README's chart. The README's table also has other ops and types.
PICTURE = PAGE.parent / "pictures" / "speed.svg"
_PANELS = (
    ("forward", "layer_norm", "float32"),
    ("forward", "layer_norm", "float16"),
    ("backward", "layer_norm_backward", "float32"),
)
# The lines that readers look for first. The record's tables have the rest.
_SHOWN = (
    ("forward", "layer_norm", "float32"),
    ("forward", "layer_norm", "float16"),
    ("forward", "layer_norm", "bfloat16"),
    ("forward", "rms_norm", "float16"),
    ("backward", "layer_norm_backward", "float32"),
    ("backward", "layer_norm_backward", "float16"),
    ("backward", "layer_norm_backward", "bfloat16"),
    ("backward", "rms_norm_backward", "float16"),
)
_LINE = 130

# The problems of a line by their columns.
_Line = Mapping[int, Summary]


def check(out: Path) -> None:
    """Raise WebnormError if the page has no block with the record's name."""
    text = PAGE.read_text(encoding="utf-8")
    if not all(f"<!-- {marker} -->" in text for marker in (out.name, f"end of {out.name}")):
        raise WebnormError(f"--page: {PAGE.name} has no block <!-- {out.name} -->; add its two markers")


def write(out: Path, report: Report) -> None:
    """Write the record's block between its markers, and the README's chart."""
    plot(report, PICTURE, _PANELS)
    write_text(PAGE, between_markers(PAGE, out.name, block(out.name, report)))


def block(name: str, report: Report) -> str:
    """Return the picture, a description of the record, and the table."""
    found = summaries(report)
    lines = {
        (op, dtype): _largest(
            one for one in found.get(section, ()) if (one.op, one.problem.dtype) == (op, dtype)
        )
        for section, op, dtype in _SHOWN
    }
    lines = {key: line for key, line in lines.items() if line}
    picture = f"![Share of the best copy's bytes per second, by columns](../bench/results/{name}.svg)"
    table = "\n".join(map(markdown.row, _cells(lines)))
    return "\n\n".join([picture, _words(name, report, lines.values()), table])


def _largest(members: Iterable[Summary]) -> _Line:
    """Return the problem with the most rows for each number of columns."""
    found: dict[int, Summary] = {}
    for one in members:
        other = found.get(one.problem.cols)
        if other is None or other.problem.rows < one.problem.rows:
            found[one.problem.cols] = one
    return found


def _cells(lines: Mapping[tuple[str, str], _Line]) -> Iterator[Sequence[str]]:
    columns = sorted({cols for line in lines.values() for cols in line})
    yield ["columns", *map(str, columns)]
    yield ["---", *["---:"] * len(columns)]
    others = f"the fastest of {', '.join(_timed(lines.values()))}"
    for (op, dtype), line in lines.items():
        members = [line.get(cols) for cols in columns]
        yield [f"**`{op}` {dtype}**", *(_text(one.percent_of_copy if one else None) for one in members)]
        yield [others, *(_text(one.fastest_others_percent if one else None) for one in members)]
        others = "the fastest of these libraries"


def _timed(lines: Iterable[_Line]) -> list[str]:
    """Return the names of contenders that were timed in any problem."""
    everyone = [one for line in lines for one in line.values()]
    names = [name for name in NAMES if name not in COPIES]
    return [
        name.removesuffix(" eager")
        for name in names
        if any(name in one.others and one.others[name].timed for one in everyone)
    ]


def _text(share: float | None) -> str:
    return "-" if share is None else f"{share:.1f}"


def _words(name: str, report: Report, lines: Iterable[_Line]) -> str:
    sizes = sorted(
        {
            one.problem.rows * one.problem.cols * DTYPES[one.problem.dtype].itemsize >> 20
            for line in lines
            for one in line.values()
        }
    )
    recorded = times.text(report, {section for section, _, _ in _SHOWN})
    words = (
        f"Speed in percent of the fastest copy (in WGSL or by torch) of the same run, on one "
        f"{report.device['adapter']} with x of {' or '.join(map(str, sizes))} MiB; larger is faster. All "
        "kernels are sampled in turn, each call waits for the previous one, and the figures are medians. "
        "Table rows with a bold name, and the thick black line, are webnorm with the kernel that `auto` "
        "picks, in wgpu. The "
        f"[tables of all problems](../bench/results/{name}.md) are on another page. Date and command of the "
        f"measurement: {recorded}."
    )
    return textwrap.fill(words, _LINE, break_long_words=False, break_on_hyphens=False)
