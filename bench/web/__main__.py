"""Record webnorm's exports beside the libraries that run in a browser, in one page on one device.

    python -m bench.web --out bench/results/web

writes web.json, web.md, web.csv and, where matplotlib is installed, web.svg. The libraries are npm packages
of pinned versions (bench/web/npm), which npm fetches once into the user's cache folder, each held against its
digest; from then on no network is needed. The page is served from 127.0.0.1 to a headless Chromium, which may
ask for nothing else. tinygrad (a package of Python) renders its WGSL with no device; onnx makes the
models. What is not installed is left out, with the reason.

    python -m bench.web --accuracy                 the accuracy table alone, to the terminal
    python -m bench.web --dawn --out NAME          in node on Dawn, Chrome's WebGPU, where there is no browser
    python -m bench.web --tables --out NAME        the files anew from NAME.json, measuring nothing
    python -m bench.web --readme --out NAME        README.md's block NAME, too
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
from bench.arguments import add_dawn, command, run
from bench.record import readme_block
from bench.web import hosts, packages, plan, tables, tinygrad_wgsl
from bench.web.plot import plot
from webnorm.errors import WebnormError
from webnorm.files.atomic import check_writable, read_json, write_text
from webnorm.web.folder import write_folder

_SUFFIXES = (".json", ".md", ".csv", ".svg")


def arguments() -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.web", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    names = [library.name for library in plan.LIBRARIES]
    add("--out", type=Path, help="files to write, without suffix; without it tables go to the terminal")
    add("--accuracy", action="store_true", help="errors alone: no times, no table of abilities")
    add("--library", nargs="+", choices=names, default=names, metavar="NAME", help=f"of {', '.join(names)}")
    add("--browser", help="as of `webnorm verify`: a path, or the ws:// address of a Playwright server")
    add("--packages", type=Path, metavar="FOLDER", help="a node_modules in place of the one npm fills")
    add_dawn(parser, "in node on Dawn")
    add("--tables", action="store_true", help="measure nothing")
    add("--readme", action="store_true", help="write README.md's block of that name, too")
    return parser.parse_args()


def versions() -> dict[str, str]:
    """Of every library."""
    found = {"webnorm": webnorm.__version__, **packages.versions()}
    if not tinygrad_wgsl.available():
        found["tinygrad"] = tinygrad_wgsl.version()
    return found


def record(asked: argparse.Namespace) -> dict[str, Any]:
    """Measure everything that is asked for."""
    parts = plan.accuracy_parts() + ([] if asked.accuracy else plan.other_parts())
    node_modules = asked.packages or packages.install()
    found = plan.folder(parts, asked.library, node_modules, _say)
    host: AbstractContextManager[hosts.PageHost]
    host = hosts.in_node(asked.dawn) if asked.dawn else hosts.in_a_browser(asked.browser)
    # An address is no place.
    browser = Path(asked.browser) if asked.browser and "://" not in asked.browser else None
    told: dict[str, Any] = {
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
            told[part["kind"]] += report.pop("found")
            told |= {key: report[key] for key in ("host", "adapter", "software", "features", "libraries")}
    return told


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = read_json(path)
    except (OSError, ValueError) as error:
        raise WebnormError(f"{path}: {error}; expected what `python -m bench.web` wrote") from error
    return found


def write_files(out: Path, told: dict[str, Any]) -> None:
    """NAME.json, NAME.md, NAME.csv and NAME.svg."""
    at = {suffix: out.with_name(out.name + suffix) for suffix in _SUFFIXES}
    write_text(at[".json"], json.dumps(told, indent=1, allow_nan=False) + "\n")
    drawn = False
    try:
        drawn = plot(told, at[".svg"])
    finally:
        write_text(at[".md"], tables.to_markdown(told, at[".svg"].name if drawn else None))
        write_text(at[".csv"], tables.to_csv(told))


def main() -> None:
    """Measure what is asked for, and write the files."""
    asked = arguments()
    if asked.out is None and (asked.tables or asked.readme):
        raise WebnormError("--tables and --readme need --out NAME")
    if asked.out is None:
        print(tables.to_markdown(record(asked), None))
        return
    for suffix in _SUFFIXES:
        check_writable(asked.out.with_name(asked.out.name + suffix))
    if asked.readme:
        readme_block.check(asked.out)
    # Written once it is whole: a record that was cut short lacks what its tables promise.
    told = _read(asked.out.with_name(f"{asked.out.name}.json")) if asked.tables else record(asked)
    write_files(asked.out, told)
    if asked.readme:
        tables.write_readme(asked.out, told)


if __name__ == "__main__":
    run(main)
