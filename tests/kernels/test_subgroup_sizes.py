"""Subgroup sizes 4, 8 and 16, which an environment variable sets for llvmpipe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from subgroup_worker import SIZES

from patience import HANG_S
from testbed import STABLE, needs
from webnorm.gpu.device import Device


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_subgroup_size(size: int, device: Device) -> None:
    if "llvmpipe" not in device.adapter.name:
        pytest.skip(
            f"{device.adapter.name} has one subgroup size; llvmpipe can be configured to have several"
        )
    needs(device, ["subgroups"])
    if size == device.subgroup_size:
        pytest.skip(f"{size} is the size that all other tests have here")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(Path(__file__).parent / "subgroup_worker.py")],
        env={
            **os.environ,
            "LP_NATIVE_VECTOR_WIDTH": str(32 * size),
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    outcome = json.loads(done.stdout)
    assert outcome["size"] == size
    assert len(outcome["tried"]) > 70
    assert {*outcome["tried"]} == {kernel.label for kernel in STABLE if "subgroups" in kernel.features}
    assert outcome["wrong"] == []
