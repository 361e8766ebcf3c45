"""Export small models of real architectures to ONNX, for the tests of `webnorm scan`.

Run it with torch, transformers, diffusers and onnxscript: `python tests/models/export_models.py FOLDER`.
Files keep their graphs and lose their weights, which a scan does not read.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# Initializers of more elements are weights; smaller ones are constants such as eps and shapes.
_MOST_KEPT = 64
_MOST_BYTES = 60_000

Export = tuple[Any, tuple[Any, ...], dict[str, Any]]


def _ids(count: int = 8) -> Any:
    import torch

    return torch.ones((1, count), dtype=torch.long)


def _small(**changed: Any) -> dict[str, Any]:
    """Return the sizes of a small transformer."""
    usual = {
        "vocab_size": 96,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 64,
        "use_cache": False,
        "attn_implementation": "eager",
    }
    return {**usual, **changed}


def _called(model: Any, *inputs: Any) -> Export:
    """Return a model whose only argument is its input: torch's older exporter passes options by position."""
    import torch

    class Called(torch.nn.Module):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Any) -> Any:
            # The mask spares a search for packed sequences, which the older exporter cannot export.
            return self.model(x, attention_mask=torch.ones_like(x))[0]

    return Called(), inputs, {}


def gpt2() -> Export:
    """Return GPT-2."""
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(vocab_size=96, n_positions=64, n_embd=32, n_layer=2, n_head=4, use_cache=False)
    return _called(GPT2Model(config), _ids())


def bert() -> Export:
    """Return BERT."""
    from transformers import BertConfig, BertModel

    sizes = _small()
    for name in ("num_key_value_heads", "head_dim", "use_cache"):
        del sizes[name]
    return _called(BertModel(BertConfig(**sizes)), _ids())


def llama() -> Export:
    """Return Llama."""
    from transformers import LlamaConfig, LlamaModel

    return _called(LlamaModel(LlamaConfig(**_small())), _ids())


def llama_half() -> Export:
    """Return Llama in float16."""
    import torch

    model, inputs, named = llama()
    return model.to(torch.float16), inputs, named


def qwen3() -> Export:
    """Return Qwen3."""
    from transformers import Qwen3Config, Qwen3Model

    return _called(Qwen3Model(Qwen3Config(**_small())), _ids())


def gemma3() -> Export:
    """Return the language model of Gemma 3."""
    from transformers import Gemma3TextConfig, Gemma3TextModel

    return _called(Gemma3TextModel(Gemma3TextConfig(**_small())), _ids())


def vit() -> Export:
    """Return ViT."""
    import torch
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=16,
        patch_size=4,
        attn_implementation="eager",
    )
    return ViTModel(config, add_pooling_layer=False), (torch.randn(1, 3, 16, 16),), {}


def whisper() -> Export:
    """Return the encoder of Whisper."""
    import torch
    from transformers import WhisperConfig, WhisperModel

    config = WhisperConfig(
        d_model=32,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        num_mel_bins=8,
        max_source_positions=16,
        vocab_size=96,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        attn_implementation="eager",
    )
    return WhisperModel(config).encoder, (torch.randn(1, 8, 32),), {}


def t5() -> Export:
    """Return the encoder of T5."""
    from transformers import T5Config, T5EncoderModel

    config = T5Config(vocab_size=96, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, use_cache=False)
    return _called(T5EncoderModel(config), _ids())


def mamba2() -> Export:
    """Return Mamba-2."""
    from transformers import Mamba2Config, Mamba2Model

    config = Mamba2Config(
        vocab_size=96,
        hidden_size=32,
        num_hidden_layers=1,
        num_heads=8,
        head_dim=8,
        state_size=8,
        n_groups=1,
        expand=2,
        chunk_size=8,
        use_cache=False,
    )
    return _called(Mamba2Model(config), _ids())


def unet() -> Export:
    """Return the UNet of Stable Diffusion."""
    import torch
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=8,
        block_out_channels=(32,),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D",),
        up_block_types=("UpBlock2D",),
        cross_attention_dim=16,
        attention_head_dim=8,
        norm_num_groups=8,
    )
    return model, (torch.randn(1, 4, 8, 8), torch.tensor(1.0), torch.randn(1, 4, 16)), {}


def vae_decoder() -> Export:
    """Return the decoder of Stable Diffusion's VAE."""
    import torch
    from diffusers import AutoencoderKL

    model = AutoencoderKL(
        block_out_channels=(16, 32),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        norm_num_groups=8,
        latent_channels=4,
    )
    return model.decoder, (torch.randn(1, 4, 8, 8),), {}


def dit() -> Export:
    """Return DiT."""
    import torch
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=16,
        in_channels=4,
        num_layers=1,
        sample_size=8,
        out_channels=4,
    )
    inputs = {
        "hidden_states": torch.randn(1, 4, 8, 8),
        "timestep": torch.tensor([1]),
        "class_labels": torch.tensor([1]),
        "return_dict": False,
    }
    return model, (), inputs


