from __future__ import annotations

import json
import math
import os
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import webnorm
from samples import PLATFORM, TUNED_PROBLEM, choice, tuned
from webnorm.calls import session
from webnorm.choice import tuning
from webnorm.choice.tuning import Platform
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.op.op import Task
from webnorm.op.registry import OPS
from webnorm.ops.norms import functional
from webnorm.ops.norms.problem import NormOptions, NormProblem

NORM = OPS["layer_norm"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WEBNORM_TUNINGS", str(tmp_path / "tunings"))
    return tmp_path


# --- the file


def test_a_file_gives_back_what_was_written(folder: Path) -> None:
    given = tuned(choice(), choice(op="rms_norm", speedup=None, percent_of_copy=None))
    path = tuning.path_of(PLATFORM)
    assert path == folder / "tunings" / "some-gpu-x-y-vulkan.json"
    tuning.write(given, path)
    assert tuning.read(path) == given
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert tuning.forget(path) and not tuning.forget(path)


def test_a_relative_cache_folder_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEBNORM_TUNINGS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert tuning.path_of(PLATFORM).parent == tmp_path / ".cache" / "webnorm" / "tunings"


def test_the_file_is_in_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEBNORM_TUNINGS")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tuning.path_of(PLATFORM).parent == tmp_path / "webnorm" / "tunings"


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (lambda data: "{", "Expecting property name"),
        (lambda data: "[]", r"the data is \[\]; expected object"),
        (lambda data: {**data, "schema": 2}, "schema is 2; expected 1"),
        (lambda data: {**data, "date": 3}, "date is 3; expected str"),
        (lambda data: {**data, "platform": None}, "platform is None; expected object"),
        (
            lambda data: {**data, "platform": {**data["platform"], "wgpu": 1}},
            "platform.wgpu is 1; expected str",
        ),
        (lambda data: {**data, "choices": {}}, "choices is {}; expected array"),
        (lambda data: {**data, "choices": [7]}, r"choices\[0\] is 7; expected object"),
        (lambda data: entry(data, kernel=None), r"choices\[0\].kernel is None; expected str"),
        (
            lambda data: entry(data, constants={"threads_per_row": True}),
            "threads_per_row is True",
        ),
        (lambda data: entry(data, speedup="2"), "speedup is '2'; expected float"),
        (lambda data: entry(data, speedup=math.nan), "NaN is not a JSON number"),
        (lambda data: entry(data, speedup=0), "speedup is 0; expected float > 0"),
        (lambda data: without(data, "speedup"), r"choices\[0\].speedup is missing"),
        (lambda data: without(data, "kernel"), r"choices\[0\].kernel is missing"),
        (lambda data: without(data, "constants"), r"choices\[0\].constants is missing"),
        (lambda data: entry(data, tried=-1), r"tried is -1; expected int >= 0"),
        (lambda data: entry(data, tried=10**400), "an integer has 401 digits"),
        (
            lambda data: entry(data, kernel="k" * 10**6),
            r"kernel is 'kkk+\.\.\.k+'; expected str of length <= 1000",
        ),
        (lambda data: problem(data, rows=10**30), r"rows is 1000000000000000000000000000000; expected 0 to"),
        (lambda data: json.dumps(data).replace('"date"', '"schema": 1, "date"'), "'schema' occurs twice"),
        (lambda data: "[" * 200_000, "lists and objects are nested more than 32 deep"),
        (lambda data: "[" * 900 + "]" * 900, "lists and objects are nested more than 32 deep"),
        (lambda data: '{"schema": 1e999}', "1e999 overflows float64"),
        (lambda data: entry(data, percent_of_copy=-1), "percent_of_copy is -1; expected float > 0"),
        (lambda data: problem(data, cols=64.5), r"choices\[0\].problem: cols is 64.5; expected an int"),
        (lambda data: problem(data, eps="small"), "eps is 'small'; expected 0 or a number from"),
        (lambda data: problem(data, options={"weight": 3}), "weight is 3; expected True or False"),
        (lambda data: problem(data, options=7), "the problem is invalid"),
        (
            lambda data: problem(data, options={"max_workgroups": True}),
            "max_workgroups is True; expected an int",
        ),
        (lambda data: problem(data, rows="many"), "rows is 'many'; expected an int"),
        (lambda data: problem(data, cols=0), "cols is 0; expected 1 or more"),
        (lambda data: problem(data, cols="x"), "cols is 'x'; expected an int"),
        (lambda data: problem(data, options={"wieght": True}), "the problem is invalid"),
    ],
)
def test_a_broken_file_is_an_error_that_says_how_to_remove_it(
    broken: Any, complaint: str, folder: Path
) -> None:
    path = tuning.path_of(PLATFORM)
    tuning.write(tuned(), path)
    data = broken(json.loads(path.read_text()))
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    with pytest.raises(WebnormError, match=complaint) as error:
        tuning.resume(path, PLATFORM)
    said = str(error.value)
    assert str(path) in said and "\n" not in said and len(said) < 2100
    assert said.endswith("; delete the file, or run `webnorm tune --remove`")
    # A broken file that is only read is not an error.
    assert tuning.applicable(PLATFORM) == (None, f"{said}; until then it is ignored")


