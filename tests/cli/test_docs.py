"""What the README and the docs say is run: commands, Python, the worked example, the generated tables."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from bench.numerics import kernels_table
from commands import webnorm, webnorm_process
from pages import ROOT, blocks, example
from testbed import KERNELS, tracked
from webnorm.calls import functional, modules, onnx_ops
from webnorm.gpu.device import Device
from webnorm.kernels.names import ADAPTER_NAMES, PROBLEM_NAMES, TEMPLATE_NAMES
from webnorm.kernels.sources import wgsl_root
from webnorm.norms.ops import OPS, Op
from webnorm.norms.presets import PRESETS
from webnorm.norms.problem import Options
from webnorm.web import browser, tint

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md")


def missing() -> str | None:
    """What `webnorm verify` lacks here."""
    lacking = browser.mends()
    return tint.available() or (lacking[0].missing if lacking else None)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands(page: Path, tmp_path: Path, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBNORM_TUNINGS", str(tmp_path / "tunings"))
    example(tmp_path)
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    commands = [shlex.split(line, comments=True) for line in lines]
    assert all(words[0] == "webnorm" for words in commands), lines
    for _, *words in commands:
        verifies = words[0] == "verify"
        # Playwright wants a process without an event loop of somebody else's.
        done = (webnorm_process if verifies else webnorm)(words, tmp_path)
        if verifies and missing():
            # It is not installed by `make bench`, and one command brings it.
            assert done.returncode == 2 and "`webnorm doctor --mend --browser`" in done.stderr
        else:
            assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
            assert "Traceback" not in done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python(page: Path, tmp_path: Path, device: Device) -> None:
    """A page's blocks in one process, each with names of its own."""
    runs = [
        f"exec(compile({block!r}, 'block {number}', 'exec'), {{'__name__': '__main__'}})"
        for number, block in enumerate(blocks(page, "python"), 1)
    ]
    command = [sys.executable, "-W", "error", "-c", "\n".join(runs)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_command_is_documented() -> None:
    done = webnorm(["--help"], ROOT)
    commands = set(re.findall(r"^│ (\w+) ", done.stdout, re.M))
    assert commands == {"doctor", "list", "show", "check", "bench", "compare", "tune", "export", "verify"}
    text = "".join(page.read_text() for page in PAGES)
    assert all(f"webnorm {command}" in text for command in commands)


@pytest.mark.parametrize("op", [op for op in OPS.values() if not op.exact], ids=lambda op: op.name)
def test_the_readme_names_every_kernel_of_an_op(op: Op) -> None:
    (row,) = re.findall(rf"^\| `{op.name}` \|.*\| (.*) \|$", (ROOT / "README.md").read_text(), re.M)
    assert row == ", ".join(f"`{kernel.name}`" for kernel in KERNELS if kernel.op is op)


def test_every_option_has_an_example() -> None:
    page = ROOT / "docs" / "options.md"
    run = "".join([*blocks(page, "console"), *blocks(page, "python")])
    for field in fields(Options):
        assert re.search(rf"\b{field.name}\b", page.read_text()), field.name
        # Dtypes of parameters and statistics that were saved follow from the arrays in Python.
        python = {"weight_dtype": "weight", "saved_stats": "stats="}.get(field.name, field.name)
        assert python in run, field.name


def test_every_function_is_documented() -> None:
    text = (ROOT / "docs" / "python.md").read_text()
    for module in (functional, modules, onnx_ops):
        for name, value in vars(module).items():
            if getattr(value, "__module__", None) == module.__name__ and not name.startswith("_"):
                assert f"`{name}" in text, name


def test_every_snippet_and_name_of_a_header_is_documented() -> None:
    text = (ROOT / "docs" / "add-a-kernel.md").read_text()
    for path in (wgsl_root() / "lib").glob("*.wgsl"):
        assert f"`{path.name}`" in text, path.name
    for name in (*PROBLEM_NAMES, *ADAPTER_NAMES, *TEMPLATE_NAMES):
        assert f"`{name}`" in text, name


def test_the_changelog_names_every_preset() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert all(preset in text for preset in PRESETS)


def test_the_kernels_table_is_fresh() -> None:
    table = kernels_table([kernel for kernel in KERNELS if tracked(kernel)])
    assert table in (ROOT / "docs" / "kernels.md").read_text(), "stale: python -m bench.numerics --write"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
