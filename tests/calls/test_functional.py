"""The drop-in functions on NumPy arrays."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import webnorm
from webnorm.calls import session
from webnorm.gpu.device import Device
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.kernels.rendering.render import Shader
from webnorm.lab.verify.accuracy import assess
from webnorm.op.dtypes import DTYPES, Array, finfo
from webnorm.op.op import Task, make_inputs
from webnorm.op.registry import OPS
from webnorm.ops.norms.problem import NormOptions, NormProblem

pytestmark = pytest.mark.opengl

RNG = np.random.default_rng(0)
FORWARD: dict[str, Callable[..., Any]] = {"layer_norm": webnorm.layer_norm, "rms_norm": webnorm.rms_norm}
BACKWARD: dict[str, Callable[..., Any]] = {
    "layer_norm_backward": webnorm.layer_norm_backward,
    "rms_norm_backward": webnorm.rms_norm_backward,
}


def normal(*shape: int, dtype: str = "float32") -> Array:
    return RNG.standard_normal(shape).astype(DTYPES[dtype])


def expected(
    op: str, arrays: dict[str, Array], shape: Sequence[int], eps: float, **options: Any
) -> dict[str, Array]:
    """Compute the op in float64 on arrays of any shape; the outputs have rows and columns."""
    cols = int(np.prod(shape))
    flat = {
        name: array.reshape(-1, cols) if array.ndim > len(shape) else array.reshape(-1)
        for name, array in arrays.items()
    }
    flat["x"] = arrays["x"].reshape(-1, cols)
    given = NormOptions(weight="weight" in arrays, bias="bias" in arrays or "bias" in options)
    options.pop("bias", None)
    problem = NormProblem(
        rows=len(flat["x"]),
        cols=cols,
        dtype=arrays["x"].dtype.name,
        eps=eps,
        distribution="given",
        options=replace(given, **options),
    )
    return {name: answer.value for name, answer in OPS[op].reference(flat, problem).items()}


@pytest.mark.parametrize("op", FORWARD)
@pytest.mark.parametrize(
    ("shape", "normalized"),
    [
        ((96,), 96),
        ((4, 96), (96,)),
        ((2, 3, 4), np.int64(4)),
        ((2, 3, 4), (3, 4)),
        ((2, 3, 4), (2, 3, 4)),
        ((5, 1, 12), [12]),
    ],
)
def test_shapes(op: str, shape: tuple[int, ...], normalized: Any, device: Device) -> None:
    x = normal(*shape)
    trailing = tuple(normalized) if isinstance(normalized, list | tuple) else (int(normalized),)
    weight, bias = normal(*trailing), normal(*trailing)
    y = FORWARD[op](x, normalized, weight, bias=bias, eps=1e-3)
    answer = expected(op, {"x": x, "weight": weight, "bias": bias}, trailing, 1e-3)["y"].reshape(shape)
    assert y.shape == shape and y.dtype == np.float32
    np.testing.assert_allclose(y, answer, rtol=1e-5, atol=1e-5)


def test_default_eps(device: Device) -> None:
    x = normal(3, 12) * 1e-3
    np.testing.assert_allclose(
        webnorm.layer_norm(x, 12), expected("layer_norm", {"x": x}, (12,), 1e-5)["y"], atol=1e-6
    )
    for dtype in ("float32", "float16", "bfloat16"):
        rounded = x.astype(DTYPES[dtype])
        roundoff = float(finfo(dtype).eps)
        eps = OPS["rms_norm"].scalars["eps"]
        np.testing.assert_allclose(
            webnorm.rms_norm(rounded, 12).astype(np.float64),
            expected("rms_norm", {"x": rounded}, (12,), eps)["y"],
            rtol=roundoff,
            atol=1e-6,
        )


def shader_of(op: str, problem: NormProblem) -> Shader:
    """Return the shader with which a call computes the problem."""
    device = session.default_device()
    mine = session.session_of(device)
    schedule = mine.schedule(device, mine.wanted(device, Task(OPS[op], problem), None))
    return replace(schedule.shader, problem=problem)


# Other requested outputs, in every storage type. Each needs one or two compilations.
FORWARD_OPTIONS: dict[str, tuple[str, NormOptions, float]] = {
    "stats": ("float32", NormOptions(return_stats=True), 1.0),
    "residual": ("float16", NormOptions(residual=True, weight_dtype="float32"), 1.0),
    "residual-bias": ("bfloat16", NormOptions(residual=True, residual_bias=True, return_stats=True), 1.0),
    "zero-centered": ("bfloat16", NormOptions(zero_centered_weight=True, weight_dtype="float32"), 1.0),
    "weight-offset": ("float16", NormOptions(weight_offset=-0.375), 1.0),
    "residual-float32": ("float16", NormOptions(residual=True, residual_dtype="float32"), 1.0),
    "residual-narrow": ("float32", NormOptions(residual=True, residual_dtype="bfloat16"), 1.0),
    "int8-blocks": ("float16", NormOptions(out_dtype="int8", scale_block=32), 1.0),
    "rounding": ("bfloat16", NormOptions(rounding="before_weight"), 1.0),
    "float8_e4m3fn": ("float16", NormOptions(out_dtype="float8_e4m3fn"), 8.0),
    "float8_e5m2": ("float32", NormOptions(out_dtype="float8_e5m2", bias=False), 0.5),
    "int8": ("bfloat16", NormOptions(out_dtype="int8"), 1.0),
    "wider": ("float16", NormOptions(out_dtype="float32"), 1.0),
    "capped": ("float32", NormOptions(max_workgroups=2), 1.0),
}


@pytest.mark.parametrize("op", FORWARD)
@pytest.mark.parametrize("name", FORWARD_OPTIONS)
def test_options(op: str, name: str, device: Device) -> None:
    """Every option reaches the kernel: the outputs match the float64 answers within the lab's tolerance."""
    dtype, options, scale = FORWARD_OPTIONS[name]
    problem = NormProblem(rows=6, cols=40, dtype=dtype, eps=1e-4, scale=scale, options=options)
    arrays = make_inputs(OPS[op], problem)
    vectors = ("weight", "bias", "residual_bias")
    given = {n: a.reshape(8, 5) if n in vectors else a.reshape(2, 3, 8, 5) for n, a in arrays.items()}
    found: Any = FORWARD[op](
        given.pop("x"),
        (8, 5),
        **given,
        eps=1e-4,
        zero_centered_weight=options.zero_centered_weight,
        weight_offset=options.weight_offset,
        rounding=options.rounding,
        return_stats=options.return_stats,
        out_dtype=options.out_dtype and DTYPES[options.out_dtype],
        scale=scale,
        scale_block=options.scale_block,
        max_workgroups=options.max_workgroups,
    )
    alone = options.out_dtype in (None, "float32") and not (options.return_stats or options.residual)
    assert isinstance(found, np.ndarray if alone else webnorm.NormOutput)
    output = found if isinstance(found, webnorm.NormOutput) else webnorm.NormOutput(found)
    got = {"y": output.y.reshape(6, 40)}
    assert output.y.shape == (2, 3, 8, 5) and output.y.dtype == DTYPES[problem.out_dtype]
    assert (output.h is not None) == options.residual
    assert (output.stats is not None) == options.return_stats
    assert (output.y_scale is not None) == (options.out_dtype == "int8")
    assert (output.amax is not None) == (output.scale_inv is not None) == ("float8" in name)
    if output.h is not None:
        assert output.h.shape == (2, 3, 8, 5)
        got["h"] = output.h.reshape(6, 40)
    if output.stats is not None:
        width = 3 if op == "layer_norm" else 1
        assert output.stats.shape == (2, 3, width)
        assert output.rstd is not None and output.rstd.shape == (2, 3)
        got["stats"] = output.stats.reshape(6, width)
        assert (output.mean is None) == (output.mean_low is None) == (op == "rms_norm")
        np.testing.assert_array_equal(output.rstd.ravel(), got["stats"][:, -1])
    if output.y_scale is not None:
        assert output.y_scale.shape == ((2, 3, 2) if options.scale_block else (2, 3))
        got["y_scale"] = output.y_scale.reshape(6, -1)
    if output.amax is not None and output.scale_inv is not None:
        assert output.amax.shape == output.scale_inv.shape == (1,)
        got["amax"] = np.concatenate([output.amax, output.scale_inv])
    known = {"h": got["h"]} if "h" in got else {}
    answers = OPS[op].reference({**arrays, **known}, problem)
    shader = shader_of(op, problem)
    accuracy = assess({n: (a, True) for n, a in got.items()}, answers, shader)
    assert accuracy.ok, accuracy.worst