def test_choices_of_ops_that_are_not_loaded_are_kept(folder: Path) -> None:
    """A process without a user's op keeps the recorded choices of that op, and uses and records others."""
    path = tuning.path_of(PLATFORM)
    tuning.write(tuned(), path)
    data = entry(json.loads(path.read_text()), op="softmax_of_mine")
    path.write_text(json.dumps(data))
    recorded = tuning.record(tuned().choices, path, PLATFORM)
    assert [choice.op for choice in recorded.choices] == ["softmax_of_mine", "layer_norm"]
    found, note = tuning.applicable(PLATFORM)
    assert (found, note) == (recorded, None)
    assert json.loads(path.read_text())["choices"][0] == data["choices"][0]


def test_options_of_another_version_are_stale_not_broken(folder: Path) -> None:
    path = tuning.path_of(PLATFORM)
    tuning.write(tuned(platform=replace(PLATFORM, webnorm="0.0.9")), path)
    path.write_text(json.dumps(problem(json.loads(path.read_text()), options={"tomorrow": True})))
    found, note = tuning.applicable(PLATFORM)
    assert found is None and note is not None and "stale: recorded with webnorm 0.0.9" in note


def entry(data: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**data, "choices": [{**data["choices"][0], **changes}]}


def without(data: dict[str, Any], key: str) -> dict[str, Any]:
    return {
        **data,
        "choices": [{name: data["choices"][0][name] for name in data["choices"][0] if name != key}],
    }


def problem(data: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return entry(data, problem={**data["choices"][0]["problem"], **changes})


# --- which applies


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"driver": "1.3"}, "it is stale: recorded with driver 1.3, this is 1.2"),
        ({"wgpu": "0.31"}, "it is stale: recorded with wgpu 0.31"),
        ({"webnorm": "0.0.9"}, "it is stale: recorded with webnorm 0.0.9"),
        ({"adapter": "Other"}, r"it is for another device, Other \(Vulkan\)"),
        ({"backend": "D3D12"}, "it is for another device"),
    ],
)
def test_a_stale_or_foreign_file_is_ignored_with_a_word(
    changes: dict[str, str], word: str, folder: Path
) -> None:
    path = tuning.path_of(PLATFORM)
    tuning.write(tuned(platform=replace(PLATFORM, **changes)), path)
    found, note = tuning.applicable(PLATFORM)
    assert found is None
    assert note is not None and re.search(word, note) and str(path) in note
    # `webnorm tune` does not overwrite the file of another device.
    assert note.endswith("removes it") == ("another device" in word)


def test_the_users_file_is_used(folder: Path) -> None:
    assert tuning.applicable(PLATFORM) == (None, None)
    own = tuned(choice(kernel="naive"))
    tuning.write(own, tuning.path_of(PLATFORM))
    assert tuning.applicable(PLATFORM) == (own, None)


def test_resuming_keeps_an_applicable_tuning(folder: Path) -> None:
    path = tuning.path_of(PLATFORM)
    assert tuning.resume(path, PLATFORM)[0].choices == ()
    tuning.write(tuned(), path)
    assert tuning.resume(path, PLATFORM) == (tuned(), None)
    fresh, note = tuning.resume(path, replace(PLATFORM, driver="2"))
    assert fresh.choices == () and fresh.platform.driver == "2"
    assert note is not None and "stale" in note
    with pytest.raises(
        WebnormError, match=r"is not overwritten: it is for another device.*tune --remove` removes"
    ):
        tuning.resume(path, replace(PLATFORM, adapter="Other"))


def test_a_broken_file_elsewhere_does_not_cost_the_users_own(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "other.json"
    tuning.write(tuned(), path)
    path.write_text(path.read_text().replace("two_pass", "").replace('"kernel"', '"kernels"'))
    with pytest.raises(WebnormError, match=re.escape(f"run `webnorm tune --out {path} --remove`")):
        tuning.resume(path, PLATFORM)
    assert tuning.forget(path) and not path.exists()


@pytest.mark.parametrize("text", ["precious", "{", "[]", '{"schema": 1, "device": {}, "results": []}', "\0"])
def test_a_file_that_may_be_something_else_is_not_removed(text: str, folder: Path) -> None:
    path = folder / "other.json"
    path.write_text(text)
    with pytest.raises(WebnormError, match=r"other\.json is not removed: it is not a tuning; name a file"):
        tuning.forget(path)
    with pytest.raises(WebnormError, match=r"name another file, or delete this one$"):
        tuning.resume(path, PLATFORM)
    assert path.read_text() == text
    with pytest.raises(WebnormError, match="is not removed"):
        tuning.forget(folder)
    # A file in the tunings' folder may be damaged beyond recognition, as long as it has a tuning's name.
    (folder / "tunings").mkdir()
    assert tuning.forget(path.rename(folder / "tunings" / "gone.json"))
    notes = folder / "tunings" / "notes.md"
    notes.write_text(text)
    with pytest.raises(WebnormError, match="is not removed"):
        tuning.forget(notes)


# --- which choice


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, True),
        ({"eps": 1.0, "seed": 3, "distribution": "uniform"}, True),
        ({"rows": 500}, True),
        ({"rows": 2000}, True),
        ({"rows": 499}, False),
        ({"rows": 2001}, False),
        ({"rows": 0}, False),
        ({"cols": 65}, False),
        ({"dtype": "float16"}, False),
        ({"options": NormOptions(weight_dtype="float32", out_dtype="float32")}, True),
        ({"options": NormOptions(bias=False)}, False),
        ({"options": NormOptions(max_workgroups=9)}, False),
    ],
)
def test_a_choice_serves_problems_that_are_alike(changes: dict[str, Any], found: bool) -> None:
    asked = replace(TUNED_PROBLEM, **changes)
    assert tuned().matching(Task(NORM, asked)) == ([choice()] if found else [])
    assert tuned().matching(Task(OPS["rms_norm"], asked)) == []


