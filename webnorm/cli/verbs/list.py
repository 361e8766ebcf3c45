"""`webnorm list`: list the ops and kernels."""

from __future__ import annotations

import json as json_format
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.cells import cell_len
from rich.padding import Padding
from rich.text import Text
from typer import Argument, Option

from webnorm.cli.options import shared
from webnorm.cli.options.values import adapter_or_none, report_unreadable
from webnorm.cli.terminal.screen import Screen, escaped_line
from webnorm.cli.terminal.streams import emit
from webnorm.errors import WebnormError, one_line

if TYPE_CHECKING:
    from webnorm.gpu.device import AdapterInfo
    from webnorm.kernels.headers.kernel import Kernel
    from webnorm.op.problem import Problem

# The problem of --supported, for ops with sizes of these names. A kernel may still refuse longer rows.
_SIZES = {"rows": 1024, "cols": 1024}
_INDENT = 2
# Styles of the answers for a file: the adapter supports all its ops, none, or some.
_STYLES = {"yes": "green", "no": "red", "partly": "yellow"}
# The least width of a summary on a narrow screen.
_LEAST_ROOM = 12


def list_kernels(
    names: Annotated[
        list[str] | None,
        Argument(
            help="List these kernels: names, patterns such as 'welford*' or .wgsl files. A single kernel is "
            "shown in full."
        ),
    ] = None,
    op: Annotated[
        str | None,
        Option(
            help="List only kernels of these ops: an op, a folder with an op.py, a list of them, or a "
            "pattern such as 'rms*'."
        ),
    ] = None,
    dtype: shared.Dtype = None,
    option: shared.Option = None,
    verbose: Annotated[
        bool, Option("--verbose", "-v", help="Show everything that each kernel's header declares.")
    ] = False,
    json: Annotated[
        bool, Option("--json", help="Print a list of JSON objects, one per op and kernel.")
    ] = False,
    supported: Annotated[
        bool, Option("--supported", help="Show which kernels the adapter supports.")
    ] = False,
    wgsl: shared.Wgsl = None,
    adapter: shared.Adapter = None,
    backend: shared.Backend = None,
) -> None:
    """--dtype and --option leave out ops without such a problem, and --supported then tests that problem.
    --adapter implies --supported.
    """
    from webnorm.kernels.headers.library import survey
    from webnorm.op.registry import OPS
    from webnorm.op.selection import select_names

    ops = OPS if op is None else select_names(op, OPS, "op")
    kernels, broken = survey(wgsl or ())
    kernels = _named([*kernels, *_loaded(names or (), kernels)], [*ops], names)
    problems = _problems(kernels, dtype or "float32", option or ())
    asked = supported or adapter is not None
    info = adapter_or_none(adapter) if asked else None
    found = [
        _answered(kernel, problem, info) if asked else _Listed(kernel)
        for kernel in kernels
        if (problem := problems.get(kernel.op.name)) is not None
    ]
    if json:
        emit(json_format.dumps([one.as_json() for one in found], indent=1))
    elif verbose or (names and len({one.kernel.name for one in found}) == 1):
        _show_long(Screen(), _by_file(found))
    else:
        about = (
            f"{dtype or 'float32'} of {_SIZES['cols']} columns, on {info or 'no adapter'}" if asked else None
        )
        _show_short(Screen(), _by_file(found), about)
    report_unreadable(one for one in broken if one.op.name in ops)


def _loaded(names: Sequence[str], known: Sequence[Kernel]) -> Iterator[Kernel]:
    """Yield the kernels of the named files, except those already known."""
    from webnorm.kernels.headers.header import load_all
    from webnorm.kernels.headers.sources import is_wgsl

    for name in names:
        if is_wgsl(name) and not any(_fits(kernel, name) for kernel in known):
            yield from load_all(Path(name))


def _named(kernels: Sequence[Kernel], ops: Sequence[str], patterns: Sequence[str] | None) -> list[Kernel]:
    """Return the kernels of some ops that match one of the patterns; all of them without patterns."""
    from webnorm.kernels.headers.library import unknown_kernel
    from webnorm.kernels.headers.sources import is_wgsl

    own = [kernel for kernel in kernels if kernel.op.name in ops]
    for pattern in patterns or ():
        if not any(_fits(kernel, pattern) for kernel in own):
            raise unknown_kernel(Path(pattern).stem if is_wgsl(pattern) else pattern, kernels, ops)
    return [kernel for kernel in own if not patterns or any(_fits(kernel, one) for one in patterns)]


def _fits(kernel: Kernel, pattern: str) -> bool:
    from webnorm.files.atomic import resolved
    from webnorm.kernels.headers.sources import is_wgsl
    from webnorm.op.selection import matches

    if is_wgsl(pattern):
        return resolved(kernel.path) == resolved(Path(pattern))
    return matches(pattern, kernel.name) or matches(pattern, kernel.label)


