"""Autotuning of first calls, with WEBNORM_AUTOTUNE=1.

The first call for a problem without a recorded choice tunes it, as `webnorm tune` does, in its own process.
The choice is recorded, and later calls and processes on the same device use it.
"""

from __future__ import annotations

import logging
import os
import time
import warnings
from dataclasses import replace

from webnorm.choice import tuning
from webnorm.choice.tuning import Tuning
from webnorm.errors import WebnormError, shown
from webnorm.gpu.device import Device
from webnorm.kernels.headers.library import own_kernels
from webnorm.op.dtypes import DTYPES
from webnorm.op.op import Task

VARIABLE = "WEBNORM_AUTOTUNE"
# Covers the search and the final measurement. Starting the process, inputs and checks take as long again.
BUDGET_S = 5.0

_log = logging.getLogger("webnorm")
# Problems whose tuning failed. This process does not try them again.
_given_up: set[str] = set()


def tuned(task: Task, device: Device) -> Tuning | None:
    """Tune a task, and return the recorded choices of the device.

    If tuning fails, the function warns, and the call continues with the choice of the rules.

    Parameters
    ----------
    task : Task
        The op and the problem.
    device : Device
        The device of the call.

    Returns
    -------
    Tuning or None
        The recorded choices; None if WEBNORM_AUTOTUNE is not 1, if the problem is empty, or if tuning failed.

    Raises
    ------
    WebnormError
        The value of WEBNORM_AUTOTUNE is neither empty, 0 nor 1.
    """
    setting = os.environ.get(VARIABLE, "")
    if setting not in ("", "0", "1"):
        raise WebnormError(f"{VARIABLE} is {shown(setting)}; it must be 1, or 0 for no tuning")
    if setting != "1" or task.problem.elements == 0:
        return None
    task = _tuning_task(task)
    platform = tuning.Platform.of(device.adapter.description())
    # Another process may have recorded a tuning since; or a recorded one may not fit a smaller device.
    if (recorded := _recorded(task, platform)) or str(task) in _given_up:
        return recorded
    try:
        path = tuning.path_of(platform)
        tuning.prepare(path)
        # An unusable file is reported before the time for tuning is spent.
        tuning.resume(path, platform)
        with tuning.tuning_lock(path):
            if recorded := _recorded(task, platform):
                return recorded
            return tuning.record([_tune(task, device)], path, platform)
    except WebnormError as failure:
        _given_up.add(str(task))
        warnings.warn(f"{task} uses the default kernel, because {VARIABLE} failed: {failure}", stacklevel=2)
        return None


def _recorded(task: Task, platform: tuning.Platform) -> Tuning | None:
    """Return the recorded choices of the device if they include one for the task."""
    recorded, _ = tuning.applicable(platform)
    return recorded if recorded is not None and recorded.matching(task) else None


def _tuning_task(task: Task) -> Task:
    """Return the task with drawn values and the smallest batch whose tuning also serves larger ones."""
    problem = task.problem
    element_bytes = problem.inner * DTYPES[problem.dtype].itemsize
    batch = min(problem.batch_size, -(-tuning.LARGE_BYTES // element_bytes))
    drawn = replace(problem.with_batch(batch), **task.op.scalars, distribution="normal")
    return Task(task.op, drawn)


def _tune(task: Task, device: Device) -> tuning.TunedChoice:
    # Imported here because importing the lab takes long, and most calls do not tune.
    from webnorm.lab.process.worker import Worker, explain_worker_failure
    from webnorm.lab.run import bench, tune

    _log.info("tuning %s once for this device (%s)", task, VARIABLE)
    began = time.monotonic()
    kernels = (*own_kernels(task.op.name), *own_kernels("copy"))
    request = tune.TuneRequest((task,), kernels, BUDGET_S)
    with explain_worker_failure("tuning"), Worker(str(device.adapter.index)) as worker:
        _, traits = bench.device_of(worker)
        (found,) = (one for one in tune.run(request, worker, traits) if isinstance(one, tune.TuneResult))
    if found.choice is None:
        raise WebnormError("; ".join(found.dropped) or "no variant computes correct results")
    _log.info(
        "tuned %s in %.1f s: %s, %.2f times as fast as the rules' choice",
        task,
        time.monotonic() - began,
        found.choice.kernel,
        found.choice.speedup or 1.0,
    )
    return found.choice