def flux() -> Export:
    """Return the transformer of FLUX."""
    import torch
    from diffusers import FluxTransformer2DModel

    model = FluxTransformer2DModel(
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=8,
        pooled_projection_dim=8,
        axes_dims_rope=(4, 4, 8),
    )
    inputs = {
        "hidden_states": torch.randn(1, 16, 4),
        "encoder_hidden_states": torch.randn(1, 8, 8),
        "pooled_projections": torch.randn(1, 8),
        "timestep": torch.tensor([1.0]),
        "img_ids": torch.zeros(16, 3),
        "txt_ids": torch.zeros(8, 3),
        "return_dict": False,
    }
    return model, (), inputs


def phi() -> Export:
    """Return Phi with LayerNorm of queries and keys."""
    from transformers import PhiConfig, PhiModel

    sizes = _small(qk_layernorm=True)
    del sizes["head_dim"]
    return _called(PhiModel(PhiConfig(**sizes)), _ids())


def convnext() -> Export:
    """Return ConvNeXt, which normalizes the channels of each pixel."""
    import torch
    from transformers import ConvNextConfig, ConvNextModel

    config = ConvNextConfig(hidden_sizes=[16, 24], depths=[1, 1], num_stages=2)
    return ConvNextModel(config), (torch.randn(1, 3, 32, 32),), {}


def sd3() -> Export:
    """Return the transformer of Stable Diffusion 3."""
    import torch
    from diffusers import SD3Transformer2DModel

    model = SD3Transformer2DModel(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=2,
        joint_attention_dim=16,
        caption_projection_dim=16,
        pooled_projection_dim=16,
        pos_embed_max_size=16,
        qk_norm="rms_norm",
    )
    inputs = {
        "hidden_states": torch.randn(1, 4, 8, 8),
        "encoder_hidden_states": torch.randn(1, 6, 16),
        "pooled_projections": torch.randn(1, 16),
        "timestep": torch.tensor([1]),
        "return_dict": False,
    }
    return model, (), inputs


def no_norms() -> Export:
    """Return a network with BatchNorm, global average pooling and a variance as an output."""
    import torch

    class Net(torch.nn.Module):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)
            self.head = torch.nn.Linear(8, 4)

        def forward(self, x: Any) -> Any:
            y = torch.nn.functional.silu(self.norm(self.conv(x)))
            pooled = y.mean((2, 3))
            return self.head(pooled), y.var((2, 3), unbiased=False), torch.exp(pooled)

    return Net(), (torch.randn(1, 3, 8, 8),), {}


MODELS: Mapping[str, Callable[[], Export]] = {
    one.__name__: one
    for one in (
        gpt2, bert, llama, llama_half, qwen3, gemma3, vit, whisper, t5, mamba2, unet, vae_decoder, dit, flux,
        phi, convnext, sd3,
        no_norms,
    )
}  # fmt: skip


def write(name: str, path: Path, *, dynamo: bool) -> None:
    """Export a model without its weights."""
    import onnx
    import torch

    torch.manual_seed(0)
    model, inputs, named = MODELS[name]()
    model.eval()
    more = {} if dynamo else {"opset_version": 17}
    with torch.no_grad():
        torch.onnx.export(
            model, inputs, str(path), kwargs=named, dynamo=dynamo, external_data=False, verbose=False, **more
        )
    exported = onnx.load(str(path))
    _drop_weights(exported)
    data = exported.SerializeToString()
    path.write_bytes(data)
    note = "" if len(data) < _MOST_BYTES else " (too large to commit)"
    print(f"{path.name}: {len(data)} bytes{note}")


def _drop_weights(model: Any) -> None:
    """Remove the payload of large tensors, and texts that only explain."""
    del model.metadata_props[:]
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    del model.graph.metadata_props[:]
    for one in (*model.graph.value_info, *model.graph.input, *model.graph.output):
        del one.metadata_props[:]
    for tensor in model.graph.initializer:
        del tensor.metadata_props[:]
        count = 1
        for size in tensor.dims:
            count *= size
        if count > _MOST_KEPT:
            for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data"):
                tensor.ClearField(field)
            tensor.data_location = tensor.EXTERNAL
            tensor.external_data.add(key="location", value="weights.bin")


def main(folder: Path, names: list[str]) -> None:
    """Export all models, or the named ones, with both exporters."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or MODELS:
        for exporter, dynamo in (("script", False), ("dynamo", True)):
            path = folder / f"{name}_{exporter}.onnx"
            try:
                write(name, path, dynamo=dynamo)
            except Exception as error:  # an exporter may lack an operator
                path.unlink(missing_ok=True)
                print(f"{path.name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
                if "-v" in sys.argv:
                    traceback.print_exc()


if __name__ == "__main__":
    main(Path(sys.argv[1]), [one for one in sys.argv[2:] if one != "-v"])