BACKWARD_OPTIONS: dict[str, tuple[str, NormOptions]] = {
    "plain": ("float32", NormOptions(bias=False)),
    "saved": ("bfloat16", NormOptions(saved_stats=True, weight_dtype="float32")),
    "all": (
        "float16",
        NormOptions(
            saved_stats=True, dh=True, residual_bias=True, zero_centered_weight=True, max_workgroups=3
        ),
    ),
    "no-weight": ("float32", NormOptions(weight=False, bias=False, dh=True)),
    "weight-offset": ("bfloat16", NormOptions(weight_offset=-0.375)),
}


@pytest.mark.parametrize("op", BACKWARD)
@pytest.mark.parametrize("name", BACKWARD_OPTIONS)
def test_gradients(op: str, name: str, device: Device) -> None:
    dtype, options = BACKWARD_OPTIONS[name]
    problem = NormProblem(rows=6, cols=40, dtype=dtype, eps=1e-4, options=options)
    arrays = make_inputs(OPS[op], problem)
    shapes = {"weight": (8, 5), "stats": (2, 3, 3 if op == "layer_norm_backward" else 1)}
    given = {n: a.reshape(shapes.get(n, (2, 3, 8, 5))) for n, a in arrays.items()}
    found = BACKWARD[op](
        given.pop("dy"),
        given.pop("x"),
        (8, 5),
        given.pop("weight", None),
        **given,
        eps=1e-4,
        zero_centered_weight=options.zero_centered_weight,
        weight_offset=options.weight_offset,
        bias_grad=options.bias,
        residual_bias_grad=options.residual_bias,
        max_workgroups=options.max_workgroups,
    )
    names = ["dx", "dweight"]
    names += ["dbias"] if options.bias or op == "layer_norm_backward" else []
    names += ["dresidual_bias"] if options.residual_bias else []
    assert len(found) == len(names)
    got = dict(zip(names, found, strict=True))
    assert (got["dweight"] is None) == (not options.weight)
    if op == "layer_norm_backward":
        assert (got["dbias"] is None) == (not options.bias)
    assert got["dx"].shape == (2, 3, 8, 5)
    flat = {n: a.reshape(6, 40) if n == "dx" else a.reshape(40) for n, a in got.items() if a is not None}
    assert all(a.dtype == DTYPES[dtype if n == "dx" else problem.weight_dtype] for n, a in flat.items())
    shader = shader_of(op, problem)
    accuracy = assess({n: (a, True) for n, a in flat.items()}, OPS[op].reference(arrays, problem), shader)
    assert accuracy.ok, accuracy.worst


