"""An op is a folder: the lab works without the norms, and with ops that it does not know."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from patience import HANG_S
from webnorm.files.atomic import shipped
from webnorm.gpu.device import Device
from webnorm.op.registry import OPS, load_ops

DOUBLED = Path(__file__).with_name("doubled")
PACKAGE = Path(sys.modules["webnorm"].__file__ or "").parent


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return webnorm without the folder of the norms, but with the folder of another op."""
    root = tmp_path_factory.mktemp("tree")
    shutil.copytree(PACKAGE, root / "webnorm", ignore=shutil.ignore_patterns("__pycache__", "norms"))
    shutil.copytree(shipped("wgsl"), root / "wgsl")
    (root / "webnorm" / "ops" / "doubled").mkdir()
    shutil.copy(DOUBLED / "op.py", root / "webnorm" / "ops" / "doubled")
    (root / "wgsl" / "doubled").mkdir()
    shutil.copy(DOUBLED / "naive.wgsl", root / "wgsl" / "doubled")
    return root


def run(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "webnorm", *arguments],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tree), *sys.path])},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


def test_the_loader_finds_the_ops_of_every_folder() -> None:
    assert [op.name for op in load_ops("webnorm.ops")] == [*OPS]


def test_without_the_norms_the_lab_works_for_the_copy(tree: Path, device: Device) -> None:
    listed = run(tree, "list")
    assert listed.returncode == 0 and "copy" in listed.stdout and "layer_norm" not in listed.stdout
    checked = run(tree, "check", "--op", "copy")
    assert checked.returncode == 0 and "copy" in checked.stdout


def test_an_unknown_op_is_checked_and_timed(tree: Path, device: Device) -> None:
    checked = run(tree, "check", "--op", "doubled")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    done = run(tree, "bench", "--op", "doubled", "--quick", "--json", "out.json")
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tree / "out.json").read_text(encoding="utf-8"))["results"]
    assert {one["op"]: one["status"] for one in results} == {"copy": "pass", "doubled": "pass"}
    assert results[-1]["problem"]["pixels"] == 70


def test_a_mistake_in_such_an_op_fails(tree: Path, device: Device) -> None:
    kernel = tree / "wgsl" / "doubled" / "naive.wgsl"
    right = kernel.read_text(encoding="utf-8")
    kernel.write_text(right.replace("2.0 * x", "2.001 * x"), encoding="utf-8")
    try:
        done = run(tree, "check", "--op", "doubled")
    finally:
        kernel.write_text(right, encoding="utf-8")
    assert done.returncode == 1 and "off by" in done.stdout
