"""`scan_model` and `webnorm scan`: configs, headers of safetensors, folders, options of the command."""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from commands import webnorm
from fuzzing import examples
from onnx_graphs import line
from webnorm.errors import WebnormError
from webnorm.kernels.headers.library import own_kernel, own_kernels
from webnorm.models.norm_use import NormUse
from webnorm.models.scan import scan_model
from webnorm.models.vocabulary import SIZES
from webnorm.op.registry import OPS, options_of

FILES = Path(__file__).parent / "files"
CONFIGS = FILES / "configs"


def write_config(folder: Path, **values: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


def architecture(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))["config"]
    return found


def uses_of(path: Path, **dims: int) -> list[str]:
    return [line(use) for use in scan_model(path, dims).uses]


def refusal(path: Path, **dims: int) -> str:
    with pytest.raises(WebnormError) as caught:
        scan_model(path, dims)
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(str(path), "FILE")


# --- configs


def test_config(tmp_path: Path) -> None:
    path = write_config(tmp_path, **architecture("qwen3"), dtype="bfloat16")
    assert uses_of(path) == [
        "5 rms_norm rows=128 cols=4096 bfloat16 config eps=1e-06",
        "2 qk_norm batch=1 tokens=128 q_heads=32 k_heads=32 dim=128 bfloat16 config norm=rms_norm eps=1e-06",
    ]
    found = scan_model(tmp_path, {"sequence": 4096, "batch": 2})
    assert found.uses[0].sizes == {"rows": 8192, "cols": 4096} and found.assumed == {}


def test_zero_centered_weights(tmp_path: Path) -> None:
    write_config(tmp_path, **architecture("gemma3_text"))
    norms, heads = scan_model(tmp_path).uses
    assert norms.options == ("zero_centered_weight",)
    assert heads.scalars == {"eps": 1e-6, "weight_offset": 1.0}


def test_config_agrees_with_an_export(tmp_path: Path) -> None:
    """The config of the UNet in export_models.py gives the group norms of its graph."""
    blocks = {"down_block_types": ["CrossAttnDownBlock2D"], "up_block_types": ["UpBlock2D"]}
    sizes = {"sample_size": 8, "block_out_channels": [32], "layers_per_block": 1, "norm_num_groups": 8}
    write_config(tmp_path, _class_name="UNet2DConditionModel", **sizes, **blocks)

    def norms(path: Path) -> Mapping[tuple[Any, ...], int]:
        found: dict[tuple[Any, ...], int] = {}
        for use in scan_model(path).uses:
            if use.op != "softmax":
                # Only a graph shows which sums a norm can include.
                options = tuple(one for one in use.options if one != "residual")
                key = (use.op, *use.sizes.items(), options, *(use.scalars or {}).items())
                found[key] = found.get(key, 0) + use.count
        return found

    assert norms(tmp_path) == norms(FILES / "unet_dynamo.onnx")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"hidden_size": -1}, "FILE: hidden_size is -1; expected a whole number from 1 to 16777216"),
        ({"hidden_size": 10**30}, "FILE: hidden_size is "),
        ({"hidden_size": "wide"}, "FILE: hidden_size is 'wide'; expected a whole number from 1 to 16777216"),
        (
            {"num_hidden_layers": None},
            "FILE: it has no num_hidden_layers or n_layer or num_layers or n_layers",
        ),
        ({"rms_norm_eps": "small"}, "FILE: rms_norm_eps is 'small'; expected a number of 0 or more"),
        ({"dtype": 16}, "FILE: dtype is 16; expected a string"),
    ],
    ids=str,
)
def test_wrong_values(changed: dict[str, Any], expected: str, tmp_path: Path) -> None:
    path = write_config(tmp_path, **{**architecture("llama"), **changed})
    assert refusal(path).startswith(expected)


def test_groups_that_do_not_divide(tmp_path: Path) -> None:
    path = write_config(tmp_path, **{**architecture("sd_vae"), "norm_num_groups": 48})
    assert refusal(path) == "FILE: 128 channels do not divide into 48 groups"


def test_unknown_blocks(tmp_path: Path) -> None:
    values = {**architecture("sd_unet"), "mid_block_type": "Other"}
    assert refusal(write_config(tmp_path, **values)).startswith("FILE: the block type 'Other' is not known; ")


