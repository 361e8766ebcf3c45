"""Work in a worker process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from webnorm.cli.status import OK, WRONG
from webnorm.cli.streams import complain
from webnorm.errors import WebnormError

if TYPE_CHECKING:
    from webnorm.kernels.traits import Traits
    from webnorm.lab.results import Result


def opened(worker: Any) -> tuple[dict[str, Any], Traits]:
    """The description and the traits of the worker's device."""
    from webnorm.lab.bench import device_of
    from webnorm.lab.worker import TaskFailed, WorkerDied

    try:
        return device_of(worker)
    except (WorkerDied, TaskFailed) as death:
        raise WebnormError(f"opening the adapter failed: {death}; `webnorm doctor` lists them") from death


def status_of(results: Sequence[Result], allow_skipped: bool, done: str) -> int:
    """The exit status for results, where something has to be `done`; a line on stderr where nothing was."""
    from webnorm.lab import bench

    if not allow_skipped and not bench.ran(results):
        complain(f"nothing was {done}: everything was skipped (--allow-skipped admits that)")
        return WRONG
    return WRONG if bench.failed(results) else OK
