"""What the scripts that record an adapter's results are asked for."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from webnorm.errors import WebnormError
from webnorm.op.dtypes import STORAGE
from webnorm.op.registry import OPS
from webnorm.web import tint

# The exit status where something is not known, as in webnorm/cli/work/jobs.py; a test holds them equal.
INCONCLUSIVE = 3


def parser(description: str | None, out: str) -> argparse.ArgumentParser:
    """A parser with the options that they share; `out` says what --out is."""
    found = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--out", type=Path, required=True, help=out)
    found.add_argument("--adapter")
    found.add_argument("--op", choices=[op for op in OPS if op != "copy"])
    found.add_argument("--dtype", choices=STORAGE)
    found.add_argument("--rows", type=positive, nargs="*")
    found.add_argument("--cols", type=positive, nargs="*")
    found.add_argument("--rounds", type=positive, default=30)
    return found


def add_dawn(to: argparse.ArgumentParser, what: str) -> None:
    """Let a parser take --dawn, with or without a FOLDER; `what` is done with Dawn."""
    to.add_argument(
        "--dawn",
        type=Path,
        nargs="?",
        const=tint.webgpu(),
        metavar="FOLDER",
        help=f"{what}: the npm package webgpu, by default where `webnorm doctor --fix --browser` puts it",
    )


def check_dawn(webgpu: Path) -> None:
    """Raise WebnormError where a --dawn FOLDER is not that package."""
    if not (webgpu / "index.js").exists():
        raise WebnormError(f"--dawn {webgpu}: holds no index.js; expected the npm package webgpu")


def positive(text: str) -> int:
    """An option's number, which has to be 1 or more."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"it is {text!r}; expected a whole number of 1 or more")
    return number


def whole(text: str) -> int:
    """An option's number, which has to be 0 or more."""
    return 0 if text == "0" else positive(text)


def shapes(arguments: argparse.Namespace, default: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
    """The pairs of --rows and --cols, else the default; WebnormError unless each has its partner."""
    rows, cols = arguments.rows or (), arguments.cols or ()
    if len(rows) != len(cols):
        raise WebnormError(
            f"--rows names {len(rows)} and --cols {len(cols)}; expected as many of each: they go in pairs"
        )
    return tuple(zip(rows, cols, strict=True)) or default


def ops_and_dtypes(arguments: argparse.Namespace) -> tuple[list[str], list[str]]:
    """The ops and storage types asked for, else those that a record has."""
    ops = [arguments.op] if arguments.op else ["layer_norm", "rms_norm", "layer_norm_backward"]
    return ops, [arguments.dtype] if arguments.dtype else ["float32", "float16"]


def command(script: str, *places: Path | None) -> str:
    """The command line as a record keeps it: of --out and other places that do not lie below this folder
    their names.

    A record is published; the folders of the machine that made it are not.
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
    """A file's lines, each a JSON object; WebnormError where it is not what a script wrote."""
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise WebnormError(f"{path}: {error}; expected what {writer} wrote") from error


def run(main: Callable[[], None]) -> None:
    """Call a script's main; a mistake of the user's, or Ctrl-C, is one line on stderr and a failing exit."""
    try:
        main()
    except WebnormError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        # As a shell calls what a signal has ended.
        sys.exit(128 + signal.SIGINT)
