"""The tables of a record in the browser."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.numerics import between_markers
from bench.record.readme_block import PAGE
from bench.web.plan import LIBRARIES, MEANS, SHAPES
from webnorm.files.atomic import write_text

Line = Mapping[str, Any]
_NOTHING = "-"
_LINE = 130
_SOFTWARE = (
    "**The adapter is software, a rasteriser that runs GPU programs on the processor: its times rank "
    "nothing, and say nothing of a GPU's.** Errors are what they are."
)


def to_markdown(told: Line, picture: str | None) -> str:
    """The whole record; `picture` is the name of the picture beside it, None where there is none."""
    parts = [
        f"# Beside other libraries: {told['host']}, {_card(told['adapter'])}",
        _about(told),
        *([_SOFTWARE] if told["software"] else []),
        *([] if picture is None else [f"![Largest error by mean over standard deviation]({picture})"]),
        *_accuracy(told),
        *_times(told),
        *_abilities(told),
    ]
    return "\n\n".join(parts) + "\n"


def _about(told: Line) -> str:
    packages = ", ".join(f"{package} {version}" for package, version in told["versions"].items())
    features = ", ".join(told["features"]) or "none"
    return (
        f"{adapter_name(told)}; features of the device: {features}. {packages}. Recorded "
        f"{told['recorded']} with `{told['command']}`. All libraries run on one device: each asks "
        "for one and gets it."
    )


def adapter_name(told: Line) -> str:
    """What the host tells of the card, with its driver where that is told, too."""
    name, description = _card(told["adapter"]), told["adapter"]["description"]
    return f"{name} ({description})" if name and description else name or description


def _card(adapter: Line) -> str:
    return adapter["device"] or " ".join((adapter["vendor"], adapter["architecture"])).strip()


def _by_problem(lines: Sequence[Line]) -> dict[tuple[str, str, int, int], list[Line]]:
    """Lines by op, storage type, rows and columns."""
    groups: dict[tuple[str, str, int, int], list[Line]] = {}
    for line in lines:
        groups.setdefault((line["op"], line["dtype"], line["rows"], line["cols"]), []).append(line)
    return groups


def _accuracy(told: Line) -> Iterator[str]:
    groups = _by_problem(told["accuracy"])
    if groups:
        yield "## Errors"
        yield (
            "Largest absolute error of y against float64, from the x, weight and bias that were stored, by "
            "mean over standard deviation of x. float16 has no digit left for a standard deviation of 1 "
            "beyond 2048."
        )
    for (op, dtype, rows, cols), lines in groups.items():
        yield f"### `{op}`, {dtype}, {rows} x {cols}\n\n{accuracy_table(lines)}"


def first_errors(told: Line, op: str) -> list[Line]:
    """An op's errors in float32 at the first shape, a line for each library."""
    return _by_problem(told["accuracy"]).get((op, "float32", *SHAPES[0]), [])


def accuracy_table(lines: Sequence[Line]) -> str:
    """Errors of one problem, a line for each library; those that have none say why."""
    means = [mean for mean in MEANS if any(str(mean) in line["errors"] for line in lines)] or [0]
    rows = [["mean / sd", *map(mean_text, means)], ["---", *["---:"] * len(means)]]
    whys = {}
    for line in lines:
        cells = [_error(line["errors"].get(str(mean))) for mean in means]
        if line.get("why"):
            whys[line["library"]] = line["why"]
        rows.append([line["library"], *cells])
    return _table(rows) + _reasons(whys)


def mean_text(mean: int) -> str:
    """A mean as heads of tables have it."""
    return str(mean) if mean <= 100 else f"1e{len(str(mean)) - 1}"


def _error(found: float | str | None) -> str:
    if found is None:
        return _NOTHING
    return f"**{found}**" if isinstance(found, str) else f"{found:.1e}"


def _times(told: Line) -> Iterator[str]:
    groups = _by_problem(told["times"])
    if not groups:
        return
    yield "## Times" + (" of a software adapter" if told["software"] else "")
    yield (
        "GPU: the dispatches of one call of each library, written down and dispatched again through one "
        "stopwatch, in turn with a copy of x and with the others, medians; what a library writes or copies "
        "in between is not in it. Right after, what was dispatched gave the same answer, bit for bit, in "
        "256 rows at either end. Call: a call as an app makes it, its data on the device, until the "
        "queue is empty, in turn, medians. ~ marks samples that scatter."
    )
    for (op, dtype, rows, cols), lines in groups.items():
        methods = sorted({line["method"] for line in lines if "method" in line})
        title = f"### `{op}`, {dtype}, {rows} x {cols}, by {' and '.join(methods) or 'nothing'}"
        yield f"{title}\n\n{times_table(lines)}"


