"""A session survives any saved text, and reports the mistakes in it with their places."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import playing
import pytest
from playing import TWO_PASS, changed, drafted, ended, evaluated, peak, saved, shared, until

import broken
from headless import needs_tint
from patience import HANG_S
from testbed import KERNELS, needs
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.lab.run import evaluation
from webnorm.play import attempt_runner, stages
from webnorm.play.session import PlaygroundSession
from webnorm.play.state import SaveConflict, StageName, text_digest
from webnorm.web import tint

pytestmark = pytest.mark.xdist_group("play")
DEADLY = tuple(broken.REPLACED["panics"].items())


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, device: Device) -> Iterator[PlaygroundSession]:
    """Yield one session for all tests; each test starts with its own save."""
    with shared(tmp_path_factory) as found:
        yield found


@pytest.mark.slow
def test_a_right_kernel_passes_both_shapes(played: PlaygroundSession) -> None:
    attempt = evaluated(played, changed(("// The second", "// Here the second")))
    assert attempt.ok and not attempt.mistakes and not attempt.hints
    assert len(attempt.shapes) == 2 and all(one.result.status == "pass" for one in attempt.shapes)
    unable = {"tint"} if tint.tint_unavailable() else set()
    assert {stage.name for stage in attempt.stages if stage.state != "done"} == unable
    assert played.state.now.good is attempt


@pytest.mark.parametrize(
    ("by", "old", "new", "says", "marked"),
    (
        ("naga", "let mean = ", "let mean = = ", "expected expression", "="),
        ("tint", "let mean = ", "let mean = = ", "missing initializer", "="),
        ("template", "let pivot", "{{ nothing }} let pivot", "'nothing' is undefined", "nothing"),
        ("template", "{% call each_row() %}", "{% cal each_row() %}", "unknown tag 'cal'", "cal"),
        ("header", "[tune]", "[tunes]", "did you mean 'tune'", "tunes"),
    ),
)
def test_a_mistake_is_at_its_place_in_the_file(
    played: PlaygroundSession, by: str, old: str, new: str, says: str, marked: str
) -> None:
    if by == "tint" and (missing := tint.tint_unavailable()):
        pytest.skip(missing)
    good = evaluated(played, TWO_PASS)
    text = changed((old, new))
    attempt = evaluated(played, text)
    mistake = next(one for one in attempt.mistakes if one.by == by)
    assert says in mistake.message and mistake.own and attempt.ok is False
    assert mistake.line is not None and mistake.column is not None
    line = text.splitlines()[mistake.line - 1]
    assert mistake.source == line and line[mistake.column - 1 :].startswith(marked)
    # Views show the line with a caret, so the message does not repeat it.
    assert line.strip() not in mistake.message
    last = played.state.now.good
    assert last is not None and last.number == good.number


WIDE = ("// [accuracy]", "// [derive]\n// rows_per_workgroup = 2\n// [accuracy]")
ONE_WIDTH = ("// [tune]", "// [default]\n// threads_per_row = 256\n// [tune]\n// threads_per_row = [256]")
EARLY = ("let pivot = ", "if (thread > 900u + row) { return; }\n    let pivot = ")


@needs_tint
def test_tint_is_done_only_if_it_compiled_a_text(played: PlaygroundSession) -> None:
    """A browser allows 256 invocations. If no constants fit, there is no text to check."""
    stage = {one.name: one for one in evaluated(played, changed(WIDE, ONE_WIDTH, EARLY)).stages}["tint"]
    why = "needs 512 invocations per workgroup; the limit is 256"
    reasons = "; ".join(f"no shader for browsers {how} subgroups: {why}" for how in ("with", "without"))
    assert (stage.state, stage.note) == ("skipped", reasons)
    # With the constants that an export would use, a text fits a browser, and Tint compiles it.
    mistakes = evaluated(played, changed(WIDE, EARLY)).mistakes
    assert any(one.by == "tint" and "uniform" in one.message for one in mistakes)


@needs_tint
def test_a_note_names_the_browsers_without_a_text(played: PlaygroundSession, device: Device) -> None:
    needs(device, ["subgroups"])
    subgroups = next(one for one in KERNELS if one.label == "layer_norm/welford_subgroup")
    stage = {one.name: one for one in evaluated(played, subgroups.path.read_text()).stages}["tint"]
    assert stage.state == "done"
    assert "no shader for browsers without subgroups: needs the feature" in stage.note


@needs_tint
def test_tint_also_compiles_the_text_for_an_optional_feature(played: PlaygroundSession) -> None:
    """The device here has no linear indexing, unlike some browsers."""
    declared = ("// [tune]", '// [features]\n// linear_indexing = "linear"\n// [tune]\n// linear = [0, 1]')
    default = ("// [accuracy]", '// [default]\n// linear = "has_linear_indexing"\n// [accuracy]')
    wrong = ("let pivot = ", "{% if linear %}let wrong: u32 = 1.5;{% endif %}\n    let pivot = ")
    attempt = evaluated(played, changed(declared, default, wrong))
    assert [one.by for one in attempt.mistakes] == ["tint"]
    assert "u32" in attempt.mistakes[0].message


def test_a_note_of_the_verdict_warns_of_a_loose_tolerance(played: PlaygroundSession) -> None:
    """A kernel whose mean is rounded to float32 may pass with large errors."""
    right = {one.name: one for one in evaluated(played, changed(("// The second", "// The  second"))).stages}
    assert right["verdict"].note == ""
    naive = next(one for one in KERNELS if one.label == "layer_norm/naive")
    stage = {one.name: one for one in evaluated(played, naive.path.read_text()).stages}["verdict"]
    assert stage.state == "done" and stage.note.startswith("the header's tolerance is loose (")


def test_a_wrong_kernel_gets_a_hint_and_no_time(played: PlaygroundSession) -> None:
    played.change(time=True)
    attempt = evaluated(
        played, changed(("f32(COLS);", "f32(COLS - 1u);"), ("PER_COLUMN", "(1.0 / f32(COLS - 1u))"))
    )
    assert attempt.ok is False and attempt.map is not None and attempt.worst is not None
    assert any("N - 1" in hint.text for hint in attempt.hints)
    assert not attempt.times
    assert [stage.name for stage in attempt.stages if stage.state == "failed"] == ["verdict"]
    played.change(time=False)


def test_a_text_whose_worker_died_in_a_later_step_is_not_run_again(
    played: PlaygroundSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"{TWO_PASS}// deadly\n"
    # This evaluation has no times. Otherwise webnorm would time the previous text too, and hang.
    evaluated(played, text)
    with monkeypatch.context() as slow:
        slow.setattr(evaluation, "time_live", playing.time_silently)
        played.change(time=True, rows=8, cols=64)
        until(played, lambda now: now.attempt and now.attempt.hash == text_digest(text) and now.attempt.times)
        os.kill(played.worker_pids[0], signal.SIGKILL)
        attempt = ended(played, text)
    assert "SIGKILL" in attempt.mistakes[0].message and attempt.ok is False
    assert not {"cost", "corpus"} & {stage.name for stage in attempt.stages}
    played.do("corpus")
    assert played.idle(HANG_S) and played.state.now.attempt == attempt
    played.change(time=False, rows=None, cols=None)
    assert "not run again until you edit it" in ended(played, text).mistakes[0].message


def test_a_harmless_race_is_reported(played: PlaygroundSession) -> None:
    attempt = evaluated(
        played, changed(("    workgroupBarrier();  // before the next ones are written\n", ""))
    )
    assert all(one.result.status == "pass" for one in attempt.shapes) and attempt.ok is False
    assert [stage.name for stage in attempt.stages if stage.state == "failed"] == ["race"]
    (hint,) = attempt.hints
    assert hint.kind == "race" and hint.place is not None
    line = TWO_PASS.splitlines()[hint.place.line - 1]
    assert "partials[thread] = own" in line or "partials[0]" in line


def test_the_newest_of_many_saves_wins(played: PlaygroundSession) -> None:
    for number in range(20):
        saved(played.path, f"{TWO_PASS}// {number}\n")
    attempt = ended(played, f"{TWO_PASS}// 19\n")
    assert attempt.ok and played.state.now.file.text.endswith("// 19\n")


@pytest.mark.parametrize("step", ("verdict", "cost"))
def test_an_unexpected_error_ends_only_its_attempt(
    step: StageName, played: PlaygroundSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(run: stages.AttemptRun) -> None:
        raise ZeroDivisionError("one\nline")

    with monkeypatch.context() as patch:
        patch.setitem(attempt_runner._STEPS, step, fail)
        attempt = evaluated(played, f"{TWO_PASS}// {step}\n")
    assert attempt.ok is None
    assert attempt.mistakes[-1].message == "webnorm failed: ZeroDivisionError: one line"
    assert evaluated(played, TWO_PASS).ok


def test_a_failing_task_is_answered(played: PlaygroundSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(played._runner.worker, "stream", fail)
        with pytest.raises(WebnormError, match="webnorm failed: ZeroDivisionError"):
            played.ask(evaluation.evaluate, None, 1.0)
    assert evaluated(played, TWO_PASS).ok


def test_a_deleted_file_may_come_back(played: PlaygroundSession) -> None:
    before = evaluated(played, TWO_PASS)
    played.path.unlink()
    now = until(played, lambda now: now.file.missing)
    assert "mine.wgsl" in now.notices[-1] and now.good is not None and now.good.number == before.number
    attempt = evaluated(played, f"{TWO_PASS}// again\n")
    assert attempt.ok and not played.state.now.file.missing


def test_bytes_that_are_no_text_are_reported(played: PlaygroundSession) -> None:
    saved(played.path, bytes(range(256)) * 40)
    now = until(played, lambda now: now.file.missing)
    assert "not UTF-8" in now.notices[-1]
    assert evaluated(played, TWO_PASS).ok


def test_a_changed_snippet_starts_an_attempt(played: PlaygroundSession) -> None:
    folder = played.path.parents[1] / "lib"
    folder.mkdir()
    text = changed(("let pivot = ", '{% include "lib/mine.wgsl" %}\n    let pivot = '))
    saved(folder / "mine.wgsl", "// nothing\n")
    assert evaluated(played, text).ok
    number = played.state.now.history[-1].number
    saved(folder / "mine.wgsl", "let = 3;\n")
    until(played, lambda now: now.attempt and now.attempt.number > number and now.attempt.mistakes)
    assert played.idle(HANG_S) and played.state.now.attempt is not None
    mistake = played.state.now.attempt.mistakes[0]
    assert mistake.file and mistake.file.endswith("lib/mine.wgsl") and not mistake.own and mistake.line == 1
    assert mistake.source == "let = 3;"


def test_a_text_that_kills_the_compiler_is_not_run_again_until_an_edit(
    played: PlaygroundSession, device: Device
) -> None:
    broken.deadly(device)
    text = changed(*DEADLY)
    attempt = evaluated(played, text)
    assert "panicked" in attempt.mistakes[0].message
    played.run()
    assert played.idle(HANG_S)
    again = played.state.now.attempt
    assert again is not None and again.number > attempt.number
    assert "not run again until you edit it" in again.mistakes[0].message and not again.shapes
    assert evaluated(played, TWO_PASS).ok


@pytest.mark.parametrize(
    "loop",
    (
        "loop { }",
        "var spin = 0u;\n    loop { y[spin % 4u] = 1.0; spin += 1u; if (params.eps < 0.0) { break; } }",
    ),
)
def test_a_shader_that_never_ends_is_stopped(
    played: PlaygroundSession, loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as brief:
        brief.setitem(stages.LIMITS_S, "verdict", 1.0)
        attempt = evaluated(played, changed(("let pivot = ", f"{loop}\n    let pivot = ")))
    # A driver may remove or end an endless loop; then the attempt gets a verdict. NVIDIA's compiler never
    # finishes, and compiling has a limit of 10 s.
    assert attempt.ok is not None or "no sign of life for 1" in attempt.mistakes[-1].message
    if not tint.tint_unavailable() and loop == "loop { }":
        assert "loop does not exit" in next(one.message for one in attempt.mistakes if one.by == "tint")
    assert evaluated(played, TWO_PASS).ok


@pytest.mark.parametrize(
    ("task", "silent", "step"),
    (
        ("evaluate", playing.silent, "render"),
        ("evaluate", playing.evaluate_silently, "verdict"),
        ("check_races", playing.silent, "race"),
    ),
)
def test_a_step_at_its_time_limit_gives_no_verdict(
    played: PlaygroundSession, task: str, silent: Any, step: StageName, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"{TWO_PASS}// {task} {step}\n"
    with monkeypatch.context() as busy:
        busy.setattr(evaluation, task, silent)
        busy.setattr(stages, "_RENDERING_S", 0.5 if step == "render" else HANG_S)
        busy.setitem(stages.LIMITS_S, step, 0.5)
        attempt = evaluated(played, text)
    (mistake,) = attempt.mistakes
    assert mistake.message.endswith("; if the machine is busy, run it again or raise --time-limit")
    assert attempt.ok is None and attempt.status == "unjudged"
    assert [one.name for one in attempt.stages if one.state == "failed"] == [step]
    # The same text may run again with a longer limit.
    played.change(time_limit_s=HANG_S)
    again = ended(played, text)
    assert again.ok and again.number > attempt.number
    played.change(time_limit_s=None)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("tag", "says"),
    (
        ("{% set s = 'a' * 3000000000 %}{{ s|length }}", "memory"),
        (
            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
            "longer than|processor time",
        ),
        ("{% include '/etc/passwd' %}", "outside"),
        ("{% include '../../../etc/passwd' %}", "outside"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
    ),
)
def test_a_template_that_exceeds_a_limit_is_one_mistake(
    played: PlaygroundSession, tag: str, says: str
) -> None:
    attempt = evaluated(played, changed(("let pivot = ", f"{tag} let pivot = ")))
    # A loaded machine may reach the other limit first.
    assert re.search(says, attempt.mistakes[0].message) and "\n" not in attempt.mistakes[0].message
    assert attempt.mistakes[0].by == "template"
    assert evaluated(played, TWO_PASS).ok


@pytest.mark.slow
def test_a_long_file_is_evaluated(played: PlaygroundSession) -> None:
    text = TWO_PASS + "// " + "x" * 1_000_000 + "\n"
    assert evaluated(played, text).ok


def test_a_worker_that_is_killed_is_replaced(played: PlaygroundSession) -> None:
    os.kill(played.worker_pids[0], signal.SIGKILL)
    assert evaluated(played, f"{TWO_PASS}// after the death\n").ok


@pytest.mark.slow
def test_a_missing_feature_of_the_adapter_is_reported(
    played: PlaygroundSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = evaluated(played, TWO_PASS)
    monkeypatch.setattr(evaluation, "evaluate", playing.evaluate_without_subgroups)
    attempt = evaluated(played, drafted("welford_subgroup"))
    verdict = next(one for one in attempt.stages if one.name == "verdict")
    assert (attempt.ok, attempt.mistakes, verdict.state) == (None, (), "skipped")
    assert (
        verdict.note
        == "the kernel cannot be checked here: needs the feature 'subgroups', which the adapter lacks"
    )
    assert [one.result.status for one in attempt.shapes] == ["skip", "skip"] and not attempt.times
    last = played.state.now.good
    assert last is not None and last.number == good.number
    # This kernel works without subgroups, too.
    attempt = evaluated(played, drafted("registers"))
    assert attempt.ok and attempt.rendered and "builtin(subgroup" not in attempt.rendered.text


def test_a_problem_that_exceeds_memory_is_not_timed(played: PlaygroundSession) -> None:
    evaluated(played, TWO_PASS)
    pid = played.worker_pids[0]
    before = peak(pid)
    played.change(time=True, rows=40_000_000, cols=768)
    attempt = evaluated(played, f"{TWO_PASS}// large\n")
    # The inputs alone would be 123 GB.
    assert played.worker_pids[0] == pid and peak(pid) - before < 1 << 30
    stage = next(one for one in attempt.stages if one.name == "time")
    assert stage.state == "failed" and "40000000x768" in stage.note and "\n" not in stage.note
    assert attempt.ok
    played.change(time=False, rows=None, cols=None)


@pytest.mark.slow
def test_an_attempt_is_timed_with_the_others(played: PlaygroundSession) -> None:
    evaluated(played, TWO_PASS)
    played.change(time=True, rows=8, cols=64)
    assert played.idle(HANG_S)
    attempt = evaluated(played, f"{TWO_PASS}// timed\n")
    assert {one.name for one in attempt.times} == {"attempt", "previous", "best", "copy"}
    assert (
        all(one.proved for one in attempt.times) and attempt.time is not None and attempt.time.percent_of_copy
    )
    assert played.state.now.history[-1].median_ns == attempt.time.median_ns
    played.change(time=False, rows=None, cols=None)


def test_a_text_that_another_program_changed_is_not_overwritten(played: PlaygroundSession) -> None:
    evaluated(played, TWO_PASS)
    base = played.state.now.file.base
    saved(played.path, f"{TWO_PASS}// theirs\n")
    with pytest.raises(SaveConflict, match="nothing was written"):
        played.save(f"{TWO_PASS}// mine\n", base)
    assert played.path.read_text().endswith("// theirs\n")


def test_a_file_keeps_its_line_endings(played: PlaygroundSession) -> None:
    saved(played.path, TWO_PASS.replace("\n", "\r\n"))
    until(played, lambda now: now.file.text == TWO_PASS)
    played.save(f"{TWO_PASS}// here\n", played.state.now.file.base)
    assert ended(played, f"{TWO_PASS}// here\n").ok
    assert played.path.read_bytes().endswith(b"}\r\n// here\r\n")


def test_undo_restores_the_previous_text(played: PlaygroundSession) -> None:
    evaluated(played, f"{TWO_PASS}// first\n")
    evaluated(played, f"{TWO_PASS}// second\n")
    played.undo()
    ended(played, f"{TWO_PASS}// first\n")
    assert played.path.read_text().endswith("// first\n")


def test_attempts_are_stored(tmp_path: Path, played: PlaygroundSession) -> None:
    attempt = evaluated(played, f"{TWO_PASS}// kept\n")
    assert played.store.source(attempt.hash).endswith("// kept\n")
    assert played.store.entries()[-1].number == attempt.number
