"""Headless Chromium for the tests of pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from webnorm import system
from webnorm.web import opening

if TYPE_CHECKING:
    from playwright.sync_api import Browser as Chromium

MISSING = next((mend.missing for mend in opening.mends()), None)
needs_browser = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@contextmanager
def started(*arguments: str) -> Iterator[Chromium]:
    """Chromium with WebGPU and these arguments, too, as long as the context lasts."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=opening.find(),
            args=[*opening.ARGUMENTS, *arguments],
            chromium_sandbox=not system.is_root(),
            env=opening.environment(),
        )
        try:
            yield browser
        finally:
            browser.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    with started() as browser:
        yield browser
