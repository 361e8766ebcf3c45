"""docs/fleet.md is followed word for word, but for the scheduler's port."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from clusters import Fleet

from commands import webnorm
from pages import ROOT, blocks
from webnorm.gpu.device import adapters

pytestmark = pytest.mark.xdist_group("fleet")


def test_the_guide_is_followed_with_two_workers(fleet: Fleet, tmp_path: Path) -> None:
    if not {"Vulkan", "OpenGL"} <= {one.backend for one in adapters()}:
        pytest.skip("the guide's workers are Vulkan's and OpenGL's")
    text = "".join(blocks(ROOT / "docs" / "fleet.md", "console"))
    started, *lines = text.replace("tcp://127.0.0.1:8786", fleet.address).splitlines()[1:]
    assert started == "dask scheduler --host 127.0.0.1 --port 8786"
    asked = []
    for line in lines:
        _, *words = shlex.split(line)
        if words[:2] == ["fleet", "worker"]:
            fleet.adapter(words[-1])
            continue
        asked.append(words[0])
        done = webnorm(words, tmp_path)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
    assert asked == ["fleet", "check", "bench", "tune"]
    names = sorted(path.name.partition("-")[0] for path in tmp_path.glob("*.json"))
    assert names == ["checked", "checked", "times", "times"]
