"""`--model` of `check`, `bench` and `tune`: a model's norms in place of ops and sizes."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import webnorm
from webnorm.choice import tuning
from webnorm.cli.work.jobs import BAD_USAGE, INCONCLUSIVE, OK
from webnorm.cli.work.model_norms import model_problems
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.op.model_cases import MOST_ELEMENTS, limited, model_cases
from webnorm.op.presets import model_tasks

FILES = Path(__file__).parent / "files"
QWEN = str(FILES / "qwen3_dynamo.onnx")
# Its norms round before the weight.
HALF = str(FILES / "llama_half_dynamo.onnx")


def config(folder: Path, **values: Any) -> Path:
    path = folder / "config.json"
    own = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    path.write_text(json.dumps({**own, "rms_norm_eps": 1e-6, "dtype": "float16", **values}))
    return path


def test_each_distinct_norm_is_one_problem() -> None:
    found = model_problems(Path(QWEN), None)
    assert [str(task) for task in found.tasks] == [
        "rms_norm, 8x32 float32, no bias",
        "qk_norm, 1x8x4x2x0x0x8 float32",
        "softmax, 4x8x8 float32, mask",
        "rms_norm, 8x32 float32, no bias, residual",
    ]
    assert [task.problem.scalars for task in found.tasks[1:3]] == [
        {"eps": 1e-6, "weight_offset": 0.0},
        {"scale": 0.353553},
    ]
    assert found.skipped == ()
    typed = model_problems(Path(QWEN), None, "float16,bfloat16")
    assert [task.problem.dtype for task in typed.tasks] == ["float16"] * 4 + ["bfloat16"] * 4


def test_the_seed_and_quick_change_the_problems() -> None:
    tasks = model_problems(Path(QWEN), None).tasks
    assert {task.problem.seed for task in model_tasks(tasks, False, False, 7)} == {7}
    assert len(model_tasks(tasks * 2, True, True)) == len(tasks)


def test_a_large_batch_is_limited_and_other_sizes_stay(tmp_path: Path) -> None:
    tasks = model_problems(config(tmp_path, hidden_size=4096), ["sequence=4096"]).tasks
    assert [task.problem.shape_text for task in tasks] == ["4096x4096"]
    (problem,) = {limited(task) for task in tasks}
    assert problem.shape_text == "256x4096" and problem.elements == MOST_ELEMENTS
    cases = model_cases(tasks, 3)
    assert {case.shape for case in cases} == {(256, 4096)}
    # A mean of a million is beyond float16.
    kinds = [case.name.rpartition("-")[2] for case in cases]
    assert {"normal", "outlier", "mean1e4"} <= {*kinds} and "mean1e6" not in kinds
    assert len({case.name for case in cases}) == len(cases)


def test_draws_repeat_with_the_seed() -> None:
    tasks = model_problems(Path(QWEN), None).tasks[:1]
    draws = [
        [case.draw(case.task)["x"] for case in model_cases(tasks, seed)]  # type: ignore[attr-defined]
        for seed in (3, 3, 4)
    ]
    assert all(np.array_equal(one, other) for one, other in zip(*draws[:2], strict=True))
    assert not np.array_equal(draws[0][0], draws[2][0])


def test_check(tmp_path: Path, device: Device) -> None:
    path = config(tmp_path, hidden_size=16384)
    words = ["check", "--model", str(path), "--dim", "sequence=128", "--kernel", "naive,auto", "--json", "-"]
    done = webnorm(words, tmp_path)
    assert done.returncode == OK, done.stderr
    results = json.loads(done.stdout)["results"]
    assert {one["problem"]["rows"] for one in results} == {64}
    assert {one["problem"]["cols"] for one in results} == {16384}
    assert {one["kernel"] for one in results} > {"naive"}
    assert "1 norm ran with a smaller batch than the model's: at most about 1048576 elements" in done.stderr


@pytest.mark.parametrize(
    ("words", "participle"), [(("check",), "checked"), (("bench", "--budget", "0.05"), "timed")]
)
def test_lacking_options_are_skipped(
    words: tuple[str, ...], participle: str, tmp_path: Path, device: Device, lacking: None
) -> None:
    line = [*words, "--model", HALF, "--kernel", "registers"]
    done = webnorm(line, tmp_path)
    assert done.returncode == INCONCLUSIVE, done.stderr
    assert "softmax" in done.stdout and "rms_norm" not in done.stdout
    reason = "float16: unknown option 'round_sideways'"
    assert f"webnorm: skipped: rms_norm of rows=8 cols=32 round_sideways, {reason}" in done.stderr
    assert f"webnorm: not {participle}: 2 norms of the model (--allow-skipped accepts this)" in done.stderr
    assert webnorm([*line, "--allow-skipped"], tmp_path).returncode == OK


def test_a_norm_without_a_kernel_is_named(tmp_path: Path, device: Device) -> None:
    """A kernel's refusal of the model's sizes is no pass."""
    line = ["check", "--model", str(config(tmp_path, hidden_size=60)), "--kernel", "split_row"]
    done = webnorm([*line, "--dtype", "float32"], tmp_path)
    skipped = done.returncode == INCONCLUSIVE and "not checked: every kernel" in done.stderr
    assert skipped or done.returncode == OK, done.stderr


def test_tune(tmp_path: Path, device: Device, lacking: None) -> None:
    out = tmp_path / "tuning.json"
    line = ["tune", "--model", HALF, "--budget", "0.2", "--out", str(out)]
    done = webnorm(line, tmp_path)
    assert done.returncode == INCONCLUSIVE
    assert done.stderr.endswith("webnorm: not tuned: 2 norms of the model\n")
    assert [choice.op for choice in tuning.read(out).choices] == ["softmax"]
    again = webnorm(line, tmp_path)
    assert "1 of 1 problems are recorded" in again.stdout and again.returncode == INCONCLUSIVE


@pytest.mark.parametrize(
    ("values", "dims", "message"),
    [
        ({"model_type": "mystery"}, None, "it has no norm that this version can run"),
        ({}, ["sequence"], "--dim is 'sequence'; expected NAME=N, such as sequence=512"),
        ({}, ["sequence=4,5"], "--dim sequence is '4,5'; expected one number, such as 1024 or 4k"),
        ({}, ["sequence=4", "sequence=5"], "--dim sequence is given twice; expected it once"),
        ({}, ["squence=4"], "unknown dimension 'squence'; did you mean 'sequence'?"),
    ],
)
def test_bad_models(values: dict[str, Any], dims: list[str] | None, message: str, tmp_path: Path) -> None:
    with pytest.raises(WebnormError) as caught:
        model_problems(config(tmp_path, **values), dims)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("verb", ["check", "bench", "tune"])
def test_a_missing_model_is_one_line(verb: str, tmp_path: Path) -> None:
    done = webnorm([verb, "--model", "none.onnx"], tmp_path)
    assert done.returncode == BAD_USAGE and done.stdout == ""
    assert done.stderr == "webnorm: none.onnx: cannot be read: No such file or directory\n"


def test_other_processes_get_the_same_cases() -> None:
    """A cluster's workers make the cases from the problems that they receive."""
    tasks = model_problems(FILES / "flux_dynamo.onnx", None).tasks
    sent = pickle.loads(pickle.dumps(tasks))
    assert model_cases(sent, 3) == model_cases(tasks, 3) and len(sent) > 5
