"""Several devices at once, and the choice of an adapter. wgpu aborts the process if devices interfere."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from webnorm.errors import WebnormError
from webnorm.gpu.backend import _DAWN_FEATURES, _SHARED_FEATURES
from webnorm.gpu.device import ADAPTER_VARIABLE, Device, adapters, find_adapter, open_device
from webnorm.gpu.pipelines import refusal
from webnorm.kernels.headers.traits import IMMEDIATES, SUBGROUP_SIZE_CONTROL

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


def accepts(device: Device, text: str) -> bool:
    """Return whether a device's compiler accepts a text."""
    return refusal(device, f"{text}\n@compute @workgroup_size(1) fn main() {{}}") is None


def test_language_features_are_those_that_the_compiler_accepts(device: Device) -> None:
    accepted = {name for name in _DAWN_FEATURES | _SHARED_FEATURES if accepts(device, f"requires {name};")}
    # naga has immediates without a directive, and rejects it.
    silent = {IMMEDIATES} if device.target == "native" else set()
    assert accepted == device.adapter.language_features - silent
    has_immediates = IMMEDIATES in device.traits.features
    assert has_immediates == accepts(device, "var<immediate> one: u32;")


def test_features_are_left_out() -> None:
    everything = open_device()
    for feature in everything.traits.features:
        traits = open_device(without=frozenset({feature})).traits
        assert feature not in traits.features
        gone = everything.traits.features - traits.features
        assert gone - {SUBGROUP_SIZE_CONTROL} <= {feature}


@pytest.mark.parametrize(
    "name, instead",
    [
        ("subgroupss", "did you mean 'subgroups'?"),
        ("subgroup_size_control", "did you mean 'subgroup-size-control'?"),
        ("f16", "did you mean 'shader-f16'?"),
        ("subgroup_id", "did you mean 'subgroups'?"),
        ("timers", "expected one of buffer_view, "),
    ],
)
def test_an_unknown_feature_is_not_left_out(name: str, instead: str) -> None:
    with pytest.raises(WebnormError) as raised:
        open_device(without=frozenset({"linear_indexing", name}))
    assert str(raised.value).startswith(f"without: unknown feature {name!r}; {instead}")
