"""Matrix times vector, the weights int8 with a float32 scale for each row."""

import numpy as np

from webnorm.op import define_op, tensor, uniform

op = define_op(
    sizes={"n": 14336, "k": 4096},
    inputs=[
        tensor("w", "n k", "int8"),
        tensor("scale", "n", "float32", draw=uniform(0.001, 0.02)),
        tensor("x", "k"),
    ],
    outputs=[tensor("y", "n")],
    flops="2*n*k",
)


@op.reference
def matvec_int8(w, scale, x):
    """Return (scale * w) @ x."""
    return scale * (w @ x)


@op.mistake("leaves the scale out")
def unscaled(w, x):
    """Return w @ x."""
    return w @ x


@op.mistake("takes the weights as unsigned bytes")
def unsigned(w, scale, x):
    """Return the product with weights from 0 to 255."""
    return scale * ((w & 255) @ x)


@op.mistake("reads the bytes of a word in the wrong order")
def reversed_bytes(w, scale, x, k):
    """Return the product with every four weights reversed."""
    whole = k - k % 4
    reversed_w = np.concatenate(
        [w[:, :whole].reshape(-1, whole // 4, 4)[..., ::-1].reshape(-1, whole), w[:, whole:]], 1
    )
    return scale * (reversed_w @ x)


@op.mistake("leaves the last column out")
def short(w, scale, x):
    """Return the product without the last term."""
    return scale * (w[:, :-1] @ x[:-1])
