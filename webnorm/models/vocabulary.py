"""The names that webnorm's ops give to their sizes and options, as scans use them.

A test compares them with the ops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

# Sizes by op. Ops may have more, such as gaps between rows, which scans leave at their defaults.
SIZES: Mapping[str, tuple[str, ...]] = {
    "layer_norm": ("rows", "cols"),
    "rms_norm": ("rows", "cols"),
    "l2_norm": ("rows", "cols"),
    "softmax": ("batch", "queries", "cols"),
    "group_norm": ("batch", "channels", "spatial", "groups"),
    "modulated_norm": ("batch", "rows", "cols"),
    "gated_norm": ("rows", "heads", "cols"),
    "qk_norm": ("batch", "tokens", "q_heads", "k_heads", "dim"),
}
# The parameters of each op, and whether it has them by default.
_PARAMETERS: Mapping[str, Mapping[str, bool]] = {
    "layer_norm": {"weight": True, "bias": True},
    "rms_norm": {"weight": True},
    "group_norm": {"weight": True, "bias": True},
    "modulated_norm": {"weight": False, "bias": False},
    "gated_norm": {"weight": True, "bias": False},
    "qk_norm": {"weight": True, "bias": False},
}
# The ops with an activation behind the norm, and the activations.
ACTIVATED = ("group_norm", "modulated_norm")
ACTIVATIONS = ("silu", "gelu", "gelu_tanh")
# The ops that can round in front of the weight.
ROUNDED = ("layer_norm", "rms_norm")
ROUNDING = "rounding=before_weight"
# An offset of 1 of the weight: an option of these ops, and a scalar of qk_norm.
ZERO_CENTERED = "zero_centered_weight"
WEIGHT_OFFSET = "weight_offset"


def parameter_options(op: str, present: Mapping[str, bool]) -> Iterator[str]:
    """Yield the options that add a parameter to an op's defaults, or leave one out."""
    for name, usual in _PARAMETERS.get(op, {}).items():
        if present[name] != usual:
            yield name if present[name] else f"{name}=false"
