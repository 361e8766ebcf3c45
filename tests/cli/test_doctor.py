"""`webnorm doctor` reports missing parts and installs them. It fails only without a required part."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from commands import heeding_interrupts
from patience import HANG_S
from webnorm import system
from webnorm.cli.app import run as run_command
from webnorm.cli.verbs import doctor as verb
from webnorm.cli.work.jobs import BAD_USAGE, OK, WRONG
from webnorm.engines import node_webgpu
from webnorm.gpu.device import ADAPTER_VARIABLE, Device, adapters, open_device
from webnorm.kernels.headers.traits import LANGUAGE_FEATURES
from webnorm.system import Fix
from webnorm.web.browser import launch

pytestmark = pytest.mark.opengl

BETTER = Fix("A better driver is missing.", ((sys.executable, "-c", "print('installed')"),), optional=True)
FAILING = replace(BETTER, commands=((sys.executable, "-c", "raise SystemExit(3)"),))


@dataclass(frozen=True)
class Said:
    status: int | str | None
    out: str
    error: str
    looks: int
    """How often the command looked for the missing parts of `verify`."""


@pytest.fixture
def doctor(
    device: Device, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    """Return a function that runs the command in this process, with the given parts missing."""
    monkeypatch.delenv(ADAPTER_VARIABLE, raising=False)
    monkeypatch.setattr(verb, "_look_again", lambda: print("looked again"))

    def run(*arguments: str, driver: Fix | None = None, others: tuple[Fix, ...] = ()) -> Said:
        looks = 0

        def browser_fixes() -> list[Fix]:
            nonlocal looks
            looks += 1
            return list(others)

        monkeypatch.setattr(system, "adapter_fix", lambda preferred: driver)
        monkeypatch.setattr(node_webgpu, "tint_fix", lambda: None)
        monkeypatch.setattr(launch, "browser_fixes", browser_fixes)
        monkeypatch.setattr(sys, "argv", ["webnorm", "doctor", *arguments])
        with heeding_interrupts(), pytest.raises(SystemExit) as exited:
            run_command()
        return Said(exited.value.code, *capfd.readouterr(), looks)

    return run


@pytest.fixture(scope="module")
def first(device: Device) -> Device:
    """The device that the command opens by default, which may differ from the tests' own device."""
    return open_device(adapters()[0])


def test_a_better_driver_is_suggested_above_the_adapters(doctor: Callable[..., Said]) -> None:
    said = doctor(driver=BETTER)
    assert said.status == OK
    first, command, hint, *rest = said.out.splitlines()
    assert first == BETTER.missing and command.split()[0] == sys.executable and "--fix" in hint
    assert f"0 (used): {adapters()[0].name}" in rest


def test_a_better_driver_is_installed_and_looked_for(doctor: Callable[..., Said]) -> None:
    said = doctor("--fix", driver=BETTER)
    assert said.status == OK
    sentence, command, *output, last = said.out.splitlines()
    assert (sentence, output, last) == (BETTER.missing, ["installed"], "looked again")
    assert command.startswith("+ ")


@pytest.mark.parametrize(
    ("driver", "reason"),
    [
        (FAILING, "failed with exit status 3; see its own message above."),
        (replace(BETTER, missing="Run as root: x", needs_root=True), "Run as root: x"),
        (Fix("Nothing to install.", optional=True), "Nothing to install."),
    ],
)
def test_doctor_continues_without_the_better_driver(
    doctor: Callable[..., Said], driver: Fix, reason: str
) -> None:
    said = doctor("--fix", driver=driver)
    assert (said.status, said.error) == (OK, "")
    *_, reported, last = said.out.splitlines()
    assert reported.endswith(reason)
    assert last == f"continuing with {adapters()[0]}"
    assert said.out.count(driver.missing) == 1


def test_a_required_part_that_cannot_be_installed_is_an_error(doctor: Callable[..., Said]) -> None:
    said = doctor("--fix", "--browser", others=(replace(FAILING, optional=False),))
    assert said.status == BAD_USAGE
    assert said.error.startswith("webnorm: `") and said.error.count("\n") == 1
    assert doctor("--browser", others=(replace(BETTER, optional=False),)).status == WRONG


def test_one_failed_installation_does_not_stop_the_others(doctor: Callable[..., Said]) -> None:
    needed = replace(BETTER, optional=False)
    said = doctor(
        "--fix", "--browser", others=(Fix("No commands."), replace(FAILING, optional=False), needed)
    )
    assert said.status == BAD_USAGE
    assert "installed" in said.out.splitlines()
    assert "No commands. `" in said.error


