"""Asks Tint, Chrome's WGSL compiler, about shaders: naga accepts much that browsers refuse.

The npm package webgpu brings Tint and Dawn's validation, and needs no adapter. What runs in node runs here.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from webnorm.errors import WebnormError
from webnorm.files import cache_folder
from webnorm.system import Mend

# Its Tint and Dawn agreed with Chromium 156 on every construct tried. Each version has a folder of its own.
WEBGPU = "0.6.2"
# 168 shaders take 0.1 s and node's start 0.2 s; the rest is room for a busy machine.
TIME_LIMIT_S = 120.0
ASSETS = Path(__file__).parent / "assets"
_OFF = re.compile(r"diagnostic\s*\(\s*off\b")


@dataclass(frozen=True)
class EntryPoint:
    """An entry point of a pipeline; bindings are pairs of a number and a GPUBufferBindingType."""

    entry_point: str
    bindings: tuple[tuple[int, str], ...]
    constants: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """A shader and what it may use; of `limits` only what exceeds the defaults matters."""

    name: str
    code: str
    passes: tuple[EntryPoint, ...]
    features: tuple[str, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Message:
    """What the compiler or the validation said, and where in the text if it has a place."""

    severity: str
    text: str
    line: int | None = None
    column: int | None = None

    @property
    def refuses(self) -> bool:
        """Whether it is an error, or a warning about uniformity: what browsers warn of, they may refuse."""
        return self.severity == "error" or (self.severity == "warning" and "uniform" in self.text)


@dataclass(frozen=True)
class Verdict:
    """All that was said about a shader."""

    name: str
    messages: tuple[Message, ...]

    @property
    def ok(self) -> bool:
        """Whether browsers take the shader."""
        return not any(message.refuses for message in self.messages)


def available() -> str | None:
    """None if Tint can be asked, else why not and what mends it, in one line."""
    missing = mend()
    if missing is None:
        return None
    return missing.missing + (" `webnorm doctor --mend --browser` installs it." if missing.commands else "")


def mend() -> Mend | None:
    """What is missing for asking Tint."""
    # npm writes this file when all others are in place.
    installed = (folder() / "node_modules" / ".package-lock.json").exists()
    for program in ("node",) if installed else ("node", "npm"):
        if shutil.which(program) is None:
            return Mend(f"No Tint: {program} is not installed; install Node.js 20 or later, with npm.")
    if installed:
        return None
    options = ("--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error")
    command = ("npm", "install", "--prefix", str(folder()), *options, f"webgpu@{WEBGPU}")
    return Mend(f"No Tint: the npm package webgpu {WEBGPU} is not installed.", (command,))


def folder() -> Path:
    """Where npm puts the package."""
    return cache_folder(f"webgpu-{WEBGPU}")


def check(sources: Sequence[Source]) -> list[Verdict]:
    """One verdict per shader, in one run of node."""
    reason = available()
    if reason is not None:
        raise WebnormError(reason)
    said = run_node("check.mjs", folder(), text=json.dumps([_request(source) for source in sources]))
    return [
        Verdict(source.name, (*_silenced(source.code), *(Message(**message) for message in messages)))
        for source, messages in zip(sources, said, strict=True)
    ]


def run_node(script: str, argument: Path, text: str = "") -> Any:
    """The result that a script of assets/ writes; a WebnormError with node's own words if it fails."""
    try:
        run = subprocess.run(
            ["node", str(ASSETS / script), str(argument)],
            input=text,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=TIME_LIMIT_S,
            check=False,
        )
    except FileNotFoundError:
        raise WebnormError(available() or "node cannot be started") from None
    except subprocess.TimeoutExpired:
        raise WebnormError(f"{script}: node was not done within {TIME_LIMIT_S:g} s: stopped") from None
    if run.returncode != 0:
        lines = run.stderr.strip().splitlines() or [f"exit status {run.returncode}"]
        raise WebnormError(next((line for line in lines if re.match(r"\w*Error\b", line)), lines[-1]))
    try:
        return json.loads(run.stdout.rpartition("\nresult: ")[2])
    except ValueError:
        raise WebnormError(f"{script}: node ended without a result") from None


def _request(source: Source) -> dict[str, Any]:
    """A shader as assets/check.mjs reads it."""
    passes = [
        {**vars(one), "bindings": [{"binding": number, "type": kind} for number, kind in one.bindings]}
        for one in source.passes
    ]
    return {**vars(source), "passes": passes}


def _silenced(code: str) -> Iterator[Message]:
    """An error for each place that would keep Tint from saying what it found."""
    for found in _OFF.finditer(code):
        line_start = code.rfind("\n", 0, found.start()) + 1
        line, column = code.count("\n", 0, line_start) + 1, found.start() - line_start + 1
        yield Message("error", "diagnostics may not be turned off", line, column)
