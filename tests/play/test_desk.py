"""The page's requests to a session: copies of kernels, lessons, the guide. The session loses no text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playing import TWO_PASS, ended, evaluated, shared

import broken
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.kernels.headers.library import discover
from webnorm.play.api import PlaygroundApi, guide, pack
from webnorm.play.session import PlaygroundSession
from webnorm.play.state import AttemptState

pytestmark = pytest.mark.xdist_group("play")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, device: Device) -> Iterator[PlaygroundSession]:
    with shared(tmp_path_factory) as found:
        yield found


def now_ended(played: PlaygroundSession) -> AttemptState:
    return ended(played, played.state.now.file.text)


@pytest.mark.slow
def test_a_copy_of_another_ops_kernel_replaces_the_text(played: PlaygroundSession) -> None:
    evaluated(played, TWO_PASS)
    PlaygroundApi(played).fork("rms_norm", "workgroup")
    attempt = now_ended(played)
    assert attempt.ok and played.state.now.file.op == "rms_norm"
    assert 'ops = ["rms_norm"]' in played.path.read_text()
    assert {one.result.op for one in attempt.shapes} == {"rms_norm"}
    PlaygroundApi(played).fork("layer_norm", "naive")
    assert now_ended(played).ok and played.state.now.file.op == "layer_norm"


@pytest.mark.parametrize("runs", (True, False))
def test_the_text_before_a_copy_can_be_restored(played: PlaygroundSession, runs: bool) -> None:
    text = TWO_PASS.replace("[tune]", "[tunes]" if runs else "[tune]  ")
    played.change(run=runs)
    if runs:
        evaluated(played, text)
    else:
        played.path.write_text(text)
        played.look()
    PlaygroundApi(played).fork("layer_norm", "naive")
    played.change(run=True)
    now_ended(played)
    entry = next(one for one in played.state.now.history if played.store.source(one.hash) == text)
    assert entry.status == ("error" if runs else "unjudged")


def test_a_lesson_brings_its_kernel_and_its_x(played: PlaygroundSession) -> None:
    evaluated(played, before := f"{TWO_PASS}// before the lesson\n")
    api = PlaygroundApi(played)
    api.lesson("two_pass")
    attempt = now_ended(played)
    assert "A copy of layer_norm/one_pass." in played.path.read_text()
    assert [one.given for one in attempt.shapes] == [False, False, True]
    marks = {one["text"]: one.get("met") for one in api.snapshot()["lesson"]["marks"]}
    assert marks["the output is right for every problem"] is False
    # A lesson that starts again without an edit is evaluated again.
    api.change({"x": None})
    now_ended(played)
    api.lesson("two_pass")
    assert len(now_ended(played).shapes) == 3
    api.lesson(None)
    assert len(now_ended(played).shapes) == 2 and "lesson" not in api.snapshot()
    assert played.path.read_text() == before


def test_earlier_attempts_do_not_count_for_a_lesson(played: PlaygroundSession) -> None:
    wrong = evaluated(played, TWO_PASS.replace("(d * PER_COLUMN)", "(d / f32(COLS - 1u))"))
    assert wrong.hints[0].kind == "formula"
    api = PlaygroundApi(played)
    api.lesson("naive")
    now_ended(played)
    assert [one.get("met") for one in api.snapshot()["lesson"]["marks"]] == [None, True]
    api.lesson(None)
    now_ended(played)


def test_another_filter_traces_at_once(played: PlaygroundSession) -> None:
    evaluated(played, TWO_PASS.replace("    var distances", '    {{ trace("mean") }}\n    var distances'))
    PlaygroundApi(played).trace("row == 3u")
    trace = now_ended(played).trace
    assert trace is not None and {record.row for record in trace.records} == {3}
    PlaygroundApi(played).trace("rwo == 3u")
    attempt = now_ended(played)
    note = next(stage.note for stage in attempt.stages if stage.name == "trace")
    assert attempt.trace is None and "unknown name 'rwo'" in note
    played.trace(None)


def test_unknown_kernels_and_lessons_change_nothing(played: PlaygroundSession) -> None:
    before = evaluated(played, TWO_PASS)
    with pytest.raises(WebnormError, match="unknown kernel layer_norm/nine"):
        PlaygroundApi(played).fork("layer_norm", "nine")
    with pytest.raises(WebnormError, match="unknown lesson 'nine'"):
        PlaygroundApi(played).lesson("nine")
    assert played.path.read_text() == TWO_PASS and played.state.now.attempt is before


def test_the_guide_has_the_header_the_helpers_and_every_op() -> None:
    found = guide()
    assert all(f"<code>{kernel.op.name}</code>" in found for kernel in discover() if not kernel.op.is_copy)
    for word in (
        "layout",
        "serial_terms",
        "each_row()",
        "write_row(",
        "row_reduction(",
        "has_mean",
        "params.x_start",
    ):
        assert word in found, word
    assert "<a " not in found and "<h2" not in found and "## " not in found
    assert "registers</code>, <code>workgroup_cache" not in found


def test_a_wrong_or_unstable_kernel_is_packed_only_by_force(tmp_path: Path, device: Device) -> None:
    """The playground refuses for the same reasons as `webnorm export`."""
    own = broken.write(tmp_path, "wrong") / "layer_norm" / "wrong.wgsl"
    settings = {"--dtype": "float32", "--eps": None, "--scale": None, "--name": None, "--minify": False}
    for kernel, reason in ((str(own), "kernel wrong as 64-"), ("one_pass", "kernel one_pass is unstable (")):
        words = ("layer_norm", (64,), (), kernel, (tmp_path,), settings)
        (refused,) = pack(None, words)
        assert isinstance(refused, str) and refused.startswith(reason)
        (packed,) = pack(None, (*words, True))
        assert isinstance(packed, bytes)