def test_a_chosen_adapter_needs_no_better_driver(
    doctor: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert doctor("--fix", "--adapter", "0", driver=BETTER).out == f"adapter: {adapters()[0]}\n"
    last = adapters()[-1]
    monkeypatch.setenv(ADAPTER_VARIABLE, str(last.index))
    assert doctor("--fix", driver=BETTER).out == f"adapter: {last}\n"


def test_the_last_line_lists_what_works(doctor: Callable[..., Said], first: Device) -> None:
    last = doctor().out.splitlines()[-1]
    assert last.startswith("works here: check, bench, tune, play")
    assert ("with subgroups" in last) == ("subgroups" in first.traits.features)
    assert ("software times" in last) == first.traits.software and "doctor --browser" in last
    assert doctor("--browser").out.splitlines()[-1].endswith("; verify has a browser and Tint")
    lacking = doctor("--browser", others=(replace(FAILING, optional=False),))
    assert lacking.status == WRONG
    assert lacking.out.splitlines()[-1].endswith("; verify needs the missing tools named above")


def test_the_parts_of_verify_are_looked_for_once(doctor: Callable[..., Said]) -> None:
    needed = (replace(BETTER, optional=False),)
    assert doctor().looks == 0
    assert doctor("--browser", others=needed).looks == 1
    assert doctor("--json", "--browser", others=needed).looks == 1
    # Once to install what is missing, and once to check that it is there.
    assert doctor("--fix", "--browser").looks == 2


def test_every_adapter_has_its_index(doctor: Callable[..., Said]) -> None:
    last = adapters()[-1]
    lines = doctor("--adapter", str(last.index)).out.splitlines()
    for one in adapters():
        assert f"{one.index}{' (used)' if one.index == last.index else ''}: {one.name}" in lines


def test_the_language_features_of_the_device(doctor: Callable[..., Said], first: Device) -> None:
    features = sorted(first.traits.features & {*LANGUAGE_FEATURES})
    assert f"WGSL features: {', '.join(features) or 'none'}" in doctor().out.splitlines()
    assert json.loads(doctor("--json").out)["device"]["language_features"] == features


def test_json(doctor: Callable[..., Said], first: Device) -> None:
    said = doctor("--json", driver=BETTER)
    assert (said.status, said.error) == (OK, "")
    found = json.loads(said.out)
    assert [one["index"] for one in found["adapters"]] == [one.index for one in adapters()]
    for one, info in zip(found["adapters"], adapters(), strict=True):
        assert (one["name"], one["backend"], one["driver"]) == (info.name, info.backend, info.driver)
        assert one["features"] == sorted(info.features) and one["limits"] == info.limits
    assert found["used"] == 0
    assert found["device"].get("subgroup_size") == (first.subgroup_size or None)
    assert found["missing"][0]["missing"] == BETTER.missing and found["missing"][0]["optional"] is True
    assert found["works"] == {
        "kernels": True,
        "subgroups": "subgroups" in first.traits.features,
        "timestamps": first.timestamps,
        "gpu": not first.traits.software,
        "verify": None,
    }
    assert doctor("--json", "--browser", others=(replace(BETTER, optional=False),)).status == WRONG
    refused = doctor("--json", "--fix")
    assert refused.status == BAD_USAGE and refused.error.startswith(
        "webnorm: --json and --fix cannot be combined"
    )


# The command runs in a process without wgpu. A driver kills the process after the adapters are listed.
CRASH = """
import os, signal
from webnorm.cli.verbs import doctor
from webnorm.cli.app import run
from webnorm.errors import WebnormError
def look(choice, open_it):
    card = doctor.SeenAdapter(0, "a card", "its maker", "its driver", "Vulkan", "DiscreteGPU", (), {})
    yield doctor.AdapterList((card,), card, True)
    END
doctor._look_for_adapters = look
run()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks are made on Linux alone")
@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "the process crashed with SIGSEGV"),
        ("os._exit(3)", "the process ended with exit status 3"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise WebnormError('no such luck')", "no such luck"),
    ],
)
def test_a_driver_that_crashes_costs_a_line(end: str, said: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRASH.replace("END", end), "doctor"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == BAD_USAGE and done.stdout.startswith("0 (used): a card\n")
    assert done.stderr.startswith("webnorm: ") and said in done.stderr and done.stderr.count("\n") == 1
