"""Valid and invalid calls of the Python interface give a right result or a one-line error."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import webnorm
from fuzzing import examples
from odd import ODD, refusal_of
from webnorm.calls import session
from webnorm.gpu.device import Device
from webnorm.lab.verify.accuracy import assess
from webnorm.op.dtypes import DTYPES, FP8, NARROWING, STORAGE, Array
from webnorm.op.op import Op, Task, make_inputs
from webnorm.op.registry import OPS
from webnorm.ops.norms.op import OPS as NORM_OPS
from webnorm.ops.norms.op import complete_inputs, has_mean
from webnorm.ops.norms.problem import NormOptions, NormProblem

pytestmark = pytest.mark.opengl

# webnorm compiles a text for each number of columns with each set of options and types.
SHAPES = ((40,), (3,), (2, 4))
LEADING = ((), (1,), (5,), (2, 3), (0,), (3, 0, 2))
FUNCTIONS = {name: getattr(webnorm, name) for name in [op.name for op in NORM_OPS]}
KERNEL_NAMES = ("naive", "registers", "split_row")


class Call:
    """A function's arguments, and the problem that they describe."""

    def __init__(self, op: Op, given: dict[str, Any], problem: NormProblem) -> None:
        self.op, self.given, self.problem = op, given, problem

    def __repr__(self) -> str:
        others = {name: value for name, value in self.given.items() if np.ndim(value) == 0}
        return f"{self.op.name}({self.problem}, {others})"


@st.composite
def rows(draw: st.DrawFn, shape: tuple[int, int], dtype: str) -> Array:
    """Draw rows of very different kinds."""
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    wide = 0 if dtype == "float16" else 14
    found = np.empty(shape)
    for row in found:
        drawn = rng.standard_normal(len(row))
        match draw(st.sampled_from(("normal", "far", "scaled", "constant", "outlier", "nan", "inf", "tiny"))):
            case "normal":
                row[:] = drawn
            case "far":
                row[:] = drawn + draw(st.sampled_from((-1000.0, 30.0)))
            case "scaled":
                row[:] = drawn * 10.0 ** draw(st.integers(-3 - wide, 3 + wide))
            case "constant":
                row[:] = draw(st.sampled_from((0.0, 1.0, -3e4, 1e-7, math.pi)))
            case "outlier":
                row[:] = drawn
                row[-1] = 3e4
            case "nan":
                row[:] = drawn
                row[0] = math.nan
            case "inf":
                row[:] = drawn
                row[-1] = draw(st.sampled_from((math.inf, -math.inf)))
            case "tiny":
                row[:] = drawn * (1e-40 if wide else 1e-7)
    return found.astype(DTYPES[dtype])


def options(op: Op, dtype: str) -> st.SearchStrategy[NormOptions]:
    """Draw compatible options of an op."""
    flags = st.booleans()
    rare = st.sampled_from((False, False, False, True))
    if op.gradient:
        found = st.builds(
            NormOptions,
            weight=flags,
            bias=flags,
            saved_stats=flags,
            dh=rare,
            residual_bias=rare,
            max_workgroups=st.sampled_from((0, 0, 0, 2)),
        )
    else:
        found = st.builds(
            NormOptions,
            weight=flags,
            bias=flags,
            return_stats=rare,
            residual=rare,
            rounding=st.sampled_from((None, None, None, "before_weight")),
            residual_dtype=st.sampled_from((None, None, *STORAGE)),
            out_dtype=st.sampled_from((None, None, None, None, "int8", *FP8, *STORAGE)),
            max_workgroups=st.sampled_from((0, 0, 0, 2)),
        )

    def whole(one: NormOptions, narrow: bool, centred: bool, both: bool, offset: float) -> NormOptions:
        return replace(
            one,
            zero_centered_weight=centred and one.weight,
            weight_offset=offset if one.weight and not centred else 0.0,
            # Without a weight, a gradient has x's dtype.
            weight_dtype="float32" if narrow and dtype != "float32" and one.weight else None,
            residual_dtype=one.residual_dtype if one.residual and one.residual_dtype != dtype else None,
            residual_bias=one.residual_bias or (both and one.residual),
            out_dtype=None if one.out_dtype == dtype else one.out_dtype,
        )

    return st.builds(whole, found, rare, rare, flags, st.sampled_from((0.0, 0.0, 0.0, -0.375)))


