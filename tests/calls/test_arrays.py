"""Arrays on the device, and the caches of calls, which must not grow without a bound."""

from __future__ import annotations

import copy
import gc
import mmap
import subprocess
import sys
import threading
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import wgpu

import webnorm
from patience import HANG_S
from webnorm.calls import arrays, session
from webnorm.calls.session import LRU
from webnorm.gpu import pool
from webnorm.gpu.buffers import GUARD_BYTES
from webnorm.gpu.device import Device, open_device
from webnorm.gpu.pipelines import Pipeline, compile_shader
from webnorm.gpu.pool import BufferPool
from webnorm.kernels.rendering.render import Shader
from webnorm.op.dtypes import DTYPES, Array

pytestmark = pytest.mark.opengl

RNG = np.random.default_rng(11)


def normal(*shape: int, dtype: str = "float32") -> Array:
    return RNG.standard_normal(shape).astype(DTYPES[dtype])


def on_device(array: Array) -> webnorm.GpuArray:
    return webnorm.GpuArray.from_numpy(array)


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch, device: Device) -> Counter[str]:
    """Count the transfers of arrays to the device and back."""
    counts: Counter[str] = Counter()
    handle = session.default_device().handle
    queue, buffers = type(handle.queue), type(on_device(normal(1)).buffer)
    write, read = queue.write_buffer, buffers.read_mapped

    def counted_write(self: Any, buffer: Any, *arguments: Any) -> None:
        # eps and scale are also written to the device, into a uniform.
        counts["up"] += bool(buffer.usage & wgpu.BufferUsage.STORAGE)
        write(self, buffer, *arguments)

    def counted_read(*arguments: Any, **keywords: Any) -> Any:
        counts["down"] += 1
        return read(*arguments, **keywords)

    monkeypatch.setattr(queue, "write_buffer", counted_write)
    monkeypatch.setattr(buffers, "read_mapped", counted_read)
    return counts


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 3, 4), (0, 7), (7, 0)])
def test_there_and_back(dtype: str, shape: tuple[int, ...], device: Device) -> None:
    array = np.asarray(RNG.integers(-9, 9, shape)).astype(DTYPES[dtype])
    here = on_device(array)
    assert here.shape == shape and here.dtype == array.dtype and here.nbytes == array.nbytes
    assert here.ndim == array.ndim and here.size == array.size
    back = here.numpy()
    assert back.dtype == array.dtype and back.shape == shape
    np.testing.assert_array_equal(back.astype(np.float32), array.astype(np.float32))
    assert here.buffer.size >= array.nbytes + GUARD_BYTES
    assert here.buffer.size % 16 == 0


def test_what_numpy_sees(device: Device) -> None:
    array = normal(3, 4)
    here = webnorm.GpuArray.from_numpy(array.T, device)
    assert here.device is device and len(here) == 4
    assert repr(here) == f"GpuArray(shape=(4, 3), dtype=float32, device={device.adapter.name!r})"
    np.testing.assert_array_equal(np.asarray(here), array.T)
    np.testing.assert_array_equal(np.asarray(here, dtype=np.float64), array.T.astype(np.float64))
    with pytest.raises(ValueError, match="without a copy"):
        np.array(here, copy=False)


def test_reshape(device: Device) -> None:
    array = normal(6, 4)
    here = on_device(array)
    for shape in ((24,), (2, 3, 4), (-1, 8), (4, -1, 2)):
        found = here.reshape(shape)
        assert found.buffer is here.buffer
        np.testing.assert_array_equal(found.numpy(), array.reshape(shape))
    np.testing.assert_array_equal(here.reshape(3, 8).numpy(), array.reshape(3, 8))
    assert here.reshape(np.int64(24)).shape == here.reshape(np.int64(8), 3).reshape(-1).shape == (24,)
    for wrong in ((5, 5), (-1, -1), (-1, 5), (-2, -12), ("a",)):
        with pytest.raises(webnorm.WebnormError, match="cannot reshape"):
            here.reshape(wrong)  # type: ignore[arg-type]
    empty = on_device(array[:0])
    assert empty.reshape(0, 1 << 30).shape == (0, 1 << 30)
    for huge in ([0, 1 << 63], [1 << 70, 0], [0, 1 << 40, 1 << 40]):
        with pytest.raises(webnorm.WebnormError, match="cannot reshape"):
            empty.reshape(huge)
    pair = webnorm.GpuArray.from_numpy(np.ones(2, np.float32), device)
    assert pair.reshape((1,) * 63 + (2,)).shape == (1,) * 63 + (2,)
    for one in ((1,) * 64 + (2,), [1] * 64 + [2]):
        for given in ((one,), one):
            with pytest.raises(webnorm.WebnormError, match="cannot reshape"):
                pair.reshape(*given)


