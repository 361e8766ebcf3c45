"""User ops on a cluster whose workers do not have the user's folders."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from clusters import results

import commands
import webnorm
from webnorm.fleet.shipped_files import ShippedFiles
from webnorm.fleet.shipped_ops import parcels
from webnorm.op.op import Task
from webnorm.op.registry import load_op, unregister

GALLERY = Path(webnorm.__file__).parents[1] / "examples" / "ops"
# The program of a worker. It opens the parcel, finds the op's kernels and returns a problem.
WORKER = """
import pickle, sys
from pathlib import Path
from webnorm.kernels.headers.library import discover
parcel = pickle.loads(Path(sys.argv[1]).read_bytes())
task, carried = parcel.opened()
with carried.unpacked() as here:
    named = here.restored_text(str(here.names))
kernels = [kernel.name for kernel in discover() if kernel.op is task.op]
Path(sys.argv[2]).write_bytes(pickle.dumps((task.problem, kernels, named)))
"""


@pytest.fixture
def swiglu(tmp_path: Path) -> Path:
    folder = tmp_path / "home" / "shipped_swiglu"
    shutil.copytree(GALLERY / "swiglu", folder)
    return folder


def test_an_op_is_loaded_without_its_folder(swiglu: Path, tmp_path: Path) -> None:
    op = load_op(swiglu)
    problem = op.problem(3, 5)
    carried = ShippedFiles.of([str(swiglu / "naive.wgsl")])
    (tmp_path / "parcel").write_bytes(pickle.dumps(parcels([(Task(op, problem), carried)])[0]))
    away = swiglu.rename(tmp_path / "away")
    command = [sys.executable, "-c", WORKER, "parcel", "answer"]
    subprocess.run(command, cwd=tmp_path, check=True)
    away.rename(swiglu)
    found, kernels, named = pickle.loads((tmp_path / "answer").read_bytes())
    assert (type(found), found) == (type(problem), problem)
    assert "naive" in kernels and len(kernels) > 1
    assert named == str([str(swiglu / "naive.wgsl")])
    unregister(op.name)


@pytest.mark.slow
@pytest.mark.xdist_group("fleet")
@pytest.mark.parametrize("kernels", [[], ["--kernel", "shipped_swiglu/naive.wgsl"]], ids=["all", "a file"])
def test_a_check_has_the_same_results_without_a_cluster(kernels: list[str], swiglu: Path) -> None:
    command = ["check", "--op", "./shipped_swiglu", *kernels, "--case", "*rows-61,*cols-257", "--seed", "5"]
    found = []
    for name, more in (("alone", []), ("spread", ["--cluster", "local"])):
        done = commands.webnorm([*command, "--json", f"{name}.json", *more], swiglu.parent)
        assert done.returncode == 0, done.stderr
        found.append(results(swiglu.parent / f"{name}.json"))
    keys = ("kernel", "case", "status", "max_rel_error")
    compared = [[{key: one[key] for key in keys} for one in report] for report in found]
    assert compared[0] == compared[1]
    assert len({(one["kernel"], one["case"]) for one in compared[0]}) == (2 if kernels else 4)
