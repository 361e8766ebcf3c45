"""What the scripts that record an adapter's results are asked for."""

from __future__ import annotations

import argparse
from pathlib import Path

from webnorm.ops import OPS
from webnorm.problem import STORAGE


def parser(description: str | None, out: str) -> argparse.ArgumentParser:
    """A parser with the options that they share; `out` says what --out is."""
    found = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--out", type=Path, required=True, help=out)
    found.add_argument("--adapter")
    found.add_argument("--op", choices=[op for op in OPS if op != "copy"])
    found.add_argument("--dtype", choices=STORAGE)
    found.add_argument("--rows", type=int, nargs="*")
    found.add_argument("--cols", type=int, nargs="*")
    found.add_argument("--rounds", type=positive, default=30)
    return found


def positive(text: str) -> int:
    """An option's number, which has to be 1 or more."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"it is {text!r}; expected a whole number of 1 or more")
    return number


def ops_and_dtypes(arguments: argparse.Namespace) -> tuple[list[str], list[str]]:
    """The ops and storage types asked for, else those that a record has."""
    ops = [arguments.op] if arguments.op else ["layer_norm", "rms_norm", "layer_norm_backward"]
    return ops, [arguments.dtype] if arguments.dtype else ["float32", "float16"]
