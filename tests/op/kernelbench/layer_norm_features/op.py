"""Layer normalization over the last three axes together."""

import numpy as np

from webnorm.op import define_op, scalar, tensor

op = define_op(
    sizes={"samples": 16, "channels": 64, "height": 64, "width": 64},
    inputs=[
        tensor("x", "samples channels height width"),
        tensor("weight", "channels height width"),
        tensor("bias", "channels height width"),
    ],
    outputs=[tensor("y", "samples channels height width")],
    scalars=[scalar("eps", 1e-5)],
)


@op.reference
def layer_norm_features(x, weight, bias, eps):
    """Return (x - mean) / sqrt(variance + eps) * weight + bias, over channels, height and width."""
    axes = (1, 2, 3)
    centred = x - x.mean(axes, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axes, keepdims=True) + eps) * weight + bias


@op.mistake("divides the sum of squares by one less than the number of elements")
def unbiased(x, weight, bias, eps):
    """Return layer normalization with the variance of a sample."""
    axes = (1, 2, 3)
    centred = x - x.mean(axes, keepdims=True)
    count = max(1, x[0].size - 1)
    return centred / np.sqrt((centred * centred).sum(axes, keepdims=True) / count + eps) * weight + bias
