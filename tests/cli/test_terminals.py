"""Terminals: when commands redraw them, and their state after a command ends or stops."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("signals and terminals are POSIX's", allow_module_level=True)

from commands import webnorm
from patience import all_end
from ptys import ENTER, HIDE, Terminal, animated, as_found, children_of, on_terminal
from webnorm.cli.terminal.screen import Screen, is_dumb, wants_colour
from webnorm.cli.work.jobs import BAD_USAGE
from webnorm.gpu.device import Device
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.lab.results import result_files
from webnorm.play.attempt_store import FOLDER_VARIABLE

pytestmark = pytest.mark.xdist_group("play")
# The codes that start each drawing of a whole screen.
HOME = "\x1b[H"
# This command runs until a signal or a key stops it.
BENCH = ["bench", "-k", "registers", "--rows", "64", "--cols", "64", "--budget", "600", "--json", "out.json"]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a right kernel in the folder of the commands."""
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "attempts"))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "layer_norm" / "mine.wgsl"
    path.parent.mkdir()
    path.write_bytes((wgsl_root() / "layer_norm" / "two_pass.wgsl").read_bytes())
    return path


def is_drawn_in(rows: int, text: str) -> bool:
    """Return True if the last screen has this many lines."""
    return text.rpartition(HOME)[2].count("\r\n") == rows - 1


def play(file: Path, *more: str) -> list[str]:
    return ["-m", "webnorm", "play", str(file), "--quick", *more]


def ends_by(terminal: Terminal, number: int) -> str:
    """Check that a signal kills the command and its children, and return everything that it wrote."""
    children = children_of(terminal.pid)
    os.kill(terminal.pid, number)
    assert terminal.status() == -number
    assert terminal.modes == terminal.found
    shown = terminal.all_shown()
    assert as_found(shown) and f"ended by {signal.Signals(number).name}" in shown
    all_end(children)
    return shown


slow = pytest.mark.slow


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=slow), pytest.param(signal.SIGQUIT, marks=slow)],
)
def test_a_signal_ends_play_as_ctrl_c_does(file: Path, number: int, device: Device) -> None:
    with on_terminal(play(file)) as terminal:
        terminal.screen.until("✓ cost")
        assert terminal.modes != terminal.found
        assert "finished results are kept" in ends_by(terminal, number)


