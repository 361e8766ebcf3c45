"""`webnorm play` as a user runs it: statuses, lines, JSON, the screen."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from rich.cells import cell_len
from rich.console import Console

from commands import webnorm
from headless import needs_tint
from patience import HANG_S
from samples import result
from webnorm.cli.terminal.screen import Screen
from webnorm.cli.verbs import play_view
from webnorm.errors import SourceLocation
from webnorm.gpu.device import Device
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.lab.diagnose.heat_map import HeatMap
from webnorm.lab.diagnose.hints import Hint
from webnorm.lab.run.evaluation import ProblemVerdict
from webnorm.play.attempt_store import FOLDER_VARIABLE
from webnorm.play.state import (
    AttemptState,
    LiveTime,
    LocatedMistake,
    Settings,
    Snapshot,
    StageName,
    StageTime,
    WatchedFile,
)

TWO_PASS = (wgsl_root() / "layer_norm" / "two_pass.wgsl").read_text(encoding="utf-8")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "attempts"))
    path = tmp_path / "layer_norm" / "mine.wgsl"
    path.parent.mkdir()
    path.write_text(TWO_PASS)
    return path


@needs_tint
@pytest.mark.xdist_group("play")
def test_a_right_kernel_ends_with_0(file: Path, device: Device, tmp_path: Path) -> None:
    done = webnorm(["play", str(file), "--once", "--quick", "--json"], tmp_path)
    assert done.returncode == 0, done.stderr
    *_, last = map(json.loads, done.stdout.splitlines())
    assert last["ok"] is True and [shape["result"]["status"] for shape in last["shapes"]] == ["pass", "pass"]


@pytest.mark.xdist_group("play")
def test_a_wrong_one_ends_with_1_and_says_why(file: Path, device: Device, tmp_path: Path) -> None:
    file.write_text(TWO_PASS.replace("+ params.eps", ""))
    done = webnorm(["play", str(file), "--once", "--quick"], tmp_path)
    assert done.returncode == 1
    assert "why: y fits a kernel that leaves eps out" in done.stdout
    assert "✗ verdict" in done.stdout and "✓ where" in done.stdout
    # The only error shown is the error of the named element.
    numbers = re.findall(r"off by (\S+), allowed", done.stdout)
    assert len(numbers) == 2 and "max abs error" not in done.stdout


@pytest.mark.slow
@pytest.mark.xdist_group("play")
def test_a_limit_is_no_verdict(file: Path, device: Device, tmp_path: Path) -> None:
    endless = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    file.write_text(TWO_PASS.replace("let pivot", f"{endless} let pivot"))
    done = webnorm(["play", str(file), "--once", "--quick"], tmp_path)
    assert done.returncode == 3
    assert "stopped after 2 s of processor time" in done.stdout and "FAIL" not in done.stdout


@pytest.mark.slow
@needs_tint
@pytest.mark.xdist_group("play")
def test_a_file_of_two_ops_is_checked_as_the_chosen_op(file: Path, device: Device, tmp_path: Path) -> None:
    naive = (wgsl_root() / "layer_norm" / "naive.wgsl").read_text(encoding="utf-8")
    file.write_text(naive.replace("// rung = 1", '// rung = 1\n// ops = ["layer_norm", "rms_norm"]'))
    done = webnorm(["play", str(file), "--once", "--quick", "--op", "rms_norm"], tmp_path)
    assert done.returncode == 1
    assert "takes the mean off, as LayerNorm does" in done.stdout
    # A passing check shows the element nearest to its tolerance.
    done = webnorm(["play", str(file), "--once", "--quick", "--op", "layer_norm"], tmp_path)
    assert done.returncode == 0
    assert done.stdout.count(" float32: nearest to its tolerance: y[") == 2


def test_bad_usage_is_one_line(mistake: Callable[[list[str]], str], tmp_path: Path) -> None:
    assert "nowhere.wgsl is not a file" in mistake(["play", "nowhere.wgsl"])
    assert "FILE is missing" in mistake(["play"])
    (tmp_path / "some.wgsl").write_text("")
    assert "nowhere.wgsl is not a file; expected a kernel file: some.wgsl" in mistake(
        ["play", "nowhere.wgsl"]
    )
    assert "--constant is 'a'" in mistake(["play", "some.wgsl", "--constant", "a"])


def test_one_size_is_timed(mistake: Callable[[list[str]], str], file: Path) -> None:
    for wrong in ("256,1k", "256..4k", "0", "-4", "many"):
        output = mistake(["play", str(file), "--rows", wrong])
        assert f"--rows is '{wrong}'; expected one size of 1 or more, such as 1024 or 4k" in output
    # Sizes are checked before the file.
    assert "nowhere.wgsl is not a file" in mistake(["play", "nowhere.wgsl", "--rows", "4k", "--cols", "768"])


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("my_rmsnorm.wgsl", "did you mean --op rms_norm?"),
        ("layernorm/mine.wgsl", "did you mean --op layer_norm?"),
        (
            "some/mine.wgsl",
            "ops: layer_norm, layer_norm_backward, rms_norm, rms_norm_backward",
        ),
    ],
)
def test_a_file_in_no_ops_folder_asks_for_the_op(
    place: str, says: str, mistake: Callable[[list[str]], str], tmp_path: Path
) -> None:
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    path.write_text(TWO_PASS)
    output = mistake(["play", place, "--once"])
    assert f"{place} is not in the folder of an op; name its op with --op; {says}" in output


def test_another_op_than_the_files_is_refused(mistake: Callable[[list[str]], str], file: Path) -> None:
    """The playground must not check the file as an op that the user did not choose."""
    output = mistake(["play", str(file), "--once", "--op", "rms_norm"])
    assert f"--op is rms_norm; {file} is for layer_norm" in output


def test_a_port_in_use_is_bad_usage(mistake: Callable[[list[str]], str], file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"port {port} of 127.0.0.1 is in use" in mistake(
            ["play", str(file), "--web", "--port", str(port)]
        )


@pytest.mark.slow
@needs_tint
@pytest.mark.xdist_group("play")
def test_no_network_is_needed(file: Path, device: Device) -> None:
    """A process in an empty network namespace has no address, not even the loopback."""
    alone = ["unshare", "--map-root-user", "--net"]
    if not shutil.which(alone[0]) or subprocess.run([*alone, "true"], check=False).returncode:
        pytest.skip("no process can be cut off from the network here")
    command = [*alone, sys.executable, "-m", "webnorm", "play", str(file), "--once", "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def shown(*parts: Any, width: int = 100) -> str:
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return capture.get()


def attempt(number: int = 2, **known: Any) -> AttemptState:
    return AttemptState(number=number, hash="0" * 64, saved="2026-11-24T00:00:00Z", **known)


def test_the_caret_is_below_the_marked_text() -> None:
    source = "\tlet höhe = = 1.0;"
    mistake = LocatedMistake(
        by="naga",
        message="expected expression",
        file="my.wgsl",
        own=True,
        line=3,
        column=13,
        length=1,
        source=source,
    )
    head, line, caret = shown(play_view.mistake_text(mistake)).rstrip("\n").split("\n")
    assert head.rstrip() == "naga: my.wgsl:3:13: expected expression"
    assert line[caret.index("^") :].startswith("= 1.0;")


@pytest.mark.parametrize("before", ("\tx\t", "  表表 ", "a\x1b "))
def test_the_caret_is_below_the_marked_text_after_any_characters(before: str) -> None:
    mistake = LocatedMistake(
        by="naga",
        message="no b",
        file="my.wgsl",
        line=3,
        column=len(before) + 1,
        length=1,
        source=f"{before}b;",
    )
    _, line, caret = shown(play_view.mistake_text(mistake)).rstrip("\n").split("\n")
    assert cell_len(line[: line.index("b;")]) == caret.index("^")


def test_a_line_that_two_compilers_mark_is_shown_once() -> None:
    place: dict[str, Any] = {"file": "my.wgsl", "line": 3, "column": 5, "length": 1, "source": "let a = b;"}
    naga, tint = (LocatedMistake(by=by, message=f"no b for {by}", **place) for by in ("naga", "tint"))
    other = LocatedMistake(by="tint", message="no c", **{**place, "line": 4})
    output = shown(*play_view.findings(attempt(mistakes=(naga, tint, other), ok=False)))
    assert (
        output.count("let a = b;") == 2
        and "tint: no b for tint\n" in output
        and "my.wgsl:4:5: no c" in output
    )


@pytest.mark.parametrize("width", (40, 80))
def test_no_step_and_no_key_is_broken_over_two_lines(width: int) -> None:
    stages = tuple(StageTime(name, "done", 1234.0) for name in get_args(StageName))
    now = Snapshot(
        file=WatchedFile(name="my.wgsl", path="my.wgsl"), settings=Settings(), attempt=attempt(stages=stages)
    )
    lines = shown(*play_view.screen(now), width=width).splitlines()
    for whole in (*(f"✓ {stage.name} 1234 ms" for stage in stages), "x trace", "u undo", "q quit"):
        assert any(whole in line for line in lines), whole


def test_a_race_says_its_place_once() -> None:
    hint = Hint("race", "my.wgsl:3: a race: a[0] is used by two", SourceLocation("my.wgsl", 3))
    assert shown(*play_view.findings(attempt(hints=(hint,)))).count("my.wgsl:3") == 1


def test_the_map_shows_a_stripe() -> None:
    cells = tuple(tuple(2.0 if col == 3 else 0.5 for col in range(4)) for _ in range(3))
    *_, first, second, third = (
        shown(*play_view.heat_map(HeatMap("y", 3, 4, 1, 1, cells))).rstrip("\n").split("\n")
    )
    assert [line.split()[1] for line in (first, second, third)] == ["···░"] * 3


def test_a_narrow_map_has_fewer_cells_and_no_error_less() -> None:
    cells = (tuple(2.0 if col == 61 else 0.5 for col in range(64)),) * 2
    output = shown(*play_view.heat_map(HeatMap("y", 2, 64, 1, 1, cells)), width=40).splitlines()
    assert max(map(len, output)) <= 40
    assert output[-2:] == ["     0 " + "·" * 30 + "░·", "     1 " + "·" * 30 + "░·"]


def test_narrow_times_keep_their_names() -> None:
    times = (
        LiveTime("copy", result("copy", median_ns=1500.0), True),
        LiveTime("best", result("registers", median_ns=1800.0, flags=("noisy",)), False),
        LiveTime("attempt", result("two_pass", median_ns=3000.0), True),
        LiveTime("previous", result("two_pass", status="skip", reason="too wide"), True),
    )
    wide, narrow = (
        shown(*play_view.findings(attempt(times=times)), width=width).splitlines() for width in (100, 40)
    )
    assert re.split(" {2,}", wide[0]) == ["time", "kernel", "median", "GB/s", "% of copy", "x attempt"]
    assert [line.split()[:2] for line in narrow[:4]] == [
        ["time", "kernel"],
        ["attempt", "two_pass"],
        ["best", "registers"],
        ["copy", "copy"],
    ]
    assert "median" in narrow[0] and "GB/s" not in narrow[0] and max(map(len, narrow)) <= 40
    assert wide[4] == "previous, two_pass: too wide"


def test_the_last_good_attempt_stays_while_the_text_is_broken() -> None:
    broken = attempt(mistakes=(LocatedMistake(by="header", message="no header"),), ok=False)
    good = attempt(1, hints=(Hint("formula", "y fits a kernel that ...", SourceLocation("my.wgsl", 3)),))
    now = Snapshot(
        file=WatchedFile(name="my.wgsl", path="my.wgsl"), settings=Settings(), attempt=broken, good=good
    )
    text = shown(*play_view.screen(now))
    assert (
        "header: no header" in text
        and "attempt 1, the last" in text
        and "why: y fits a kernel that ..." in text
    )


def test_a_step_that_failed_says_why() -> None:
    ended = attempt(stages=(StageTime("time", "failed", 3.0, "too large"),), ok=True)
    assert "time: too large" in shown(*play_view.news(ended))


def test_the_numbers_of_a_verdict_are_not_torn(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TTY_COMPATIBLE": "1", "COLUMNS": "40", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    reason = "y[2, 484] is -1.10589778, expected -1.10661816: off by 0.00072, allowed 3.32e-06"
    failed = ProblemVerdict("8x768 float32", result("mine", status="fail", reason=reason))
    ended = attempt(stages=(StageTime("verdict", "failed", 3.0),), shapes=(failed,), ok=False)
    console = Screen()
    with console.capture() as captured:
        for part in play_view.news(ended):
            console.print(part, soft_wrap=True)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", captured.get()).splitlines()
    assert max(map(len, lines)) <= 40 and reason in " ".join(lines)
