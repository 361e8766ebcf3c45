"""Record the sample of open results in the docs: python -m bench.open_results [chromium] [firefox].

Each browser of this machine runs the lab's page and sends its results to `webnorm collect`, as visitors do.
Their summary becomes docs/open-results.json, and a picture of their page docs/pictures/open-results.png.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

from playwright.sync_api import sync_playwright

from bench.arguments import run
from webnorm import system
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
_NAMES = {
    "chromium": ("chromium", "chromium-browser", "google-chrome"),
    "firefox": ("firefox", "firefox-esr"),
}
# Firefox on Linux has WebGPU behind the first switch, and the second one admits software adapters.
_USER_JS = 'user_pref("dom.webgpu.enabled", true);\nuser_pref("gfx.webgpu.ignore-blocklist", true);\n'
_PATIENCE_S = 900.0
_MOMENT_S = 0.5
_ENDED = "/ended/"


def main() -> None:
    """Run the lab in each browser, and write the summary and the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("browsers", nargs="*", metavar="BROWSER", help="chromium or firefox; default: both")
    browsers = parser.parse_args().browsers or [*_NAMES]
    if unknown := [name for name in browsers if name not in _NAMES]:
        parser.error(f"unknown browser {unknown[0]!r}; expected {' or '.join(_NAMES)}")
    programs = {name: find_program(name) for name in browsers}
    with TemporaryDirectory() as name:
        folder = Path(name)
        store = folder / "visits.sqlite"
        send_visits(store, programs, lab_files(), _SELECTIONS)
        data = summarized(visits(store)).as_json()
        write_text(DOCS / "open-results.json", data_text(data))
        write_folder(visits_page(data), folder / "page")
        _draw(folder / "page", DOCS / "pictures" / "open-results.png")


def find_program(browser: str) -> str:
    """Return the path of an installed browser, chromium or firefox."""
    found = next(filter(None, map(shutil.which, _NAMES[browser])), None)
    if found is None:
        raise WebnormError(f"{browser} is not installed; expected one of {', '.join(_NAMES[browser])}")
    return found


def send_visits(store: Path, programs: Mapping[str, str], lab: Files, selections: Sequence[Any]) -> None:
    """Let each browser run a lab's page on the selections, and send the results to a collector."""
    with _collecting(store) as url:
        folder = _self_driving(lab, url, selections, store.parent / "lab")
        for browser, program in programs.items():
            with serve_folder(folder, f"{POLICY}; connect-src 'self' {url}") as site:
                _visit(browser, program, site, store.parent / browser)
            print(f"{program}: {counted(len(selections), 'visit')}", flush=True)


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


def _visit(browser: str, program: str, site: StaticSite, profile: Path) -> None:
    """Open the page in a browser, and wait until it has sent everything."""
    profile.mkdir()
    address = f"{site.url}/{LAB_PAGE}"
    command = [program, "--headless", *_arguments(browser, profile), address]
    quiet = subprocess.DEVNULL
    with ExitStack() as stack:
        process = subprocess.Popen(command, start_new_session=True, stdout=quiet, stderr=quiet)
        stack.callback(process.wait)
        # The browser's own processes are in its group.
        stack.callback(os.killpg, process.pid, signal.SIGKILL)
        end = time.monotonic() + _PATIENCE_S
        while not (said := [path for path in site.missing if path.startswith(_ENDED)]):
            if process.poll() is not None:
                raise WebnormError(f"{program} ended with status {process.returncode}")
            if time.monotonic() > end:
                raise WebnormError(f"{program} did not finish within {_PATIENCE_S:g} s")
            time.sleep(_MOMENT_S)
    ending = unquote(said[0].removeprefix(_ENDED))
    if ending != "done":
        raise WebnormError(f"{program}: {ending}")


def _arguments(browser: str, profile: Path) -> Sequence[str]:
    if browser == "firefox":
        (profile / "user.js").write_text(_USER_JS, encoding="utf-8")
        return ["--no-remote", "--profile", str(profile)]
    # Chromium's sandbox refuses to run as root.
    sandbox = ["--no-sandbox"] if system.is_root() else []
    return [*launch.ARGUMENTS, *sandbox, f"--user-data-dir={profile}"]


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