def test_a_large_choice_serves_whatever_is_larger() -> None:
    large = NormProblem(rows=(64 << 20) // 4096, cols=1024)
    recorded = tuned(choice(large))
    assert recorded.matching(Task(NORM, replace(large, rows=100 * large.rows)))
    assert recorded.matching(Task(NORM, replace(large, rows=large.rows // 2)))
    assert not recorded.matching(Task(NORM, replace(large, rows=large.rows // 2 - 1)))


def test_the_nearest_number_of_rows_goes_first() -> None:
    near, far = choice(replace(TUNED_PROBLEM, rows=900)), choice(replace(TUNED_PROBLEM, rows=600))
    assert tuned(far, near).matching(Task(NORM, TUNED_PROBLEM)) == [near, far]


def test_a_new_choice_takes_the_place_of_the_old() -> None:
    recorded = tuned(choice(), choice(op="rms_norm"))
    assert recorded.has(Task(NORM, replace(TUNED_PROBLEM, eps=1.0)))
    assert not recorded.has(Task(NORM, replace(TUNED_PROBLEM, rows=999)))
    newer = choice(kernel="naive")
    assert recorded.with_choice(newer).choices == (choice(op="rms_norm"), newer)


# --- from Python


def test_calls_use_it_and_warn_about_a_stale_one(folder: Path, device: Device) -> None:
    x = np.random.default_rng(0).standard_normal((1000, 64), dtype=np.float32)
    problem = replace(TUNED_PROBLEM, options=NormOptions(weight=False, bias=False))
    platform = Platform.of(device.adapter.description())
    tuning.write(tuned(choice(problem), platform=platform), tuning.path_of(platform))
    for kernel in (None, "auto"):
        opened = webnorm.open_device(device.adapter)
        functional.layer_norm(x, 64, kernel=kernel, device=opened)
        mine = session.session_of(opened)
        schedule = mine.schedule(opened, mine.wanted(opened, Task(NORM, problem), kernel))
        assert schedule.shader.variant.kernel.name == "two_pass"
        assert schedule.shader.variant.constants["threads_per_row"] == 16

    tuning.write(tuned(platform=replace(platform, driver="old")), tuning.path_of(platform))
    opened = webnorm.open_device(device.adapter)
    with pytest.warns(UserWarning, match="is ignored: it is stale: recorded with driver old"):
        functional.layer_norm(x, 64, device=opened)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        functional.layer_norm(x[:1], 64, device=opened)
        functional.layer_norm(x, 64, kernel="naive", device=webnorm.open_device(device.adapter))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
@pytest.mark.parametrize("text", ["{", "[" * 200_000, None, "a folder", "a pipe"])
def test_calls_ignore_a_broken_one_and_warn_once(text: str | None, folder: Path, device: Device) -> None:
    x = np.random.default_rng(0).standard_normal((4, 64), dtype=np.float32)
    platform = Platform.of(device.adapter.description())
    path = tuning.path_of(platform)
    tuning.write(tuned(platform=platform), path)
    if text is None:
        path.write_text(path.read_text().replace("speedup", "speed"))
    elif text.startswith("a "):
        path.unlink()
        path.mkdir() if text == "a folder" else os.mkfifo(path)
    else:
        path.write_text(text)
    opened = webnorm.open_device(device.adapter)
    with pytest.warns(UserWarning, match=re.escape(str(path))) as warned:
        y = functional.layer_norm(x, 64, device=opened)
    assert len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        functional.layer_norm(x[:1], 64, device=opened)
    assert np.allclose(y.mean(axis=1), 0, atol=1e-5)


def test_a_user_without_a_home_has_no_tunings(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("WEBNORM_TUNINGS", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    _, note = tuning.applicable(PLATFORM)
    assert note is not None and note.startswith("this user has no home folder; set $XDG_CACHE_HOME")
