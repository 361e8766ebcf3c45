"""The norms of a model from its `config.json`, as transformers and diffusers write it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from webnorm.models.config_values import ModelConfig
from webnorm.models.diffusion_norms import DIFFUSION_MODELS
from webnorm.models.dimensions import Dimensions
from webnorm.models.norm_use import NormUse
from webnorm.models.vocabulary import WEIGHT_OFFSET, ZERO_CENTERED

_EPS = (
    "rms_norm_eps",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "layernorm_epsilon",
    "norm_epsilon",
    "norm_eps",
)
_HIDDEN = ("hidden_size", "n_embd", "d_model", "dim")
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
# Frames of 30 seconds, which Whisper's encoder always has.
_FRAMES = 1500
Norms = Callable[[ModelConfig, Dimensions], Iterator[NormUse]]


@dataclass(frozen=True)
class _Stack:
    """A stack of equal layers, and the norms before or behind it.

    Attributes
    ----------
    op : str
        "layer_norm" or "rms_norm".
    per_layer, extra : int
        The norms of a layer, and the others of the same size.
    eps : float
        The default epsilon.
    qk : str
        The flag that adds norms of queries and keys, "always", or "" for none.
    options : tuple of str
        The options of every norm.
    """

    op: str
    per_layer: int = 2
    extra: int = 1
    eps: float = 1e-6
    qk: str = ""
    options: tuple[str, ...] = ()


def _rows(dims: Dimensions, tokens: int | None = None) -> int:
    return dims.size("batch") * (tokens or dims.size("sequence"))


def _norms(
    config: ModelConfig, op: str, rows: int, cols: int, count: int, eps: float, options: tuple[str, ...] = ()
) -> Iterator[NormUse]:
    if count:
        layer = ("norm",)
        yield NormUse(
            op, {"rows": rows, "cols": cols}, config.dtype, options, {"eps": eps}, count, layer, "config"
        )


def _stack(stack: _Stack, config: ModelConfig, dims: Dimensions) -> Iterator[NormUse]:
    """Yield the norms of a transformer with one stack of layers."""
    hidden, layers = config.number(*_HIDDEN), config.number(*_LAYERS)
    eps = config.real(*_EPS, default=stack.eps)
    count = stack.per_layer * layers + stack.extra
    yield from _norms(config, stack.op, _rows(dims), hidden, count, eps, stack.options)
    if stack.qk == "always" or (stack.qk and config.flag(stack.qk)):
        heads = config.number(*_HEADS)
        sizes = {
            "batch": dims.size("batch"),
            "tokens": dims.size("sequence"),
            "q_heads": heads,
            "k_heads": config.number("num_key_value_heads", default=heads),
            "dim": config.number("head_dim", default=max(1, hidden // heads)),
        }
        scalars = {"eps": eps, **({WEIGHT_OFFSET: 1.0} if ZERO_CENTERED in stack.options else {})}
        options = (f"norm={stack.op}",)
        yield NormUse("qk_norm", sizes, config.dtype, options, scalars, layers, ("qk_norm",), "config")


def _vision(extra: int, config: ModelConfig, dims: Dimensions, more_tokens: int = 1) -> Iterator[NormUse]:
    """Yield the norms of a vision transformer, whose rows are the patches and a class token."""
    patches = config.number("image_size", default=224) // config.number("patch_size", default=16)
    rows = _rows(dims, patches**2 + more_tokens)
    count = 2 * config.number(*_LAYERS) + extra
    eps = config.real(*_EPS, default=1e-12)
    yield from _norms(config, "layer_norm", rows, config.number(*_HIDDEN), count, eps)


def _clip_vision(config: ModelConfig, dims: Dimensions) -> Iterator[NormUse]:
    """Yield the norms of CLIP's image encoder; the last norm has one row per image."""
    yield from _vision(1, config, dims)
    eps = config.real(*_EPS, default=1e-5)
    yield from _norms(config, "layer_norm", dims.size("batch"), config.number(*_HIDDEN), 1, eps)


def _whisper(config: ModelConfig, dims: Dimensions) -> Iterator[NormUse]:
    hidden, frames = config.number("d_model"), config.number("max_source_positions", default=_FRAMES)
    encoder = 2 * config.number("encoder_layers") + 1
    decoder = 3 * config.number("decoder_layers") + 1
    yield from _norms(config, "layer_norm", _rows(dims, frames), hidden, encoder, 1e-5)
    yield from _norms(config, "layer_norm", _rows(dims), hidden, decoder, 1e-5)


