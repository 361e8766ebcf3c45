"""WEBNORM_AUTOTUNE: a first call tunes and records its choice, and a failure is only a warning."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import webnorm
from patience import HANG_S
from webnorm import autotune
from webnorm.calls.session import CallSession
from webnorm.choice import tuning
from webnorm.choice.defaults import default_variant
from webnorm.choice.tuning import LARGE_BYTES, Platform, TunedChoice, Tuning
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.kernels.headers.library import discover, select
from webnorm.kernels.headers.variants import Variant
from webnorm.lab.process.worker import Worker, WorkerDied
from webnorm.lab.run import bench, search
from webnorm.op.op import Task
from webnorm.op.registry import OPS
from webnorm.ops.norms.problem import NormProblem


@pytest.fixture(autouse=True)
def asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WEBNORM_TUNINGS", str(tmp_path / "tunings"))
    monkeypatch.setenv(autotune.VARIABLE, "1")
    monkeypatch.setattr(autotune, "_given_up", set())


def task_of(rows: int = 64, cols: int = 256) -> Task:
    return Task(OPS["rms_norm"], NormProblem(rows=rows, cols=cols, options=OPS["rms_norm"].defaults))


def chosen(device: Device, task: Task) -> Variant:
    """Return the variant that the first call of a process uses."""
    rendered = CallSession().wanted(device, task, None).rendered
    assert rendered is not None
    return rendered.shader.variant


def choice_of(task: Task, device: Device, kernel: str) -> TunedChoice:
    variant = default_variant(select(discover(), kernel, task.op.name), task.problem, device.traits)
    return TunedChoice(
        op=task.op.name,
        problem=task.problem,
        kernel=kernel,
        constants=variant.constants,
        speedup=1.5,
        percent_of_copy=90.0,
        tried=3,
    )


def recorded(device: Device) -> Tuning | None:
    return tuning.applicable(Platform.of(device.adapter.description()))[0]


@pytest.mark.slow
def test_a_first_call_tunes_and_the_next_process_follows(
    device: Device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(autotune, "BUDGET_S", 0.3)
    task = task_of()
    with caplog.at_level(logging.INFO, "webnorm"):
        found = chosen(device, task)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2 and all(str(task.problem) in line for line in said) and "rules' choice" in said[1]
    known = recorded(device)
    assert known is not None
    (choice,) = known.choices
    assert (choice.kernel, choice.constants) == (found.kernel.name, found.constants)
    assert choice.tried > 1 and choice.percent_of_copy
    # Every later call finds the recorded problem.
    monkeypatch.setattr(autotune, "_tune", None)
    assert chosen(device, task_of(rows=100)).constants == found.constants


def test_a_recorded_choice_is_used_at_once(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autotune, "_tune", lambda task, device: choice_of(task, device, "streaming"))
    shared = CallSession()
    first = shared.wanted(device, task_of(), None).rendered
    assert first is not None and first.shader.variant.kernel.name == "streaming"
    # Other columns make another problem, and the file keeps both choices.
    assert chosen(device, task_of(cols=512)).kernel.name == "streaming"
    known = recorded(device)
    assert known is not None and len(known.choices) == 2


def test_a_call_that_waited_for_another_tuning_uses_it(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_of()
    platform = Platform.of(device.adapter.description())
    path = tuning.path_of(platform)
    tuning.prepare(path)

    def tune(task: Task, device: Device) -> TunedChoice:
        raise AssertionError("it is being tuned already")

    monkeypatch.setattr(autotune, "_tune", tune)
    waits, alone = threading.Event(), tuning.tuning_lock

    def turn(path: Path) -> AbstractContextManager[None]:
        waits.set()
        return alone(path)

    found: list[Tuning | None] = []
    waiting = threading.Thread(target=lambda: found.append(autotune.tuned(task, device)))
    with alone(path):
        monkeypatch.setattr(tuning, "tuning_lock", turn)
        waiting.start()
        assert waits.wait(HANG_S) and not found
        tuning.record([choice_of(task, device, "workgroup")], path, platform)
    waiting.join(HANG_S)
    assert found[0] is not None and found[0].matching(task)[0].kernel == "workgroup"


@pytest.mark.parametrize("value", ["", "0"])
def test_nothing_is_tuned_by_default(value: str, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(autotune.VARIABLE, value)
    monkeypatch.setattr(autotune, "_tune", None)
    assert chosen(device, task_of()) and recorded(device) is None


def test_another_value_is_an_error(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(autotune.VARIABLE, "yes")
    with pytest.raises(WebnormError, match="WEBNORM_AUTOTUNE is 'yes'; it must be 1, or 0 for no tuning"):
        chosen(device, task_of())


def test_a_named_kernel_is_not_tuned(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autotune, "_tune", None)
    assert CallSession().wanted(device, task_of(), "streaming").rendered
    assert recorded(device) is None


def test_after_a_failure_the_rules_choose(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def fail(task: Task, device: Device) -> TunedChoice:
        tries.append(task)
        raise WebnormError("the card has gone")

    monkeypatch.setattr(autotune, "_tune", fail)
    with pytest.warns(
        UserWarning, match=r"uses the default kernel, because WEBNORM_AUTOTUNE failed: the card has gone"
    ):
        found = chosen(device, task_of())
    # A later call neither tries it again nor repeats the warning.
    assert chosen(device, task_of()).constants == found.constants
    assert len(tries) == 1 and recorded(device) is None


def test_a_file_that_cannot_be_written_is_reported_before_anything_is_tuned(
    device: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WEBNORM_TUNINGS", str(tmp_path / "file" / "folder"))
    monkeypatch.setattr(autotune, "_tune", None)
    with pytest.warns(UserWarning, match="cannot create the folder"):
        assert chosen(device, task_of())


def test_a_broken_file_is_reported_before_anything_is_tuned(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tuning.path_of(Platform.of(device.adapter.description()))
    path.parent.mkdir(parents=True)
    path.write_text("{broken")
    monkeypatch.setattr(autotune, "_tune", None)
    with pytest.warns(UserWarning) as caught:
        assert chosen(device, task_of())
    assert "uses the default kernel, because WEBNORM_AUTOTUNE failed" in str(caught[-1].message)
    assert path.read_text() == "{broken"


def test_a_process_that_dies_at_once_is_not_started_for_each_variant(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = []

    def die(self: Worker, work: Any, *_: Any) -> Iterator[Any]:
        starts.append(work)
        raise WorkerDied("killed")
        yield

    monkeypatch.setattr(Worker, "stream", die)
    monkeypatch.setattr(bench, "device_of", lambda worker: ({}, device.traits))
    with pytest.warns(UserWarning, match="failed"):
        assert chosen(device, task_of())
    assert starts.count(search.search_variants) == 1


def test_a_recorded_choice_that_cannot_run_is_not_tuned_again(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_of()
    gone = replace(choice_of(task, device, "streaming"), kernel="gone")
    platform = Platform.of(device.adapter.description())
    tuning.record([gone], tuning.path_of(platform), platform)
    monkeypatch.setattr(autotune, "_tune", None)
    assert chosen(device, task).kernel.name != "gone"


def test_large_problems_are_tuned_with_fewer_rows(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[NormProblem] = []

    def note(task: Task, device: Device) -> TunedChoice:
        asked.append(task.problem)
        return choice_of(task, device, "streaming")

    monkeypatch.setattr(autotune, "_tune", note)
    task = task_of(rows=1 << 17, cols=1000)
    assert chosen(device, task).kernel.name == "streaming"
    (problem,) = asked
    assert LARGE_BYTES <= problem.rows * problem.cols * 4 < LARGE_BYTES + 4 * problem.cols


@pytest.mark.slow
def test_calls_tune(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user sets the variable and runs a script that does not mention it."""
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np, webnorm\n"
        "from webnorm import autotune\n"
        "autotune.BUDGET_S = 0.3\n"
        "x = np.arange(64 * 256, dtype=np.float32).reshape(64, 256)\n"
        "y = webnorm.rms_norm(x, (256,))\n"
        "assert np.allclose(y, x / np.sqrt((x * x).mean(1, keepdims=True) + 1.1920929e-07), rtol=1e-5)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert len(list((tmp_path / "tunings").glob("*.json"))) == 1


def test_calls_without_tuning_do_not_import_the_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(autotune.VARIABLE)
    code = "import sys, webnorm; webnorm.layer_norm; print([name for name in sys.modules if '.lab' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S)
    assert done.stdout.strip() == "[]", done.stderr


def test_an_empty_call_is_not_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autotune, "_tune", None)
    assert webnorm.layer_norm(np.zeros((0, 8), np.float32), (8,)).shape == (0, 8)
