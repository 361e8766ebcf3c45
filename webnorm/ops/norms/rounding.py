"""The second stage of a norm, scale and shift, with a rounding after each operation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from webnorm.op.dtypes import DTYPES, Array, finfo
from webnorm.op.op import Float64Array
from webnorm.ops.norms.problem import NormProblem

# Verdicts count an element as a tie if this many times less than its tolerance changes its rounding.
TIES = 20.0
# The elements that may have the row's largest |y| if some are rounded to a neighbour: a step of bfloat16 is
# less than 1 % of a value.
NEARLY_LARGEST = 0.9


@dataclass(frozen=True)
class Computed:
    """Values in float64, with the error scales that `Expected` describes; all have the same shape."""

    value: Float64Array
    error_scale: Array
    mean_error_scale: Array

    def times(self, factor: Float64Array | float) -> Computed:
        """Return the product with exact numbers."""
        parts = (self.error_scale, self.mean_error_scale)
        return Computed(self.value * factor, *(part * np.abs(factor) for part in parts))

    def plus(self, term: Float64Array | float) -> Computed:
        """Return the sum with exact numbers."""
        return replace(self, value=self.value + term, error_scale=self.error_scale + np.abs(term))

    def rounded(self, dtype: str, least: float) -> Computed:
        """Return the values rounded to a storage type.

        A kernel with the error E rounds as float64 does, unless the boundary between two values of the type
        is closer than E. At the distance d the error is then at most E * step / d: 0 up to d, one step from
        there, and one more for each further step. `least` is the smallest E of a kernel, in units of
        `error_scale`. A value within twice this distance of a boundary counts as a tie.
        """
        if dtype == "float32":
            return self
        known = finfo(dtype)
        _, exponent = np.frexp(self.value)
        exponent = np.where(self.value == 0.0, known.minexp, np.maximum(exponent - 1, known.minexp))
        step = np.ldexp(1.0, exponent - known.nmant)
        steps = np.abs(self.value) / step
        distance = np.abs(steps - np.floor(steps) - 0.5) * step
        margin = np.maximum(least * self.error_scale, np.finfo(np.float64).tiny)
        growth = step / np.maximum(distance, margin)
        growth = np.where(distance <= 2.0 * margin, 1.0 + TIES * growth, growth)
        value = self.value.astype(DTYPES[dtype]).astype(np.float64)
        return Computed(value, self.error_scale * growth, self.mean_error_scale * growth)


def scaled_and_shifted(
    xhat: Computed,
    weight: Float64Array | float,
    bias: Float64Array | float,
    problem: NormProblem,
    least: float,
) -> Computed:
    """Return xhat * weight + bias, where x̂ is rounded to x's type, and then the product and the sum.

    Product and sum have the type that torch gives them: `problem.product_dtype`.
    """
    dtype = problem.product_dtype
    product = xhat.rounded(problem.dtype, least).times(weight).rounded(dtype, least)
    return product.plus(bias).rounded(dtype, least) if problem.options.bias else product


def block_maxima(values: Array, block: int) -> Array:
    """Return the maximum of each block of columns, (rows, blocks); the last block may be narrower."""
    maxima: Array = np.maximum.reduceat(values, np.arange(0, values.shape[1], block), axis=1)
    return maxima


def of_columns(blocks: Array, cols: int, block: int) -> Array:
    """Return the value of its block for each column, (rows, cols)."""
    return np.repeat(blocks, block, axis=1)[:, :cols]


def largest_error(size: Array, errors: Array, plain: Array, block: int) -> Array:
    """Return the error scale of the largest |y| of each block of columns, (rows, blocks).

    Only elements that are nearly as large can exceed it because a rounding differs; `plain` are the errors of
    all elements without roundings.
    """
    largest = of_columns(block_maxima(size, block), size.shape[1], block)
    near = ~(size < NEARLY_LARGEST * largest)
    return block_maxima(np.maximum(np.where(near, errors, 0.0), plain), block)
