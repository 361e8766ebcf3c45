"""Outputs of results: files, which must not overwrite inputs or each other, and - for standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from webnorm.cli.terminal.streams import emit
from webnorm.errors import WebnormError, shell_command

if TYPE_CHECKING:
    from webnorm.lab.results.result import Report


# The options that accept - for standard output.
_TO_STDOUT = ("--json", "--csv", "--markdown")
Action = Callable[[], object]


def command_line() -> str:
    """Return the command line, quoted for a shell."""
    return shell_command(["webnorm", *sys.argv[1:]])


def check_outputs(given: Mapping[str, Path | None], inputs: Iterable[Path] = ()) -> None:
    """Raise WebnormError, before the work begins, for an output that cannot be written or overwrites a file.

    `given` maps options to paths; - is standard output. `inputs` are files that must not be overwritten.
    """
    from webnorm.files.atomic import check_writable, same_place

    checked: dict[str, Path] = {}
    kept = list(inputs)
    for flag, path in given.items():
        if path is None:
            continue
        if str(path) != "-":
            _refuse_stream(flag, path)
            check_writable(path)
        for other, earlier in checked.items():
            named = "-" not in (str(path), str(earlier))
            if path == earlier or (named and same_place(path, earlier)):
                raise WebnormError(f"{flag} and {other} are both {path}; expected different files")
        if str(path) != "-" and any(one.exists() and same_place(path, one) for one in kept):
            raise WebnormError(f"{flag} is {path}, which is an input; expected another file")
        checked[flag] = path


def _refuse_stream(flag: str, path: Path) -> None:
    """Refuse an output file that standard output or standard error also writes to."""
    for stream, name in ((sys.stdout, "standard output"), (sys.stderr, "standard error")):
        try:
            same = os.path.samestat(path.stat(), os.fstat(stream.fileno()))
        except (OSError, ValueError):
            continue
        if same and (stream.isatty() or not path.is_char_device()):
            hint = ", or - for standard output" if flag in _TO_STDOUT else ""
            raise WebnormError(f"{flag} is {path}, which is {name}; expected another file{hint}")


def path_with_suffix(path: Path | None, name: str) -> Path | None:
    """Return the file name for one of several platforms: out.json becomes out-NAME.json."""
    return None if path is None else path.with_name(f"{path.stem}-{name}{path.suffix}")


def report_steps(report: Report, outputs: Mapping[str, Path | None]) -> tuple[list[Action], list[Action]]:
    """Return the steps that write a report to files, and the steps that print it for -."""
    from webnorm.lab.results import result_files, tables

    steps: tuple[list[Action], list[Action]] = ([], [])
    texts = (result_files.to_json, tables.to_csv, tables.to_markdown)
    for flag, text in zip(_TO_STDOUT, texts, strict=True):
        path = outputs.get(flag)
        if path is not None:
            steps[str(path) == "-"].append(partial(_put, report, text, path))
    return steps


def _put(report: Report, text: Callable[[Report], str], path: Path) -> None:
    write_or_print(text(report), path)


def write_or_print(text: str, path: Path) -> None:
    """Write a text to a file, or print it if the path is -."""
    from webnorm.files import atomic

    if str(path) == "-":
        emit(text)
    else:
        atomic.write_text(path, text)


def run_each_step(*steps: Action) -> None:
    """Take every step, then raise one WebnormError for all steps that failed."""
    failed = []
    for step in steps:
        try:
            step()
        except WebnormError as error:
            failed.append(str(error))
    if failed:
        raise WebnormError("; ".join(dict.fromkeys(failed)))
