"""The documentation's site: the tests build it once, follow its links and open its pages in Chromium."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pytest

import axe
import webnorm
from headless import chromium, errors_of, needs_browser, plainly_served
from pages import ROOT, blocks
from patience import HANG_S
from webnorm.cli.options import help
from webnorm.cli.verb_table import VERBS
from webnorm.kernels.headers import header
from webnorm.kernels.headers.variants import names_of
from webnorm.lab.results.result import FLAT
from webnorm.op.registry import OPS

if TYPE_CHECKING:
    from playwright.sync_api import Browser as Chromium
    from playwright.sync_api import Page

LACKING = next(
    (
        f"{name} is not installed"
        for name in ("sphinx", "myst_parser", "furo", "sphinx_copybutton")
        if not find_spec(name)
    ),
    None,
)
# All these tests run in one process, so that the site is built once.
pytestmark = [
    pytest.mark.skipif(LACKING is not None, reason=str(LACKING)),
    pytest.mark.xdist_group("site"),
]
__all__ = ["chromium"]
PHONE = 375
# The right end of a page's text. The theme would cut off text beyond the window without a sign.
REACHES = """() => {
  const article = document.querySelector("article");
  const { left, right } = article.getBoundingClientRect();
  return Math.floor(Math.max(right, left + article.scrollWidth));
}"""
# One page of each kind: start page, guide, references, kernel, record, search.
SHOWN = (
    "index.html",
    "docs/export.html",
    "reference/command.html",
    "wgsl/layer_norm/two_pass.wgsl.html",
    "bench/results/cpu.html",
    "search.html",
)
# axe does not check the contrast of these pages, because so many words take half a minute each.
LONG = ("reference/python.html",)
STRUCTURE = ("cat.structure", "cat.semantics", "cat.aria", "cat.keyboard", "cat.text-alternatives")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, lab_folder: Path) -> Path:
    folder = tmp_path_factory.mktemp("site") / "built"
    command = [sys.executable, "docs/site/build_site.py", str(folder), "--lab", str(lab_folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S, check=False)
    # A warning, such as a page that is in no table of contents, ends the build with another status.
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{folder}/index.html: ")
    return folder


@dataclass
class Parsed(HTMLParser):
    """A page's anchors, its links, and the files that it loads."""

    text: str
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        if "href" in given:
            (self.links if tag == "a" else self.loads).append(given["href"])
        self.loads += [given[name] for name in ("src", "srcset", "poster", "data") if name in given]


@cache
def parsed(path: Path) -> Parsed:
    return Parsed(path.read_text(encoding="utf-8"))


def broken(site: Path, page: Path, link: str) -> str | None:
    """Return the fault of a link inside the site."""
    parts = urlsplit(link)
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not target.is_relative_to(site):
        return "leads out of the site"
    if not target.is_file():
        return "no such file"
    if parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in parsed(target).anchors:
        return "no such anchor"
    return None


def test_every_link_leads_somewhere_and_nothing_is_asked_of_others(site: Path) -> None:
    faults = []
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 80 and {site / name for name in SHOWN + LONG} <= {*pages}
    for page in pages:
        for link in parsed(page).links + parsed(page).loads:
            parts = urlsplit(link)
            if parts.scheme == "data" or (parts.scheme == "https" and link not in parsed(page).loads):
                continue
            fault = f"{link} is asked of others" if parts.netloc else broken(site, page, link)
            if fault:
                faults.append(f"{page.relative_to(site)}: {link}: {fault}")
    assert faults == []
    styles = "".join(style.read_text(encoding="utf-8") for style in site.rglob("*.css"))
    assert not re.search(r"@import|url\([\"']?(\w+:)?//", styles)


def test_the_lab_is_in_it(site: Path) -> None:
    assert "lab/index.html" in parsed(site / "index.html").links
    assert (site / "lab" / "bundles" / "index.json").is_file()


def test_the_sample_of_open_results_is_in_it(site: Path) -> None:
    assert "visits/index.html" in parsed(site / "index.html").links
    sample = (ROOT / "docs" / "open-results.json").read_bytes()
    assert (site / "visits" / "visits.json").read_bytes() == sample


