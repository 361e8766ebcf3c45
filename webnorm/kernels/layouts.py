"""Layouts: how rows are shared out among invocations, which many headers have in common.

A layout is a TOML file of webnorm's own with tables of a header: axes, derived constants, rules and passes.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from typing import Any

from webnorm.kernels.sources import wgsl_root


@cache
def layouts() -> Mapping[str, Mapping[str, Any]]:
    """The layouts by name."""
    return {
        path.stem: tomllib.loads(path.read_text(encoding="utf-8"))
        for path in sorted((wgsl_root() / "layouts").glob("*.toml"))
    }


def laid_out(header: Mapping[str, Any], layout: Mapping[str, Any]) -> dict[str, Any]:
    """A header with what its layout says. The header goes first: its axes and derived constants take the
    place of the layout's of the same name, its passes that of the same entry point; its passes and scratch
    buffers come before the layout's, its rules behind.
    """
    # What is an axis in one place and derived in the other is what the header says.
    fixed, free = header.get("derive", {}).keys(), header.get("tune", {}).keys()
    dropped = {"tune": fixed, "default": fixed, "derive": free}
    whole = dict(header)
    for table in ("features", "tune", "default", "derive"):
        given, own = layout.get(table, {}), header.get(table, {})
        # What takes an axis's place comes before what is derived from it.
        first = {name: own[name] for name in own if table == "derive" and name in layout.get("tune", {})}
        left = {name: given[name] for name in given if name not in dropped.get(table, ())}
        whole[table] = first | left | own
    for table, name in (("pass", "entry_point"), ("scratch", "name")):
        entries = header.get(table, [])
        taken = [entry.get(name) for entry in entries]
        whole[table] = [*entries, *(entry for entry in layout.get(table, []) if entry[name] not in taken)]
    whole["require"] = [*layout.get("require", []), *header.get("require", [])]
    return whole
