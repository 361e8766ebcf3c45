"""Files: webnorm reads only sane ones, writes them whole or not at all, and changes them in turns."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import broken
from commands import webnorm
from full import full_disk
from patience import HANG_S
from samples import PLATFORM, choice
from webnorm.choice import tuning
from webnorm.choice.defaults import chosen_variants
from webnorm.errors import WebnormError, one_line
from webnorm.files import atomic
from webnorm.gpu.device import Device
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.library import discover, select
from webnorm.kernels.headers.traits import BROWSER
from webnorm.kernels.rendering.render import render_shader
from webnorm.lab.run import bench, tune
from webnorm.lab.verify import user_array
from webnorm.op.presets import tasks
from webnorm.ops.norms.problem import NormProblem
from webnorm.web import folder
from webnorm.web.package import npm

# --- reading


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[" * 200_000, "lists and objects are nested more than 32 deep"),
        ("[" * 40 + "]" * 40, "lists and objects are nested more than 32 deep"),
        ('{"a":' * 33 + "1" + "}" * 33, "lists and objects are nested more than 32 deep"),
        (f"1{'0' * 400}", "an integer has 401 digits; it must be less than 2^128"),
        (f"-1{'0' * 5000}", "an integer has 5001 digits"),
        ("1e400", "1e400 overflows float64"),
        ("NaN", "NaN is not a JSON number"),
        ('{"a": 1, "b": 2, "a": 3}', "key 'a' occurs twice"),
        ("\0", "Expecting value"),
    ],
)
def test_invalid_json_is_refused(text: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(ValueError) as refused:
        atomic.read_json(path)
    assert complaint in str(refused.value)


@pytest.mark.parametrize("text", ['{"a": [1.5, {"b": null}]}', f"{2**64}", "[" * 32 + "]" * 32, '"\\ud800"'])
def test_sane_json(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    assert atomic.read_json(path) == json.loads(text)


def test_only_plain_files_of_a_sane_size_are_read(tmp_path: Path) -> None:
    pipe, huge = tmp_path / "pipe", tmp_path / "huge"
    if not hasattr(os, "mkfifo"):
        pytest.skip("no pipes with names")
    os.mkfifo(pipe)
    with huge.open("wb") as file:
        file.truncate(1 << 40)
    for path, complaint in (
        (pipe, "it is not a regular file"),
        (Path("/dev/zero"), "it is not a regular file"),
        (tmp_path, "Is a directory"),
        (huge, "it has 1099511627776 bytes or more; it must have at most 67108864"),
        (tmp_path / "a\0b", "it is not a valid file name"),
        (tmp_path / "absent", "No such file"),
    ):
        with pytest.raises(OSError) as refused:
            atomic.read_bytes(path)
        assert complaint in str(refused.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_a_pipe_that_takes_a_files_place_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(b"")
    look = os.stat

    def then_swapped(name: Any, **options: Any) -> os.stat_result:
        status = look(name, **options)
        if name == path and stat.S_ISREG(status.st_mode):
            path.unlink()
            os.mkfifo(path)
        return status

    monkeypatch.setattr(os, "stat", then_swapped)
    for read in (atomic.read_bytes, user_array.read_rows):
        with pytest.raises((OSError, WebnormError), match="it is not a regular file"):
            read(path)
        path.unlink()
        path.touch()


@pytest.mark.parametrize("empty", ["/proc/kmsg", "/proc/self/mem", "/proc/self/pagemap"])
def test_files_of_the_system_that_have_no_size(empty: str, tmp_path: Path) -> None:
    """Such files may block, or have no end."""
    try:
        os.close(os.open(empty, os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        pytest.skip(f"no {empty} for this user")
    for arguments in (
        ["compare", empty, empty],
        ["tune", "--list", "--out", empty],
        ["check", "--input", empty],
    ):
        done = webnorm(arguments, tmp_path)
        assert done.returncode == 2 and empty in done.stderr and done.stderr.count("\n") == 1


# --- writing


def test_writing_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")
    atomic.write_text(path, "new\n")
    assert path.read_bytes() == b"new\n"
    assert os.listdir(tmp_path) == ["out.txt"]


def test_a_write_that_breaks_off_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic.replacing(path) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.txt"]


def test_a_written_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    atomic.write_text(tmp_path / "written", "")
    assert (tmp_path / "written").stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.skipif(os.name == "nt", reason="no modes here")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o755, 0o200])
def test_a_files_mode_stays_the_same(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.touch()
    path.chmod(mode)
    link = tmp_path / "link"
    link.symlink_to(path)
    for name in (path, link):
        with atomic.replacing(name) as temporary:
            assert temporary.stat().st_mode & 0o777 & ~mode & 0o077 == 0
            temporary.write_text("new")
        assert path.stat().st_mode & 0o777 == mode
    folder.write_folder({"out.json": b"again"}, tmp_path)
    assert path.stat().st_mode & 0o777 == mode and path.stat().st_size == len("again")


@pytest.mark.skipif(os.name == "nt", reason="no modes here")
def test_a_file_that_is_read_only_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("precious")
    path.chmod(0o444)
    for attempt in (atomic.check_writable, lambda path: atomic.write_text(path, "text")):
        with pytest.raises(WebnormError, match=r"cannot write .*out\.json: it is read-only"):
            attempt(path)
    assert path.read_text() == "precious" and os.listdir(tmp_path) == ["out.json"]
    assert path.stat().st_mode & 0o777 == 0o444


def test_names_that_differ_by_case(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    ignored = (tmp_path / "A").exists()
    for one, other in (("a", "A"), ("b", "B")):
        assert atomic.same_place(tmp_path / one, tmp_path / other) == ignored
    assert os.listdir(tmp_path) == ["a"]


BENCH, CHECK = "bench --quick ", "check -k naive "


@pytest.mark.parametrize(
    "line",
    [
        BENCH + "--json o --csv o",
        BENCH + "--json o --markdown ./o",
        BENCH + "--csv d/../o --json o",
        BENCH + "--json link --markdown o",
        BENCH + "--json o --csv inside/o",
        BENCH + "--json o.svg --plot o.svg",
        BENCH + "--json - --csv -",
        CHECK + "--input x.npy --json x.npy",
        CHECK + "--input x.npy --json xlink",
        CHECK + "-k layer_norm/mine.wgsl --json layer_norm/mine.wgsl",
        CHECK + "--wgsl . --json layer_norm/mine.wgsl",
        BENCH + "-k layer_norm/mine.wgsl --csv ./layer_norm/mine.wgsl",
        "export layer_norm --cols 8 -k layer_norm/mine.wgsl --out . --force",
    ],
)
def test_one_path_for_two_files(
    line: str, tmp_path: Path, mistake: Callable[[list[str]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to("o")
    (tmp_path / "inside").symlink_to(".")
    (tmp_path / "xlink").symlink_to("x.npy")
    np.save(tmp_path / "x.npy", np.ones((2, 8), np.float32))
    (tmp_path / "layer_norm").mkdir()
    (tmp_path / "layer_norm" / "mine.wgsl").write_text(broken.HONEST)
    monkeypatch.setattr(npm, "package_files", lambda *_: {"layer_norm/mine.wgsl": b""})
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    said = mistake(line.split())
    assert re.search("are both |which is an input|is an input and would be overwritten", said)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_a_file_that_standard_output_goes_to(tmp_path: Path) -> None:
    """The file would contain only one of the two outputs, and /dev/stdout has no folder to write to."""
    for path, redirected, stream in (
        ("/dev/stdout", "| cat", "output"),
        ("o.json", ">o.json", "output"),
        ("/dev/stdout", ">o.json", "output"),
        ("o.json", "2>>o.json", "error"),
    ):
        line = f"{shlex.quote(sys.executable)} -m webnorm check -k naive --json {path} {redirected}"
        done = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
        said = done.stderr + (tmp_path / "o.json").read_text() if "2>>" in redirected else done.stderr
        expected = f"standard {stream}; expected another file, or - for standard output"
        assert said == f"webnorm: --json is {path}, which is {expected}\n"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    link = tmp_path / "link"
    try:
        link.symlink_to(tmp_path / "real")
    except OSError:
        pytest.skip("this system lets us make no links")
    atomic.write_text(link, "text")
    assert link.is_symlink() and (tmp_path / "real").read_text() == "text"


def unwritable(tmp_path: Path, kind: str) -> Path:
    (tmp_path / "file").touch()
    return {
        "no folder": tmp_path / "absent" / "out.json",
        "a folder": tmp_path,
        "under a file": tmp_path / "file" / "out.json",
        "a name too long": tmp_path / ("x" * 5000),
    }[kind]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("no folder", "the folder .*absent does not exist"),
        ("a folder", "it exists and is a folder; expected a file"),
        ("under a file", ".*/file is a file; expected a folder"),
        ("a name too long", "File name too long"),
    ],
)
def test_an_unwritable_path_is_reported_before_and_after_the_run(tmp_path: Path, kind: str, why: str) -> None:
    path = unwritable(tmp_path, kind)
    for attempt in (atomic.check_writable, lambda path: atomic.write_text(path, "text")):
        with pytest.raises(WebnormError, match=f"cannot write .*: {why}$"):
            attempt(path)
    assert os.listdir(tmp_path) == ["file"]


def test_a_hidden_folder_leaves_the_reason_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "is_file", Mock(side_effect=PermissionError))
    reason = NotADirectoryError(errno.ENOTDIR, "Not a directory")
    assert str(atomic.unwritable(tmp_path / "out", reason)).endswith("out: Not a directory")


@pytest.mark.skipif(not Path(os.devnull).is_char_device(), reason="no device file to write to")
def test_a_device_is_not_replaced_by_a_file() -> None:
    with pytest.raises(WebnormError, match="not a regular file"):
        atomic.write_text(Path(os.devnull), "text")
    assert Path(os.devnull).is_char_device()


def test_checking_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    atomic.check_writable(path)
    assert os.listdir(tmp_path) == []
    path.write_text("old")
    atomic.check_writable(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.json"]


def test_a_link_laid_where_the_new_file_is_prepared_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webnorm.files.atomic.secrets.token_hex", lambda count: "0")
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / ".out.json.0.part").symlink_to(precious)
    with pytest.raises(WebnormError, match=r"cannot write .*out\.json: File exists"):
        atomic.write_text(tmp_path / "out.json", "text")
    assert precious.read_text() == "precious"


def test_a_name_as_long_as_names_may_be(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 250)
    atomic.write_text(path, "\ud800")
    assert path.read_bytes() == rb"\ud800"


SMALL = ["--rows", "8", "--cols", "48", "--budget", "0.1"]
SAVING: list[tuple[list[str], str]] = [
    (
        ["bench", *SMALL, "-k", "naive", "--json", "out.json", "--csv", "b.csv", "--plot", "c.svg"],
        "naive",
    ),
    (["check", "-k", "naive", "--case", "rows-1", "-v", "--json", "out.json"], "rows-1, float32"),
    (["tune", "--op", "rms_norm", "--dtype", "float32", *SMALL, "--out", "out.json"], "variants tried"),
]


@pytest.mark.sampled(ids=["check"])
@pytest.mark.parametrize(("arguments", "found"), SAVING, ids=["bench", "check", "tune"])
def test_a_full_disk_costs_the_file_and_not_the_table(
    arguments: list[str], found: str, tmp_path: Path, device: Device
) -> None:
    with full_disk():
        done = webnorm(arguments, tmp_path)
    assert done.returncode == 2
    assert found in done.stdout
    assert done.stderr.count("\n") == 1 and "cannot write out.json: File too large" in done.stderr
    assert os.listdir(tmp_path) == []
    if arguments[0] == "bench":
        # The command tries each file.
        assert all(f"cannot write {name}" in done.stderr for name in ("b.csv", "c.svg"))


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")
    with full_disk(), pytest.raises(WebnormError, match=r"cannot write .*out\.json: File too large"):
        atomic.write_text(path, "new" * 100)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["out.json"]


def test_a_folder_that_goes_meanwhile_costs_the_file_and_not_the_table(
    tmp_path: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = bench.run

    def run(*arguments: Any) -> Iterator[Any]:
        for event in real(*arguments):
            shutil.rmtree(tmp_path / "gone", ignore_errors=True)
            yield event

    monkeypatch.setattr(bench, "run", run)
    (tmp_path / "gone").mkdir()
    files_asked = ["--json", "gone/out.json", "--markdown", "kept.md"]
    done = webnorm(["bench", *SMALL, "-k", "naive", *files_asked], tmp_path)
    assert done.returncode == 2 and "naive" in done.stdout
    assert done.stderr == "webnorm: cannot write gone/out.json: the folder gone does not exist\n"
    assert "naive" in (tmp_path / "kept.md").read_text()


# --- taking turns

RECORDS = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from dataclasses import replace
from samples import PLATFORM, choice
from webnorm.choice import tuning
from webnorm.ops.norms.problem import NormProblem
from webnorm.kernels.rendering.render import render_shader
print("ready", flush=True)
sys.stdin.readline()
for rows in range(8):
    one = choice(NormProblem(rows=100 * int(sys.argv[3]) + rows + 1, cols=64))
    tuning.record([one], Path(sys.argv[1]), PLATFORM)
"""
HOLDS = """
import sys
from pathlib import Path
from webnorm.files import atomic as files
with files.lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a process that prints a line and then waits for one; return it after its line."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline()
    return process


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "tuning.json"
    writers = [start(RECORDS, str(path), str(Path(__file__).parent), str(n)) for n in range(3)]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    for writer in writers:
        _, errors = writer.communicate(timeout=HANG_S)
        assert writer.returncode == 0, errors
    rows = {one.problem.rows for one in tuning.read(path).choices}
    assert rows == {100 * n + row + 1 for n in range(3) for row in range(8)}
    assert os.listdir(tmp_path) == [path.name]


def test_a_turn_ends_with_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "PATIENCE_S", 0.0)
    path = tmp_path / "tuning.json"
    holder = start(HOLDS, str(path))
    holder.send_signal(signal.SIGKILL)
    holder.communicate(timeout=HANG_S)
    assert os.listdir(tmp_path) == [".tuning.json.lock"]
    tuning.record([choice()], path, PLATFORM, lambda: pytest.fail("no process has the lock"))
    assert os.listdir(tmp_path) == [path.name]


def test_a_waiting_process_is_notified_and_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "PATIENCE_S", 0.0)
    monkeypatch.setattr(atomic, "MOST_WAIT_S", 0.3)
    path = tmp_path / "tuning.json"
    calls: list[str] = []
    holder = start(HOLDS, str(path))
    with pytest.raises(WebnormError, match=r"tuning\.json: another process has locked it for 0\.3 s"):
        tuning.record([choice()], path, PLATFORM, lambda: calls.append("first"))
    assert calls == ["first"] and not path.exists()
    holder.communicate("\n", timeout=HANG_S)
    tuning.record([choice()], path, PLATFORM, lambda: calls.append("again"))
    assert calls == ["first"] and os.listdir(tmp_path) == [path.name]


def test_a_file_system_without_locks_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object, **__: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("filelock.FileLock.acquire", no_locks)
    path = tmp_path / "tuning.json"
    tuning.record([choice()], path, PLATFORM)
    assert len(tuning.read(path).choices) == 1


def choosing(
    monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[int], object], count: int
) -> Sequence[tuning.TunedChoice]:
    """Make `webnorm tune` find a choice for each task at once, and call `meanwhile` before each."""
    found = tasks("rms_norm", [(rows + 1, 48) for rows in range(count)])
    choices = [choice(task.problem, op="rms_norm") for task in found]

    def run(*_: object) -> Iterator[tune.TuneResult]:
        for at, task in enumerate(found):
            meanwhile(at)
            rules: Any = "the rules' choice"
            yield tune.TuneResult(task, choices[at], rules, ())

    monkeypatch.setattr(tune, "run", run)
    return choices


TUNE = ["tune", "--op", "rms_norm", "--rows", "1,2,3", "--cols", "48", "--out", "out.json"]


def test_a_tuning_goes_into_what_is_in_the_file_by_then(
    tmp_path: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.json"
    platform = tuning.Platform.of(device.adapter.description())
    others = [choice(NormProblem(rows=rows, cols=64)) for rows in (10, 20, 30)]
    mine = choosing(monkeypatch, lambda at: tuning.record([others[at]], path, platform), 3)
    done = webnorm(TUNE, tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"6 choices are in {path.name}" in done.stdout
    assert {one.key for one in tuning.read(path).choices} == {one.key for one in (*others, *mine)}


def test_unsaved_choices_go_into_the_file_later(
    tmp_path: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.json"
    platform = tuning.Platform.of(device.adapter.description())
    tuning.record([choice()], path, platform)
    whole = path.read_text()

    def meanwhile(at: int) -> None:
        path.write_text("{" if at < 2 else whole)

    mine = choosing(monkeypatch, meanwhile, 3)
    done = webnorm(TUNE, tmp_path)
    assert done.returncode == 0 and done.stderr == ""
    assert {one.key for one in tuning.read(path).choices} == {one.key for one in (choice(), *mine)}
    # Another process writes text that is no tuning until the end. webnorm must not overwrite it.
    choosing(monkeypatch, lambda at: path.write_text("{"), 3)
    done = webnorm([*TUNE, "--retune"], tmp_path)
    assert done.returncode == 2 and done.stdout.count("rms_norm, ") == 3
    assert done.stderr.count("\n") == 1 and "out.json is not a tuning, or is broken" in done.stderr
    assert path.read_text() == "{"


# --- where a path leads


@pytest.fixture
def circle(tmp_path: Path) -> Path:
    """Return a link to a link to itself."""
    try:
        (tmp_path / "a").symlink_to("b")
        (tmp_path / "b").symlink_to("a")
    except OSError:
        pytest.skip("no links here")
    return tmp_path / "a"


@pytest.mark.parametrize("out", ["a", "a/sub"])
@pytest.mark.parametrize("how", ["layer_norm --cols 8", "layer_norm --cols 8 --force", "--lab"])
def test_an_export_into_a_circle_of_links(
    how: str, out: str, circle: Path, mistake: Callable[[list[str]], str]
) -> None:
    said = mistake(["export", *how.split(), "--out", out])
    assert f"--out {out}: " in said and "Too many levels of symbolic links" in said
    assert sorted(os.listdir(circle.parent)) == ["a", "b"] and circle.is_symlink()


def test_circular_links_are_not_overwritten(circle: Path) -> None:
    with pytest.raises(WebnormError, match=r"cannot write .*: Too many levels of symbolic links"):
        atomic.write_text(circle, "")
    with pytest.raises(WebnormError, match=r"cannot be written: Too many levels of symbolic links"):
        folder.write_folder({"a": b""}, circle)
    assert sorted(os.listdir(circle.parent)) == ["a", "b"] and circle.is_symlink()


@pytest.mark.parametrize("flag", ["--remove", "--list"])
def test_tunings_in_a_circle_of_links(
    flag: str, circle: Path, mistake: Callable[[list[str]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEBNORM_TUNINGS", str(circle))
    (circle.parent / "mine.json").write_text("[]")
    assert "mine.json" in mistake(["tune", flag, "--out", "mine.json"])
    done = webnorm(["tune", flag], circle.parent)
    assert "Traceback" not in done.stderr and str(circle) in done.stdout + done.stderr


@pytest.mark.parametrize("name", ["a", "a/sub", "nul\0", "l" * 300])
def test_folders_of_snippets_that_lead_nowhere(name: str, circle: Path) -> None:
    kernel = select(discover(), "naive")
    problem = NormProblem(rows=2, cols=8)
    variant = chosen_variants(kernel, problem, BROWSER, {})[0]
    with pytest.raises(WebnormError) as refused:
        render_shader(variant, problem, "native", BROWSER, roots=[circle.parent / name])
    assert one_line(name) in str(refused.value)


@pytest.mark.parametrize("name", ["a.wgsl", "nul\0.wgsl", "l" * 300 + ".wgsl"])
def test_kernels_that_lead_nowhere(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.wgsl").symlink_to("a.wgsl")
    path = tmp_path / name
    for take in (load, lambda path: select([], str(path))):
        with pytest.raises(WebnormError) as refused:
            take(path)
        assert name[:3] in str(refused.value)


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "k.wgsl"],
        ["check", "--kernel", "k.wgsl"],
        ["bench", "--kernel", "./k.wgsl"],
        ["list", "--wgsl", "k.wgsl"],
        ["check", "--json", "k.wgsl"],
        ["export", "layer_norm", "--cols", "8", "--out", "k.wgsl"],
        ["verify", "k.wgsl"],
        ["verify", ".", "--browser", "./k.wgsl"],
        ["compare", "k.wgsl", "k.wgsl"],
        ["tune", "--out", "k.wgsl"],
    ],
    ids=" ".join,
)
def test_a_working_folder_that_is_gone(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: Callable[[list[str]], str]
) -> None:
    """The error names the given path. Windows does not remove a working folder."""
    gone = tmp_path / "gone"
    gone.mkdir()

    before = Path.cwd()

    @contextmanager
    def into_it(folder: Path) -> Iterator[None]:
        os.chdir(gone)
        gone.rmdir()
        try:
            yield
        finally:
            os.chdir(before)

    monkeypatch.setattr("contextlib.chdir", into_it)
    assert "k.wgsl" in mistake(arguments)


def test_a_link_in_the_place_of_a_lock_is_named(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / ".t.json.lock").symlink_to("precious")
    with (
        pytest.raises(WebnormError, match=r"cannot write .*t\.json: cannot lock .*\.t\.json\.lock: Too many"),
        atomic.lock(tmp_path / "t.json"),
    ):
        raise AssertionError
    assert (tmp_path / "precious").read_text() == "precious"
