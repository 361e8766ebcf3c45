"""Running npm in tests, and a copy of the examples with their packages, which other tests also use."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from commands import webnorm
from pages import ROOT, blocks, transcript
from patience import HANG_S

PAGE = ROOT / "docs" / "apps.md"
UNREACHED = re.compile(r"\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|ENOTCACHED)\b")
# npm prints no prompts or notices, and uses no network if its cache is enough.
QUIET = {
    "npm_config_audit": "false",
    "npm_config_fund": "false",
    "npm_config_loglevel": "error",
    "npm_config_prefer_offline": "true",
    "npm_config_fetch_retries": "1",
    "npm_config_update_notifier": "false",
}

needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed: Node.js brings it")


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **QUIET},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=HANG_S,
        check=False,
    )


def succeed(*command: str | Path, cwd: Path) -> str:
    done = run(*command, cwd=cwd)
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def install(*command: str | Path, cwd: Path) -> None:
    """Install something with npm; skip the test without a network."""
    done = run(*command, cwd=cwd)
    unreached = UNREACHED.search(done.stderr)
    if done.returncode != 0 and unreached:
        pytest.skip(f"npm cannot fetch the packages of apps: {unreached[1]}")
    assert done.returncode == 0, done.stderr


def made_apps(root: Path) -> Path:
    """Copy the examples and build them as docs/apps.md describes; skip the test if that is impossible."""
    pytest.importorskip("onnx")
    made = shutil.ignore_patterns("node_modules", "layer-norm", "models", "dist", "package-lock.json")
    shutil.copytree(ROOT / "examples", root / "examples", ignore=made)
    for text in blocks(PAGE, "console", "sh"):
        for command in transcript(text):
            follow(command.line, root)
    return root / "examples"


def follow(line: str, folder: Path) -> None:
    """Run a command of the page, except for Python installations and servers."""
    program, *words = shlex.split(line)
    if program == "webnorm":
        done = webnorm(words, folder)
        assert done.returncode == 0, done.stderr
    elif program == "npm" and words[0] == "install":
        install(program, *words, cwd=folder)
    elif program == "npm":
        succeed(program, *words, cwd=folder)
    elif words[:2] not in (["-m", "pip"], ["-m", "http.server"]):
        assert program == "python", line
        succeed(sys.executable, *words, cwd=folder)
