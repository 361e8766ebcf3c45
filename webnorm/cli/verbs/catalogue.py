"""What `list` shows of kernels: a line each, all that a header tells, or JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.padding import Padding
from rich.text import Text

from webnorm.cli.terminal.screen import Screen, escaped_line
from webnorm.errors import one_line
from webnorm.kernels.headers.kernel import Kernel

_INDENT = 2
# What is said of a file whose ops all run on an adapter, or none, or some.
_STYLES = {"yes": "green", "no": "red", "partly": "yellow"}
# What is left of a summary on a narrow screen.
_LEAST_ROOM = 12


@dataclass(frozen=True)
class ListedKernel:
    """A kernel, and whether an adapter runs it, with the reason if not; None where no adapter was asked."""

    kernel: Kernel
    runs: bool | None = None
    reason: str | None = None

    def as_json(self) -> dict[str, Any]:
        """What programs are told."""
        kernel = self.kernel
        return {
            "op": kernel.op.name,
            "kernel": kernel.name,
            "summary": kernel.summary,
            "differs": kernel.differs,
            "unstable": kernel.unstable,
            "features": features(kernel),
            "tune": {axis: list(values) for axis, values in kernel.tune.items()},
            "path": str(kernel.path),
            "runs": self.runs,
            "reason": self.reason,
        }


def features(kernel: Kernel) -> dict[str, str]:
    """The features that a kernel uses, each "required" or "optional"."""
    return {name: "required" if tree == 1 else "optional" for name, tree in kernel.features.items()}


def to_json(found: Iterable[ListedKernel]) -> str:
    """A list of objects."""
    return json.dumps([one.as_json() for one in found], indent=1)


def by_file(found: Iterable[ListedKernel]) -> list[list[ListedKernel]]:
    """The kernels of one file together, and the files that serve the same ops."""
    files: dict[tuple[object, str], list[ListedKernel]] = {}
    for one in found:
        files.setdefault((one.kernel.path, one.kernel.name), []).append(one)
    ladders: dict[str, list[list[ListedKernel]]] = {}
    for served in files.values():
        ladders.setdefault(_ops(served), []).append(served)
    return [served for ladder in ladders.values() for served in ladder]


def show_short(console: Screen, files: Sequence[Sequence[ListedKernel]], here: str | None = None) -> None:
    """A line for each file below the ops that it serves, cut to fit; a pipe gets lines of any length.

    Where an adapter was asked, `here` says which, and of what; lines then have "yes", or "no" and why.
    """
    if here is not None:
        _say(console, escaped_line(f"runs here: {here}"), 0)
    width = max(cell_len(one_line(served[0].kernel.name)) for served in files)
    room_for_answers = max(len(_answer(served)) for served in files)
    ops = None
    for served in files:
        if ops != (ops := _ops(served)):
            _say(console, escaped_line(ops, "bold"), 0)
        kernel = served[0].kernel
        name = one_line(kernel.name)
        head = escaped_line(name, "cyan").append(" " * (width - cell_len(name) + 2))
        refused = _refused(served)
        if answer := _answer(served):
            head.append(answer.ljust(room_for_answers + 2), _STYLES[answer])
        about, style = (refused, "red") if refused else (kernel.summary, "")
        notes = "".join(f" ({note})" for note in _notes(kernel))
        if console.is_terminal:
            room = console.width - _INDENT - head.cell_len - cell_len(notes)
            about = textwrap.shorten(about, max(room, _LEAST_ROOM), placeholder="…")
        _say(console, head.append(escaped_line(about, style)).append(notes, "yellow"), _INDENT)


def show_long(console: Screen, files: Sequence[Sequence[ListedKernel]]) -> None:
    """All that the headers tell."""
    for served in files:
        kernel = served[0].kernel
        axes = (f"{axis} {', '.join(map(str, values))}" for axis, values in kernel.tune.items())
        facts = {
            "": kernel.summary,
            "differs": kernel.differs,
            "unstable": kernel.unstable,
            "needs": ", ".join(f"{name} ({how})" for name, how in features(kernel).items()),
            "constants": "; ".join(axes),
            "file": str(kernel.path),
            "runs here": ": ".join(filter(None, (_answer(served), _refused(served)))),
        }
        _say(console, escaped_line(", ".join(one.kernel.label for one in served), "bold"), 0)
        for fact, text in facts.items():
            if text:
                head = Text(f"{fact}: " if fact else "", "dim")
                _say(console, head.append_text(escaped_line(text, "not dim")), _INDENT)


def _ops(served: Sequence[ListedKernel]) -> str:
    return ", ".join(one.kernel.op.name for one in served)


def _notes(kernel: Kernel) -> Iterator[str]:
    if kernel.unstable:
        yield "unstable"
    for name, how in features(kernel).items():
        if how == "required":
            yield f"needs {name}"


def _answer(served: Sequence[ListedKernel]) -> str:
    """Whether the kernels of a file run; empty where no adapter was asked."""
    runs = [one.runs for one in served]
    return "" if None in runs else "yes" if all(runs) else "partly" if any(runs) else "no"


def _refused(served: Sequence[ListedKernel]) -> str | None:
    """Why the kernels of a file do not run, once where that is the same for all; None where they do."""
    reasons: Mapping[str, str] = {one.kernel.op.name: one.reason for one in served if one.reason is not None}
    if len(reasons) == len(served) and len({*reasons.values()}) == 1:
        return next(iter(reasons.values()))
    return "; ".join(f"{op}: {reason}" for op, reason in reasons.items()) or None


def _say(console: Screen, line: Text, indent: int) -> None:
    """A line, which breaks on terminals alone."""
    if console.is_terminal:
        console.print(Padding(line, (0, 0, 0, indent), expand=False))
    else:
        console.print(Text(" " * indent).append_text(line), soft_wrap=True)