def test_a_buffer_is_not_its_readers_to_destroy(device: Device) -> None:
    """webnorm refuses to destroy a buffer, because wgpu would end the process at the next read."""
    here = on_device(normal(6, 4))
    with pytest.raises(webnorm.WebnormError, match="webnorm owns this buffer; delete its array"):
        here.buffer.destroy()
    assert here.numpy().shape == (6, 4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([1.0], "array is a list; expected a NumPy array"),
        (np.ones(3), "array has dtype float64; expected float32"),
        (np.ones(3, bool), "array has dtype bool"),
    ],
)
def test_what_is_no_array_for_a_kernel(given: Any, message: str) -> None:
    with pytest.raises(webnorm.WebnormError) as caught:
        webnorm.GpuArray.from_numpy(given)
    assert message in str(caught.value)


def test_an_array_larger_than_a_buffer(device: Device) -> None:
    small = open_device(device.adapter, limits={"max-buffer-size": 1 << 20})
    with pytest.raises(webnorm.WebnormError, match="largest buffer is 1,048,576 bytes"):
        webnorm.GpuArray.from_numpy(np.zeros(1 << 18, np.float32), small)
    with pytest.raises(webnorm.WebnormError, match="largest buffer is 1 MiB"):
        webnorm.layer_norm(np.zeros((2, 1 << 18), np.float32), 1 << 18, device=small)


@pytest.mark.parametrize("function", [webnorm.layer_norm, webnorm.rms_norm])
def test_results_are_those_of_numpy_arrays(function: Any, device: Device) -> None:
    x, residual, weight, vector = normal(2, 3, 40), normal(2, 3, 40), normal(40), normal(40)
    arguments: dict[str, Any] = {
        "bias": vector,
        "residual": residual,
        "residual_bias": vector,
        "return_stats": True,
        "out_dtype": "float8_e4m3fn",
        "scale": 4.0,
    }
    answer = function(x, 40, weight, **arguments)
    got = function(on_device(x), 40, weight, **{**arguments, "residual": on_device(residual)})
    for name in ("y", "h", "stats", "amax", "scale_inv"):
        mine, its = getattr(answer, name), getattr(got, name)
        assert isinstance(its, webnorm.GpuArray), name
        assert its.shape == mine.shape and its.dtype == mine.dtype
        np.testing.assert_array_equal(its.numpy().view(np.uint8), mine.view(np.uint8))
    with pytest.raises(webnorm.WebnormError, match=r"call stats.numpy\(\)"):
        got.rstd  # noqa: B018


def test_parameters_on_the_device_for_a_numpy_x(device: Device) -> None:
    x, weight = normal(6, 40), normal(40)
    got = webnorm.layer_norm(x, 40, on_device(weight))
    assert isinstance(got, np.ndarray)
    np.testing.assert_array_equal(got, webnorm.layer_norm(x, 40, weight))


def test_no_rows(device: Device) -> None:
    y = webnorm.layer_norm(on_device(np.empty((0, 8), np.float32)), 8)
    assert isinstance(y, webnorm.GpuArray) and y.shape == (0, 8) and y.numpy().shape == (0, 8)


