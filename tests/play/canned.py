"""A snapshot that fills every part of the page."""

from __future__ import annotations

import math
from typing import Any

from fake import digest

TEXT = """// /// webnorm
// summary = "A kernel that is being written."
// layout = "row_per_workgroup"
// ///
{% from "lib/write.wgsl" import write_row with context %}
@compute @workgroup_size({{ workgroup_size }})
fn main() {
    /* 𝑥² */ let variance = summ(squares);
    {{ trace("mean") }}
    let rstd = inverseSqrt(variance + params.eps);
}
"""
WRONG_LINE = 8
WRONG = TEXT.splitlines()[WRONG_LINE - 1].index("summ") + 1
EARLIER = TEXT.replace("summ(", "sum(")
BUILT = EARLIER.replace("variance", "spread")
RENDERED = """fn written(row: u32) {
}
@compute @workgroup_size(64)
fn main() {
    let variance = summ(squares);
    let rstd = inverseSqrt(variance + params.eps);
}
"""
ORIGINS = [[1, 1], [1, 2], [0, 6], [0, 7], [0, 8], [0, 10], [0, 11]]
STAGES = ("render", "compile", "verdict", "where", "time", "tint", "trace", "corpus", "cost")
PROBLEM = "7x61 float32"


def _result(**parts: Any) -> dict[str, Any]:
    return {"op": "layer_norm", "kernel": "my", "constants": {}, "status": "pass", **parts}


def _timed(percent: float, kernel: str = "my") -> dict[str, Any]:
    gbps = 0.2 * percent
    times = {"median_ns": 1e6 / percent, "p20_ns": 0.9e6 / percent, "p80_ns": 1.2e6 / percent}
    problem = {"rows": 4096, "cols": 1024, "dtype": "float32"}
    return _result(
        kernel=kernel, problem=problem, gbps=gbps, bytes=int(0.2 * 1e6), percent_of_copy=percent, **times
    )


def _stages(states: dict[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "state": states.get(name, "done"),
            "ms": 12.3 if name not in states else None,
            "note": "",
        }
        for name in STAGES
    ]


def wrong_attempt(text: str = TEXT, number: int = 5) -> dict[str, Any]:
    """Return an attempt that ran and is wrong in the row's tail."""
    cells = [[0.01] * 50 + [0.5] * 5 + [float(10**row)] * 6 for row in range(6)] + [[math.inf] * 61]
    return {
        "number": number,
        "hash": digest(text),
        "saved": "2026-11-24T10:00:00Z",
        "stages": _stages({}),
        "mistakes": [],
        "rendered": {"text": RENDERED, "files": ["my.wgsl", "lib/write.wgsl"], "origins": ORIGINS},
        "shapes": [
            {"problem": "8x64 float32", "result": _result(max_abs_error=1e-7, worst="y[2, 5] is 0.5")},
            {
                "problem": PROBLEM,
                "result": _result(status="fail", max_abs_error="inf", reason="y[3, 60] is 1.0, expected 2.0"),
            },
        ],
        "worst": {
            "output": "y",
            "index": [3, 60],
            "got": 1.0,
            "expected": 2.0,
            "error": 1.0,
            "tolerance": 1e-6,
        },
        "map": {"output": "y", "rows": 7, "cols": 61, "row_step": 1, "col_step": 1, "cells": cells},
        "hints": [
            {
                "kind": "formula",
                "text": "fits N - 1 where N belongs",
                "place": {"file": "my.wgsl", "line": 10},
            },
            {"kind": "place", "text": "columns 55 to 60 alone are wrong"},
        ],
        "times": [
            {"name": "attempt", "proved": True, "result": _timed(62.0)},
            {"name": "previous", "proved": True, "result": _timed(55.0)},
            {"name": "best", "proved": True, "result": _timed(93.0, "registers")},
            {"name": "copy", "proved": True, "result": _timed(100.0, "copy")},
        ],
        "trace": {
            "filter": "row == 3u",
            "sites": [{"name": "mean", "place": {"file": "my.wgsl", "line": 9, "column": 5, "length": 19}}],
            "records": [
                {"site": 0, "workgroup": 3, "invocation": 0, "row": 3, "values": [0.5], "expected": [0.5]},
                {
                    "site": 0,
                    "workgroup": 3,
                    "invocation": 1,
                    "row": 3,
                    "values": [0.25],
                    "expected": [0.5],
                    "departs": True,
                },
            ],
            "count": 96,
        },
        "cost": {
            "row_reads": 2.0,
            "parameter_reads": None,
            "writes": 1.0,
            "barriers": 12.0,
            "workgroup_bytes": 512,
        },
        "corpus": {
            "done": 12,
            "of": 84,
            "wrong": 1,
            "failed": [{"case": "odd", "problem": PROBLEM, "reason": "the tail"}],
        },
        "ok": False,
    }


def broken_attempt(text: str = TEXT, number: int = 6) -> dict[str, Any]:
    """Return an attempt that no compiler accepts."""
    mistake = {"message": "no definition in scope for identifier: `summ`", "own": True, "file": "my.wgsl"}
    place = {"line": WRONG_LINE, "column": WRONG, "length": 4, "source": text.splitlines()[WRONG_LINE - 1]}
    other = {
        "by": "tint",
        "message": "unused",
        "file": "lib/write.wgsl",
        "own": False,
        "line": 2,
        "column": 1,
    }
    return {
        "number": number,
        "hash": digest(text),
        "saved": "2026-11-24T10:01:00Z",
        "stages": _stages({"compile": "failed", **{name: "waiting" for name in STAGES[2:]}}),
        "mistakes": [{"by": "naga", **mistake, **place}, {**other, "length": 0, "source": "}"}],
        "rendered": {"text": RENDERED, "files": ["my.wgsl", "lib/write.wgsl"], "origins": ORIGINS},
        "ok": False,
    }


def canned() -> dict[str, Any]:
    """Return the whole state: a broken attempt after a wrong one."""
    good = wrong_attempt()
    history = [
        {"number": 1, "hash": digest(EARLIER), "status": "pass", "percent_of_copy": 40.0, "median_ns": 2.5e4},
        {"number": 2, "hash": digest(BUILT), "status": "fail"},
        {"number": 3, "hash": digest(EARLIER), "status": "pass", "percent_of_copy": 81.0, "median_ns": 1.2e4},
    ]
    return {
        "file": {
            "name": "my.wgsl",
            "path": "/somewhere/my.wgsl",
            "text": TEXT,
            "base": digest(TEXT),
            "missing": False,
            "op": "layer_norm",
            "kernel": "my",
        },
        "settings": {
            "run": True,
            "time": True,
            "dtype": "float32",
            "options": ["residual"],
            "constants": {"threads_per_row": 8},
            "trace": None,
        },
        "device": {"adapter": "llvmpipe", "backend": "Vulkan"},
        "working": None,
        "attempt": broken_attempt(),
        "good": good,
        "history": [
            {**one, "saved": "2026-11-24T10:00:00Z", "problem": "4096x1024 float32"} for one in history
        ],
        "notices": ["the worker died: it was started again"],
    }
