"""y = softmax(scale * x + mask), or its logarithm, over the last axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from webnorm.op import case, define_op, option, scalar, tensor
from webnorm.op.op import Float64Array

Values = Float64Array | None

# The corners of the matrix (queries, cols) from which a causal mask can start. These are torch's names.
CORNERS = (None, "lower_right", "upper_left")
_BURN = "https://github.com/tracel-ai/burn/pull/4697, whose fix has a floor of -1e4"
_FLASH = "https://github.com/Dao-AILab/flash-attention/issues/1778, more queries than keys"


def _normal(rng: Any, shape: tuple[int, ...]) -> Float64Array:
    """Draw normal numbers."""
    return np.asarray(rng.standard_normal(shape))


def _padding(rng: Any, shape: tuple[int, ...]) -> Float64Array:
    """Draw a mask that hides some columns of each row with -inf, and never all of them."""
    hidden = rng.random(shape) < 0.3
    hidden[..., 0] = False
    return np.where(hidden, -np.inf, rng.standard_normal(shape))


def _hidden_rows(rng: Any, shape: tuple[int, ...]) -> Float64Array:
    """Draw a mask that hides every second row completely."""
    mask = rng.standard_normal(shape)
    mask[..., ::2, :] = -np.inf
    return np.asarray(mask)


def _staircase(rng: Any, shape: tuple[int, ...]) -> Float64Array:
    """Draw normal numbers; of row i only the first 1 + 100 i columns are not masked."""
    rows, _, cols = np.indices(shape)
    return np.where(cols <= 100 * rows, rng.standard_normal(shape), -np.inf)


op = define_op(
    sizes={"batch": 4096, "queries": 1, "cols": 4096},
    inputs=[
        tensor("x", "batch queries cols"),
        tensor("mask", "queries cols", option="mask", draw=_padding),
        tensor("batch_mask", "batch queries cols", option="batch_mask", draw=_padding),
    ],
    outputs=[tensor("y", "batch queries cols")],
    scalars=[scalar("scale", 1.0)],
    options=[
        option("mask"),
        option("batch_mask"),
        option("causal", *CORNERS),
        option("fully_masked", "nan", "zeros"),
        option("log"),
    ],
    batch="batch",
    derived={"span": "cols", "has_mean": "0", "packed": "0"},
    cases=[
        # Every column is masked with float16's lowest number, so the output is uniform. A kernel whose
        # maximum has a higher lower bound returns zeros or NaN.
        case("masked-rows", {"x": np.full((3, 1, 70), -65504.0)}, source=_BURN),
        case(
            "one-column-left",
            {"x": np.where(np.arange(72) == 71, -30000.0, -65504.0)[None, None].repeat(3, 0)},
            source=_BURN,
        ),
        # Kernels that put the lowest float32 in padded columns must not count them here.
        case(
            "masked-by-finfo-min",
            {"x": np.full((3, 1, 70), -3.4028234e38)},
            source="masks of torch.finfo(torch.float32).min",
        ),
        # A fully masked part of a row has the maximum -inf, and -inf minus -inf is NaN.
        case(
            "masked-by-infinity",
            {"x": _staircase},
            sizes={"batch": 4, "queries": 1, "cols": 1024},
            source="a causal mask of -inf, whose first row has one column left",
        ),
        # The logits of the report; exp of each is infinite.
        case(
            "large-logits",
            {"x": [[[7999.99, 8000.0, 2.0, 1.0]]]},
            source="https://github.com/uTensor/uTensor/pull/176",
        ),
        # A maximum that the last invocations of a workgroup hold.
        case(
            "maximum-in-the-last-columns",
            {"x": np.where(np.arange(2048) < 2040, 0.0, 200.0)[None, None].repeat(2, 0)},
            source="https://github.com/ggml-org/llama.cpp/pull/24451, partial maxima not read",
        ),
        case(
            "hidden-rows",
            {"mask": _hidden_rows},
            options=["mask", "fully_masked=nan"],
            sizes={"batch": 2, "queries": 6, "cols": 68},
            source="https://github.com/pytorch/pytorch/issues/41508: torch.softmax gives NaN",
        ),
        *(
            case(
                f"hidden-rows-{name}",
                {"mask": _hidden_rows},
                options=["mask", "fully_masked=zeros", *more],
                sizes={"batch": 2, "queries": 6, "cols": cols},
                source="https://github.com/tracel-ai/burn/issues/4694, zeros expected and NaN returned",
            )
            for name, cols, more in (
                ("are-zero", 68, []),
                ("are-zero-odd", 67, []),
                ("have-log-0", 68, ["log"]),
            )
        ),
        *(
            case(
                f"more-queries-{name}",
                {},
                options=["causal=lower_right", *more],
                sizes={"batch": 2, "queries": 9, "cols": cols},
                source=_FLASH,
            )
            for name, cols, more in (
                ("are-nan", 5, []),
                ("are-zero", 8, ["fully_masked=zeros"]),
                ("are-zero-odd", 5, ["fully_masked=zeros"]),
                ("have-log-0", 8, ["fully_masked=zeros", "log"]),
            )
        ),
        *(
            case(
                f"causal-{corner}-{cols}{''.join(more)}",
                {},
                options=[f"causal={corner}", *more],
                sizes={"batch": 2, "queries": 33, "cols": cols},
                source="https://github.com/Dao-AILab/flash-attention/issues/517, another corner",
            )
            for corner in CORNERS[1:]
            for cols in (64, 131)
            for more in ([], ["log", "mask"])
        ),
        # Rows too long for registers.
        case(
            "long-rows",
            {"x": _normal},
            sizes={"batch": 3, "queries": 1, "cols": 20000},
            source="a loop over the row",
        ),
        case(
            "long-odd-rows",
            {"x": _normal},
            sizes={"batch": 2, "queries": 1, "cols": 17001},
            source="a loop over the row",
        ),
    ],
)


def is_seen(queries: int, cols: int, causal: str | None) -> Any:
    """Return a matrix (queries, cols) that is True for the columns that the causal mask leaves."""
    if causal is None:
        return np.ones((queries, cols), bool)
    query, column = np.indices((queries, cols))
    return column <= query + (cols - queries if causal == "lower_right" else 0)


def _logits(
    x: Float64Array, mask: Values, batch_mask: Values, scale: float, causal: str | None
) -> Float64Array:
    """Return scale * x plus the masks; -inf in columns that the causal mask hides."""
    z = x * scale
    for one in (mask, batch_mask):
        z = z if one is None else z + one
    return np.where(is_seen(x.shape[1], x.shape[2], causal), z, -np.inf)


@op.reference
def softmax(
    x: Float64Array,
    mask: Values,
    batch_mask: Values,
    scale: float,
    causal: str | None,
    fully_masked: str,
    log: bool,
) -> Float64Array:
    """Return exp(z) over its sum; the maximum of the row is subtracted first, so that nothing overflows."""
    z = _logits(x, mask, batch_mask, scale, causal)
    largest = z.max(-1, keepdims=True)
    is_hidden = largest == -np.inf
    d = z - np.where(is_hidden, np.nan, largest)
    e = np.exp(d)
    total = e.sum(-1, keepdims=True)
    if log:
        y, nothing = d - np.log(total), -np.inf
    else:
        y, nothing = e / total, 0.0
    return np.where(is_hidden, nothing, y) if fully_masked == "zeros" else y


def _of_finite(z: Float64Array, log: bool, total: Float64Array | None = None) -> Float64Array:
    """Return the softmax of z, with another sum if one is given."""
    d = z - z.max(-1, keepdims=True)
    e = np.exp(d)
    total = e.sum(-1, keepdims=True) if total is None else total
    return np.asarray(d - np.log(total) if log else e / total)


@op.mistake("leaves out the maximum: exp of large numbers is infinite")
def without_maximum(
    x: Float64Array, mask: Values, batch_mask: Values, scale: float, causal: str | None, log: bool
) -> Float64Array:
    """Return exp(z) over its sum, as float32 gets it."""
    z = _logits(x, mask, batch_mask, scale, causal)
    with np.errstate(all="ignore"):
        e = np.exp(z.astype(np.float32))
        total = e.sum(-1, keepdims=True)
        return np.asarray(z - np.log(total) if log else e / total, np.float64)


@op.mistake("leaves the last column out of the sum")
def short_sum(
    x: Float64Array, mask: Values, batch_mask: Values, scale: float, causal: str | None, log: bool
) -> Float64Array:
    """Return softmax with a sum that lacks its last term."""
    z = _logits(x, mask, batch_mask, scale, causal)
    return _of_finite(z, log, np.exp(z - z.max(-1, keepdims=True))[..., :-1].sum(-1, keepdims=True))


@op.mistake("does not divide by the sum")
def unscaled(
    x: Float64Array, mask: Values, batch_mask: Values, scale: float, causal: str | None, log: bool
) -> Float64Array:
    """Return the exponentials."""
    return _of_finite(_logits(x, mask, batch_mask, scale, causal), log, np.ones(1))


@op.mistake("counts columns past the end as zeros, up to the next multiple of 4")
def padded_sum(
    x: Float64Array, mask: Values, batch_mask: Values, scale: float, causal: str | None, log: bool, cols: int
) -> Float64Array:
    """Return softmax with exp(0) for each padded column in the sum."""
    z = _logits(x, mask, batch_mask, scale, causal)
    largest = z.max(-1, keepdims=True)
    return _of_finite(z, log, np.exp(z - largest).sum(-1, keepdims=True) + -cols % 4 * np.exp(-largest))


@op.mistake("ignores the scale")
def without_scale(
    x: Float64Array, mask: Values, batch_mask: Values, causal: str | None, log: bool
) -> Float64Array:
    """Return softmax of x plus the masks."""
    return _of_finite(_logits(x, mask, batch_mask, 1.0, causal), log)


@op.mistake("multiplies the mask by the scale, too")
def scaled_mask(
    x: Float64Array, mask: Values, batch_mask: Values, scale: float, causal: str | None, log: bool
) -> Float64Array:
    """Return softmax of scale * (x + mask)."""
    return _of_finite(scale * _logits(x, mask, batch_mask, 1.0, causal), log)


@op.mistake("adds the mask of the first query to every row")
def first_mask(
    x: Float64Array, mask: Values, batch_mask: Values, scale: float, causal: str | None, log: bool
) -> Float64Array:
    """Return softmax with the first row of the mask."""
    first = None if mask is None else mask[:1]
    return _of_finite(_logits(x, first, batch_mask, scale, causal), log)


@op.mistake("ignores the causal mask")
def without_causal(
    x: Float64Array, mask: Values, batch_mask: Values, scale: float, log: bool
) -> Float64Array:
    """Return softmax of all columns."""
    return _of_finite(_logits(x, mask, batch_mask, scale, None), log)


@op.mistake("aligns the causal mask with the other corner")
def other_corner(
    x: Float64Array, mask: Values, batch_mask: Values, scale: float, causal: str | None, log: bool
) -> Float64Array:
    """Return softmax with the causal mask of the other corner."""
    other = {"lower_right": "upper_left", "upper_left": "lower_right"}.get(causal or "")
    return _of_finite(_logits(x, mask, batch_mask, scale, other), log)


@op.mistake("hides the column of the query itself")
def strictly_causal(
    x: Float64Array, mask: Values, batch_mask: Values, scale: float, causal: str | None, log: bool
) -> Float64Array:
    """Return softmax with a causal mask that leaves one column less."""
    z = _logits(x, mask, batch_mask, scale, None)
    seen = np.roll(is_seen(x.shape[1], x.shape[2], causal), -1, axis=1)
    seen[:, -1] = False
    return _of_finite(np.where(seen, z, -np.inf), log)
