"""The reference of an exported package: the types of two, as `webnorm export` writes them."""

from __future__ import annotations

from webnorm.web.package.npm import type_declarations
from webnorm.web.package.request import request_for

_COLS = 768
_OPS = ("layer_norm", "layer_norm_backward")
_UNSET = ("--dtype", "--eps", "--scale", "--name", "--minify")


def page() -> str:
    """The types of a norm and of its gradient; those of other problems differ in their tensors."""
    parts = [
        "# An export's types",
        "What a package exports, in TypeScript; how it is used is told by [the guide](../docs/export.md).",
    ]
    for op in _OPS:
        request = request_for(op, (_COLS,), (), "auto", (), dict.fromkeys(_UNSET))
        parts.append(f"## {op}\n\n```ts\n{type_declarations(request).decode()}```")
    return "\n\n".join(parts) + "\n"