def test_a_zero_centred_weight_is_an_offset_of_1(device: Device) -> None:
    x, dy, weight = normal(6, 40), normal(6, 40), normal(40)
    both: tuple[dict[str, Any], ...] = ({"zero_centered_weight": True}, {"weight_offset": 1})
    y, same = (webnorm.layer_norm(x, 40, weight, **given) for given in both)
    np.testing.assert_array_equal(y, same)
    for pair in zip(
        *(webnorm.layer_norm_backward(dy, x, 40, weight, **given) for given in both), strict=True
    ):
        np.testing.assert_array_equal(*pair)


def test_forward_and_backward_go_together(device: Device) -> None:
    """Saved and recomputed statistics give the same gradients; dx is the gradient of h."""
    x, residual, dy, weight = normal(6, 40), normal(6, 40), normal(6, 40), normal(40)
    out = webnorm.layer_norm(x, 40, weight, residual=residual, return_stats=True)
    assert out.h is not None
    np.testing.assert_array_equal(out.h, x + residual)
    saved = webnorm.layer_norm_backward(dy, out.h, 40, weight, stats=out.stats)
    for got, anew in zip(saved, webnorm.layer_norm_backward(dy, out.h, 40, weight), strict=True):
        assert got is not None and anew is not None
        np.testing.assert_allclose(got, anew, rtol=1e-5, atol=1e-5)


def test_arrays_that_are_not_contiguous(device: Device) -> None:
    x, weight = normal(6, 40), normal(80)
    np.testing.assert_array_equal(webnorm.layer_norm(np.asfortranarray(x), 40), webnorm.layer_norm(x, 40))
    np.testing.assert_array_equal(webnorm.layer_norm(x[::2], 40), webnorm.layer_norm(x[::2].copy(), 40))
    np.testing.assert_array_equal(
        webnorm.rms_norm(x, 40, weight[::2]), webnorm.rms_norm(x, 40, weight[::2].copy())
    )


