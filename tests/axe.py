"""axe-core, which finds accessibility faults in a page."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from typing import TYPE_CHECKING

import pytest

from patience import HANG_S
from webnorm.files.atomic import cache_folder

if TYPE_CHECKING:
    from playwright.sync_api import Page

AXE = "axe-core@4.14.1"


@cache
def rules() -> str:
    """Return the text of axe-core, and install it first if it is missing. Only the tests use it."""
    folder = cache_folder(AXE.replace("@", "-"))
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        if shutil.which("npm") is None:
            pytest.skip("npm, which brings axe-core, is not installed")
        quiet = ("--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error", "--ignore-scripts")
        command = ["npm", "install", "--prefix", str(folder), *quiet, AXE]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
        if done.returncode:
            pytest.skip(f"npm cannot fetch axe-core: {done.stderr.strip().splitlines()[0]}")
    return script.read_text(encoding="utf-8")


def violations(page: Page, *only: str) -> list[tuple[str, list[str]]]:
    """Return the rules that a page breaks, each with its elements; check `only` some if they are named."""
    which = {"runOnly": [*only]} if only else {}
    found = page.evaluate("async (which) => (await axe.run(which)).violations", which)
    return [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found]
