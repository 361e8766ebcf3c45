"""The code of a Dask worker, which examines the adapter and runs work items. `serve` starts workers.

Each work item opens the device in its own process (`webnorm.lab.process.worker`). So its time limit starts
there, a crash ends no Dask worker, and no measurement depends on earlier ones in the process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import Any, Literal

import dask
from distributed import Nanny, Reschedule, Security, Worker, get_worker

from webnorm import signals
from webnorm.errors import WebnormError, sentence
from webnorm.files import atomic
from webnorm.fleet import adapters
from webnorm.fleet.adapters import FleetAdapter
from webnorm.fleet.shipped_ops import Parcel, restored_text
from webnorm.fleet.work_items import WorkItem
from webnorm.gpu.device import ADAPTER_VARIABLE
from webnorm.lab.process import worker as lab
from webnorm.lab.run.bench import Progress

# Each worker has one of this resource and each task needs one, so a worker runs one task at a time.
ADAPTER = "adapter"
# The shortest time between two reports of progress.
_BETWEEN_REPORTS_S = 0.3
# Contains the card of a worker if its nanny has examined it.
_CARD_VARIABLE = "WEBNORM_FLEET_CARD"
# Service managers and batch systems send the first signal, and a closing terminal sends the second.
_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
_LOGGING_VARIABLE = "DASK_LOGGING__DISTRIBUTED"


@dataclass(frozen=True)
class ItemRefused:
    """The reason why a work item has no result, in one line: a mistake of the user."""

    reason: str


class _TaskCancelled(Exception):
    """The task was cancelled."""


async def join(dask_worker: Worker) -> FleetAdapter | str:
    """Examine the worker's adapter in its own process, and set the worker's resources accordingly.

    Returns the card, or the reason why there is none. A worker that has a card is not examined again. This is
    no Dask plugin, because plugins also reach workers without webnorm, which then cannot start.
    """
    _restore_environment()
    if not isinstance(getattr(dask_worker, "webnorm", None), FleetAdapter):
        dask_worker.webnorm = await asyncio.to_thread(_examined_adapter)
        if isinstance(dask_worker.webnorm, FleetAdapter):
            await dask_worker.set_resources(**resources(dask_worker.webnorm))
    found: FleetAdapter | str = dask_worker.webnorm
    return found


def resources(card: FleetAdapter) -> dict[str, float]:
    """Return the Dask resources of a worker with this card."""
    return {ADAPTER: 1, card.key: 1}


def _restore_environment() -> None:
    """Unset the variables that a nanny sets for its worker.

    They limit threads and return memory at once, which slows the reference answers of large problems.
    """
    for name, value in dask.config.get("distributed.nanny.pre-spawn-environ", {}).items():
        if os.environ.get(name) == str(value):
            del os.environ[name]


def _examined_adapter() -> FleetAdapter | str:
    try:
        with lab.Worker() as own:
            return adapters.adapter_of(own)
    except WebnormError as error:
        return sentence(str(error))


def run(parcel: Parcel, topic: str, number: int) -> Any:
    """Run a work item as a Dask task, and return its last result or ItemRefused.

    Progress is logged as events of the topic. If the adapter can no longer be opened, the worker gets no more
    tasks, and this one goes to another worker.
    """
    try:
        item: WorkItem = parcel.opened()
    except WebnormError as error:
        return ItemRefused(restored_text(str(error)))
    task = _Task(topic, number)
    with task.turn(item.alone), lab.Worker(time_limit_s=item.time_limit_s) as own:
        card = task.opened(own)
        found: Any = None
        try:
            for event in item.run(own, card.traits):
                task.check_cancelled()
                if isinstance(event, Progress):
                    task.report(event)
                else:
                    found = event
        except WebnormError as error:
            # This raises Reschedule if the error came from an adapter that is gone.
            task.opened(own)
            return ItemRefused(str(error))
        except _TaskCancelled:
            return None
    return found


class _Task:
    """The Dask task that runs in this thread."""

    def __init__(self, topic: str, number: int) -> None:
        self._topic, self._number = topic, number
        self._worker = get_worker()
        self._key = self._worker.get_current_task()
        self._reported_at = 0.0

    def check_cancelled(self) -> None:
        """Raise _TaskCancelled if the task was cancelled."""
        if self._cancelled():
            raise _TaskCancelled

    def _cancelled(self) -> bool:
        """Return True if the task was cancelled; only the worker's state contains this."""
        state = self._worker.state.tasks.get(self._key)
        return state is None or state.state in ("cancelled", "released", "forgotten")

    def report(self, progress: Progress) -> None:
        """Send the progress to the client."""
        now = time.monotonic()
        if now - self._reported_at >= _BETWEEN_REPORTS_S:
            self._reported_at = now
            self._worker.log_event(self._topic, (self._number, str(progress), progress.share))

    def opened(self, own: lab.Worker) -> FleetAdapter:
        """Open the adapter and return its card.

        If it cannot be opened or has changed, this task goes to another worker, and this worker gets no more.
        """
        known = self._worker.webnorm
        try:
            card = adapters.adapter_of(own)
            reason = f"the adapter changed from {known} to {card}"
        except WebnormError as error:
            card, reason = None, sentence(str(error))
        if card is not None and isinstance(known, FleetAdapter) and card.key == known.key:
            return card
        self._worker.webnorm = reason
        if isinstance(known, FleetAdapter):
            none = dict.fromkeys(resources(known), 0)
            leaving = self._worker.set_resources(**none)
            asyncio.run_coroutine_threadsafe(leaving, self._worker.loop.asyncio_loop).result()
        raise Reschedule

    @contextmanager
    def turn(self, alone: bool) -> Iterator[None]:
        """Wait until no other worker of this user times anything on this adapter."""
        if not alone:
            yield
            return
        from filelock import FileLock, Timeout

        card = self._worker.webnorm
        shared = "adapter"
        if isinstance(card, FleetAdapter):
            # All software adapters of a host share its processor.
            shared = f"{card.host}-{'cpu' if card.traits.software else card.index}"
        folder = atomic.cache_folder("fleet")
        folder.mkdir(parents=True, exist_ok=True)
        try:
            turn = FileLock(folder / f"{shared}.lock").acquire(cancel_check=self._cancelled)
        except Timeout:
            raise _TaskCancelled from None
        with turn:
            yield