def test_results_are_the_callers(device: Device) -> None:
    x = normal(6, 40)
    first = webnorm.layer_norm(x, 40)
    kept = first.copy()
    webnorm.layer_norm(x + 1.0, 40)
    np.testing.assert_array_equal(first, kept)
    first += 1.0


def test_no_rows_need_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "open_device", lambda: pytest.fail("opened a device"))
    monkeypatch.setattr(session, "default_device", lambda: pytest.fail("opened a device"))
    assert webnorm.layer_norm(np.empty((0, 8), np.float32), 8).shape == (0, 8)
    out = webnorm.rms_norm(
        np.empty((3, 0, 8), np.float16), 8, out_dtype="float8_e5m2", scale=2.0, return_stats=True
    )
    assert out.stats is not None and out.amax is not None and out.scale_inv is not None
    assert out.y.shape == (3, 0, 8) and out.y.dtype == ml_dtypes.float8_e5m2 and out.stats.shape == (3, 0, 1)
    assert out.amax.tolist() == [0.0] and out.scale_inv.tolist() == [0.5]
    nothing = np.empty((0, 8), np.float32)
    dx, dweight, dbias = webnorm.layer_norm_backward(nothing, nothing, 8, np.ones(8, np.float32))
    assert dweight is not None and dbias is not None
    assert (
        dx.shape == (0, 8) and not dweight.any() and not dbias.any() and dweight.shape == dbias.shape == (8,)
    )


def test_long_rows_take_another_kernel(device: Device) -> None:
    x = normal(2, 70000)
    answer = expected("layer_norm", {"x": x}, (70000,), 1e-5)["y"]
    np.testing.assert_allclose(webnorm.layer_norm(x, 70000), answer, atol=2e-5)


def test_a_kernel_by_name_or_path(device: Device, tmp_path: Path) -> None:
    x = normal(6, 40)
    answer = expected("layer_norm", {"x": x}, (40,), 1e-5)["y"]
    own = tmp_path / "layer_norm" / "own.wgsl"
    own.parent.mkdir()
    shutil.copy(wgsl_root() / "layer_norm" / "two_pass.wgsl", own)
    for kernel in ("two_pass", "layer_norm/two_pass", own, str(own), "auto"):
        np.testing.assert_allclose(webnorm.layer_norm(x, 40, kernel=kernel, device=device), answer, atol=1e-5)