def test_unknown_architecture(tmp_path: Path) -> None:
    found = scan_model(write_config(tmp_path, model_type="brand_new"))
    assert (found.uses, found.missing) == ((), ("the architecture brand_new is not known",))


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"\xff", b'{"a": NaN}', b"[" * 10**5], ids=repr)
def test_no_config(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    assert refusal(path).startswith("FILE: ")


def test_pipeline(tmp_path: Path) -> None:
    """A folder of diffusers: its parts are scanned together."""
    (tmp_path / "model_index.json").write_text('{"_class_name": "StableDiffusionPipeline"}')
    for part, name in (("unet", "sd_unet"), ("vae", "sd_vae"), ("text_encoder", "llama")):
        (tmp_path / part).mkdir()
        write_config(tmp_path / part, **architecture(name))
    found = scan_model(tmp_path)
    assert {use.op for use in found.uses} == {"group_norm", "layer_norm", "rms_norm"}
    assert found.uses[0].nodes[0] == "unet: down_blocks.0.resnets.0.norm1"
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "model_index.json").write_text("{}")
    assert "none of its parts is there" in refusal(tmp_path / "empty")


# --- safetensors


def write_tensors(folder: Path, name: str = "model.safetensors", dtype: Any = np.float16) -> Path:
    shapes = {
        "layers.0.input_layernorm.weight": (64,),
        "layers.0.self_attn.q_norm.weight": (16,),
        "layers.0.self_attn.k_norm.weight": (16,),
        "layers.0.self_attn.q_proj.weight": (64, 64),
        "layers.0.self_attn.k_proj.weight": (32, 64),
        "ln_f.weight": (64,),
        "ln_f.bias": (64,),
        "bn.norm.weight": (64,),
        "bn.norm.running_mean": (64,),
        "normal.weight": (8, 8),
        "enormous.weight": (64, 64),
    }
    path = folder / name
    save_file({key: np.zeros(shape, dtype) for key, shape in shapes.items()}, path)
    return path


def test_headers_of_an_unknown_architecture(tmp_path: Path) -> None:
    write_tensors(tmp_path)
    write_config(tmp_path, model_type="brand_new")
    found = scan_model(tmp_path)
    assert [line(use) for use in found.uses] == [
        "1 rms_norm rows=128 cols=64 float16 config",
        "1 qk_norm batch=1 tokens=128 q_heads=4 k_heads=2 dim=16 float16 config norm=rms_norm",
        "1 layer_norm rows=128 cols=64 float16 config",
    ]
    assert found.kind == "safetensors" and found.missing[0] == "the architecture brand_new is not known"


def test_headers_state_the_type(tmp_path: Path) -> None:
    config = write_config(tmp_path, **architecture("llama"))
    assert scan_model(config).notes == ("the config states no dtype; float32 is assumed",)
    write_tensors(tmp_path)
    assert {use.dtype for use in scan_model(config).uses} == {"float16"}


def test_payload_of_safetensors_is_not_needed(tmp_path: Path) -> None:
    path = write_tensors(tmp_path)
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    path.write_bytes(data[: 8 + length])
    assert len(scan_model(path).uses) == 3


BAD_HEADERS = {
    b"": "it ends within its header",
    b"\xff" * 8: "its header has 18446744073709551615 bytes; expected at most",
    struct.pack("<Q", 100) + b"{}": "it ends within its header",
    struct.pack("<Q", 2) + b"[]": "its header is []; expected an object",
    struct.pack("<Q", 2) + b"{,": "its header is no JSON",
    struct.pack("<Q", 7) + b'{"a":1}': "tensor 'a' is 1; expected a dtype and a shape",
    struct.pack("<Q", 32) + b'{"a":{"dtype":"F32","shape":[-1]}': "tensor 'a' has the shape [-1]",
}


