"""Standard output and standard error that are full, closed, or without a reader."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import broken
from patience import HANG_S
from samples import REPORT
from webnorm.cli.work.jobs import INCONCLUSIVE
from webnorm.gpu.device import Device
from webnorm.lab.results import result_files

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")

FULL = "webnorm: cannot write to standard output: No space left on device\n"


def webnorm(
    arguments: Sequence[str], redirected: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command with streams that a shell redirects."""
    command = ["sh", "-c", f'"$0" -m webnorm "$@" {redirected}', sys.executable, *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["list"], ["show", "naive"]], ids=" ".join)
def test_a_full_output_is_reported_in_one_line(arguments: list[str]) -> None:
    done = webnorm(arguments, ">/dev/full")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", FULL)


def test_a_table_is_shown_where_its_json_has_no_room(device: Device) -> None:
    done = webnorm(["check", "-k", "naive", "--case", "rows-1", "-v", "--json", "-"], ">/dev/full")
    assert done.returncode == 2
    assert "rows-1, float32" in done.stderr and done.stderr.endswith(FULL)
    assert done.stderr.count("webnorm:") == 1 and "Exception" not in done.stderr


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("redirected", "status", "errors"),
    [
        (">&-", 2, "webnorm: standard output is closed\n"),
        ("<&- >&- 2>&-", 2, ""),
        (">/dev/full 2>&-", 2, ""),
        (">/dev/full 2>/dev/full", 2, ""),
        ("2>&-", 0, ""),
        ("2>/dev/full", 0, ""),
    ],
)
def test_streams_that_are_missing(redirected: str, status: int, errors: str) -> None:
    done = webnorm(["check", "--cases"], redirected)
    assert (done.returncode, done.stderr) == (status, errors)
    assert ("rows-1" in done.stdout) == (status == 0)


@pytest.mark.parametrize("redirected", ["2>&-", "2>/dev/full"])
def test_an_error_that_cannot_be_printed(redirected: str) -> None:
    done = webnorm(["check", "--nonsense"], redirected)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_a_closed_stream_does_not_end_in_the_users_file(tmp_path: Path, device: Device) -> None:
    path = tmp_path / "out.json"
    arguments = ["check", "-k", "naive", "--case", "rows-1", "-v", "--json", str(path)]
    done = webnorm(arguments, "2>&-", WGPU_LOG="info", RUST_LOG="info", EGL_LOG_LEVEL="debug")
    assert done.returncode == 0 and "rows-1, float32" in done.stdout
    assert path.read_text().startswith('{"schema": 1') and path.read_text().endswith("]}\n")


@pytest.mark.parametrize("arguments", [["show", "naive"], ["--help"]], ids=" ".join)
def test_a_reader_that_stops_early(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "webnorm", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0


def test_an_output_without_the_characters(tmp_path: Path) -> None:
    done = webnorm(["tune", "--list", "--out", str(tmp_path / "規則")], "", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("\\u898f\\u5247 does not exist\n")


def test_names_that_no_encoding_has(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "webnorm", "compare", b"\xff\x1b[2J.json", "b"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == r"webnorm: cannot read \udcff\x1b[2J.json: No such file or directory" + "\n"


def left_by_its_reader(arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder. The reader of its standard output ends before the command starts."""
    command = [sys.executable, "-m", "webnorm", *arguments]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read()
    return subprocess.CompletedProcess(command, process.returncode, "", errors)


def into_a_full_one(arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the command with a full standard output."""
    with Path("/dev/full").open("w") as full:
        return subprocess.run(
            [sys.executable, "-m", "webnorm", *arguments],
            cwd=folder,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "status", "errors"),
    [(left_by_its_reader, 1, ""), (into_a_full_one, 2, FULL)],
    ids=["left", "full"],
)
def test_exit_status_and_files_survive_a_closed_output(
    run: Callable[[Sequence[str], Path], subprocess.CompletedProcess[str]],
    status: int,
    errors: str,
    tmp_path: Path,
    device: Device,
) -> None:
    """Even without a reader, files are complete, and wrong or missing kernels cause their exit statuses."""
    broken.write(tmp_path, "wrong")
    wrong = ["--wgsl", ".", "-k", "wrong", "--json"]
    for arguments in (
        ["check", "--case", "rows-1", *wrong, "c.json"],
        ["bench", "--rows", "4", "--cols", "8", "--budget", "0.05", *wrong, "b.json"],
    ):
        done = run(arguments, tmp_path)
        assert (done.returncode, done.stderr) == (status, errors)
        report = result_files.read(tmp_path / arguments[-1])
        assert report.complete and "fail" in {result.status for result in report.results}
    (tmp_path / "old.json").write_text(result_files.to_json(REPORT))
    (tmp_path / "new.json").write_text(result_files.to_json(replace(REPORT, results=REPORT.results[:1])))
    done = run(["compare", "old.json", "new.json", "--fail-slower", "1"], tmp_path)
    assert (done.returncode, done.stderr) == (INCONCLUSIVE if status == 1 else status, errors)


def test_a_mistake_and_a_full_output_are_one_line(tmp_path: Path, device: Device) -> None:
    arguments = ["check", "-k", "naive", "--case", "rows-1", "--json", "-", "--allow-skipped"]
    done = into_a_full_one([*arguments, "--adapter", "none such"], tmp_path)
    assert done.returncode == 2 and done.stderr.count("webnorm:") == 1
