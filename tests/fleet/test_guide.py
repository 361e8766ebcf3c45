"""The commands of docs/cluster.md run with another scheduler port. The cluster has two platforms."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from clusters import BENCH, Fleet, results

from commands import webnorm
from pages import ROOT, commands, missing_lines
from webnorm.cli.work.jobs import INCONCLUSIVE, OK
from webnorm.errors import WebnormError
from webnorm.gpu.device import adapters, open_device

pytestmark = pytest.mark.xdist_group("fleet")


@pytest.mark.slow
def test_the_commands_of_the_guide_run_with_two_workers(fleet: Fleet, tmp_path: Path) -> None:
    _check_platforms("Vulkan", "OpenGL")
    local, started, *others = commands(ROOT / "docs" / "cluster.md")
    # Other tests cover the first command.
    assert local.line.endswith(" --cluster local:2")
    assert started.line == "dask scheduler --host 127.0.0.1 --port 8786"
    verbs = []
    for command in others:
        line = command.line.replace("tcp://127.0.0.1:8786", fleet.address)
        _, *words = shlex.split(line)
        if words[:2] == ["cluster", "worker"]:
            fleet.adapter(words[-1])
            continue
        verbs.append(words[0])
        done = webnorm(words, tmp_path)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        assert missing_lines(command.output, done.stdout + done.stderr) == [], done.stdout + done.stderr
        if words[0] == "cluster":
            assert (
                len(done.stdout.splitlines()) == 3 and " Vulkan " in done.stdout and " OpenGL " in done.stdout
            )
    assert verbs == ["cluster", "check", "bench", "tune"]
    _two_files_that_are_not_compared(tmp_path)
    _refused_for_several(fleet, tmp_path)


def _check_platforms(*backends: str) -> None:
    """Skip the test if an adapter cannot be opened, because drivers may list such adapters."""
    for backend in backends:
        found = [one for one in adapters() if one.backend == backend]
        if not found:
            pytest.skip(f"the guide has a worker for {backend}, and there is no such adapter")
        try:
            open_device(found[0])
        except WebnormError as error:
            pytest.skip(f"the guide has a worker for {backend}: {error}")


def _two_files_that_are_not_compared(folder: Path) -> None:
    files = sorted(folder.glob("times*.json"))
    assert len(files) == 2 and not (folder / "times.json").exists()
    reports = [json.loads(path.read_text()) for path in files]
    assert {report["device"]["backend"] for report in reports} == {"Vulkan", "OpenGL"}
    assert reports[0]["run"] != reports[1]["run"]
    for path in files:
        assert [one["status"] for one in results(path) if one["op"] != "copy"] == ["pass"]
    names = [path.name for path in files]
    refused = webnorm(["compare", *names], folder)
    assert refused.returncode == 2 and "--any-device" in refused.stderr
    # So few samples do not distinguish two adapters.
    assert webnorm(["compare", *names, "--any-device"], folder).returncode in (OK, INCONCLUSIVE)


def _refused_for_several(fleet: Fleet, folder: Path) -> None:
    command = [*BENCH, "--cols", "64", "--cluster", fleet.address]
    for words, message in (
        (["--json", "-"], "--json is -, but there are several platforms; choose one with --adapter"),
        (
            ["--save", "both"],
            "--save and --baseline need one platform, but there are several; choose one with",
        ),
        (["--adapter", "none such"], "no worker has an adapter 'none such'; available: "),
    ):
        done = webnorm([*command, *words], folder)
        assert done.returncode == 2 and done.stderr.startswith(f"webnorm: {message}"), done.stderr
        assert done.stderr.count("\n") == 1
