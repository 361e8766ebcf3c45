"""Checks shaders with Tint, Chrome's WGSL compiler, since naga accepts much that browsers refuse.

The npm package webgpu contains Tint and Dawn's validation, and needs no adapter. This module also runs other
scripts in node.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from webnorm.engines.node_webgpu import tint_fix, tint_folder
from webnorm.errors import SourceLocation, WebnormError, sentence
from webnorm.files.atomic import unnamed
from webnorm.kernels.headers.traits import device_features
from webnorm.kernels.rendering.render import Shader
from webnorm.kernels.rendering.sandbox import killed_after
from webnorm.kernels.wgsl.diagnostics import characters

# 168 shaders take 0.1 s and starting node takes 0.2 s; the rest is reserve for a busy machine.
TIME_LIMIT_S = 120.0
# For one shader in a running node process, which takes 15 ms on an idle machine.
REQUEST_LIMIT_S = 10.0
# Dawn keeps 40 kB of each request, so node is restarted after this many.
_MOST_REQUESTS = 2000
ASSETS = Path(__file__).parent / "assets"
_SCRIPT = "check.mjs"
# The start of an answer's line, since Dawn also writes to stdout.
_RESULT = "result: "
_OFF = re.compile(r"diagnostic\s*\(\s*off\b")


@dataclass(frozen=True)
class TintEntryPoint:
    """An entry point of a pipeline; bindings are pairs of a number and a GPUBufferBindingType.

    `immediate_size` has the bytes of its immediates.
    """

    entry_point: str
    bindings: tuple[tuple[int, str], ...]
    constants: Mapping[str, float] = field(default_factory=dict)
    immediate_size: int = 0


@dataclass(frozen=True)
class TintSource:
    """A shader with its features and limits; only limits above the defaults matter."""

    name: str
    code: str
    passes: tuple[TintEntryPoint, ...]
    features: tuple[str, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TintMessage:
    """A message of the compiler or the validation, with its place in the text if known.

    Lines and columns begin at 1; columns and lengths are in UTF-16 units.
    """

    severity: str
    text: str
    line: int | None = None
    column: int | None = None
    length: int = 0

    @property
    def refuses(self) -> bool:
        """True for an error, and for a warning about uniformity, which browsers may turn into an error."""
        return self.severity == "error" or (self.severity == "warning" and "uniform" in self.text)

    def located_error(self, shader: Shader) -> WebnormError:
        """Return the error at the author's line; the message names the place in a snippet."""
        place = self.place(shader)
        author = None if place is None or self.line is None else shader.blamed(self.line, self.text)
        if place is None or author is None:
            return WebnormError(sentence(self.text), place)
        return WebnormError(f"{sentence(self.text)}, in {place.file}:{place.line}", author)

    def place(self, shader: Shader) -> SourceLocation | None:
        """Return the place of the message in the shader's template."""
        lines = shader.text.splitlines()
        if not self.line or not self.column or self.line > len(lines):
            return None
        units = self.column - 1, self.column - 1 + self.length
        begin, end = (characters(lines[self.line - 1], count) for count in units)
        return shader.place(self.line, begin + 1, end - begin)


@dataclass(frozen=True)
class TintVerdict:
    """All messages about a shader."""

    name: str
    messages: tuple[TintMessage, ...]

    @property
    def ok(self) -> bool:
        """True if browsers accept the shader."""
        return not any(message.refuses for message in self.messages)


def tint_unavailable() -> str | None:
    """Return None if Tint is available, else the reason and the remedy in one line."""
    missing = tint_fix()
    if missing is None:
        return None
    return missing.missing + (" `webnorm doctor --fix --browser` installs it." if missing.commands else "")


def check_shaders(sources: Sequence[TintSource]) -> list[TintVerdict]:
    """Return one verdict per shader, from a single run of node."""
    _check_available()
    return _verdicts(sources, run_node(_SCRIPT, tint_folder(), text=_request(sources)))


