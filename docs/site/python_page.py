"""The reference of the package: the public names of `webnorm` and their docstrings."""

from __future__ import annotations

import inspect

import webnorm


def page() -> str:
    """Return the page: every public name with its signature and docstring, grouped by package."""
    rooms: dict[str, list[str]] = {}
    for name in webnorm.__all__:
        value = getattr(webnorm, name)
        if inspect.isroutine(value) or inspect.isclass(value):
            module: str = value.__module__
            rooms.setdefault(".".join(module.split(".")[:2]), []).append(name)
    parts = ["# The names of webnorm", _docstring("webnorm")]
    for room, names in rooms.items():
        parts.append(f"## {room}\n\n{_docstring(room)}")
        parts += [_entry(name) for name in names]
    return "\n\n".join(parts) + "\n"


def _docstring(module: str) -> str:
    return _directive(f".. automodule:: {module}\n   :no-index:")


def _entry(name: str) -> str:
    value = getattr(webnorm, name)
    if not inspect.isclass(value):
        return _directive(f".. autofunction:: webnorm.{name}")
    options = "   :members:\n   :special-members: __call__"
    if not issubclass(value, Exception):
        # The inherited methods of an exception are Python's, not webnorm's.
        options += "\n   :inherited-members:"
    entry = _directive(f".. autoclass:: webnorm.{name}\n{options}")
    if value.__name__ == name:
        return entry
    # Sphinx documents an alias by a link alone.
    return f"{entry}\n\n" + _directive(f".. autoclass:: {value.__module__}.{value.__name__}\n{options}")


def _directive(text: str) -> str:
    return f"```{{eval-rst}}\n{text}\n```"
