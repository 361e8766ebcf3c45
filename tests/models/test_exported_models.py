"""Scans of models that torch's exporters wrote (export_models.py): every norm, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_graphs import line, lines
from webnorm.models.scan import scan_model

FILES = Path(__file__).parent / "files"
# Each model has one or two layers, so that the numbers follow from its architecture: GPT-2 and BERT have two
# LayerNorms per layer and one more, Gemma 3 has four RMSNorms per layer and one more, ...
EXPECTED = {
    "bert_dynamo": """
        1 layer_norm rows=8 cols=32 float32 fused eps=1e-12
        2 softmax batch=4 queries=8 cols=8 float32 fused mask scale=0.353553
        4 layer_norm rows=8 cols=32 float32 fused residual eps=1e-12
    """,
    "bert_script": """
        5 layer_norm rows=8 cols=32 float32 fused residual eps=1e-12
        2 softmax batch=4 queries=8 cols=8 float32 fused mask scale=0.353553
    """,
    "dit_dynamo": """
        1 modulated_norm batch=1 rows=16 cols=32 float32 fused norm=layer_norm eps=1e-06
        1 softmax batch=2 queries=16 cols=16 float32 fused
        1 modulated_norm batch=1 rows=16 cols=32 float32 fused gate norm=layer_norm residual eps=1e-05
        1 modulated_norm batch=1 rows=16 cols=32 float32 fused gate norm=layer_norm residual eps=1e-06
    """,
    "dit_script": """
        1 modulated_norm batch=1 rows=16 cols=32 float32 fused norm=layer_norm eps=1e-06
        1 softmax batch=2 queries=16 cols=16 float32 fused
        1 modulated_norm batch=1 rows=16 cols=32 float32 fused gate norm=layer_norm residual eps=1e-05
        1 modulated_norm batch=1 rows=16 cols=32 float32 fused gate norm=layer_norm residual eps=1e-06
    """,
    "flux_dynamo": """
        2 modulated_norm batch=1 rows=16 cols=32 float32 fused norm=layer_norm eps=1e-06
        1 modulated_norm batch=1 rows=8 cols=32 float32 fused norm=layer_norm eps=1e-06
        1 qk_norm batch=1 tokens=16 q_heads=2 k_heads=2 dim=16 float32 decomposed norm=rms_norm eps=1e-06
        1 qk_norm batch=1 tokens=8 q_heads=2 k_heads=2 dim=16 float32 decomposed norm=rms_norm eps=1e-06
        2 softmax batch=2 queries=24 cols=24 float32 fused
        1 modulated_norm batch=1 rows=16 cols=32 float32 fused gate norm=layer_norm residual eps=1e-06
        1 modulated_norm batch=1 rows=8 cols=32 float32 fused gate norm=layer_norm residual eps=1e-06
        1 modulated_norm batch=1 rows=24 cols=32 float32 fused norm=layer_norm eps=1e-06
        1 qk_norm batch=1 tokens=24 q_heads=2 k_heads=2 dim=16 float32 decomposed norm=rms_norm eps=1e-06
    """,
    "gemma3_dynamo": """
        5 rms_norm rows=8 cols=32 float32 decomposed eps=1e-06
        2 qk_norm batch=1 tokens=8 q_heads=4 k_heads=2 dim=8 float32 decomposed layout=heads_first norm=rms_norm eps=1e-06
        2 softmax batch=4 queries=8 cols=8 float32 fused mask scale=0.0625
        4 rms_norm rows=8 cols=32 float32 decomposed residual eps=1e-06
    """,
    "gpt2_dynamo": """
        1 layer_norm rows=8 cols=32 float32 fused eps=1e-05
        2 softmax batch=4 queries=8 cols=8 float32 fused mask
        4 layer_norm rows=8 cols=32 float32 fused residual eps=1e-05
    """,
    "gpt2_script": """
        5 layer_norm rows=8 cols=32 float32 fused residual eps=1e-05
        2 softmax batch=4 queries=8 cols=8 float32 fused mask
    """,
    "llama_dynamo": """
        1 rms_norm rows=8 cols=32 float32 decomposed eps=1e-06
        2 softmax batch=4 queries=8 cols=8 float32 fused mask scale=0.353553
        4 rms_norm rows=8 cols=32 float32 decomposed residual eps=1e-06
    """,
    "llama_half_dynamo": """
        1 rms_norm rows=8 cols=32 float16 decomposed rounding=before_weight eps=1e-06
        2 softmax batch=4 queries=8 cols=8 float16 fused mask scale=0.353516
        4 rms_norm rows=8 cols=32 float16 decomposed residual rounding=before_weight eps=1e-06
    """,
    "llama_half_script": """
        1 rms_norm rows=8 cols=32 float16 decomposed rounding=before_weight eps=1e-06
        2 softmax batch=4 queries=8 cols=8 float16 fused mask scale=0.353516
        4 rms_norm rows=8 cols=32 float16 decomposed residual rounding=before_weight eps=1e-06
    """,
    "llama_script": """
        1 rms_norm rows=8 cols=32 float32 decomposed eps=1e-06
        2 softmax batch=4 queries=8 cols=8 float32 fused mask scale=0.353553
        4 rms_norm rows=8 cols=32 float32 decomposed residual eps=1e-06
    """,
    "mamba2_dynamo": """
        1 rms_norm rows=8 cols=32 float32 decomposed eps=1e-05
        1 gated_norm rows=8 heads=1 cols=64 float32 decomposed norm=rms_norm order=gate_first eps=1e-05
        1 rms_norm rows=8 cols=32 float32 decomposed residual eps=1e-05
    """,
    "no_norms_dynamo": """
    """,
    "no_norms_script": """
    """,
    "qwen3_dynamo": """
        1 rms_norm rows=8 cols=32 float32 decomposed eps=1e-06
        2 qk_norm batch=1 tokens=8 q_heads=4 k_heads=2 dim=8 float32 decomposed norm=rms_norm eps=1e-06
        2 softmax batch=4 queries=8 cols=8 float32 fused mask scale=0.353553
        4 rms_norm rows=8 cols=32 float32 decomposed residual eps=1e-06
    """,
    "qwen3_script": """
        1 rms_norm rows=8 cols=32 float32 decomposed eps=1e-06
        2 qk_norm batch=1 tokens=8 q_heads=4 k_heads=2 dim=8 float32 decomposed norm=rms_norm eps=1e-06
        2 softmax batch=4 queries=8 cols=8 float32 fused mask scale=0.353553
        4 rms_norm rows=8 cols=32 float32 decomposed residual eps=1e-06
    """,
    "t5_dynamo": """
        1 rms_norm rows=8 cols=32 float32 decomposed eps=1e-06
        2 softmax batch=4 queries=8 cols=8 float32 fused batch_mask
        4 rms_norm rows=8 cols=32 float32 decomposed residual eps=1e-06
    """,
    "t5_script": """
        1 rms_norm rows=8 cols=32 float32 decomposed eps=1e-06
        2 softmax batch=4 queries=8 cols=8 float32 fused batch_mask
        4 rms_norm rows=8 cols=32 float32 decomposed residual eps=1e-06
    """,
    "unet_dynamo": """
        6 group_norm batch=1 channels=32 spatial=64 groups=8 float32 fused activation=silu eps=1e-05
        2 group_norm batch=1 channels=32 spatial=64 groups=8 float32 fused residual eps=1e-06
        2 layer_norm rows=64 cols=32 float32 fused eps=1e-05
        2 softmax batch=8 queries=64 cols=64 float32 fused
        4 layer_norm rows=64 cols=32 float32 fused residual eps=1e-05
        2 softmax batch=8 queries=64 cols=4 float32 fused
        3 group_norm batch=1 channels=32 spatial=64 groups=8 float32 fused activation=silu residual eps=1e-05
        2 group_norm batch=1 channels=64 spatial=64 groups=8 float32 fused activation=silu eps=1e-05
    """,
    "vae_decoder_dynamo": """
        5 group_norm batch=1 channels=32 spatial=64 groups=8 float32 fused activation=silu eps=1e-06
        1 group_norm batch=1 channels=32 spatial=64 groups=8 float32 fused residual eps=1e-06
        1 softmax batch=1 queries=64 cols=64 float32 fused
        3 group_norm batch=1 channels=32 spatial=64 groups=8 float32 fused activation=silu residual eps=1e-06
        1 group_norm batch=1 channels=32 spatial=256 groups=8 float32 fused activation=silu eps=1e-06
        2 group_norm batch=1 channels=16 spatial=256 groups=8 float32 fused activation=silu eps=1e-06
        2 group_norm batch=1 channels=16 spatial=256 groups=8 float32 fused activation=silu residual eps=1e-06
    """,
    "vae_decoder_script": """
        5 group_norm batch=1 channels=32 spatial=64 groups=8 float32 fused activation=silu eps=1e-06
        1 group_norm batch=1 channels=32 spatial=64 groups=8 float32 fused residual eps=1e-06
        1 softmax batch=1 queries=64 cols=64 float32 fused
        3 group_norm batch=1 channels=32 spatial=64 groups=8 float32 fused activation=silu residual eps=1e-06
        1 group_norm batch=1 channels=32 spatial=256 groups=8 float32 fused activation=silu eps=1e-06
        2 group_norm batch=1 channels=16 spatial=256 groups=8 float32 fused activation=silu eps=1e-06
        2 group_norm batch=1 channels=16 spatial=256 groups=8 float32 fused activation=silu residual eps=1e-06
    """,
    "vit_dynamo": """
        1 layer_norm rows=17 cols=32 float32 fused eps=1e-12
        2 softmax batch=4 queries=17 cols=17 float32 fused mask scale=0.353553
        4 layer_norm rows=17 cols=32 float32 fused residual eps=1e-12
    """,
    "vit_script": """
        1 layer_norm rows=17 cols=32 float32 fused eps=1e-12
        2 softmax batch=4 queries=17 cols=17 float32 fused scale=0.353553
        4 layer_norm rows=17 cols=32 float32 fused residual eps=1e-12
    """,
    "whisper_dynamo": """
        1 layer_norm rows=16 cols=32 float32 fused eps=1e-05
        2 softmax batch=4 queries=16 cols=16 float32 fused
        4 layer_norm rows=16 cols=32 float32 fused residual eps=1e-05
    """,
    "whisper_script": """
        1 layer_norm rows=16 cols=32 float32 fused eps=1e-05
        2 softmax batch=4 queries=16 cols=16 float32 fused
        4 layer_norm rows=16 cols=32 float32 fused residual eps=1e-05
    """,
    "phi_dynamo": """
        1 layer_norm rows=8 cols=32 float32 fused eps=1e-05
        2 qk_norm batch=1 tokens=8 q_heads=4 k_heads=2 dim=8 float32 fused bias layout=heads_first norm=layer_norm eps=1e-05
        2 softmax batch=4 queries=8 cols=8 float32 fused mask scale=0.353553
        2 layer_norm rows=8 cols=32 float32 fused residual eps=1e-05
    """,
    "convnext_dynamo": """
        3 layer_norm rows=64 cols=16 float32 fused eps=1e-06
        1 layer_norm rows=16 cols=24 float32 fused eps=1e-06
        1 layer_norm rows=1 cols=24 float32 fused eps=1e-12
    """,
    "sd3_dynamo": """
        1 modulated_norm batch=1 rows=16 cols=16 float32 fused norm=layer_norm eps=1e-06
        1 modulated_norm batch=1 rows=6 cols=16 float32 fused norm=layer_norm eps=1e-06
        2 qk_norm batch=1 tokens=16 q_heads=2 k_heads=2 dim=8 float32 decomposed layout=heads_first norm=rms_norm eps=1e-06
        2 qk_norm batch=1 tokens=6 q_heads=2 k_heads=2 dim=8 float32 decomposed layout=heads_first norm=rms_norm eps=1e-06
        2 softmax batch=2 queries=22 cols=22 float32 fused
        4 modulated_norm batch=1 rows=16 cols=16 float32 fused gate norm=layer_norm residual eps=1e-06
        2 modulated_norm batch=1 rows=6 cols=16 float32 fused gate norm=layer_norm residual eps=1e-06
    """,
}


def test_every_file_is_expected() -> None:
    assert {path.stem for path in FILES.glob("*.onnx")} == {*EXPECTED}
    assert all(path.stat().st_size < 60_000 for path in FILES.glob("*.onnx"))


@pytest.mark.sampled(ids=["llama_half_script", "unet_dynamo", "no_norms_dynamo"])
@pytest.mark.parametrize("name", EXPECTED)
def test_exported_model(name: str) -> None:
    found = scan_model(FILES / f"{name}.onnx")
    assert [line(use) for use in found.uses] == lines(EXPECTED[name])
    assert (found.missing, found.notes, found.assumed) == ((), (), {})
    # The scan reads no weights, and the weights of these files are not there.
    assert not (FILES / "weights.bin").exists()
