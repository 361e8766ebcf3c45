"""onnxruntime's public test cases of com.microsoft's norms: their shapes, types and options.

The values are drawn here. Each case has the name of its test in onnxruntime's folder `SOURCE`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import numpy as np

import webnorm
from bench.meanings import formulas
from bench.meanings.outcomes import Outcome, Tolerance, difference, first, outcome
from webnorm.op.op import Float64Array

SOURCE = "https://github.com/microsoft/onnxruntime/tree/main/onnxruntime/test/contrib_ops"
# The tolerances of onnxruntime's tests for WebGPU.
_TOLERANCES = {"float32": Tolerance(0.0, 1e-4), "float16": Tolerance(0.0, 0.02)}
_TYPES = ("float32", "float16")


@dataclass(frozen=True)
class ContribCase:
    """One test: the function, its arrays as (name, shape, dtype), its other arguments, and the answers."""

    operator: str
    name: str
    function: Callable[..., Any]
    arrays: tuple[tuple[str, tuple[int, ...], str], ...]
    answer: Callable[..., tuple[Float64Array, ...]]
    others: Mapping[str, Any] = field(default_factory=dict)

    def outcome(self) -> Outcome:
        """Compute the case."""
        rng = np.random.default_rng(len(self.name))
        drawn = {name: rng.uniform(-1.0, 1.0, shape).astype(kind) for name, shape, kind in self.arrays}

        def complaint() -> str | None:
            found = self.function(**drawn, **self.others)
            outputs = found if isinstance(found, tuple) else (found,)
            wide = {name: array.astype(np.float64) for name, array in drawn.items()}
            kind = self.arrays[0][2]
            pairs = zip(outputs, self.answer(**wide, **self.others), strict=True)
            return first([difference(one, answer, _TOLERANCES[kind], kind) for one, answer in pairs])

        return outcome(f"{self.operator} {self.name}", complaint)


def _skip_sum(input: Float64Array, skip: Float64Array, bias: Float64Array | None) -> Float64Array:
    return input + skip + (0.0 if bias is None else bias)


def _skip_layer_norm(
    input: Float64Array,
    skip: Float64Array,
    gamma: Float64Array,
    beta: Float64Array | None = None,
    bias: Float64Array | None = None,
    epsilon: float = 1e-12,
) -> tuple[Float64Array, ...]:
    h = _skip_sum(input, skip, bias)
    return formulas.layer_norm(h, h.shape[-1:], gamma, beta, epsilon), h


def _skip_rms_norm(
    input: Float64Array,
    skip: Float64Array,
    gamma: Float64Array,
    bias: Float64Array | None = None,
    epsilon: float = 1e-12,
) -> tuple[Float64Array, ...]:
    h = _skip_sum(input, skip, bias)
    return formulas.rms_norm(h, h.shape[-1:], gamma, epsilon), h


def _rms_norm(X: Float64Array, scale: Float64Array, axis: int, epsilon: float) -> tuple[Float64Array, ...]:
    return (formulas.rms_norm(X, X.shape[axis:], scale, epsilon),)


def _group_norm(
    X: Float64Array,
    gamma: Float64Array,
    beta: Float64Array,
    groups: int,
    activation: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
) -> tuple[Float64Array, ...]:
    x = np.moveaxis(X, -1, 1) if channels_last else X
    y = formulas.group_norm(x, groups, gamma, beta, epsilon)
    y = y / (1.0 + np.exp(-y)) if activation else y
    return (np.moveaxis(y, 1, -1) if channels_last else y,)


def _skip_group_norm(
    X: Float64Array,
    gamma: Float64Array,
    beta: Float64Array,
    skip: Float64Array,
    groups: int,
    activation: int,
    bias: Float64Array | None = None,
) -> tuple[Float64Array, ...]:
    skip = skip.reshape(len(skip), 1, 1, -1) if skip.ndim == 2 else skip
    h = _skip_sum(X, skip, bias)
    return (*_group_norm(h, gamma, beta, groups, activation), h)


def _of_skip_layer_norm() -> Iterator[ContribCase]:
    """Yield the tests of skiplayernorm_op_test.cc."""
    rows = [
        ("SkipLayerNormNullInput", (1, 0, 4), (1, 0, 4), "float32", ("beta",)),
        ("SkipLayerNormBatch1", (1, 2, 4), (1, 2, 4), "float32", ("beta",)),
        ("SkipLayerNormBatch1_Float16", (1, 2, 4), (1, 2, 4), "float16", ("beta",)),
        ("SkipLayerNormBatch1_Float16_vec", (1, 2, 64), (1, 2, 64), "float16", ("beta",)),
        ("SkipLayerNormBatch1_NoBeta", (1, 2, 4), (1, 2, 4), "float32", ()),
        ("SkipLayerNormBatch2", (2, 2, 4), (2, 2, 4), "float32", ("beta",)),
        ("SkipLayerNormBatch2_Bias", (2, 2, 4), (2, 2, 4), "float32", ("beta", "bias")),
        (
            "SkipLayerNormBatch2_Bias_ProducingOptionalOutput",
            (2, 2, 4),
            (2, 2, 4),
            "float32",
            ("beta", "bias"),
        ),
        # With a token count, the batch and the sequence are one dimension.
        ("SkipLayerNormBatch1_Float16_vec_token_count", (2, 64), (2, 64), "float16", ("beta",)),
        ("SkipLayerNormBatch2_TokenCount", (4, 4), (4, 4), "float32", ("beta",)),
        ("SkipLayerNormBatch2_Skip_Broadcast_No_Batch_Size", (2, 2, 4), (2, 4), "float32", ("beta",)),
        ("SkipLayerNormBatch2_Skip_Broadcast_Batch_Size_1", (2, 2, 4), (1, 2, 4), "float32", ("beta",)),
    ]
    for name, shape, skip, kind, vectors in rows:
        arrays = [("input", shape, kind), ("skip", skip, kind)]
        arrays += [(vector, shape[-1:], kind) for vector in ("gamma", *vectors)]
        yield ContribCase(
            "SkipLayerNormalization", name, webnorm.skip_layer_normalization, tuple(arrays), _skip_layer_norm
        )
    arrays = [("input", (1, 2, 4), "float16"), ("skip", (1, 2, 4), "float16"), ("gamma", (4,), "float16")]
    yield ContribCase(
        "SkipSimplifiedLayerNormalization",
        "SkipSimplifiedLayerNormBatch1_Float16",
        webnorm.skip_simplified_layer_normalization,
        tuple(arrays),
        _skip_rms_norm,
    )


def _of_simplified_layer_norm() -> Iterator[ContribCase]:
    """Yield the tests of layer_norm_test.cc, but for (16, 512, 1024), which takes long without a GPU."""
    for name, shape, axis in (
        ("SimplifiedLayerNorm_SmallSizeTensor", (4, 20, 128), -1),
        ("SimplifiedLayerNorm_SmallSizeTensor_IntermediateAxis", (4, 20, 8, 16), -2),
        ("SimplifiedLayerNorm_MidSizeTensor", (8, 80, 768), -1),
    ):
        yield ContribCase(
            "SimplifiedLayerNormalization",
            name,
            webnorm.simplified_layer_normalization,
            (("X", shape, "float32"), ("scale", shape[axis:], "float32")),
            _rms_norm,
            {"axis": axis, "epsilon": 1e-5},
        )


def _group_case(
    name: str, shape: tuple[int, ...], kinds: tuple[str, str], channels: int, **others: int
) -> ContribCase:
    kind, vectors = kinds
    arrays = (("X", shape, kind), ("gamma", (channels,), vectors), ("beta", (channels,), vectors))
    return ContribCase("GroupNorm", name, webnorm.group_norm_ms, arrays, _group_norm, others)


def _of_group_norm() -> Iterator[ContribCase]:
    """Yield the tests of group_norm_op_test.cc."""
    for last, activation in product((1, 0), (0, 1)):
        shape = (2, 2, 2, 128) if last else (2, 128, 2, 2)
        given = {"groups": 32, "activation": activation, "channels_last": last}
        yield _group_case(f"GroupNorm_128 {given}", shape, ("float32", "float32"), 128, **given)
    for (channels, groups), activation, kinds in product(((6, 3), (4, 4)), (0, 1), product(_TYPES, _TYPES)):
        given = {"groups": groups, "activation": activation, "channels_last": 1}
        name = f"GroupNorm_WebGpu_SmallChannelsPerGroup {channels} {kinds} {given}"
        yield _group_case(name, (2, 3, 2, channels), kinds, channels, **given)


def _skip_case(
    name: str, shape: tuple[int, ...], skip: tuple[int, ...], kind: str, groups: int, bias: bool
) -> ContribCase:
    channels = shape[-1:]
    arrays = [("X", shape, kind), ("gamma", channels, "float32"), ("beta", channels, "float32")]
    arrays += [("skip", skip, kind), *[("bias", channels, kind)] * bias]
    given = {"groups": groups, "activation": 0}
    return ContribCase("SkipGroupNorm", name, webnorm.skip_group_norm, tuple(arrays), _skip_group_norm, given)


def _of_skip_group_norm() -> Iterator[ContribCase]:
    """Yield the tests of skip_group_norm_op_test.cc. webnorm always returns S, which they make optional."""
    yield _skip_case("SkipGroupNorm_with_bias", (2, 2, 2, 16), (2, 2, 2, 16), "float16", 4, True)
    for skip in ((1, 64), (1, 1, 1, 64)):
        yield _skip_case("SkipGroupNorm_no_bias_broadcast_skip", (1, 1, 1, 64), skip, "float16", 8, False)
    for (channels, groups), bias, kind in product(((8, 2), (6, 3)), (False, True), _TYPES):
        shape = (2, 3, 2, channels)
        for skip in (shape, (2, channels), (2, 1, 1, channels)):
            name = f"SkipGroupNorm_WebGpu_BroadcastSkipSpatial {skip} {kind} {bias}"
            yield _skip_case(name, shape, skip, kind, groups, bias)


def _embedded(
    batch: int, sequence: int, hidden: int, kind: str, segments: bool, positions: str, masked: bool
) -> Callable[[], str | None]:
    """Return a function that computes one case of EmbedLayerNormalization."""
    rng = np.random.default_rng(hidden)
    shape = (batch, sequence)
    tables = [rng.uniform(-1.0, 1.0, (rows, hidden)).astype(kind) for rows in (6, 5, 3)]
    ids = [rng.integers(0, rows, shape) for rows in (6, 3)]
    gamma, beta = rng.uniform(-1.0, 1.0, (2, hidden)).astype(kind)
    mask = rng.integers(0, 2, shape) if masked else None
    order = {"": None, "same": np.arange(sequence), "other": np.arange(sequence)[::-1]}[positions]
    places = None if order is None else np.broadcast_to(order, shape)

    def complaint() -> str | None:
        y, index, total = webnorm.embed_layer_normalization(
            ids[0], ids[1] if segments else None, tables[0], tables[1], tables[2] if segments else None,
            gamma, beta, mask, places,
        )  # fmt: skip
        wide = [table.astype(np.float64) for table in tables]
        h = wide[0][ids[0]] + wide[1][np.arange(sequence) if places is None else places]
        h = h + wide[2][ids[1]] if segments else h
        expected = formulas.layer_norm(h, (hidden,), gamma.astype(float), beta.astype(float), 1e-12)
        counts = np.zeros(batch) if mask is None else mask.sum(1)
        tolerance = _TOLERANCES[kind]
        return first(
            [
                difference(y, expected, tolerance, kind),
                difference(total, h, tolerance, kind),
                difference(index, counts, Tolerance(0.0, 0.0), np.int32),
            ]
        )

    return complaint


# The tests of embed_layer_norm_op_test.cc: batch, sequence, hidden, type, segments, position ids, mask.
_EMBEDDED: tuple[tuple[str, tuple[int, int, int, str, bool, str, bool]], ...] = (
    ("EmbedLayerNormBatch1", (1, 2, 4, "float32", True, "", True)),
    ("EmbedLayerNormBatch1_Float16", (1, 2, 4, "float16", True, "", True)),
    ("EmbedLayerNormBatch1_PositionIds", (1, 2, 4, "float32", True, "same", True)),
    ("EmbedLayerNormBatch1_PositionIdsDiffOrder", (1, 2, 4, "float32", True, "other", True)),
    ("EmbedLayerNormBatch1_EmbeddingSum", (1, 2, 4, "float32", True, "", True)),
    ("EmbedLayerNormBatch1_EmbeddingSum_Float16", (1, 2, 4, "float16", True, "", True)),
    ("EmbedLayerNormBatch2", (3, 2, 4, "float32", True, "", True)),
    ("EmbedLayerNormBatch2_NoMask", (3, 2, 4, "float32", True, "", False)),
    ("EmbedLayerNormLargeBatchSmallHiddenSize", (5, 3, 2, "float32", True, "", True)),
    ("EmbedLayerNormBatch_Distill", (1, 4, 4, "float32", False, "", True)),
)


def cases() -> Iterator[tuple[str, str, Callable[[], Outcome]]]:
    """Yield each case's operator, its name, and the function that computes it."""
    for case in (
        *_of_skip_layer_norm(),
        *_of_simplified_layer_norm(),
        *_of_group_norm(),
        *_of_skip_group_norm(),
    ):
        yield case.operator, case.name, case.outcome
    for name, given in _EMBEDDED:
        yield "EmbedLayerNormalization", name, partial(outcome, name, _embedded(*given))


def outcomes() -> Iterator[tuple[str, Outcome]]:
    """Yield each case's operator and outcome."""
    for operator, _, compute in cases():
        yield operator, compute()