@st.composite
def calls(draw: st.DrawFn, names: tuple[str, ...]) -> Call:
    """Draw a valid call. Its arrays have any shape, and are on the device or not."""
    op = OPS[draw(st.sampled_from(names))]
    shape, leading = draw(st.sampled_from(SHAPES)), draw(st.sampled_from(LEADING))
    dtype = draw(st.sampled_from(STORAGE))
    asked = draw(options(op, dtype))
    problem = NormProblem(
        rows=math.prod(leading),
        cols=math.prod(shape),
        dtype=dtype,
        eps=draw(st.sampled_from((1e-5, 1e-3, 2.0**-23, 100.0))),
        distribution="given",
        scale=draw(st.sampled_from((1.0, 8.0, 0.01))) if asked.out_dtype in FP8 else 1.0,
        options=asked,
    )
    known: dict[str, Array] = {}
    if not op.gradient:
        known["x"] = draw(rows((problem.rows, problem.cols), dtype))
    arrays = (
        complete_inputs(Task(op, problem), known, np.random.default_rng(0))
        if known
        else make_inputs(op, replace(problem, distribution="mean100", seed=draw(st.integers(0, 9))))
    )
    here = draw(st.booleans())
    shapes = {
        "stats": (*leading, 3 if has_mean(op) else 1),
        **dict.fromkeys(("weight", "bias", "residual_bias"), shape),
    }
    given: dict[str, Any] = {}
    for name, array in arrays.items():
        shaped = array.reshape(shapes.get(name, (*leading, *shape)))
        given[name] = webnorm.GpuArray.from_numpy(shaped) if here else draw(laid_out(shaped))
    given["normalized_shape"] = shape if len(shape) > 1 or draw(st.booleans()) else shape[0]
    given["eps"] = problem.eps
    given["max_workgroups"] = asked.max_workgroups
    given["zero_centered_weight"] = asked.zero_centered_weight
    given["weight_offset"] = asked.weight_offset
    if op.gradient:
        given["bias_grad"], given["residual_bias_grad"] = asked.bias, asked.residual_bias
    else:
        given["return_stats"] = asked.return_stats
        given["rounding"] = asked.rounding
        given["out_dtype"] = draw(st.sampled_from((asked.out_dtype, DTYPES.get(asked.out_dtype or ""))))
        given["scale"] = problem.scale
    given["kernel"] = draw(st.sampled_from((None, None, "auto", *KERNEL_NAMES)))
    return Call(op, given, problem)


@st.composite
def laid_out(draw: st.DrawFn, array: Array) -> Array:
    """Return the same numbers with another memory layout."""
    match draw(st.sampled_from(("as it is", "columns first", "strided", "read-only"))):
        case "columns first":
            return np.asfortranarray(array)
        case "strided" if array.ndim:
            return np.repeat(array, 2, axis=-1)[..., ::2]
        case "read-only":
            array = array.copy()
            array.setflags(write=False)
    return array


def inputs(call: Call) -> dict[str, Array]:
    """Return the arrays of a call in the shapes of the op."""
    found = {}
    for tensor in call.op.present(call.problem):
        if tensor.access == "read":
            array = call.given[tensor.name]
            found[tensor.name] = np.asarray(array).reshape(tensor.shape_in(call.problem))
    return found


def outputs(call: Call, found: Any) -> dict[str, Array]:
    """Return the results of a call by name, in the shapes of the op."""
    if call.op.gradient:
        names = [name for name in ("dbias", "dresidual_bias") if asked(call, name)]
        if has_mean(call.op) and "dbias" not in names:
            names = ["dbias", *names]
        named: Mapping[str, Any] = dict(zip(("dx", "dweight", *names), found, strict=True))
    elif isinstance(found, webnorm.NormOutput):
        named = {**vars(found)}
        if found.amax is not None:
            named = {**named, "amax": np.concatenate([np.asarray(found.amax), np.asarray(found.scale_inv)])}
    else:
        named = {"y": found}
    got = {}
    for tensor in call.op.outputs(call.problem):
        array = named[tensor.name]
        assert isinstance(array, type(call.given["x"]) | np.ndarray)
        assert array.dtype == DTYPES[tensor.dtype(call.problem)]
        got[tensor.name] = np.asarray(array).reshape(tensor.shape_in(call.problem))
    return got


def asked(call: Call, name: str) -> bool:
    return name in [tensor.name for tensor in call.op.outputs(call.problem)]