def _bart(config: ModelConfig, dims: Dimensions) -> Iterator[NormUse]:
    count = 2 * config.number("encoder_layers") + 3 * config.number("decoder_layers") + 2
    yield from _norms(config, "layer_norm", _rows(dims), config.number("d_model"), count, 1e-5)


def _t5(config: ModelConfig, dims: Dimensions) -> Iterator[NormUse]:
    layers = config.number("num_layers")
    decoder = 3 * config.number("num_decoder_layers", default=layers) + 1
    eps = config.real("layer_norm_epsilon", default=1e-6)
    yield from _norms(
        config, "rms_norm", _rows(dims), config.number("d_model"), 2 * layers + 1 + decoder, eps
    )


def _mamba2(config: ModelConfig, dims: Dimensions) -> Iterator[NormUse]:
    hidden, layers = config.number(*_HIDDEN), config.number(*_LAYERS)
    eps = config.real("layer_norm_epsilon", default=1e-5)
    yield from _norms(config, "rms_norm", _rows(dims), hidden, layers + 1, eps)
    inner = config.number("expand", default=2) * hidden
    sizes = {"rows": _rows(dims), "heads": 1, "cols": inner}
    options = ("norm=rms_norm", "order=gate_first")
    yield NormUse("gated_norm", sizes, config.dtype, options, {"eps": eps}, layers, ("mixer.norm",), "config")


_RMS = partial(_stack, _Stack("rms_norm"))
_RMS_QK = partial(_stack, _Stack("rms_norm", qk="always"))
_LAYER = partial(_stack, _Stack("layer_norm", eps=1e-5))
# Encoders like BERT have a norm behind the embeddings instead of one at the end.
_ENCODER = partial(_stack, _Stack("layer_norm", eps=1e-12))

# The norms by `model_type`.
TRANSFORMERS: Mapping[str, Norms] = {
    **dict.fromkeys(("llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "phi3", "granite"), _RMS),
    "mamba": partial(_stack, _Stack("rms_norm", 1, eps=1e-5)),
    **dict.fromkeys(("qwen3", "qwen3_moe"), _RMS_QK),
    "gemma": partial(_stack, _Stack("rms_norm", options=(ZERO_CENTERED,))),
    "gemma2": partial(_stack, _Stack("rms_norm", 4, options=(ZERO_CENTERED,))),
    "gemma3_text": partial(_stack, _Stack("rms_norm", 4, qk="always", options=(ZERO_CENTERED,))),
    "phi": partial(_stack, _Stack("layer_norm", 1, eps=1e-5, qk="qk_layernorm")),
    **dict.fromkeys(("gpt2", "gpt_neox", "opt", "starcoder2", "clip_text_model"), _LAYER),
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert"), _ENCODER),
    "vit": partial(_vision, 1),
    "deit": partial(_vision, 1, more_tokens=2),
    "dinov2": partial(_vision, 1),
    "clip_vision_model": _clip_vision,
    "siglip_text_model": partial(_stack, _Stack("layer_norm")),
    "whisper": _whisper,
    "bart": _bart,
    **dict.fromkeys(("t5", "mt5"), _t5),
    "mamba2": _mamba2,
}
# Parts of models with several encoders, and the types that configs leave out there.
_PARTS = {"text_config": "clip_text_model", "vision_config": "clip_vision_model"}


def config_norms(config: ModelConfig, dims: Dimensions) -> tuple[list[NormUse], list[str]]:
    """Return the norms of a model from its config, and a line for each part that is not known."""
    kind = config.text("_class_name") or config.text("model_type")
    norms = DIFFUSION_MODELS.get(kind) or TRANSFORMERS.get(kind)
    if norms is not None:
        return list(norms(config, dims)), []
    uses: list[NormUse] = []
    unknown: list[str] = []
    for key, usual in _PARTS.items():
        part = config.inner(key)
        if part is None:
            continue
        if kind == "clip" and "model_type" not in part.values:
            part = ModelConfig(part.place, {**_CLIP_DEFAULTS[key], **part.values, "model_type": usual})
        found, missing = config_norms(part, dims)
        uses += found
        unknown += missing
    if not uses and not unknown:
        unknown.append(f"the architecture {kind or 'without model_type'} is not known")
    return uses, unknown


_CLIP_DEFAULTS = {
    "text_config": {"hidden_size": 512, "num_hidden_layers": 12, "num_attention_heads": 8},
    "vision_config": {"hidden_size": 768, "num_hidden_layers": 12, "image_size": 224, "patch_size": 32},
}
