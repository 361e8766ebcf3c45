"""Batch normalization in training: each channel uses the mean and variance of all samples."""

import numpy as np

from webnorm.op import define_op, scalar, tensor

op = define_op(
    sizes={"samples": 16, "channels": 64, "positions": 4096},
    inputs=[
        tensor("x", "samples channels positions"),
        tensor("weight", "channels"),
        tensor("bias", "channels"),
    ],
    outputs=[tensor("y", "samples channels positions")],
    scalars=[scalar("eps", 1e-5)],
)


def _normalized(x, weight, bias, eps, axis):
    centred = x - x.mean(axis, keepdims=True)
    variance = (centred * centred).mean(axis, keepdims=True)
    return centred / np.sqrt(variance + eps) * weight[:, None] + bias[:, None]


@op.reference
def batch_norm(x, weight, bias, eps):
    """Return (x - mean) / sqrt(variance + eps) * weight + bias, over samples and positions."""
    return _normalized(x, weight, bias, eps, (0, 2))


@op.mistake("normalizes each sample by itself")
def by_instance(x, weight, bias, eps):
    """Return instance normalization."""
    return _normalized(x, weight, bias, eps, 2)


@op.mistake("leaves eps out")
def without_eps(x, weight, bias):
    """Return batch normalization without eps."""
    return _normalized(x, weight, bias, 1e-30, (0, 2))
