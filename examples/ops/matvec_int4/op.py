"""Matrix times vector, the weights four bits each, eight to a word, with a scale for each group of 32."""

import numpy as np

from webnorm.op import define_op, option, require, tensor, uniform

op = define_op(
    sizes={"n": 14336, "k": 4096},
    inputs=[
        # The element with the lowest index is in the lowest four bits.
        tensor("w", "n k//8", "uint32"),
        tensor("scale", "n k//32", "scale_dtype", draw=uniform(0.001, 0.02)),
        tensor("x", "k"),
    ],
    outputs=[tensor("y", "n")],
    # None means the type of x.
    options=[option("scale_dtype", None, "float32")],
    require=[require("k % 32 == 0", "weights are scaled in groups of 32")],
    flops="2*n*k",
)


def _codes(w):
    """Return the codes from 0 to 15, element by element."""
    return (w[..., None] >> np.arange(0, 32, 4) & 15).reshape(len(w), -1)


def _product(codes, scale, x):
    """Return the product of x and the matrix of the codes and scales."""
    return (np.repeat(scale, 32, -1) * codes) @ x


@op.reference
def matvec_int4(w, scale, x):
    """Return (scale * (code - 8)) @ x."""
    return _product(_codes(w) - 8, scale, x)


@op.mistake("leaves the zero point out")
def without_zero_point(w, scale, x):
    """Return the product with codes from 0 to 15."""
    return _product(_codes(w), scale, x)


@op.mistake("reads the nibbles of a word from the highest down")
def reversed_nibbles(w, scale, x):
    """Return the product with every eight weights reversed."""
    return _product(_codes(w).reshape(len(w), -1, 8)[..., ::-1].reshape(len(w), -1) - 8, scale, x)


@op.mistake("swaps the nibbles of each byte")
def swapped_nibbles(w, scale, x):
    """Return the product with every two weights swapped."""
    return _product(_codes(w).reshape(len(w), -1, 2)[..., ::-1].reshape(len(w), -1) - 8, scale, x)


@op.mistake("takes the first scale of a row for all its groups")
def first_scale(w, scale, x):
    """Return the product with one scale per row."""
    return _product(_codes(w) - 8, np.broadcast_to(scale[:, :1], scale.shape), x)
