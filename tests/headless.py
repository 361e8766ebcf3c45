"""Headless Chromium for the tests of pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from webnorm import system
from webnorm.web import browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser as Chromium

MISSING = next((mend.missing for mend in browser.mends()), None)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=browser.find(),
            args=browser._ARGUMENTS,
            chromium_sandbox=not system.is_root(),
            env=browser._environment(),
        )
        yield started
        started.close()
