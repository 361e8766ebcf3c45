"""LayerNorm on NumPy arrays, with torch's names and meaning, computed by a kernel of the lab."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from webnorm.device import Device, open_device
from webnorm.errors import WebnormError
from webnorm.kernel import Kernel, Variant, default_variant, discover, select
from webnorm.plan import Inputs, Outputs, Plan, check_memory, compile_shader
from webnorm.problem import DTYPES, Array, Options, Problem
from webnorm.render import render_shader

_lock = threading.Lock()


@lru_cache(maxsize=1)
def default_device() -> Device:
    """The device that calls without `device=` share, opened on first use."""
    return open_device()


@lru_cache(maxsize=1)
def _kernels() -> tuple[Kernel, ...]:
    return tuple(discover())


def layer_norm(
    x: Array,
    normalized_shape: int | Sequence[int],
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    *,
    kernel: str | None = None,
    device: Device | None = None,
) -> Array:
    """Normalise the trailing dimensions of x to mean 0 and variance 1, then scale and shift.

    y = (x - mean) / sqrt(var + eps) * weight + bias, with the biased variance (Ba, Kiros and Hinton,
    "Layer Normalization", 2016); the meaning is torch.nn.functional.layer_norm's.

    Args:
        x: float32, any number of leading dimensions and then `normalized_shape`.
        normalized_shape: the trailing dimensions to normalise over; an int stands for one.
        weight: float32 of `normalized_shape`, or None for 1.
        bias: float32 of `normalized_shape`, or None for 0.
        eps: added to the variance, 0 or more.
        kernel: name or path of the kernel; None takes the highest of the ladder that fits.
        device: a device from `webnorm.open_device`; None shares one between calls.

    Returns:
        y, float32 of x's shape, a new array. Arrays that are not contiguous are copied; a size of 0 in the
        leading dimensions gives an empty result. A row that holds NaN or Inf comes out as NaN on adapters
        that honour IEEE 754, and touches no other row.

    Raises:
        WebnormError: wrong shape or dtype, a bad eps, an unknown kernel, a kernel that cannot run the
            problem, a problem larger than the device's buffers, or no adapter.
    """
    shape = _normalized_shape(normalized_shape)
    x = _checked(x, "x")
    if x.shape[x.ndim - len(shape) :] != shape or x.ndim < len(shape):
        raise WebnormError(f"x has shape {x.shape}; expected it to end in normalized_shape {shape}")
    arrays = {"x": x}
    for name, vector in (("weight", weight), ("bias", bias)):
        if vector is not None:
            arrays[name] = _checked(vector, name)
            if arrays[name].shape != shape:
                raise WebnormError(
                    f"{name} has shape {arrays[name].shape}; expected normalized_shape {shape}"
                )
    cols = math.prod(shape)
    if cols == 0:
        raise WebnormError(f"normalized_shape is {shape}; expected one element or more to normalise over")
    problem = Problem(
        rows=x.size // cols,
        cols=cols,
        eps=_number(eps),
        distribution="given",
        options=Options(weight=weight is not None, bias=bias is not None),
    )
    if problem.rows == 0:
        return np.empty(x.shape, x.dtype)
    device = device or default_device()
    arrays = {name: np.ascontiguousarray(array).reshape(-1, cols) for name, array in arrays.items()}
    variant = _variant(kernel, problem, device)
    with _lock:  # wgpu's objects are not for several threads at once
        check_memory(problem, variant.kernel.op, device)
        shader = render_shader(variant, problem, "native", device.traits)
        inputs, outputs = Inputs(device, problem, arrays), Outputs(device, problem, ["y"])
        Plan(device, shader, inputs, outputs, compile_shader(device, shader)).run()
        y, _ = outputs.read("y")
    return y.copy().reshape(x.shape)


def _normalized_shape(given: int | Sequence[int]) -> tuple[int, ...]:
    try:
        shape = (int(given),) if isinstance(given, int | np.integer) else tuple(int(n) for n in given)
    except (TypeError, ValueError):
        shape = ()
    if not shape or any(n < 0 for n in shape):
        raise WebnormError(f"normalized_shape is {given!r}; expected an int or a non-empty sequence of ints")
    return shape


def _checked(array: Array, name: str) -> Array:
    if not isinstance(array, np.ndarray):
        raise WebnormError(f"{name} is a {type(array).__name__}; expected a NumPy array")
    if array.dtype not in DTYPES.values():
        raise WebnormError(f"{name} has dtype {array.dtype}; expected {', '.join(DTYPES)}")
    return array


def _number(eps: float) -> float:
    try:
        return float(eps)
    except (TypeError, ValueError):
        raise WebnormError(f"eps is {eps!r}; expected a finite number of 0 or more") from None


def _variant(name: str | None, problem: Problem, device: Device) -> Variant:
    """The named kernel, or the highest stable rung of the ladder that fits the problem and the device."""
    if name is not None:
        variant = default_variant(select(_kernels(), name), problem, device.traits)
        refusal = variant.refusal(problem, device.traits)
        if refusal:
            raise WebnormError(f"kernel {name} cannot run {problem}: {refusal}")
        return variant
    ladder = sorted(
        (kernel for kernel in _kernels() if kernel.op.name == "layer_norm" and kernel.unstable is None),
        key=lambda kernel: -kernel.rung,
    )
    for kernel in ladder:
        variant = default_variant(kernel, problem, device.traits)
        if variant.refusal(problem, device.traits) is None:
            return variant
    raise WebnormError(f"no kernel can run {problem} on {device.adapter}")
