"""The prose that users read, as Markdown files for the linter: pages, help, error messages and docstrings."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import webnorm
from pages import ROOT

_PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/*.md",
    "docs/site/pages/*.md",
    "examples/*/README.md",
)


def pages() -> dict[str, str]:
    """Return every page of the documentation that is written by hand."""
    found = sorted(path for pattern in _PAGES for path in ROOT.glob(pattern))
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in found}


def command_help() -> dict[str, str]:
    """Return the `--help` text of every verb, as the site's reference contains it."""
    folder = str(ROOT / "docs" / "site")
    sys.path.insert(0, folder)
    try:
        import command_page
    finally:
        sys.path.remove(folder)
    return {"help.md": command_page.page()}


def errors() -> dict[str, str]:
    """Return the messages of the exceptions that each module raises, one paragraph each."""
    return {
        f"errors/{path.relative_to(ROOT).as_posix()}.md": "\n\n".join(messages)
        for path in sorted((ROOT / "webnorm").rglob("*.py"))
        if (messages := [*_messages(path)])
    }


def docstrings() -> dict[str, str]:
    """Return the docstrings of the public API and of the public members of its classes."""
    found = {}
    for name in webnorm.__all__:
        value = getattr(webnorm, name)
        if inspect.isroutine(value) or inspect.isclass(value):
            texts = [f"# {name}", *_docstrings(value)]
            found[f"docstrings/{name}.md"] = "\n\n".join(texts)
    return found


def _docstrings(value: Any) -> Iterator[str]:
    yield _prose(value)
    for name, member in vars(value).items() if inspect.isclass(value) else ():
        documented = inspect.isroutine(member) or isinstance(member, property | classmethod | staticmethod)
        if documented and not name.startswith("_"):
            yield f"## {name}"
            yield _prose(member)


def _prose(value: Any) -> str:
    """Return a docstring as Markdown, without its examples; each parameter has a heading."""
    text = re.sub(r"^>>> .*(?:\n.+)*", "", inspect.getdoc(value) or "", flags=re.M)
    text = re.sub(r"^(\w.*)\n(?= {4}\S)", r"\n### \1\n\n", text, flags=re.M)
    return re.sub(r"^ +", "", text, flags=re.M)


def _messages(path: Path) -> Iterator[str]:
    """Yield the text of each exception that a module raises. A piece of code stands for each value."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for argument in node.exc.args:
                if text := _text(argument).strip():
                    yield text


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_text(value) if isinstance(value, ast.Constant) else "`x`" for value in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left) + _text(right)
        case _:
            return ""
