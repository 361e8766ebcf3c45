"""The backend dawn: kernels, calls, messages and errors in processes that use wgpudawn on SwiftShader."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dawn
from pages import ROOT
from patience import HANG_S
from webnorm.choice.tuning import Platform
from webnorm.cli.work.jobs import BAD_USAGE, OK, WRONG
from webnorm.gpu.backend_names import BACKEND_VARIABLE
from webnorm.gpu.device import find_adapter
from webnorm.kernels.headers.sources import wgsl_root

needs_dawn = pytest.mark.skipif(dawn.missing_in_python() is not None, reason=str(dawn.missing_in_python()))
NAIVE = wgsl_root() / "layer_norm" / "naive.wgsl"


def python(*arguments: str, backend: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python with Dawn's driver, and a backend in the environment."""
    environment = {**os.environ, **dawn.ENVIRONMENT, BACKEND_VARIABLE: backend, **variables}
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


def script(text: str, backend: str = "dawn") -> Any:
    """Return the JSON that a script prints."""
    done = python("-c", text, backend=backend)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def webnorm(*arguments: str, backend: str = "") -> subprocess.CompletedProcess[str]:
    return python("-m", "webnorm", *arguments, backend=backend)


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """Return the error of a command, which is one line."""
    assert done.returncode == BAD_USAGE and done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removeprefix("webnorm: ").rstrip()


@needs_dawn
def test_kernels_with_and_without_subgroups_are_right_and_watched(tmp_path: Path) -> None:
    """Tint accepts the kernels, and their instrumented texts with barriers in loops."""
    report = tmp_path / "report.json"
    kernels = ("naive", "two_pass", "welford_subgroup", "registers", "split_row")
    chosen = [word for name in kernels for word in ("--kernel", name)]
    where = ("--op", "layer_norm", "--case", "normal", "--backend", "dawn", "--json", str(report))
    done = webnorm("check", *chosen, *where)
    assert done.returncode == OK, done.stdout + done.stderr
    assert "races on workgroup memory: none in 5 runs;" in done.stdout
    found = json.loads(report.read_text())
    assert {one["kernel"]: one["status"] for one in found["results"]} == dict.fromkeys(kernels, "pass")
    device = found["device"]
    assert device["backend"].startswith("Dawn ") and device["wgpu"].startswith("dawn ")
    assert "subgroups" in device["features"]


NORMS = """
import json, os, sys
import numpy as np
import webnorm

x = np.random.default_rng(0).normal(1e3, 1.0, (64, 512)).astype(np.float32)
exact = x.astype(np.float64)
centred = exact - exact.mean(1, keepdims=True)
expected = centred / np.sqrt(centred.var(1, keepdims=True) + 1e-5)
errors, devices = [], [webnorm.open_device(), webnorm.open_device(without=frozenset({"subgroups"}))]
for device in devices:
    on_gpu = webnorm.GpuArray.from_numpy(x, device)
    for y in (webnorm.layer_norm(x, 512, device=device), webnorm.layer_norm(on_gpu, 512).numpy()):
        errors.append(float(abs(y - expected).max()))
devices[0].handle.destroy()
try:
    webnorm.layer_norm(x, 512, device=devices[0])
except webnorm.WebnormError as error:
    lost = str(error)
child = os.fork() if hasattr(os, "fork") else None
if child == 0:
    try:
        webnorm.layer_norm(x, 512, device=devices[1])
    except webnorm.WebnormError as error:
        sys.exit(7 if "forked" in str(error) else 1)
ended = 7 if child is None else os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps([errors, lost, ended, devices[1].target, devices[1].description()]))
"""


@needs_dawn
def test_two_devices_and_a_lost_one() -> None:
    errors, lost, ended, target, description = script(NORMS)
    assert len(errors) == 4 and max(errors) < 1e-5
    assert lost == "the device is lost; open another with webnorm.open_device"
    assert ended == 7 and target == "browser" and description["features"] == ["timestamp-query"]
    here = Platform.of(find_adapter().description())
    there = Platform.of({**find_adapter().description(), "backend": "Dawn Vulkan"})
    assert here.file_name != there.file_name == Platform.of(description | {"adapter": here.adapter}).file_name


TIMES = """
import json
import numpy as np
import webnorm
from webnorm.gpu.backend import wgpu
from webnorm.gpu.compute_programs import timed_pass

device = webnorm.open_device()
usage = wgpu.BufferUsage
ticks = device.handle.create_buffer(size=16, usage=usage.QUERY_RESOLVE | usage.COPY_SRC)
found = []
for _ in range(8):
    queries = device.handle.create_query_set(type="timestamp", count=2)
    encoder = device.handle.create_command_encoder()
    timed_pass(encoder, queries).end()
    encoder.resolve_query_set(queries, 0, 2, ticks, 0)
    device.handle.queue.submit([encoder.finish()])
    found += np.frombuffer(device.handle.queue.read_buffer(ticks), np.uint64).tolist()
print(json.dumps([device.timestamps, device.timestamp_period, found]))
"""


@needs_dawn
def test_timestamps_are_exact() -> None:
    """By default Dawn rounds them to multiples of 65,536 ns."""
    works, period, ticks = script(TIMES)
    assert works and period == 1.0
    assert any(tick % 65_536 for tick in ticks)