class OpenTint:
    """Tint in a node process that stays open. It starts on demand, and again after it died.

    Threads take turns. Node ends with this process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._node: _Node | None = None
        # The number of calls of `stop`: a check that runs meanwhile starts no new process.
        self._stops = 0

    def __enter__(self) -> OpenTint:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def check(self, sources: Sequence[TintSource], time_limit_s: float | None = None) -> list[TintVerdict]:
        """Return one verdict per shader.

        Raises WebnormError if Tint is missing or ends, or takes longer than the limit, REQUEST_LIMIT_S by
        default.
        """
        limit_s = REQUEST_LIMIT_S if time_limit_s is None else time_limit_s
        with self._lock:
            try:
                return _verdicts(sources, self._ask(_request(sources), limit_s))
            except BaseException:
                # Also after Ctrl-C, since the next check must not get this answer.
                self._end()
                raise

    def start(self) -> None:
        """Start node, so that the first shader does not wait 0.2 s for it."""
        self.check((), TIME_LIMIT_S)

    def stop(self) -> None:
        """End node at once, even if a check is running; the next check starts a new process."""
        self._stops += 1
        if (node := self._node) is not None:
            node.process.kill()
        with self._lock:
            self._end()

    def _ask(self, request: str, limit_s: float) -> Any:
        stops = self._stops
        if self._node is not None and self._node.answered > _MOST_REQUESTS:
            self._end()
        if self._node is not None:
            try:
                return self._node.ask(request, limit_s)
            except _Died:
                # It probably died between two checks, so this check starts a new process.
                self._end()
        _check_available()
        self._node = _Node()
        try:
            if self._stops != stops:
                raise WebnormError(f"{_SCRIPT}: stopped")
            self._node.ask(_request(()), TIME_LIMIT_S)
            return self._node.ask(request, limit_s)
        except _Died:
            raise _failure(self._node.last_words(), self._node.process.returncode) from None

    def _end(self) -> None:
        if self._node is not None:
            self._node.end()
            self._node = None


class _Died(Exception):
    """Node ended without an answer."""


class _Node:
    """A node process that answers requests."""

    def __init__(self) -> None:
        self.answered = 0
        # Its messages about errors.
        self._stderr = unnamed()
        try:
            self.process = subprocess.Popen(
                ["node", str(ASSETS / _SCRIPT), str(tint_folder())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                encoding="utf-8",
                errors="replace",
            )
        except FileNotFoundError:
            self._stderr.close()
            raise WebnormError(tint_unavailable() or "node cannot be started") from None

    def ask(self, request: str, limit_s: float) -> Any:
        """Return the answer. Raises WebnormError after the time limit, and _Died if node ends."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with killed_after(limit_s, self.process) as expired, suppress(OSError, ValueError):
            self.process.stdin.write(f"{request}\n")
            self.process.stdin.flush()
            for line in self.process.stdout:
                if line.startswith(_RESULT):
                    self.answered += 1
                    return json.loads(line.removeprefix(_RESULT))
        if expired.is_set():
            raise _late(_SCRIPT, limit_s)
        raise _Died

    def last_words(self) -> str:
        """Return the error output of the process."""
        self.process.kill()
        self.process.wait()
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")

    def end(self) -> None:
        """End the process and close its pipes."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        # Closing flushes a request that node never read, which fails.
        with suppress(OSError):
            self.process.stdin.close()
        self.process.stdout.close()
        self._stderr.close()


def _check_available() -> None:
    if reason := tint_unavailable():
        raise WebnormError(reason)


def _verdicts(sources: Sequence[TintSource], said: Any) -> list[TintVerdict]:
    """Return the verdict on each shader, from node's messages and the check for silenced diagnostics."""
    return [
        TintVerdict(source.name, (*_silenced(source.code), *(TintMessage(**message) for message in messages)))
        for source, messages in zip(sources, said, strict=True)
    ]


def run_node(script: str | Path, *arguments: Path, text: str = "", limit_s: float | None = None) -> Any:
    """Run a script of assets/, or at a path, and return its result.

    Raises WebnormError with node's message if it fails, or takes longer than the limit, TIME_LIMIT_S by
    default.
    """
    limit_s = TIME_LIMIT_S if limit_s is None else limit_s
    try:
        run = _node((str(ASSETS / script), *map(str, arguments)), text, limit_s)
    except FileNotFoundError:
        raise WebnormError(tint_unavailable() or "node cannot be started") from None
    except subprocess.TimeoutExpired:
        raise _late(script, limit_s) from None
    if run.returncode != 0:
        raise _failure(run.stderr, run.returncode)
    try:
        return json.loads(run.stdout.rpartition(f"\n{_RESULT}")[2])
    except ValueError:
        raise WebnormError(f"{script}: node ended without a result") from None


def _node(arguments: Sequence[str], text: str, limit_s: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["node", *arguments],
        input=text,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=limit_s,
        check=False,
    )


def check_node() -> None:
    """Raise WebnormError if node cannot even run an empty script, so that no other script is blamed."""
    try:
        run = _node(("-e", ""), "", TIME_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WebnormError(f"node cannot be started: {error}") from error
    if run.returncode != 0:
        raise WebnormError(
            f"node cannot run an empty script: {_failure(run.stderr, run.returncode)}; "
            "check that `node -e 0` works: see its installation and NODE_OPTIONS"
        )


def source_of(name: str, shader: Shader) -> TintSource:
    """Return the request for a browser shader, with the default limits of a page."""
    kinds = {"read": "read-only-storage", "read_write": "storage"}
    uniform = () if shader.immediates else ((0, "uniform"),)
    passes = tuple(
        TintEntryPoint(
            each.entry_point,
            (*uniform, *((binding.index, kinds[binding.access]) for binding in each.bindings)),
            immediate_size=shader.immediate_size,
        )
        for each in shader.passes
    )
    return TintSource(name, shader.text, passes, tuple(device_features(shader.features)))


def _late(script: str | Path, limit_s: float) -> WebnormError:
    return WebnormError(f"{script}: node did not finish within {limit_s:g} s: stopped")


def _failure(said: str, status: int) -> WebnormError:
    """Return the error for an ended node process: its message, or else its exit status."""
    lines = said.strip().splitlines() or [f"node ended with exit status {status}"]
    return WebnormError(next((line for line in lines if re.match(r"\w*Error\b", line)), lines[-1]))


def _request(sources: Sequence[TintSource]) -> str:
    """Return shaders as one line of JSON, for assets/check.mjs."""

    def entry(one: TintEntryPoint) -> dict[str, Any]:
        return {**vars(one), "bindings": [{"binding": number, "type": kind} for number, kind in one.bindings]}

    return json.dumps([{**vars(one), "passes": [*map(entry, one.passes)]} for one in sources])


def _silenced(code: str) -> Iterator[TintMessage]:
    """Yield an error for each place that turns off Tint's diagnostics."""
    for found in _OFF.finditer(code):
        line_start = code.rfind("\n", 0, found.start()) + 1
        line, column = code.count("\n", 0, line_start) + 1, found.start() - line_start + 1
        yield TintMessage("error", "diagnostics may not be turned off", line, column)
