"""The norms of diffusion models from the `config.json` of diffusers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from webnorm.errors import WebnormError, shown
from webnorm.models.config_values import ModelConfig
from webnorm.models.dimensions import Dimensions
from webnorm.models.norm_use import NormUse

# Epsilons in diffusers' code: of norms in front of attention, of modulated norms, and in transformers.
_ATTENTION_EPS, _MODULATED_EPS, _TRANSFORMER_EPS = 1e-6, 1e-6, 1e-5
_SILU = ("activation=silu",)
_MODULATED = ("norm=layer_norm",)
# Tokens of FLUX at 1024 x 1024 pixels, and of its text encoder.
_FLUX_IMAGE, _FLUX_TEXT = 4096, 512
_ATTENTION_BLOCKS = ("CrossAttnDownBlock2D", "CrossAttnUpBlock2D", "UNetMidBlock2DCrossAttn")
_PLAIN_BLOCKS = ("DownBlock2D", "UpBlock2D", "UNetMidBlock2D")


@dataclass(frozen=True)
class _Maker:
    """The values that all group norms of a network share."""

    config: ModelConfig
    batch: int
    groups: int
    eps: float

    def group_norm(
        self, channels: int, size: int, eps: float, options: tuple[str, ...], layer: str
    ) -> NormUse:
        groups = self.groups
        if channels % groups:
            raise WebnormError(f"{self.config.place}: {channels} channels do not divide into {groups} groups")
        sizes = {"batch": self.batch, "channels": channels, "spatial": size**2, "groups": groups}
        return NormUse("group_norm", sizes, self.config.dtype, options, {"eps": eps}, 1, (layer,), "config")

    def resnet(self, before: int, channels: int, size: int, layer: str) -> Iterator[NormUse]:
        """Yield the two norms of a residual block, each followed by SiLU."""
        yield self.group_norm(before, size, self.eps, _SILU, f"{layer}.norm1")
        yield self.group_norm(channels, size, self.eps, _SILU, f"{layer}.norm2")

    def attention(self, channels: int, size: int, layer: str) -> NormUse:
        return self.group_norm(channels, size, _ATTENTION_EPS, (), f"{layer}.norm")

    def transformer(self, channels: int, size: int, depth: int, layer: str) -> Iterator[NormUse]:
        """Yield the norm of a transformer's input, and three norms for each of its layers."""
        yield self.attention(channels, size, layer)
        rows = {"rows": self.batch * size**2, "cols": channels}
        scalars = {"eps": _TRANSFORMER_EPS}
        yield NormUse("layer_norm", rows, self.config.dtype, (), scalars, 3 * depth, (layer,), "config")


