"""The command-line arguments of the scripts that record an adapter's results."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from webnorm.engines import node_webgpu
from webnorm.errors import WebnormError
from webnorm.op.dtypes import STORAGE
from webnorm.ops.norms.op import OPS as NORM_OPS

# The exit status if a result is unknown, as in webnorm/cli/work/jobs.py. A test checks that they are equal.
INCONCLUSIVE = 3


def bare_parser(description: str | None, program: str | None = None) -> argparse.ArgumentParser:
    """Return a parser without options; its help shows the description, a script's docstring, as it is."""
    return argparse.ArgumentParser(
        prog=program, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def parser(description: str | None, out: str) -> argparse.ArgumentParser:
    """Return a parser with the shared options; `out` is the help text of --out."""
    found = bare_parser(description)
    found.add_argument("--out", type=Path, required=True, help=out)
    found.add_argument("--adapter")
    found.add_argument("--op", choices=[op.name for op in NORM_OPS])
    found.add_argument("--dtype", choices=STORAGE)
    found.add_argument("--rows", type=positive, nargs="*")
    found.add_argument("--cols", type=positive, nargs="*")
    found.add_argument("--rounds", type=positive, default=30)
    return found


def add_dawn(to: argparse.ArgumentParser, what: str) -> None:
    """Add the option --dawn [FOLDER] to a parser; `what` starts its help text."""
    to.add_argument(
        "--dawn",
        type=Path,
        nargs="?",
        const=node_webgpu.webgpu(),
        metavar="FOLDER",
        help=f"{what}: the npm package webgpu, by default where `webnorm doctor --fix --browser` puts it",
    )


def check_dawn(webgpu: Path) -> None:
    """Raise WebnormError if a --dawn FOLDER is not the npm package webgpu."""
    if not (webgpu / "index.js").exists():
        raise WebnormError(f"--dawn {webgpu}: no index.js; expected the folder of the npm package webgpu")


def positive(text: str) -> int:
    """Parse a whole number of at least 1."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"it is {text!r}; expected a whole number of at least 1")
    return number


def whole(text: str) -> int:
    """Parse a whole number of at least 0."""
    return 0 if text == "0" else positive(text)


def shapes(arguments: argparse.Namespace, default: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
    """Return the pairs of --rows and --cols, or the default; WebnormError if their counts differ."""
    rows, cols = arguments.rows or (), arguments.cols or ()
    if len(rows) != len(cols):
        raise WebnormError(
            f"--rows has {len(rows)} values and --cols has {len(cols)}; they form pairs: give equal numbers"
        )
    return tuple(zip(rows, cols, strict=True)) or default


def ops_and_dtypes(arguments: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Return the requested ops and storage types, or the default ones."""
    ops = [arguments.op] if arguments.op else ["layer_norm", "rms_norm", "layer_norm_backward"]
    return ops, [arguments.dtype] if arguments.dtype else ["float32", "float16"]


def command(script: str, *places: Path | None) -> str:
    """Return the command line for a record; paths outside the current folder are reduced to their names.

    A record is published, and the folders of the machine that made it stay private.
    """
    here = Path.cwd()
    shown = {}
    for place in places:
        if place is not None:
            target = place.resolve()
            shown[place] = str(target.relative_to(here)) if target.is_relative_to(here) else place.name
    words = ["python", "-m", script]
    for word in sys.argv[1:]:
        flag, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        words.append(flag + equals + shown.get(Path(value), value))
    return shlex.join(words)


def json_lines(path: Path, writer: str) -> list[dict[str, Any]]:
    """Read a file of JSON lines; WebnormError if it cannot be read or parsed."""
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise WebnormError(f"{path}: {error}; expected a file that {writer} wrote") from error


def run(main: Callable[[], None]) -> None:
    """Call a script's main; print a user's mistake, or Ctrl-C, as one line on stderr and fail."""
    try:
        main()
    except WebnormError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        # Shells use this status for a process that a signal ended.
        sys.exit(128 + signal.SIGINT)
