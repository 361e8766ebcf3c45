"""Group normalization: each group of channels of each sample on its own."""

import numpy as np

from webnorm.op import define_op, require, scalar, tensor

op = define_op(
    sizes={"samples": 16, "channels": 64, "positions": 4096, "groups": 8},
    inputs=[
        tensor("x", "samples channels positions"),
        tensor("weight", "channels"),
        tensor("bias", "channels"),
    ],
    outputs=[tensor("y", "samples channels positions")],
    scalars=[scalar("eps", 1e-5)],
    require=[require("channels % groups == 0", "groups have equally many channels")],
)


@op.reference
def group_norm(x, weight, bias, eps, groups):
    """Return (x - mean) / sqrt(variance + eps) * weight + bias, over a group and its positions."""
    grouped = x.reshape(len(x), groups, -1)
    centred = grouped - grouped.mean(-1, keepdims=True)
    normalized = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + eps)
    return normalized.reshape(x.shape) * weight[:, None] + bias[:, None]


@op.mistake("applies the weight of the first channel of a group to all of it")
def one_weight(x, weight, bias, eps, groups):
    """Return group normalization with a weight for each group."""
    first = weight.reshape(groups, -1)[:, :1].repeat(len(weight) // groups, axis=1).reshape(-1)
    return group_norm(x, first, bias, eps, groups)
