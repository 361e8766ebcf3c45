"""The hosts that run a record's parts: a page in a browser, or node with Dawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from bench.arguments import check_dawn
from webnorm.errors import WebnormError
from webnorm.web import tint
from webnorm.web.browser.visits import PageVisitor

# The limit of one part. SwiftShader needs 90 s to time five libraries on 2 million elements.
TIME_LIMIT_S = 600.0
# 'wasm-unsafe-eval' allows compiling WebAssembly, but no evaluation of JavaScript.
_POLICY = "default-src 'self' 'wasm-unsafe-eval' blob:"
_NODE = "bench/node.mjs"


class PageHost(Protocol):
    """A function that runs a part of the plan in a folder and returns the page's report."""

    def __call__(self, folder: Path, part: int) -> dict[str, Any]:
        """Run a part and return its report; WebnormError if it fails or requests another server."""


@contextmanager
def in_a_browser(named: str | None) -> Iterator[PageHost]:
    """Yield a host that runs all parts in one browser."""
    with PageVisitor(named, TIME_LIMIT_S) as browser:

        def visit(folder: Path, part: int) -> dict[str, Any]:
            seen = browser.visit(folder, f"?part={part}", page="index.html", policy=_POLICY)
            return {**_checked(seen.report), "host": seen.browser}

        yield visit


@contextmanager
def in_node(webgpu: Path) -> Iterator[PageHost]:
    """Yield a host that runs each part in a new node process, on a clean device."""
    check_dawn(webgpu)

    def run(folder: Path, part: int) -> dict[str, Any]:
        return _checked(tint.run_node(folder / _NODE, folder, webgpu, Path(str(part)), limit_s=TIME_LIMIT_S))

    yield run


def _checked(report: dict[str, Any]) -> dict[str, Any]:
    if "error" in report:
        raise WebnormError(f"the page failed: {report['error'].splitlines()[0]}")
    outside: Sequence[str] = report["outside"]
    if outside:
        raise WebnormError(
            f"the page requested {outside[0]}, which is not on this machine; nothing was recorded"
        )
    return report
