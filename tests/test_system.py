from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from webnorm.errors import WebnormError
from webnorm.system import (
    CHROMIUM,
    DRIVER,
    INSTALL,
    Fix,
    Unavailable,
    adapter_fix,
    browser_fix,
    library,
    run_fix,
)


def finder(*present: str) -> Callable[[str], str | None]:
    return lambda name: f"/usr/bin/{name}" if name in present else None


@dataclass(frozen=True)
class Seen:
    """An adapter as wgpu reports it."""

    name: str
    backend: str
    type: str


SOFTWARE_GL = Seen("llvmpipe", "OpenGL", "CPU")


def system_fix(
    preferred: Seen | None,
    *programs: str,
    platform: str = "linux",
    root: bool = True,
    nvidia_device: bool = False,
    loader: bool = False,
    drivers: tuple[str, ...] = (),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Fix | None:
    return adapter_fix(
        preferred,
        platform,
        which=finder(*programs),
        exists=lambda path: nvidia_device and path == "/dev/nvidia0",
        find_library=lambda name: "libvulkan.so.1" if loader and name == "vulkan" else None,
        software_drivers=lambda: drivers,
        environment=environment,
        root=root,
    )


def linux_fix(*programs: str, preferred: Seen | None = None, **system: Any) -> Fix:
    fix = system_fix(preferred, *programs, **system)
    assert fix is not None
    return fix


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
@pytest.mark.parametrize(
    "preferred",
    [
        Seen("NVIDIA H200", "Vulkan", "DiscreteGPU"),
        Seen("llvmpipe", "Vulkan", "CPU"),
        Seen("Apple M2", "Metal", "IntegratedGPU"),
        Seen("Microsoft Basic Render Driver", "D3D12", "CPU"),
    ],
    ids=str,
)
def test_nothing_to_fix_with_an_adapter(preferred: Seen, platform: str) -> None:
    assert system_fix(preferred, "apt-get", platform=platform) is None


def test_software_through_opengl_is_not_what_vulkan_gives() -> None:
    """The machine is a Debian with Mesa's OpenGL driver and without its Vulkan driver."""
    fix = linux_fix("apt-get", preferred=SOFTWARE_GL)
    assert fix.missing == (
        "No subgroups: the only adapter is software through OpenGL: the Vulkan loader (libvulkan.so.1) is "
        "not installed."
    )
    assert fix.commands == linux_fix("apt-get").commands
    assert fix.runs and fix.optional


def test_without_an_adapter_nothing_works() -> None:
    assert not linux_fix("apt-get").optional


@pytest.mark.parametrize("backend", ["OpenGL", "OpenGLES"])
def test_a_gpu_through_opengl_is_left_alone(backend: str) -> None:
    fix = linux_fix("apt-get", preferred=Seen("NVIDIA T4", backend, "DiscreteGPU"), nvidia_device=True)
    assert fix.missing == (
        "NVIDIA T4 through OpenGL has no subgroups: its vendor's Vulkan driver is missing."
    )
    assert fix.optional and not fix.commands


@pytest.mark.parametrize("preferred", [SOFTWARE_GL, None])
@pytest.mark.parametrize(
    ("system", "why"),
    [
        (
            {"environment": {"VK_DRIVER_FILES": "/none"}},
            "VK_DRIVER_FILES names Vulkan drivers that do not work",
        ),
        ({"environment": {"VK_ICD_FILENAMES": "/none"}}, "VK_ICD_FILENAMES names Vulkan drivers"),
        (
            {"loader": True, "drivers": ("/usr/share/vulkan/icd.d/lvp_icd.x86_64.json",)},
            "Mesa's Vulkan driver is installed, but does not work",
        ),
    ],
)
def test_installed_packages_are_not_installed_again(
    preferred: Seen | None, system: dict[str, Any], why: str
) -> None:
    fix = linux_fix("apt-get", preferred=preferred, **system)
    assert why in fix.missing and not fix.commands


@pytest.mark.parametrize(
    "missing", [{"loader": True}, {"drivers": ("/etc/vulkan/icd.d/lvp_icd.x86_64.json",)}]
)
def test_a_loader_needs_a_driver_and_a_driver_a_loader(missing: dict[str, Any]) -> None:
    assert linux_fix("apt-get", preferred=SOFTWARE_GL, **missing).runs


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_nothing_is_installed_on_macos_and_windows(platform: str) -> None:
    fix = linux_fix("apt-get", "sudo", platform=platform)
    assert fix.commands == ()
    assert fix.missing.startswith("No WebGPU adapter")
    assert system_fix(SOFTWARE_GL, "apt-get", "sudo", platform=platform) is None


def test_debian_as_root() -> None:
    assert linux_fix("apt-get", "sudo").commands == (
        ("apt-get", "update"),
        ("apt-get", "install", "-y", "mesa-vulkan-drivers", "libvulkan1"),
    )


@pytest.mark.parametrize("manager", INSTALL)
def test_every_command_goes_through_sudo_for_a_user(manager: str) -> None:
    browser = browser_fix(False, "linux", which=finder(manager, "sudo"), root=False)
    for fix, packages in ((linux_fix(manager, "sudo", root=False), DRIVER), (browser, CHROMIUM)):
        assert fix is not None
        assert all(command[:2] == ("sudo", manager) for command in fix.commands)
        assert fix.commands[-1][-len(packages[manager]) :] == packages[manager]
        assert not fix.needs_root


def test_nothing_to_fix_with_a_browser() -> None:
    assert browser_fix(True) is None


def test_chromium_on_debian_as_root() -> None:
    fix = browser_fix(False, "linux", which=finder("apt-get"), root=True)
    assert fix is not None
    assert fix.commands == (("apt-get", "update"), ("apt-get", "install", "-y", "chromium"))
    assert fix.missing == "No browser: neither Chromium nor Chrome nor Edge is installed."


def test_a_browser_is_the_users_affair_on_macos_and_windows() -> None:
    for platform, hint in (("darwin", "brew install"), ("win32", "Install one of them")):
        fix = browser_fix(False, platform, which=finder("apt-get", "sudo"))
        assert fix is not None
        assert fix.commands == () and hint in fix.missing


@pytest.mark.parametrize("preferred", [SOFTWARE_GL, None])
def test_without_sudo_the_commands_are_shown_and_not_run(preferred: Seen | None) -> None:
    fix = linux_fix("dnf", preferred=preferred, root=False)
    assert not fix.runs
    assert fix.missing.endswith("Run as root: dnf install -y mesa-vulkan-drivers vulkan-loader")
    said: list[str] = []
    with pytest.raises(WebnormError, match="Run as root"):
        run_fix(fix, said.append)
    assert said == []


def test_unknown_package_manager() -> None:
    fix = linux_fix("sudo")
    assert fix.commands == ()
    assert "lavapipe" in fix.missing


@pytest.mark.parametrize(
    ("fix", "said"),
    [
        (linux_fix("apt-get", nvidia_device=True), "NVIDIA driver is installed, but the Vulkan loader"),
        (linux_fix("apt-get", "nvidia-smi"), "NVIDIA driver is installed, but the Vulkan loader"),
        (linux_fix("apt-get", "nvidia-smi", loader=True), "its Vulkan part does not work"),
        (linux_fix("apt-get"), "loader (libvulkan.so.1) is not installed"),
        (linux_fix("apt-get", loader=True), "no Vulkan driver"),
    ],
)
def test_the_missing_part_is_named(fix: Fix, said: str) -> None:
    assert said in fix.missing
    assert "\n" not in fix.missing


def test_run_prints_each_command_before_running_it(capfd: pytest.CaptureFixture[str]) -> None:
    def command(text: str) -> tuple[str, ...]:
        return (sys.executable, "-c", f"print({text!r})")

    run_fix(Fix("all", (command("one"), command("two"))), lambda line: print(line, flush=True))
    printed = capfd.readouterr().out.splitlines()
    assert [line in ("one", "two") for line in printed] == [False, True, False, True]


def test_run_stops_at_the_first_failure() -> None:
    fails = (sys.executable, "-c", "raise SystemExit(3)")
    said: list[str] = []
    with pytest.raises(WebnormError, match="failed with exit status 3") as raised:
        run_fix(Fix("all", (fails, fails)), said.append)
    assert len(said) == 1
    assert "\n" not in str(raised.value)


def test_run_of_a_missing_program() -> None:
    with pytest.raises(WebnormError, match="could not be started"):
        run_fix(Fix("all", (("webnorm-no-such-program",),)), lambda line: None)


def test_run_without_commands_says_what_is_missing() -> None:
    with pytest.raises(WebnormError, match="nothing to install"):
        run_fix(Fix("nothing to install"), lambda line: None)


@pytest.mark.parametrize(
    ("code", "said"),
    (
        ("raise ModuleNotFoundError(name='odd_library')", "is not installed"),
        ("import another_that_is_gone", "ModuleNotFoundError: No module named"),
        ("raise AttributeError('two\\nlines')", "AttributeError: two lines"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("class Panic(BaseException): ...\nraise Panic('in Rust')", "Panic: in Rust"),
        ("raise OSError(13, 'Permission denied')", r"PermissionError: \[Errno 13\] Permission denied"),
        ("1 +", "SyntaxError: "),
        ("nothing = 0", "ImportError: it has no wanted"),
    ),
)
def test_an_optional_library_fails_in_one_line(
    code: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd_library.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "odd_library", raising=False)
    with pytest.raises(Unavailable, match=f"^a test needs odd_library, .*{said}.* install odd$") as raised:
        library("odd_library", "a test", "odd", "wanted")
    assert "\n" not in str(raised.value)
    monkeypatch.delitem(sys.modules, "odd_library", raising=False)


def test_text_that_a_library_prints_goes_to_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "loud_library.py").write_text("print('hello')")
    monkeypatch.syspath_prepend(str(tmp_path))
    library("loud_library", "a test", "loud")
    assert capsys.readouterr() == ("", "hello\n")


def test_ctrl_c_is_not_an_import_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "long_library.py").write_text("raise KeyboardInterrupt")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        library("long_library", "a test", "long")


def test_an_exception_of_a_signal_handler_is_not_an_import_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SoftTimeLimit(Exception):
        pass

    def expire(*_: object) -> None:
        raise SoftTimeLimit

    (tmp_path / "slow_library.py").write_text("import signal\nsignal.raise_signal(signal.SIGUSR1)")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = signal.signal(signal.SIGUSR1, expire)
    try:
        with pytest.raises(SoftTimeLimit):
            library("slow_library", "a test", "slow")
    finally:
        signal.signal(signal.SIGUSR1, before)