def test_the_reference_is_what_the_code_is(site: Path) -> None:
    folder = site / "reference"
    text = (folder / "command.html").read_text(encoding="utf-8")
    assert all(f'id="webnorm-{verb}"' in text for verb in VERBS)
    for name in help._PLACES:
        assert not name.startswith("--") or re.search(rf">[^<]*{name}\b", text), name
    assert {f"webnorm.{name}" for name in webnorm.__all__[1:]} <= parsed(folder / "python.html").anchors
    reference = (folder / "header.html").read_text(encoding="utf-8")
    assert [
        name
        for name in (*header._KEYS, *names_of(OPS["layer_norm"]))
        if not re.search(rf">\[*{name}\b", reference)
    ] == []
    schema = json.loads(next((site / "_downloads").rglob("results.schema.json")).read_text(encoding="utf-8"))
    known = {*schema["$defs"]["Result"]["properties"], *schema["$defs"]["NormProblem"]["properties"]}
    # One cell contains all sizes of a problem.
    assert {*FLAT} <= known | {"sizes"}
    types = (folder / "package.html").read_text(encoding="utf-8")
    assert "createLayerNorm<" in types and "createLayerNormBackward<" in types


def test_the_start_page_shows_commands_that_the_docs_have() -> None:
    documented = "".join(
        page.read_text(encoding="utf-8") for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    )
    shown = blocks(ROOT / "docs" / "site" / "pages" / "index.md", "console", "python")
    assert len(shown) == 3 and [line for line in shown if line.strip() not in documented] == []


@contextmanager
def opened(chromium: Chromium, address: str, **settings: Any) -> Iterator[Page]:
    """Open a page, and check that it requests only its own site and logs no error."""
    asked = []
    context = chromium.new_context(**settings)
    try:
        page = context.new_page()
        said = errors_of(page)
        page.on("request", lambda request: asked.append(request.url))
        yield page
        assert said == []
        assert asked and [one for one in asked if not one.startswith((address, "data:"))] == []
    finally:
        context.close()


@needs_browser
def test_the_search_works_without_a_server(site: Path, chromium: Chromium) -> None:
    with plainly_served(site) as url:
        for address in (url, site.as_uri()):
            with opened(chromium, address) as page:
                page.goto(f"{address}/index.html")
                page.fill("input[name=q]", "two_pass")
                page.press("input[name=q]", "Enter")
                page.wait_for_selector("#search-results li a[href*='two_pass.wgsl.html']")
                # The results arrive one after another.
                page.wait_for_function("() => document.querySelectorAll('#search-results li').length > 5")


@needs_browser
def test_everybody_can_use_it_on_any_screen(site: Path, chromium: Chromium) -> None:
    rules, found = axe.rules(), list[tuple[object, ...]]()
    with plainly_served(site) as url, opened(chromium, url, viewport={"width": 1280, "height": 800}) as page:
        for name in SHOWN + LONG:
            page.goto(f"{url}/{name}")
            page.evaluate(rules)
            tags = [] if name in SHOWN else STRUCTURE
            found += [(name, *one) for one in axe.violations(page, *tags)]
            if name in SHOWN:
                page.emulate_media(color_scheme="dark")
                # Only the colours differ in this scheme.
                found += [(name, "dark", *one) for one in axe.violations(page, "color-contrast")]
                page.emulate_media(color_scheme="light")
            page.set_viewport_size({"width": PHONE, "height": 740})
            width = page.evaluate(REACHES)
            found += [(name, f"is {width} wide")] if width > PHONE else []
            page.set_viewport_size({"width": 1280, "height": 800})
    assert found == []


@needs_browser
def test_a_copy_button_copies_the_command_without_its_output(site: Path, chromium: Chromium) -> None:
    allowed = ["clipboard-read", "clipboard-write"]
    with plainly_served(site) as url, opened(chromium, url, permissions=allowed) as page:
        page.goto(f"{url}/docs/first-comparison.html")
        block = page.locator(".highlight-console", has_text="$ webnorm doctor").first
        block.hover()
        block.locator("button.copybtn").click()
        page.wait_for_function(
            "() => navigator.clipboard.readText().then((text) => text === 'webnorm doctor')"
        )
