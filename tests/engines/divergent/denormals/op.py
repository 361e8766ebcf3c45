"""1 for each float32 that is not 0, else 0. The input contains the bits of the numbers.

WGSL allows that operations, also comparisons, replace their denormal inputs (numbers below 2^-126) by 0.
SwiftShader does so, and llvmpipe does not. Integers are not affected. A conversion by `bitcast` is, so the
input has integers.

What the WGSL specification says:

- https://www.w3.org/TR/WGSL/#differences-from-ieee754
- https://www.w3.org/TR/WGSL/#floating-point-accuracy
"""

import numpy as np

from webnorm.op import case, define_op, tensor


def _bits_of_normal_numbers(rng, shape):
    """Draw normal numbers, and return their bits."""
    return rng.standard_normal(shape).astype(np.float32).view(np.uint32)


op = define_op(
    sizes={"n": 4096},
    inputs=[tensor("bits", "n", dtype="uint32", draw=_bits_of_normal_numbers)],
    outputs=[tensor("mask", "n", dtype="uint32")],
    cases=[case("divergence", {"bits": [0, 1 << 31, 1, 0x80000001, 0x400000, 0x800000]}, source="denormals")],
)


@op.reference
def is_nonzero(bits):
    """Return 1 if a bit other than the sign is set."""
    return (bits & 0x7FFFFFFF != 0).astype(np.int64)
