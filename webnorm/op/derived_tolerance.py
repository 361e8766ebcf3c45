"""Error scales from a NumPy reference: Monte Carlo arithmetic with WGSL's accuracy of functions.

The reference runs several times in float64, on arrays that add a random relative error to the result of every
NumPy function. The error is as large as WGSL allows in float32 ("Floating Point Accuracy" in the WGSL
specification). The spread of the outputs about the exact output is the error that a correct kernel may have.
The method is Parker's (Monte Carlo Arithmetic, UCLA CSD-970002, 1997).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from webnorm import signals
from webnorm.op.dtypes import LARGEST_FLOAT32, Array

# The unit roundoff of float32. A ulp is at most two of them.
UNIT = 2.0**-24
# Runs of the reference, and the factor for their spread: eight runs do not reach the largest possible error,
# and kernels may compute in another order.
RUNS = 8
FACTOR = 2.0
# Runs of a reference with integer outputs that rounding may change.
_RUNS_FOR_TIES = 32
# An element's error may be so many times as large as in these runs, since errors may have cancelled.
_LUCK = 8.0
# The error of a sum of N terms, in roundings of the sum of their absolute values. The first number stands for
# the last steps, which have the largest partial sums. The second is a factor of the root of N, with which the
# error of a random order grows.
_SUM_ROUNDINGS, _SUM_GROWTH = 2.0, 0.25

# The smallest normal float32 number.
_NORMAL = 2.0**-126

Outputs = Sequence[Array]
Reference = Callable[[Mapping[str, Array]], Outputs]


@dataclass(frozen=True)
class Scales:
    """The allowed errors of a correct float32 kernel, for each element of an output.

    Attributes
    ----------
    spread
        For kernels that add terms in several accumulators or in random order.
    serial
        The contribution of each term that one accumulator adds, for kernels whose header declares
        `serial_terms`.
    beyond
        A mask of elements that float32 cannot compute, since an intermediate result is too large. None if
        there are none.
    """

    spread: Array
    serial: Array
    beyond: Array | None


def _relative(ulps: float, absolute: float = 0.0) -> Callable[..., Array]:
    return lambda result, *_: 2.0 * UNIT * ulps * np.abs(result) + absolute


def _exponential(result: Array, exponent: Array) -> Array:
    return 2.0 * UNIT * (3.0 + 2.0 * np.abs(exponent)) * np.abs(result)


def _logarithm(result: Array, x: Array) -> Array:
    near_one = (x >= 0.5) & (x <= 2.0)
    return np.where(near_one, 2.0**-21, 6.0 * UNIT * np.abs(result))


def _power(result: Array, x: Array, y: Array) -> Array:
    if np.ndim(y) == 0 and float(y) in (1.0, 2.0, 3.0, 4.0):
        # Kernels write these powers as products.
        return float(y) * UNIT * np.abs(result)
    exponent = np.abs(y * np.log2(np.abs(x)))
    return 2.0 * UNIT * (3.0 + 2.0 * np.where(np.isfinite(exponent), exponent, 0.0)) * np.abs(result)


# The absolute errors of functions that WGSL does not round correctly, from the result and the arguments.
# WGSL allows 2^-11 for sin and cos, but real GPUs are much better: NVIDIA's fast functions reach 2^-20.
_ERRORS: Mapping[str, Callable[..., Array]] = {
    "divide": _relative(2.5),
    "reciprocal": _relative(2.5),
    "sqrt": _relative(4.5),
    "exp": _exponential,
    "exp2": _exponential,
    "expm1": lambda result, x: _exponential(np.abs(result) + 1.0, x),
    "log": _logarithm,
    "log2": _logarithm,
    "log10": _logarithm,
    "log1p": lambda result, x: _logarithm(result, x + 1.0) + 2.0 * UNIT,
    "logaddexp": _relative(3.0, 6.0 * UNIT),
    "power": _power,
    "float_power": _power,
    "sin": lambda result, *_: np.full_like(result, 2.0**-20),
    "cos": lambda result, *_: np.full_like(result, 2.0**-20),
    "tan": lambda result, *_: 2.0**-20 * (1.0 + result * result),
    "sinh": lambda result, x: _exponential(np.abs(result) + 1.0, x),
    "cosh": _exponential,
    "tanh": _relative(4.0, 4.0 * UNIT),
    "erf": _relative(4.0, 4.0 * UNIT),
    "erfc": _relative(4.0, 4.0 * UNIT),
    "arctan": _relative(16.0),
    "hypot": _relative(4.5),
}
# Exact functions: they select, compare, or change a sign.
_EXACT = frozenset(
    re.findall(
        r"\w+",
        """
        negative positive absolute fabs maximum minimum fmax fmin floor ceil rint trunc sign copysign
        heaviside equal not_equal less less_equal greater greater_equal isfinite isinf isnan signbit
        logical_and logical_or logical_not logical_xor ldexp frexp nextafter spacing clip
        """,
    )
)


def _rounded(result: Array, *_: Array) -> Array:
    """Return the error of a function that WGSL rounds correctly, or does not have."""
    return UNIT * np.abs(result)


class _Noise:
    """The random signs of one run, and the weights of the errors of functions and of sums."""

    def __init__(self, seed: int, functions: float, serial: float) -> None:
        self._random = np.random.default_rng([seed, 7])
        self.functions, self.serial = functions, serial
        # The number of results with noise, and the terms of the longest sum.
        self.followed, self.longest = 0, 1

    def add(self, result: Any, error: Any) -> Any:
        """Return a result that is off by `error`, up or down."""
        self.followed += 1
        # Errors of equal size would cancel in every second run, and for some elements in all runs.
        size = self._random.uniform(0.5, 1.0, np.shape(result))
        up = size * (self._random.integers(0, 2, np.shape(result)) * 2.0 - 1.0)
        with np.errstate(all="ignore"):
            # A GPU may replace a number below the smallest normal one by 0. A cancelled sum keeps its error.
            small = np.maximum(error, self.functions * np.abs(result))
            error = np.where(np.abs(result) < _NORMAL, small, error)
            # NaN and Inf have no error. Numbers beyond float32's range become infinite.
            moved = np.where(
                np.isfinite(result), result + up * np.where(np.isfinite(error), error, 0.0), result
            )
            return np.where(np.abs(moved) > LARGEST_FLOAT32, np.copysign(np.inf, moved), moved)

    def elementwise(self, name: str, result: Array, arguments: Sequence[Array]) -> Array:
        """Return the result of an elementwise function, with its error."""
        if self.functions == 0 or name in _EXACT:
            return result
        with np.errstate(all="ignore"):
            error = _ERRORS.get(name, _rounded)(result, *arguments)
        return cast(Array, self.add(result, self.functions * error))

    def total(self, result: Array, absolute: Array, terms: Array | int) -> Array:
        """Return a sum, with the error of adding `terms` terms."""
        self.longest = max(self.longest, int(np.max(terms, initial=1)))
        growth = self.functions * (_SUM_ROUNDINGS + _SUM_GROWTH * np.sqrt(terms)) + self.serial
        return cast(Array, self.add(result, UNIT * growth * absolute))


class NoisyArray(np.ndarray[Any, Any]):
    """A float64 array whose functions have errors. Every array computed from it is noisy too."""

    noise: _Noise

    def __array_finalize__(self, source: Any) -> None:
        if source is not None and hasattr(source, "noise"):
            self.noise = source.noise

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        noise = _noise_of([*inputs, kwargs.get("out")])
        plain = [_plain(one) for one in inputs]
        out = kwargs.pop("out", None)
        kwargs = _plain(kwargs)
        if out is not None and method == "__call__" and "where" in kwargs:
            # `out` keeps its elements outside the mask; a new array of NumPy's would be uninitialized there.
            kept = tuple(None if one is None else _plain(one).copy() for one in out)
            result = ufunc(*plain, out=kept, **kwargs)
        else:
            result = getattr(ufunc, method)(*plain, **kwargs)
        result = _with_errors(noise, ufunc, method, _as_floats(result, plain), plain, kwargs)
        if out is not None:
            targets = out if isinstance(out, tuple) else (out,)
            for target, value in zip(
                targets, result if isinstance(result, tuple) else (result,), strict=True
            ):
                if target is not None:
                    _plain(target)[...] = value
            return targets[0] if len(targets) == 1 else targets
        if isinstance(result, tuple):
            return tuple(_noisy(one, noise) for one in result)
        return _noisy(result, noise)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        noise = _noise_of([args, kwargs])
        if func in _SUMS_OF_PRODUCTS:
            args, kwargs = _plain(args), _plain(kwargs)
            result = np.asarray(func(*args, **kwargs))
            absolute = np.abs(np.asarray(func(*_mapped(args, np.abs), **_mapped(kwargs, np.abs))))
            # One output adds about as many products as the largest operand has elements per output.
            most = max((one.size for one in _arrays([args, kwargs])), default=1)
            return _noisy(noise.total(result, absolute, max(1, most // max(1, result.size))), noise)
        if func in _NORMS:
            args, kwargs = _plain(args), _plain(kwargs)
            result = np.asarray(func(*args, **kwargs))
            terms = max(1, np.size(args[0]) // max(1, result.size))
            return _noisy(noise.elementwise("sqrt", noise.total(result, np.abs(result), terms), ()), noise)
        # np.where, np.concatenate, np.pad and others return a plain array.
        return _noisy_again(super().__array_function__(func, types, args, kwargs), noise)

    def dot(self, other: Any, out: Any = None) -> Any:
        """Return np.dot of the two.

        NumPy calls __array_function__ for the function, but not for the method.
        """
        return np.dot(self, other) if out is None else np.dot(self, other, out)


_SUMS_OF_PRODUCTS = frozenset(
    {np.dot, np.inner, np.vdot, np.tensordot, np.einsum, np.convolve, np.correlate, np.trapezoid}
)


_NORMS = frozenset({np.linalg.norm, np.linalg.vector_norm})


def _noise_of(value: Any) -> _Noise:
    return next(one.noise for one in _arrays(value) if isinstance(one, NoisyArray))


def _noisy_again(value: Any, noise: _Noise) -> Any:
    """Return the result of a NumPy function, with its plain float arrays as noisy ones."""
    if type(value) in (tuple, list):
        return type(value)(_noisy_again(one, noise) for one in value)
    plain = isinstance(value, np.ndarray | np.floating) and not isinstance(value, NoisyArray)
    return _noisy(value, noise) if plain else value


def _as_floats(result: Any, inputs: Sequence[Any]) -> Any:
    """Return the result of an np.frompyfunc function, an array of Python floats, as an array of float64."""
    floats = all(np.asarray(one).dtype.kind == "f" for one in inputs)
    if floats and isinstance(result, np.ndarray) and result.dtype == object:
        return result.astype(np.float64)
    return result


def _arrays(value: Any) -> list[Array]:
    """Return every array in nested lists, tuples and dicts."""
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, Mapping):
        value = value.values()
    return (
        [found for one in value for found in _arrays(one)]
        if isinstance(value, Sequence | type({}.values())) and not isinstance(value, str)
        else []
    )


def _mapped(value: Any, change: Callable[[Array], Array]) -> Any:
    """Return the value with every array in nested lists, tuples and dicts changed."""
    if isinstance(value, np.ndarray):
        return change(value)
    if isinstance(value, tuple | list):
        return type(value)(_mapped(one, change) for one in value)
    if isinstance(value, dict):
        return {name: _mapped(one, change) for name, one in value.items()}
    return value


def _plain(value: Any) -> Any:
    return _mapped(value, lambda one: one.view(np.ndarray) if isinstance(one, NoisyArray) else one)


def _noisy(value: Any, noise: _Noise) -> Any:
    array = np.asarray(value)
    if array.dtype.kind != "f":
        return value
    found = array.astype(np.float64, copy=False).view(NoisyArray)
    found.noise = noise
    return found


def _with_errors(
    noise: _Noise, ufunc: np.ufunc, method: str, result: Any, inputs: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    # Functions of np.frompyfunc have names such as "erf (vectorized)".
    name = ufunc.__name__.removesuffix(" (vectorized)")
    if isinstance(result, tuple) or np.asarray(result).dtype.kind != "f" or method == "at":
        return result
    if name in ("matmul", "vecdot", "matvec", "vecmat"):
        absolute = getattr(ufunc, method)(np.abs(inputs[0]), np.abs(inputs[1]), **kwargs)
        return noise.total(result, absolute, np.shape(inputs[0])[-1])
    if method == "__call__":
        return noise.elementwise(name, np.asarray(result), [np.asarray(one) for one in inputs])
    if name in _EXACT:
        return result
    terms: Any = max(1, np.size(inputs[0]) // max(1, np.size(result)))
    if method == "accumulate":
        axis = kwargs.get("axis", inputs[1] if len(inputs) > 1 else 0)
        shape = [1] * np.ndim(result)
        shape[axis] = np.shape(result)[axis]
        terms = np.arange(1, shape[axis] + 1).reshape(shape)
    if name in ("add", "subtract") and method in ("reduce", "accumulate", "reduceat"):
        absolute = getattr(np.add, method)(np.abs(inputs[0]), *inputs[1:], **kwargs)
        return noise.total(result, absolute, terms)
    # Equal factors of a product have equal rounding errors, which add up.
    absolute = 6.0 * (np.abs(result) + 1.0) if name.startswith("logaddexp") else np.abs(result)
    return noise.add(result, UNIT * (noise.functions * terms + noise.serial) * absolute)


def _largest_deviation(
    reference: Reference,
    arrays: Mapping[str, Array],
    exact: Outputs,
    functions: float,
    serial: float,
    runs: int,
) -> tuple[list[Array], int]:
    """Return the largest deviation of each element in some runs, and the number of terms of the longest sum.

    That number is 0 if the noise did not follow the reference.
    """
    found = [np.zeros(np.shape(one)) for one in exact]
    followed, longest = True, 1
    for seed in range(runs):
        noise = _Noise(seed, functions, serial)
        noisy = {name: _noisy(array, noise) for name, array in arrays.items()}
        with np.errstate(all="ignore"):
            outputs = reference(noisy)
        followed, longest = followed and noise.followed > 0, max(longest, noise.longest)
        _keep_largest(found, outputs, exact)
    return found, longest if followed else 0


def _keep_largest(found: Sequence[Array], outputs: Outputs, exact: Outputs) -> None:
    """Raise the deviations in `found` to the deviations of some outputs."""
    for largest, one, value in zip(found, outputs, exact, strict=True):
        with np.errstate(all="ignore"):
            deviation = np.abs(np.asarray(one, np.float64) - value)
        np.maximum(largest, np.where(np.isfinite(deviation), deviation, 0.0), out=largest)


def _moved_inputs(reference: Reference, arrays: Mapping[str, Array], exact: Outputs) -> list[Array]:
    """Return the largest deviation of each element in float32 runs on inputs moved by one rounding."""
    found = [np.zeros(np.shape(one)) for one in exact]
    for seed in range(RUNS):
        random = np.random.default_rng([seed, 11])
        moved = {
            name: (array * (1.0 + UNIT * random.integers(-1, 2, array.shape))).astype(np.float32)
            if array.dtype.kind == "f"
            else array
            for name, array in arrays.items()
        }
        with np.errstate(all="ignore"):
            outputs = reference(moved)
        _keep_largest(found, outputs, exact)
    return found


def _smoothed(deviation: Array, least: Array, batched: bool) -> Array:
    """Add the root mean square of its row to each deviation, since an element's errors may have cancelled.

    The addition is limited to the effect of luck: the mean of a row with large elements does not apply to
    small ones.
    """
    if not deviation.size:
        return deviation
    axes = tuple(range(1, deviation.ndim)) if batched and deviation.ndim > 1 else None
    # Dividing first avoids the overflow of squares.
    largest = np.maximum(deviation.max(axis=axes, keepdims=True), np.finfo(np.float64).tiny)
    mean = largest * np.sqrt(np.mean((deviation / largest) ** 2, axis=axes, keepdims=True))
    found: Array = deviation + np.minimum(mean, _LUCK * (deviation + least))
    return found


def derive_scales(
    reference: Reference, arrays: Mapping[str, Array], exact: Outputs, batched: Sequence[bool]
) -> list[Scales]:
    """Return the scales of each output of a reference.

    Parameters
    ----------
    reference
        A function that takes the inputs by name, floats in float64, and returns the outputs in order.
    arrays
        The inputs.
    exact
        The outputs for them.
    batched
        True for each output whose first axis is the batch, whose elements are independent.
    """
    integers = [np.asarray(one).dtype.kind != "f" for one in exact]
    if all(integers):
        # Integer outputs have no rounding errors.
        return [Scales(np.zeros(np.shape(one)), np.zeros(np.shape(one)), None) for one in exact]
    try:
        spread, longest = _largest_deviation(reference, arrays, exact, 1.0, 0.0, RUNS)
        # All terms of the longest sum have errors at once, since their square is not linear in them.
        serial, _ = _largest_deviation(reference, arrays, exact, 0.0, float(longest), RUNS // 2)
        serial = [one / max(1, longest) for one in serial]
        if any(integers):
            # A tie that rounding decides changes in half of the runs.
            more, _ = _largest_deviation(reference, arrays, exact, FACTOR, 0.0, _RUNS_FOR_TIES)
            spread = [two if whole else one for one, two, whole in zip(spread, more, integers, strict=True)]
    except Exception as error:
        signals.let_through(error)
        longest = 0
    if not longest:
        # The noise is lost if a reference leaves NumPy's arrays, such as with loops over Python's floats.
        spread = _moved_inputs(reference, arrays, exact)
        serial = [np.zeros_like(one) for one in spread]
    narrow = {
        name: array.astype(np.float32) if array.dtype.kind == "f" else array for name, array in arrays.items()
    }
    with np.errstate(all="ignore"):
        single = reference(narrow)
    return [_scales(*each) for each in zip(spread, serial, exact, single, batched, strict=True)]


def _scales(spread: Array, serial: Array, value: Array, single: Array, batched: bool) -> Scales:
    """Return the scales of one output; `single` is the result of the reference in float32."""
    if value.dtype.kind != "f":
        # If rounding decides between two integers, both are right.
        return Scales(spread, np.zeros_like(spread), None)
    finite = np.isfinite(value) & (np.abs(value) <= LARGEST_FLOAT32)
    beyond = finite & ~np.isfinite(np.asarray(single, np.float64))
    rounding = 2.0 * UNIT * np.abs(np.where(np.isfinite(value), value, 0.0))
    with np.errstate(over="ignore"):
        return Scales(
            FACTOR * _smoothed(spread, rounding, batched) + rounding,
            # An accumulator may begin with the last term of the reference, such as a bias.
            np.maximum(FACTOR * _smoothed(serial, rounding, batched), rounding / 2.0),
            beyond if beyond.any() else None,
        )