def test_a_chain_copies_nothing(traffic: Counter[str]) -> None:
    """Two layers run forward and backward. x and dy go up once, dx comes down, and parameters stay there."""
    x, dy = normal(8, 64), normal(8, 64)
    weights = [normal(64), normal(64)]
    here = [on_device(weight) for weight in weights]
    traffic.clear()
    first = webnorm.layer_norm(on_device(x), 64, here[0], return_stats=True)
    second = webnorm.rms_norm(first.y, 64, here[1], return_stats=True, residual=first.y)
    assert second.h is not None
    between, _ = webnorm.rms_norm_backward(on_device(dy), second.h, 64, here[1], stats=second.stats)
    dx, *_ = webnorm.layer_norm_backward(between, on_device(x), 64, here[0], stats=first.stats)
    assert traffic == {"up": 3}
    got = dx.numpy()
    assert traffic == {"up": 3, "down": 1}
    y = webnorm.layer_norm(x, 64, weights[0])
    step, _ = webnorm.rms_norm_backward(dy, y + y, 64, weights[1])
    answer, *_ = webnorm.layer_norm_backward(step, x, 64, weights[0])
    np.testing.assert_allclose(got, answer, rtol=1e-4, atol=1e-5)


def test_arrays_of_two_devices(device: Device) -> None:
    other = open_device(device.adapter)
    x = webnorm.GpuArray.from_numpy(normal(6, 40), device)
    weight = webnorm.GpuArray.from_numpy(normal(40), other)
    for call in (
        lambda: webnorm.layer_norm(x, 40, weight),
        lambda: webnorm.layer_norm(x, 40, device=other),
        lambda: webnorm.rms_norm_backward(x, x, 40, weight),
    ):
        with pytest.raises(webnorm.WebnormError) as caught:
            call()
        assert "is on another device than" in str(caught.value) and "\n" not in str(caught.value)


def test_an_array_in_a_cycle_gives_back_a_buffer_that_lives(device: Device) -> None:
    """The collector finalizes all garbage of a cycle at once, including the buffer's own object."""
    x = normal(4, 8)
    for _ in range(3):
        cycle: list[Any] = [on_device(x), webnorm.layer_norm(on_device(x), 8)]
        cycle.append(cycle)
        del cycle
        gc.collect()
        found = [webnorm.layer_norm(on_device(x), 8) for _ in range(4)]
        for y in found:
            np.testing.assert_array_equal(y.numpy(), webnorm.layer_norm(x, 8))


def test_a_deep_copy_is_the_array_itself(device: Device) -> None:
    here = on_device(normal(6, 4))
    assert copy.deepcopy([here])[0] is here


def objects() -> dict[str, int]:
    """Count wgpu's objects of each kind."""
    gc.collect()
    counts = wgpu.diagnostics.object_counts.get_dict()
    return {name: count["count"] for name, count in counts.items()}


