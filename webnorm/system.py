"""What this machine lacks to run WebGPU, natively and in a browser, with the commands that mend it; optional
libraries.
"""

from __future__ import annotations

import ctypes.util
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from webnorm import signals
from webnorm.errors import WebnormError, sentence, shell_command

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

# Where the Vulkan loader looks for drivers on Linux, unless one of the variables names others.
_DRIVER_FOLDERS = ("/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d")
_DRIVER_VARIABLES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
# What Mesa calls lavapipe's file, lvp_icd.x86_64.json for example.
_SOFTWARE_DRIVER = "lvp_icd*.json"
_OPENGL = ("OpenGL", "OpenGLES")


class Unavailable(WebnormError, ImportError):
    """An optional library is missing, or cannot be imported."""


def library(module: str, what: str, package: str, *names: str) -> Any:
    """Import a module of an optional library, which has these names, and return it.

    Raises Unavailable where that fails in any way: `what` needs it, and pip installs it as `package`.
    Libraries read a user's files and variables when they are imported, and raise all kinds of errors at them.
    """
    needs, install = f"{what} needs {module}", shell_command(pip_install(package))
    try:
        # What it prints does not belong to the output of a command.
        with redirect_stdout(sys.stderr):
            found = importlib.import_module(module)
        lacking = next((name for name in names if not hasattr(found, name)), None)
        if lacking is not None:
            raise ImportError(f"it has no {lacking}")
    except BaseException as error:
        if signals.is_from_handler(error) or isinstance(error, KeyboardInterrupt):
            raise
        if isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]:
            raise Unavailable(f"{needs}, which is not installed: {install}") from error
        why = sentence(f"{type(error).__name__}: {error}", 600)
        mend = f"mend its settings, or install it again: {install}"
        raise Unavailable(f"{needs}, which cannot be imported ({why}); {mend}") from error
    return found


def is_installed(module: str) -> bool:
    """Whether a library is there; it may be broken."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


class AdapterFacts(Protocol):
    """What of an adapter tells whether a better one is to be had: see `device.AdapterInfo`."""

    @property
    def name(self) -> str:
        """Whose it is."""

    @property
    def backend(self) -> str:
        """What drives it, as wgpu calls that: "Vulkan", "OpenGL"..."""

    @property
    def type(self) -> str:
        """WebGPU's type of it, "CPU" for software."""


@dataclass(frozen=True)
class Fix:
    """What is missing, in one sentence, and the commands that bring it (none if nothing can be installed)."""

    missing: str
    commands: tuple[tuple[str, ...], ...] = ()
    needs_root: bool = False
    """The commands need root, and there is no way to become root from here."""
    optional: bool = False
    """Everything works without it, if not as well."""

    @property
    def runs(self) -> bool:
        """Whether there are commands, and this process may run them."""
        return bool(self.commands) and not self.needs_root


def pip_install(package: str) -> tuple[str, ...]:
    """The command that brings a Python package into this environment.

    The package itself rather than an extra of webnorm, which may run from a checkout and be on no index.
    """
    return (sys.executable, "-m", "pip", "install", package)


def is_root() -> bool:
    """Whether this process may install packages; False where the system has no such notion."""
    geteuid: Callable[[], int] | None = getattr(os, "geteuid", None)
    return geteuid is not None and geteuid() == 0


def _software_drivers() -> Iterable[str]:
    """The files by which the Vulkan loader finds Mesa's software driver."""
    for folder in _DRIVER_FOLDERS:
        yield from map(str, Path(folder).glob(_SOFTWARE_DRIVER))