def test_a_kernel_file_that_was_edited_is_compiled_anew(device: Device, tmp_path: Path) -> None:
    x = normal(6, 40)
    own = tmp_path / "layer_norm" / "own.wgsl"
    own.parent.mkdir()
    text = (wgsl_root() / "layer_norm" / "naive.wgsl").read_text()
    own.write_text(text)
    before = webnorm.layer_norm(x, 40, kernel=own, device=device)
    assert ") * rstd, j" in text
    own.write_text(text.replace(") * rstd, j", ") * rstd * 2.0, j"))
    np.testing.assert_array_equal(webnorm.layer_norm(x, 40, kernel=own, device=device), 2.0 * before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"x": normal(2, 3).astype(np.float64)},
            "x has dtype float64; expected float32, float16, bfloat16: cast it",
        ),
        ({"x": np.ones((2, 3), np.int8)}, "x has dtype int8; expected float32"),
        ({"x": normal(2, 3).astype(">f4")}, "x has dtype >f4; expected float32"),
        ({"x": [[1.0, 2.0, 3.0]]}, "x is a list; expected a NumPy array or a GpuArray"),
        ({"x": normal(2, 4)}, "x has shape (2, 4); expected it to end in normalized_shape (3,)"),
        ({"x": np.float32(1.0) * np.ones(())}, "x is np.float64(1.0); expected a NumPy array"),
        ({"x": np.ones((), np.float32)}, "x has shape (); expected it to end in normalized_shape (3,)"),
        ({"normalized_shape": (2, 2, 3)}, "expected it to end in"),
        ({"normalized_shape": ()}, "normalized_shape is ()"),
        ({"normalized_shape": "three"}, "normalized_shape is 'three'"),
        ({"normalized_shape": (3.0,)}, "normalized_shape is (3.0,)"),
        ({"normalized_shape": -3}, "normalized_shape is -3"),
        ({"normalized_shape": None}, "normalized_shape is None"),
        ({"x": normal(2, 0), "normalized_shape": 0}, "expected one element or more"),
        ({"weight": normal(4)}, "weight has shape (4,); expected normalized_shape (3,)"),
        ({"weight": 1.0}, "weight is 1.0; expected a NumPy array or a GpuArray"),
        ({"bias": normal(3, dtype="float16")}, "bias has dtype float16; expected float32"),
        (
            {"x": normal(2, 3, dtype="float16"), "bias": normal(3, dtype="bfloat16")},
            "expected x's float16 or float32",
        ),
        (
            {"x": normal(2, 3, dtype="float16"), "weight": normal(3), "bias": normal(3, dtype="float16")},
            "bias has dtype float16, but weight float32; expected one dtype for both",
        ),
        ({"residual": normal(3)}, "residual has shape (3,); expected x's (2, 3)"),
        ({"residual": normal(2, 3).astype("f8")}, "residual has dtype float64; expected float32"),
        ({"residual_bias": normal(3)}, "residual_bias is added to x + residual"),
        ({"zero_centered_weight": True}, "zero_centered_weight is True, but there is no weight"),
        ({"rounding": "once"}, "rounding is 'once'; expected 'before_weight', or None to round once"),
        ({"scale_block": 32}, "scale_block is 32; it needs out_dtype=int8"),
        ({"scale_block": 16, "out_dtype": "int8"}, "scale_block is 16; expected 32, 64, 128, or 0"),
        ({"scale_block": 32, "out_dtype": "int8"}, "cols is 3; with scale_block, rows need whole words"),
        ({"weight_offset": 0.5}, "weight_offset is 0.5, but there is no weight"),
        ({"weight_offset": "1"}, "weight_offset is '1'; expected a number from -1.8e+19 to 1.8e+19"),
        ({"weight_offset": float("nan")}, "weight_offset is nan; expected a number from"),
        ({"out_dtype": "float8"}, "unknown out_dtype 'float8'; did you mean"),
        ({"out_dtype": np.float64}, "unknown out_dtype 'float64'"),
        ({"out_dtype": 8}, "out_dtype is 8; expected one of"),
        ({"scale": 2.0}, "scale is 2.0; it needs an out_dtype of float8"),
        ({"scale": 0.0, "out_dtype": "float8_e5m2"}, "scale is 0.0; expected a number from 1.2e-38"),
        ({"x": np.ma.masked_less(normal(2, 3), 0)}, "x is a masked array"),
        ({"scale": 1e39, "out_dtype": "float8_e5m2"}, "scale is 1e+39; expected a number from 1.2e-38"),
        ({"max_workgroups": -1}, "max_workgroups is -1; expected 0"),
        ({"max_workgroups": 1.5}, "max_workgroups is 1.5; expected an int"),
        ({"eps": -1.0}, "eps is -1.0; expected 0 or a number from 1.2e-38"),
        ({"eps": float("nan")}, "eps is nan"),
        ({"eps": 10**400}, "eps is 1000000000"),
        ({"eps": "1e-5"}, "eps is '1e-5'; expected 0 or a number"),
        ({"eps": None}, "eps is None; expected 0 or a number"),
        ({"kernel": "regsiters"}, "unknown kernel 'regsiters'; did you mean 'registers'"),
        ({"kernel": "rms_norm/registers"}, "computes rms_norm; expected a kernel of layer_norm"),
        ({"kernel": "missing.wgsl"}, "missing.wgsl: cannot read the kernel"),
        ({"kernel": 3}, "kernel is 3; expected a kernel's name"),
        ({"device": "cpu"}, "device is 'cpu'; expected one from webnorm.open_device"),
    ],
)
def test_mistakes(arguments: dict[str, Any], message: str, device: Device) -> None:
    with pytest.raises(webnorm.WebnormError) as caught:
        webnorm.layer_norm(**{"x": normal(2, 3), "normalized_shape": 3, **arguments})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ({"eps": 1.0}, {"eps": True}, "eps is True; expected 0 or a number"),
        ({"scale": 1.0}, {"scale": True}, "scale is True; expected a number"),
        ({"max_workgroups": 1}, {"max_workgroups": True}, "max_workgroups is True; expected an int"),
        ({"max_workgroups": 1}, {"max_workgroups": 1.0}, "max_workgroups is 1.0; expected an int"),
        ({"normalized_shape": (3,)}, {"normalized_shape": (3.0,)}, "normalized_shape is (3.0,)"),
    ],
)
def test_a_mistake_that_equals_what_was_right(
    right: dict[str, Any], wrong: dict[str, Any], message: str, device: Device
) -> None:
    """webnorm caches checked arguments, but checks a value again that only equals a checked one."""
    given = {"x": normal(2, 3), "normalized_shape": 3}
    webnorm.layer_norm(**{**given, **right})
    with pytest.raises(webnorm.WebnormError) as caught:
        webnorm.layer_norm(**{**given, **wrong})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dy": normal(2, 4)}, "dy has shape (2, 4); expected x's (2, 3)"),
        ({"dy": normal(2, 3, dtype="float16")}, "dy has dtype float16; expected x's float32"),
        ({"dh": normal(3)}, "dh has shape (3,); expected x's (2, 3)"),
        (
            {"stats": normal(2, 1)},
            "stats is float32 of shape (2, 1); expected the forward pass's, float32 of shape (2, 3)",
        ),
        ({"stats": normal(2, 3, dtype="float16")}, "stats is float16"),
        ({"stats": 1.0}, "stats is 1.0; expected a NumPy array"),
        ({"kernel": "layer_norm/registers"}, "computes layer_norm; expected a kernel of layer_norm_backward"),
        ({"weight": normal(2)}, "weight has shape (2,)"),
    ],
)
def test_mistakes_in_gradients(arguments: dict[str, Any], message: str, device: Device) -> None:
    with pytest.raises(webnorm.WebnormError) as caught:
        webnorm.layer_norm_backward(
            **{"dy": normal(2, 3), "x": normal(2, 3), "normalized_shape": 3, **arguments}
        )
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_kernel_that_compiles_rows_in(device: Device, tmp_path: Path) -> None:
    """If a header derives a constant from the rows, webnorm computes it for each call."""
    own = tmp_path / "layer_norm" / "own.wgsl"
    own.parent.mkdir()
    text = (wgsl_root() / "layer_norm" / "naive.wgsl").read_text()
    for old, new in (
        ("// [accuracy]\n", '// [derive]\n// factor = "rows"\n// [accuracy]\n'),
        (") * rstd, j", ") * rstd * {{ factor }}, j"),
    ):
        assert old in text
        text = text.replace(old, new)
    own.write_text(text)
    x = normal(6, 40)
    for rows in (6, 3):
        answer = rows * expected("layer_norm", {"x": x[:rows]}, (40,), 1e-5)["y"]
        np.testing.assert_allclose(webnorm.layer_norm(x[:rows], 40, kernel=own), answer, rtol=1e-5, atol=1e-5)


