"""Commands with arguments of any kind: they work, or print one line about the error."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import commands
from fuzzing import examples
from shown import fit
from webnorm.cli.verb_table import VERBS
from webnorm.cli.verbs import collect
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device


class NoWorker:
    """A replacement for the worker, which ends every job that needs a device."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise WebnormError("no device is needed to refuse what is wrong")


FILES = {
    "results.json": b'{"schema": 1, "webnorm": "0", "device": {}, "results": []}',
    "deep.json": b"[" * 10_000,
    "bytes.json": bytes(range(256)),
    "x.npy": b"\x93NUMPY",
    "we[ird] name.wgsl": b"//!",
    "\x1b[31m.wgsl": b"/*---\nsummary = 3\n---*/",
}

WORDS = st.sampled_from(
    [
        "",
        "0",
        "-1",
        "1",
        "8",
        "64,128",
        str(10**30),
        "9" * 5000,
        "1e308",
        "nan",
        "inf",
        "-inf",
        "a=",
        "=1",
        "threads_per_row=8,",
        "threads_per_row=" + "9" * 30,
        "max_workgroups=" + "9" * 40,
        "max_workgroups=" + "9" * 5000,
        "²",
        "out_dtype=int8",
        "residual",
        "float16",
        "bfloat16",
        "all",
        "help",
        "auto",
        "naive",
        "layer_norm/naive",
        "rms_norm",
        "layer_norm_backward",
        "browser",
        "--",
        "-",
        "-k",
        ".",
        "/",
        "/dev/null",
        "none/at/all",
        "nul\0in a name",
        "\udcff",
        "\x1b]0;x\x07",
        "\u202etxt",
        "two\nlines",
        "[/]",
        "[bold]x[/]",
        "規則",
        "x" * 300,
        "x" * 5000,
        "pipe.json",
        *FILES,
    ]
) | st.text(max_size=8)

OPTIONS = {
    "list": ("--op", "--dtype", "--option", "--wgsl", "--adapter", "--supported", "--verbose", "--json", "*"),
    "show": (
        "--op",
        "--rows",
        "--cols",
        "--dtype",
        "--option",
        "--target",
        "--constant",
        "--diff",
        "--wgsl",
        "--adapter",
        "--cost",
        "--no-weight",
    ),
    "compare": ("--fail-slower", "--fail-unclear", "--allow-missing", "--any-device"),
    "baselines": ("--remove", "--json", "*"),
    "tune": (
        "--list",
        "--remove",
        "--out",
        "--op",
        "--dtype",
        "--rows",
        "--cols",
        "--preset",
        "--model",
        "--dim",
        "--budget",
        "--quick",
        "--adapter",
        "--time-limit",
        "--option",
        "--cluster",
    ),
    "check": (
        "--model",
        "--dim",
        "--cases",
        "--case",
        "--input",
        "--kernel",
        "--op",
        "--dtype",
        "--option",
        "--eps",
        "--scale",
        "--constant",
        "--all-constants",
        "--wgsl",
        "--adapter",
        "--time-limit",
        "--json",
        "--cluster",
    ),
    "bench": (
        "--model",
        "--dim",
        "--preset",
        "--rows",
        "--cols",
        "--kernel",
        "--op",
        "--dtype",
        "--option",
        "--scale",
        "--seed",
        "--distribution",
        "--eps",
        "--constant",
        "--budget",
        "--runs",
        "--time-limit",
        "--json",
        "--csv",
        "--markdown",
        "--plot",
        "--wgsl",
        "--cluster",
    ),
    # The command runs without --out, which sets the output folder.
    "new": ("--op", "--from"),
    # --once is always set, because `play` would not end otherwise.
    "play": (
        "--json",
        "--quick",
        "--op",
        "--dtype",
        "--option",
        "--constant",
        "--rows",
        "--cols",
        "--size",
        "--scalar",
        "--trace",
        "--adapter",
    ),
    "verify": ("--browser", "--screenshot", "--time-limit"),
    "export": (
        "--model",
        "--dim",
        "--cols",
        "--dtype",
        "--kernel",
        "--name",
        "--eps",
        "--scale",
        "--option",
        "--wgsl",
    ),
    "collect": (
        "--store",
        "--host",
        "--port",
        "--origin",
        "--behind-proxy",
        "--rate",
        "--capacity",
        "--export",
        "--page",
    ),
    # The command runs without the options that set where it writes.
    "store": ("--store", "--op", "--kernel", "--adapter", "--last", "--format"),
    "scan": ("--dim", "--dtype", "--json", "--accuracy", "--adapter"),
    "doctor": ("--adapter", "--json"),
    "cluster": ("--cluster", "--adapter", "--json", "--time-limit"),
    "new-op": ("--out",),
    "evaluate": ("--op", "--size", "--dtype", "--option", "--scalar", "--constant", "--budget", "--json"),
    "nonsense": (),
}
ARGUMENTS = {
    "play": 1,
    "new": 1,
    "new-op": 1,
    "evaluate": 1,
    "scan": 1,
    "show": 1,
    "compare": 2,
    "verify": 1,
    "export": 1,
    "store": 1,
}


