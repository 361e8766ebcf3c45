"""An op is a folder: the lab works without the norms, and with ops that it does not know."""

import importlib
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from patience import HANG_S
from webnorm.files.atomic import shipped
from webnorm.gpu.device import Device
from webnorm.op.built_op import BuiltOp
from webnorm.op.op import OpSource
from webnorm.op.packaged_ops import PackagedOps
from webnorm.op.registry import OPS

DOUBLED = Path(__file__).with_name("doubled")
PACKAGE = Path(sys.modules["webnorm"].__file__ or "").parent


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return webnorm without its ops, except the copy, but with the folder of another op."""
    root = tmp_path_factory.mktemp("tree")
    others = [one.name for one in (PACKAGE / "ops").iterdir() if one.is_dir() and one.name != "copy"]
    shutil.copytree(PACKAGE, root / "webnorm", ignore=shutil.ignore_patterns("__pycache__", *others))
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


def test_packaged_ops_stay_the_same_in_other_processes() -> None:
    op = OPS["group_norm"]
    problem = op.problem(2, 8, 4, 2)
    assert pickle.loads(pickle.dumps(op)) is op
    assert pickle.loads(pickle.dumps(problem)) == problem


@pytest.mark.parametrize("name", [op.name for op in OPS.values() if op.source is not None])
def test_a_packaged_op_is_built_like_one_of_a_user(name: str, tmp_path: Path) -> None:
    own = OPS[name].source
    assert own is not None and own.packaged
    definition = importlib.import_module(f"webnorm.ops.{name}.op").op
    built = BuiltOp(definition, name, Path(own.folder)).build(OpSource(own.folder, name, "digest"))
    assert built.problem_type.BATCH == OPS[name].problem_type.BATCH
    assert built.tensors == OPS[name].tensors


def test_the_loader_finds_the_ops_of_every_folder() -> None:
    ops = PackagedOps("webnorm.ops")
    folders = sorted(one.parent.name for one in (PACKAGE / "ops").glob("*/op.py"))
    defined = [name for name in folders if name not in ("copy", "norms")]
    assert [*ops] == [op.name for op in ops.values()] == [*(op.name for op in ops.listed), *defined]
    assert [*ops] == [*OPS]


def test_an_op_of_define_op_is_imported_when_it_is_asked_for() -> None:
    probe = (
        "import sys; from webnorm.op.registry import OPS, computing_ops\n"
        "assert 'softmax' in OPS and 'softmax' in computing_ops() and 'sotfmax' not in OPS\n"
        "print(*(name for name in OPS if f'webnorm.ops.{name}.op' in sys.modules))\n"
        "OPS['softmax']\n"
        "print(*(name for name in OPS if f'webnorm.ops.{name}.op' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["copy", "copy", "softmax"]


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
