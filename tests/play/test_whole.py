"""The whole playground: a kernel is forked, broken, explained, fixed, compared, exported and verified."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browsing import EDITOR, opened, text_of
from playing import ended, session
from rich.console import Console, Group

from commands import webnorm
from headless import MISSING, chromium
from patience import HANG_S
from webnorm.cli.verbs.play_view import screen
from webnorm.gpu.device import Device
from webnorm.kernels.headers.drafts import draft
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.play.api import PlaygroundApi
from webnorm.play.attempt_store import FOLDER_VARIABLE
from webnorm.play.server import PlaygroundServer
from webnorm.play.session import PlaygroundSession
from webnorm.play.state import Snapshot

if TYPE_CHECKING:
    from playwright.sync_api import Browser as Chromium
    from playwright.sync_api import Page

__all__ = ["chromium"]
pytestmark = [
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
    pytest.mark.xdist_group("play page"),
]
PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
MEAN = "\n    var distances = Vec();"
SQUARES = "squares += d * (d * PER_COLUMN);"


WIDTH = 1280
# A page cannot read the clipboard of a headless browser.
PASTE = """([editor, text]) => {
  const clipboardData = new DataTransfer();
  clipboardData.setData("text/plain", text);
  const event = new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true });
  document.querySelector(editor).dispatchEvent(event);
}"""


Picture = Callable[..., None]


@pytest.fixture
def picture(request: pytest.FixtureRequest) -> Picture:
    """Take a picture for the guide with --pictures only: other machines have other fonts."""

    def take(page: Page, name: str, of: str, height: int) -> None:
        if not request.config.getoption("--pictures"):
            return
        PICTURES.mkdir(exist_ok=True)
        page.set_viewport_size({"width": WIDTH, "height": height})
        page.evaluate("(of) => document.querySelector(of).scrollIntoView()", of)
        page.screenshot(path=PICTURES / f"playground-{name}.png")

    return take


@pytest.fixture
def played(tmp_path: Path, device: Device, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlaygroundSession]:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "attempts"))
    naive = draft(load(wgsl_root() / "layer_norm" / "naive.wgsl"), [wgsl_root()])
    with session(tmp_path, naive, time=True, rows=8, cols=64) as found:
        yield found


def press(page: Page, selector: str, *keys: str) -> None:
    """Focus an element that Tab reaches, and press keys."""
    assert page.eval_on_selector(selector, "(one) => one.tabIndex") >= 0
    page.focus(selector)
    for key in keys:
        page.keyboard.press(key)


def choose(page: Page, selector: str, label: str) -> None:
    """Choose an option by typing its label."""
    press(page, selector)
    page.keyboard.type(label)


def written(page: Page, played: PlaygroundSession, text: str) -> None:
    """Paste a text into the editor and wait for its attempt."""
    press(page, EDITOR, "Control+a")
    page.evaluate(PASTE, [EDITOR, text])
    ended(played, text)


def terminal(now: Snapshot) -> str:
    """Return the terminal's view of a snapshot, as SVG."""
    console = Console(record=True, width=100, file=io.StringIO())
    console.print(Group(*screen(now)))
    # Without the web fonts the SVG uses local ones and needs no network.
    return re.sub(r"@font-face {[^}]*}", "", console.export_svg(title="webnorm play"))


@pytest.mark.slow
def test_from_a_fork_to_a_package_by_keys(
    chromium: Chromium, played: PlaygroundSession, tmp_path: Path, picture: Picture
) -> None:
    ended(played, played.state.now.file.text)
    context = chromium.new_context(viewport={"width": WIDTH, "height": 900}, accept_downloads=True)
    with PlaygroundServer(PlaygroundApi(played)) as server, opened(context, server.url) as page:
        # Fork a lesson.
        choose(page, "#built-in", "layer_norm two_pass")
        press(page, "#copy-form button", "Enter")
        page.wait_for_function("() => document.querySelector('#editor').textContent.includes('two_pass')")
        assert played.idle(HANG_S)
        forked = played.state.now.file.text
        assert SQUARES in forked and MEAN in forked
        page.wait_for_selector("body[data-state=pass]")
        # Break it and read the hint.
        traced = forked.replace(MEAN, f'\n    {{{{ trace("mean") }}}}{MEAN}')
        written(page, played, traced.replace(SQUARES, "squares += d * (d / f32(COLS - 1u));"))
        page.wait_for_selector("body[data-state=fail]")
        assert "divides the variance by N - 1" in page.inner_text("#hints")
        # Open the error map and trace a row.
        press(page, "#map summary", "Enter")
        press(page, "#map button", "Enter")
        page.wait_for_function("() => document.querySelector('#trace').textContent.includes('where row == ')")
        assert "mean" in page.inner_text("#trace") and played.idle(HANG_S)
        press(page, "#map summary", "Enter")
        picture(page, "wrong", "header", 1900)
        shown = context.new_page()
        shown.set_content(terminal(played.state.now))
        picture(shown, "terminal", "svg", 720)
        # Fix it and compare its time with the others.
        written(page, played, forked)
        page.wait_for_selector("body[data-state=pass]")
        assert "the best built-in" in page.inner_text("#times")
        choose(page, "#other", "layer_norm two_pass")
        press(page, "#compare", "Enter")
        page.wait_for_selector("#merge .cm-mergeView")
        picture(page, "comparison", "#history-title", 900)
        # Export it.
        with page.expect_download() as download:
            press(page, "#export", "Enter")
        package = tmp_path / "package.tgz"
        download.value.save_as(package)
        assert text_of(page)
        context.close()
    with tarfile.open(package) as packed:
        packed.extractall(tmp_path / "unpacked", filter="data")
    done = webnorm(["verify", str(tmp_path / "unpacked" / "package")], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
