"""The C types that wgpu-py asks cffi for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from patience import HANG_S
from webnorm.files import user_cache
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
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=HANG_S)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stdout + done.stderr


# What a process parses of C, by its length.
COUNTED = """
import pycparser
parse, parsed = pycparser.CParser.parse, []
def noted(self, text, *rest):
    parsed.append(len(text))
    return parse(self, text, *rest)
pycparser.CParser.parse = noted
import webnorm
webnorm.open_device()
# By itself it is as it was.
import cffi.cparser
assert type(cffi.cparser._parser_cache) is pycparser.CParser
print(sum(size > 50_000 for size in parsed), len(parsed))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the system knows no owners of files")
def test_the_next_process_does_not_parse_the_header(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def parsed() -> tuple[int, int]:
        done = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, timeout=HANG_S)
        assert done.returncode == 0, done.stderr
        headers, whole = map(int, done.stdout.split())
        return headers, whole

    first = parsed()
    assert first[0] == 1 and parsed() == (0, first[1] - len(list((tmp_path / "webnorm" / "c").iterdir())))
    for path in (tmp_path / "webnorm" / "c").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    # What is not whole is parsed anew, and so is what is no tree.
    assert parsed() == first
    for path in (tmp_path / "webnorm" / "c").iterdir():
        path.write_bytes(user_cache._digest(b"no tree") + b"no tree")
    assert parsed() == first and parsed()[0] == 0


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
    c_types.predeclare_types(SimpleNamespace())

    def typeof(name: str) -> None:
        raise KeyError("a type that is not in wgpu's header")

    other = SimpleNamespace(_parsed_types={}, typeof=typeof)
    c_types.predeclare_types(other)
    assert other._parsed_types == {}
