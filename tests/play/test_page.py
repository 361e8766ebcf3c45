"""The playground's page in headless Chromium, with a snapshot that fills every part of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browsing import EDITOR, TEXT_OF, opened, text_of
from canned import BUILT, EARLIER, TEXT, broken_attempt, canned, wrong_attempt
from fake import Fake, digest

import axe
from headless import MISSING, chromium
from patience import until
from webnorm.play.server import PlaygroundServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser as Chromium
    from playwright.sync_api import Page

# All these tests run in one process, so that the browser starts once.
pytestmark = [
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
    pytest.mark.xdist_group("play page"),
]
__all__ = ["chromium"]
PHONE = 360
RENDERED = "#rendered .cm-content"


@pytest.fixture(scope="module")
def fake() -> Fake:
    return Fake(canned(), {"two_pass": BUILT, "earlier": EARLIER})


@pytest.fixture(scope="module")
def url(fake: Fake) -> Iterator[str]:
    with PlaygroundServer(fake) as server:
        yield server.url


@pytest.fixture(scope="module")
def shared(chromium: Chromium, url: str) -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    with opened(context, url) as page:
        yield page
        context.close()


@pytest.fixture
def page(shared: Page, fake: Fake) -> Iterator[Page]:
    """Reset the shared page: opening a new one would take a second per test."""
    fake.asked.clear()
    shared.check("#autosave")
    # Otherwise text from the previous test could arrive after the new state.
    shared.wait_for_function("() => document.querySelector('#saved').textContent === 'saved'")
    fake.change_state(**canned())
    wait_text(shared, TEXT)
    shared.wait_for_selector(f"{EDITOR} .cm-lintRange-error")
    yield shared
    # A test may fail while it holds answers back.
    fake.answers.set()


def marked(page: Page, editor: str) -> list[str]:
    return [line.strip() for line in page.locator(f"{editor} .cm-marked").all_inner_texts()]


def wait_asked(fake: Fake, *what: Any) -> None:
    until(lambda: what in fake.asked)


def test_every_part_is_shown(page: Page) -> None:
    # The page removes the token from the address, because people copy addresses.
    assert "#" not in page.url
    assert page.title() == "2 mistakes: my.wgsl"
    assert page.get_attribute("body", "data-state") == "error"
    assert page.locator(".stage").count() == 9 and page.inner_text(".stage.failed").startswith("compile")
    assert page.inner_text(f"{EDITOR} .cm-lintRange-error") == "summ"
    mistakes = page.locator("#mistakes > li")
    assert mistakes.nth(0).inner_text().startswith("naga my.wgsl:8:29: no definition in scope")
    # The caret marks the underlined text.
    source, caret = mistakes.nth(0).locator("pre").inner_text().split("\n")
    assert [*source].index("s") == caret.index("^") and caret.endswith("^~~~")
    assert mistakes.nth(1).inner_text().startswith("tint lib/write.wgsl:2:1: unused")
    # The save is broken, so the page shows the results of the last one that ran.
    assert page.inner_text("#stale") == "These results are from save 5, the last save that was checked."
    assert "stale" in str(page.get_attribute("#results", "class"))
    assert "y[3, 60] is 1, expected 2 (off by 1, allowed 0.000001)" in page.inner_text("#worst")
    assert page.inner_text("#hints").startswith("formula fits N - 1 where N belongs line 10")
    assert "7x61 float32" in page.inner_text("#shapes") and "inf" in page.inner_text("#shapes")
    assert "8x64 float32: nearest to its tolerance: y[2, 5] is 0.5" in page.inner_text("#shapes")
    assert "7x61 float32: y[3, 60] is 1.0, expected 2.0" in page.inner_text("#shapes")
    assert "12 of 84 cases, 1 failed" in page.inner_text("#corpus")
    assert "GB/s for 4096x1024 float32" in page.inner_text("#times")
    assert "7 lines of cells with a wrong element" not in page.inner_text("#map")
    label = str(page.get_attribute("#map .heat", "aria-label"))
    assert "the largest error is inf times its tolerance" in label
    assert page.locator("#map .heat5").count() == 2  # one cell in the last row, and one in the legend
    assert "the best built-in (layer_norm/registers)" in page.inner_text("#times")
    assert "copy 20 GB/s" in str(page.get_attribute("#times .chart", "aria-label"))
    assert "not counted" in page.inner_text("#cost")
    assert "save 1 40 %, save 3 81 %" in str(page.get_attribute("#history .plot", "aria-label"))
    assert page.locator("#trace tbody tr").count() == 2
    assert page.locator("#trace tr.departs").inner_text().endswith("departs")
    assert "the worker died" in page.inner_text("#notices")
    assert page.inner_text("#footer") == "On llvmpipe, Vulkan."


def test_the_lines_of_both_texts_belong_together(page: Page) -> None:
    page.click(f"{EDITOR} .cm-line:nth-child(10)")
    page.wait_for_selector(f"{RENDERED} .cm-marked")
    assert marked(page, RENDERED) == ["let rstd = inverseSqrt(variance + params.eps);"]
    page.click(f"{RENDERED} .cm-line:nth-child(5)")
    page.wait_for_selector(f"{EDITOR} .cm-marked")
    assert marked(page, EDITOR) == ["/* 𝑥² */ let variance = summ(squares);"]
    page.click(f"{RENDERED} .cm-line:nth-child(2)")
    page.wait_for_function("() => document.getElementById('origin').textContent === 'lib/write.wgsl:2'")
    assert marked(page, EDITOR) == []


def test_typed_text_is_saved_and_mistakes_stay_at_their_words(page: Page, fake: Fake) -> None:
    page.click(f"{EDITOR} .cm-line:nth-child(1)")
    page.keyboard.press("Control+Home")
    page.keyboard.type("// new\n// lines\n", delay=1)
    assert page.inner_text(f"{EDITOR} .cm-lintRange-error") == "summ"
    page.wait_for_function("() => document.getElementById('saved').textContent === 'saved'")
    assert fake.snapshot()["file"]["text"] == "// new\n// lines\n" + TEXT
    # The snapshot of the new text has the mistake in its own lines.
    text = fake.snapshot()["file"]["text"]
    broken = broken_attempt(text, 7)
    broken["mistakes"][0]["line"] += 2
    fake.change_state(attempt=broken)
    page.wait_for_selector("text=my.wgsl:10:29")
    assert page.inner_text(f"{EDITOR} .cm-lintRange-error") == "summ"
    page.click("text=my.wgsl:10:29")
    assert page.locator(f"{EDITOR} .cm-activeLine").inner_text().strip().startswith("/* 𝑥² */")
    # With autosave off, Ctrl-S saves.
    page.uncheck("#autosave")
    page.click(f"{EDITOR} .cm-line:nth-child(1)")
    page.keyboard.type("X")
    # The page's timers run in order, so an automatic save would have run before this one.
    page.evaluate("() => new Promise((resolve) => setTimeout(resolve, 400))")
    assert page.inner_text("#saved") == "not saved yet" and fake.snapshot()["file"]["text"] == text
    page.keyboard.press("Control+s")
    page.wait_for_function("() => document.getElementById('saved').textContent === 'saved'")
    assert "X" in fake.snapshot()["file"]["text"]


def test_only_the_visible_part_of_a_long_text_is_drawn(page: Page, fake: Fake) -> None:
    text = "".join(f"// {at:09}{'x' * 68}\n" for at in range(13_000))
    fake.change_file(text, attempt=None, good=None)
    page.wait_for_function("() => document.querySelector('#editor').textContent.includes('000000009x')")
    page.click(f"{EDITOR} .cm-line:nth-child(1)")
    page.keyboard.press("Control+End")
    page.keyboard.type("fn")
    wait_asked(fake, "save", text + "fn")
    assert page.locator(f"{EDITOR} .cm-line").count() < 200


def test_another_editor_may_write_and_no_text_is_lost(page: Page, fake: Fake) -> None:
    fake.change_file(EARLIER)
    page.wait_for_function("() => document.querySelector('#editor .cm-content').textContent.includes('sum(')")
    assert text_of(page) == EARLIER
    page.uncheck("#autosave")
    page.click(f"{EDITOR} .cm-line:nth-child(1)")
    page.keyboard.press("Control+Home")
    page.keyboard.type("mine ")
    fake.change_file("theirs\n" + EARLIER)
    page.wait_for_selector("#conflict")
    assert text_of(page) == "mine " + EARLIER
    page.click("text=Compare the texts")
    page.wait_for_selector("#merge .cm-changedLine")
    page.click("text=Keep the editor's text")
    page.wait_for_selector("#conflict", state="hidden")
    wait_asked(fake, "save", "mine " + EARLIER)
    page.wait_for_function("() => document.getElementById('saved').textContent === 'saved'")
    page.click(f"{EDITOR} .cm-line:nth-child(1)")
    page.keyboard.type("2")
    fake.change_file("theirs\n" + EARLIER)
    page.click("text=Use the file's text")
    page.wait_for_function("() => document.getElementById('saved').textContent === 'saved'")
    assert text_of(page) == "theirs\n" + EARLIER and fake.snapshot()["file"]["text"] == "theirs\n" + EARLIER
    # The editor's text is shown next to it.
    assert "The editor's earlier text" in page.inner_text("#merge > p")
    # Windows line endings stay, and cause no save.
    page.check("#autosave")
    fake.change_file(EARLIER.replace("\n", "\r\n"))
    page.wait_for_function(f"(text) => {TEXT_OF} === text", arg=EARLIER)
    assert page.inner_text("#saved") == "saved"
    page.click(f"{EDITOR} .cm-line:nth-child(1)")
    page.keyboard.press("Control+Home")
    page.keyboard.type("x")
    wait_asked(fake, "save", "x" + EARLIER.replace("\n", "\r\n"))
    page.wait_for_function("() => document.getElementById('saved').textContent === 'saved'")


@pytest.mark.parametrize("again", [True, False])
def test_a_late_answer_to_a_save_does_not_bring_back_its_text(page: Page, fake: Fake, again: bool) -> None:
    with page.expect_response("**/api/file"):
        save_without_answer(page, fake, "mine ")
        # The snapshot with the save's text arrives before the answer to the save.
        page.wait_for_function("() => document.getElementById('saved').textContent === 'saved'")
        fake.change_file("theirs\n" + TEXT)
        wait_text(page, "theirs\n" + TEXT)
        if again:
            fake.change_file("mine " + TEXT)
            wait_text(page, "mine " + TEXT)
        fake.answers.set()
    # Text that is taken for unsaved starts an automatic save. The page's timers run in order.
    page.check("#autosave")
    page.evaluate("() => new Promise((resolve) => setTimeout(resolve, 400))")
    assert page.inner_text("#saved") == "saved" and page.locator("#conflict").is_hidden()
    assert text_of(page) == ("mine " if again else "theirs\n") + TEXT
    assert fake.asked == [("save", "mine " + TEXT)]


def test_a_text_that_replaced_a_save_is_shown(
    page: Page, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken(text: str, base: str) -> str:
        fake.change_file("theirs\n" + TEXT)
        fake.answers.wait()
        return digest(text)

    monkeypatch.setattr(fake, "save", overtaken)
    save_without_answer(page, fake, "mine ")
    # The page takes the snapshot, which has a notice, while the save has no answer yet.
    page.wait_for_function("() => document.getElementById('saved').textContent === 'saving'")
    fake.change_state(notices=["There is a newer text."])
    page.wait_for_selector("text=There is a newer text.")
    fake.answers.set()
    wait_text(page, "theirs\n" + TEXT)
    assert page.inner_text("#saved") == "saved" and page.locator("#conflict").is_hidden()


def type_first(page: Page, text: str) -> None:
    page.click(f"{EDITOR} .cm-line:nth-child(1)")
    page.keyboard.press("Control+Home")
    page.keyboard.type(text)


def save_without_answer(page: Page, fake: Fake, text: str) -> None:
    """Insert text at the beginning and save it; the answer waits for `fake.answers`."""
    fake.answers.clear()
    # An automatic save could start between two keys.
    page.uncheck("#autosave")
    type_first(page, text)
    page.keyboard.press("Control+s")


def wait_text(page: Page, text: str) -> None:
    page.wait_for_function(f"(text) => {TEXT_OF} === text", arg=text)


@pytest.mark.slow
def test_two_browsers_show_one_playground(page: Page, chromium: Chromium, url: str, fake: Fake) -> None:
    context = chromium.new_context()
    with opened(context, url, complains=True) as other:
        type_first(page, "one ")
        wait_text(other, "one " + TEXT)
        other.uncheck("#autosave")
        type_first(other, "two ")
        type_first(page, "more ")
        # The file has the text of one browser. The other reports a conflict and keeps its own text.
        other.wait_for_selector("#conflict")
        page.wait_for_function("() => document.getElementById('saved').textContent === 'saved'")
        assert fake.snapshot()["file"]["text"] == "more one " + TEXT
        assert text_of(other) == "two one " + TEXT
        # A save from there is refused until the user chooses.
        other.keyboard.press("Control+s")
        other.click("text=Keep the editor's text")
        wait_text(page, "two one " + TEXT)
        assert fake.snapshot()["file"]["text"] == "two one " + TEXT
    context.close()


def test_a_row_of_the_map_is_traced(page: Page, fake: Fake) -> None:
    heat = page.locator("#map .heat")
    box = heat.bounding_box()
    assert box
    heat.click(position={"x": box["width"] / 2, "y": box["height"] * 3.5 / 7})
    wait_asked(fake, "trace", "row == 3u")
    page.click("text=Show as a table")
    page.locator("button", has_text="Trace row 6").press("Enter")
    wait_asked(fake, "trace", "row == 6u")
    assert page.input_value("#trace-filter") == "row == 6u"


def test_other_texts_are_compared_and_forked(page: Page, fake: Fake) -> None:
    page.select_option("#other", "layer_norm/two_pass")
    page.click("#compare")
    # The comparison of the previous test is visible until the new text arrives.
    page.wait_for_selector("#merge > p:has-text('layer_norm two_pass')")
    page.wait_for_selector("#merge .cm-changedText")
    page.select_option("#built-in", "layer_norm/two_pass")
    page.click("#copy-form button")
    wait_asked(fake, "fork", "layer_norm", "two_pass")
    page.click("text=Every attempt")
    page.get_by_label("Compare with save 3").click()
    page.wait_for_selector("text=Save 3, and the current kernel")
    page.get_by_label("Restore save 1").click()
    wait_asked(fake, "save", EARLIER)
    assert text_of(page) == EARLIER and not page.locator("#merge .cm-changedText").count()
    with page.expect_download() as download:
        page.click("#export")
    assert download.value.suggested_filename == "my.tgz"
    assert Path(download.value.path()).read_bytes() == fake.export(False)
    page.uncheck("#auto-time")
    page.click("text=Apply")
    settings = {"run": True, "dtype": "float32", "options": ["residual"], "constants": {"threads_per_row": 8}}
    wait_asked(fake, "change", {**settings, "time": False})
    page.fill("#x-mean", "-1e4")
    page.press("#x-mean", "Enter")
    wait_asked(fake, "change", {"x": [-1e4, 1.0]})
    page.fill("#x-mean", "")
    page.click("#x-form button")
    wait_asked(fake, "change", {"x": None})


@pytest.mark.slow
def test_a_wrong_kernel_is_exported_only_on_request(
    chromium: Chromium, url: str, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake, "unfit", "kernel my is wrong. Nothing was exported")
    context = chromium.new_context()
    with opened(context, url, complains=True) as page:
        page.click("#export")
        page.wait_for_selector("#unfit:has-text('kernel my is wrong. Nothing was exported.')")
        page.click("text=Cancel")
        assert page.locator("#unfit").is_hidden()
        page.click("#export")
        with page.expect_download() as download:
            page.click("text=Export anyway")
        assert Path(download.value.path()).read_bytes() == fake.export(True)
        assert page.locator("#unfit").is_hidden()
        assert page.evaluate("() => document.activeElement.id") == "export"
    context.close()


def test_a_new_snapshot_does_not_change_the_focused_field(page: Page, fake: Fake) -> None:
    page.fill("#x-mean", "12")
    fake.change_state(settings={"options": ["residual"], "x": [3.0, 2.0]}, notices=["There is news."])
    page.wait_for_selector("text=There is news.")
    assert page.input_value("#x-spread") == "2" and page.input_value("#x-mean") == "12"


def test_the_verdict_shows_the_running_step(page: Page, fake: Fake) -> None:
    running = {
        "number": 7,
        "hash": digest(TEXT),
        "stages": [{"name": "compile", "state": "running"}],
        "ok": None,
    }
    fake.change_state(attempt=running, working="compile", notices=[])
    page.wait_for_selector("body[data-state=running]")
    assert page.inner_text("#verdict") == "Compiling ..."
    assert page.locator("#mistakes-section").is_hidden() and page.locator("#stale").is_visible()
    assert page.locator(f"{EDITOR} .cm-lintRange-error").count() == 0
    fake.change_state(attempt=wrong_attempt(number=7), working="time")
    page.wait_for_selector("body[data-state=fail]")
    assert page.inner_text("#verdict") == "Wrong: 7x61 float32"
    assert page.inner_text("#status") == "Save 7. Timing ..." and page.locator("#stale").is_hidden()
    # A problem that the adapter cannot run does not count as wrong.
    skipped = {**wrong_attempt(number=8), "ok": True, "hints": []}
    skipped["shapes"][1]["result"]["status"] = "skip"
    fake.change_state(attempt={**skipped, "corpus": {"done": 84, "of": 84, "wrong": 0}}, working=None)
    page.wait_for_selector("body[data-state=pass]")
    assert page.inner_text("#verdict") == "Right on 1 shape and all 84 cases of the corpus"
    refusing = {"done": 84, "of": 84, "wrong": 0, "skipped": 80}
    fake.change_state(attempt={**skipped, "corpus": refusing}, working=None)
    verdict = "Right on 1 shape and 4 of 84 cases of the corpus, the others refused"
    page.locator("#verdict", has_text=verdict).wait_for()
    assert "84 of 84 cases, 0 failed, 80 refused and not run" in page.inner_text("#corpus")
    fake.change_state(attempt={**skipped, "ok": False}, working=None)
    page.wait_for_selector("body[data-state=fail]")
    assert page.inner_text("#verdict") == "Right on 1 shape, wrong in 1 of 84 cases of the corpus"
    assert page.inner_text("#status") == "Save 8. odd: the tail"
    limit = {"by": "run", "message": "no sign of life for 5 s: stopped"}
    fake.change_state(attempt={**running, "stages": [], "mistakes": [limit]}, working=None)
    page.wait_for_selector("body[data-state=error]")
    assert page.inner_text("#verdict") == "Stopped at a time limit"


def test_the_keyboard_goes_in_and_out_of_the_editor(page: Page) -> None:
    page.focus("#copy-form button")
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.getAttribute('aria-label')") == "Kernel"
    page.keyboard.press("Control+End")
    page.keyboard.press("Tab")
    assert text_of(page) == TEXT + "    "
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.id") == "save"


def test_undo_ends_at_the_text_of_the_file(page: Page, chromium: Chromium, url: str) -> None:
    """Before that text the editor was empty, and it saves while the user types."""
    context = chromium.new_context()
    with opened(context, url) as other:
        wait_text(other, TEXT)
        type_first(other, "one ")
        for _ in range(3):
            other.keyboard.press("Control+z")
        assert text_of(other) == TEXT
    context.close()


def test_a_kernel_that_cannot_run_in_the_browser_is_reported_there(chromium: Chromium, url: str) -> None:
    context = chromium.new_context()
    with opened(context, url, complains=True) as page:
        page.click("#run-here")
        page.wait_for_function(
            "() => document.getElementById('here-status').textContent === 'Not run: nothing to run here'"
        )
    context.close()


@pytest.mark.slow
def test_a_lost_connection_is_reported_and_restored(chromium: Chromium) -> None:
    fake = Fake(canned())
    context = chromium.new_context()
    with PlaygroundServer(fake) as server:
        port, token = server.port, server.token
        with opened(context, server.url, complains=True) as page:
            server.stop()
            page.wait_for_selector("#connection.fail")
            page.click(f"{EDITOR} .cm-line:nth-child(1)")
            page.keyboard.type("kept")
            page.wait_for_function(
                "() => document.getElementById('saved').textContent.startsWith('not saved')"
            )
            again = PlaygroundServer(fake, port)
            again.token = token
            with again:
                page.wait_for_selector("#connection.pass")
                page.wait_for_function("() => document.getElementById('saved').textContent === 'saved'")
                assert "kept" in fake.snapshot()["file"]["text"]
            with PlaygroundServer(fake, port):
                page.wait_for_selector("#connection.fail")
                page.wait_for_function("() => /token/.test(document.getElementById('status').textContent)")
    context.close()


def test_the_page_fits_a_phone_and_is_accessible(page: Page) -> None:
    page.set_viewport_size({"width": PHONE, "height": 740})
    page.evaluate("() => document.querySelectorAll('details').forEach((one) => (one.open = true))")
    page.wait_for_selector("#guide-text code")
    page.click("#compare")
    page.wait_for_selector("#merge .cm-editor")
    page.evaluate(axe.rules())
    for scheme, ground in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(22, 29, 38)")):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        assert page.evaluate("() => document.documentElement.scrollWidth") == PHONE
        shown = "() => getComputedStyle(document.querySelector('#editor .cm-editor')).backgroundColor"
        assert page.evaluate(shown) == ground
        # The second scheme differs only in its colors.
        assert axe.violations(page, *([] if scheme == "light" else ["color-contrast"])) == []
