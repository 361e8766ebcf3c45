"""All output to the screen shows names unchanged and control characters as escapes."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

import broken
import webnorm as webnorm_package
from commands import webnorm
from ptys import Output
from samples import COPIES, REPORT, choice, timed, tuned
from shown import fit
from webnorm.choice import tuning
from webnorm.cli.terminal import streams
from webnorm.cli.terminal.screen import Screen, escaped_line, progress
from webnorm.cli.verbs.bench_view import BenchTable, ShareMatrix
from webnorm.cli.verbs.check_view import CheckTable
from webnorm.cli.verbs.compare_view import CompareTable
from webnorm.cli.verbs.verify import step_line
from webnorm.cli.work.overview import device_line, tuning_table
from webnorm.errors import WebnormError, one_line, printable, shortened
from webnorm.gpu.device import Device
from webnorm.lab.report.comparison import compare
from webnorm.lab.results import result_files, tables

HOSTILE = "\x1b]0;owned\x07\x1b[31mred\x9b2J\x7f\u202eback\u2066\u2028\r\ud800"
ESCAPED = r"\x1b]0;owned\x07\x1b[31mred\x9b2J\x7f\u202eback\u2066\u2028\r\ud800"
NAMES = ["we[ird] name", "[bold]x[/]", "[/]", "[link=file:///]a", ":smile:", "x̂²·×", "規則🚀👩‍🚀", "{0}%s"]


def screen(width: int = 120) -> tuple[Screen, io.StringIO]:
    out = io.StringIO()
    console = Screen()
    console.file, console.width = out, width
    return console, out


def test_the_bar_leaves_room_for_an_echo(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal shows Ctrl-C as ^C. If that wrapped to the next line, the bar would stay on the screen."""
    for name, value in {"COLUMNS": "60", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    ours, theirs = os.openpty()
    terminal = Output(ours)
    with open(theirs, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with progress("x" * 100):
            pass
        monkeypatch.undo()
    shown = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", terminal.whole())
    bars = [line for line in re.split(r"[\r\n]+", shown) if "xxx" in line]
    assert bars and all(len(bar) <= 60 - len("^C^C") for bar in bars)


def test_escapes() -> None:
    assert printable(HOSTILE) == one_line(HOSTILE) == ESCAPED
    assert printable("a\tb\nc") == "a\tb\nc" and one_line("a\tb\nc") == r"a\tb\nc"
    for name in NAMES:
        assert printable(name) == one_line(name) == name


def test_long_texts_keep_both_ends() -> None:
    assert shortened("x" * 10, 10) == "x" * 10
    short = shortened("a" * 500 + "b" * 500, 122)
    assert short == f"{'a' * 75} [of 1000 characters] {'b' * 25}"
    assert len(short) == 122 and shortened(short, 122) == short


@pytest.mark.parametrize("hostile", [HOSTILE, *NAMES])
def test_an_error_is_one_line_whatever_it_names(hostile: str) -> None:
    said = str(WebnormError(f"{hostile}\nis wrong"))
    assert said == f"{one_line(hostile)}\\nis wrong" and fit(said)
    assert len(str(WebnormError("x" * 10**6))) < 2100


@pytest.mark.parametrize("name", [HOSTILE, *NAMES])
def test_no_way_to_the_screen_is_left_open(name: str) -> None:
    """Text reaches the screen as a cell, a heading, a title, a caption, a print or rich's text."""
    console, out = screen()
    table = Table(title=name, caption=name)
    table.add_column(name)
    table.add_row(name)
    table.add_row(Text(name))
    table.add_row(escaped_line(name))
    console.print(table)
    console.print(name)
    console.print(name, style="bold", soft_wrap=True)
    console.print(Text(name))
    text = out.getvalue()
    assert fit(text.replace("\n", ""))
    # Rich's own text drops some control characters.
    assert text.count(one_line(name)) >= (9 if name != HOSTILE else 7)


def test_richs_own_control_codes_stay() -> None:
    out = _Terminal()
    console = Screen()
    console.file = out
    with console.status("at work"):
        console.print("done")
    assert "\x1b[?25l" in out.getvalue()


@pytest.mark.parametrize("name", [HOSTILE.replace("\ud800", ""), *NAMES])
def test_tables_of_results(name: str, tmp_path: Path) -> None:
    made = (
        *COPIES,
        replace(timed(name, 1500.0), auto="tuning", constants={name: 1}, flags=(name,)),
        replace(timed("other", 1.0), kernel=name, status="fail", reason=name, case=name, worst=name),
    )
    found = replace(REPORT, device={"adapter": name, "driver": name}, results=made)
    path = tmp_path / "a.json"
    path.write_text(result_files.to_json(found))
    assert result_files.read(path).results == made
    (verdicts,) = [compare(found, found)]
    for shown in (
        BenchTable(made, name),
        ShareMatrix([*made, *(replace(one, problem=replace(one.problem, cols=3)) for one in made)]),
        CheckTable(made),
        CompareTable(verdicts),
        device_line(found.device),
        tuning_table(tuned(choice(kernel=name), platform=replace(tuned().platform, adapter=name))),
        step_line(True, name),
    ):
        console, out = screen(300)
        console.print(shown)
        assert fit(out.getvalue().replace("\n", "")) and one_line(name) in out.getvalue()
    markdown = tables.to_markdown(found)
    assert fit(markdown.replace("\n", ""))
    assert one_line(name) in markdown.replace("\\\\", "\0").replace("\\", "").replace("\0", "\\")


def test_data_are_escaped_for_a_terminal_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tables.to_csv(replace(REPORT, device={"adapter": "\x1b[31m"}))
    streams.emit(text)
    assert capsys.readouterr().out == text + "\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    streams.emit(text)
    shown = capsys.readouterr().out
    assert fit(shown.replace("\n", "")) and r"\x1b[31m" in shown


def test_json_has_no_control_character_at_all() -> None:
    text = result_files.to_json(replace(REPORT, device={"adapter": HOSTILE}))
    assert fit(text.replace("\n", "")) and json.loads(text)["device"]["adapter"] == HOSTILE


WORDS = r'"\u001b]0;x\u0007[/] \u202e[bold]"'


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A folder with a correct kernel with a hostile name and texts."""
    folder = tmp_path / "my[/] kernels"
    (folder / "layer_norm").mkdir(parents=True)
    lines = broken.HONEST.splitlines()
    text = "\n".join(
        f"// {line.split()[1]} = {WORDS}" if line.startswith(("// summary", "// differs")) else line
        for line in lines
    )
    for name in ("we[ird] name", "\x1b[31mred"):
        (folder / "layer_norm" / f"{name}.wgsl").write_text(text)
    return folder


@pytest.mark.slow
def test_a_kernel_of_hostile_name_and_words(
    mine: Path,
    tmp_path: Path,
    device: Device,
    mistake: Callable[[list[str]], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    wgsl = ["--wgsl", str(mine)]
    weird = ["-k", "we[ird] name"]
    size = ["--rows", "8", "--cols", "48"]
    for arguments in (
        ["list", *wgsl],
        ["check", *wgsl, *weird, "--case", "rows-1", "--json", "out.json"],
        ["bench", *wgsl, *weird, *size, "--budget", "0.1", "--json", "old.json"],
        ["bench", *wgsl, *weird, *size, "--budget", "0.1", "--markdown", "-"],
        ["compare", "old.json", "old.json"],
        ["show", *wgsl, "we[ird] name", *size],
    ):
        done = webnorm(arguments, tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert fit((done.stdout + done.stderr).replace("\n", "").replace("\t", ""))
        assert "we[ird] name" in done.stdout, arguments
    listed = webnorm(["list", *wgsl], tmp_path)
    assert r"\x1b]0;x\x07[/] \u202e[bold]" in listed.stdout
    assert "left out" in listed.stderr and "its name contains the character U+001B" in listed.stderr
    said = mistake(["show", *wgsl, "\x1b[31m"])
    assert fit(said.rstrip("\n")) and r"\x1b[31m" in said
    assert "my[/] kernels" in mistake(["show", str(mine / "layer_norm" / "none.wgsl")])


def test_a_tuning_of_hostile_words(tmp_path: Path, device: Device) -> None:
    platform = tuning.Platform.of(device.adapter.description())
    path = tmp_path / "[/] a.json"
    hostile = "\x1b]0;x\x07[/]"
    tuning.write(tuned(choice(kernel=hostile), platform=replace(platform, driver=hostile)), path)
    done = webnorm(["tune", "--list", "--out", str(path)], tmp_path)
    assert done.returncode == 0
    assert fit((done.stdout + done.stderr).replace("\n", ""))
    assert r"\x1b]0;x\x07[/]" in done.stdout and r"with driver \x1b]0;x\x07[/]" in done.stderr
    assert "[/] a.json" in done.stderr


def test_nothing_is_printed_past_the_screen_and_the_streams() -> None:
    """Printing past the screen would show markup and control characters."""
    package = Path(webnorm_package.__file__).parent
    past = []
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None
            if (name == "print" and path.name != "streams.py") or name == "Console":
                past.append(f"{path.name}: {name}")
    assert past == []


@pytest.mark.parametrize("columns", ["0", "1", "39"])
def test_a_screen_too_narrow_to_be_read(
    columns: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert "layer_norm" in webnorm(["list"], tmp_path).stdout
    console, out = Screen(), io.StringIO()
    console.file = out
    console.print("use --seed 123456")
    assert out.getvalue() == "use --seed 123456\n"


def test_lines_break_between_words_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/a/folder/whose/name/is/wider/than/the/screen:1:2:"
    quoted = "  let quoted = 1.0; // as it stands in the file, whole"
    said = f"{path} error: a mistake that takes more than forty columns\n{quoted}"
    for compatible, expected in (
        ("0", said.splitlines()),
        (
            "1",
            [path, "error: a mistake that takes more than", "forty columns", quoted],
        ),
    ):
        monkeypatch.setenv("TTY_COMPATIBLE", compatible)
        for text in (said, Text(said)):
            console, out = screen(40)
            console.print(text, soft_wrap=True)
            assert out.getvalue().splitlines() == expected


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_mistake_breaks_between_words_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "unknown option --opp; did you mean --option? See the options in webnorm bench --help"
    monkeypatch.setenv("COLUMNS", "40")
    for stream, lines in ((io.StringIO(), 1), (_Terminal(), 3)):
        monkeypatch.setattr("sys.stderr", stream)
        streams.complain(said)
        lines_shown = stream.getvalue().splitlines()
        assert " ".join(lines_shown) == f"webnorm: {said}" and len(lines_shown) == lines
    assert max(map(len, lines_shown)) <= 40
