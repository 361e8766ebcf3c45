"""Layouts: how rows are shared out among invocations, which many headers have in common.

A layout is a TOML file of webnorm's own with tables of a header: axes, derived constants, rules, scratch
buffers and passes. It may name a layout that it completes in turn.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from typing import Any

from webnorm.kernels.headers.sources import wgsl_root

Table = Mapping[str, Any]
TABLES = ("features", "tune", "default", "derive")


@cache
def layouts() -> Mapping[str, Table]:
    """The layouts by name."""
    tables: dict[str, Table] = {
        path.stem: tomllib.loads(path.read_text(encoding="utf-8"))
        for path in sorted((wgsl_root() / "layouts").glob("*.toml"))
    }
    return {name: _whole(table, tables) for name, table in tables.items()}


def _whole(table: Table, tables: Mapping[str, Table]) -> Table:
    return laid_out(table, _whole(tables[table["layout"]], tables)) if "layout" in table else table


def laid_out(header: Table, layout: Table) -> dict[str, Any]:
    """A header with what its layout says. The header goes first: its axes and derived constants take the
    place of the layout's of the same name, its passes that of the same entry point; its passes and scratch
    buffers come before the layout's, its rules behind. Derived constants stand behind those that they need.
    """
    # What is an axis in one place and derived in the other is what the header says.
    fixed, free = header.get("derive", {}).keys(), header.get("tune", {}).keys()
    dropped = {"tune": fixed, "default": fixed, "derive": free}
    whole = dict(header)
    for table in TABLES:
        given = layout.get(table, {})
        left = {name: given[name] for name in given if name not in dropped.get(table, ())}
        whole[table] = left | header.get(table, {})
    whole["derive"] = _in_order(whole["derive"])
    for table, name in (("pass", "entry_point"), ("scratch", "name")):
        entries = header.get(table, [])
        taken = [entry.get(name) for entry in entries]
        whole[table] = [*entries, *(entry for entry in layout.get(table, []) if entry[name] not in taken)]
    whole["require"] = [*layout.get("require", []), *header.get("require", [])]
    return whole


def _in_order(derived: Table) -> dict[str, Any]:
    """What needs no other first; the rest as it is where each needs another."""
    left, placed = dict(derived), dict[str, Any]()
    while left:
        ready = (
            name
            for name, text in left.items()
            if not (set(re.findall(r"\w+", str(text))) & left.keys()) - {name}
        )
        name = next(ready, next(iter(left)))
        placed[name] = left.pop(name)
    return placed