def test_a_kernel_that_cannot(device: Device) -> None:
    with pytest.raises(webnorm.WebnormError, match="kernel registers cannot run 1x200000 float32"):
        webnorm.layer_norm(normal(1, 200000), 200000, kernel="registers")


def test_several_threads(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads switch as often as Python allows, and use more kernels than the cache can contain."""
    monkeypatch.setattr(session.session_of(session.default_device()).programs, "most", 2)
    x = [normal(6, cols) for cols in (40, 44, 48, 52)]
    answers = [webnorm.layer_norm(each, each.shape[1]) for each in x]
    wrong: list[object] = []

    def work(index: int) -> None:
        try:
            for _ in range(10):
                here = webnorm.GpuArray.from_numpy(x[index])
                y = webnorm.layer_norm(here, here.shape[1]).numpy()
                if not np.array_equal(y, answers[index]):
                    wrong.append(index)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


def test_the_second_call_compiles_nothing(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """One pipeline serves all numbers of rows, eps and scales."""
    x = normal(6, 40)
    webnorm.layer_norm(x, 40, out_dtype="float8_e4m3fn", scale=2.0)
    monkeypatch.setattr(session, "compile_shader", lambda *_: pytest.fail("compiled again"))
    out = webnorm.layer_norm(x[:5], 40, eps=1.0, out_dtype="float8_e4m3fn", scale=4.0)
    answer = expected("layer_norm", {"x": x[:5]}, (40,), 1.0)["y"]
    assert out.scale_inv is not None
    np.testing.assert_allclose(out.y.astype(np.float64) * out.scale_inv, answer, rtol=2.0**-4, atol=1e-2)
    assert out.scale_inv == 0.25


def test_public_names() -> None:
    for name in webnorm.__all__:
        assert getattr(webnorm, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'layernorm'"):
        webnorm.layernorm  # noqa: B018


def test_dir_lists_what_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    # The name must look as if it was not imported yet.
    monkeypatch.delitem(vars(webnorm), "tolerance", raising=False)
    listed = {*dir(webnorm)}
    assert listed >= {*webnorm.__all__, "errors"} and not listed & {"TYPE_CHECKING", "importlib", "_HOME"}
