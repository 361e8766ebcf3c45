"""Rotary position embedding: pairs of elements of each head turned by the angles of their token."""

import numpy as np

from webnorm.op import case, define_op, option, require, tensor, uniform

op = define_op(
    sizes={"tokens": 4096, "heads": 32, "head_dim": 128},
    inputs=[
        tensor("x", "tokens heads head_dim"),
        # Independent numbers, unlike real angles, so that checks find a kernel that swaps the tables.
        tensor("cos", "tokens head_dim//2", draw=uniform(-1, 1)),
        tensor("sin", "tokens head_dim//2", draw=uniform(-1, 1)),
    ],
    outputs=[tensor("y", "tokens heads head_dim")],
    options=[option("layout", "halves", "interleaved")],
    cases=[
        case(
            "interleaved-vec4",
            {},
            sizes={"tokens": 5, "heads": 3, "head_dim": 24},
            options=["layout=interleaved"],
            source="an option, at sizes for vec4",
        ),
    ],
    require=[require("head_dim % 2 == 0", "elements are turned in pairs")],
)


def _pairs(x, layout):
    """Return the first and the second element of each pair."""
    if layout == "interleaved":
        return x[..., 0::2], x[..., 1::2]
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


def _joined(first, second, layout):
    """Return the pairs as heads."""
    if layout == "interleaved":
        return np.stack([first, second], -1).reshape(*first.shape[:-1], -1)
    return np.concatenate([first, second], -1)


@op.reference
def rope(x, cos, sin, layout):
    """Return x turned: element i of a token's tables is the angle of pair i of each head."""
    first, second = _pairs(x, layout)
    cos, sin = cos[:, None], sin[:, None]
    return _joined(first * cos - second * sin, first * sin + second * cos, layout)


@op.mistake("turns the wrong way round")
def other_direction(x, cos, sin, layout):
    """Return x turned by the negative angles."""
    return rope(x, cos, -sin, layout)


@op.mistake("takes the pairs of the other layout")
def other_layout(x, cos, sin, layout):
    """Return x with the pairs of the other layout turned."""
    return rope(x, cos, sin, "halves" if layout == "interleaved" else "interleaved")


@op.mistake("swaps cos and sin")
def swapped_tables(x, cos, sin, layout):
    """Return x turned with the tables swapped."""
    return rope(x, sin, cos, layout)


@op.mistake("turns every token by the angles of the first")
def first_angles(x, cos, sin, layout):
    """Return x turned by the first token's angles."""
    return rope(x, cos[:1], sin[:1], layout)
