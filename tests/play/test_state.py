"""Snapshots have growing revisions and are JSON for any result. Attempts survive damaged files."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from canned import canned

from patience import HANG_S
from webnorm.errors import WebnormError
from webnorm.lab.diagnose.heat_map import HeatMap
from webnorm.lab.results.result import Result
from webnorm.lab.results.result_files import read
from webnorm.lab.verify.accuracy import WorstElement
from webnorm.ops.norms.problem import NormProblem
from webnorm.play.attempt_store import FOLDER_VARIABLE, AttemptStore, scratch
from webnorm.play.state import (
    AttemptState,
    HistoryEntry,
    LiveTime,
    PlaygroundState,
    Settings,
    Snapshot,
    WatchedFile,
    snapshot_as_json,
    text_digest,
)


def attempt(number: int, text: str = "a", **known: Any) -> AttemptState:
    return AttemptState(number=number, hash=text_digest(text), saved="2026-11-24T00:00:00Z", **known)


def first() -> Snapshot:
    return Snapshot(file=WatchedFile(name="my.wgsl", path="/my.wgsl", text="a"), settings=Settings())


def test_a_waiting_thread_gets_the_next_snapshot() -> None:
    state = PlaygroundState(first())
    assert state.wait(0, 0.0) is None and state.wait(-1, 0.0) is state.now
    other = threading.Thread(target=lambda: state.change(working="render"))
    other.start()
    now = state.wait(0, HANG_S)
    other.join()
    assert now is not None and now.revision == 1 and now.working == "render"


def test_a_snapshot_is_json() -> None:
    worst = WorstElement("y", (0, 1), math.nan, -math.inf, math.inf, 1e-6)
    cells = ((0.5, math.inf),)
    found = attempt(1, worst=worst, map=HeatMap("y", 1, 2, 1, 1, cells), ok=False)
    data = json.loads(
        json.dumps(snapshot_as_json(PlaygroundState(first()).change(attempt=found)), allow_nan=False)
    )
    assert data["file"]["base"] == text_digest("a") and "good" not in data
    assert data["attempt"]["worst"]["got"] == "nan" and data["attempt"]["worst"]["index"] == [0, 1]
    assert data["attempt"]["map"]["cells"] == [[0.5, "inf"]]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AttemptStore:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "attempts"))
    return AttemptStore.of(tmp_path / "my.wgsl")


def timed() -> Result:
    problem = NormProblem(rows=2, cols=4)
    return Result(
        op="layer_norm",
        kernel="my",
        constants={},
        problem=problem,
        status="pass",
        median_ns=10.0,
        samples_ns=(10.0,),
        gbps=2.0,
    )


def test_stored_attempts_are_read_again(store: AttemptStore) -> None:
    assert store.entries() == ()
    store.keep(attempt(1, ok=False), {})
    entry = store.keep(attempt(2, ok=True, times=(LiveTime("attempt", timed(), True),)), {"adapter": "one"})
    assert store.entries() == (HistoryEntry.of(attempt(1, ok=False)), entry) and entry.median_ns == 10.0
    # A newer state of an attempt replaces the stored one.
    store.keep(attempt(1, ok=True), {})
    assert {one.number: one.status for one in store.entries()} == {1: "pass", 2: "pass"}
    (result,) = read(store.folder / "results" / "2.json").results
    assert result.kernel == "my"


def test_two_sessions_with_one_file_keep_the_attempts_of_both(store: AttemptStore) -> None:
    """Each session counts its own attempts. Attempts with the same number and text are the same."""
    for number, text in ((1, "a"), (2, "a"), (2, "b"), (1, "a"), (2, "b")):
        store.keep(attempt(number, text), {})
    assert [(one.number, one.hash) for one in store.entries()] == [
        (number, text_digest(text)) for number, text in ((2, "a"), (1, "a"), (2, "b"))
    ]


def test_invalid_lines_are_ignored(store: AttemptStore) -> None:
    store.keep(attempt(1, ok=True), {})
    path = store.folder / "attempts.jsonl"
    path.write_text("{\n[]\n" + path.read_text() + '{"number": "x"}\n\xff')
    assert [one.number for one in store.entries()] == [1]


def test_sources_are_stored_by_their_digest(store: AttemptStore) -> None:
    path = store.keep_source("text", "layer_norm", "my")
    assert path.parent.name == "layer_norm" and store.source(text_digest("text")) == "text"
    for hash in ("", "../..", text_digest("another"), "0" * 64 + "/"):
        with pytest.raises(WebnormError, match="hash is"):
            store.source(hash)


def test_an_edited_scratch_file_stays(store: AttemptStore) -> None:
    path = scratch()
    assert path.parent.name == "layer_norm" and "/// webnorm" in path.read_text()
    path.write_text("mine")
    assert scratch().read_text() == "mine"


def unknown_names(value: Any, kind: Any, at: str = "snapshot") -> Iterator[str]:
    """Yield the names in a JSON value that are not fields of its dataclass."""
    if isinstance(value, list):
        (own, *_) = [*(one for one in get_args(kind) if one is not Ellipsis), Any]
        for one in value:
            yield from unknown_names(one, own, at)
    elif isinstance(value, dict):
        (own, *_) = [*(one for one in (kind, *get_args(kind)) if is_dataclass(one)), None]
        if own is None or own is Result:
            return
        hints = {**get_type_hints(own), "base": str, "revision": int}
        for name, one in value.items():
            if name not in hints:
                yield f"{at}.{name}"
            else:
                yield from unknown_names(one, hints[name], f"{at}.{name}")


def test_the_canned_state_is_a_snapshot() -> None:
    assert list(unknown_names(canned(), Snapshot)) == []
    assert list(unknown_names({"attempt": {"times": [{"nam": 1}]}}, Snapshot)) == [
        "snapshot.attempt.times.nam"
    ]