def times_table(lines: Sequence[Line]) -> str:
    """Times of one problem; those that have none say why."""
    columns: list[tuple[str, Callable[[Line], str]]] = [
        ("library", lambda line: line["library"]),
        ("dispatches", lambda line: str(line.get("dispatches", _NOTHING))),
        (
            "GPU, us",
            lambda line: _micro(line.get("gpu_ns")) + ("~" if "noisy" in line.get("flags", ()) else ""),
        ),
        (
            "% of copy",
            lambda line: f"{line['percent_of_copy']:.1f}" if "percent_of_copy" in line else _NOTHING,
        ),
        ("call, us", lambda line: _micro(line.get("wall_ns"))),
        ("largest error", lambda line: _error(line.get("error"))),
    ]
    rows = [[head for head, _ in columns], ["---", *["---:"] * (len(columns) - 1)]]
    rows += [[cell(line) for _, cell in columns] for line in lines]
    whys = {line["library"]: line.get("why") or line.get("why_no_time") for line in lines}
    return _table(rows) + _reasons({library: why for library, why in whys.items() if why})


def _micro(nanoseconds: float | None) -> str:
    return _NOTHING if nanoseconds is None else f"{nanoseconds / 1000:.1f}"


def _abilities(told: Line) -> Iterator[str]:
    lines: Sequence[Line] = told["abilities"]
    if not lines:
        return
    yield "## What each can do"
    yield (
        "Tried on this device: dispatches of a call that was made, or no, for the reason below the table. "
        "float16 and bfloat16 are storage types of x, LayerNorm; the last rows are float32."
    )
    yield abilities_table(lines, told)


def abilities_table(lines: Sequence[Line], told: Line) -> str:
    """Abilities by library, with the reasons of those that lack one."""
    libraries = [
        library.name for library in LIBRARIES if any(one["library"] == library.name for one in lines)
    ]
    found = {(one["ability"], one["library"]): one for one in lines}
    rows = [["", *libraries], ["---"] * (len(libraries) + 1)]
    for ability in dict.fromkeys(one["ability"] for one in lines):
        own = (found.get((ability, library)) for library in libraries)
        rows.append(
            [ability, *(_NOTHING if one is None else one["said"] if one["can"] else "no" for one in own)]
        )
    ends = {
        line["library"]: line["errors"].get(str(MEANS[-1]), _NOTHING)
        for line in first_errors(told, "layer_norm")
    }
    rows.append(
        ["LayerNorm at a mean of 1e6 sd", *(_at_the_end(ends.get(one, _NOTHING)) for one in libraries)]
    )
    whys = {f"{one['library']}, {one['ability']}": one["said"] for one in lines if not one["can"]}
    return _table(rows) + _reasons(whys)


def _at_the_end(error: float | str) -> str:
    return error if isinstance(error, str) else f"off by {error:.1e}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)


def _reasons(whys: Mapping[str, str]) -> str:
    return "".join(f"\n{'' if at else chr(10)}- {who}: {why}" for at, (who, why) in enumerate(whys.items()))


def to_csv(told: Line) -> str:
    """A line for each error and each time."""
    head = [
        "what",
        "library",
        "op",
        "dtype",
        "rows",
        "cols",
        "mean",
        "error",
        "gpu_ns",
        "wall_ns",
        "dispatches",
        "why",
    ]
    to = io.StringIO()
    writer = csv.DictWriter(to, head, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for line in told["accuracy"]:
        errors = line["errors"] or {"": ""}
        writer.writerows(
            {**line, "what": "accuracy", "mean": mean, "error": error} for mean, error in errors.items()
        )
    for line in told["times"]:
        writer.writerow({"why": line.get("why_no_time", ""), **line, "what": "time"})
    return to.getvalue()


def write_readme(out: Path, told: Line) -> None:
    """Put the record's block between its markers."""
    write_text(PAGE, between_markers(PAGE, out.name, block(out.name, told)))


def block(name: str, told: Line) -> str:
    """LayerNorm in float32: of a GPU its times in the last problem; of a software adapter, whose times say
    nothing, the picture, and errors at the first shape.
    """
    return _errors_block(name, told) if told["software"] else _times_block(name, told)


def _times_block(name: str, told: Line) -> str:
    groups = _by_problem(told["times"])
    *_, problem = (key for key in groups if key[:2] == ("layer_norm", "float32"))
    _, _, rows, cols = problem
    words = (
        f"LayerNorm, float32, {rows} x {cols}, on {adapter_name(told)}, in {told['host']}: each "
        f"library's own dispatches, in turn with the others and a copy, and whole calls ([the "
        f"record](bench/results/{name}.md); {told['recorded']}, `{told['command']}`):"
    )
    return f"{_wrapped(words)}\n\n{times_table(groups[problem])}"


def _errors_block(name: str, told: Line) -> str:
    rows, cols = SHAPES[0]
    picture = f"![Largest error by mean over standard deviation](bench/results/{name}.svg)"
    words = (
        f"LayerNorm, float32, {rows} x {cols}, in {told['host']}: the largest error against float64 by mean "
        f"over standard deviation of x, each library on the same device ([the "
        f"record](bench/results/{name}.md); {told['recorded']}, `{told['command']}`):"
    )
    return "\n\n".join([picture, _wrapped(words), accuracy_table(first_errors(told, "layer_norm"))])


def _wrapped(words: str) -> str:
    return textwrap.fill(words, _LINE, break_long_words=False, break_on_hyphens=False)
