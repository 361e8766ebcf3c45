"""The wheel is complete: it contains the kernels and runs outside the repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from patience import HANG_S
from webnorm.gpu.device import adapters

REPOSITORY = Path(__file__).parent.parent
WINDOWS = sys.platform == "win32"
# All these tests run in one process, so that the wheel is built and installed once.
pytestmark = pytest.mark.xdist_group("wheel")


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command without the influence of the checkout, and return its stdout."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")
    }
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def environment_folders() -> list[str]:
    """Return the folders of this environment's packages."""
    return list(dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Programs in this test see only the environment's own folders, and no other entries of the path.
    for needed in ("build", "hatchling", "wgpu"):
        if PathFinder.find_spec(needed, environment_folders()) is None:
            pytest.skip(f"{needed}, which making and trying a wheel takes, is not in this environment")
    folder = tmp_path_factory.mktemp("wheel")
    # -P and another working directory keep Python from taking a folder build/ in the checkout for the
    # program.
    run(
        sys.executable, "-P", "-m", "build", "--wheel", "--no-isolation", "-o", folder, REPOSITORY, cwd=folder
    )
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel in a new environment; return its folder of programs."""
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", "venv", cwd=folder)
    programs = folder / "venv" / ("Scripts" if WINDOWS else "bin")
    python = programs / "python"
    run(python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", wheel, cwd=folder)
    # The dependencies come from this environment, so that the test needs no network. A .pth line only appends
    # a folder. Python does not read .pth files in that folder (an editable install of webnorm), and the wheel
    # comes first. The line comes after the install, or pip would find webnorm there and change that instead.
    own = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    )
    (own / "dependencies.pth").write_text("\n".join(environment_folders()) + "\n", encoding="utf-8")
    return programs


def test_wheel_holds_kernels_and_pages_and_nothing_foreign(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {"webnorm/wgsl/layer_norm/naive.wgsl", "webnorm/docs/kernel-file.md"} <= {*names}
    assert {name.split("/")[0].split("-")[0] for name in names} == {"webnorm"}
    for source in (REPOSITORY / "wgsl").rglob("*.wgsl"):
        assert f"webnorm/{source.relative_to(REPOSITORY).as_posix()}" in names
    for source in (REPOSITORY / "webnorm" / "web").rglob("*.*"):
        if source.suffix == ".pyc":
            continue
        assert source.relative_to(REPOSITORY).as_posix() in names


@pytest.mark.slow
def test_wheel_is_what_gets_imported(installed: Path) -> None:
    where = run(installed / "python", "-c", "import webnorm; print(webnorm.__file__)", cwd=installed.parent)
    assert Path(where.strip()).is_relative_to(installed.parent)


@pytest.mark.slow
def test_export_outside_the_repository(installed: Path, tmp_path: Path) -> None:
    run(installed / "webnorm", "export", "rms_norm", "--cols", "64", "--out", "rms", cwd=tmp_path)
    assert (tmp_path / "rms" / "runtime.js").is_file() and (tmp_path / "rms" / "verify.html").is_file()


@pytest.mark.slow
def test_bench_outside_the_repository(installed: Path, tmp_path: Path) -> None:
    if not adapters():
        pytest.skip("no WebGPU adapter: webnorm doctor --fix")
    arguments = ["--rows", "8", "--cols", "16", "--kernel", "naive", "--budget", "0.2", "--json", "-"]
    report = json.loads(run(installed / "webnorm", "bench", *arguments, cwd=tmp_path))
    assert report["schema"] == 1
    assert report["results"]
    assert {result["status"] for result in report["results"]} == {"pass"}