def check(call: Call, found: Any) -> None:
    """Compare the result of a call with float64."""
    if call.problem.rows == 0:
        outputs(call, found)
        return
    got, arrays = outputs(call, found), inputs(call)
    h = {"h": got["h"]} if "h" in got else {}
    device = session.default_device()
    mine = session.session_of(device)
    with device.gate:
        wanted = mine.wanted(device, Task(call.op, call.problem), call.given.get("kernel"))
        shader = replace(mine.schedule(device, wanted).shader, problem=call.problem)
    with np.errstate(all="ignore"):
        answers = call.op.reference({**arrays, **h}, call.problem)
        accuracy = assess({name: (array, True) for name, array in got.items()}, answers, shader)
    assert accuracy.ok, accuracy.reason


def run(call: Call) -> Any:
    return FUNCTIONS[call.op.name](**call.given)


@pytest.mark.slow
@pytest.mark.parametrize("names", [("layer_norm", "rms_norm"), ("layer_norm_backward", "rms_norm_backward")])
def test_right_calls_are_right(names: tuple[str, ...], device: Device) -> None:
    @examples(120)
    @given(calls(names))
    def answer(call: Call) -> None:
        found: list[Any] = []
        refused = refusal_of(lambda: found.append(run(call)))
        if refused is None:
            check(call, found[0])
        else:
            assert call.given["kernel"] in KERNEL_NAMES and "cannot run" in refused

    answer()


@pytest.mark.parametrize("names", [("layer_norm", "rms_norm"), ("layer_norm_backward", "rms_norm_backward")])
def test_spoiled_calls_say_so(names: tuple[str, ...], device: Device) -> None:
    """If a spoiled call returns a result, it is the original one, or the change did not affect it."""
    wrong = [array for array in ODD.values() if isinstance(array, np.ndarray)]

    @examples(250)
    @given(calls(names), st.data())
    def answer(call: Call, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted({*call.given, "device", "weight"})), "argument")
        before = call.given.get(name)
        kinds = [st.sampled_from(list(ODD.values()))]
        if isinstance(before, np.ndarray | webnorm.GpuArray):
            plain = np.asarray(before)
            kinds += [
                st.just(plain[..., None]),
                st.just(plain[..., :1]),
                st.just(plain.astype(np.float64)),
                st.just(plain.astype(DTYPES["bfloat16" if plain.dtype == np.float16 else "float16"])),
                st.just(plain.tolist()),
                st.sampled_from(wrong),
            ]
        call.given[name] = data.draw(st.one_of(*kinds))
        refusal_of(lambda: run(call))

    with np.errstate(all="ignore"):
        answer()


@pytest.mark.parametrize("kind", [webnorm.LayerNorm, webnorm.RMSNorm])
def test_modules_after_any_history(kind: Any, device: Device) -> None:
    """Forward, backward, copies and mistakes in any order give the same results as the functions."""
    name = "layer_norm" if kind is webnorm.LayerNorm else "rms_norm"
    steps = st.lists(
        st.sampled_from(("forward", "backward", "copy", "eval", "train", "state", "wrong x", "wrong dy")),
        max_size=12,
    )

    @examples(40)
    @given(steps, st.booleans(), st.sampled_from(STORAGE), st.integers(0, 9))
    def history(steps: list[str], affine: bool, dtype: str, seed: int) -> None:
        rng = np.random.default_rng(seed)
        module = kind(40, eps=1e-3, elementwise_affine=affine, dtype=dtype)
        saved: Array | None = None
        x, dy = rng.standard_normal((2, 5, 40)).astype(DTYPES[dtype])
        for step in steps:
            match step:
                case "forward":
                    y = module(x)
                    saved = x if module.training else saved
                    answer = FUNCTIONS[name](x, 40, module.weight, bias=module.bias, eps=1e-3)
                    np.testing.assert_allclose(
                        y.astype(np.float32), answer.astype(np.float32), rtol=1e-2, atol=1e-5
                    )
                case "backward" if saved is not None:
                    dx = module.backward(dy)
                    answer, *_ = FUNCTIONS[f"{name}_backward"](dy, saved, 40, module.weight, eps=1e-3)
                    np.testing.assert_allclose(
                        dx.astype(np.float32), answer.astype(np.float32), rtol=1e-2, atol=2e-2
                    )
                    assert (module.weight_grad is not None) == affine
                    saved = None
                case "backward":
                    assert refusal_of(lambda: module.backward(dy)) is not None  # noqa: B023
                case "copy":
                    module, saved = copy.deepcopy(module), None
                case "eval":
                    module, saved = module.eval(), None
                case "train":
                    module = module.train()
                case "state":
                    state = {name: rng.standard_normal(40) for name in module.state_dict()}
                    module.load_state_dict(state)
                    # A backward pass uses the saved x with the current parameters.
                case "wrong x":
                    assert refusal_of(lambda: module(x[:, 1:])) is not None  # noqa: B023
                case "wrong dy":
                    assert refusal_of(lambda: module.backward(dy[1:])) is not None  # noqa: B023

    history()


