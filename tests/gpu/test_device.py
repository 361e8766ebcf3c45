"""Several devices at once, and the choice of an adapter. wgpu aborts the process if devices interfere."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from webnorm.errors import WebnormError
from webnorm.gpu.device import ADAPTER_VARIABLE, Device, adapters, find_adapter

pytestmark = pytest.mark.opengl


def test_every_listing_has_the_same_adapters(device: Device) -> None:
    """Through OpenGL, devices only wait for each other if they are from one listing."""
    assert [one.handle for one in adapters()] == [one.handle for one in adapters()]
    assert any(one.handle is device.adapter.handle for one in adapters())


def test_the_adapter_of_the_environment(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    last = adapters()[-1]
    monkeypatch.setenv(ADAPTER_VARIABLE, last.backend.upper())
    assert find_adapter().backend == last.backend
    assert find_adapter("0").index == 0
    monkeypatch.setenv(ADAPTER_VARIABLE, "")
    assert find_adapter().index == 0
    monkeypatch.setenv(ADAPTER_VARIABLE, "no such adapter")
    with pytest.raises(
        WebnormError, match=r"no adapter 'no such adapter' \(from WEBNORM_ADAPTER\); available: 0: "
    ):
        find_adapter()


@pytest.mark.slow
def test_no_usable_temporary_folder() -> None:
    """Commands work without a temporary folder, including commands with a worker process."""
    script = (
        "import sys, tempfile\n"
        "tempfile._candidate_tempdir_list = lambda: ['/nowhere']\n"
        "from webnorm.cli import app\n"
        "sys.argv = ['webnorm', *sys.argv[1:]]\n"
        "app.run()\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
    for arguments in (["list"], ["check", "-k", "naive", "--case", "rows-1"]):
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        assert done.returncode == 0 and done.stderr == ""
        assert "naive" in done.stdout
