"""Every option that an op has, one by one and all together."""

from __future__ import annotations

from dataclasses import replace

from webnorm.ops.norms.case import NormCase, of_normal
from webnorm.ops.norms.problem import NormOptions
from webnorm.ops.norms.row_draws import constant

BOTH = NormOptions()
_EVERYTHING = NormOptions(
    zero_centered_weight=True, residual=True, residual_bias=True, return_stats=True, max_workgroups=2
)


# Options one by one and all together, on rows that share words, that start on words only, and on vec4.
_OPTIONS: tuple[tuple[str, str, NormOptions, float], ...] = (
    ("zero-centered", "TransformerEngine: scale by 1 + weight", NormOptions(zero_centered_weight=True), 1.0),
    ("residual", "SkipLayerNorm: h = x + residual, given back too", NormOptions(residual=True), 1.0),
    (
        "residual-bias",
        "SkipLayerNorm with a bias: eight buffers with the statistics",
        NormOptions(residual=True, residual_bias=True, return_stats=True),
        1.0,
    ),
    ("stats", "mean in two words and rstd, for the backward pass", NormOptions(return_stats=True), 1.0),
    (
        "float8-e4m3fn",
        "TransformerEngine: scale in, amax of the unscaled y and scale_inv out; beyond 448 it saturates",
        NormOptions(out_dtype="float8_e4m3fn"),
        400.0,
    ),
    ("float8-e5m2", "the wider of the two float8 types", NormOptions(out_dtype="float8_e5m2"), 8.0),
    ("float8-e5m2-large", "beyond 57344 it saturates", NormOptions(out_dtype="float8_e5m2"), 1e5),
    ("float8-e5m2-small", "among float8_e5m2's denormals", NormOptions(out_dtype="float8_e5m2"), 1e-5),
    ("int8", "a scale for every row", NormOptions(out_dtype="int8"), 1.0),
    (
        "int8-plain",
        "columns that do not exist are as far from 0 as the mean, without a weight to hide them",
        NormOptions(weight=False, bias=False, out_dtype="int8"),
        1.0,
    ),
    *(
        (f"{dtype}-y", "y of another type than x", NormOptions(out_dtype=dtype), 1.0)
        for dtype in ("float32", "float16", "bfloat16")
    ),
    ("float32-parameters", "float32 weight and bias beside half x", NormOptions(weight_dtype="float32"), 1.0),
    ("capped", "few workgroups walk over all rows", NormOptions(max_workgroups=3), 1.0),
    (
        "everything-float8",
        "every option at once: the parameters share a buffer",
        replace(_EVERYTHING, out_dtype="float8_e4m3fn", weight_dtype="float32"),
        0.25,
    ),
    (
        "everything-int8",
        "every option at once: the parameters share a buffer",
        replace(_EVERYTHING, out_dtype="int8"),
        1.0,
    ),
    ("saved-stats", "gradient from the forward pass's statistics", NormOptions(saved_stats=True), 1.0),
    (
        "everything-backward",
        "every option of a gradient at once",
        NormOptions(
            zero_centered_weight=True,
            weight_dtype="float32",
            residual_bias=True,
            saved_stats=True,
            dh=True,
            max_workgroups=3,
        ),
        1.0,
    ),
)


# Every option on each of three row lengths, one option after the other. The mean lies outside the values that
# LayerNorm's y has; where it is below 0, so is all of RMSNorm's y.
OPTION_GRID: tuple[NormCase, ...] = tuple(
    of_normal(f"{name}-{cols}", source, (11, cols), mean=mean, options=options, scale=scale)
    for name, source, options, scale in _OPTIONS
    for cols, mean in ((70, 20.0), (61, -20.0), (256, 20.0))
)


OPTION_CASES: tuple[NormCase, ...] = (
    *OPTION_GRID,
    NormCase(
        "small-residual",
        "h among float16's denormals: x and residual almost cancel",
        lambda rng: rng.standard_normal((5, 200)) * 1e-5,
        (5, 200),
        options=NormOptions(residual=True, residual_bias=True, weight_dtype="float32"),
    ),
    NormCase(
        "int8-zeros",
        "a row of zeros has a scale too",
        constant(0.0),
        (3, 61),
        options=NormOptions(weight=False, bias=False, out_dtype="int8"),
    ),
    of_normal(
        "int8-small",
        "eps makes y as small as 3e-6: its scale follows",
        (5, 61),
        1e-8,
        options=NormOptions(weight=False, bias=False, out_dtype="int8"),
    ),
    of_normal(
        "stats-1e4",
        "a mean of 1e4 standard deviations, whose second word is as large as x's last digit",
        (5, 300),
        mean=1e4,
        options=NormOptions(return_stats=True),
    ),
    of_normal(
        "saved-stats-1e4",
        "the same, where the gradient is given that mean",
        (64, 300),
        mean=1e4,
        options=NormOptions(saved_stats=True),
    ),
)
