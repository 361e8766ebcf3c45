"""The C types that wgpu-py asks cffi for."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from webnorm.gpu import c_types
from webnorm.gpu.device import Device

pytestmark = pytest.mark.opengl

# Each function of a call's, on arrays of both kinds, in a process that has parsed nothing.
PROGRAM = """
import cffi.cparser
import wgpu.backends.wgpu_native

parsed = []
parse_type = cffi.cparser.Parser.parse_type
def noted(self, name):
    parsed.append(name)
    return parse_type(self, name)
cffi.cparser.Parser.parse_type = noted

import numpy as np
import webnorm
device = webnorm.open_device()
x = webnorm.GpuArray.from_numpy(np.ones((4, 8), np.float32), device)
webnorm.layer_norm(x, 8).numpy()
webnorm.layer_norm(np.ones((4, 8), np.float32), 8, device=device)
print(len(parsed), *parsed[1:], sep="; ")
"""


def test_they_are_parsed_once(device: Device) -> None:
    """One that is parsed for itself takes 10 ms: wgpu-py asks for it, and `c_types` does not have it."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stdout + done.stderr


def test_they_are_what_cffi_takes_them_for(device: Device) -> None:
    from wgpu.backends.wgpu_native import ffi

    known = ffi._parsed_types
    found = {name: known.pop(name) for name in (*c_types._FUNCTIONS, *c_types._OTHERS)}
    try:
        for name in c_types._FUNCTIONS:
            ffi.callback(name, lambda *given: None)
            assert known[name] == found[name]
        for name in c_types._OTHERS:
            assert ffi.typeof(name) is found[name][0]
    finally:
        known.update(found)


def test_another_cffi_is_left_alone() -> None:
    c_types.foresee(SimpleNamespace())

    def typeof(name: str) -> None:
        raise KeyError("a type that is not in wgpu's header")

    other = SimpleNamespace(_parsed_types={}, typeof=typeof)
    c_types.foresee(other)
    assert other._parsed_types == {}
