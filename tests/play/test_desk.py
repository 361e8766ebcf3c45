"""What the page asks of a session: copies of kernels, lessons, the guide. Nothing written is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playing import TWO_PASS, ended, judged, shared

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
def test_a_copy_of_another_ops_kernel_takes_the_place(played: PlaygroundSession) -> None:
    judged(played, TWO_PASS)
    PlaygroundApi(played).fork("rms_norm", "workgroup")
    attempt = now_ended(played)
    assert attempt.ok and played.state.now.file.op == "rms_norm"
    assert 'ops = ["rms_norm"]' in played.path.read_text()
    assert {one.result.op for one in attempt.shapes} == {"rms_norm"}
    PlaygroundApi(played).fork("layer_norm", "naive")
    assert now_ended(played).ok and played.state.now.file.op == "layer_norm"


@pytest.mark.parametrize("judges", (True, False))
def test_the_text_before_a_copy_can_be_had_again(played: PlaygroundSession, judges: bool) -> None:
    text = TWO_PASS.replace("[tune]", "[tunes]" if judges else "[tune]  ")
    played.change(run=judges)
    if judges:
        judged(played, text)
    else:
        played.path.write_text(text)
        played.look()
    PlaygroundApi(played).fork("layer_norm", "naive")
    played.change(run=True)
    now_ended(played)
    entry = next(one for one in played.state.now.history if played.store.source(one.hash) == text)
    assert entry.status == ("error" if judges else "unjudged")


def test_a_lesson_brings_its_kernel_and_its_x(played: PlaygroundSession) -> None:
    judged(played, before := f"{TWO_PASS}// before the lesson\n")
    desk = PlaygroundApi(played)
    desk.lesson("two_pass")
    attempt = now_ended(played)
    assert "A copy of layer_norm/one_pass." in played.path.read_text()
    assert [one.given for one in attempt.shapes] == [False, False, True]
    marks = {one["text"]: one.get("met") for one in desk.snapshot()["lesson"]["marks"]}
    assert marks["it is right"] is False
    # Begun again without an edit it is judged again.
    desk.change({"x": None})
    now_ended(played)
    desk.lesson("two_pass")
    assert len(now_ended(played).shapes) == 3
    desk.lesson(None)
    assert len(now_ended(played).shapes) == 2 and "lesson" not in desk.snapshot()
    assert played.path.read_text() == before


def test_what_was_done_before_a_lesson_counts_for_none_of_it(played: PlaygroundSession) -> None:
    wrong = judged(played, TWO_PASS.replace("(d * PER_COLUMN)", "(d / f32(COLS - 1u))"))
    assert wrong.hints[0].kind == "formula"
    desk = PlaygroundApi(played)
    desk.lesson("naive")
    now_ended(played)
    assert [one.get("met") for one in desk.snapshot()["lesson"]["marks"]] == [None, True]
    desk.lesson(None)
    now_ended(played)


def test_another_filter_traces_at_once(played: PlaygroundSession) -> None:
    judged(played, TWO_PASS.replace("    var distances", '    {{ trace("mean") }}\n    var distances'))
    PlaygroundApi(played).trace("row == 3u")
    trace = now_ended(played).trace
    assert trace is not None and {record.row for record in trace.records} == {3}
    PlaygroundApi(played).trace("rwo == 3u")
    attempt = now_ended(played)
    note = next(stage.note for stage in attempt.stages if stage.name == "trace")
    assert attempt.trace is None and "unknown name 'rwo'" in note
    played.trace(None)


def test_unknown_kernels_and_lessons_change_nothing(played: PlaygroundSession) -> None:
    before = judged(played, TWO_PASS)
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
    """As `webnorm export` has it, whose texts these are."""
    own = broken.write(tmp_path, "wrong") / "layer_norm" / "wrong.wgsl"
    settings = {"--dtype": "float32", "--eps": None, "--scale": None, "--name": None, "--minify": False}
    for kernel, told in ((str(own), "kernel wrong as 64-"), ("one_pass", "kernel one_pass is unstable (")):
        words = ("layer_norm", (64,), (), kernel, (tmp_path,), settings)
        (refused,) = pack(None, words)
        assert isinstance(refused, str) and refused.startswith(told)
        (packed,) = pack(None, (*words, True))
        assert isinstance(packed, bytes)
