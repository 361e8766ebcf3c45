"""`webnorm list`: lines, full headers and JSON; --supported opens the adapter."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import webnorm
from testbed import tracked
from webnorm.errors import one_line
from webnorm.gpu.device import Device
from webnorm.kernels.headers.library import discover

OWN = [kernel for kernel in discover() if tracked(kernel)]


def listed(arguments: list[str], folder: Path) -> list[dict[str, Any]]:
    done = webnorm(["list", "--json", *arguments], folder)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Make the screen a terminal of this width without colours."""

    def of(columns: int) -> None:
        monkeypatch.setenv("TTY_COMPATIBLE", "1")
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", str(columns))

    return of


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_every_kernel_is_listed_once(columns: int, terminal: Callable[[int], None], tmp_path: Path) -> None:
    terminal(columns)
    lines = re.sub(r"\x1b\[[\d;]*m", "", webnorm(["list"], tmp_path).stdout).splitlines()
    assert len(lines) <= 80 and max(map(len, lines)) <= columns
    names = [line.split()[0] for line in lines if line.startswith("  ") and line[2:3] not in " ("]
    assert {kernel.name for kernel in OWN} <= {*names}
    if columns >= 80:
        assert sorted(names) == sorted(path.stem for path in {kernel.path for kernel in OWN})


def test_a_pipe_gets_whole_lines(tmp_path: Path) -> None:
    """Long summaries are neither cut nor wrapped."""
    lines = webnorm(["list"], tmp_path).stdout.splitlines()
    for kernel in OWN:
        assert any(line.startswith(f"  {kernel.name} ") and kernel.summary in line for line in lines)
    needing = [line.split()[0] for line in lines if "needs subgroups" in line]
    assert needing == ["welford_subgroup", "row_in_registers"]
    assert [line.split()[0] for line in lines if line.endswith("(unstable)")] == ["one_pass"]


def test_one_kernel_is_shown_in_full(tmp_path: Path) -> None:
    (kernel,) = (one for one in OWN if one.name == "one_pass")
    short, long = webnorm(["list", "*_pass"], tmp_path).stdout, webnorm(["list", "one_pass"], tmp_path).stdout
    assert "two_pass" in short and kernel.differs not in short
    for part in (kernel.summary, kernel.differs, str(kernel.unstable), str(kernel.path), *kernel.tune):
        assert part in long
    verbose = webnorm(["list", "-v", "*_pass"], tmp_path).stdout
    assert kernel.differs in verbose and "layer_norm/two_pass\n" in verbose
    assert "runs here" not in long + verbose


def test_filters(tmp_path: Path, mistake: Callable[[list[str]], str]) -> None:
    assert {one["op"] for one in listed(["--op", "rms_norm", "-o", "residual"], tmp_path)} == {"rms_norm"}
    assert {one["op"] for one in listed(["-o", "dh"], tmp_path)} == {
        "layer_norm_backward",
        "rms_norm_backward",
        "modulated_norm_backward",
    }
    names = [one["kernel"] for one in listed(["welford*", "rms_norm/naive"], tmp_path)]
    assert names == ["welford", "welford_subgroup", "naive"]
    assert "unknown kernel 'welfrod'; did you mean 'welford'" in mistake(["list", "welfrod"])
    output = mistake(["list", "one_dispatch", "--op", "rms_norm"])
    assert "'one_dispatch' is for layer_norm_backward, rms_norm_backward, not for rms_norm" in output
    assert "kernel 'one_d*' is for layer_norm_backward, rms_norm_backward, not for rms_norm" in mistake(
        ["list", "one_d*", "--op", "rms_norm"]
    )
    assert "rms_norm has no option dh" in mistake(["list", "--op", "rms_norm", "-o", "dh"])


def test_json_has_what_the_headers_say(tmp_path: Path) -> None:
    found = {(one["op"], one["kernel"]): one for one in listed([], tmp_path)}
    assert found.keys() == {(kernel.op.name, kernel.name) for kernel in OWN}
    for kernel in OWN:
        one = found[kernel.op.name, kernel.name]
        assert (one["summary"], one["differs"], one["unstable"]) == (
            kernel.summary,
            kernel.differs,
            kernel.unstable,
        )
        assert one["tune"] == {axis: [*values] for axis, values in kernel.tune.items()}
        assert Path(one["path"]) == kernel.path and one["runs"] is one["reason"] is None
    assert found["layer_norm", "welford_subgroup"]["features"] == {"subgroups": "required"}
    assert found["layer_norm", "registers"]["features"] == {"subgroups": "optional"}


@pytest.mark.opengl
def test_supported_shows_what_an_adapter_runs(tmp_path: Path, device: Device) -> None:
    subgroups = "subgroups" in device.traits.features
    found = {one["kernel"]: one for one in listed(["--supported", "--op", "layer_norm"], tmp_path)}
    assert found["naive"]["runs"] is True and found["naive"]["reason"] is None
    assert found["welford_subgroup"]["runs"] is subgroups
    assert subgroups or "'subgroups'" in found["welford_subgroup"]["reason"]
    lines = webnorm(["list", "--adapter", str(device.adapter.index)], tmp_path).stdout.splitlines()
    assert lines[0] == f"runs here: float32 of 1024 columns, on {one_line(str(device.adapter))}"
    answers = {line.split()[0]: line.split()[1] for line in lines if line.startswith("  ")}
    for name in ("welford_subgroup", "row_in_registers"):
        assert answers.pop(name) == ("yes" if subgroups else "no")
    assert {*answers.values()} == {"yes"}
    done = webnorm(
        ["list", "--supported", "rms_norm/*_row", "rms_norm/naive", "-o", "out_dtype=int8"], tmp_path
    )
    assert re.findall("^  (naive +yes  One|split_row  no   the scale)", done.stdout, re.M) == [
        "naive      yes  One",
        "split_row  no   the scale",
    ]
    output = webnorm(["list", "welford_subgroup", "--supported"], tmp_path).stdout
    assert ("runs here: yes" if subgroups else "runs here: no: ") in output


def test_a_kernel_dropped_into_a_folder_is_listed(tmp_path: Path) -> None:
    assert webnorm(["new", "quads"], tmp_path).returncode == 0
    done = webnorm(["list", "--wgsl", "kernels"], tmp_path)
    assert done.returncode == 0
    assert "  quads " in done.stdout and "  registers " in done.stdout


def test_a_kernel_that_is_named_by_its_file(tmp_path: Path, mistake: Callable[[list[str]], str]) -> None:
    assert webnorm(["new", "quads"], tmp_path).returncode == 0
    file = "kernels/layer_norm/quads.wgsl"
    assert [one["kernel"] for one in listed([file], tmp_path)] == ["quads"]
    # A file is one kernel, even if several paths lead to it.
    both = [one["kernel"] for one in listed([f"./{file}", "rms_norm/naive", "--wgsl", "kernels"], tmp_path)]
    assert sorted(both) == ["naive", "quads"]
    assert "runs here" not in webnorm(["list", file], tmp_path).stdout
    assert "kernel 'quads' is for layer_norm, not for rms_norm" in mistake(["list", file, "--op", "rms_norm"])
    assert "none.wgsl: cannot read the kernel" in mistake(["list", "kernels/layer_norm/none.wgsl"])
