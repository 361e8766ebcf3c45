"""What the operating system lacks to run WebGPU, natively and in a browser, and the commands that mend it."""

from __future__ import annotations

import ctypes.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from webnorm.errors import WebnormError

# Per package manager: the commands that install, the last of which takes the packages' names.
INSTALL: dict[str, tuple[tuple[str, ...], ...]] = {
    "apt-get": (("apt-get", "update"), ("apt-get", "install", "-y")),
    "dnf": (("dnf", "install", "-y"),),
    # No -y (refresh): refreshing without upgrading leaves Arch half upgraded.
    "pacman": (("pacman", "-S", "--needed", "--noconfirm"),),
    "zypper": (("zypper", "--non-interactive", "install"),),
}

# Mesa's software Vulkan driver (lavapipe) and the Vulkan loader.
DRIVER = {
    "apt-get": ("mesa-vulkan-drivers", "libvulkan1"),
    "dnf": ("mesa-vulkan-drivers", "vulkan-loader"),
    "pacman": ("vulkan-swrast", "vulkan-icd-loader"),
    "zypper": ("libvulkan_lvp", "libvulkan1"),
}
CHROMIUM = dict.fromkeys(INSTALL, ("chromium",))


@dataclass(frozen=True)
class Mend:
    """What is missing, in one sentence, and the commands that bring it (none if nothing can be installed)."""

    missing: str
    commands: tuple[tuple[str, ...], ...] = ()
    needs_root: bool = False
    """The commands need root, and there is no way to become root from here."""


def is_root() -> bool:
    """Whether this process may install packages; False where the system has no such notion."""
    geteuid: Callable[[], int] | None = getattr(os, "geteuid", None)
    return geteuid is not None and geteuid() == 0


def adapter_mend(
    has_adapter: bool,
    platform: str = sys.platform,
    *,
    which: Callable[[str], str | None] = shutil.which,
    exists: Callable[[str], bool] = lambda path: Path(path).exists(),
    find_library: Callable[[str], str | None] = ctypes.util.find_library,
    root: bool | None = None,
) -> Mend | None:
    """What a system without a WebGPU adapter needs; None where there is an adapter already."""
    if has_adapter:
        return None
    if platform == "darwin":
        return Mend(
            "No WebGPU adapter: macOS brings Metal itself, so this Mac or virtual machine has no usable GPU."
        )
    if platform == "win32":
        return Mend("No WebGPU adapter: install the graphics driver from the maker of your GPU.")

    missing = _linux_missing(
        has_driver=exists("/dev/nvidia0") or which("nvidia-smi") is not None,
        has_loader=find_library("vulkan") is not None,
    )
    by_hand = "Install the Vulkan loader and a Vulkan driver (Mesa's lavapipe needs no GPU)."
    return _package_mend(missing, DRIVER, by_hand, which, root)


def browser_mend(
    has_browser: bool,
    platform: str = sys.platform,
    *,
    which: Callable[[str], str | None] = shutil.which,
    root: bool | None = None,
) -> Mend | None:
    """What a system without Chromium or one of its kin needs; None where there is one already."""
    if has_browser:
        return None
    missing = "No browser: neither Chromium nor Chrome nor Edge is installed."
    if platform == "darwin":
        return Mend(f"{missing} Install one: brew install --cask google-chrome")
    by_hand = "Install one of them."
    if platform == "win32":
        return Mend(f"{missing} {by_hand}")
    return _package_mend(missing, CHROMIUM, by_hand, which, root)


def run_mend(mend: Mend, echo: Callable[[str], None]) -> None:
    """Run the commands, each printed first; a WebnormError says in one line what could not be done."""
    if not mend.commands or mend.needs_root:
        raise WebnormError(mend.missing)
    for command in mend.commands:
        line = shlex.join(command)
        echo(line)
        try:
            status = subprocess.run(command, check=False).returncode
        except OSError as error:
            raise WebnormError(f"`{line}` could not be started: {error.strerror}") from error
        if status != 0:
            raise WebnormError(f"`{line}` failed with exit status {status}; its own message is above.")


def _package_mend(
    missing: str,
    packages: Mapping[str, tuple[str, ...]],
    by_hand: str,
    which: Callable[[str], str | None],
    root: bool | None,
) -> Mend:
    """The mend by packages (given per package manager), or `by_hand` where no manager is known."""
    manager = next((name for name in INSTALL if which(name)), None)
    if manager is None:
        return Mend(f"{missing} {by_hand}")
    *before, install = INSTALL[manager]
    commands = (*before, (*install, *packages[manager]))
    if is_root() if root is None else root:
        return Mend(missing, commands)
    if which("sudo"):
        return Mend(missing, tuple(("sudo", *command) for command in commands))
    return Mend(f"{missing} Run as root: {_one_line(commands)}", commands, needs_root=True)


def _linux_missing(*, has_driver: bool, has_loader: bool) -> str:
    if has_driver and not has_loader:
        return "No WebGPU adapter: the NVIDIA driver is here, but the Vulkan loader (libvulkan.so.1) is not."
    if has_driver:
        return "No WebGPU adapter: the NVIDIA driver is here, but its Vulkan part does not work."
    if not has_loader:
        return "No WebGPU adapter: the Vulkan loader (libvulkan.so.1) is not installed."
    return "No WebGPU adapter: the Vulkan loader is here, but no Vulkan driver."


def _one_line(commands: tuple[tuple[str, ...], ...]) -> str:
    return " && ".join(shlex.join(command) for command in commands)
