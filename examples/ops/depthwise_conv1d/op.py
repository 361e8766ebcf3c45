"""Depthwise convolution along the last axis: each channel has its own filter."""

import numpy as np

from webnorm.op import case, define_op, option, tensor

op = define_op(
    sizes={"batch": 8, "channels": 2048, "length": 2048, "taps": 4},
    inputs=[
        tensor("x", "batch channels length"),
        tensor("w", "channels taps"),
        tensor("bias", "channels", option="bias"),
    ],
    outputs=[tensor("y", "batch channels length")],
    # Padding only before the sequence, or equally on both sides (one more at the end for even taps).
    options=[option("padding", "causal", "same"), option("bias")],
    cases=[
        case(
            f"{'-'.join(options)}-{taps}-vec4",
            {},
            sizes={"batch": 2, "channels": 3, "length": 20, "taps": taps},
            options=options,
            source="options, at sizes for vec4",
        )
        for options in (["padding=same"], ["bias"], ["padding=same", "bias"])
        for taps in (4, 7)
    ],
    flops="2*batch*channels*length*taps",
)


def _before(taps, padding):
    """Return the number of zeros before the sequence."""
    return taps - 1 if padding == "causal" else (taps - 1) // 2


def _convolved(x, w, bias, before):
    """Return the correlation of w and x, with `before` zeros in front of x."""
    padded = np.pad(x, ((0, 0), (0, 0), (before, w.shape[1] - 1 - before)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[1], -1)
    y = np.einsum("bclt,ct->bcl", windows, w)
    return y if bias is None else y + bias[:, None]


@op.reference
def depthwise_conv1d(x, w, bias, taps, padding):
    """Return y[i] = sum over t of w[t] x[i + t - before] + bias."""
    return _convolved(x, w, bias, _before(taps, padding))


@op.mistake("flips the filter: a convolution where a correlation is expected")
def flipped(x, w, bias, taps, padding):
    """Return the convolution of textbooks."""
    return _convolved(x, w[:, ::-1], bias, _before(taps, padding))


@op.mistake("pads one element too few before the sequence")
def shifted(x, w, bias, taps, padding):
    """Return the output of a sequence that is shifted left by one element."""
    left = np.concatenate([x[..., 1:], np.zeros_like(x[..., :1])], -1)
    return _convolved(left, w, bias, _before(taps, padding))


@op.mistake("leaves the last tap out")
def short(x, w, bias, taps, padding):
    """Return the sum without the last tap."""
    w = w.copy()
    w[:, -1] = 0
    return _convolved(x, w, bias, _before(taps, padding))
