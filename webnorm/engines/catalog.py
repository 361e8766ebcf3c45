"""The engines that webnorm can start: browsers, node with Dawn, and Deno, and which of them are installed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from webnorm.engines.node_webgpu import tint_fix
from webnorm.errors import WebnormError, unknown
from webnorm.files.atomic import absolute, cache_folder
from webnorm.system import CHROMIUM, Fix, is_installed, npm_install, package_fix

DENO = "2.9.6"
# Stands for the address in the command of a browser that is not in the list.
URL = "{url}"
# Programs print their versions in milliseconds.
_VERSION_LIMIT_S = 30.0
_FIREFOX = {
    "apt-get": ("firefox-esr",),
    "dnf": ("firefox",),
    "pacman": ("firefox",),
    "zypper": ("MozillaFirefox",),
}


@dataclass(frozen=True)
class _KnownEngine:
    """The places of an engine: names on the PATH, then paths. `packages` are those that install it."""

    title: str
    names: tuple[str, ...]
    places: tuple[str, ...] = ()
    is_browser: bool = True
    packages: Mapping[str, tuple[str, ...]] | None = None
    remedy: str = ""


_PROGRAMS = "C:/Program Files"
_KNOWN = {
    "chromium": _KnownEngine(
        "Chromium",
        ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
        (
            "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
            "/Applications/Chromium.app/Contents/MacOS/Chromium",
            f"{_PROGRAMS}/Google/Chrome/Application/chrome.exe",
        ),
        packages=CHROMIUM,
        remedy="Install Chromium or Chrome.",
    ),
    "firefox": _KnownEngine(
        "Firefox",
        ("firefox", "firefox-esr"),
        (
            "/Applications/Firefox.app/Contents/MacOS/firefox",
            f"{_PROGRAMS}/Mozilla Firefox/firefox.exe",
        ),
        packages=_FIREFOX,
        remedy="Install Firefox 141 or later.",
    ),
    "edge": _KnownEngine(
        "Edge",
        ("microsoft-edge", "msedge"),
        (
            "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
            f"{_PROGRAMS} (x86)/Microsoft/Edge/Application/msedge.exe",
        ),
        remedy="Microsoft offers it for Windows, macOS and Linux.",
    ),
    "safari": _KnownEngine(
        "Safari", (), ("/Applications/Safari.app/Contents/MacOS/Safari",), remedy="Only macOS has it."
    ),
    "node": _KnownEngine("node", ("node",), is_browser=False),
    "deno": _KnownEngine("Deno", ("deno",), is_browser=False),
}
ENGINES = tuple(_KNOWN)
# The engines that every system can have. `all` reports them if they are missing.
PORTABLE = ("chromium", "firefox", "node", "deno")
# Playwright drives the first two by Chrome's debugging protocol, and only its own builds of the others, which
# webnorm starts as engines.
DRIVEN, UNDRIVEN = ("chromium", "edge"), ("firefox", "safari")
# The engines of webnorm's own processes, wgpu-py and Dawn, and the name for all engines.
NATIVE, DAWN, ALL = "wgpu", "dawn", "all"


@dataclass(frozen=True)
class Engine:
    """An installed engine. `command` is the user's own command for a browser that is not in the list."""

    name: str
    title: str
    program: Path
    is_browser: bool = True
    command: tuple[str, ...] = field(default=())

    @property
    def version(self) -> str:
        """The version that the program prints; empty if it prints none."""
        with suppress(OSError, subprocess.SubprocessError):
            said = subprocess.run(
                [str(self.program), "--version"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_VERSION_LIMIT_S,
                check=False,
            ).stdout
            found = re.search(r"\d+(\.\d+)+\w*", said)
            return found[0] if found else ""
        return ""

    def __str__(self) -> str:
        return self.title


def find_engine(name: str) -> Engine:
    """Return an installed engine by its name, or by a command that contains {url}.

    Raises WebnormError if the name is unknown, or if the engine is missing.
    """
    if URL in name:
        return _custom(name)
    if name not in _KNOWN:
        known = (NATIVE, DAWN, *ENGINES, ALL)
        raise WebnormError(f"{unknown('engine', name, known)}; another browser is a command with {URL}")
    fix, program = engine_fix(name), find_program(name)
    if fix is not None or program is None:
        install = f"; `webnorm doctor --fix --engine {name}` installs it" if fix and fix.commands else ""
        raise WebnormError(f"--engine {name}: {fix.missing.rstrip('.') if fix else 'not installed'}{install}")
    return Engine(name, _KNOWN[name].title, program, _KNOWN[name].is_browser)


def selected_engines(names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the engines that names mean, and why engines of `all` are missing, by name.

    `all` means wgpu and every installed engine. Raises WebnormError for an engine that is named, but unknown
    or missing.
    """
    found, missing = list[str](), dict[str, str]()
    for name in names:
        if name == ALL:
            native = (NATIVE, DAWN) if is_installed("wgpudawn") else (NATIVE,)
            found += [*native, *(one.name for one in installed_engines())]
            fixes = {one: engine_fix(one) for one in PORTABLE}
            missing |= {one: fix.missing for one, fix in fixes.items() if fix is not None}
        else:
            if name not in (NATIVE, DAWN):
                find_engine(name)
            found.append(name)
    return list(dict.fromkeys(found)), missing


def engine_names() -> list[str]:
    """List the engines that can run kernels on this machine.

    Returns
    -------
    list of str
        "wgpu", "dawn" if wgpudawn is installed, and the names of installed browsers, node and Deno.

    Examples
    --------
    >>> import webnorm
    >>> "wgpu" in webnorm.engine_names()
    True
    """
    return selected_engines([ALL])[0]


def _custom(text: str) -> Engine:
    """Return the engine of a user's command."""
    try:
        command = tuple(shlex.split(text))
    except ValueError as error:
        raise WebnormError(f"--engine {text}: {error}") from error
    program = shutil.which(command[0])
    if program is None:
        raise WebnormError(f"--engine {text}: no program {command[0]}; expected a command with {URL}")
    return Engine(Path(command[0]).name, command[0], absolute(Path(program)), command=command)


def installed_engines() -> list[Engine]:
    """Return the known engines that can run here."""
    return [find_engine(name) for name in ENGINES if engine_fix(name) is None]


def undriven_engine(program: Path) -> str | None:
    """Return the name of the browser that a program is, if no driver of ours speaks its protocol."""
    for name in UNDRIVEN:
        if program.stem.lower() in {*_KNOWN[name].names, name}:
            return name
    return None


def engine_fix(name: str) -> Fix | None:
    """Return what a known engine lacks, with the commands that install it; None if nothing."""
    known = _KNOWN[name]
    if name == "node":
        return tint_fix()
    if find_program(name) is not None:
        return None
    missing = f"No {known.title}: it is not installed."
    if name == "deno":
        if shutil.which("npm") is None:
            return Fix(f"{missing} Install Deno 2 or later, or npm, which installs it.")
        return Fix(missing, (npm_install(_deno_folder(), f"deno@{DENO}"),))
    if known.packages is None:
        return Fix(f"{missing} {known.remedy}", optional=True)
    return package_fix(missing, known.packages, known.remedy)


def _deno_folder() -> Path:
    return cache_folder(f"deno-{DENO}")


def find_program(name: str) -> Path | None:
    """Return the path of a known engine's program, or None."""
    known = _KNOWN[name]
    installed = [str(_deno_folder() / "node_modules" / ".bin" / "deno")] if name == "deno" else []
    for candidate in (*known.names, *installed, *known.places):
        if (path := shutil.which(candidate)) and os.path.isfile(path):
            return absolute(Path(path))
    return None
