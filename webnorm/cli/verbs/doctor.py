"""`webnorm doctor`: show the adapters of this machine and what is missing."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from webnorm._version import __version__
from webnorm.cli.options import shared
from webnorm.cli.terminal.screen import Screen
from webnorm.cli.terminal.streams import emit
from webnorm.cli.work.isolated import run_isolated
from webnorm.cli.work.jobs import OK, WRONG
from webnorm.errors import WebnormError

if TYPE_CHECKING:
    from webnorm.gpu.device import AdapterInfo
    from webnorm.system import Fix


def doctor(
    adapter: shared.Adapter = None,
    backend: shared.Backend = None,
    fix: Annotated[
        bool, Option("--fix", help="Install what is missing. Each command is printed before it runs.")
    ] = False,
    browser: Annotated[
        bool, Option("--browser", help="Also check what `webnorm verify` needs: a browser and Tint.")
    ] = False,
    engine: Annotated[
        list[str] | None,
        Option(
            help="Also check what this engine needs: chromium, firefox, edge, safari, node, deno, or all. "
            "Repeatable."
        ),
    ] = None,
    json: Annotated[bool, Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """The last line lists what works on this machine."""
    console, extras = Screen(), _Extras.of(browser, engine or ())
    with closing(run_isolated(partial(_look_for_adapters, adapter, not fix))) as events:
        adapters: AdapterList = next(events)
        # A better driver is suggested only if the user did not choose an adapter.
        driver = None if adapters.used and adapters.chosen else _driver_fix(adapters.used)
        of_verify = extras.verify_fixes()
        missing = [*([driver] if driver is not None else []), *extras.fixes(of_verify)]
        if fix:
            _fix(console, adapters, driver, missing, extras)
            return
        if not json:
            if missing:
                _show_missing(console, missing, f"webnorm doctor --fix{extras.flags}")
            _show_found(console, adapters)
            extras.show(console)
        description = next(events, None)
    works = _works(description, not of_verify if browser else None)
    if json:
        emit(_as_json(adapters, description, missing, works))
    else:
        if description is not None:
            _show_device(console, description)
        _show_line(console, _dawn_line())
        _show_line(console, _engines_line())
        _show_line(console, _works_line(works))
    if not all(one.optional for one in missing):
        raise typer.Exit(WRONG)


def _driver_fix(used: SeenAdapter | None) -> Fix | None:
    """Return what would give the backend a better adapter, or None."""
    from webnorm import system
    from webnorm.gpu.backend_names import requested_backend

    if requested_backend() != "dawn":
        return system.adapter_fix(used)
    if used is not None:
        return None
    return system.Fix(
        "No WebGPU adapter: Dawn accepts no GPU and no driver of this machine. "
        "Install the driver of the GPU, or a newer one."
    )


def _dawn_line() -> str:
    """Return one line about the backend dawn: its version, or how to install it."""
    from webnorm.errors import shell_command
    from webnorm.gpu.backend_names import DAWN_PACKAGE, dawn_version
    from webnorm.system import pip_install

    version = dawn_version()
    if version is None:
        return f"Dawn: not installed; {shell_command(pip_install(DAWN_PACKAGE))}"
    return f"Dawn: {DAWN_PACKAGE} {version}; --backend dawn uses it"


def _engines_line() -> str:
    """Return one line about the engines that kernels can be checked in."""
    from webnorm.engines.catalog import ALL, selected_engines

    found, missing = selected_engines([ALL])
    line = f"engines: {', '.join(found)}"
    if not missing:
        return line
    flags = "".join(f" --engine {name}" for name in missing)
    return f"{line}; missing: {', '.join(missing)} (`webnorm doctor --fix{flags}` installs them)"


@dataclass(frozen=True)
class _Extras:
    """The parts that doctor checks on request: what `verify` needs without --engine, and engines."""

    browser: bool
    engines: tuple[str, ...]

    @classmethod
    def of(cls, browser: bool, names: Sequence[str]) -> _Extras:
        """Return the parts for the options. Raises WebnormError for an unknown engine."""
        from webnorm.engines.catalog import ALL, ENGINES, PORTABLE
        from webnorm.errors import unknown

        for name in names:
            if name not in (ALL, *ENGINES):
                raise unknown("engine", name, (*ENGINES, ALL))
        engines = [one for name in names for one in (PORTABLE if name == ALL else (name,))]
        return cls(browser, tuple(dict.fromkeys(engines)))

    @property
    def flags(self) -> str:
        """The options that select these parts."""
        return (" --browser" if self.browser else "") + "".join(f" --engine {one}" for one in self.engines)

    def verify_fixes(self) -> list[Fix]:
        """Return what `verify` lacks; nothing if it was not requested."""
        if not self.browser:
            return []
        from webnorm.engines import node_webgpu
        from webnorm.web.browser import launch

        return [one for one in (node_webgpu.tint_fix(), *launch.browser_fixes()) if one is not None]

    def fixes(self, of_verify: Sequence[Fix]) -> list[Fix]:
        """Return what is missing: what `verify` lacks, and what the engines lack."""
        from webnorm.engines.catalog import engine_fix

        of_engines = [replace(fix, optional=False) for one in self.engines if (fix := engine_fix(one))]
        return list(dict.fromkeys([*of_verify, *of_engines]))

    def show(self, console: Screen) -> None:
        """Print what is there."""
        from webnorm.engines.catalog import engine_fix, find_engine

        if self.browser:
            _show_browser(console)
        for name in self.engines:
            if engine_fix(name) is None:
                engine = find_engine(name)
                _show_line(console, f"{name}: {engine} {engine.version}, {engine.program}")


def _show_missing(console: Screen, missing: Sequence[Fix], command: str) -> None:
    for one in missing:
        console.print(one.missing, style="bold yellow", soft_wrap=True)
        for words in one.commands:
            console.print("  " + " ".join(words), soft_wrap=True)
    if any(one.commands for one in missing):
        console.print(f"`{command}` runs these commands.", soft_wrap=True)
    console.print()


def _install(console: Screen, missing: Sequence[Fix]) -> dict[Fix, str]:
    """Install what is missing, and return what could not be installed, with the reasons."""
    from webnorm import system

    def say(text: str) -> None:
        console.print(text, style="bold yellow", soft_wrap=True)

    failed = {}
    for one in missing:
        if one.runs:
            say(one.missing)
        try:
            system.run_fix(one, lambda line: console.print(f"+ {line}", soft_wrap=True))
        except WebnormError as error:
            failed[one] = str(error)
            if one.optional:
                say(str(error))
    return failed


def _fix(
    console: Screen, adapters: AdapterList, driver: Fix | None, missing: Sequence[Fix], extras: _Extras
) -> None:
    """Install what is missing and show the result; raise WebnormError if something needed failed."""
    failed = _install(console, missing)
    needed = [reason for one, reason in failed.items() if not one.optional]
    if needed:
        raise WebnormError(" ".join(needed))
    extras.show(console)
    # The installed package may not be the one that was needed.
    still = [one.missing for one in extras.fixes(extras.verify_fixes()) if not one.optional]
    if still:
        raise WebnormError(" ".join(still))
    if driver is not None and driver not in failed:
        _look_again()
    else:
        console.print(f"{'continuing with' if failed else 'adapter:'} {adapters.used}", soft_wrap=True)


def _show_browser(console: Screen) -> None:
    from webnorm.engines import node_webgpu
    from webnorm.web.browser import launch

    console.print(f"browser: {launch.browser_source() or 'none'}", soft_wrap=True)
    there = (
        f"webgpu {node_webgpu.WEBGPU} in {node_webgpu.tint_folder()}"
        if node_webgpu.is_tint_installed()
        else "none"
    )
    console.print(f"Tint: {there}", soft_wrap=True)


def _show_found(console: Screen, adapters: AdapterList) -> None:
    """Print the adapters by index."""
    for one in adapters.found:
        used = " (used)" if one is adapters.used else ""
        features = ", ".join(one.features) or "no features"
        _show_line(console, f"{one.index}{used}: {one.name}", style="bold")
        _show_line(console, f"   {one.backend}, {one.type}, {one.driver}; {features}")


def _show_device(console: Screen, description: Mapping[str, Any]) -> None:
    """Print the open device: the results of the probes and the most important limits, one per line."""
    from webnorm.gpu.backend_names import backend_text

    software = description["type"] == "CPU"
    facts = {
        "WGSL features": ", ".join(description["language_features"]) or "none",
        "subgroup size": f"{description.get('subgroup_size', 'no subgroups')} (probed)",
        "timing": f"by {_clock(description)}",
        "software": "yes; it ranks kernels differently from a GPU" if software else "no",
        **{name: f"{value:,}" for name, value in description["limits"].items()},
        "webnorm, WebGPU, Python": ", ".join(
            (__version__, backend_text(description["wgpu"]), platform.python_version())
        ),
    }
    console.print()
    for fact, value in facts.items():
        _show_line(console, f"{fact}: {value}")
    console.print()


def _show_line(console: Screen, text: str, style: str = "") -> None:
    """Print a line, which wraps only on terminals."""
    console.print(text, style=style, soft_wrap=not console.is_terminal)


def _look_again() -> None:
    """Run `webnorm doctor` in a new process, because wgpu looks for drivers only when it is loaded."""
    import subprocess

    status = subprocess.run([sys.executable, "-m", "webnorm", "doctor"], check=False).returncode
    if status != OK:
        raise WebnormError("the packages are installed but wgpu still finds no adapter")


@dataclass(frozen=True)
class SeenAdapter:
    """The description of an adapter from another process: AdapterInfo without wgpu's object."""

    index: int
    name: str
    vendor: str
    driver: str
    backend: str
    type: str
    features: tuple[str, ...]
    limits: Mapping[str, int]

    @classmethod
    def of(cls, info: AdapterInfo) -> SeenAdapter:
        """Return the description of an adapter."""
        about = (info.index, info.name, info.vendor, info.driver, info.backend, info.type)
        return cls(*about, tuple(sorted(info.features)), info.limits)

    def __str__(self) -> str:
        return f"{self.name} ({self.backend}, {self.type}, {self.driver})"


