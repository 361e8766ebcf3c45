"""What `make` does says whether it was done."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from patience import HANG_S

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(("seconds", "rounds", "said"), [("0", 1, ""), ("soon", 0, "SECONDS is 'soon'")])
def test_fuzzing_takes_one_round_at_least(seconds: str, rounds: int, said: str, tmp_path: Path) -> None:
    tools, log = tmp_path / "bin", tmp_path / "log"
    tools.mkdir()
    (tools / "pytest").write_text(f'#!/bin/sh\necho round >>"{log}"\n')
    (tools / "pytest").chmod(0o755)
    # The environment is there: its stamp counts as old, and its programs are ours.
    command = ["make", "-o", ".venv/.installed-test", "fuzz", f"SECONDS={seconds}", f"BIN={tools}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert (done.returncode == 0) == (rounds > 0), done.stderr
    assert said in done.stderr
    assert (log.read_text().count("round") if log.exists() else 0) == rounds
