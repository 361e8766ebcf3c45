"""The private names of wgpu-py and cffi: they work as webnorm expects, and webnorm works without them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from patience import HANG_S
from webnorm.files import user_cache
from webnorm.gpu import wgpu_private
from webnorm.gpu.device import Device
from webnorm.gpu.stopwatch import Stopwatch

pytestmark = pytest.mark.opengl

# Calls on arrays of both kinds, in a process that has parsed no C types yet.
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
    """Parsing a type by itself takes 10 ms.

    It means that wgpu-py needs a type that `wgpu_private` does not list.
    """
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=HANG_S)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stdout + done.stderr


# The lengths of the C texts that a process parses.
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
    # webnorm parses again if a file is incomplete or contains no syntax tree.
    assert parsed() == first
    for path in (tmp_path / "webnorm" / "c").iterdir():
        path.write_bytes(user_cache._digest(b"no tree") + b"no tree")
    assert parsed() == first and parsed()[0] == 0


def test_they_are_what_cffi_takes_them_for(device: Device) -> None:
    from wgpu.backends.wgpu_native import ffi

    known = ffi._parsed_types
    found = {name: known.pop(name) for name in (*wgpu_private._FUNCTION_TYPES, *wgpu_private._OTHER_TYPES)}
    try:
        for name in wgpu_private._FUNCTION_TYPES:
            ffi.callback(name, lambda *given: None)
            assert known[name] == found[name]
        for name in wgpu_private._OTHER_TYPES:
            assert ffi.typeof(name) is found[name][0]
    finally:
        known.update(found)


def test_another_cffi_is_left_alone() -> None:
    wgpu_private.predeclare_types(SimpleNamespace())

    def no_type(name: str) -> None:
        raise KeyError("a type that is not in wgpu's header")

    entries: dict[str, Any] = {}

    def other_entry(name: str) -> Any:
        entries[name] = "of another form"
        return SimpleNamespace(args=())

    for typeof in (no_type, other_entry):
        before = {*entries}
        wgpu_private.predeclare_types(SimpleNamespace(_parsed_types=entries, typeof=typeof))
        assert len({*entries} - before) == (typeof is other_entry)


# Calls on arrays of both kinds, in a process whose wgpu-py or cffi lacks a private name.
WITHOUT = """
import importlib, sys
import cffi, cffi.cparser
import wgpu.backends.wgpu_native as native

class Without:
    def __init__(self, whole, name):
        self.whole, self.name = whole, name
    def __getattr__(self, name):
        if name == self.name:
            raise AttributeError(name)
        return getattr(self.whole, name)

owner, attribute, name = sys.argv[1:]
owner = {"cffi": cffi, "native": native}[owner]
setattr(owner, attribute, Without(getattr(owner, attribute), name))

import numpy as np
import webnorm
from webnorm.gpu import wgpu_private
x = np.arange(32, dtype=np.float32).reshape(4, 8)
device = webnorm.open_device()
here = webnorm.layer_norm(webnorm.GpuArray.from_numpy(x, device), 8).numpy()
assert np.array_equal(here, webnorm.layer_norm(x, 8, device=device))
assert abs(here.std() - 1) < 1e-3
fast = wgpu_private.native_functions() is not None
print(fast, len(native._ffi.ffi._parsed_types) > 0)
"""


@pytest.mark.parametrize(
    ("owner", "attribute", "name", "fast"),
    [
        ("cffi", "cparser", "_get_parser", True),
        ("cffi", "cparser", "pycparser", True),
        ("native", "ffi", "_parsed_types", True),
        ("native", "_api", "libf", False),
        ("native", "lib", "wgpuQueueSubmit", False),
    ],
)
def test_calls_work_without(owner: str, attribute: str, name: str, fast: bool, device: Device) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, owner, attribute, name],
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert (done.returncode, done.stdout) == (0, f"{fast} True\n"), done.stdout + done.stderr


def test_a_device_is_polled_only_while_an_answer_is_awaited() -> None:
    polled: list[bool] = []
    poller = SimpleNamespace(_poll_func=polled.append, _token_ids=set())
    wgpu_private.poll_only_when_asked(SimpleNamespace(_poller=poller))
    poll: Callable[[bool], None] = poller._poll_func
    poll(False)
    assert polled == []
    poller._token_ids.add(1)
    poll(True)
    assert polled == [True]


def test_another_poller_is_left_alone() -> None:
    others = [SimpleNamespace(_poll_func=len), SimpleNamespace(_token_ids=set()), None]
    for device in (*(SimpleNamespace(_poller=poller) for poller in others), SimpleNamespace()):
        before = repr(device)
        wgpu_private.poll_only_when_asked(device)
        assert repr(device) == before


def test_the_poller_is_as_it_was_thought_to_be(device: Device) -> None:
    """The poller has the names that `poll_only_when_asked` needs."""
    assert device.handle._poller._poll_func(False) is None
    assert device.handle._poller._token_ids == set()


def test_without_a_tick_the_wall_clock_is_used(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wgpu_private.timestamp_period(device.handle) > 0
    assert wgpu_private.timestamp_period(SimpleNamespace(queue=object())) == 0
    monkeypatch.setattr(wgpu_private, "timestamp_period", lambda handle: 0.0)
    other = Device(device.adapter, device.handle)
    assert not other.timestamps and Stopwatch(other).method == "wall clock"


def test_a_forked_process_releases_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another wgpu-py does not read the names that this sets."""
    name = "wgpu.backends.wgpu_native._api"
    for api in (SimpleNamespace(libf="library"), SimpleNamespace()):
        monkeypatch.setitem(sys.modules, name, api)
        device = SimpleNamespace(_poller="thread")
        wgpu_private.release_nothing([device])
        assert device._poller is None and api.libf is None
    monkeypatch.delitem(sys.modules, name)
    wgpu_private.release_nothing([])
