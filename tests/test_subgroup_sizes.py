"""Subgroup sizes 4, 8 and 16: llvmpipe takes its own from an environment variable."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from webnorm.device import Device


@pytest.mark.parametrize(("bits", "size"), [(128, 4), (256, 8), (512, 16)])
def test_subgroup_size(bits: int, size: int, device: Device) -> None:
    if "llvmpipe" not in device.adapter.name:
        pytest.skip(f"{device.adapter.name} has one subgroup size; llvmpipe can be told to have several")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(Path(__file__).parent / "subgroup_worker.py")],
        env={**os.environ, "LP_NATIVE_VECTOR_WIDTH": str(bits)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    outcome = json.loads(done.stdout)
    assert outcome["size"] == size
    assert outcome["tried"] > 70
    assert outcome["wrong"] == []
