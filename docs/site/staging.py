"""The site's sources in a folder laid out as the repository is: links among them lead where they led."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import command_page
import header_page
import json_page
import package_page
import python_page

ROOT = Path(__file__).parents[2]
_OWN = ROOT / "docs" / "site" / "pages"
_PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/*.md", "bench/results/*.md")
_PICTURES = ("docs/pictures/*", "bench/results/*.svg")
# Each of these files becomes a page, and so does every other file that a page links to.
_SOURCES = ("wgsl/*/*.wgsl", "wgsl/layouts/*.toml")
_LANGUAGES = {
    ".wgsl": "wgsl",
    ".toml": "toml",
    ".py": "python",
    ".js": "javascript",
    ".ts": "typescript",
    ".html": "html",
    ".css": "css",
    ".json": "json",
}
# Files that npm and the examples' commands create.
_MADE = {"node_modules", "models", "packages", "dist", "layer-norm", "package-lock.json"}
# The site has a start page of its own, with the list of all pages.
_INSTEAD = {"README.md": "index.md", "docs/README.md": "index.md"}
_LINK = re.compile(r"(?<=\]\()[^()#\s:]+(?=[)#])")


def fill(folder: Path) -> None:
    """Write everything that Sphinx reads into an empty folder."""
    sources = set(_found(*_SOURCES))
    for page in _found(*_PAGES):
        _write(folder / page, _linked(page, sources))
    for page in sorted(_OWN.glob("*.md")):
        shutil.copy(page, folder)
    for picture in _found(*_PICTURES):
        (folder / picture).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / picture, folder / picture)
    for source in sources:
        _write(folder / f"{source}.md", _source(source))
    _write(folder / "sources.md", _sources(sources))
    _write(folder / "reference" / "command.md", command_page.page())
    _write(folder / "reference" / "python.md", python_page.page())
    _write(folder / "reference" / "header.md", header_page.page())
    _write(folder / "reference" / "package.md", package_page.page())
    for name, text in json_page.files().items():
        _write(folder / "reference" / name, text)


def _found(*patterns: str) -> Iterator[Path]:
    """Yield the files below the root that match the patterns, as relative paths."""
    for pattern in patterns:
        yield from (path.relative_to(ROOT) for path in sorted(ROOT.glob(pattern)))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _linked(page: Path, sources: set[Path]) -> str:
    """Return a page's text with adjusted links, and add linked files that are not pages to the sources."""

    def target(match: re.Match[str]) -> str:
        path = Path(os.path.normpath(page.parent / match[0]))
        if str(path) in _INSTEAD:
            return os.path.relpath(_INSTEAD[str(path)], page.parent)
        if (ROOT / path).is_dir():
            sources.update(_texts(path))
            return f"{os.path.relpath('sources.md', page.parent)}#{_anchor(path)}"
        if not (ROOT / path).is_file() or path.suffix in (".md", ".svg", ".png"):
            return match[0]
        sources.add(path)
        return f"{match[0]}.md"

    return _LINK.sub(target, (ROOT / page).read_text(encoding="utf-8"))


def _texts(folder: Path) -> Iterator[Path]:
    """Yield the code files of a folder."""
    for path in _found(f"{folder}/**/*"):
        if path.suffix in _LANGUAGES and not _MADE & {*path.parts}:
            yield path


def _anchor(folder: Path) -> str:
    """Return the anchor of a folder in the list of sources."""
    return str(folder).replace("/", "").lower()


def _source(path: Path) -> str:
    """Return the page with a file's text."""
    text = (ROOT / path).read_text(encoding="utf-8")
    language = _LANGUAGES.get(path.suffix, "text")
    code = f"`````{{code-block}} {language}\n:linenos:\n\n{text}\n`````"
    # An orphan, because no table of contents contains it, only the list of sources.
    return f"---\norphan: true\n---\n\n# {path.parent.name}/{path.name}\n\n{code}\n"


def _sources(paths: set[Path]) -> str:
    """Return the list of the source pages, by folder."""
    folders: dict[Path, list[Path]] = {}
    for path in sorted(paths):
        folders.setdefault(path.parent, []).append(path)
    lists = (
        f"## {folder}\n\n" + "\n".join(f"- [{one.name}]({one}.md)" for one in inside)
        for folder, inside in folders.items()
    )
    what = "Kernels, shared snippets, and the code that pages link to."
    return "\n\n".join(("# Sources", what, *lists)) + "\n"
