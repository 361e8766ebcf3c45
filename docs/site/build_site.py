"""Build the documentation as a folder that any static host can serve: python docs/site/build_site.py FOLDER."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import staging
from sphinx.cmd.build import build_main

from webnorm.cli.app import app

HERE = Path(__file__).parent


def main() -> int:
    """Build it, and say where it begins."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder to write")
    parser.add_argument("--lab", type=Path, help="a lab that `webnorm export --lab` wrote, in place of a new one")
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        staging.fill(Path(folder))
        words = ["-q", "-W", "--keep-going", "-c", str(HERE), "-d", f"{folder}/.doctrees", folder]
        status = build_main([*words, str(given.folder)])
    if status:
        return status
    lab = given.folder / "lab"
    if given.lab:
        shutil.copytree(given.lab, lab)
    else:
        app(["export", "--lab", "--out", str(lab)], standalone_mode=False)
    print(f"{given.folder / 'index.html'}: open it, or serve the folder: python -m http.server -d {given.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
