"""Writes two models for transformers.js: a table of embeddings, and a head that doubles its input."""

import json
from pathlib import Path

import numpy as np
from onnx import GraphProto, TensorProto, checker, helper, numpy_helper

COLS = 768
WORDS = ["[UNK]", "to", "be", "or", "not"]
FOLDER = Path(__file__).parent / "models"


def write(name: str, graph: GraphProto, **files: object) -> None:
    """Write a model with its config and other JSON files."""
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    checker.check_model(made, full_check=True)
    folder = FOLDER / name
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    (folder / "onnx" / "model.onnx").write_bytes(made.SerializeToString())
    config = {"model_type": "bert", "hidden_size": COLS}
    for file, content in {"config": config, **files}.items():
        (folder / f"{file}.json").write_text(json.dumps(content), encoding="utf-8")


tokenizer = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": None,
    "decoder": None,
    "model": {
        "type": "WordLevel",
        "vocab": {word: number for number, word in enumerate(WORDS)},
        "unk_token": WORDS[0],
    },
}
table = (np.arange(len(WORDS) * COLS).reshape(-1, COLS) % 61 / 8 - 3).astype(np.float32)
ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ("batch", "length"))
embeds, states = (
    helper.make_tensor_value_info(name, TensorProto.FLOAT, ("batch", "length", COLS))
    for name in ("inputs_embeds", "last_hidden_state")
)
look_up = helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])
double = helper.make_node("Mul", ["inputs_embeds", "two"], ["last_hidden_state"])
two = helper.make_tensor("two", TensorProto.FLOAT, [1], [2.0])

write(
    "embedding",
    helper.make_graph([look_up], "embedding", [ids], [states], [numpy_helper.from_array(table, "table")]),
    tokenizer=tokenizer,
    tokenizer_config={"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": WORDS[0]},
)
write("head", helper.make_graph([double], "head", [embeds], [states], [two]))
