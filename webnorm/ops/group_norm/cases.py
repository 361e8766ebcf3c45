"""Inputs on which published GroupNorm and InstanceNorm kernels were wrong, for both directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from webnorm.op import case
from webnorm.op.definition import CaseDefinition

# A function of (rng, shape). Naming the generator's type here would import numpy.random with every call.
Draw = Callable[[Any, tuple[int, ...]], Any]
# The name of a case, its inputs, its source, its sizes and its options.
_Row = tuple[str, Mapping[str, Draw], str, Mapping[str, int], tuple[str, ...]]


def _normal(mean: float, sd: float) -> Draw:
    return lambda rng, shape: rng.normal(mean, sd, shape)


def _between(low: float, high: float) -> Draw:
    return lambda rng, shape: rng.uniform(low, high, shape)


def _outlier_first(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    x = rng.normal(0.0, 1.0, shape)
    x[:, 0] = 1e4
    return x


def _channel_means(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Return runs of 64 elements (channels) whose means differ by 30 standard deviations."""
    return rng.normal(0.0, 1.0, shape) + np.arange(shape[1]) // 64 * 30.0


def _constant_groups(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Return runs of 40 equal elements (groups), each with another value."""
    return np.broadcast_to(0.1 + np.arange(shape[1]) // 40 * 1.7, shape).copy()


def _sizes(batch: int, channels: int, spatial: int, groups: int) -> Mapping[str, int]:
    return {"batch": batch, "channels": channels, "spatial": spatial, "groups": groups}


_ISSUES = "https://github.com"
_ROWS: tuple[_Row, ...] = (
    # One-pass sums of numbers whose mean is 1.7 standard deviations from 0, in a long group.
    (
        "uniform",
        {"x": _between(0.0, 1.0)},
        f"{_ISSUES}/pytorch/pytorch/issues/54293",
        _sizes(1, 4, 16384, 1),
        (),
    ),
    # Values near float16's maximum, with a small spread.
    (
        "near-65504",
        {"x": _between(60000.0, 65504.0)},
        f"{_ISSUES}/keras-team/keras/issues/22586",
        _sizes(1, 64, 256, 8),
        (),
    ),
    # Squares of numbers above 256 overflow in float16.
    (
        "above-256",
        {"x": _normal(0.0, 940.0)},
        f"{_ISSUES}/neuroneural/brainchop-cli/pull/56",
        _sizes(1, 24, 216, 24),
        (),
    ),
    # Sums of many numbers overflow in float16.
    (
        "sum-above-65504",
        {"x": _normal(20.0, 1.0)},
        f"{_ISSUES}/microsoft/onnxruntime/pull/24514",
        _sizes(1, 2, 4096, 2),
        ("layout=channels_last",),
    ),
    ("three-channels", {}, f"{_ISSUES}/flagos-ai/FlagGems/issues/4984", _sizes(1, 48, 1024, 16), ()),
    ("one-element", {}, f"{_ISSUES}/pytorch/pytorch/issues/94288", _sizes(7, 27, 1, 27), ()),
    (
        "one-pixel",
        {},
        f"{_ISSUES}/pytorch/pytorch/issues/45687",
        _sizes(1, 3, 1, 3),
        ("layout=channels_last",),
    ),
    (
        "groups-channels-last",
        {},
        f"{_ISSUES}/tensorflow/addons/issues/751",
        _sizes(2, 12, 25, 3),
        ("layout=channels_last",),
    ),
    (
        "ten-channels-last",
        {},
        f"{_ISSUES}/pytorch/pytorch/issues/111824",
        _sizes(2, 320, 64, 32),
        ("layout=channels_last",),
    ),
    (
        "pairs-of-pixels",
        {},
        "two pixels of 30 channels are a whole number of vec4",
        _sizes(2, 30, 66, 3),
        ("layout=channels_last",),
    ),
    (
        "fours-of-pixels",
        {},
        "four pixels of 15 channels are a whole number of vec4",
        _sizes(2, 15, 8, 3),
        ("layout=channels_last",),
    ),
    ("one-group", {}, f"{_ISSUES}/NVIDIA/TensorRT/issues/4756", _sizes(2, 6, 100, 1), ()),
    ("pairs", {}, f"{_ISSUES}/microsoft/onnxruntime/pull/25092", _sizes(2, 80, 2, 80), ()),
    (
        "few-pixels-last",
        {},
        f"{_ISSUES}/microsoft/onnxruntime/pull/19387",
        _sizes(1, 32, 5, 32),
        ("layout=channels_last",),
    ),
    (
        "one-long-channel",
        {"x": _normal(0.5, 1.0)},
        f"{_ISSUES}/pytorch/pytorch/issues/22617",
        _sizes(1, 1, 5, 1),
        (),
    ),
    ("mean-1e6", {"x": _normal(1e6, 1.0)}, "the mean is 1e6 standard deviations", _sizes(2, 40, 64, 4), ()),
    (
        "mean-1e6-last",
        {"x": _normal(1e6, 1.0)},
        "the mean is 1e6 standard deviations",
        _sizes(2, 40, 64, 4),
        ("layout=channels_last",),
    ),
    (
        "outlier-first",
        {"x": _outlier_first},
        "the first element is 1e4 standard deviations",
        _sizes(2, 20, 64, 2),
        (),
    ),
    (
        "outlier-first-last",
        {"x": _outlier_first},
        "the first element is 1e4 standard deviations",
        _sizes(2, 20, 64, 2),
        ("layout=channels_last",),
    ),
    (
        "channel-means",
        {"x": _channel_means},
        "the channels of a group have different means",
        _sizes(2, 24, 64, 3),
        (),
    ),
    ("constant-groups", {"x": _constant_groups}, "the variance of a group is 0", _sizes(2, 12, 10, 3), ()),
    # MeanVarianceNormalization over batch and pixels: the batch is a part of `spatial`.
    (
        "mean-variance",
        {"x": _normal(3.0, 2.0)},
        f"{_ISSUES}/onnx/onnx/blob/main/docs/Operators.md",
        _sizes(1, 12 * 30, 5, 12),
        ("layout=channels_last", "weight=false", "bias=false"),
    ),
    (
        "thousands-of-groups",
        {},
        "InstanceNorm is a norm with as many groups as channels",
        _sizes(1, 2048, 6, 2048),
        (),
    ),
)

CASES: tuple[CaseDefinition, ...] = tuple(
    case(name, arrays, source=source, sizes=sizes, options=options)
    for name, arrays, source, sizes, options in _ROWS
)
