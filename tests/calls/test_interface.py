"""Mistakes of callers raise one-line errors, and unusual but valid arguments work."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import webnorm
from odd import ODD, normal, refusal_of
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.kernels.headers.traits import BROWSER
from webnorm.op.dtypes import Array
from webnorm.ops.norms import resolved

pytestmark = pytest.mark.opengl

CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any], tuple[str, ...]]] = {
    "layer_norm": (
        webnorm.layer_norm,
        {"x": normal(2, 40), "normalized_shape": 40},
        (
            "weight",
            "bias",
            "eps",
            "residual",
            "residual_bias",
            "zero_centered_weight",
            "weight_offset",
            "rounding",
            "return_stats",
            "out_dtype",
            "scale",
            "scale_block",
            "max_workgroups",
            "kernel",
            "device",
        ),
    ),
    "rms_norm_backward": (
        webnorm.rms_norm_backward,
        {"dy": normal(2, 40), "x": normal(2, 40), "normalized_shape": 40},
        (
            "weight",
            "eps",
            "stats",
            "dh",
            "zero_centered_weight",
            "weight_offset",
            "bias_grad",
            "residual_bias_grad",
            "max_workgroups",
            "kernel",
            "device",
        ),
    ),
    "LayerNorm": (
        webnorm.LayerNorm,
        {"normalized_shape": 40},
        (
            "eps",
            "elementwise_affine",
            "bias",
            "zero_centered_weight",
            "dtype",
            "device",
            "weight_offset",
            "rounding",
        ),
    ),
    "RMSNorm": (
        webnorm.RMSNorm,
        {"normalized_shape": 40},
        ("eps", "elementwise_affine", "zero_centered_weight", "dtype", "device", "weight_offset", "rounding"),
    ),
    "forward": (lambda x: webnorm.LayerNorm(40)(x), {"x": normal(2, 40)}, ()),
    "evaluated": (lambda x: webnorm.RMSNorm(40).eval()(x), {"x": normal(2, 40)}, ()),
    "backward": (lambda dy: backward(dy), {"dy": normal(2, 40)}, ()),
    "train": (lambda mode: webnorm.LayerNorm(40).train(mode), {"mode": True}, ()),
    "load_state_dict": (lambda state: webnorm.LayerNorm(40).load_state_dict(state), {"state": {}}, ()),
    "a state's value": (
        lambda value: webnorm.RMSNorm(40).load_state_dict({"weight": value}),
        {"value": normal(40)},
        (),
    ),
    "a state's key": (
        lambda key: webnorm.RMSNorm(40).load_state_dict({"weight": normal(40), key: normal(40)}),
        {"key": "weight"},
        (),
    ),
    "a weight": (lambda weight: with_weight(weight)(normal(2, 40)), {"weight": normal(40)}, ()),
    "layer_normalization": (
        webnorm.layer_normalization,
        {"X": normal(2, 40), "Scale": normal(40)},
        ("B", "axis", "epsilon", "stash_type"),
    ),
    "rms_normalization": (
        webnorm.rms_normalization,
        {"X": normal(2, 40), "scale": normal(40)},
        ("axis", "epsilon", "stash_type"),
    ),
    "from_numpy": (webnorm.GpuArray.from_numpy, {"array": normal(2, 40)}, ("device",)),
    "reshape": (lambda shape: webnorm.GpuArray.from_numpy(normal(2, 40)).reshape(shape), {"shape": 80}, ()),
    "split": (lambda sizes: webnorm.GpuArray.from_numpy(normal(80)).split(sizes), {"sizes": [40]}, ()),
    "find_adapter": (webnorm.find_adapter, {}, ("choice",)),
    "open_device": (webnorm.open_device, {}, ("adapter", "limits", "without")),
    "a limit": (lambda limit: webnorm.open_device(limits={"max-buffer-size": limit}), {"limit": 1 << 20}, ()),
}


def backward(dy: Any) -> Any:
    module = webnorm.LayerNorm(40)
    module(normal(2, 40))
    return module.backward(dy)


def with_weight(weight: Any) -> Any:
    module = webnorm.RMSNorm(40)
    module.weight = weight
    return module


# Values that no argument accepts.
NEVER = {
    "negative",
    "nan",
    "complex",
    "long text",
    "bytes",
    "nested",
    "dict",
    "range",
    "endless",
    "class",
    "function",
    "hostile",
    "zero-dimensional",
    "objects",
    "words",
    "dates",
    "records",
    "complex array",
    "doubles",
    "swapped",
    "masked",
}
FLAGS = ("return_stats", "bias_grad", "residual_bias_grad", "elementwise_affine", "mode")


@pytest.mark.parametrize("name", CALLS)
def test_every_argument_says_what_it_takes(name: str, device: Device) -> None:
    function, right, more = CALLS[name]
    for argument in (*right, *more):
        flag = argument in FLAGS or (name, argument) == ("LayerNorm", "bias")
        for kind, value in ODD.items():
            if name == "a state's key" and getattr(type(value), "__hash__", None) is None:
                continue
            said = refusal_of(lambda: function(**{**right, argument: value}))  # noqa: B023
            if argument == "weight_offset" and kind == "negative":
                continue
            if kind in NEVER or (flag and kind not in ("true", "numpy truth")):
                assert said is not None, (name, argument, kind)
            if flag and kind in ("true", "numpy truth"):
                assert said is None, (name, argument, kind)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: webnorm.GpuArray.from_numpy(normal(2), "llvmpipe"),  # type: ignore[arg-type]
            "device is 'llvmpipe'; expected one from",
        ),
        (lambda: webnorm.LayerNorm(8, bias=None), "bias is None; expected True or False"),  # type: ignore[arg-type]
        (lambda: webnorm.LayerNorm(8).load_state_dict(None), "state is None; expected a mapping"),  # type: ignore[arg-type]
        (
            lambda: webnorm.LayerNorm(8, eps=-1.0),
            "eps is -1.0; expected 0 or a number from",
        ),
        (lambda: webnorm.LayerNorm(8, eps=float("nan")), "eps is nan; expected"),
        (lambda: webnorm.LayerNorm(True), "normalized_shape is True; expected an int"),
        (lambda: webnorm.LayerNorm(2**50), "normalized_shape is (1125899906842624,): "),
        (
            lambda: webnorm.layer_norm(normal(2, 8), 8, normal(8).astype("f8")),
            "dtype float64; expected float32",
        ),
        (
            lambda: webnorm.layer_norm(normal(2, 8), 8, residual=normal(2, 8).astype("f8")),
            "residual has dtype float64; expected float32",
        ),
        (
            lambda: webnorm.layer_normalization(normal(2, 8), np.ones(8)),
            "Scale has dtype float64; expected float32, float16, bfloat16: cast it",
        ),
        (
            lambda: webnorm.layer_norm(np.broadcast_to(np.float32(1), (1 << 20, 1 << 20)), 1 << 20),
            "this device's largest buffer",
        ),
        (
            lambda: webnorm.layer_norm_backward(
                np.empty((0, 1 << 48), np.float32), np.empty((0, 1 << 48), np.float32), 1 << 48
            ),
            "Unable to allocate",
        ),
        (
            lambda: webnorm.GpuArray.from_numpy(normal(4)).split([2, 3]),
            "expected ints of 0 or more that add up to 4 at most",
        ),
        (
            lambda: webnorm.GpuArray.from_numpy(normal(4, dtype="float16")).split([1]),
            "expected multiples of 4 bytes in float16",
        ),
        (lambda: webnorm.GpuArray.from_numpy(normal(4)).reshape(True, 4), "expected ints"),
        (lambda: pickle.dumps(webnorm.GpuArray.from_numpy(normal(4))), "pickle its numpy() instead"),
        (lambda: pickle.dumps(webnorm.open_device()), "a device belongs to its process"),
        (lambda: webnorm.open_device(limits={"max-bufer-size": 1}), "did you mean 'max-buffer-size'"),
        (lambda: webnorm.open_device(limits={"max-buffer-size": 1 << 60}), "cannot open the device"),
        (lambda: webnorm.find_adapter("²"), "no adapter '²'; available: 0"),
    ],
)
def test_mistakes_by_name(call: Callable[[], Any], message: str, device: Device) -> None:
    said = refusal_of(call)
    assert said is not None and message in said, said
    assert "\\n" not in said, said  # messages of other software may have several lines


@pytest.mark.parametrize("name", ["x.wgsl", "binary.wgsl", "empty.wgsl", "nul\0.wgsl", "l" * 300 + ".wgsl"])
def test_a_file_that_is_no_kernel(name: str, tmp_path: Path, device: Device) -> None:
    (tmp_path / "x.wgsl").mkdir()
    (tmp_path / "binary.wgsl").write_bytes(bytes(range(256)))
    (tmp_path / "empty.wgsl").touch()
    assert refusal_of(lambda: webnorm.layer_norm(normal(2, 8), 8, kernel=f"{tmp_path}/{name}")) is not None


def test_arrays_of_every_kind(device: Device) -> None:
    """Arrays may have any memory layout and any class."""
    x, weight = normal(6, 40), normal(40)
    answer = webnorm.layer_norm(x, 40, weight)
    frozen = x.copy()
    frozen.setflags(write=False)
    kinds: dict[str, Array] = {
        "read-only": frozen,
        "columns first": np.asfortranarray(x),
        "strided": np.repeat(x, 2, axis=1)[:, ::2],
        "backwards": x[::-1, ::-1].copy()[::-1, ::-1],
        "foreign memory": np.frombuffer(x.tobytes(), np.float32).reshape(6, 40),
        "unaligned": np.frombuffer(b"." + x.tobytes(), np.float32, offset=1).reshape(6, 40),
        "own class": x.view(type("Own", (np.ndarray,), {})),
    }
    for kind, array in kinds.items():
        np.testing.assert_array_equal(webnorm.layer_norm(array, 40, weight), answer, err_msg=kind)
        here = webnorm.GpuArray.from_numpy(array)
        np.testing.assert_array_equal(webnorm.layer_norm(here, 40, weight).numpy(), answer, err_msg=kind)
    # Several rows share memory, and one array is in several places.
    windows = np.lib.stride_tricks.sliding_window_view(normal(60), 40)
    np.testing.assert_array_equal(webnorm.layer_norm(windows, 40), webnorm.layer_norm(windows.copy(), 40))
    here = webnorm.GpuArray.from_numpy(x)
    once = webnorm.layer_norm_backward(here, here, 40, dh=here)[0].numpy()
    np.testing.assert_array_equal(once, webnorm.layer_norm_backward(x, x.copy(), 40, dh=x.copy())[0])
    both = webnorm.rms_norm(here, 40, residual=here)
    assert both.h is not None
    np.testing.assert_array_equal(both.h.numpy(), x + x)


def test_numbers_of_every_kind(device: Device) -> None:
    x = normal(6, 40)
    answer = webnorm.layer_norm(x, 40, eps=0.25, max_workgroups=2)
    kinds: list[Any] = [(np.float32(0.25), np.int8(2)), (np.float16(0.25), np.uint64(2)), (0.25, 2)]
    for eps, most in kinds:
        np.testing.assert_array_equal(webnorm.layer_norm(x, 40, eps=eps, max_workgroups=most), answer)
    for most in (2**31, 2**40, 2**70):
        capped = webnorm.layer_norm(x, 40, eps=0.25, max_workgroups=most)
        np.testing.assert_allclose(capped, answer, rtol=1e-5, atol=1e-6)
    for shape in ((40,), [40], np.array([40]), np.int16(40)):
        np.testing.assert_array_equal(webnorm.layer_norm(x, shape, eps=0.25), answer)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [webnorm.LayerNorm, webnorm.RMSNorm])
def test_a_module_is_copied_at_any_time(kind: Any, device: Device) -> None:
    x = webnorm.GpuArray.from_numpy(normal(6, 40), device)
    module = kind(40, device=device)
    module.weight = normal(40)
    answer = copy.deepcopy(module).eval()(x).numpy()
    for step in (lambda: None, lambda: module(x), lambda: module.backward(x), module.eval):
        step()
        for made in (pickle.loads(pickle.dumps(module)), copy.deepcopy(module)):
            assert isinstance(made, kind) and made.training == module.training
            np.testing.assert_array_equal(made.weight, module.weight)
            assert made.weight is not module.weight
            with pytest.raises(webnorm.WebnormError, match="backward needs the values that forward saves"):
                made.backward(x)
            np.testing.assert_array_equal(made.eval()(x.numpy()), answer)
    assert copy.deepcopy(module).device is device
    assert pickle.loads(pickle.dumps(module)).device is None
    module.weight = webnorm.GpuArray.from_numpy(normal(40), device)
    assert isinstance(pickle.loads(pickle.dumps(module)).weight, np.ndarray)


def test_copies_of_values_on_a_device(device: Device) -> None:
    here = webnorm.GpuArray.from_numpy(normal(4))
    assert copy.copy(here) is here and copy.copy(device) is copy.deepcopy(device) is device


def test_a_snippet_of_a_kernel_by_path_that_was_edited(tmp_path: Path, device: Device) -> None:
    own = tmp_path / "layer_norm" / "own.wgsl"
    own.parent.mkdir()
    text = (wgsl_root() / "layer_norm" / "naive.wgsl").read_text()
    factor = '{% include "lib/factor.wgsl" %}\n'
    (tmp_path / "lib").mkdir()
    snippet = tmp_path / "lib" / "factor.wgsl"
    snippet.write_text("const FACTOR = 1.0;\n")
    assert ") * rstd, j" in text and "@compute" in text
    text = text.replace(") * rstd, j", ") * rstd * FACTOR, j").replace("@compute", factor + "@compute", 1)
    own.write_text(text)
    x = normal(6, 40)
    before = webnorm.layer_norm(x, 40, kernel=own, device=device)
    snippet.write_text("const FACTOR = 16.0;\n")
    np.testing.assert_array_equal(webnorm.layer_norm(x, 40, kernel=own, device=device), 16.0 * before)


# The lab's own types and functions, and valid values for each parameter.
NAIVE = webnorm.select(webnorm.discover(), "naive")
PROBLEM = webnorm.Problem(rows=2, cols=40)
VARIANT = webnorm.default_variant(NAIVE, PROBLEM, BROWSER)
SHADER = webnorm.render_shader(VARIANT, PROBLEM, "browser", BROWSER)
LAB: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "Options": (webnorm.Options, vars(webnorm.Options())),
    "Problem": (webnorm.Problem, {one.name: getattr(PROBLEM, one.name) for one in fields(PROBLEM)}),
    "discover": (webnorm.discover, {"extra": ()}),
    "select": (webnorm.select, {"kernels": (NAIVE,), "name": "naive", "op": "layer_norm"}),
    "all_variants": (lambda kernel: list(webnorm.all_variants(kernel)), {"kernel": NAIVE}),
    "default_variant": (webnorm.default_variant, {"kernel": NAIVE, "problem": PROBLEM, "traits": BROWSER}),
    "runnable_variants": (
        lambda **given: list(webnorm.runnable_variants(**given)),
        {"kernel": NAIVE, "problem": PROBLEM, "traits": BROWSER},
    ),
    "render_shader": (
        webnorm.render_shader,
        {"variant": VARIANT, "problem": PROBLEM, "target": "browser", "traits": BROWSER, "roots": ()},
    ),
    "tolerance": (webnorm.tolerance, {"shader": SHADER}),
    "make_inputs": (webnorm.make_inputs, {"op": NAIVE.op, "problem": PROBLEM}),
}


@pytest.mark.parametrize("name", LAB)
def test_the_labs_own_parts_take_no_odd_values(name: str) -> None:
    call, right = LAB[name]
    call(**right)
    for parameter, value in right.items():
        if type(value) is bool:
            wrong = {kind: one for kind, one in ODD.items() if kind not in ("true", "numpy truth")}
        else:
            wrong = ODD
        for kind, one in wrong.items():
            said = refusal_of(lambda given={**right, parameter: one}: call(**given))  # type: ignore[misc]
            if type(value) is bool or kind in ("function", "hostile", "bytes"):
                assert said is not None, (parameter, kind)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: webnorm.discover(["hk"]), "one of extra is 'hk'; expected a Path"),  # type: ignore[list-item]
        (lambda: webnorm.select((NAIVE,), 5), "name is 5; expected a text"),  # type: ignore[arg-type]
        (lambda: webnorm.tolerance(None), "shader is None; expected a Shader"),  # type: ignore[arg-type]
        (
            lambda: webnorm.Problem(rows="a", cols=None),  # type: ignore[arg-type]
            "rows is 'a'; expected an int",
        ),
        (lambda: webnorm.Problem(rows=1, cols=1, options=None), "options is None; expected Options"),  # type: ignore[arg-type]
        (lambda: webnorm.Options(weight="x"), "weight is 'x'; expected True or False"),  # type: ignore[arg-type]
        (lambda: webnorm.Options(out_dtype=5), "out_dtype is 5; expected a string, or None"),  # type: ignore[arg-type]
        (
            lambda: webnorm.make_inputs(NAIVE.op, webnorm.Problem(rows=10**6, cols=10**9)),
            "the inputs of 1000000x1000000000 float32 do not fit in memory; choose smaller sizes",
        ),
    ],
)
def test_mistakes_in_the_lab(call: Callable[[], Any], message: str) -> None:
    said = refusal_of(call)
    assert said is not None and message in said


def test_a_buffer_of_a_lost_device(device: Device) -> None:
    own = webnorm.open_device(device.adapter)
    own.handle.destroy()
    assert (
        refusal_of(lambda: own.create_buffer(16))
        == "the device is lost; open another with webnorm.open_device"
    )


def test_equal_arguments_of_other_types_are_checked_again(device: Device) -> None:
    """webnorm checks equal arguments once, but 1, 1.0 and True are different arguments."""
    x, row = np.ones((2, 1), np.float32), np.ones(1, np.float32)
    right: dict[str, Any] = {"normalized_shape": 1, "eps": 1, "max_workgroups": 1, "return_stats": 1}
    wrong: dict[str, list[Any]] = {
        "normalized_shape": [True, (True,), 1.0],
        "eps": [True],
        "max_workgroups": [True, 1.0],
        "return_stats": [1.0],
        "weight": [np.ma.masked_array(row), row.astype(np.float16), np.ones(2, np.float32), [1.0]],
        "residual": [np.ones((1, 1), np.float32)],
    }
    right |= {"weight": row, "residual": x}
    first = webnorm.layer_norm(x, device=device, **right)
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(WebnormError, match=f"^{name} "):
                webnorm.layer_norm(x, device=device, **right | {name: value})
    again = webnorm.layer_norm(x, device=device, **right)
    np.testing.assert_array_equal(first.y, again.y)


def test_the_cache_of_resolved_calls_has_a_bound(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolved, "MOST_KNOWN", 4)
    monkeypatch.setattr(resolved, "_known", {})
    check, checked = resolved.checked, []

    def counting(*what: Any) -> Any:
        checked.append(what)
        return check(*what)

    monkeypatch.setattr(resolved, "checked", counting)
    x = np.ones((3, 4), np.float32)
    for _ in range(3):
        webnorm.rms_norm(x, 4, device=device)
    assert len(checked) == 1
    for rows in range(1, 12):
        webnorm.rms_norm(x[:1].repeat(rows, axis=0), 4, device=device)
        assert len(resolved._known) <= 4
    # Calls with another shape, or with another number of dimensions, still work.
    assert len(checked) == 11
    assert webnorm.rms_norm(x.reshape(3, 1, 2, 2), (2, 2), device=device).shape == (3, 1, 2, 2)
    assert webnorm.rms_norm(x, 4, device=device).shape == (3, 4)


def test_the_cache_of_resolved_calls_contains_no_array(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolved, "_known", {})
    x = webnorm.GpuArray.from_numpy(np.ones((3, 4), np.float32), device)
    # NumPy accepts an array as a dtype, and uses the array's own dtype.
    webnorm.layer_norm(x, 4, out_dtype=x)  # type: ignore[call-overload]
    webnorm.layer_norm(x, 4)
    assert len(resolved._known) == 1
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None
