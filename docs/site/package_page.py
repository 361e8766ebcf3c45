"""The reference page of exported packages: the types of two packages from `webnorm export`."""

from __future__ import annotations

from webnorm.web.package.npm import type_declarations
from webnorm.web.package.request import request_for

_COLS = 768
_OPS = ("layer_norm", "layer_norm_backward")
_UNSET = ("--dtype", "--eps", "--scale", "--name", "--minify")


def page() -> str:
    """Return the types of a norm and of its gradient; other packages differ in their tensors."""
    parts = [
        "# An export's types",
        "The TypeScript types of a package. [The guide](../docs/export.md) explains how to use it.",
    ]
    for op in _OPS:
        request = request_for(op, (_COLS,), (), "auto", (), dict.fromkeys(_UNSET))
        parts.append(f"## {op}\n\n```ts\n{type_declarations(request).decode()}```")
    return "\n\n".join(parts) + "\n"