def resident_bytes() -> int:
    """Return the memory of this process; 0 if the system does not report it."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * mmap.PAGESIZE if statm.exists() else 0


def test_a_thousand_calls_leak_nothing(device: Device) -> None:
    x, weight, dy = normal(6, 40), normal(40), normal(6, 40)

    def three_calls(times: int) -> None:
        for _ in range(times):
            webnorm.layer_norm(x, 40, weight, return_stats=True)
            here = on_device(x)
            out = webnorm.layer_norm(here, 40, weight, return_stats=True)
            webnorm.layer_norm_backward(on_device(dy), here, 40, weight, stats=out.stats)

    three_calls(50)
    before = objects()
    assert before["Buffer"] > 0
    grown = []
    # A driver allocates memory at irregular times, but a leak allocates in every round.
    for _ in range(3):
        memory = resident_bytes()
        three_calls(112)
        grown.append(resident_bytes() - memory)
    assert objects() == before
    assert min(grown) < (4 << 20) / 3


def test_the_pool_has_a_bound(device: Device) -> None:
    pool = BufferPool(most_bytes=10_000)
    first = pool.take(device, 1000)
    pool.give_back(first)
    assert pool.bytes == first.size
    assert pool.take(device, 1000) is first
    assert pool.bytes == 0
    taken = [pool.take(device, size) for size in (3000, 3000, 5000, 1000)]
    for buffer in taken:
        pool.give_back(buffer)
    assert 0 < pool.bytes <= 10_000
    # The cache drops the sizes that were used longest ago.
    assert pool.take(device, 1000) is taken[3]
    pool.give_back(pool.take(device, 20_000))
    assert pool.bytes <= 10_000


def test_the_oldest_buffer_is_taken_first(device: Device) -> None:
    """Buffers may come back in any order. A loop of calls must use the same buffers again."""
    pool = BufferPool(most_bytes=100_000)
    taken = [pool.take(device, 1000) for _ in range(3)]
    for index in (1, 2, 0):
        pool.give_back(taken[index])
    assert [pool.take(device, 1000) for _ in taken] == taken


def test_a_buffer_that_comes_back_while_another_is_taken(device: Device) -> None:
    """The garbage collector may run in the middle of `take`. It must not wait for a lock that `take` has."""
    pool = BufferPool(most_bytes=100_000)
    buffer = pool.take(device, 1000)
    holder = arrays.DeviceBuffer(pool, device, buffer)
    with device.gate:
        del holder
        assert pool.bytes == 0
    assert pool.take(device, 1000) is buffer
    assert not pool._lent and pool.lent_bytes == 0


def test_many_buffers_that_come_back_do_not_pile_up(device: Device) -> None:
    pool = BufferPool(most_bytes=10_000_000)
    holders = [arrays.DeviceBuffer(pool, device, pool.take(device, 1000)) for _ in range(100)]
    taken = pool.lent_bytes
    del holders
    assert pool.bytes and len(pool._returned) <= 64
    pool.sort_in()
    assert (pool.bytes, pool.lent_bytes) == (taken, 0)


@pytest.mark.parametrize("most_bytes", [0, 1 << 28])
def test_arrays_that_live_to_the_end(most_bytes: int, device: Device) -> None:
    """Arrays in a module, a cycle, a thread and a class cause no output when the interpreter ends."""
    script = f"""
import threading
import numpy as np
import webnorm
from webnorm.calls import session

array = webnorm.GpuArray.from_numpy(np.ones((6, 40), np.float32))
out = webnorm.layer_norm(array, 40, return_stats=True)
cycle = [array, webnorm.rms_norm(array, 40)]
cycle.append(cycle)
webnorm.array = webnorm.rms_norm(array, 40)
webnorm.LayerNorm.array = webnorm.rms_norm(array, 40)
own = threading.local()
own.array = webnorm.rms_norm(array, 40)
for array in (out.y, webnorm.array):
    assert array.numpy().shape == (6, 40)
session.session_of(array.device).pool.most_bytes = {most_bytes}
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=HANG_S)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@pytest.mark.parametrize("size", [0, 1, 255, 4096, 100_000, 12_345_678])
def test_pooled_sizes(size: int, device: Device) -> None:
    """Sizes include the guard, are multiples of a vec4, and are not much larger than requested."""
    buffer = BufferPool(0).take(device, size)
    assert buffer.size % 16 == 0
    assert size + GUARD_BYTES <= buffer.size <= (size + GUARD_BYTES) * 1.125 + 16


def test_the_most_recent_values_are_kept() -> None:
    made: list[str] = []

    def value(name: str) -> str:
        made.append(name)
        return name.upper()

    recent: LRU[str] = LRU(2)
    for name in ("a", "b", "a", "c", "a", "b"):
        assert recent.get(name, lambda name=name: value(name)) == name.upper()  # type: ignore[misc]
    assert made == ["a", "b", "c", "b"] and len(recent) == 2


def test_a_device_takes_its_session_along(device: Device) -> None:
    own = open_device(device.adapter)
    webnorm.layer_norm(webnorm.GpuArray.from_numpy(normal(6, 40), own), 40)
    mine = weakref.ref(session.session_of(own))
    del own
    assert mine() is None


def test_a_float8_y_is_an_array_of_ml_dtypes(device: Device) -> None:
    out = webnorm.layer_norm(on_device(normal(6, 40)), 40, out_dtype="float8_e5m2")
    assert out.y.numpy().dtype == ml_dtypes.float8_e5m2


def kept(name: str) -> int:
    """Count the schedules or sets of bind groups in the default device's session."""
    return len(getattr(session.session_of(session.default_device()), name))