def adapter_fix(
    preferred: AdapterFacts | None,
    platform: str = sys.platform,
    *,
    which: Callable[[str], str | None] = shutil.which,
    exists: Callable[[str], bool] = lambda path: Path(path).exists(),
    find_library: Callable[[str], str | None] = ctypes.util.find_library,
    software_drivers: Callable[[], Iterable[str]] = _software_drivers,
    environment: Mapping[str, str] = os.environ,
    root: bool | None = None,
) -> Fix | None:
    """What a system needs whose preferred WebGPU adapter is this one; None where no better one is to be had.

    An adapter through OpenGL works, but has no subgroups. Where it is software, Mesa's Vulkan driver has
    them; where it is a GPU, that of the GPU's maker, which is not for webnorm to install.
    """
    if preferred is not None and (preferred.backend not in _OPENGL or platform != "linux"):
        return None
    if platform == "darwin":
        return Fix(
            "No WebGPU adapter: macOS brings Metal itself, so this Mac or virtual machine has no usable GPU."
        )
    if platform == "win32":
        return Fix("No WebGPU adapter: install the graphics driver from the maker of your GPU.")
    if preferred is not None and preferred.type != "CPU":
        return Fix(
            f"{preferred.name} through OpenGL has no subgroups: the Vulkan driver of its maker is missing.",
            optional=True,
        )

    works = preferred is not None
    what = "No subgroups, as the only adapter is software through OpenGL" if works else "No WebGPU adapter"
    named = next((name for name in _DRIVER_VARIABLES if environment.get(name)), None)
    if named is not None:
        return Fix(f"{what}: {named} names Vulkan drivers that do not work.", optional=works)
    has_loader = find_library("vulkan") is not None
    if has_loader and any(software_drivers()):
        return Fix(f"{what}: Mesa's Vulkan driver is installed, but does not work.", optional=works)
    why = _linux_missing(
        has_driver=exists("/dev/nvidia0") or which("nvidia-smi") is not None, has_loader=has_loader
    )
    by_hand = "Install the Vulkan loader and a Vulkan driver (Mesa's lavapipe needs no GPU)."
    return replace(_package_mend(f"{what}: {why}", DRIVER, by_hand, which, root), optional=works)


def browser_fix(
    has_browser: bool,
    platform: str = sys.platform,
    *,
    which: Callable[[str], str | None] = shutil.which,
    root: bool | None = None,
) -> Fix | None:
    """What a system without Chromium or one of its kin needs; None where there is one already."""
    if has_browser:
        return None
    missing = "No browser: neither Chromium nor Chrome nor Edge is installed."
    if platform == "darwin":
        return Fix(f"{missing} Install one: brew install --cask google-chrome")
    by_hand = "Install one of them."
    if platform == "win32":
        return Fix(f"{missing} {by_hand}")
    return _package_mend(missing, CHROMIUM, by_hand, which, root)


def run_fix(mend: Fix, echo: Callable[[str], None]) -> None:
    """Run the commands, each printed first; a WebnormError says in one line what could not be done."""
    if not mend.runs:
        raise WebnormError(mend.missing)
    for command in mend.commands:
        line = shell_command(command)
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
) -> Fix:
    """The mend by packages (given per package manager), or `by_hand` where no manager is known."""
    manager = next((name for name in INSTALL if which(name)), None)
    if manager is None:
        return Fix(f"{missing} {by_hand}")
    *before, install = INSTALL[manager]
    commands = (*before, (*install, *packages[manager]))
    if is_root() if root is None else root:
        return Fix(missing, commands)
    if which("sudo"):
        return Fix(missing, tuple(("sudo", *command) for command in commands))
    line = " && ".join(shell_command(command) for command in commands)
    return Fix(f"{missing} Run as root: {line}", commands, needs_root=True)


def _linux_missing(*, has_driver: bool, has_loader: bool) -> str:
    if has_driver and not has_loader:
        return "the NVIDIA driver is here, but the Vulkan loader (libvulkan.so.1) is not."
    if has_driver:
        return "the NVIDIA driver is here, but its Vulkan part does not work."
    if not has_loader:
        return "the Vulkan loader (libvulkan.so.1) is not installed."
    return "the Vulkan loader is here, but no Vulkan driver."
