"""Paths of any bytes: everything works below them, or the command prints a one-line error."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import msgspec
import pytest

from commands import webnorm, webnorm_process
from webnorm.cli.work.jobs import INCONCLUSIVE
from webnorm.gpu.device import Device
from webnorm.kernels.headers.drafts import draft
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.play.attempt_store import AttemptStore
from webnorm.play.state import WatchedFile, snapshot_as_json

# Latin-1, which is not UTF-8, and special characters of shells, terminals, SQLite, browsers, HTML and TOML.
LATIN, OBEYED = os.fsdecode(b"caf\xe9"), "a\tb\x1b[31m\"%20#?'& <b> ;$x"
KERNEL = "kernels/layer_norm/mine.wgsl"
VARIABLES = {
    "HOME": "home",
    "TMPDIR": "tmp",
    "XDG_CACHE_HOME": "cache",
    "XDG_DATA_HOME": "data",
    "XDG_RUNTIME_DIR": "run",
    "WEBNORM_ATTEMPTS": "attempts",
    "WEBNORM_BASELINES": "baselines",
    "WEBNORM_TUNINGS": "tunings",
    "WEBNORM_STORE": "store.db",
}


@pytest.fixture(params=(LATIN, OBEYED), ids=("latin", "obeyed"))
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of such a name with a kernel and all of webnorm's own folders."""
    found = tmp_path / str(request.param)
    try:
        (found / "kernels" / "layer_norm").mkdir(parents=True)
    except (OSError, UnicodeEncodeError) as error:
        pytest.skip(f"this file system has no such names: {error}")
    for variable, name in VARIABLES.items():
        monkeypatch.setenv(variable, str(found / name))
    for name in ("home", "tmp", "run"):
        (found / name).mkdir()
    text = draft(load(wgsl_root() / "layer_norm" / "two_pass.wgsl"), [wgsl_root()])
    (found / KERNEL).write_text(text, encoding="utf-8")
    return found


def done(folder: Path, *words: str) -> str:
    ended = webnorm(words, folder)
    assert ended.returncode == 0, ended.stderr
    assert "\x1b" not in ended.stdout
    ended.stdout.encode()
    return ended.stdout


def test_a_kernel_is_rendered_and_listed(folder: Path) -> None:
    for given in (KERNEL, str(folder / KERNEL)):
        assert "fn main" in done(folder, "show", "--cols", "64", given)
    assert "mine" in done(folder, "list", "--wgsl", "kernels")
    json.loads(done(folder, "list", "--wgsl", "kernels", "--json"))


def test_a_right_kernel_is_right(folder: Path, device: Device) -> None:
    done(folder, "check", "--case", "normal", "--kernel", str(folder / KERNEL))


@pytest.mark.slow
def test_a_kernel_is_played_with_timed_kept_and_exported(folder: Path, device: Device) -> None:
    played = webnorm(["play", "--once", "--quick", "--json", KERNEL], folder)
    # Tint is installed in the user's cache folder, which the test replaces.
    assert (played.returncode, played.stderr) == (INCONCLUSIVE, "webnorm: not checked: tint\n")
    assert json.loads(played.stdout.splitlines()[-1])["ok"]
    outputs = ["--json", "r.json", "--csv", "r.csv", "--markdown", "r.md", "--plot", "r.svg"]
    words = ["bench", "--kernel", str(folder / KERNEL), "--rows", "4", "--cols", "64", "--budget", "0.01"]
    done(folder, *words, *outputs, "--save", "kept")
    done(folder, "compare", "r.json", "r.json")
    assert "kept" in done(folder, "baselines")
    done(folder, "store", "add", str(folder / "r.json"))
    json.loads(done(folder, "store", "history", "--json", "-"))
    words = ["export", "layer_norm", "--cols", "64", "--kernel", "mine", "--wgsl", str(folder / "kernels")]
    done(folder, *words, "--out", str(folder / "package"))
    assert (folder / "package" / "index.js").exists()


@pytest.mark.parametrize(
    "words",
    (
        ["show", "NAME/no.wgsl"],
        ["check", "--kernel", "NAME/no.wgsl"],
        ["play", "NAME/no.wgsl"],
        ["compare", "NAME", "NAME"],
        ["verify", "NAME/no"],
        ["store", "add", "NAME"],
        ["bench", "--op", "NAME"],
        ["bench", "--kernel", "NAME"],
        ["bench", "--save", "NAME"],
        ["new", "NAME"],
        ["NAME"],
        ["bench", "--plot", "NAME"],
        ["export", "layer_norm", "--name", "NAME"],
        ["cluster", "--cluster", "NAME"],
        ["verify", ".", "--browser", "NAME"],
        ["collect", "--store", "NAME/no", "--export", "NAME"],
        ["collect", "--store", "NAME/no", "--page", "NAME"],
    ),
    ids=" ".join,
)
def test_an_error_is_one_line_in_utf8(words: list[str], tmp_path: Path) -> None:
    for name in (LATIN, f"{OBEYED}\n"):
        ended = webnorm([word.replace("NAME", name) for word in words], tmp_path)
        assert ended.returncode == 2 and ended.stderr.count("\n") == 1, ended.stderr
        assert "\x1b" not in ended.stderr
        ended.stderr.encode()


@pytest.mark.parametrize(
    ("name", "said"),
    (
        (f"{LATIN}.wgsl", r"caf\udce9.wgsl: its name contains the character U+DCE9; rename it"),
        ("a\nb/k.wgsl", "k.wgsl: its path contains the character U+000A; rename it"),
    ),
)
def test_a_kernel_that_cannot_be_named_is_refused(name: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    shutil.copy(wgsl_root() / "layer_norm" / "two_pass.wgsl", path)
    for words in (["play", "--once"], ["show", "--cols", "64"], ["check", "--kernel"]):
        ended = webnorm([*words, str(path), "--op", "layer_norm"], tmp_path)
        assert ended.returncode == 2 and ended.stderr.count("\n") == 1 and said in ended.stderr


def test_the_page_gets_such_a_file(tmp_path: Path) -> None:
    file = snapshot_as_json(WatchedFile(name="mine.wgsl", path=f"/{LATIN}/mine.wgsl"))
    assert msgspec.json.decode(msgspec.json.encode(file))["path"] == r"/caf\udce9/mine.wgsl"
    assert AttemptStore.of(tmp_path / LATIN / "mine.wgsl") != AttemptStore.of(tmp_path / "cafe" / "mine.wgsl")


@pytest.mark.slow
@pytest.mark.parametrize("name", (LATIN, "café"))
def test_an_ascii_locale(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ascii = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    for variable, value in ascii.items():
        monkeypatch.setenv(variable, value)
    folder = tmp_path / name
    folder.mkdir()
    for words in (
        ["new", "mine", "--op", "layer_norm", "--from", "two_pass"],
        ["show", "--cols", "64", str(folder / KERNEL)],
        ["list", "--wgsl", str(folder / "kernels")],
        ["check", "--case", "normal", "--kernel", KERNEL],
    ):
        ended = webnorm_process(words, folder)
        assert ended.returncode == 0, ended.stderr
