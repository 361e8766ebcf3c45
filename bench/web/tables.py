"""The tables of a browser record."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.numerics import between_markers
from bench.record.page_block import PAGE
from bench.web.plan import LIBRARIES, MEANS, SHAPES
from webnorm.files.atomic import write_text

Line = Mapping[str, Any]
_NOTHING = "-"
_LINE = 130
_SOFTWARE = (
    "**The adapter is software and runs GPU programs on the processor. Its times do not predict a GPU's, "
    "and do not rank the libraries.** The errors are valid."
)


def to_markdown(data: Line, picture: str | None) -> str:
    """Return the record as Markdown; `picture` is the name of the picture in the same folder, or None."""
    parts = [
        f"# webnorm and other libraries: {data['host']}, {_card(data['adapter'])}",
        _about(data),
        *([_SOFTWARE] if data["software"] else []),
        *([] if picture is None else [f"![Largest error by mean over standard deviation]({picture})"]),
        *_accuracy(data),
        *_times(data),
        *_abilities(data),
    ]
    return "\n\n".join(parts) + "\n"


def _about(data: Line) -> str:
    packages = ", ".join(f"{package} {version}" for package, version in data["versions"].items())
    features = ", ".join(data["features"]) or "none"
    return (
        f"{adapter_name(data)}; features of the device: {features}. {packages}. Recorded "
        f"{data['recorded']} with `{data['command']}`. All libraries share one device, which "
        "each gets when it requests a device."
    )


def adapter_name(data: Line) -> str:
    """Return the name of the card, with its driver if the host reports it."""
    name, description = _card(data["adapter"]), data["adapter"]["description"]
    return f"{name} ({description})" if name and description else name or description


def _card(adapter: Line) -> str:
    return adapter["device"] or " ".join((adapter["vendor"], adapter["architecture"])).strip()


def _by_problem(lines: Sequence[Line]) -> dict[tuple[str, str, int, int], list[Line]]:
    """Group lines by op, storage type, rows and columns."""
    groups: dict[tuple[str, str, int, int], list[Line]] = {}
    for line in lines:
        groups.setdefault((line["op"], line["dtype"], line["rows"], line["cols"]), []).append(line)
    return groups


def _accuracy(data: Line) -> Iterator[str]:
    groups = _by_problem(data["accuracy"])
    if groups:
        yield "## Errors"
        yield (
            "Largest absolute error of y against float64, for the stored x, weight and bias, by the ratio of "
            "mean to standard deviation of x. For a standard deviation of 1, float16 has no digits left "
            "beyond a mean of 2048."
        )
    for (op, dtype, rows, cols), lines in groups.items():
        yield f"### `{op}`, {dtype}, {rows} x {cols}\n\n{accuracy_table(lines)}"


def first_errors(data: Line, op: str) -> list[Line]:
    """Return an op's errors in float32 at the first shape, one line per library."""
    return _by_problem(data["accuracy"]).get((op, "float32", *SHAPES[0]), [])


def accuracy_table(lines: Sequence[Line]) -> str:
    """Return the errors of one problem, one line per library, with reasons for missing ones."""
    means = [mean for mean in MEANS if any(str(mean) in line["errors"] for line in lines)] or [0]
    rows = [["mean / sd", *map(mean_text, means)], ["---", *["---:"] * len(means)]]
    reasons = {}
    for line in lines:
        cells = [_error(line["errors"].get(str(mean))) for mean in means]
        if line.get("why"):
            reasons[line["library"]] = line["why"]
        rows.append([line["library"], *cells])
    return _table(rows) + _reasons(reasons)


def mean_text(mean: int) -> str:
    """Return a mean as it appears in table headings."""
    return str(mean) if mean <= 100 else f"1e{len(str(mean)) - 1}"


def _error(found: float | str | None) -> str:
    if found is None:
        return _NOTHING
    return f"**{found}**" if isinstance(found, str) else f"{found:.1e}"


def _times(data: Line) -> Iterator[str]:
    groups = _by_problem(data["times"])
    if not groups:
        return
    yield "## Times" + (" of a software adapter" if data["software"] else "")
    yield (
        "GPU: the dispatches of one call of each library are recorded and replayed by one stopwatch, in turn "
        "with a copy of x and with the others. Medians are shown. Writes and copies between the dispatches "
        "are not included. Right after the timing, the replay gave the same answer, bit for bit, in the "
        "first and last 256 rows. Call: the median time of a call as an app makes it, with data on the "
        "device, until the queue is empty. ~ marks samples that scatter."
    )
    for (op, dtype, rows, cols), lines in groups.items():
        methods = sorted({line["method"] for line in lines if "method" in line})
        title = f"### `{op}`, {dtype}, {rows} x {cols}, by {' and '.join(methods) or 'nothing'}"
        yield f"{title}\n\n{times_table(lines)}"


