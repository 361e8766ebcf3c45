"""`webnorm scan --accuracy`: the errors of norms with the model's own weights, and of float16 arithmetic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from commands import webnorm
from onnx_graphs import Graph, onnx
from webnorm.cli.work.jobs import BAD_USAGE, OK
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.lab.verify.float16_arithmetic import normalized_in_float16
from webnorm.models.norm_parameters import read_parameters
from webnorm.models.scan import scan_model

FILES = Path(__file__).parent / "files"
COLS = 256


def weights(smallest: float) -> Any:
    """Return weights near 1, and one of another size."""
    found = 1 + np.random.default_rng(3).normal(size=COLS) / 8
    found[77] = smallest
    return found.astype(np.float32)


def write_model(path: Path, **external: Any) -> Path:
    """Write a model of two LayerNorms; one has a channel with a tiny weight."""
    graph = Graph(x=[4, COLS])
    value = "x"
    for name, smallest in (("plain", 1.0), ("outlier", 1e-3)):
        weight = graph.weight(weights(smallest), name=f"{name}.weight")
        bias = graph.weight(np.zeros(COLS), name=f"{name}.bias")
        value = graph.node("LayerNormalization", value, weight, bias, epsilon=1e-5)
        graph.nodes[-1].name = name
    onnx.save_model(graph.model(value), str(path), **external)
    return path


def accuracy(path: Path, *words: str) -> list[dict[str, Any]]:
    done = webnorm(["scan", str(path), "--accuracy", "--json", *words], path.parent)
    assert done.returncode == OK, done.stderr
    return [one["accuracy"] for one in json.loads(done.stdout)["norms"]]


@pytest.mark.parametrize("external", [False, True])
def test_a_norm_that_overflows_in_float16(external: bool, tmp_path: Path, device: Device) -> None:
    """The inputs of the channel with the tiny weight are a thousand times larger, so their square is 1e6."""
    settings = {"save_as_external_data": True, "size_threshold": 0, "location": "w"} if external else {}
    path = write_model(tmp_path / "model.onnx", **settings)
    (found,) = accuracy(path)
    assert found["error"] < 1e-5 and found["nodes_with_weights"] == 2
    ((wrong),) = found["float16_wrong"]
    assert wrong["node"] == "outlier"
    assert wrong["reason"].startswith("a sum of squares is ") and wrong["reason"].endswith("beyond 65504")
    done = webnorm(["scan", str(path), "--accuracy"], tmp_path)
    assert "float16 arithmetic would be wrong at outlier: a sum of squares is" in done.stdout
    assert "inputs: normal with standard deviation 1" in done.stdout
    assert "at plain" not in done.stdout


def test_the_parameters_are_the_models_own(tmp_path: Path) -> None:
    external = write_model(tmp_path / "a.onnx", save_as_external_data=True, size_threshold=0, location="w")
    for path in (write_model(tmp_path / "b.onnx"), external):
        found = read_parameters(scan_model(path))
        assert found.keys() == {
            f"{node}.{one}" for node in ("plain", "outlier") for one in ("weight", "bias")
        }
        np.testing.assert_array_equal(found["outlier.weight"], weights(1e-3).astype(np.float64))


def test_external_data_that_end_too_early(tmp_path: Path) -> None:
    path = write_model(tmp_path / "a.onnx", save_as_external_data=True, size_threshold=0, location="w")
    (tmp_path / "w").write_bytes(b"1234")
    with pytest.raises(WebnormError, match="it ends within the tensor"):
        read_parameters(scan_model(path))
    (tmp_path / "w").unlink()
    done = webnorm(["scan", str(path), "--accuracy"], tmp_path)
    assert done.returncode == BAD_USAGE and done.stderr.count("\n") == 1
    assert "cannot be read: No such file" in done.stderr
    # Without the option, the weights need not exist.
    assert webnorm(["scan", str(path)], tmp_path).returncode == OK


def test_safetensors_next_to_a_config(tmp_path: Path, device: Device) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": COLS,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "rms_norm_eps": 1e-6,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    tensors = {
        "model.layers.0.input_layernorm.weight": weights(1e-3),
        "model.layers.0.post_attention_layernorm.weight": weights(1.0),
        "model.norm.weight": weights(1.0),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    found = accuracy(tmp_path / "config.json")
    assert found[0]["nodes_with_weights"] == 3 and found[0]["error"] < 1e-5
    assert [one["node"] for one in found[0]["float16_wrong"]] == ["model.layers.0.input_layernorm"]


def test_damaged_places_of_safetensors(tmp_path: Path) -> None:
    header = {"norm.weight": {"dtype": "F32", "shape": [8], "data_offsets": [0, 9999]}}
    text = json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(32))
    with pytest.raises(WebnormError, match=r"has 9999 bytes at \d+; expected 32"):
        read_parameters(scan_model(path))


@pytest.mark.parametrize("name", ["qwen3_dynamo", "unet_dynamo", "dit_script", "mamba2_dynamo"])
def test_every_norm_of_a_model_has_an_error(name: str, device: Device) -> None:
    for one in accuracy(FILES / f"{name}.onnx"):
        assert one["reason"] is None and one["error"] < 2e-6 and one["float16_wrong"] == []


def test_a_norm_without_a_kernel_has_a_reason(device: Device, lacking: None) -> None:
    found = accuracy(FILES / "llama_half_dynamo.onnx")
    assert [one["reason"] for one in found] == [
        "unknown option 'round_sideways'",
        None,
        "unknown option 'round_sideways'",
    ]
    assert 1e-5 < found[1]["error"] < 1e-3


# --- the simulation


def rows(mean: float = 0.0, scale: float = 1.0, cols: int = 64) -> Any:
    return np.random.default_rng(1).normal(size=(8, cols)) * scale + mean


@pytest.mark.parametrize(
    ("x", "has_mean", "reason"),
    [
        (rows(), True, ""),
        (rows(), False, ""),
        (rows(scale=64), False, "a sum of squares is "),
        (rows(scale=64), True, "a sum of squares is "),
        # The mean cancels, and so do the digits of x.
        (rows(mean=300), True, "the error is "),
        # The sum of x overflows, but the sum of squares does not.
        (rows(mean=2000), True, "the error is inf"),
        # The squares are below the smallest float16.
        (rows(scale=1e-4), False, "the error is inf"),
    ],
)
def test_float16_arithmetic(x: Any, has_mean: bool, reason: str) -> None:
    found = normalized_in_float16(x, 0.0, has_mean)
    assert found.reason.startswith(reason) and bool(found.reason) == bool(reason), found
    assert found.error < 0.005 or reason