@dataclass(frozen=True)
class AdapterList:
    """All adapters that wgpu finds, the one that is used, and whether the user chose it."""

    found: tuple[SeenAdapter, ...]
    used: SeenAdapter | None
    chosen: bool


def _look_for_adapters(choice: str | None, open_it: bool) -> Iterator[Any]:
    """Yield an AdapterList, then, if `open_it`, the description of the open device (see Device).

    Raises WebnormError for an adapter that does not exist.
    """
    from webnorm.gpu.device import adapters, chosen_name, find_adapter, open_device

    found = adapters()
    info = find_adapter(choice) if found else None
    seen = tuple(map(SeenAdapter.of, found))
    yield AdapterList(seen, None if info is None else seen[info.index], chosen_name(choice) is not None)
    if info is not None and open_it:
        yield open_device(info).description()


def _clock(description: Mapping[str, Any]) -> str:
    if "timestamp-query" in description["features"]:
        return "timestamp queries"
    return "the wall clock: timestamp queries do not work"


def _works(description: Mapping[str, Any] | None, verify: bool | None) -> dict[str, bool | None]:
    """Return what works with a device, or without one; `verify` is None if it was not checked."""
    features = () if description is None else description["features"]
    return {
        "kernels": description is not None,
        "subgroups": "subgroups" in features,
        "timestamps": "timestamp-query" in features,
        "gpu": description is not None and description["type"] != "CPU",
        "verify": verify,
    }


