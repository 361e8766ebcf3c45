"""`webnorm doctor`: what this machine has, and lacks."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from webnorm.cli.options import shared
from webnorm.cli.terminal.streams import emit
from webnorm.cli.work.jobs import OK, WRONG
from webnorm.errors import WebnormError

if TYPE_CHECKING:
    from rich.console import Console

    from webnorm.cli.verbs.machine import AdapterList
    from webnorm.system import Fix


def doctor(
    adapter: shared.Adapter = None,
    mend: Annotated[
        bool, Option("--mend", help="Install what is missing; each command is printed before it runs.")
    ] = False,
    browser: Annotated[
        bool, Option("--browser", help="Look also for what `webnorm verify` needs: a browser and Tint.")
    ] = False,
    json: Annotated[bool, Option("--json", help="One object on standard output, for programs.")] = False,
) -> None:
    """The last line says what will work here."""
    from webnorm import system
    from webnorm.cli.terminal.screen import Screen
    from webnorm.cli.verbs import machine
    from webnorm.cli.work.isolated import run_isolated

    console = Screen()
    with closing(
        run_isolated("opening the adapter", partial(machine.look_for_adapters, adapter, not mend))
    ) as events:
        adapters: AdapterList = next(events)
        # Who chose an adapter is content with it.
        driver = None if adapters.used and adapters.chosen else system.adapter_fix(adapters.used)
        lacking = _browser_mends() if browser else []
        missing = [*([driver] if driver is not None else []), *lacking]
        if mend:
            _mend(console, adapters, driver, missing, browser)
            return
        if not json:
            if missing:
                _show_missing(console, missing, f"webnorm doctor --mend{' --browser' if browser else ''}")
            _show_found(console, adapters, browser)
        description = next(events, None)
    works = machine.works(description, not lacking if browser else None)
    if json:
        emit(machine.to_json(adapters, description, missing, works))
    else:
        _show_device(console, description)
        _show_line(console, machine.works_line(works))
    if not all(one.optional for one in missing):
        raise typer.Exit(WRONG)


def _browser_mends() -> list[Fix]:
    from webnorm.web import tint
    from webnorm.web.browser import launch

    return [one for one in (tint.tint_fix(), *launch.browser_fixes()) if one is not None]


def _show_missing(console: Console, missing: Sequence[Fix], command: str) -> None:
    for one in missing:
        console.print(one.missing, style="bold yellow", soft_wrap=True)
        for words in one.commands:
            console.print("  " + " ".join(words), soft_wrap=True)
    if any(one.commands for one in missing):
        console.print(f"`{command}` runs these commands.", soft_wrap=True)
    console.print()


def _mended(console: Console, missing: Sequence[Fix]) -> dict[Fix, str]:
    """Install what is missing; returns what could not be, with the reason."""
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


def _mend(
    console: Console, adapters: AdapterList, driver: Fix | None, missing: Sequence[Fix], browser: bool
) -> None:
    """Install what is missing, and tell what is used then; WebnormError where what is needed could not be."""
    failed = _mended(console, missing)
    needed = [reason for one, reason in failed.items() if not one.optional]
    if needed:
        raise WebnormError(" ".join(needed))
    if browser:
        _show_browser(console)
        # A package that is installed may be another one than was needed.
        still = [one.missing for one in _browser_mends() if not one.optional]
        if still:
            raise WebnormError(" ".join(still))
    if driver is not None and driver not in failed:
        _look_again()
    else:
        console.print(f"{'going on with' if failed else 'adapter:'} {adapters.used}", soft_wrap=True)


def _show_browser(console: Console) -> None:
    from webnorm.web import tint
    from webnorm.web.browser import launch

    console.print(f"browser: {launch.browser_source() or 'none'}", soft_wrap=True)
    there = f"webgpu {tint.WEBGPU} in {tint.tint_folder()}" if tint.is_tint_installed() else "none"
    console.print(f"Tint: {there}", soft_wrap=True)


def _show_found(console: Console, adapters: AdapterList, browser: bool) -> None:
    """The adapters, each by its index; and where the browser is."""
    from webnorm.cli.verbs.machine import adapter_lines

    for name, about in adapter_lines(adapters):
        _show_line(console, name, style="bold")
        _show_line(console, f"   {about}")
    if browser:
        _show_browser(console)


def _show_device(console: Console, description: Mapping[str, Any] | None) -> None:
    """What the opened device is known by, a line each."""
    from webnorm.cli.verbs.machine import device_facts

    if description is not None:
        console.print()
        for fact, value in device_facts(description).items():
            _show_line(console, f"{fact}: {value}")
        console.print()


def _show_line(console: Console, text: str, style: str = "") -> None:
    """A line, which breaks on terminals alone."""
    console.print(text, style=style, soft_wrap=not console.is_terminal)


def _look_again() -> None:
    """What a new process sees: wgpu looks for drivers only when it is loaded."""
    import subprocess

    status = subprocess.run([sys.executable, "-m", "webnorm", "doctor"], check=False).returncode
    if status != OK:
        raise WebnormError("the packages are installed but wgpu still finds no adapter")
