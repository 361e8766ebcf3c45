"""Ctrl-C in any step and view of the playground: only the history is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path

import pytest

from patience import HANG_S, all_end, until
from ptys import Output, children_of
from webnorm.gpu.device import Device
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.play.attempt_store import FOLDER_VARIABLE, AttemptStore
from webnorm.play.state import AttemptState

if sys.platform == "win32":
    pytest.skip("signals and terminals are POSIX's", allow_module_level=True)
import termios

pytestmark = pytest.mark.xdist_group("play")
TWO_PASS = (wgsl_root() / "layer_norm" / "two_pass.wgsl").read_text(encoding="utf-8")
BEGIN = "let pivot = "
LOOPS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
MANY = "".join(
    f"let q{i} = sin(params.eps * {i}.5); if (q{i} > 2.0) {{ y[{i}] = q{i}; }}\n" for i in range(1500)
)
LONG = (
    f"var w = params.eps; for (var i = 0u; i < 60000u; i++) {{ {'w = sin(w) + f32(i); ' * 120} }} y[0] = w;\n"
)
# Kernels that keep a step busy without end. Only the compiler's step ends.
SLOW = {
    "render": TWO_PASS.replace(BEGIN, LOOPS + BEGIN),
    "compile": TWO_PASS.replace(BEGIN, MANY + BEGIN),
    "verdict": TWO_PASS.replace(BEGIN, LONG + BEGIN),
    "time": TWO_PASS.replace(BEGIN, f"if (params.rows == 4096u) {{ {LONG} }}" + BEGIN),
    "trace": TWO_PASS.replace(
        "var distances", f'{{{{ trace("mean") }}}} {{% if tracing %}}{LONG}{{% endif %}} var distances'
    ),
}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a kernel file with one attempt."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "attempts"))
    monkeypatch.setenv("COLUMNS", "200")
    path = tmp_path / "layer_norm" / "mine.wgsl"
    path.parent.mkdir()
    AttemptStore.of(path).keep(AttemptState(number=1, hash="0" * 64, saved="", ok=True), {})
    return path


@contextmanager
def playing(file: Path, step: str, words: Sequence[str], out: int) -> Iterator[subprocess.Popen[str]]:
    """Start the command as the leader of a new process group."""
    file.write_text(SLOW.get(step, TWO_PASS))
    # A long step ends only by Ctrl-C.
    command = [sys.executable, "-c", "import unhurried; unhurried.run()", "play", str(file), *words]
    process = subprocess.Popen(
        command,
        stdin=out,
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def interrupted(process: subprocess.Popen[str], whole_group: bool) -> None:
    """Send Ctrl-C, and check that the process and its children end."""
    children = children_of(process.pid)
    (os.killpg if whole_group else os.kill)(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == 130 and errors.count("\n") == 1 and "interrupted" in errors
    assert children
    all_end(children)


def kept(file: Path) -> list[str]:
    return [one.status for one in AttemptStore.of(file).entries()]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("step", ("render", "trace", "corpus"))
def test_in_a_terminal(file: Path, step: str, device: Device) -> None:
    ours, theirs = os.openpty()
    before = termios.tcgetattr(theirs)
    screen = Output(ours)
    with playing(file, step, ["--quick"], theirs) as process:
        if step == "corpus":
            screen.until("✓ cost")
            os.write(ours, b"c")
        screen.until(f"… {step}")
        # A terminal sends Ctrl-C to its whole foreground process group.
        interrupted(process, whole_group=True)
    assert termios.tcgetattr(theirs) == before
    os.close(theirs)
    assert kept(file) == ["pass"] * (1 if step == "render" else 2)


@pytest.mark.slow
def test_a_terminal_of_another_size_is_drawn_anew(
    file: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS")
    whole = "8x768 float32: nearest to its tolerance: y["
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (30, 40))
    screen = Output(ours)
    with playing(file, "", ["--quick"], theirs) as process:
        assert whole not in screen.until("✓ cost")
        termios.tcsetwinsize(theirs, (30, 160))
        screen.until(whole)
        interrupted(process, whole_group=True)
    os.close(theirs)


@pytest.mark.parametrize(
    ("step", "words", "mark"),
    (
        ("compile", ["--json"], '"name": "render", "state": "done"'),
        ("time", ["--once", "--rows", "4096", "--cols", "1024"], "✓ verdict"),
    ),
)
def test_in_a_pipe(file: Path, step: str, words: list[str], mark: str, device: Device) -> None:
    ours, theirs = os.pipe()
    lines = Output(ours)
    with playing(file, step, words, theirs) as process:
        os.close(theirs)
        lines.until(mark)
        if step == "time":
            # The verdict is saved after it is shown and before the endless step.
            until(lambda: len(kept(file)) == 2)
        interrupted(process, whole_group=False)
    # A compiler may have finished already.
    assert kept(file) in (["pass"] * 2, ["pass"] * (1 if step == "compile" else 2))


def heard(events: HTTPResponse, mark: bytes) -> None:
    """Read the endless event stream of a page until it contains a mark."""
    while mark not in (line := events.readline()):
        assert line, f"{mark!r} was never sent"


def test_on_the_page_that_waits_for_an_answer(file: Path, device: Device) -> None:
    ours, theirs = os.pipe()
    lines = Output(ours)
    with playing(file, "", ["--web", "--quick"], theirs) as process:
        os.close(theirs)
        url, _, token = lines.until("Ctrl-C").partition("open http://")[2].split()[0].partition("/#")
        with (
            closing(HTTPConnection(url, timeout=HANG_S)) as one,
            closing(HTTPConnection(url, timeout=HANG_S)) as other,
        ):
            headers = {"Authorization": f"Bearer {token}"}
            one.request("GET", "/api/events", headers=headers)
            with one.getresponse() as events:
                heard(events, b'"ok":true')
                swap = file.with_suffix(".swp")
                swap.write_text(SLOW["verdict"])
                swap.replace(file)
                heard(events, b'"working":"verdict"')
                # The request waits for the verdict. The server has received the request once it asks for the
                # body.
                other.request(
                    "POST", "/api/here", headers={**headers, "Expect": "100-continue", "Content-Length": "2"}
                )
                with other.sock.makefile("rb") as answer:
                    assert answer.readline().startswith(b"HTTP/1.1 100 ")
                other.send(b"{}")
                interrupted(process, whole_group=False)
                # The answer may come, or the connection may end with the process. The request never hangs.
                with suppress(HTTPException), other.getresponse() as answer:
                    assert b"the playground has ended" in answer.read()
    assert kept(file) == ["pass", "pass"]
