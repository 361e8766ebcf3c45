"""The playground's page in headless Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headless import errors_of

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

EDITOR = "#editor .cm-content"
# The editor draws every line of a short text.
TEXT_OF = "[...document.querySelectorAll('#editor .cm-line')].map((one) => one.textContent).join('\\n')"


@contextmanager
def opened(context: BrowserContext, url: str, complains: bool = False) -> Iterator[Page]:
    """Open the page and check that it requests only its own server and logs no error."""
    requested = []
    page = context.new_page()
    errors = errors_of(page)
    page.on("request", lambda request: requested.append(request.url))
    page.goto(url)
    page.wait_for_selector("#connection.pass")
    page.wait_for_selector(EDITOR)
    yield page
    assert complains or errors == [], f"the page's console has {errors}"
    server = url.partition("#")[0]
    assert [one for one in requested if not one.startswith((server, f"blob:{server}"))] == []


def text_of(page: Page) -> str:
    text: str = page.evaluate(TEXT_OF)
    return text
