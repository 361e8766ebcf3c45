"""The bundled editor matches its sources in webnorm/web/editor/."""

from __future__ import annotations

import json
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from pages import ROOT
from patience import HANG_S

VENDOR = ROOT / "webnorm" / "web" / "assets" / "vendor"
SOURCE = ROOT / "webnorm" / "web" / "editor"
RECORD = VENDOR / "editor.sha256"


def test_the_bundle_and_its_sources_match_the_record() -> None:
    lines = [line.split("  ") for line in RECORD.read_text(encoding="utf-8").splitlines()]
    recorded = {name: digest for digest, name in lines}
    found = {name: sha256((VENDOR / name).read_bytes()).hexdigest() for name in recorded}
    assert found == recorded, "after a change of webnorm/web/editor/: make editor"
    named = {(VENDOR / name).resolve() for name in recorded} | {RECORD}
    assert named == {*VENDOR.iterdir(), *SOURCE.iterdir()}


def test_versions_are_exact_and_the_lock_names_no_host() -> None:
    asked = json.loads((SOURCE / "package.json").read_text(encoding="utf-8"))["devDependencies"]
    lock = (SOURCE / "package-lock.json").read_text(encoding="utf-8")
    packages = json.loads(lock)["packages"]
    assert "://" not in lock
    assert {name: packages[f"node_modules/{name}"]["version"] for name in asked} == asked


def test_the_licences_of_all_bundled_packages_are_listed() -> None:
    licences = (VENDOR / "LICENSES.txt").read_text(encoding="utf-8")
    packages = json.loads((SOURCE / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    # esbuild makes the bundle, and the bundle uses nothing of @lezer/lr.
    bundled = {path.removeprefix("node_modules/") for path in packages} - {"", "esbuild", "@lezer/lr"}
    for name in bundled:
        assert (
            name.startswith("@esbuild/")
            or f"{name} {packages[f'node_modules/{name}']['version']}\n" in licences
        )


@pytest.mark.slow
def test_bundling_anew_gives_the_same(tmp_path: Path) -> None:
    for program in ("make", "node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"{program}, which bundling takes, is not installed")
    command = ["make", "-s", "-C", str(ROOT), "editor", f"VENDOR={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    if "npm error" in done.stderr:
        pytest.skip(f"npm cannot install what is bundled: {done.stderr.strip().splitlines()[0]}")
    assert done.returncode == 0, done.stderr
    for made in tmp_path.iterdir():
        assert made.read_bytes() == (VENDOR / made.name).read_bytes(), made.name
