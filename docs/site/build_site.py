"""Build the documentation as a folder for any static host: python docs/site/build_site.py FOLDER."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from sphinx.cmd.build import build_main

import staging
from webnorm.web import folder
from webnorm.web.collection.visits_page import visits_page
from webnorm.web.lab_site import lab_files, with_index

HERE = Path(__file__).parent


def main() -> int:
    """Build the site and print the path of its start page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder to write")
    parser.add_argument(
        "--lab", type=Path, help="a lab from `webnorm export --lab` to use instead of a new one"
    )
    given = parser.parse_args()
    with TemporaryDirectory() as sources:
        staging.fill(Path(sources))
        words = ["-q", "-W", "--keep-going", "-c", str(HERE), "-d", f"{sources}/.doctrees", sources]
        status = build_main([*words, str(given.folder)])
    if status:
        return status
    lab = given.folder / "lab"
    if given.lab:
        shutil.copytree(given.lab, lab)
    else:
        folder.write_folder(with_index(lab_files()), lab)
    sample = json.loads((HERE.parent / "open-results.json").read_text(encoding="utf-8"))
    folder.write_folder(visits_page(sample), given.folder / "visits")
    print(f"{given.folder}/index.html: open it, or serve it all: python -m http.server -d {given.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
