"""Named workloads of the norms: the shapes of a paper, a tutorial or a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from webnorm.op.presets import Preset, tasks
from webnorm.op.registry import OPS
from webnorm.ops.copy.problem import LARGE_SHAPES

_TRITON = tuple((4096, 512 * i) for i in range(2, 32))
_HIDDEN = tuple((4096, n) for n in (384, 768, 1024, 1280, 2048, 4096, 5120, 8192))
# The test in Triton's tutorial: its rows do not fill a wave, but its columns do.
_TRITON_TEST = ((1151, 8192),)

PRESETS: Mapping[str, Preset] = {
    "wgpu-bench": Preset(
        "Fleetwood's LayerNorm article: [1, 2048, 512] float32, the shape of its repository.",
        tasks("layer_norm", ((2048, 512),)),
    ),
    "triton-forward": Preset(
        "Triton's LayerNorm tutorial: its test, 1151 x 8192, and its sweep, M = 4096, N = 1024 to 15872; "
        "float16, x = -2.3 + 0.5 randn.",
        tasks("layer_norm", _TRITON_TEST + _TRITON, dtype="float16", distribution="triton"),
    ),
    "triton-backward": Preset(
        "The backward pass of the same tutorial, from saved statistics.",
        tasks("layer_norm_backward", _TRITON_TEST + _TRITON, dtype="float16", distribution="triton"),
    ),
    "gradcheck": Preset(
        "The gradient check of a NumPy LayerNorm, x of shape (2, 3, 4): too small to time, "
        "large enough to be wrong.",
        tuple(
            task
            for op in ("layer_norm_backward", "rms_norm_backward")
            for task in tasks(op, ((6, 4),), replace(OPS[op].defaults, saved_stats=False))
        ),
    ),
    "equinox": Preset(
        "Equinox issue 1196: a model of 8 blocks on 256 x 32 rows of 64, where two-pass variance was found "
        "slower; a step runs each of these 8 times. one_pass is what the issue proposed.",
        tasks("layer_norm", ((8192, 64),)) + tasks("layer_norm_backward", ((8192, 64),)),
    ),
    "transformer": Preset(
        "Hidden sizes of transformer models: 384, 768, 1024, 1280, 2048, 4096, 5120, 8192.",
        tasks("layer_norm", _HIDDEN) + tasks("rms_norm", _HIDDEN),
    ),
    "h200": Preset("Shapes that fill a large GPU: 256 MiB of x and more.", tasks("layer_norm", LARGE_SHAPES)),
}
