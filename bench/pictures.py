"""Draw the README's terminal pictures from real runs: python -m bench.pictures [NAME...].

Each command runs here, on the adapter that webnorm prefers. Its output becomes docs/pictures/NAME.svg, a dark
window with the terminal's colors, which is readable on light and dark pages.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.text import Text

from webnorm.files.atomic import write_text

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
COLUMNS = 100


@dataclass(frozen=True)
class Picture:
    """A command, what happens before it, and the exit status that it must have."""

    command: str
    status: int = 0
    before: str = ""
    # Text of a file under `before`'s folder, and its replacement: the bug that the picture shows.
    edit: tuple[str, str, str] | None = None


SHOWN: Mapping[str, Picture] = {
    "bench": Picture("webnorm bench --op layer_norm --cols 4096"),
    "play": Picture(
        "webnorm play kernels/layer_norm/mine.wgsl --once --quick",
        status=1,
        before="webnorm new mine --op layer_norm --from two_pass",
        edit=("kernels/layer_norm/mine.wgsl", "(d * PER_COLUMN)", "(d / f32(COLS - 1u))"),
    ),
}


def main() -> int:
    """Draw the pictures, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(SHOWN)}. Default: all.")
    names = parser.parse_args().names or [*SHOWN]
    if unknown := [name for name in names if name not in SHOWN]:
        parser.error(f"unknown picture {unknown[0]!r}; expected one of {', '.join(SHOWN)}")
    for name in names:
        text = output(SHOWN[name])
        path = PICTURES / f"{name}.svg"
        write_text(path, svg(SHOWN[name].command, text))
        print(path)
    return 0


def output(picture: Picture) -> str:
    """Run a picture's command in an empty folder, and return what it prints, with its colors."""
    with TemporaryDirectory() as folder:
        if picture.before:
            run(picture.before, folder)
        if picture.edit:
            file, old, new = picture.edit
            path = Path(folder, file)
            text = path.read_text(encoding="utf-8")
            assert text.count(old) == 1, f"{file} has {old!r} {text.count(old)} times"
            path.write_text(text.replace(old, new), encoding="utf-8")
        return run(picture.command, folder, picture.status)


def run(command: str, folder: str, status: int = 0) -> str:
    """Run one `webnorm` command, and return what it prints on standard output."""
    _, *words = shlex.split(command)
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS)}
    done = subprocess.run(
        [sys.executable, "-m", "webnorm", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, f"{command}: exit status {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def svg(command: str, text: str) -> str:
    """Return an SVG of a terminal window with a command and its output."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {command}", "bold green"))
    console.print(Text.from_ansi(text), end="")
    drawn = console.export_svg(title="webnorm", unique_id="webnorm")
    # Rich loads its font from a content network, which a page may forbid. Readers' own fonts will do.
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.S)


if __name__ == "__main__":
    sys.exit(main())
