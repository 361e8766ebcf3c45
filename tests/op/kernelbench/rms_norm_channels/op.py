"""RMS normalization over the channels, which are the middle axis."""

import numpy as np

from webnorm.op import define_op, scalar, tensor

op = define_op(
    sizes={"samples": 16, "channels": 64, "positions": 4096},
    inputs=[tensor("x", "samples channels positions")],
    outputs=[tensor("y", "samples channels positions")],
    scalars=[scalar("eps", 1e-5)],
)


@op.reference
def rms_norm_channels(x, eps):
    """Return x / sqrt(mean of x^2 over the channels + eps)."""
    return x / np.sqrt((x * x).mean(1, keepdims=True) + eps)


@op.mistake("takes the mean over the last axis")
def over_positions(x, eps):
    """Return x normalized over positions."""
    return x / np.sqrt((x * x).mean(2, keepdims=True) + eps)


@op.mistake("divides by the number of channels plus one")
def one_more(x, eps):
    """Return x with a mean that is too small."""
    mean_square = (x * x).sum(1, keepdims=True) / (x.shape[1] + 1)
    return x / np.sqrt(mean_square + eps)
