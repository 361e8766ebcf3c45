"""Drivers and browsers that this machine lacks, the commands that install them, and optional libraries."""

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

# The install commands of each package manager. The last command takes the packages' names.
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
# Mesa's name for lavapipe's file, such as lvp_icd.x86_64.json.
_SOFTWARE_DRIVER = "lvp_icd*.json"
_OPENGL = ("OpenGL", "OpenGLES")


# SwiftShader's driver in Debian's package chromium, and the variable that adds a driver to the system's.
_SWIFTSHADER = "/usr/lib/chromium/vk_swiftshader_icd.json"
_MORE_DRIVERS = "VK_ADD_DRIVER_FILES"


def dawn_drivers(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that add a software driver for Dawn to the system's drivers; empty without one.

    Dawn does not accept Mesa's software driver before version 23.
    """
    chosen = any(environment.get(name) for name in (*_DRIVER_VARIABLES, _MORE_DRIVERS))
    return {} if chosen or not os.path.exists(_SWIFTSHADER) else {_MORE_DRIVERS: _SWIFTSHADER}


class Unavailable(WebnormError, ImportError):
    """An optional library is missing, or cannot be imported."""


def library(module: str, what: str, package: str, *names: str) -> Any:
    """Import a module of an optional library and return it.

    Libraries read a user's files and variables during import, and raise all kinds of errors.

    Parameters
    ----------
    module
        The module to import.
    what
        The feature that needs it, as the message names it.
    package
        The package that pip installs for it.
    names
        Attributes that the module must have.

    Raises
    ------
    Unavailable
        The import failed in any way, or an attribute is missing.
    """
    needs, install = f"{what} needs {module}", shell_command(pip_install(package))
    try:
        # Text that a library prints must not mix with the output of a command.
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
        advice = f"fix its settings, or install it again: {install}"
        raise Unavailable(f"{needs}, which cannot be imported ({why}); {advice}") from error
    return found


def is_installed(module: str) -> bool:
    """Return whether a library is installed; it may still be broken."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


class AdapterFacts(Protocol):
    """The properties of an adapter that `adapter_fix` reads: see `device.AdapterInfo`."""

    @property
    def name(self) -> str:
        """The adapter's name."""

    @property
    def backend(self) -> str:
        """The graphics API by wgpu's name: "Vulkan", "OpenGL"..."""

    @property
    def type(self) -> str:
        """The adapter type of WebGPU: "CPU" for software."""


@dataclass(frozen=True)
class Fix:
    """A sentence about what is missing, and the commands that install it (none if there are no packages)."""

    missing: str
    commands: tuple[tuple[str, ...], ...] = ()
    needs_root: bool = False
    """The commands need root, and this process cannot become root."""
    optional: bool = False
    """Everything works without it, but with less speed or fewer features."""

    @property
    def runs(self) -> bool:
        """Return whether there are commands and this process may run them."""
        return bool(self.commands) and not self.needs_root


def pip_install(package: str) -> tuple[str, ...]:
    """Return the command that installs a Python package into this environment.

    It names the package rather than an extra of webnorm, which may run from a checkout.
    """
    return (sys.executable, "-m", "pip", "install", package)


def npm_install(folder: Path, package: str) -> tuple[str, ...]:
    """Return the command that installs an npm package into a folder of its own."""
    options = ("--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error")
    return ("npm", "install", "--prefix", str(folder), *options, package)


def is_root() -> bool:
    """Return whether this process runs as root; False on systems without user ids."""
    geteuid: Callable[[], int] | None = getattr(os, "geteuid", None)
    return geteuid is not None and geteuid() == 0


def _software_drivers() -> Iterable[str]:
    """Yield the files by which the Vulkan loader finds Mesa's software driver."""
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
    """Return what would give the system a better WebGPU adapter than `preferred`; None if nothing would.

    An adapter through OpenGL works, but has no subgroups. Mesa's Vulkan driver adds them for software
    adapters. A GPU needs its vendor's Vulkan driver, which webnorm does not install.
    """
    if preferred is not None and (preferred.backend not in _OPENGL or platform != "linux"):
        return None
    if platform == "darwin":
        return Fix(
            "No WebGPU adapter: macOS includes Metal, so this Mac or virtual machine has no usable GPU."
        )
    if platform == "win32":
        return Fix("No WebGPU adapter: install the graphics driver of your GPU's vendor.")
    if preferred is not None and preferred.type != "CPU":
        return Fix(
            f"{preferred.name} through OpenGL has no subgroups: its vendor's Vulkan driver is missing.",
            optional=True,
        )

    works = preferred is not None
    what = "No subgroups: the only adapter is software through OpenGL" if works else "No WebGPU adapter"
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
    return replace(package_fix(f"{what}: {why}", DRIVER, by_hand, which, root), optional=works)


def browser_fix(
    has_browser: bool,
    platform: str = sys.platform,
    *,
    which: Callable[[str], str | None] = shutil.which,
    root: bool | None = None,
) -> Fix | None:
    """Return what installs a browser; None if there already is one."""
    if has_browser:
        return None
    missing = "No browser: neither Chromium nor Chrome nor Edge is installed."
    if platform == "darwin":
        return Fix(f"{missing} Install one: brew install --cask google-chrome")
    by_hand = "Install one of them."
    if platform == "win32":
        return Fix(f"{missing} {by_hand}")
    return package_fix(missing, CHROMIUM, by_hand, which, root)


def run_fix(fix: Fix, echo: Callable[[str], None]) -> None:
    """Run the commands of a fix; `echo` prints each one first. Raises WebnormError for one that fails."""
    if not fix.runs:
        raise WebnormError(fix.missing)
    for command in fix.commands:
        line = shell_command(command)
        echo(line)
        try:
            status = subprocess.run(command, check=False).returncode
        except OSError as error:
            raise WebnormError(f"`{line}` could not be started: {error.strerror}") from error
        if status != 0:
            raise WebnormError(f"`{line}` failed with exit status {status}; see its own message above.")


def package_fix(
    missing: str,
    packages: Mapping[str, tuple[str, ...]],
    by_hand: str,
    which: Callable[[str], str | None] = shutil.which,
    root: bool | None = None,
) -> Fix:
    """Return the fix that installs packages, or the sentence `by_hand` if no package manager is known.

    `packages` maps each package manager to its packages' names.
    """
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
        return "the NVIDIA driver is installed, but the Vulkan loader (libvulkan.so.1) is not."
    if has_driver:
        return "the NVIDIA driver is installed, but its Vulkan part does not work."
    if not has_loader:
        return "the Vulkan loader (libvulkan.so.1) is not installed."
    return "the Vulkan loader is installed, but no Vulkan driver is."