def mine(folder: Path, old: str, new: str) -> tuple[str, int]:
    """Write the kernel `mine`, a changed copy of naive, and return its file with the line of the change."""
    text = NAIVE.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path = folder / "layer_norm" / "mine.wgsl"
    path.parent.mkdir()
    path.write_text(text.replace(old, new), encoding="utf-8")
    return str(path), text[: text.index(old)].count("\n") + 1


@needs_dawn
def test_a_compile_error_is_at_its_line_of_the_template(tmp_path: Path) -> None:
    file, line = mine(tmp_path, "let mean =", "let more = totl(sum); let mean =")
    done = webnorm(
        "check", "--wgsl", str(tmp_path), "--kernel", "mine", "--case", "normal", "--backend", "dawn"
    )
    assert done.returncode == WRONG, done.stdout + done.stderr
    column = Path(file).read_text(encoding="utf-8").splitlines()[line - 1].index("totl") + 1
    message = "error: unresolved call target 'totl'; did you mean `total`?"
    assert f"{file}:{line}:{column}: {message}" in done.stdout
    played = webnorm("play", file, "--once", "--backend", "dawn")
    assert played.returncode == WRONG
    assert f"tint: {file}:{line}:{column}: {message.removeprefix('error: ')}" in played.stdout


@needs_dawn
def test_a_loop_that_does_not_end_is_found(tmp_path: Path) -> None:
    file, line = mine(tmp_path, "let mean =", "for (var i = 0u; i < 2u; i += 0u) {} let mean =")
    done = webnorm(
        "check", "--wgsl", str(tmp_path), "--kernel", "mine", "--case", "normal", "--backend", "dawn"
    )
    assert done.returncode == WRONG, done.stdout + done.stderr
    assert f"{file}:{line}: a loop that does not end" in done.stdout


@needs_dawn
def test_show_and_doctor() -> None:
    shown = webnorm("show", "welford_subgroup", "--cols", "64", backend="dawn").stdout
    assert "target browser" in shown and "enable subgroups;" in shown
    said = webnorm("doctor", "--backend", "dawn")
    assert said.returncode == OK and "Dawn Vulkan" in said.stdout
    found = json.loads(webnorm("doctor", "--json", "--backend", "dawn").stdout)
    assert found["wgpu"] == f"dawn {found['dawn']}"


def test_one_module_imports_wgpu() -> None:
    """Another module would import wgpu-py although the backend is Dawn."""
    found = set()
    for path in (ROOT / "webnorm").rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import) and any(one.name.split(".")[0] == "wgpu" for one in node.names):
                found.add(path.name)
            if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "wgpu":
                found.add(path.name)
    assert found == {"backend.py"}


def test_an_unknown_backend_is_an_error_in_one_line() -> None:
    asked = ("check", "--case", "normal")
    assert one_line(webnorm(*asked, "--backend", "dwan")) == "unknown backend 'dwan'; did you mean 'dawn'?"
    unknown = "unknown WEBNORM_BACKEND 'tint'; expected one of dawn, wgpu"
    assert one_line(webnorm(*asked, backend="tint")) == unknown
    assert one_line(webnorm("export", "rms_norm", "--cols", "8", backend="tint")) == unknown
    assert python("-c", "import webnorm; webnorm.adapters()", backend="tint").stderr.endswith(f"{unknown}\n")


def test_a_missing_wgpudawn_is_an_error_with_the_command_that_installs_it() -> None:
    missing = "import sys; sys.modules['wgpudawn'] = None; sys.argv[0] = 'webnorm'; "
    run = f"{missing}from webnorm.cli.app import run; run()"
    said = one_line(python("-c", run, "check", "--case", "normal", "--backend", "dawn"))
    assert said.startswith("the backend dawn needs wgpudawn, which is not installed: ")
    assert said.endswith("-m pip install wgpudawn")


IMPORTED = """
import json
{first}
import webnorm
try:
    print(json.dumps(webnorm.adapters()[0].description()["wgpu"].split()[0]))
except webnorm.WebnormError as error:
    print(json.dumps(str(error)))
"""
INSTALLED = "import wgpudawn; wgpudawn.install_as_wgpu()"


@needs_dawn
def test_a_program_that_has_imported_wgpu_itself() -> None:
    def said(first: str, backend: str) -> Any:
        return script(IMPORTED.format(first=first), backend)

    assert said("import wgpu", "dawn") == (
        "WEBNORM_BACKEND is dawn, but this program has imported wgpu as `wgpu`; "
        "call wgpudawn.install_as_wgpu() before the first `import wgpu`"
    )
    assert said(INSTALLED, "wgpu").endswith("; leave out wgpudawn.install_as_wgpu()")
    assert said(INSTALLED, "") == said(INSTALLED, "dawn") == "dawn"


ACCEPTED = """
import json
import webnorm
from webnorm.gpu.backend import _DAWN_FEATURES, _SHARED_FEATURES
from webnorm.gpu.pipelines import refusal

device, main = webnorm.open_device(), "@compute @workgroup_size(1) fn main() {}"
names = _DAWN_FEATURES | _SHARED_FEATURES
accepted = [name for name in names if refusal(device, f"requires {name}; {main}") is None]
print(json.dumps([sorted(accepted), sorted(device.adapter.language_features)]))
"""


@needs_dawn
def test_language_features_of_dawn_are_those_that_it_accepts() -> None:
    accepted, known = script(ACCEPTED)
    assert accepted == known and "linear_indexing" in known
