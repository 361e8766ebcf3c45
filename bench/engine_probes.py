"""Small shaders that measure how an engine computes: rounding, contraction, subnormals.

Each probe is an expression of the float32 numbers x, y and z. A shader evaluates it for many operands, and
NumPy compares the values with exact ones. The functions with a device run in a worker process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from webnorm.gpu.compute_programs import ComputeProgram
from webnorm.gpu.device import Device
from webnorm.kernels.headers.traits import Traits
from webnorm.op.dtypes import Array

# The operands of a probe, and those that a workgroup takes, so that one dimension has enough workgroups.
COUNT = 1 << 18
_GROUP = 64
_SEED = 1
# The exponents of the smallest normal numbers of float32 and of float16, and the bits of their fractions.
_FLOAT32, _FLOAT16 = (-126, 23), (-14, 10)
_SHADER = """
@group(0) @binding(0) var<storage, read> xs: array<f32>;
@group(0) @binding(1) var<storage, read> ys: array<f32>;
@group(0) @binding(2) var<storage, read> zs: array<f32>;
@group(0) @binding(3) var<storage, read_write> values: array<f32>;
@compute @workgroup_size({group})
fn main(@builtin(global_invocation_id) at: vec3<u32>) {{
    let x = xs[at.x];
    let y = ys[at.x];
    let z = zs[at.x];
    values[at.x] = {expression};
}}
"""

Operands = tuple[Array, Array, Array]


@dataclass(frozen=True)
class Probe:
    """An expression with its operands.

    `measure` receives the values and the operands, and returns an error in ulp or a share between 0 and 1.
    """

    expression: str
    draw: Callable[[np.random.Generator], Operands]
    measure: Callable[[Array, Operands], float]


def ulp_error(values: Array, exact: Array, lowest: int = _FLOAT32[0], bits: int = _FLOAT32[1]) -> float:
    """Return the largest error in units in the last place (ulp) of the exact float64 values.

    The unit belongs to a type whose normal numbers begin at 2 ** `lowest`, with fractions of `bits` bits. A
    NaN or an infinity instead of a number is an infinite error.
    """
    _, exponents = np.frexp(exact)
    ulp = np.ldexp(1.0, np.maximum(exponents - 1, lowest) - bits)
    errors = np.abs(values.astype(np.float64) - exact) / ulp
    return float(np.where(np.isfinite(errors), errors, np.inf).max(initial=0.0))


def _normals(rng: np.random.Generator, low: int, high: int) -> Array:
    """Draw positive numbers of all exponents from 2 ** low to 2 ** high equally often."""
    fractions = rng.integers(0, 1 << 23, COUNT)
    return np.ldexp(1.0 + fractions / (1 << 23), rng.integers(low, high, COUNT)).astype(np.float32)


def _subnormals(rng: np.random.Generator) -> Array:
    return rng.integers(1, 1 << 23, COUNT, dtype=np.uint32).view(np.float32)


def _with_ones(x: Array, y: Array | None = None, z: Array | None = None) -> Operands:
    ones = np.ones(COUNT, np.float32)
    return x, ones if y is None else y, ones if z is None else z


def _positive(rng: np.random.Generator) -> Operands:
    return _with_ones(_normals(rng, _FLOAT32[0], 127))


def _fractions(rng: np.random.Generator) -> Operands:
    """Draw numerators and denominators of both signs, whose quotients are normal numbers."""
    signs = rng.choice(np.array([-1, 1], np.float32), COUNT)
    return _with_ones(_normals(rng, -60, 60) * signs, _normals(rng, -60, 60))


def _exponents(rng: np.random.Generator) -> Operands:
    """Draw exponents for which exp is a normal number."""
    return _with_ones(rng.uniform(-87.0, 88.0, COUNT).astype(np.float32))


def _cancelling(rng: np.random.Generator) -> Operands:
    """Draw factors, and the negative rounded product: x * y + z is 0 unless the product is not rounded."""
    x, y = _normals(rng, -8, 8), _normals(rng, -8, 8)
    return x, y, -(x * y)


def _small(rng: np.random.Generator) -> Operands:
    return _with_ones(_subnormals(rng), np.full(COUNT, 2.0**64, np.float32))


def _near_the_smallest(rng: np.random.Generator) -> Operands:
    """Draw normal numbers and a factor. The products are subnormal and exact."""
    x = np.ldexp(rng.integers(1 << 11, 1 << 12, COUNT).astype(np.float32), -137)
    return _with_ones(x, np.full(COUNT, 2.0**-8, np.float32))


def _halves(rng: np.random.Generator) -> Operands:
    return _with_ones(_normals(rng, _FLOAT16[0], 15))


def _half_error(values: Array, operands: Operands) -> float:
    return ulp_error(values, operands[0].astype(np.float64), *_FLOAT16)


def _error_of(function: Callable[..., Array]) -> Callable[[Array, Operands], float]:
    """Return a measure: the largest error in ulp of a function of x and y, computed in float64."""

    def measure(values: Array, operands: Operands) -> float:
        x, y, _ = (one.astype(np.float64) for one in operands)
        return ulp_error(values, function(x, y))

    return measure


def _share_of(function: Callable[..., Array]) -> Callable[[Array, Operands], float]:
    """Return a measure: the share of values that equal an exact function of x, y and z."""

    def measure(values: Array, operands: Operands) -> float:
        exact = function(*(one.astype(np.float64) for one in operands))
        return float(np.mean(values.astype(np.float64) == exact))

    return measure


# By key. The page describes each key (bench.engine_page).
PROBES: Mapping[str, Probe] = {
    "inverse_sqrt": Probe("inverseSqrt(x)", _positive, _error_of(lambda x, y: 1.0 / np.sqrt(x))),
    "sqrt": Probe("sqrt(x)", _positive, _error_of(lambda x, y: np.sqrt(x))),
    "division": Probe("x / y", _fractions, _error_of(lambda x, y: x / y)),
    "exp": Probe("exp(x)", _exponents, _error_of(lambda x, y: np.exp(x))),
    # The product of two float32 numbers is exact in float64, and so is its difference to a near number.
    "contracted": Probe("x * y + z", _cancelling, _share_of(lambda x, y, z: x * y + z)),
    "contracted_fma": Probe("fma(x, y, z)", _cancelling, _share_of(lambda x, y, z: x * y + z)),
    "contracted_dot": Probe(
        "dot(vec2<f32>(x, z), vec2<f32>(y, 1.0))", _cancelling, _share_of(lambda x, y, z: x * y + z)
    ),
    "subnormals_stored": Probe("x", _small, _share_of(lambda x, y, z: x)),
    "subnormals_read": Probe("x * y", _small, _share_of(lambda x, y, z: x * y)),
    "subnormals_computed": Probe("x * y", _near_the_smallest, _share_of(lambda x, y, z: x * y)),
    "subnormals_compared": Probe(
        "select(0.0, 1.0, x != 0.0)", _small, _share_of(lambda x, y, z: np.ones_like(x))
    ),
    "pack_float16": Probe("unpack2x16float(pack2x16float(vec2<f32>(x, y))).x", _halves, _half_error),
    "quantize_float16": Probe("quantizeToF16(x)", _halves, _half_error),
}


@dataclass(frozen=True)
class EngineDescription:
    """The facts that a device reports about itself, for the parent process."""

    device: Mapping[str, Any]
    limits: Mapping[str, int]
    language_features: frozenset[str]
    traits: Traits


def describe(device: Device, job: None) -> Iterator[EngineDescription]:
    """Yield the description of a device, as a task of a worker."""
    yield EngineDescription(
        device.description(), device.limits, device.adapter.language_features, device.traits
    )


def measure_arithmetic(device: Device, job: None) -> Iterator[tuple[str, float]]:
    """Yield the key and the measure of each probe, as a task of a worker."""
    for key, probe in PROBES.items():
        operands = probe.draw(np.random.default_rng(_SEED))
        yield key, probe.measure(evaluate(device, probe, operands), operands)


def evaluate(device: Device, probe: Probe, operands: Operands) -> Array:
    """Return the values of a probe's expression on a device."""
    handle = device.handle
    text = _SHADER.format(group=_GROUP, expression=probe.expression)
    program = ComputeProgram(handle, text, ["read-only-storage"] * 3 + ["storage"])
    buffers = [device.create_buffer(4 * COUNT) for _ in range(4)]
    for buffer, array in zip(buffers, operands, strict=False):
        handle.queue.write_buffer(buffer, 0, array)
    prepared = program.on([(buffer, 0, 4 * COUNT) for buffer in buffers], COUNT // _GROUP)
    device.run_pass(prepared.encode)
    return np.frombuffer(handle.queue.read_buffer(buffers[3]), np.float32)
