"""Kernels that give wrong results or break the compiler, for tests of the reports about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from webnorm.gpu.device import Device

HONEST = Path(__file__).with_name("honest.wgsl").read_text()
REPLACED: dict[str, dict[str, str]] = {
    "wrong": {"* rstd{%": "* rstd * 1.5{%"},
    "unparsable": {"let mean = ": "let mean = = "},
    # naga's SPIR-V writer, which Vulkan needs, panics if an argument is a pointer to an array element.
    "panics": {
        "@compute": "fn touch(p: ptr<function, f32>) { *p = 1.0; }\n@compute",
        "let pivot": "var many = array<f32, 4>();\n    touch(&many[row % 4u]);\n    let pivot",
    },
    "unbound": {
        "@compute": "@group(0) @binding(9) var<storage, read> extra: array<f32>;\n@compute",
        "= pivot_of(row);": "= pivot_of(row) + extra[0];",
    },
    "undefined": {"let pivot": "{{ nothing }} let pivot"},
}


def deadly(device: Device) -> tuple[str, str]:
    """Return a kernel that kills the process which compiles it for this device, and the error about it."""
    if device.adapter.backend != "Vulkan":
        pytest.skip("of the texts that pass none is known that takes down a compiler for another backend")
    return "panics", "the shader compiler panicked"


def write(folder: Path, *names: str) -> Path:
    """Write the named kernels into DIR/layer_norm and return DIR."""
    (folder / "layer_norm").mkdir(parents=True, exist_ok=True)
    for name in names:
        text = HONEST
        for old, new in REPLACED[name].items():
            assert old in text
            text = text.replace(old, new)
        (folder / "layer_norm" / f"{name}.wgsl").write_text(text)
    return folder
