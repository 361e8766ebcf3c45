"""Fixtures that many tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from webnorm.device import Device, adapters, open_device


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--snapshot-update", action="store_true", help="write the rendered shaders anew")


@pytest.fixture(scope="session", autouse=True)
def no_tunings(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What this machine's user recorded must not decide what the tests see."""
    os.environ["WEBNORM_TUNINGS"] = str(tmp_path_factory.mktemp("tunings"))


@pytest.fixture(scope="session")
def device() -> Iterator[Device]:
    if not adapters():
        pytest.skip("wgpu finds no adapter; `webnorm doctor --mend` installs one")
    yield open_device()
