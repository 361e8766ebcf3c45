"""Inputs of heads that broke other implementations of QK-norm, or that break formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from webnorm.op import case
from webnorm.op.definition import CaseDefinition
from webnorm.op.dtypes import Array

# A string, because the import of numpy.random would slow every first call down.
Draw = Callable[["np.random.Generator", tuple[int, ...]], Array]
_SIZES = {"batch": 2, "tokens": 5, "q_heads": 3, "k_heads": 2, "q_gap": 0, "k_gap": 0}
_LAYER_NORM = ("norm=layer_norm",)
# Of models: Qwen3 has heads of 128 columns, Gemma 3 of 256, Stable Diffusion 3 of 64, Phi-2 of 80.
_DIMS = (64, 80, 128, 256)


def _drawn(mean: float, sd: float = 1.0) -> Draw:
    return lambda rng, shape: rng.normal(mean, sd, shape)


def _in_gaps(value: float, width: int, sizes: dict[str, int]) -> Draw:
    """Return a draw of rows whose elements behind the first `width` are all `value`."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        x: Array = rng.normal(size=(shape[0], sizes["tokens"], shape[1] // sizes["tokens"]))
        x[:, :, width:] = value
        return x.reshape(shape)

    return draw


def _outlier(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    x = rng.normal(size=shape)
    x[:, ::61] = 1e4
    return x


def _scales(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return three heads of very different sizes."""
    sizes: Array = np.repeat([1e-2, 1.0, 1e2], shape[1] // 3)
    return rng.normal(size=shape) * sizes


def _cases() -> Iterator[CaseDefinition]:
    """Yield each case; heads have lengths of models, with vectors and without."""
    for dim in _DIMS:
        sizes = {**_SIZES, "dim": dim}
        for mean in (1e2, 1e4, 1e6):
            arrays = {"q": _drawn(mean), "k": _drawn(-mean)}
            source = "https://github.com/tracel-ai/burn/issues/5607, with larger means"
            yield case(f"mean-{mean:g}-{dim}", arrays, sizes=sizes, options=_LAYER_NORM, source=source)
    yield from _packed()
    sizes = {**_SIZES, "dim": 128}
    constant = {"q": lambda rng, shape: np.full(shape, 1234.0), "k": lambda rng, shape: np.full(shape, -3e-3)}
    source = "https://github.com/microsoft/onnxruntime/issues/21935"
    yield case("constant-heads", constant, sizes=sizes, options=_LAYER_NORM, source=source)
    yield case("outlier", {"q": _outlier, "k": _outlier}, sizes=sizes, options=_LAYER_NORM)
    small = {"q": _drawn(0.0, 1e-3), "k": _drawn(0.0, 1e-3)}
    source = "https://github.com/Wenyueh/MinivLLM/pull/82"
    yield case("eps-matters", small, sizes=sizes, source=source)
    source = "https://github.com/flagos-ai/FlagScale/pull/210"
    yield case("a-weight-per-head", {}, sizes=sizes, options=("weight_per_head", "bias"), source=source)


def _packed() -> Iterator[CaseDefinition]:
    """Yield cases with queries and keys inside the rows of one projection, and with gaps that are NaN."""
    sizes = {**_SIZES, "q_gap": 256, "dim": 128}
    for source in (
        "https://github.com/sgl-project/sgl-kernel-xpu/issues/169",
        "https://github.com/vllm-project/vllm/pull/28103",
    ):
        name = source.split("/")[4]
        yield case(
            f"split-of-{name}",
            {"q": _in_gaps(np.nan, 640, sizes)},
            sizes=sizes,
            options=("qkv",),
            source=source,
        )
    for gap in (4, 3):
        sizes = {**_SIZES, "q_gap": gap, "k_gap": gap + 4, "dim": 64}
        arrays: dict[str, Any] = {"q": _in_gaps(np.nan, 192, sizes), "k": _in_gaps(np.inf, 128, sizes)}
        source = "https://github.com/ModelTC/LightLLM/issues/1467"
        yield case(f"gaps-of-{gap}", arrays, sizes=sizes, source=source)
    source = "https://github.com/huggingface/candle/issues/3004"
    yield case("heads-first", {}, sizes={**_SIZES, "dim": 72}, options=("layout=heads_first",), source=source)
    source = "https://github.com/vllm-project/vllm/pull/16311"
    yield case("scales-of-heads", {"q": _scales}, sizes={**_SIZES, "tokens": 1, "dim": 96}, source=source)


CASES = tuple(_cases())
