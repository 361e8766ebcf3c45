"""Texts that are rendered once for all who ask for what comes to the same."""

from __future__ import annotations

from dataclasses import replace

from webnorm.kernels.rendering.templates import Rendering, RenderRequest


class RenderCache:
    """Renderings, each kept for requests that differ from its own in names that no template of it looked up:
    adapters differ in more than a text depends on. Files are taken not to change meanwhile.
    """

    def __init__(self) -> None:
        self._known: list[tuple[RenderRequest, Rendering]] = []

    def find(self, request: RenderRequest) -> Rendering | None:
        """What a request would give, as far as that is known."""
        return next((found for known, found in self._known if _alike(known, request, found.names)), None)

    def keep(self, request: RenderRequest, rendering: Rendering) -> None:
        """Know what a request gives."""
        self._known.append((request, rendering))


def _alike(one: RenderRequest, other: RenderRequest, names: frozenset[str]) -> bool:
    return replace(one, context=other.context) == other and all(
        one.context.get(name) == other.context.get(name) for name in names
    )