def _works_line(works: Mapping[str, bool | None]) -> str:
    """Return one line about what works."""
    if not works["kernels"]:
        line = "works here: list, new, show --target browser, compare; kernels need an adapter"
    else:
        line = "works here: check, bench, tune, play, calls from Python"
        line += ", with subgroups" if works["subgroups"] else "; kernels that need subgroups do not work"
        line += "; times are GPU times" if works["gpu"] else "; times are software times, not GPU times"
    about_verify = {
        None: "`webnorm doctor --browser` checks what verify needs",
        True: "verify has a browser and Tint",
        False: "verify needs the missing tools named above",
    }
    return f"{line}; {about_verify[works['verify']]}"


def _as_json(
    adapters: AdapterList,
    description: Mapping[str, Any] | None,
    missing: Sequence[Fix],
    works: Mapping[str, bool | None],
) -> str:
    """Return everything as one JSON object."""
    from webnorm.gpu.backend_names import dawn_version

    return json.dumps(
        {
            "webnorm": __version__,
            "python": platform.python_version(),
            "wgpu": None if description is None else description["wgpu"],
            "dawn": dawn_version(),
            "adapters": [asdict(one) for one in adapters.found],
            "used": None if adapters.used is None else adapters.used.index,
            "device": description,
            "timing": None if description is None else _clock(description),
            "missing": [asdict(one) for one in missing],
            "works": works,
            "summary": _works_line(works),
        },
        indent=1,
    )