def _size(size: int, level: int) -> int:
    """Return the side of an image after strided convolutions, which round up."""
    for _ in range(level):
        size = -(-size // 2)
    return size


def _has_attention(config: ModelConfig, block: str) -> bool:
    if block not in _ATTENTION_BLOCKS + _PLAIN_BLOCKS:
        known = ", ".join(_ATTENTION_BLOCKS + _PLAIN_BLOCKS)
        raise WebnormError(
            f"{config.place}: the block type {shown(block)} is not known; expected one of {known}"
        )
    return block in _ATTENTION_BLOCKS


def _unet(config: ModelConfig, dims: Dimensions) -> Iterator[NormUse]:
    """Yield the norms of Stable Diffusion's UNet (UNet2DConditionModel)."""
    channels = config.numbers("block_out_channels")
    levels = len(channels)
    layers = config.numbers("layers_per_block", levels, default=2)
    depths = config.numbers("transformer_layers_per_block", levels, default=1)
    size = config.number("sample_size", default=64)
    groups, eps = config.number("norm_num_groups", default=32), config.real("norm_eps", default=1e-5)
    maker = _Maker(config, dims.size("batch"), groups, eps)
    for level, block in enumerate(_blocks(config, "down_block_types", levels)):
        side, name = _size(size, level), f"down_blocks.{level}"
        for layer in range(layers[level]):
            before = channels[max(0, level - 1)] if layer == 0 else channels[level]
            yield from maker.resnet(before, channels[level], side, f"{name}.resnets.{layer}")
            if _has_attention(config, block):
                yield from maker.transformer(
                    channels[level], side, depths[level], f"{name}.attentions.{layer}"
                )
    last, side = channels[-1], _size(size, levels - 1)
    middle = config.text("mid_block_type", default="UNetMidBlock2DCrossAttn")
    for layer in range(2):
        yield from maker.resnet(last, last, side, f"mid_block.resnets.{layer}")
    if _has_attention(config, middle):
        yield from maker.transformer(last, side, depths[-1], "mid_block.attentions.0")
    for at, block in enumerate(_blocks(config, "up_block_types", levels)):
        yield from _up_block(maker, at, _has_attention(config, block), channels, layers, depths, size)
    yield maker.group_norm(channels[0], size, eps, _SILU, "conv_norm_out")


def _up_block(
    maker: _Maker,
    at: int,
    attends: bool,
    channels: list[int],
    layers: list[int],
    depths: list[int],
    size: int,
) -> Iterator[NormUse]:
    """Yield the norms of a block that also reads the results of the blocks on the way down."""
    level = len(channels) - 1 - at
    own, count = channels[level], layers[level] + 1
    below, above = channels[min(level + 1, len(channels) - 1)], channels[max(level - 1, 0)]
    for layer in range(count):
        before = (below if layer == 0 else own) + (above if layer == count - 1 else own)
        name = f"up_blocks.{at}"
        yield from maker.resnet(before, own, _size(size, level), f"{name}.resnets.{layer}")
        if attends:
            yield from maker.transformer(own, _size(size, level), depths[level], f"{name}.attentions.{layer}")


def _blocks(config: ModelConfig, key: str, count: int) -> list[str]:
    found = config.names(key)
    if len(found) != count:
        raise WebnormError(
            f"{config.place}: {key} has {len(found)} blocks; expected {count}, one for each width"
        )
    return found


def _vae(config: ModelConfig, dims: Dimensions) -> Iterator[NormUse]:
    """Yield the norms of an image autoencoder (AutoencoderKL)."""
    channels = config.numbers("block_out_channels")
    layers = config.number("layers_per_block", default=1)
    size = config.number("sample_size", default=512)
    maker = _Maker(config, dims.size("batch"), config.number("norm_num_groups", default=32), 1e-6)
    small, last = _size(size, len(channels) - 1), channels[-1]
    attends = config.flag("mid_block_add_attention", True)
    for level, own in enumerate(channels):
        for layer in range(layers):
            before = channels[max(0, level - 1)] if layer == 0 else own
            yield from maker.resnet(
                before, own, _size(size, level), f"encoder.down_blocks.{level}.resnets.{layer}"
            )
    for half in ("encoder", "decoder"):
        for layer in range(2):
            yield from maker.resnet(last, last, small, f"{half}.mid_block.resnets.{layer}")
        if attends:
            yield maker.attention(last, small, f"{half}.mid_block.attentions.0")
    yield maker.group_norm(last, small, 1e-6, _SILU, "encoder.conv_norm_out")
    for at, own in enumerate(reversed(channels)):
        level = len(channels) - 1 - at
        for layer in range(layers + 1):
            before = channels[min(level + 1, len(channels) - 1)] if layer == 0 else own
            yield from maker.resnet(
                before, own, _size(size, level), f"decoder.up_blocks.{at}.resnets.{layer}"
            )
    yield maker.group_norm(channels[0], size, 1e-6, _SILU, "decoder.conv_norm_out")


def _modulated(
    config: ModelConfig, batch: int, tokens: int, cols: int, eps: float, count: int, layer: str
) -> NormUse:
    sizes = {"batch": batch, "rows": tokens, "cols": cols}
    scalars = {"eps": eps}
    return NormUse("modulated_norm", sizes, config.dtype, _MODULATED, scalars, count, (layer,), "config")


def _dit(config: ModelConfig, dims: Dimensions) -> Iterator[NormUse]:
    """Yield the norms of DiT: two for each layer, and one at the end."""
    if config.text("norm_type", default="ada_norm_zero") != "ada_norm_zero":
        raise WebnormError(
            f"{config.place}: norm_type is {shown(config.values['norm_type'])}; expected ada_norm_zero"
        )
    heads, width = (
        config.number("num_attention_heads", default=16),
        config.number("attention_head_dim", default=72),
    )
    layers = config.number("num_layers", default=28)
    side = config.number("sample_size", default=32) // config.number("patch_size", default=2)
    batch, eps = dims.size("batch"), config.real("norm_eps", default=1e-5)
    cols = heads * width
    yield _modulated(config, batch, max(1, side**2), cols, _MODULATED_EPS, layers, "norm1")
    yield _modulated(config, batch, max(1, side**2), cols, eps, layers, "norm3")
    yield _modulated(config, batch, max(1, side**2), cols, _MODULATED_EPS, 1, "norm_out")


def _flux(config: ModelConfig, dims: Dimensions) -> Iterator[NormUse]:
    """Yield the norms of FLUX: blocks with two streams, then blocks with one."""
    heads, width = (
        config.number("num_attention_heads", default=24),
        config.number("attention_head_dim", default=128),
    )
    double, single = config.number("num_layers", default=19), config.number("num_single_layers", default=38)
    batch = dims.size("batch")
    image = dims.size("image_tokens", default=_FLUX_IMAGE)
    text = dims.size("text_tokens", default=_FLUX_TEXT)
    rows = {"image": (image, 2 * double + 1, double), "text": (text, 2 * double, double)}
    rows["joint"] = (image + text, single, single)
    for stream, (tokens, norms, heads_norms) in rows.items():
        yield _modulated(config, batch, tokens, heads * width, _MODULATED_EPS, norms, f"{stream}.norm")
        sizes = {"batch": batch, "tokens": tokens, "q_heads": heads, "k_heads": heads, "dim": width}
        options, scalars = ("norm=rms_norm",), {"eps": 1e-6}
        layer = (f"{stream}.norm_q",)
        yield NormUse("qk_norm", sizes, config.dtype, options, scalars, heads_norms, layer, "config")


# The norms by `_class_name`.
DIFFUSION_MODELS: Mapping[str, Callable[[ModelConfig, Dimensions], Iterator[NormUse]]] = {
    "UNet2DConditionModel": _unet,
    "AutoencoderKL": _vae,
    "DiTTransformer2DModel": _dit,
    "Transformer2DModel": _dit,
    "FluxTransformer2DModel": _flux,
}
