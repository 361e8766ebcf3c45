"""Passes that webnorm submits without wgpu-py's objects give the same results as with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import wgpu

from webnorm.gpu import wgpu_private
from webnorm.gpu.buffers import write
from webnorm.gpu.compute_programs import ComputeProgram, PreparedDispatches
from webnorm.gpu.device import Device
from webnorm.gpu.wgpu_private import run_pass

pytestmark = pytest.mark.opengl

TEXT = """@group(0) @binding(0) var<storage, read_write> values: array<u32>;
@compute @workgroup_size(4)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    values[id.x] = 3u * values[id.x] + 1u;
}
"""


@pytest.fixture(params=["wgpu-native", "objects"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test both ways. Other versions of wgpu-py need the second one."""
    if request.param == "objects":
        monkeypatch.setattr(wgpu_private, "native_functions", lambda: None)
    return str(request.param)


@pytest.fixture
def buffer(device: Device) -> Any:
    buffer = device.create_buffer(64)
    write(device, buffer, np.arange(16, dtype=np.uint32))
    return buffer


def on(device: Device, buffer: Any, workgroups: int) -> PreparedDispatches:
    return ComputeProgram(device.handle, TEXT, ["storage"]).on([(buffer, 0, 64)], workgroups)


def values(device: Device, buffer: Any) -> list[int]:
    return list(map(int, np.frombuffer(device.handle.queue.read_buffer(buffer), np.uint32)))


def test_the_functions_of_wgpu_py_are_known(device: Device) -> None:
    """If this fails, a newer wgpu-py or wgpu-native has other functions, and calls take twice as long."""
    assert wgpu_private.native_functions() is not None


@pytest.fixture
def anew() -> Iterator[None]:
    wgpu_private.native_functions.cache_clear()
    yield
    wgpu_private.native_functions.cache_clear()


def test_another_wgpu_py_has_its_objects(device: Device, anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from wgpu.backends.wgpu_native import _api

    with monkeypatch.context() as changed:
        changed.setitem(wgpu_private._SIGNATURES, "ComputePassEncoderEnd", "void(*)(int)")
        assert wgpu_private.native_functions() is None
    wgpu_private.native_functions.cache_clear()
    with monkeypatch.context() as changed:
        changed.delattr(_api, "libf")
        assert wgpu_private.native_functions() is None
    wgpu_private.native_functions.cache_clear()
    assert wgpu_private.native_functions() is not None


def test_objects_without_a_native_one_have_their_own_way(device: Device, buffer: Any) -> None:
    """A device of another wgpu-py may have another name for its native object than `_internal`."""
    other = SimpleNamespace(
        create_command_encoder=device.handle.create_command_encoder,
        queue=SimpleNamespace(submit=device.handle.queue.submit),
    )
    run_pass(other, on(device, buffer, 1).encode)
    assert values(device, buffer)[:5] == [1, 4, 7, 10, 4]


def test_dispatches_follow_one_another(way: str, device: Device, buffer: Any) -> None:
    several = PreparedDispatches.of([on(device, buffer, 4), on(device, buffer, 2), on(device, buffer, 1)])
    run_pass(device.handle, several.encode)
    answer = np.arange(16)
    for count in (16, 8, 4):
        answer[:count] = 3 * answer[:count] + 1
    assert values(device, buffer) == answer.tolist()


def test_both_ways_report_the_same_mistakes(
    way: str, device: Device, buffer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def own(compute: Any) -> None:
        on(device, buffer, 4).encode(compute)
        raise RuntimeError("of its own")

    mistakes: list[tuple[Callable[[Any], None], type[Exception], str]] = [
        (on(device, buffer, 70_000).encode, wgpu.GPUValidationError, "must be less or equal to 65535"),
        (lambda compute: compute.dispatch_workgroups(1), wgpu.GPUValidationError, "pipeline must be set"),
        (own, RuntimeError, "of its own"),
    ]
    before = values(device, buffer)
    for encode, kind, message in mistakes:
        with pytest.raises(kind, match=message):
            run_pass(device.handle, encode)
        # The refused pass did nothing, and the next pass works.
        assert values(device, buffer) == before
        run_pass(device.handle, on(device, buffer, 0).encode)


def test_all_objects_are_released(device: Device, buffer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every object is released exactly once, even after an error."""
    known = wgpu_private.native_functions()
    assert known is not None
    held: list[Any] = []

    def making(function: Callable[..., Any]) -> Callable[..., Any]:
        def made(*given: Any) -> Any:
            held.append(function(*given))
            return held[-1]

        return made

    def letting_go(function: Callable[..., Any]) -> Callable[..., Any]:
        def let_go(handle: Any) -> None:
            held.remove(handle)
            function(handle)

        return let_go

    makers = {name: making(getattr(known, name)) for name in ("create", "begin", "finish")}
    releases = ("release_pass", "release_encoder", "release_commands")
    counted = known._replace(**makers, **{name: letting_go(getattr(known, name)) for name in releases})
    monkeypatch.setattr(wgpu_private, "native_functions", lambda: counted)
    run_pass(device.handle, on(device, buffer, 4).encode)
    assert not held
    for encode in (on(device, buffer, 70_000).encode, lambda compute: compute.set_pipeline(None)):
        with pytest.raises((wgpu.GPUValidationError, AttributeError)):
            run_pass(device.handle, encode)
        assert not held
    monkeypatch.setattr(wgpu_private, "native_functions", lambda: counted._replace(submit=len))
    with pytest.raises(TypeError):
        run_pass(device.handle, on(device, buffer, 4).encode)
    assert not held
