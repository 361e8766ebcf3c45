"""naga's messages, without its internal numbers."""

from __future__ import annotations

import re

import pytest

from webnorm.gpu.device import Device
from webnorm.gpu.pipelines import refusal
from webnorm.kernels.wgsl.diagnostics import read_report, without_handles

TEXT = """\
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
struct S {{ a: f32, b: vec3<u32> }}
alias Vec = vec4<f32>;
fn f(a: f32) -> f32 {{ return a; }}
fn two(a: array<f32, 2>, b: Vec) -> Vec {{ return b; }}
fn pointer(a: ptr<function, f32>) {{}}
@compute @workgroup_size(4) fn main(@builtin(local_invocation_index) place: u32) {{
    {}
}}
"""


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (
            "let v = Vec(); y[0] = f(v);",
            "`f` is invalid; argument 1, `v`, does not fit the parameter `a: f32`",
        ),
        (
            "let z = two(array<f32, 2>(), vec2(f(1.0), 2.0));",
            "`two` is invalid; argument 2, `vec2(f(1.0), 2.0)`, does not fit the parameter `b: Vec`",
        ),
        ("pointer(&y[0]);", "argument 1, `&y[0]`, does not fit the parameter `a: ptr<function, f32>`"),
        ("y[0] = f(1.0, 2.0);", "the call of `f` is invalid; Requires 1 arguments, but 2 are provided"),
        ("y[0] = f(\n        Vec(),\n    );", "the call is invalid; argument 1 has another type"),
        ("y[0] = Vec();", "The type of `Vec()` doesn't match the type stored in `y[0]`"),
        ("var s: S; s.a = Vec();", "The type of `Vec()` doesn't match the type stored in `s.a`"),
        ("let z = Vec() + 1u;", "a value (of type vec4<f32>) and a value (of type vec4<u32>)"),
        ("let z = place + true;", "a value (of type u32) and a value (of type bool)"),
        ("if (1.0) {}", "The `if` condition `1.0` is not a boolean scalar"),
        ("y[1.0] = 1.0;", "Expression `y[1.0]` is invalid; Accessing with index can't be done"),
        ("let q: Vec = 1.0;", "the type of `q` is expected to be `vec4<f32>`, but got `AbstractFloat`"),
        ('let q = "a";', 'expected expression, found `"`'),
        ("let q = \\n;", "expected expression, found `\\`"),
        ("} fn g() { let q = 1;", "expected"),
        ("let q = 1", 'expected `;`, found "}"'),
    ],
)
def test_messages_quote_the_text(device: Device, statement: str, said: str) -> None:
    text = TEXT.format(statement)
    report = refusal(device, text)
    if report is None:
        assert statement.startswith("}")
        return
    complaint = read_report(report, text.splitlines()).complaint
    assert said in complaint
    # The message has neither naga's numbers nor its types. An index in the text comes from the source.
    assert not re.search(r"\[\d+\]|naga|Scalar|width|\{Abstract|\\n", complaint.replace("y[0]", ""))


NOTES = ("Call to [3] is invalid", "Argument 7 value [1] doesn't match the type [2]")


@pytest.mark.parametrize("note", NOTES)
def test_internal_numbers_are_left_out(note: str) -> None:
    for labels in ({}, {"invalid function call": "f(a)"}, {"invalid function call": "((("}):
        said = without_handles(note, labels, ["fn f(", "fn g() {"])
        assert not re.search(r"\[\d+\]", said)
        assert "is invalid" in said or said.startswith("argument 8")
