"""Instance normalization: each channel of each sample on its own."""

import numpy as np

from webnorm.op import define_op, scalar, tensor

op = define_op(
    sizes={"samples": 16, "channels": 64, "positions": 4096},
    inputs=[tensor("x", "samples channels positions")],
    outputs=[tensor("y", "samples channels positions")],
    scalars=[scalar("eps", 1e-5)],
)


@op.reference
def instance_norm(x, eps):
    """Return (x - mean) / sqrt(variance + eps) over positions."""
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + eps)


@op.mistake("divides by the deviation plus eps")
def eps_outside(x, eps):
    """Return centred / (deviation + eps)."""
    centred = x - x.mean(-1, keepdims=True)
    return centred / (np.sqrt((centred * centred).mean(-1, keepdims=True)) + eps)