def broadcastable(shape: tuple[int, ...]) -> st.SearchStrategy[tuple[int, ...]]:
    """Draw shapes that may broadcast to another, and some that do not."""
    ends = st.integers(0, len(shape)).map(lambda at: shape[at:])
    return st.one_of(
        ends, ends.flatmap(lambda end: st.tuples(*[st.sampled_from((1, n, n + 1)) for n in end]))
    )


def test_onnx_operators(device: Device) -> None:
    @examples(120)
    @given(st.data())
    def answer(data: st.DataObject) -> None:
        rng = np.random.default_rng(data.draw(st.integers(0, 9)))
        shape = data.draw(st.sampled_from(((40,), (5, 40), (2, 3, 8), (1, 40), (3, 0))))
        dtype, other = (data.draw(st.sampled_from(STORAGE)) for _ in range(2))
        X = rng.standard_normal(shape).astype(DTYPES[dtype])
        axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
        of_mean = data.draw(st.booleans())
        Scale = rng.standard_normal(data.draw(broadcastable(shape))).astype(DTYPES[other])
        B = None
        if of_mean and data.draw(st.booleans()):
            B = rng.standard_normal(data.draw(broadcastable(shape))).astype(DTYPES[other])
        right = -len(shape) <= axis < len(shape) and math.prod(shape[axis:]) > 0
        right = right and all(fits(one.shape, shape) for one in (Scale, B) if one is not None)
        right = right and (not of_mean or other == dtype)
        if not right:
            call = (
                (lambda: webnorm.layer_normalization(X, Scale, B, axis))
                if of_mean
                else (lambda: webnorm.rms_normalization(X, Scale, axis))
            )
            assert refusal_of(call) is not None
            return
        wide, axes = X.astype(np.float64), tuple(range(axis % len(shape), len(shape)))
        centred = wide - wide.mean(axes, keepdims=True) * of_mean
        expected = centred / np.sqrt((centred**2).mean(axes, keepdims=True) + 1e-5) * Scale.astype(np.float64)
        if of_mean:
            Y, mean, _ = webnorm.layer_normalization(X, Scale, B, axis)
            np.testing.assert_allclose(mean, wide.mean(axes, keepdims=True), atol=1e-5)
            expected = expected if B is None else expected + B.astype(np.float64)
        else:
            Y = webnorm.rms_normalization(X, Scale, axis)
        assert Y.shape == shape and Y.dtype == DTYPES[dtype if of_mean else other]
        roundoff = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}[Y.dtype.name]
        np.testing.assert_allclose(Y.astype(np.float64), expected, rtol=roundoff, atol=roundoff)

    answer()


def fits(own: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Return True if a shape broadcasts to another."""
    try:
        return np.broadcast_shapes(own, shape) == shape
    except ValueError:
        return False


def test_arrays_on_the_device(device: Device) -> None:
    """The arrays' methods give the same results as NumPy's."""
    dimension = st.one_of(st.integers(-3, 30), st.sampled_from(list(ODD.values())))
    shapes = st.one_of(st.lists(dimension, max_size=4), st.lists(dimension, max_size=4).map(tuple), dimension)

    @examples(250)
    @given(st.sampled_from(sorted(NARROWING)), st.lists(st.integers(0, 6), max_size=3), shapes)
    def answer(dtype: str, shape: list[int], asked: Any) -> None:
        array = np.arange(math.prod(shape)).reshape(shape).astype(DTYPES[dtype])
        here = webnorm.GpuArray.from_numpy(array)
        np.testing.assert_array_equal(here.numpy().astype(float), array.astype(float))
        found: list[webnorm.GpuArray] = []
        if refusal_of(lambda: found.append(here.reshape(asked))) is None:
            again = array.reshape(asked)
            assert found[0].shape == again.shape
            np.testing.assert_array_equal(found[0].numpy().astype(float), again.astype(float))
        parts: list[list[webnorm.GpuArray]] = []
        if refusal_of(lambda: parts.append(here.split(asked))) is None:
            ends = np.cumsum([part.size for part in parts[0]])
            for part, end in zip(parts[0], ends, strict=True):
                own = array.reshape(-1)[end - part.size : end]
                np.testing.assert_array_equal(part.numpy().astype(float), own.astype(float))

    answer()