def test_no_verb_is_left_out() -> None:
    assert OPTIONS.keys() == {*VERBS, "nonsense"}


@st.composite
def asked(draw: st.DrawFn) -> list[str]:
    command = draw(st.sampled_from(sorted(OPTIONS)))
    words = [
        command,
        *(["--once"] if command == "play" else []),
        *([draw(st.sampled_from(("add", "history", "regressions", "export")))] if command == "store" else []),
        *(draw(WORDS) for _ in range(ARGUMENTS.get(command, 0))),
    ]
    for option in draw(st.lists(st.sampled_from(OPTIONS[command] or ("--nonsense",)), max_size=3)):
        words += draw(st.sampled_from([[option], [option, draw(WORDS)], [f"{option}={draw(WORDS)}"]]))
    return words


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("commands")
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / "pipe.json")
    return folder


@examples(50)
@given(arguments=asked())
@example(arguments=["doctor", "--adapter", "9" * 5000])
@example(arguments=["list", "--adapter", "²"])
@example(arguments=["list", "[!", "*[", "\udcff"])
@example(arguments=["verify", "x" * 5000])
@example(arguments=["show", "naive", "--option", "max_workgroups=" + "9" * 5000])
@example(arguments=["bench", "--time-limit", "inf"])
@example(arguments=["bench", "--seed", "9" * 40])
@example(arguments=["tune", "--list", "--out", "nul\0in a name"])
@example(arguments=["compare", "deep.json", "results.json"])
@example(arguments=["compare", "pipe.json", "results.json"])
@example(arguments=["compare", "/dev/zero", "results.json"])
@example(arguments=["check", "--input", "/dev/zero"])
@example(
    arguments=["collect", "--store", "new", "--host", "x" * 300, "--behind-proxy", "--origin", "http://a"]
)
@example(arguments=["collect", "--store", "nul\0in a name", "--port", "0"])
@example(arguments=["collect", "--store", "pipe.json", "--export", "out"])
@example(arguments=["collect", "--store", "new", "--page", "pipe.json"])
@example(arguments=["compare", "results.json", "results.json", "--fail-slower", "nan"])
@example(arguments=["store", "add", "pipe.json", "--store", "new"])
@example(arguments=["store", "history", "--store", "nul\0in a name"])
@example(arguments=["store", "export", "results.json", "--format", "\x1b[31m"])
@example(arguments=["store", "regressions", "--last", "9" * 5000])
def test_any_arguments(arguments: list[str], folder: Path, device: Device) -> None:
    with patch.object(commands, "_SharedWorker", NoWorker), patch.object(collect, "serve", NoWorker):
        done = commands.webnorm(arguments, folder)
    assert done.returncode in (0, 1, 2), done
    assert done.stderr.count("\n") <= 1 and fit(done.stderr.replace("\n", "")), done
    assert fit(done.stdout.replace("\n", "").replace("\t", "")), done
    if done.returncode == 2 and done.stderr:
        assert done.stderr.startswith("webnorm: ") and len(done.stderr) < 2200, done
