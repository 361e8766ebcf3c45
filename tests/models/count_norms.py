"""Write the configs of real architectures with the norms that their torch modules have.

Run it with torch, transformers and diffusers: `python tests/models/count_norms.py FOLDER`. The tests of
`webnorm scan` compare what a scan derives from a config with the modules that the library builds from it.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Sizes with which every architecture is small, unless its defaults are.
_TRANSFORMERS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2Model", {}),
    "llama": ("LlamaModel", {"num_hidden_layers": 3}),
    "mistral": ("MistralModel", {"num_hidden_layers": 2}),
    "qwen2": ("Qwen2Model", {"num_hidden_layers": 2}),
    "qwen3": ("Qwen3Model", {"num_hidden_layers": 2}),
    "gemma": ("GemmaModel", {"num_hidden_layers": 2}),
    "gemma2": ("Gemma2Model", {"num_hidden_layers": 2}),
    "gemma3_text": ("Gemma3TextModel", {"num_hidden_layers": 2}),
    "phi": ("PhiModel", {"num_hidden_layers": 2}),
    "phi3": ("Phi3Model", {"num_hidden_layers": 2}),
    "gpt_neox": ("GPTNeoXModel", {"num_hidden_layers": 2}),
    "opt": ("OPTModel", {}),
    "bert": ("BertModel", {}),
    "roberta": ("RobertaModel", {}),
    "distilbert": ("DistilBertModel", {}),
    "vit": ("ViTModel", {}),
    "deit": ("DeiTModel", {}),
    "dinov2": ("Dinov2Model", {}),
    "whisper": ("WhisperModel", {}),
    "bart": ("BartModel", {}),
    "t5": ("T5Model", {}),
    "clip": ("CLIPModel", {}),
    "mamba": ("MambaModel", {"num_hidden_layers": 2}),
    "mamba2": ("Mamba2Model", {"num_hidden_layers": 2, "hidden_size": 256, "num_heads": 8}),
}
_SD_UNET = {
    "sample_size": 64,
    "cross_attention_dim": 768,
    "attention_head_dim": 8,
    "down_block_types": ["CrossAttnDownBlock2D"] * 3 + ["DownBlock2D"],
    "up_block_types": ["UpBlock2D"] + ["CrossAttnUpBlock2D"] * 3,
}
_SDXL_UNET = {
    "sample_size": 128,
    "cross_attention_dim": 2048,
    "block_out_channels": [320, 640, 1280],
    "attention_head_dim": [5, 10, 20],
    "transformer_layers_per_block": [1, 2, 10],
    "down_block_types": ["DownBlock2D"] + ["CrossAttnDownBlock2D"] * 2,
    "up_block_types": ["CrossAttnUpBlock2D"] * 2 + ["UpBlock2D"],
    "use_linear_projection": True,
}
_VAE = {
    "sample_size": 512,
    "block_out_channels": [128, 256, 512, 512],
    "layers_per_block": 2,
    "down_block_types": ["DownEncoderBlock2D"] * 4,
    "up_block_types": ["UpDecoderBlock2D"] * 4,
}
_DIFFUSERS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "sd_unet": ("UNet2DConditionModel", _SD_UNET),
    "sdxl_unet": ("UNet2DConditionModel", _SDXL_UNET),
    "sd_vae": ("AutoencoderKL", _VAE),
    "dit": ("DiTTransformer2DModel", {"num_layers": 4}),
    "flux": ("FluxTransformer2DModel", {"num_layers": 2, "num_single_layers": 3}),
}
# Values of a config that a scan may read; the others would only make the files long.
_KEPT = """
hidden_size n_embd d_model dim num_hidden_layers n_layer n_layers num_layers num_attention_heads n_head
n_heads num_heads num_key_value_heads head_dim rms_norm_eps layer_norm_eps layer_norm_epsilon
layernorm_epsilon norm_eps model_type _class_name dtype text_config vision_config image_size patch_size
encoder_layers decoder_layers max_source_positions num_decoder_layers expand block_out_channels
layers_per_block sample_size norm_num_groups down_block_types up_block_types mid_block_type
transformer_layers_per_block attention_head_dim norm_type num_single_layers qk_layernorm
mid_block_add_attention num_encoder_layers
"""


def counted_norms(model: Any) -> dict[str, int]:
    """Return how many norms of each kind and width a torch module has."""
    found: Counter[str] = Counter()
    for name, module in model.named_modules():
        kind = type(module).__name__
        if "GroupNorm" in kind:
            found[f"group_norm {module.num_channels}/{module.num_groups}"] += 1
        elif kind == "LayerNorm":
            found[f"layer_norm {module.normalized_shape[-1]}"] += 1
        elif "RMSNorm" in kind or (kind.endswith("LayerNorm") and hasattr(module, "weight")):
            gated = "gated" if "Gated" in kind else "rms_norm"
            head = name.endswith(("q_norm", "k_norm", "norm_q", "norm_k", "norm_added_q", "norm_added_k"))
            width = module.weight.shape[-1]
            found[f"{'head_norm' if head else gated} {width}"] += 1
    return dict(sorted(found.items()))


def _trimmed(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _trimmed(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if key in _KEPT.split() and value is not None
    }


def main(folder: Path) -> None:
    """Write one file per architecture: its config, and the counts."""
    import diffusers
    import torch
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    for name, (kind, changed) in _TRANSFORMERS.items():
        model_class = getattr(transformers, kind)
        config = model_class.config_class(**changed)
        with torch.device("meta"):
            model = model_class(config)
        values = json.loads(config.to_json_string(use_diff=False))
        _write(folder / f"{name}.json", values, model)
    for name, (kind, changed) in _DIFFUSERS.items():
        with torch.device("meta"):
            model = getattr(diffusers, kind)(**changed)
        _write(folder / f"{name}.json", {**model.config, "_class_name": kind}, model)


def _write(path: Path, values: Mapping[str, Any], model: Any) -> None:
    content = {"config": _trimmed(values), "norms": counted_norms(model)}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
