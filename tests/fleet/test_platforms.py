"""Several platforms in one cluster: each does all of it, and none is mixed with another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import BENCH, Fleet, results

from commands import webnorm
from webnorm.gpu.device import adapters

pytestmark = pytest.mark.xdist_group("fleet")


@pytest.fixture(scope="module")
def both(fleet: Fleet) -> Iterator[Fleet]:
    """A cluster of two adapters of this machine that differ in what drives them."""
    backends = dict.fromkeys(one.backend for one in adapters())
    if not {"Vulkan", "OpenGL"} <= backends.keys():
        pytest.skip("it takes Vulkan and OpenGL")
    joined = [fleet.adapter(backend) for backend in ("Vulkan", "OpenGL")]
    yield fleet
    for process in joined:
        fleet.end(process)


def test_two_platforms_give_two_files_that_are_not_compared(both: Fleet, tmp_path: Path) -> None:
    done = webnorm([*BENCH, "--cols", "64", "--cluster", both.address, "--json", "out.json"], tmp_path)
    assert done.returncode == 0, done.stderr
    files = sorted(tmp_path.glob("out-*.json"))
    assert len(files) == 2 and not (tmp_path / "out.json").exists()
    reports = [json.loads(path.read_text()) for path in files]
    assert {report["device"]["backend"] for report in reports} == {"Vulkan", "OpenGL"}
    assert reports[0]["run"] != reports[1]["run"]
    for path in files:
        assert [one["status"] for one in results(path) if one["op"] != "copy"] == ["pass"]
    names = [path.name for path in files]
    refused = webnorm(["compare", *names], tmp_path)
    assert refused.returncode == 2 and "--any-device" in refused.stderr
    assert webnorm(["compare", *names, "--any-device"], tmp_path).returncode == 0


def test_what_is_of_one_platform_is_refused_for_several(both: Fleet, tmp_path: Path) -> None:
    command = [*BENCH, "--cols", "64", "--cluster", both.address]
    for words, told in ((["--json", "-"], "--json is -"), (["--save", "both"], "--save and --baseline")):
        done = webnorm([*command, *words], tmp_path)
        assert done.returncode == 2 and done.stderr.startswith(f"webnorm: {told}"), done.stderr
        assert done.stderr.endswith(": choose one by --adapter\n")


def test_one_platform_is_chosen_by_its_name(both: Fleet, tmp_path: Path) -> None:
    done = webnorm(["fleet", "--cluster", both.address, "--adapter", "opengl", "--json", "-"], tmp_path)
    assert done.returncode == 0, done.stderr
    (one,) = json.loads(done.stdout)["workers"]
    assert one["device"]["backend"] == "OpenGL" and one["copy_gbps"] > 0
    refused = webnorm(["fleet", "--cluster", both.address, "--adapter", "gefunden"], tmp_path)
    assert refused.returncode == 2 and "no worker has an adapter 'gefunden'" in refused.stderr
