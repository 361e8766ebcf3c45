from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from webnorm.errors import WebnormError
from webnorm.system import CHROMIUM, DRIVER, INSTALL, Mend, adapter_mend, browser_mend, run_mend


def finder(*present: str) -> Callable[[str], str | None]:
    return lambda name: f"/usr/bin/{name}" if name in present else None


def linux_mend(*programs: str, root: bool = True, nvidia_device: bool = False, loader: bool = False) -> Mend:
    mend = adapter_mend(
        False,
        "linux",
        which=finder(*programs),
        exists=lambda path: nvidia_device and path == "/dev/nvidia0",
        find_library=lambda name: "libvulkan.so.1" if loader and name == "vulkan" else None,
        root=root,
    )
    assert mend is not None
    return mend


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_nothing_to_mend_with_an_adapter(platform: str) -> None:
    assert adapter_mend(True, platform) is None


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_nothing_is_installed_on_macos_and_windows(platform: str) -> None:
    mend = adapter_mend(False, platform, which=finder("apt-get", "sudo"))
    assert mend is not None
    assert mend.commands == ()
    assert mend.missing.startswith("No WebGPU adapter")


def test_debian_as_root() -> None:
    assert linux_mend("apt-get", "sudo").commands == (
        ("apt-get", "update"),
        ("apt-get", "install", "-y", "mesa-vulkan-drivers", "libvulkan1"),
    )


@pytest.mark.parametrize("manager", INSTALL)
def test_every_command_goes_through_sudo_for_a_user(manager: str) -> None:
    browser = browser_mend(False, "linux", which=finder(manager, "sudo"), root=False)
    for mend, packages in ((linux_mend(manager, "sudo", root=False), DRIVER), (browser, CHROMIUM)):
        assert mend is not None
        assert all(command[:2] == ("sudo", manager) for command in mend.commands)
        assert mend.commands[-1][-len(packages[manager]) :] == packages[manager]
        assert not mend.needs_root


def test_nothing_to_mend_with_a_browser() -> None:
    assert browser_mend(True) is None


def test_chromium_on_debian_as_root() -> None:
    mend = browser_mend(False, "linux", which=finder("apt-get"), root=True)
    assert mend is not None
    assert mend.commands == (("apt-get", "update"), ("apt-get", "install", "-y", "chromium"))
    assert mend.missing == "No browser: neither Chromium nor Chrome nor Edge is installed."


def test_a_browser_is_the_users_affair_on_macos_and_windows() -> None:
    for platform, hint in (("darwin", "brew install"), ("win32", "Install one of them")):
        mend = browser_mend(False, platform, which=finder("apt-get", "sudo"))
        assert mend is not None
        assert mend.commands == () and hint in mend.missing


def test_without_sudo_the_commands_are_told_and_not_run() -> None:
    mend = linux_mend("dnf", root=False)
    assert mend.missing.endswith("Run as root: dnf install -y mesa-vulkan-drivers vulkan-loader")
    said: list[str] = []
    with pytest.raises(WebnormError, match="Run as root"):
        run_mend(mend, said.append)
    assert said == []


def test_unknown_package_manager() -> None:
    mend = linux_mend("sudo")
    assert mend.commands == ()
    assert "lavapipe" in mend.missing


@pytest.mark.parametrize(
    ("mend", "said"),
    [
        (linux_mend("apt-get", nvidia_device=True), "NVIDIA driver is here, but the Vulkan loader"),
        (linux_mend("apt-get", "nvidia-smi"), "NVIDIA driver is here, but the Vulkan loader"),
        (linux_mend("apt-get", "nvidia-smi", loader=True), "its Vulkan part does not work"),
        (linux_mend("apt-get"), "loader (libvulkan.so.1) is not installed"),
        (linux_mend("apt-get", loader=True), "no Vulkan driver"),
    ],
)
def test_the_missing_part_is_named(mend: Mend, said: str) -> None:
    assert said in mend.missing
    assert "\n" not in mend.missing


def test_run_prints_each_command_before_running_it(capfd: pytest.CaptureFixture[str]) -> None:
    def command(text: str) -> tuple[str, ...]:
        return (sys.executable, "-c", f"print({text!r})")

    run_mend(Mend("all", (command("one"), command("two"))), lambda line: print(line, flush=True))
    printed = capfd.readouterr().out.splitlines()
    assert [line in ("one", "two") for line in printed] == [False, True, False, True]


def test_run_stops_at_the_first_failure() -> None:
    fails = (sys.executable, "-c", "raise SystemExit(3)")
    said: list[str] = []
    with pytest.raises(WebnormError, match="failed with exit status 3") as raised:
        run_mend(Mend("all", (fails, fails)), said.append)
    assert len(said) == 1
    assert "\n" not in str(raised.value)


def test_run_of_a_missing_program() -> None:
    with pytest.raises(WebnormError, match="could not be started"):
        run_mend(Mend("all", (("webnorm-no-such-program",),)), lambda line: None)


def test_run_without_commands_says_what_is_missing() -> None:
    with pytest.raises(WebnormError, match="nothing to install"):
        run_mend(Mend("nothing to install"), lambda line: None)