@pytest.mark.parametrize(
    ("words", "mark"),
    [
        (BENCH, "timing"),
        pytest.param(["check", "-k", "naive"], "naive", marks=slow),
        pytest.param(["tune", "--quick", "--budget", "600", "--out", "t.json"], "layer_norm", marks=slow),
        pytest.param(["export", "--lab", "--out", "site"], "layer_norm", marks=slow),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_signal_ends_a_bar(words: list[str], mark: str, file: Path, tmp_path: Path, device: Device) -> None:
    with on_terminal(["-m", "webnorm", *words]) as terminal:
        assert HIDE in terminal.screen.until(mark)
        shown = ends_by(terminal, signal.SIGTERM)
    assert "Traceback" not in shown
    # The result remains, and no temporary file, lock or folder.
    left = {path.name for path in tmp_path.iterdir()} - {"layer_norm"}
    assert left <= {"out.json"}
    if left:
        assert not result_files.read(tmp_path / "out.json").complete


@slow
def test_a_terminal_that_is_closed(file: Path, device: Device) -> None:
    with on_terminal(play(file)) as terminal:
        terminal.screen.until("✓ cost")
        children = children_of(terminal.pid)
        terminal.hang_up()
        # The command may notice the failed write before the signal.
        assert terminal.status() in (-signal.SIGHUP, BAD_USAGE)
        assert children
        all_end(children)


@slow
def test_more_signals_change_nothing(file: Path, device: Device) -> None:
    """The shell of a closing terminal sends a second SIGHUP, and a batch system sends SIGTERM and SIGCONT."""
    with on_terminal(play(file)) as terminal:
        terminal.screen.until("✓ cost")
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCONT, signal.SIGTERM):
            os.kill(terminal.pid, number)
        assert terminal.status() in (-signal.SIGTERM, -signal.SIGHUP)
        assert terminal.modes == terminal.found
        shown = terminal.all_shown()
        assert as_found(shown) and "Traceback" not in shown


@slow
def test_an_ignored_signal_stays_ignored(file: Path, device: Device) -> None:
    """The command starts with an ignored signal, as under nohup."""
    code = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
    code += "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    with on_terminal(["-c", code, *play(file)]) as terminal:
        terminal.screen.until("✓ cost")
        os.kill(terminal.pid, signal.SIGHUP)
        terminal.press("q")
        assert terminal.status() == 0


def test_stopped_and_continued(file: Path, device: Device) -> None:
    with on_terminal(play(file)) as terminal:
        terminal.screen.until("✓ cost")
        while_running = terminal.modes
        for times in (1, 2):
            # Send Ctrl-Z, which the terminal's driver turns into a signal.
            terminal.press("\x1a")
            terminal.stopped()
            assert terminal.modes == terminal.found
            shown = terminal.screen.once(as_found)
            terminal.resume()
            terminal.screen.until(ENTER, times + 1)
            terminal.screen.until("✓ cost", shown.count("✓ cost") + 1)
            assert terminal.modes == while_running
        terminal.press("q")
        assert terminal.status() == 0
        assert terminal.modes == terminal.found and as_found(terminal.all_shown())


@slow
def test_a_bar_is_stopped_and_continued(file: Path, device: Device) -> None:
    with on_terminal(["-m", "webnorm", *BENCH]) as terminal:
        terminal.screen.until("timing")
        terminal.press("\x1a")
        terminal.stopped()
        shown = terminal.screen.once(as_found)
        terminal.resume()
        terminal.screen.until(HIDE, shown.count(HIDE) + 1)
        ends_by(terminal, signal.SIGTERM)


@pytest.mark.parametrize(
    "name", ["dumb", *(pytest.param(name, marks=slow) for name in ("unknown", "", "DUMB"))]
)
def test_a_dumb_terminal_gets_the_lines_of_a_pipe(
    file: Path, name: str, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", name)
    with on_terminal(play(file)) as terminal:
        shown = terminal.screen.until("✓ cost")
        assert not animated(shown) and "\x1b" not in shown
        assert terminal.modes == terminal.found
        ends_by(terminal, signal.SIGTERM)


@slow
def test_resized_to_nothing(file: Path, device: Device) -> None:
    with on_terminal(play(file), size=(0, 0)) as terminal:
        terminal.screen.until("✓ cost")
        for rows, cols in ((1, 1), (5, 3), (300, 2), (30, 100)):
            terminal.resize(rows, cols)
            terminal.screen.once(partial(is_drawn_in, max(2, rows)))
        terminal.press("q")
        assert terminal.status() == 0 and "Traceback" not in terminal.all_shown()


@slow
def test_keys_are_only_read_from_a_terminal(file: Path, device: Device) -> None:
    """The screen is drawn even if standard input is closed or not a terminal."""
    null = os.open(os.devnull, os.O_RDWR)
    with on_terminal(play(file), {"stdin": null}) as terminal:
        terminal.screen.until("✓ cost")
        assert terminal.modes == terminal.found
        ends_by(terminal, signal.SIGTERM)
    os.close(null)


@slow
def test_a_reader_that_leaves_ends_play(file: Path, device: Device) -> None:
    ours, theirs = os.pipe()
    with on_terminal(play(file), {"stdout": theirs}) as terminal:
        os.close(theirs)
        os.close(ours)
        assert terminal.status() == 0
        assert "Traceback" not in terminal.all_shown()


FORCED = [
    {"FORCE_COLOR": "1"},
    {"FORCE_COLOR": "3", "TERM": "dumb"},
    {"CLICOLOR_FORCE": "1"},
    {"TTY_COMPATIBLE": "1"},
    {"TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "1", "FORCE_COLOR": "1"},
    {"TTY_INTERACTIVE": "1"},
]
PLAIN = [
    {},
    {"FORCE_COLOR": ""},
    {"FORCE_COLOR": "0"},
    {"FORCE_COLOR": "1", "NO_COLOR": "1"},
    {"FORCE_COLOR": "0", "CLICOLOR_FORCE": "1"},
    {"CLICOLOR": "1"},
    {"CLICOLOR_FORCE": "0"},
]


@pytest.mark.parametrize("given", FORCED + PLAIN, ids=str)
def test_a_file_gets_colour_at_most(
    given: dict[str, str], file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    done = webnorm(["check", "-k", "naive", "--case", "rows-1", "-v"], tmp_path)
    assert done.returncode == 0 and not animated(done.stdout + done.stderr)
    assert done.stderr == ""
    coloured = "\x1b[" in done.stdout
    assert coloured == (given in FORCED and given != {"TTY_INTERACTIVE": "1"})


@pytest.mark.parametrize(
    ("given", "colour", "animates"),
    [
        ({}, True, True),
        ({"NO_COLOR": "1"}, False, True),
        ({"NO_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "0"}, False, True),
        ({"FORCE_COLOR": "false"}, False, True),
        ({"CLICOLOR": "0"}, False, True),
        ({"TERM": "dumb"}, False, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True, False),
        ({"TERM": ""}, False, False),
        ({"TTY_COMPATIBLE": "0"}, False, False),
        ({"TTY_INTERACTIVE": "0"}, True, False),
        ({"COLUMNS": "0", "LINES": "0"}, True, True),
        ({"COLUMNS": "²", "LINES": "-3"}, True, True),
        ({"COLUMNS": "9" * 30, "LINES": "9" * 12}, True, True),
    ],
    ids=str,
)
def test_decisions_about_a_terminal(
    given: dict[str, str], colour: bool, animates: bool, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = os.openpty()
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with open(theirs, "w") as stream, open(ours, "rb"):
        monkeypatch.setattr(sys, "stdout", stream)
        console = Screen()
        assert console.animates == console.is_interactive == animates
        with console.capture() as captured:
            console.print("red", style="red")
        assert ("\x1b[31m" in captured.get()) == colour
        assert 40 <= console.width <= 10_000 and 2 <= console.height <= 10_000
        monkeypatch.undo()


def test_the_environment_alone() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TERM", raising=False)
        for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE"):
            patch.delenv(name, raising=False)
        assert is_dumb() and wants_colour() is None
