"""Measure how fast the playground answers a save.

    python -m bench.play [--adapter ADAPTER] [--saves 20] [--kernel two_pass]

Each save replaces a copy of a kernel's file by renaming, as editors do. Every text is new, so each one is
compiled. The first line is the time until a save is noticed; the other lines start after that. A spare worker
is ready before each crash of a worker.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.arguments import bare_parser, positive, run
from webnorm.errors import WebnormError
from webnorm.kernels.headers.library import discover, select
from webnorm.kernels.headers.sources import stamp
from webnorm.play.attempt_store import FOLDER_VARIABLE
from webnorm.play.file_watch import FileWatch
from webnorm.play.session import PlaygroundSession
from webnorm.play.state import AttemptState, Settings

# Goals for the medians, in milliseconds.
GOALS = {
    "save seen": 20,
    "compile error shown": 50,
    "verdict, warm": 150,
    "next verdict after a death": 300,
    "first time shown": 600,
}
_PATIENCE_S = 60.0
# naga's SPIR-V writer panics on a pointer to an array's element as an argument.
Change = tuple[str, str]
_REFUSED: tuple[Change, ...] = (("let mean = ", "let mean = = "),)
_DEADLY: tuple[Change, ...] = (
    ("@compute", "fn touch(p: ptr<function, f32>) { *p = 1.0; }\n@compute"),
    ("let pivot", "var many = array<f32, 4>();\n    touch(&many[row % 4u]);\n    let pivot"),
)


@dataclass
class _File:
    """The file that is saved repeatedly, each time with a new text."""

    path: Path
    text: str
    saves: int = 0

    def save(self, *changes: Change) -> None:
        """Replace the file by its text with changes and a new constant."""
        text = self.text
        for old, new in changes:
            if old not in text:
                raise WebnormError(f"the kernel's text has no {old!r}; expected one like two_pass")
            text = text.replace(old, new, 1)
        self.saves += 1
        temporary = self.path.with_suffix(".part")
        temporary.write_text(f"{text}const SAVE = {self.saves}u;\n", encoding="utf-8")
        os.replace(temporary, self.path)


def seen(file: _File, saves: int) -> Iterator[float]:
    """Yield the milliseconds from a save to the watch's call."""
    called = threading.Event()
    with FileWatch(lambda: stamp(str(file.path)), called.set, print):
        for _ in range(saves):
            called.clear()
            file.save()
            began = perf_counter()
            if not called.wait(_PATIENCE_S):
                raise WebnormError(f"a save was not noticed within {_PATIENCE_S:g} s")
            yield 1e3 * (perf_counter() - began)
            # The watch reports a save twice; the second report must not count for the next save.
            called.wait(0.0)
            threading.Event().wait(0.3)


def answered(
    session: PlaygroundSession, file: _File, shown: Callable[[AttemptState], bool], *changes: Change
) -> float:
    """Return the milliseconds from a save until its attempt meets a condition."""
    now = session.state.now.attempt
    number = 0 if now is None else now.number
    began = perf_counter()
    file.save(*changes)
    _until(session, lambda attempt: attempt.number > number and shown(attempt))
    return 1e3 * (perf_counter() - began)


def _until(session: PlaygroundSession, condition: Callable[[AttemptState], bool]) -> None:
    """Return as soon as the attempt of a snapshot meets a condition."""
    if session.state.until(lambda now: now.attempt and condition(now.attempt), _PATIENCE_S) is not None:
        return
    notices = "; ".join(session.state.now.notices)
    raise WebnormError(f"no answer within {_PATIENCE_S:g} s{': ' if notices else ''}{notices}")


def _spared(session: PlaygroundSession) -> None:
    """Wait until a spare worker is ready, which takes a few seconds."""
    deadline = perf_counter() + _PATIENCE_S
    while len(session.worker_pids) < 2 and perf_counter() < deadline:
        threading.Event().wait(0.05)


def refused(attempt: AttemptState) -> bool:
    """Return True if a mistake is shown."""
    return bool(attempt.mistakes)


def has_verdict(attempt: AttemptState) -> bool:
    """Return True if the verdict is shown."""
    return attempt.ok is not None


def is_timed(attempt: AttemptState) -> bool:
    """Return True if a time is shown, proved or not."""
    return attempt.time is not None


def latencies(file: _File, adapter: str | None, saves: int) -> Iterator[tuple[str, list[float]]]:
    """Measure and yield each line of the table."""
    yield "save seen", list(seen(file, saves))
    verdict_alone = Settings(time=False, corpus=False)
    with PlaygroundSession(file.path, verdict_alone, adapter=adapter) as session:
        _until(session, has_verdict)
        parts: dict[str, list[float]] = {name: [] for name in GOALS}
        for _ in range(saves):
            parts["compile error shown"].append(answered(session, file, refused, *_REFUSED))
            # A verdict right after an error takes as long as any other.
            session.idle(_PATIENCE_S)
            parts["verdict, warm"].append(answered(session, file, has_verdict))
            session.idle(_PATIENCE_S)
        yield from ((name, parts[name]) for name in ("compile error shown", "verdict, warm"))
        for _ in range(saves):
            _spared(session)
            answered(session, file, refused, *_DEADLY)
            session.idle(_PATIENCE_S)
            parts["next verdict after a death"].append(answered(session, file, has_verdict))
            session.idle(_PATIENCE_S)
        yield "next verdict after a death", parts["next verdict after a death"]
    with PlaygroundSession(file.path, Settings(corpus=False), adapter=adapter) as session:
        session.run()
        _until(session, is_timed)
        session.idle(_PATIENCE_S)
        found = []
        for _ in range(saves):
            found.append(answered(session, file, is_timed))
            session.idle(_PATIENCE_S)
        yield "first time shown", found


def table(found: dict[str, list[float]]) -> Table:
    """Return the medians, 95th percentiles and goals; later lines exclude the time to notice a save."""
    shown = Table("", "median", "p95", "goal", "saves")
    first = float(np.median(found["save seen"]))
    for name, times in found.items():
        less = 0.0 if name == "save seen" else first
        median, p95 = (f"{value - less:.0f} ms" for value in np.percentile(times, (50, 95)))
        shown.add_row(name, median, p95, f"{GOALS[name]} ms", str(len(times)))
    return shown


def main() -> None:
    """Measure, and print the table."""
    parser = bare_parser(__doc__)
    parser.add_argument("--adapter")
    parser.add_argument("--saves", type=positive, default=20)
    parser.add_argument("--kernel", default="two_pass", help="the layer_norm kernel that is edited")
    asked = parser.parse_args()
    console = Console()
    kernel = select(discover(), asked.kernel)
    with tempfile.TemporaryDirectory() as folder:
        # These attempts are temporary, so the user's history stays clean.
        os.environ[FOLDER_VARIABLE] = folder
        path = Path(folder) / "wgsl" / "layer_norm" / "played.wgsl"
        path.parent.mkdir(parents=True)
        file = _File(path, kernel.path.read_text(encoding="utf-8"))
        file.save()
        found = {}
        for name, times in latencies(file, asked.adapter, asked.saves):
            found[name] = times
            console.print(f"{name}: {len(times)} saves", style="dim")
    console.print(table(found))


if __name__ == "__main__":
    run(main)
