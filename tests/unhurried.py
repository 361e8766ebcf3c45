"""webnorm without its time limits, which a busy machine could exceed.

Tests lift the limits for their own process (tests/conftest.py), and run commands without them in another:

    python -c "import unhurried; unhurried.run()" play FILE

A test of one of the limits sets it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from patience import HANG_S
from webnorm.cli import app
from webnorm.gpu.device import Device
from webnorm.kernels.rendering import sandbox
from webnorm.lab.run import standby_worker
from webnorm.play import stages

# Limits in seconds, in modules that `play` and its server import.
_LIMITS = (
    "webnorm.cli.work.isolated._SILENCE_S",
    "webnorm.cli.verbs.play._ONCE_LIMIT_S",
    "webnorm.engines.catalog._VERSION_LIMIT_S",
    "webnorm.files.atomic.MOST_WAIT_S",
    "webnorm.kernels.rendering.sandbox._START_LIMIT_S",
    "webnorm.lab.process.worker.TIME_LIMIT_S",
    "webnorm.play.api.LIMIT_S",
    "webnorm.play.server._PATIENCE_S",
    "webnorm.play.stages.USUAL_LIMIT_S",
    "webnorm.play.stages._RENDERING_S",
    "webnorm.serving.GRACE_S",
    "webnorm.web.tint.REQUEST_LIMIT_S",
    "webnorm.web.tint.TIME_LIMIT_S",
)
# Limits in modules that other commands import.
_OTHERS = (
    "webnorm.lab.plot.drawing._LIMIT_S",
    "webnorm.models.onnx_inference.WAIT_LIMIT_S",
    "webnorm.op.op_trial.WAIT_LIMIT_S",
    "webnorm.web.browser.lan_visits.TIME_LIMIT_S",
    "webnorm.web.browser.visits.TIME_LIMIT_S",
    "webnorm.web.collection.collector._PATIENCE_S",
    "webnorm.web.collection.visit_store._PATIENCE_S",
)
# Limits in modules that need Dask.
_FLEET = (
    "webnorm.fleet.cluster._PATIENCE_S",
    "webnorm.fleet.dispatcher._FETCH_S",
    "webnorm.fleet.dispatcher._PATIENCE_S",
    "webnorm.fleet.dispatcher._SILENCE_S",
)
LIFTED = (*_LIMITS, *_OTHERS, *_FLEET)
_open = standby_worker._open


def lift(patch: pytest.MonkeyPatch) -> None:
    """Lift the limits in this process."""
    for limit in _LIMITS:
        patch.setattr(limit, HANG_S)
    patch.setattr(stages, "LIMITS_S", {})
    patch.setattr(sandbox, "limits", replace(sandbox.limits, wait_s=HANG_S))
    patch.setattr(standby_worker, "_open", open_patient)


def lift_all(patch: pytest.MonkeyPatch) -> None:
    """Lift the limits of every command."""
    lift(patch)
    for limit in (*_OTHERS, *(_FLEET if find_spec("distributed") else ())):
        patch.setattr(limit, HANG_S)


def open_patient(device: Device, roots: tuple[Path, ...] | None) -> Iterator[Any]:
    """Run the first task of the playground's worker, and lift the worker's limit on waits for renderings."""
    standby_worker._RENDERING = replace(standby_worker._RENDERING, wait_s=HANG_S)
    yield from _open(device, roots)


def open_unhurried(device: Device, roots: tuple[Path, ...] | None) -> Iterator[Any]:
    """Run the first task of the worker, and lift its limits on waits and processor time of renderings."""
    standby_worker._RENDERING = replace(standby_worker._RENDERING, time_s=HANG_S, wait_s=HANG_S)
    yield from _open(device, roots)


def run() -> None:
    """Run the command in this process's arguments, without limits."""
    with pytest.MonkeyPatch.context() as patch:
        lift(patch)
        patch.setattr(standby_worker, "_open", open_unhurried)
        app.run()
