"""`webnorm doctor`: what this machine has, and lacks."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from webnorm.cli import options
from webnorm.cli.running import BAD_USAGE, OK
from webnorm.errors import WebnormError

if TYPE_CHECKING:
    from rich.console import Console

    from webnorm.gpu.device import AdapterInfo
    from webnorm.system import Mend


def doctor(
    adapter: options.Adapter = None,
    mend: Annotated[
        bool, Option("--mend", help="Install what is missing; each command is printed before it runs.")
    ] = False,
    browser: Annotated[
        bool, Option("--browser", help="Look also for what `webnorm verify` needs: a browser and Tint.")
    ] = False,
) -> None:
    """The exit status is 2 where kernels, or with --browser webnorm verify, need what is missing."""
    from webnorm import system
    from webnorm.cli.screen import Screen
    from webnorm.gpu.device import adapters, chosen_name, find_adapter
    from webnorm.web import browser as browsing
    from webnorm.web import tint

    console = Screen()
    found = adapters()
    used = find_adapter(adapter) if found else None
    # Who chose an adapter is content with it.
    chosen = used is not None and chosen_name(adapter) is not None
    driver = None if chosen else system.adapter_mend(used)
    wanted = [driver, *([tint.mend(), *browsing.mends()] if browser else [])]
    missing = [one for one in wanted if one is not None]
    failed: Mapping[Mend, str] = {}
    if mend:
        failed = _mended(console, missing)
        needed = [reason for one, reason in failed.items() if not one.optional]
        if needed:
            raise WebnormError(" ".join(needed))
    elif missing:
        _show_missing(console, missing, f"webnorm doctor --mend{' --browser' if browser else ''}")
        if not all(one.optional for one in missing):
            raise typer.Exit(BAD_USAGE)
    if browser:
        console.print(f"browser: {browsing.find()}", soft_wrap=True)
        console.print(f"Tint: webgpu {tint.WEBGPU} in {tint.folder()}", soft_wrap=True)
    if mend and driver is not None and driver not in failed:
        _look_again()
    elif mend:
        console.print(f"{'going on with' if failed else 'adapter:'} {used}", soft_wrap=True)
    elif used is not None:
        _show_adapter(console, found, used)


def _show_missing(console: Console, missing: Sequence[Mend], command: str) -> None:
    for one in missing:
        console.print(one.missing, style="bold yellow", soft_wrap=True)
        for words in one.commands:
            console.print("  " + " ".join(words), soft_wrap=True)
    if any(one.commands for one in missing):
        console.print(f"`{command}` runs these commands.", soft_wrap=True)
    console.print()


def _mended(console: Console, missing: Sequence[Mend]) -> dict[Mend, str]:
    """Install what is missing; returns what could not be, with the reason."""
    from webnorm import system

    def say(text: str) -> None:
        console.print(text, style="bold yellow", soft_wrap=True)

    failed = {}
    for one in missing:
        if one.runs:
            say(one.missing)
        try:
            system.run_mend(one, lambda line: console.print(f"+ {line}", soft_wrap=True))
        except WebnormError as error:
            failed[one] = str(error)
            if one.optional:
                say(str(error))
    return failed


def _show_adapter(console: Console, found: Sequence[AdapterInfo], chosen: AdapterInfo) -> None:
    from webnorm.cli.overview import adapter_table, device_facts
    from webnorm.lab.bench import device_of
    from webnorm.lab.worker import Worker, failing

    console.print(adapter_table(found, chosen))
    console.print()
    with failing(f"{chosen}: opening it"), Worker(str(chosen.index)) as worker:
        description, _ = device_of(worker)
    console.print(chosen.name, style="bold")
    console.print(device_facts(description))


def _look_again() -> None:
    """What a new process sees: wgpu looks for drivers only when it is loaded."""
    import subprocess

    status = subprocess.run([sys.executable, "-m", "webnorm", "doctor"], check=False).returncode
    if status != OK:
        raise WebnormError("the packages are installed but wgpu still finds no adapter")
