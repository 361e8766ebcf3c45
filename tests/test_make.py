"""`make` reports success or failure, and keeps an existing set-up."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from patience import HANG_S

MAKEFILE = Path(__file__).parents[1] / "Makefile"

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the project's Makefile in a folder of the test, so that it does not touch the project's .venv."""
    command = ["make", "-f", str(MAKEFILE), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=HANG_S, check=False)


@pytest.mark.parametrize(("seconds", "rounds", "said"), [("0", 1, ""), ("soon", 0, "SECONDS is 'soon'")])
def test_fuzzing_takes_one_round_at_least(seconds: str, rounds: int, said: str, tmp_path: Path) -> None:
    tools, log = tmp_path / "bin", tmp_path / "log"
    tools.mkdir()
    (tools / "pytest").write_text(f'#!/bin/sh\necho round >>"{log}"\n')
    (tools / "pytest").chmod(0o755)
    # With -o, make treats the stamp as up to date and installs nothing. BIN contains the test's program.
    done = make("-o", ".venv/.installed-test", "fuzz", f"SECONDS={seconds}", f"BIN={tools}", folder=tmp_path)
    assert (done.returncode == 0) == (rounds > 0), done.stderr
    assert said in done.stderr
    assert (log.read_text().count("round") if log.exists() else 0) == rounds


@pytest.mark.parametrize("python", [True, False])
def test_stamps_count_as_long_as_their_python_exists(python: bool, tmp_path: Path) -> None:
    """BIN does not matter, because the stamps are next to that Python."""
    stamp, interpreter = tmp_path / ".venv/.installed-browser", tmp_path / ".venv/bin/python"
    interpreter.parent.mkdir(parents=True)
    stamp.touch()
    if python:
        interpreter.write_text("#!/bin/sh\n")
        interpreter.chmod(0o755)
    done = make("help", f"BIN={tmp_path / 'elsewhere'}", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert stamp.exists() == python
