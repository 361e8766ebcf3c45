"""A verb's work on a cluster: its adapters, the division of the work, one report per platform."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import typer

from webnorm.cli.terminal.screen import escaped_line, progress
from webnorm.cli.terminal.streams import complain
from webnorm.cli.work.jobs import WRONG, AfterInterrupt, Interrupted, SharedJob, run_job
from webnorm.cli.work.outputs import run_each_step
from webnorm.errors import WebnormError
from webnorm.system import library

if TYPE_CHECKING:
    from distributed import Client

    from webnorm.fleet.adapters import AdapterPool
    from webnorm.fleet.cluster import ClusterWorker
    from webnorm.fleet.dispatcher import DispatchProgress, ItemResult

Update = Callable[[str | None, float | None], None]


def require_dask(what: str) -> None:
    """Raise WebnormError if Dask is not installed or cannot be imported."""
    # The names that are used, because Python imports an empty folder as a package.
    names = ("Client", "Nanny", "Scheduler", "Security", "SpecCluster", "Worker", "get_worker")
    library("distributed", what, "webnorm[cluster]", *names)


def run_on(cluster: str | None, job: SharedJob, adapter: str | None, time_limit_s: float) -> NoReturn:
    """Do a job on a cluster, or on this machine without one, and end the command as `run_job` does.

    Each platform does the whole job. The workers of a platform share it.
    """
    if cluster is None:
        run_job(job, adapter, time_limit_s)
    require_dask("--cluster")
    from webnorm.fleet.cluster import connected

    work = _DividedJob(job, time_limit_s)
    complete = False
    try:
        with (
            progress("connecting to the cluster") as update,
            suppress(KeyboardInterrupt),
            connected(cluster, adapter, complain) as client,
        ):
            work.run(client, cluster, adapter, update)
            complete = True
    except WebnormError as error:
        if not complete:
            work.finish_what_is_found(error)
        # All the work was done before, and only the shutdown of the cluster failed.
        complain(str(error))
    run_each_step(*(partial(one.finish, complete) for one in work.jobs))
    if not complete:
        left = (one.left for one in work.jobs)
        raise Interrupted(max(left, key=[*AfterInterrupt].index, default=AfterInterrupt.NOTHING))
    # With several platforms, a wrong kernel on one outweighs unchecked kernels on another.
    found = [one.status() for one in work.jobs]
    raise typer.Exit(WRONG if WRONG in found else max(found))


class _DividedJob:
    """A job that is divided into one job per platform."""

    def __init__(self, job: SharedJob, time_limit_s: float) -> None:
        self._job, self._time_limit_s = job, time_limit_s
        self.jobs: list[SharedJob] = []
        self._names: list[str] = []
        self._shown = -1

    def finish_what_is_found(self, error: WebnormError) -> NoReturn:
        """Save and show the results so far, and raise the error that ended the work."""

        def fail() -> NoReturn:
            raise error

        found = (one for one in self.jobs if one.left is not AfterInterrupt.NOTHING)
        run_each_step(*(partial(one.finish, False) for one in found), fail)
        raise error

    def run(self, client: Client, where: str, adapter: str | None, update: Update) -> None:
        """Run the job, and show and save results as they arrive."""
        from webnorm.fleet.cluster import platforms
        from webnorm.fleet.dispatcher import ItemResult, run_items

        groups, without = platforms(client, where, adapter)
        update(None, None)
        for one in without:
            complain(f"worker {one.name} is left out: {one.reason}")
        pools = [pool for group in groups for pool in self._pools(client, group, update)]
        if not pools:
            raise WebnormError(
                "the copy could not be timed on any adapter; `webnorm cluster` lists the workers"
            )
        self._divide(pools)
        todo = [
            (pool, one.work_items(self._time_limit_s, len(pool.cards)))
            for one, pool in zip(self.jobs, pools, strict=True)
        ]
        only = sum(len(items) for _, items in todo) == 1
        for event in run_items(client, todo):
            if isinstance(event, ItemResult):
                update(None, None)
                self._take(event, only)
            else:
                update(event.text, event.share)

    def _pools(self, client: Client, group: Sequence[ClusterWorker], update: Update) -> Sequence[AdapterPool]:
        """Return the pools of equal adapters in a platform's workers."""
        from webnorm.fleet.adapters import AdapterPool
        from webnorm.fleet.dispatcher import pooled

        def report(progress: DispatchProgress) -> None:
            # The copies are not part of the job, so they add no share to the progress bar.
            update(f"copies of equal cards: {progress.text}", None)

        if not self._job.times:
            return [AdapterPool(tuple(one.card for one in group), {})]
        found = pooled(client, group, self._time_limit_s, report)
        update(None, None)
        timed = {device for pool in found for device in pool.devices}
        for host, index in dict.fromkeys(one.card.device for one in group if one.card.device not in timed):
            complain(f"adapter {index} of {host} is left out: its copy could not be timed")
        then = "each does all of the work" if self._job.for_cards else "it is left out"
        for pool in found[1:]:
            for device in pool.devices:
                first = found[0].label(found[0].devices[0])
                complain(f"{pool.label(device)} is not pooled with {first}: {then}")
        return found if self._job.for_cards else found[:1]

    def _divide(self, pools: Sequence[AdapterPool]) -> None:
        """Make a job for each pool; each of several jobs has its own files."""
        self._names = _names(pools)
        if not self._job.for_cards and len({pool.card.platform.file_name for pool in pools}) < len(pools):
            cards = "; ".join(str(pool.card) for pool in pools)
            raise WebnormError(
                f"the drivers of a device share one tuning file; choose one with --adapter: {cards}"
            )
        for pool, name in zip(pools, self._names, strict=True):
            one = self._job if len(pools) == 1 else self._job.of_platform(name)
            one.device = pool.description()
            one.begin(pool.card.traits)
            self.jobs.append(one)

    def _take(self, found: ItemResult, only: bool) -> None:
        """Show and save the result of a work item; raise WebnormError if the only item was refused."""
        from webnorm.fleet.dispatcher import ItemLost
        from webnorm.fleet.worker import ItemRefused

        job = self.jobs[found.pool]
        # Results without times are shown at the end, below a line with the device.
        if len(self.jobs) > 1 and job.times and self._shown != found.pool:
            self._shown = found.pool
            job.console.print(escaped_line(f"{self._names[found.pool]}:", "bold"))
        if isinstance(found.value, ItemRefused) and only:
            raise WebnormError(found.value.reason)
        if isinstance(found.value, ItemLost | ItemRefused):
            job.record_missing(found.at, found.value.reason, isinstance(found.value, ItemLost))
        else:
            job.record(found.at, found.value)


def _names(pools: Sequence[AdapterPool]) -> list[str]:
    """Return the file name of each pool: its platform, and a number if several pools share the platform."""
    names = [pool.card.platform.file_name.removesuffix(".json") for pool in pools]
    before = [names[:at].count(name) for at, name in enumerate(names)]
    return [f"{name}-{count + 1}" if count else name for name, count in zip(names, before, strict=True)]