def times_table(lines: Sequence[Line]) -> str:
    """Return the times of one problem, with reasons for missing ones."""
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
    reasons = {line["library"]: line.get("why") or line.get("why_no_time") for line in lines}
    return _table(rows) + _reasons({library: why for library, why in reasons.items() if why})


def _micro(nanoseconds: float | None) -> str:
    return _NOTHING if nanoseconds is None else f"{nanoseconds / 1000:.1f}"


def _abilities(data: Line) -> Iterator[str]:
    lines: Sequence[Line] = data["abilities"]
    if not lines:
        return
    yield "## Abilities"
    yield (
        "Each ability was tried on this device. A cell shows the dispatches of the call, or no; the reasons "
        "are below the table. float16 and bfloat16 are storage types of x in LayerNorm. The last rows are "
        "float32."
    )
    yield abilities_table(lines, data)


def abilities_table(lines: Sequence[Line], data: Line) -> str:
    """Return a table of abilities by library, with the reasons for missing ones."""
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
        for line in first_errors(data, "layer_norm")
    }
    rows.append(
        ["LayerNorm at a mean of 1e6 sd", *(_at_the_end(ends.get(one, _NOTHING)) for one in libraries)]
    )
    reasons = {f"{one['library']}, {one['ability']}": one["said"] for one in lines if not one["can"]}
    return _table(rows) + _reasons(reasons)


def _at_the_end(error: float | str) -> str:
    return error if isinstance(error, str) else f"off by {error:.1e}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)


def _reasons(reasons: Mapping[str, str]) -> str:
    return "".join(
        f"\n{'' if at else chr(10)}- {who}: {why}" for at, (who, why) in enumerate(reasons.items())
    )


def to_csv(data: Line) -> str:
    """Return the record as CSV, one line per error and per time."""
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
    for line in data["accuracy"]:
        errors = line["errors"] or {"": ""}
        writer.writerows(
            {**line, "what": "accuracy", "mean": mean, "error": error} for mean, error in errors.items()
        )
    for line in data["times"]:
        writer.writerow({"why": line.get("why_no_time", ""), **line, "what": "time"})
    return to.getvalue()


def write_block(out: Path, data: Line) -> None:
    """Write the record's block between its markers."""
    write_text(PAGE, between_markers(PAGE, out.name, block(out.name, data)))


def block(name: str, data: Line) -> str:
    """Return the block of docs/performance.md for LayerNorm in float32.

    For a GPU it has the times of the last problem. For a software adapter, whose times are not meaningful, it
    has the picture and the errors at the first shape.
    """
    return _errors_block(name, data) if data["software"] else _times_block(name, data)


def _times_block(name: str, data: Line) -> str:
    groups = _by_problem(data["times"])
    *_, problem = (key for key in groups if key[:2] == ("layer_norm", "float32"))
    _, _, rows, cols = problem
    words = (
        f"LayerNorm, float32, {rows} x {cols}, on {adapter_name(data)}, in {data['host']}. The column GPU "
        "is the time of all dispatches of one call, sampled in turn with the other libraries and a copy. The "
        "column call is the time of a whole call from JavaScript, with data on the device. All times are "
        "medians; smaller is better. The "
        f"[record](../bench/results/{name}.md) is from {data['recorded']}, by `{data['command']}`:"
    )
    return f"{_wrapped(words)}\n\n{times_table(groups[problem])}"


def _errors_block(name: str, data: Line) -> str:
    rows, cols = SHAPES[0]
    picture = f"![Largest error by mean over standard deviation](../bench/results/{name}.svg)"
    words = (
        f"LayerNorm, float32, {rows} x {cols}, in {data['host']}: the largest absolute error of y against "
        "float64, by the ratio of mean to standard deviation (sd) of x. Smaller is better. All libraries "
        f"share one device. The [record](../bench/results/{name}.md) is from {data['recorded']}, by "
        f"`{data['command']}`:"
    )
    return "\n\n".join([picture, _wrapped(words), accuracy_table(first_errors(data, "layer_norm"))])


def _wrapped(words: str) -> str:
    return textwrap.fill(words, _LINE, break_long_words=False, break_on_hyphens=False)