def _problems(kernels: Iterable[Kernel], dtype: str, options: Sequence[str]) -> dict[str, Problem]:
    """Return the problem of each op that supports it; raise UnsupportedProblem if no op does."""
    from webnorm.op.op import UnsupportedProblem
    from webnorm.op.registry import options_of

    found, foreign = {}, None
    for op in {kernel.op.name: kernel.op for kernel in kernels}.values():
        own = {name: size for name, size in _SIZES.items() if name in op.problem_type.SIZES}
        try:
            found[op.name] = op.problem(*op.sizes_of(own), dtype=dtype, options=options_of(op, options))
        except UnsupportedProblem as error:
            foreign = error
    if foreign is not None and not found:
        raise foreign
    return found


def _answered(kernel: Kernel, problem: Problem, info: AdapterInfo | None) -> _Listed:
    """Return a kernel with the answer whether an adapter runs it, and why not."""
    from webnorm.choice.defaults import default_variant

    if info is None:
        return _Listed(kernel, False, "there is no adapter")
    try:
        reason = default_variant(kernel, problem, info.traits).refusal(problem, info.traits)
    except WebnormError as error:
        reason = str(error)
    return _Listed(kernel, reason is None, reason)


@dataclass(frozen=True)
class _Listed:
    """A kernel, and whether an adapter runs it, with the reason if not; None where no adapter was asked."""

    kernel: Kernel
    runs: bool | None = None
    reason: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object of a kernel."""
        kernel = self.kernel
        return {
            "op": kernel.op.name,
            "kernel": kernel.name,
            "summary": kernel.summary,
            "differs": kernel.differs,
            "unstable": kernel.unstable,
            "features": _features(kernel),
            "tune": {axis: list(values) for axis, values in kernel.tune.items()},
            "path": str(kernel.path),
            "runs": self.runs,
            "reason": self.reason,
        }


def _by_file(found: Iterable[_Listed]) -> list[list[_Listed]]:
    """Return the kernels grouped by file, with files of the same ops next to each other."""
    files: dict[tuple[object, str], list[_Listed]] = {}
    for one in found:
        files.setdefault((one.kernel.path, one.kernel.name), []).append(one)
    ladders: dict[str, list[list[_Listed]]] = {}
    for served in files.values():
        ladders.setdefault(_ops(served), []).append(served)
    return [served for ladder in ladders.values() for served in ladder]


def _show_short(console: Screen, files: Sequence[Sequence[_Listed]], here: str | None = None) -> None:
    """Print one line per file below its ops, cut to the width of the screen; a pipe gets whole lines.

    `here` describes the adapter and the problem of --supported. Lines then contain "yes", or "no" with a
    reason.
    """
    if not files:
        _say(console, escaped_line("no kernel; add a .wgsl file next to the op.py"), 0)
        return
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


def _show_long(console: Screen, files: Sequence[Sequence[_Listed]]) -> None:
    """Print everything in the headers."""
    for served in files:
        kernel = served[0].kernel
        axes = (f"{axis} {', '.join(map(str, values))}" for axis, values in kernel.tune.items())
        facts = {
            "": kernel.summary,
            "differs": kernel.differs,
            "unstable": kernel.unstable,
            "needs": ", ".join(f"{name} ({how})" for name, how in _features(kernel).items()),
            "constants": "; ".join(axes),
            "file": str(kernel.path),
            "runs here": ": ".join(filter(None, (_answer(served), _refused(served)))),
        }
        _say(console, escaped_line(", ".join(one.kernel.label for one in served), "bold"), 0)
        for fact, text in facts.items():
            if text:
                head = Text(f"{fact}: " if fact else "", "dim")
                _say(console, head.append_text(escaped_line(text, "not dim")), _INDENT)


def _ops(served: Sequence[_Listed]) -> str:
    return ", ".join(one.kernel.op.name for one in served)


def _notes(kernel: Kernel) -> Iterator[str]:
    if kernel.unstable:
        yield "unstable"
    for name, how in _features(kernel).items():
        if how == "required":
            yield f"needs {name}"


def _answer(served: Sequence[_Listed]) -> str:
    """Return "yes", "no" or "partly" for the kernels of a file; "" without --supported."""
    runs = [one.runs for one in served]
    return "" if None in runs else "yes" if all(runs) else "partly" if any(runs) else "no"


def _features(kernel: Kernel) -> dict[str, str]:
    """Return the features that a kernel uses, each "required" or "optional"."""
    required = kernel.required_features
    return {name: "required" if name in required else "optional" for name in kernel.features}


def _refused(served: Sequence[_Listed]) -> str | None:
    """Return why the kernels of a file do not run, once if all have the same reason; None if they run."""
    reasons: Mapping[str, str] = {one.kernel.op.name: one.reason for one in served if one.reason is not None}
    if len(reasons) == len(served) and len({*reasons.values()}) == 1:
        return next(iter(reasons.values()))
    return "; ".join(f"{op}: {reason}" for op, reason in reasons.items()) or None


def _say(console: Screen, line: Text, indent: int) -> None:
    """Print a line, which wraps only on terminals."""
    if console.is_terminal:
        console.print(Padding(line, (0, 0, 0, indent), expand=False))
    else:
        console.print(Text(" " * indent).append_text(line), soft_wrap=True)
