"""How far a norm in float32 may be off, by what a kernel's header says of its sums."""

from __future__ import annotations

import math

from webnorm.op.expected import ToleranceFactors
from webnorm.op.op import HeaderTerms
from webnorm.ops.norms.problem import NormProblem

# Half an ulp of 1.0 in float32.
UNIT_ROUNDOFF = 2.0**-24
# Error of a normalised element in units of max(1, |x̂|) when no accumulator adds more than 64 terms one
# after another and the mean has two words. The worst measured over means up to 1e6 standard deviations is
# 1.9e-6; half an ulp of an outlier's x̂ = sqrt(N) alone is 3.8e-6 absolute, hence the relative part.
HI_LO_TOLERANCE = 2e-6
SERIAL_TERMS = 64
# A mean that is rounded to float32 is off by up to half an ulp, and by about sqrt(terms) such roundings
# where terms are added one after another; the factor 4 covers the spread seen over the corpus. Where all of
# them may go the same way, as in a plain sum of equal values, the header says how many times that it is.
ROUNDED_MEAN_FACTOR = 4.0
# A gradient's element is made from several normalised ones: rstd, x̂ and the row's two means each carry the
# error of one, and the sums over rows are taken to be four standard deviations from their mean at most.
GRADIENT_FACTOR = 4.0
# The share of a rounded output's elements that must be the float64 answer, rounded: the others may be its
# neighbours where the answer lies within the float32 tolerance of a rounding boundary.
EQUAL_SHARE = 0.999
# What the kernels that `auto` picks are held to: short sums, and a mean in two words.
BEST, BEST_GRADIENT = HI_LO_TOLERANCE, HI_LO_TOLERANCE * GRADIENT_FACTOR


def tolerance(terms: HeaderTerms, problem: NormProblem) -> ToleranceFactors:
    """Return the tolerance of a forward kernel."""
    serial = max(1, min(terms.serial, problem.cols))
    base = HI_LO_TOLERANCE * max(1.0, serial / SERIAL_TERMS)
    slope = ROUNDED_MEAN_FACTOR * UNIT_ROUNDOFF * _roundings(terms, serial)
    exact = not terms.rounded_mean and serial <= SERIAL_TERMS
    return ToleranceFactors(
        base, slope, 0.0, EQUAL_SHARE if exact else 0.0, _reason(terms, serial, slope), BEST
    )


def gradient_tolerance(terms: HeaderTerms, problem: NormProblem) -> ToleranceFactors:
    """Return the tolerance of a kernel that computes gradients."""
    # No accumulator adds more terms than there are, whatever a header says.
    serial, columns = max(1, min(terms.serial, problem.cols)), max(1, min(terms.column, problem.rows))
    base = GRADIENT_FACTOR * HI_LO_TOLERANCE * max(1.0, serial / SERIAL_TERMS)
    slope = GRADIENT_FACTOR * ROUNDED_MEAN_FACTOR * UNIT_ROUNDOFF * _roundings(terms, serial)
    adding = UNIT_ROUNDOFF * math.sqrt(columns)
    reason = f"{_reason(terms, serial, slope)}, {columns} rows per accumulator: + {adding:.1e}*sum of sizes"
    return ToleranceFactors(base, slope, adding, 0.0, reason, BEST_GRADIENT)


def _roundings(terms: HeaderTerms, serial: int) -> float:
    return max(terms.rounded_mean, math.sqrt(serial)) if terms.rounded_mean else 0.0


def _reason(terms: HeaderTerms, serial: int, slope: float) -> str:
    rounded = f", mean rounded to float32: + {slope:.1e}*|mean|/sd" if terms.rounded_mean else ""
    return f"{serial} terms per accumulator{rounded}"
