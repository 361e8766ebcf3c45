"""Asks Tint, Chrome's WGSL compiler, about shaders: naga accepts much that browsers refuse."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

TINT = Path(__file__).parent / "tint"

# 168 shaders take 0.1 s and node's start 0.2 s; the rest is room for a busy machine.
TIME_LIMIT_SECONDS = 120


def tint_available() -> str | None:
    """None if Tint can be asked, else why not and the command that mends it."""
    if shutil.which("node") is None:
        return "node is not installed: install Node.js 20 or later, then run `make test`"
    if not (TINT / "node_modules" / "webgpu").is_dir():
        return "the npm package webgpu is not installed: npm install --prefix tests/tint"
    return None


def tint_check(shaders: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One verdict per shader, in one run of node; tint/check.mjs describes both shapes."""
    run = subprocess.run(
        ["node", str(TINT / "check.mjs")],
        input=json.dumps(shaders),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=TIME_LIMIT_SECONDS,
        check=False,
    )
    if run.returncode != 0:
        raise RuntimeError(f"node ended with status {run.returncode}:\n{run.stderr}")
    verdicts: list[dict[str, Any]] = json.loads(run.stdout)
    return verdicts
