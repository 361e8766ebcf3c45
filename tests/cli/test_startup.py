"""Commands import only what they need, since imports delay their start."""

from __future__ import annotations

import subprocess
import sys

import pytest

from webnorm.gpu.device import Device

# Imports that take 20 ms or more. wgpu's native part takes 250 ms.
HEAVY = {
    "wgpu",
    "wgpu.backends.wgpu_native",
    "numpy",
    "jinja2",
    "matplotlib",
    "pydantic",
    "asyncio",
    "filelock",
    "rich.markdown",
    "rich.syntax",
    "typer.rich_utils",
    "webnorm.lab",
    "webnorm.web",
}
PROBE = (
    "import contextlib, io, sys; from webnorm.cli.app import run\n"
    "sys.argv[0] = 'webnorm'\n"
    "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as said: run()\n"
    "print(len(said.getvalue()), *sys.modules)"
)
NATIVE = {"wgpu", "wgpu.backends.wgpu_native"}
CALL = "import sys, numpy, webnorm; webnorm.layer_norm(numpy.ones((8, 64), 'f'), 64); print(*sys.modules)"


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (["--version"], set()),
        (["--help"], set()),
        # The lists of ops and options come from NumPy code.
        (["show", "--help"], {"numpy"}),
        (["check", "--help"], {"numpy"}),
        (["doctor", "--help"], set()),
        (["list"], {"numpy", "jinja2"}),
        (["list", "--json", "--op", "rms_norm"], {"numpy", "jinja2"}),
        (["show", "registers", "--target", "browser"], {"numpy", "jinja2"}),
        (["show", "registers"], {"numpy", "jinja2", *NATIVE}),
    ],
    ids=lambda arguments: " ".join(arguments) if isinstance(arguments, list) else "",
)
def test_imports_of_a_command(arguments: list[str], needed: set[str], device: Device) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, check=True
    )
    length, *modules = done.stdout.split()
    assert int(length) > 10
    assert HEAVY & {*modules} == needed


def test_doctor_opens_the_device_in_a_fork_and_imports_no_wgpu_itself(device: Device) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("forks are made on Linux alone")
    done = subprocess.run([sys.executable, "-c", PROBE, "doctor"], capture_output=True, text=True, check=True)
    _, *modules = done.stdout.split()
    assert HEAVY & {*modules} == set()
    assert "webnorm.lab.process.worker" not in modules


def test_a_first_call_imports_nothing_of_the_lab(device: Device) -> None:
    done = subprocess.run([sys.executable, "-c", CALL], capture_output=True, text=True, check=True)
    modules = {*done.stdout.split()}
    assert not modules & (
        {*HEAVY, "numpy.random", "numpy.ma", "typer", "rich"} - {"numpy", "jinja2", *NATIVE}
    )