def test_a_repeated_call_makes_nothing_anew(device: Device) -> None:
    x, weight = on_device(normal(6, 40)), on_device(normal(40))
    bias = on_device(normal(40))

    def calls() -> None:
        for _ in range(5):
            y = webnorm.layer_norm(x, 40, weight, bias)
            webnorm.layer_norm_backward(y, x, 40, weight)

    calls()
    before, schedules, groups = objects(), kept("schedules"), kept("bindings")
    calls()
    assert objects() == before
    assert (kept("schedules"), kept("bindings")) == (schedules, groups)


def test_what_is_kept_has_bounds(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another number of rows needs another schedule, and other arrays need other bind groups.

    Results stay right.
    """
    own = open_device(device.adapter)
    mine = session.session_of(own)
    for cache, most in ((mine.schedules, 2), (mine.bindings, 3), (mine.programs, 1)):
        monkeypatch.setattr(cache, "most", most)
    for _ in range(2):
        for rows, cols in ((6, 40), (5, 40), (4, 44), (3, 40)):
            x = normal(rows, cols)
            arrays = [webnorm.GpuArray.from_numpy(x * factor, own) for factor in (1, 2)]
            answer = x / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True))
            for array in arrays:
                np.testing.assert_allclose(webnorm.rms_norm(array, cols).numpy(), answer, rtol=1e-5)
    # The program for the other number of columns left the cache with its schedules and their bind groups.
    assert (len(mine.schedules), len(mine.bindings), len(mine.programs)) == (1, 2, 1)


def test_what_is_not_kept_is_freed(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipelines take megabytes.

    Schedules and bind groups must not keep a removed program's pipelines alive.
    """
    own = open_device(device.adapter)
    monkeypatch.setattr(session.session_of(own).programs, "most", 3)
    before = objects()
    kinds = ("ShaderModule", "ComputePipeline", "PipelineLayout", "BindGroupLayout", "BindGroup")
    for cols in range(8, 24):
        for rows in (1, 2):
            webnorm.layer_norm(normal(rows, cols), cols, device=own)
    grown = {kind: objects()[kind] - before[kind] for kind in kinds}
    assert grown["ComputePipeline"] == grown["BindGroupLayout"] == 3
    assert max(grown["ShaderModule"], grown["PipelineLayout"]) <= 3 and grown["BindGroup"] <= 6


def test_a_program_in_use_is_kept(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    own = open_device(device.adapter)
    monkeypatch.setattr(session.session_of(own).programs, "most", 2)
    compiled: list[int] = []

    def counted(device: Device, shader: Shader) -> list[Pipeline]:
        compiled.append(shader.problem.cols)
        return compile_shader(device, shader)

    monkeypatch.setattr(session, "compile_shader", counted)
    for cols in (8, 9, 8, 10, 8, 11, 8):
        webnorm.layer_norm(normal(1, cols), cols, device=own)
    assert compiled == [8, 9, 10, 11]


def test_calls_that_share_a_schedule_differ_in_eps_and_scale(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test submits all calls before it reads the first result. Each result uses its own eps and scale."""
    # Other tests may have filled the cache of schedules.
    for kept_ones in ("schedules", "programs"):
        monkeypatch.setattr(getattr(session.session_of(session.default_device()), kept_ones), "most", 10_000)
    x = on_device(normal(6, 40))
    wanted = [(eps, scale) for eps in (1e-5, 1.0, 100.0) for scale in (1.0, 4.0)]
    given: list[dict[str, Any]] = [
        {"eps": eps, "scale": scale, "out_dtype": "float8_e4m3fn"} for eps, scale in wanted
    ]
    schedules = kept("schedules")
    outs = [webnorm.rms_norm(x, 40, **options) for options in given]
    assert kept("schedules") == schedules + 1
    for (eps, scale), out in zip(wanted, outs, strict=True):
        row = x.numpy().astype(np.float64)
        answer = row / np.sqrt((row**2).mean(1, keepdims=True) + eps)
        assert out.scale_inv.numpy() == np.float32(1 / scale)
        y = out.y.numpy().astype(np.float64) / scale
        np.testing.assert_allclose(y, answer, rtol=2.0**-4, atol=2.0**-9)


def test_arrays_that_change_places_are_bound_anew(device: Device) -> None:
    """The call uses the same buffers for other arguments."""
    x, dy, weight = (normal(6, 40) for _ in range(3))
    first, second, scale = on_device(x), on_device(dy), on_device(weight[0])
    for a, b, numpy_a, numpy_b in ((first, second, x, dy), (second, first, dy, x), (first, second, x, dy)):
        dx, *_ = webnorm.layer_norm_backward(a, b, 40, scale)
        answer, *_ = webnorm.layer_norm_backward(numpy_a, numpy_b, 40, weight[0])
        np.testing.assert_array_equal(dx.numpy(), answer)


def test_memory_that_is_let_go_is_freed(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """webnorm destroys a buffer that does not fit in the pool, although a cached bind group refers to it."""
    own = open_device(device.adapter)
    mine = session.session_of(own)
    x = webnorm.GpuArray.from_numpy(normal(64, 40), own)
    destroyed = []
    monkeypatch.setattr(type(x.buffer), "destroy", lambda buffer: destroyed.append(buffer.uid))
    webnorm.rms_norm(x, 40)
    uid = x.buffer.uid
    assert len(mine.bindings) == 1 and uid not in destroyed
    monkeypatch.setattr(mine.pool, "most_bytes", 0)
    del x
    assert uid in destroyed


def test_parameters_that_share_a_buffer_are_copied_each_time(device: Device) -> None:
    """All options together need more buffers than a pass may bind."""
    for _ in range(3):
        x, dy = normal(6, 40), normal(6, 40)
        vectors: dict[str, Any] = {name: normal(40) for name in ("weight", "bias", "residual_bias")}
        options: dict[str, Any] = {"residual": dy, "return_stats": True, "out_dtype": "float8_e5m2"}
        here: dict[str, Any] = {name: on_device(vector) for name, vector in vectors.items()}
        got = webnorm.layer_norm(on_device(x), 40, **here, **{**options, "residual": on_device(dy)})
        answer = webnorm.layer_norm(x, 40, **vectors, **options)
        plain = webnorm.layer_norm(answer.h, 40, vectors["weight"], vectors["bias"])
        np.testing.assert_allclose(answer.y.astype(np.float32), plain, rtol=2.0**-2, atol=2.0**-4)
        np.testing.assert_array_equal(got.y.numpy().view(np.uint8), answer.y.view(np.uint8))


@pytest.mark.parametrize("staged", [8, 24, 104, 1 << 20])
def test_arrays_are_read_piece_by_piece(staged: int, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_STAGED_BYTES", staged)
    given = [normal(5, 3, dtype="float16"), normal(0, 7), normal(26), np.arange(3, dtype=np.int8)]
    here = [on_device(array) for array in given]
    sources = [(array.buffer, array.shape, array.dtype) for array in here]
    owner = here[0].device
    back = pool.read_buffers(owner, session.session_of(owner).staging, sources)
    for one, answer in zip(back, given, strict=True):
        assert one.dtype == answer.dtype
        np.testing.assert_array_equal(one, answer)


def test_a_read_that_breaks_off_spoils_no_other(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C arrives during the device's work. webnorm does not use the buffer again that it was mapping."""
    array = normal(6, 40)
    here = on_device(array)
    here.numpy()
    buffers = type(here.buffer)
    honest = buffers.map_sync

    def interrupted(self: Any, *arguments: Any) -> None:
        self.map_async(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(buffers, "map_sync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        here.numpy()
    monkeypatch.setattr(buffers, "map_sync", honest)
    np.testing.assert_array_equal(here.numpy(), array)


def test_threads_that_share_a_schedule(device: Device) -> None:
    """Each thread has its own eps and its own arrays."""
    x = normal(6, 40)
    answers = {eps: webnorm.rms_norm(x, 40, eps=eps) for eps in (0.5, 1.0, 2.0, 4.0)}
    wrong: list[object] = []

    def work(eps: float) -> None:
        try:
            for _ in range(20):
                y = webnorm.rms_norm(on_device(x), 40, eps=eps).numpy()
                if not np.array_equal(y, answers[eps]):
                    wrong.append(eps)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(eps,)) for eps in answers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