def dask_setup(worker: Worker) -> None:
    """Prepare a worker before it joins; Dask calls this function because the module is preloaded.

    The worker ignores Ctrl-C, which its parent process handles. It takes its card from the environment,
    because a restarted worker may get tasks before `join` runs.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _restore_environment()
    if given := os.environ.get(_CARD_VARIABLE):
        worker.webnorm = pickle.loads(bytes.fromhex(given))


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Delay Ctrl-C until the block ends; processes and threads that start in the block never receive it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # Otherwise it starts with the first process, and unblocks Ctrl-C after that.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def quieten() -> None:
    """Silence Dask's loggers about workers that join or leave, in this process and its children.

    The code that waits for the workers reports these events itself.
    """
    level = os.environ.setdefault(_LOGGING_VARIABLE, "critical")
    # By default these loggers have their own levels.
    for name in ("distributed", "distributed.client", "distributed.gc"):
        logging.getLogger(name).setLevel(level.upper())


def root_cause(error: BaseException) -> str:
    """Return the cause of a Dask error in one line."""
    if isinstance(error, RuntimeError):
        # "Nanny failed to start." is caused by "Worker failed to start.", which is caused by the reason.
        while error.__cause__ is not None:
            error = error.__cause__
    # The prefix "in <object>: " is removed. A timeout may have no text of its own.
    return sentence(re.sub(r"^in <.*?>: ", "", str(error.__cause__ or "") or str(error)), 200)


@contextmanager
def dask_failing(what: str) -> Iterator[None]:
    """Turn any error of Dask into a WebnormError that starts with `what`.

    Dask raises many types of errors for settings that it cannot use.
    """
    try:
        yield
    except WebnormError:
        raise
    except Exception as error:
        signals.let_through(error)
        raise WebnormError(f"{what}: {type(error).__name__}: {root_cause(error)}") from error


class PatientNanny(Nanny):  # type: ignore[misc]  # Dask has no types
    """A nanny that closes without an error even if its killed process ends slowly.

    On a busy machine this may take longer than Dask waits. The work is already done then.
    """

    async def close(self, timeout: float = 5, reason: str = "nanny-close") -> Literal["OK"]:
        """Close the worker process, or leave its end to the system."""
        with suppress(TimeoutError):
            await super().close(timeout, reason)
        return "OK"


def options(index: int, card: FleetAdapter, number: int = 0) -> dict[str, Any]:
    """Return a nanny's options for a worker with the adapter of this index."""
    again = f"-{number}" if number else ""
    return {
        "nthreads": 1,
        "preload": [__name__],
        "name": f"{card.host}-{index}{again}",
        "resources": resources(card),
        "env": {ADAPTER_VARIABLE: str(index), _CARD_VARIABLE: pickle.dumps(card).hex()},
        # The large buffers are in processes that a nanny does not count.
        "memory_limit": None,
        "dashboard": False,
        "dashboard_address": ":0",
        "security": Security(),
    }


def serve(address: str, cards: Mapping[int, FleetAdapter], ready: Callable[[], None]) -> None:
    """Run one worker per adapter for the scheduler at an address, and return when the scheduler ends.

    `ready` is called when all workers have joined. After Ctrl-C all workers leave, and KeyboardInterrupt is
    raised. After SIGTERM or SIGHUP all workers leave, and the previous handler gets the signal. Raises
    WebnormError if a worker cannot join.
    """
    quieten()
    before = {number: signal.getsignal(number) for number in _ENDING}
    received: list[int] = []
    try:
        asyncio.run(_serve(address, cards, ready, received))
    except asyncio.CancelledError:
        pass
    else:
        return
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for number in received:
        signal.raise_signal(number)
    raise KeyboardInterrupt


async def _serve(
    address: str, cards: Mapping[int, FleetAdapter], ready: Callable[[], None], received: list[int]
) -> None:
    task = asyncio.current_task()
    assert task is not None

    def end(number: int) -> None:
        received.append(number)
        task.cancel()

    for number in _ENDING:
        # A signal that is already ignored, as under nohup, stays ignored.
        if signal.getsignal(number) != signal.SIG_IGN:
            with suppress(NotImplementedError):
                asyncio.get_running_loop().add_signal_handler(number, end, number)
    async with AsyncExitStack() as stack:
        nannies = []
        for index, card in cards.items():
            given = options(index, card)
            try:
                nanny = PatientNanny(address, **given)
                with interrupts_held():
                    nannies.append(await stack.enter_async_context(nanny))
            except Exception as error:  # Dask raises many types for settings that it cannot use
                signals.let_through(error)
                reason = root_cause(error)
                if "name taken" in reason:
                    reason = f"a worker named {given['name']}, after its host and index, has already joined"
                raise WebnormError(f"adapter {index} cannot join {address}: {reason}") from error
        ready()
        await asyncio.gather(*(nanny.finished() for nanny in nannies))
