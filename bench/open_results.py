"""Record the sample of open results in the docs: python -m bench.open_results [chromium] [firefox].

Each browser of this machine runs the lab's page and sends its results to `webnorm collect`, as visitors do.
Their summary becomes docs/open-results.json, and a picture of their page docs/pictures/open-results.png.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

from playwright.sync_api import sync_playwright

from bench.arguments import bare_parser, run
from webnorm import system
from webnorm.engines.catalog import Engine, find_engine
from webnorm.engines.launch import start_browser
from webnorm.errors import WebnormError, counted
from webnorm.files.atomic import write_text
from webnorm.serving import POLICY, StaticSite, serve_folder
from webnorm.web.browser import launch
from webnorm.web.collection.visit_store import visits
from webnorm.web.collection.visit_summary import summarized
from webnorm.web.collection.visits_page import data_text, visits_page
from webnorm.web.folder import Files, write_folder
from webnorm.web.lab_site import LAB_PAGE, lab_files, with_index

DOCS = Path(__file__).parents[1] / "docs"
# The selections of the lab's page; `all` runs every op.
_SELECTIONS = (
    {"all": True, "op": "layer_norm", "cols": 1024, "dtype": "float32", "options": []},
    {"all": True, "op": "layer_norm", "cols": 1024, "dtype": "float16", "options": []},
    {"all": True, "op": "layer_norm", "cols": 4096, "dtype": "float32", "options": []},
    {"all": False, "op": "layer_norm", "cols": 1024, "dtype": "float32", "options": ["residual"]},
)
_NAMES = ("chromium", "firefox")
_PATIENCE_S = 900.0
_MOMENT_S = 0.5
_ENDED = "/ended/"


def main() -> None:
    """Run the lab in each browser, and write the summary and the picture."""
    parser = bare_parser(__doc__)
    parser.add_argument("browsers", nargs="*", metavar="BROWSER", help="chromium or firefox; default: both")
    browsers = parser.parse_args().browsers or [*_NAMES]
    if unknown := [name for name in browsers if name not in _NAMES]:
        parser.error(f"unknown browser {unknown[0]!r}; expected {' or '.join(_NAMES)}")
    engines = [find_engine(name) for name in browsers]
    with TemporaryDirectory() as name:
        folder = Path(name)
        store = folder / "visits.sqlite"
        send_visits(store, engines, lab_files(), _SELECTIONS)
        data = summarized(visits(store)).as_json()
        write_text(DOCS / "open-results.json", data_text(data))
        write_folder(visits_page(data), folder / "page")
        _draw(folder / "page", DOCS / "pictures" / "open-results.png")


def send_visits(store: Path, browsers: Sequence[Engine], lab: Files, selections: Sequence[Any]) -> None:
    """Let each browser run a lab's page on the selections, and send the results to a collector."""
    with _collecting(store) as url:
        folder = _self_driving(lab, url, selections, store.parent / "lab")
        for browser in browsers:
            with serve_folder(folder, f"{POLICY}; connect-src 'self' {url}") as site:
                _visit(browser, site)
            print(f"{browser}: {counted(len(selections), 'visit')}", flush=True)


@contextmanager
def _collecting(store: Path) -> Iterator[str]:
    """Run a collector until the context ends, and yield its URL."""
    command = [sys.executable, "-m", "webnorm", "collect", "--store", str(store), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise WebnormError("the collector did not start")
            yield line.split()[3]
        finally:
            process.send_signal(signal.SIGTERM)


def _self_driving(lab: Files, url: str, selections: Sequence[Any], folder: Path) -> Path:
    """Write a lab whose page runs the selections without a user."""
    script = Path(__file__).with_suffix(".js")
    tag = f'  <script src="{script.name}" type="module"></script>\n</head>'
    files = with_index(lab, url)
    files |= {
        script.name: script.read_bytes(),
        "selections.json": json.dumps(selections).encode(),
        LAB_PAGE: files[LAB_PAGE].replace(b"</head>", tag.encode()),
    }
    write_folder(files, folder)
    return folder


def _visit(browser: Engine, site: StaticSite) -> None:
    """Open the page in a browser, and wait until it has sent everything."""
    with start_browser(browser, f"{site.url}/{LAB_PAGE}") as running:
        end = time.monotonic() + _PATIENCE_S
        while not (said := [path for path in site.missing if path.startswith(_ENDED)]):
            if (why := running.ended()) is not None:
                raise WebnormError(f"{browser} ended: {why}")
            if time.monotonic() > end:
                raise WebnormError(f"{browser} did not finish within {_PATIENCE_S:g} s")
            time.sleep(_MOMENT_S)
    ending = unquote(said[0].removeprefix(_ENDED))
    if ending != "done":
        raise WebnormError(f"{browser}: {ending}")


def _draw(page: Path, picture: Path) -> None:
    """Write a picture of the page."""
    with serve_folder(page) as site, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=launch.find_browser(), chromium_sandbox=not system.is_root()
        )
        shown = browser.new_page(viewport={"width": 1280, "height": 900})
        shown.goto(site.url)
        shown.wait_for_selector(".matrix tbody tr")
        shown.screenshot(path=picture, full_page=True)
        browser.close()


if __name__ == "__main__":
    run(main)
