"""Record a benchmark of webnorm's exports and other browser libraries, in one page on one device.

    python -m bench.web --out bench/results/web

writes web.json, web.md, web.csv and, if matplotlib is installed, web.svg. The libraries are npm packages of
pinned versions (bench/web/npm). npm fetches them once into the user's cache folder and checks their digests;
later runs need no network. The page is served from 127.0.0.1 to a headless Chromium, which may request
nothing else. tinygrad (a Python package) renders its WGSL without a device, and onnx makes the models. A
library that is not installed is left out, and the record has the reason.

    python -m bench.web --accuracy                 print only the accuracy table
    python -m bench.web --dawn --out NAME          run in node on Dawn, Chrome's WebGPU, without a browser
    python -m bench.web --tables --out NAME        write the files again from NAME.json, measure nothing
    python -m bench.web --page --out NAME          also write the block NAME of docs/performance.md
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import webnorm
from bench.arguments import add_dawn, bare_parser, command, run
from bench.record import page_block
from bench.web import hosts, packages, plan, tables, tinygrad_wgsl
from bench.web.plot import plot
from webnorm.errors import WebnormError
from webnorm.files.atomic import check_writable, read_json, write_text
from webnorm.web.folder import write_folder

_SUFFIXES = (".json", ".md", ".csv", ".svg")


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = bare_parser(__doc__, "python -m bench.web")
    add = parser.add_argument
    names = [library.name for library in plan.LIBRARIES]
    add("--out", type=Path, help="files to write, without suffix; by default tables are printed")
    add("--accuracy", action="store_true", help="only errors, without times and abilities")
    add(
        "--library",
        nargs="+",
        choices=names,
        default=names,
        metavar="NAME",
        help=f"some of {', '.join(names)}",
    )
    add("--browser", help="a path, or the ws:// address of a Playwright server, as for `webnorm verify`")
    add("--packages", type=Path, metavar="FOLDER", help="a node_modules to use instead of npm's")
    add_dawn(parser, "run in node on Dawn")
    add("--tables", action="store_true", help="write the files again, measure nothing")
    # The recorded commands name the README, which had the block before.
    add("--page", "--readme", action="store_true", help="also write the block NAME of docs/performance.md")
    return parser.parse_args()


def versions() -> dict[str, str]:
    """Return the version of every library."""
    found = {"webnorm": webnorm.__version__, **packages.versions()}
    if not tinygrad_wgsl.available():
        found["tinygrad"] = tinygrad_wgsl.version()
    return found


def record(asked: argparse.Namespace) -> dict[str, Any]:
    """Measure the requested parts and return the record."""
    parts = plan.accuracy_parts() + ([] if asked.accuracy else plan.other_parts())
    node_modules = asked.packages or packages.install()
    found = plan.folder(parts, asked.library, node_modules, _say)
    host: AbstractContextManager[hosts.PageHost]
    host = hosts.in_node(asked.dawn) if asked.dawn else hosts.in_a_browser(asked.browser)
    # An address is not a path.
    browser = Path(asked.browser) if asked.browser and "://" not in asked.browser else None
    data: dict[str, Any] = {
        "schema": 1,
        "recorded": str(datetime.date.today()),
        "command": command("bench.web", asked.out, browser, asked.packages, asked.dawn),
        "versions": versions(),
        **{kind: [] for kind in ("accuracy", "times", "abilities")},
    }
    with tempfile.TemporaryDirectory() as folder, host as visit:
        write_folder(found, Path(folder, "site"))
        for at, part in enumerate(parts, 1):
            _say(f"{at} of {len(parts)}: {plan.text(part)}")
            report = visit(Path(folder, "site"), at - 1)
            data[part["kind"]] += report.pop("found")
            data |= {key: report[key] for key in ("host", "adapter", "software", "features", "libraries")}
    return data


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = read_json(path)
    except (OSError, ValueError) as error:
        raise WebnormError(f"{path}: {error}; expected a file that `python -m bench.web` wrote") from error
    return found


def write_files(out: Path, data: dict[str, Any]) -> None:
    """Write NAME.json, NAME.md, NAME.csv and NAME.svg."""
    at = {suffix: out.with_name(out.name + suffix) for suffix in _SUFFIXES}
    write_text(at[".json"], json.dumps(data, indent=1, allow_nan=False) + "\n")
    drawn = False
    try:
        drawn = plot(data, at[".svg"])
    finally:
        write_text(at[".md"], tables.to_markdown(data, at[".svg"].name if drawn else None))
        write_text(at[".csv"], tables.to_csv(data))


def main() -> None:
    """Measure the requested parts, and write the files."""
    asked = arguments()
    if asked.out is None and (asked.tables or asked.page):
        raise WebnormError("--tables and --page need a record; give its --out NAME")
    if asked.out is None:
        print(tables.to_markdown(record(asked), None))
        return
    for suffix in _SUFFIXES:
        check_writable(asked.out.with_name(asked.out.name + suffix))
    if asked.page:
        page_block.check(asked.out)
    # Files are written only for a complete record, because the tables need all parts.
    data = _read(asked.out.with_name(f"{asked.out.name}.json")) if asked.tables else record(asked)
    write_files(asked.out, data)
    if asked.page:
        tables.write_block(asked.out, data)


if __name__ == "__main__":
    run(main)
