"""Fixtures that many tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from webnorm.device import Device, adapters, open_device


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--snapshot-update", action="store_true", help="write the rendered shaders anew")


@pytest.fixture(scope="session")
def device() -> Iterator[Device]:
    if not adapters():
        pytest.skip("wgpu finds no adapter; `webnorm doctor --mend` installs one")
    yield open_device()
