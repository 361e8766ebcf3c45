"""`webnorm doctor` tells what is missing, mends what it may, and stops only at what nothing works without."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from webnorm import system
from webnorm.cli import doctor as verb
from webnorm.cli.app import run as run_command
from webnorm.cli.running import BAD_USAGE, OK
from webnorm.gpu.device import ADAPTER_VARIABLE, Device, adapters
from webnorm.system import Mend
from webnorm.web import browser, tint

pytestmark = pytest.mark.opengl

BETTER = Mend("A better driver is missing.", ((sys.executable, "-c", "print('installed')"),), optional=True)
FAILING = replace(BETTER, commands=((sys.executable, "-c", "raise SystemExit(3)"),))


@dataclass(frozen=True)
class Said:
    status: int | str | None
    out: str
    error: str


@pytest.fixture
def doctor(
    device: Device, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    """Run the command in this process, on a system that lacks what it is given."""
    monkeypatch.delenv(ADAPTER_VARIABLE, raising=False)
    monkeypatch.setattr(verb, "_look_again", lambda: print("looked again"))

    def run(*arguments: str, driver: Mend | None = None, others: tuple[Mend, ...] = ()) -> Said:
        monkeypatch.setattr(system, "adapter_mend", lambda preferred: driver)
        monkeypatch.setattr(tint, "mend", lambda: None)
        monkeypatch.setattr(browser, "mends", lambda: list(others))
        monkeypatch.setattr(sys, "argv", ["webnorm", "doctor", *arguments])
        with pytest.raises(SystemExit) as exited:
            run_command()
        return Said(exited.value.code, *capfd.readouterr())

    return run


def test_what_could_be_better_is_told_beside_the_adapters(doctor: Callable[..., Said]) -> None:
    said = doctor(driver=BETTER)
    assert said.status == OK
    first, command, hint, *rest = said.out.splitlines()
    assert first == BETTER.missing and command.split()[0] == sys.executable and "--mend" in hint
    assert any(line.startswith("used") for line in rest)


def test_a_better_driver_is_installed_and_looked_for(doctor: Callable[..., Said]) -> None:
    said = doctor("--mend", driver=BETTER)
    assert said.status == OK
    sentence, command, *output, last = said.out.splitlines()
    assert (sentence, output, last) == (BETTER.missing, ["installed"], "looked again")
    assert command.startswith("+ ")


@pytest.mark.parametrize(
    ("driver", "reason"),
    [
        (FAILING, "failed with exit status 3; its own message is above."),
        (replace(BETTER, missing="Run as root: x", needs_root=True), "Run as root: x"),
        (Mend("Nothing to install.", optional=True), "Nothing to install."),
    ],
)
def test_without_the_better_driver_it_goes_on(doctor: Callable[..., Said], driver: Mend, reason: str) -> None:
    said = doctor("--mend", driver=driver)
    assert (said.status, said.error) == (OK, "")
    *_, told, last = said.out.splitlines()
    assert told.endswith(reason)
    assert last == f"going on with {adapters()[0]}"
    assert said.out.count(driver.missing) == 1


def test_what_is_needed_and_cannot_be_installed_is_a_mistake(doctor: Callable[..., Said]) -> None:
    said = doctor("--mend", "--browser", others=(replace(FAILING, optional=False),))
    assert said.status == BAD_USAGE
    assert said.error.startswith("webnorm: `") and said.error.count("\n") == 1
    assert doctor("--browser", others=(replace(BETTER, optional=False),)).status == BAD_USAGE


def test_one_that_fails_does_not_keep_the_others_from_being_installed(doctor: Callable[..., Said]) -> None:
    needed = replace(BETTER, optional=False)
    said = doctor(
        "--mend", "--browser", others=(Mend("No commands."), replace(FAILING, optional=False), needed)
    )
    assert said.status == BAD_USAGE
    assert "installed" in said.out.splitlines()
    assert "No commands. `" in said.error


def test_who_chose_an_adapter_is_content_with_it(
    doctor: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert doctor("--mend", "--adapter", "0", driver=BETTER).out == f"adapter: {adapters()[0]}\n"
    last = adapters()[-1]
    monkeypatch.setenv(ADAPTER_VARIABLE, str(last.index))
    assert doctor("--mend", driver=BETTER).out == f"adapter: {last}\n"
