from __future__ import annotations

from typing import Any

import pytest

from tint_checker import tint_available, tint_check

REASON = tint_available()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))

BINDINGS = [
    {"binding": 0, "type": "read-only-storage"},
    {"binding": 1, "type": "storage"},
]
HEADER = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
"""
MAIN = "@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>)"

SHADERS = {
    "good": f"{HEADER} {MAIN} {{ y[id.x] = 2.0 * x[id.x]; }}",
    "syntax": f"{HEADER} {MAIN} {{\n  y[id.x] = = 1.0;\n}}",
    "non_uniform": (
        f"enable subgroups;\n{HEADER} {MAIN} {{\n"
        "  if (x[id.x] > 0.0) { y[id.x] = subgroupAdd(x[id.x]); }\n}"
    ),
    "invocations": f"{HEADER} {MAIN.replace('64', '512')} {{ y[id.x] = x[id.x]; }}",
    "workgroup_memory": (
        f"{HEADER} var<workgroup> tile: array<f32, 10240>;\n"
        f"{MAIN} {{ tile[id.x] = x[id.x]; y[id.x] = tile[0]; }}"
    ),
}


@pytest.fixture(scope="module")
def verdicts() -> dict[str, dict[str, Any]]:
    batch = [
        {
            "name": name,
            "code": code,
            "features": ["subgroups"] if "enable subgroups" in code else [],
            "passes": [{"entry_point": "main", "bindings": BINDINGS, "constants": {}}],
        }
        for name, code in SHADERS.items()
    ]
    return {verdict["name"]: verdict for verdict in tint_check(batch)}


def test_good_shader(verdicts: dict[str, dict[str, Any]]) -> None:
    assert verdicts["good"] == {"name": "good", "ok": True, "messages": []}


def test_syntax_error_has_its_line(verdicts: dict[str, dict[str, Any]]) -> None:
    assert not verdicts["syntax"]["ok"]
    message = verdicts["syntax"]["messages"][0]
    assert message["severity"] == "error"
    assert SHADERS["syntax"].splitlines()[message["line"] - 1].strip() == "y[id.x] = = 1.0;"
    assert message["column"] > 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("non_uniform", "uniform control flow"),
        ("invocations", "pipeline of main"),
        ("workgroup_memory", "pipeline of main"),
    ],
)
def test_what_browsers_refuse(verdicts: dict[str, dict[str, Any]], name: str, said: str) -> None:
    assert not verdicts[name]["ok"]
    errors = [message["text"] for message in verdicts[name]["messages"] if message["severity"] == "error"]
    assert any(said in text for text in errors), errors


def test_unknown_feature_is_a_verdict() -> None:
    (verdict,) = tint_check([{"name": "f", "code": "", "features": ["no-such-feature"], "passes": []}])
    assert not verdict["ok"]
    assert verdict["messages"]
