"""Where a record's parts run: a page in a browser, or node with Dawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from bench.arguments import check_dawn
from webnorm.errors import WebnormError
from webnorm.web import tint
from webnorm.web.browser.visits import PageVisitor

# Of one part: SwiftShader times five libraries on 2 million elements in a minute and a half.
TIME_LIMIT_S = 600.0
# 'wasm-unsafe-eval' compiles WebAssembly, and evaluates no JavaScript.
_POLICY = "default-src 'self' 'wasm-unsafe-eval' blob:"
_NODE = "bench/node.mjs"


class PageHost(Protocol):
    """Runs a part of the plan in a folder, and gives what the page reports."""

    def __call__(self, folder: Path, part: int) -> dict[str, Any]:
        """The report of a part; WebnormError without one, or where it asked for more than its own server."""


@contextmanager
def in_a_browser(named: str | None) -> Iterator[PageHost]:
    """A browser that stays open."""
    with PageVisitor(named, TIME_LIMIT_S) as browser:

        def visit(folder: Path, part: int) -> dict[str, Any]:
            seen = browser.visit(folder, f"?part={part}", page="index.html", policy=_POLICY)
            return {**_checked(seen.report), "host": seen.browser}

        yield visit


@contextmanager
def in_node(webgpu: Path) -> Iterator[PageHost]:
    """A process for each part: what one leaves on the device is gone with it."""
    check_dawn(webgpu)

    def run(folder: Path, part: int) -> dict[str, Any]:
        return _checked(tint.run_node(folder / _NODE, folder, webgpu, Path(str(part)), limit_s=TIME_LIMIT_S))

    yield run


def _checked(report: dict[str, Any]) -> dict[str, Any]:
    if "error" in report:
        raise WebnormError(f"the page fails: {report['error'].splitlines()[0]}")
    outside: Sequence[str] = report["outside"]
    if outside:
        raise WebnormError(
            f"the page asked for {outside[0]}, which is not on this machine: nothing is recorded"
        )
    return report