@pytest.mark.parametrize("content", BAD_HEADERS, ids=lambda content: BAD_HEADERS[content][:30])
def test_broken_headers(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(
        content if b"shape" not in content else struct.pack("<Q", len(content) - 7) + content[8:] + b"}"
    )
    assert BAD_HEADERS[content] in refusal(path)


@examples(200)
@given(data=st.data())
def test_fuzzed_headers_and_configs(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("fuzzed")
    suffix = data.draw(st.sampled_from(["safetensors", "json"]))
    if suffix == "json":
        content = json.dumps(
            architecture(data.draw(st.sampled_from(["flux", "sd_unet", "whisper", "clip"])))
        ).encode()
    else:
        content = write_tensors(folder, "x.tmp").read_bytes()[:400]
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(0, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    path = folder / f"model.{suffix}"
    path.write_bytes(bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))
    try:
        scan_model(path)
    except WebnormError as error:
        assert "\n" not in str(error)


# --- files and folders


def test_paths_without_a_model(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.onnx") == "FILE: cannot be read: No such file or directory"
    assert refusal(tmp_path).startswith("FILE: it contains no model; expected an ONNX file, ")
    for name in ("a.onnx", "b.onnx"):
        (tmp_path / name).touch()
    assert refusal(tmp_path) == "FILE: 2 ONNX files (a.onnx, b.onnx); name one of them"
    assert refusal(Path("/dev/zero")) == "FILE: cannot be read: it is not a regular file"
    assert "nul" in refusal(Path("nul\0.onnx"))


def test_dimensions_that_a_model_lacks(tmp_path: Path) -> None:
    path = write_config(tmp_path, **architecture("llama"))
    assert refusal(path, sequense=4) == "unknown dimension 'sequense'; did you mean 'sequence'?"
    fixed = FILES / "no_norms_dynamo.onnx"
    assert refusal(fixed, batch=4) == "unknown dimension 'batch'; every dimension of the model is fixed"


# --- the names that ops have


def test_ops_have_the_names_of_scans() -> None:
    for name in SIZES.keys() & OPS.keys():
        assert {*SIZES[name]} <= {*OPS[name].problem_type.SIZES}, name
    assert SIZES.keys() <= OPS.keys()


def problem_of(use: NormUse) -> Any:
    op = OPS[use.op]
    return op.problem(
        *op.sizes_of(use.sizes), dtype=use.dtype, options=options_of(op, use.options), **(use.scalars or {})
    )


EXPORTS = ["unet_dynamo", "gpt2_script", "llama_dynamo", "qwen3_dynamo", "flux_dynamo", "mamba2_dynamo"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", EXPORTS)
def test_uses_of_exports_are_problems(name: str) -> None:
    assert all(problem_of(use) for use in scan_model(FILES / f"{name}.onnx").uses)


@pytest.mark.parametrize("name", sorted(path.stem for path in CONFIGS.glob("*.json")))
def test_uses_of_configs_are_problems(name: str, tmp_path: Path) -> None:
    assert all(problem_of(use) for use in scan_model(write_config(tmp_path, **architecture(name))).uses)


# --- the command


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return webnorm(["scan", "config.json", *words], folder)


def test_command(tmp_path: Path) -> None:
    write_config(tmp_path, **architecture("qwen3"), dtype="float16")
    done = run(tmp_path, "--dim", "sequence=1k")
    assert done.returncode == 0
    head, columns, norm, *_ = done.stdout.splitlines()
    assert head == "config.json: 7 norms, 2 distinct norms"
    assert columns.split() == ["count", "op", "shape", "type", "options", "form", "kernel"]
    assert norm.split()[:6] == ["5", "rms_norm", "rows=1024", "cols=4096", "float16", "eps=1e-06"]
    assert norm.split()[-1] in {kernel.name for kernel in own_kernels("rms_norm")}
    assert "assumed: batch=1 (--dim NAME=N changes them)" in done.stdout


def test_json(tmp_path: Path) -> None:
    write_config(tmp_path, **architecture("qwen3"))
    done = run(tmp_path, "--json", "--dtype", "bfloat16")
    found = json.loads(done.stdout)
    assert found["assumed"] == {"batch": 1, "sequence": 128} and found["kind"] == "config"
    norm, heads = found["norms"]
    kernel = own_kernel("rms_norm", norm["kernel"])
    assert kernel is not None and kernel.tune.keys() == norm["constants"].keys()
    assert norm["reason"] is None
    assert (norm["op"], norm["count"], norm["dtype"]) == ("rms_norm", 5, "bfloat16")
    assert heads["op"] == "qk_norm" and (heads["kernel"] is None) == bool(heads["reason"])


def test_status_of_what_is_not_known(tmp_path: Path) -> None:
    write_config(tmp_path, model_type="brand_new")
    done = run(tmp_path)
    assert done.returncode == 3
    assert done.stdout.splitlines()[-1] == "not known: the architecture brand_new is not known"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--dim", "sequence"], "--dim is 'sequence'; expected NAME=N, such as sequence=512"),
        (["--dim", "sequence=0"], "--dim sequence is '0'"),
        (["--dim", "batch=1", "--dim", "batch=2"], "--dim batch is given twice; expected it once"),
        (["--dtype", "float64"], "unknown dtype 'float64'"),
    ],
    ids=str,
)
def test_wrong_options(words: list[str], expected: str, tmp_path: Path) -> None:
    write_config(tmp_path, **architecture("llama"))
    done = run(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.startswith(f"webnorm: {expected}")
