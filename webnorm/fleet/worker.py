"""What runs in a Dask worker: a look at its adapter when it is asked to, and errands, one at a time; and
`serve`, which starts workers of this machine.

The device is opened in a process of the errand's own (`webnorm.lab.process.worker`): its clock begins there,
a crash ends no Dask worker, and no process is older than what it measures.
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
from webnorm.fleet.errands import WorkItem
from webnorm.fleet.shipped_ops import Parcel, as_at_home
from webnorm.gpu.device import ADAPTER_VARIABLE
from webnorm.lab.process import worker as lab
from webnorm.lab.run.bench import Progress

# Every worker has one of it, and every task takes it: no two run beside each other.
ADAPTER = "adapter"
# No more often is somebody told of progress.
_BETWEEN_WORDS_S = 0.3
# The card of a worker whose nanny has looked at it.
_CARD_VARIABLE = "WEBNORM_FLEET_CARD"
# Whoever stops a service, a batch system for one, sends the first; a terminal that closes, the second.
_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
_LOGGING_VARIABLE = "DASK_LOGGING__DISTRIBUTED"


@dataclass(frozen=True)
class ItemRefused:
    """Why an errand has no result, in one line: a mistake in what was asked for."""

    reason: str


class _GivenUp(Exception):
    """Nobody waits for the task any more."""


async def join(dask_worker: Worker) -> FleetAdapter | str:
    """Have a worker look at its adapter, in a process of its own and off its loop, and say by its resources
    what it may be given. Gives its card, or why it has none; who has a card does not look again.

    No plugin of Dask's: those reach workers that have no webnorm, too, which then cannot start.
    """
    _as_without_dask()
    if not isinstance(getattr(dask_worker, "webnorm", None), FleetAdapter):
        dask_worker.webnorm = await asyncio.to_thread(_looked_at)
        if isinstance(dask_worker.webnorm, FleetAdapter):
            await dask_worker.set_resources(**resources(dask_worker.webnorm))
    found: FleetAdapter | str = dask_worker.webnorm
    return found


def resources(card: FleetAdapter) -> dict[str, float]:
    """What a worker with this card has."""
    return {ADAPTER: 1, card.key: 1}


def _as_without_dask() -> None:
    """Take back what a nanny sets for its worker's sake: answers of large problems take longer in a process
    that gives memory back at once, or has one thread.
    """
    for name, value in dask.config.get("distributed.nanny.pre-spawn-environ", {}).items():
        if os.environ.get(name) == str(value):
            del os.environ[name]


def _looked_at() -> FleetAdapter | str:
    try:
        with lab.Worker() as own:
            return adapters.adapter_of(own)
    except WebnormError as error:
        return sentence(str(error))


def run(parcel: Parcel, topic: str, number: int) -> Any:
    """A Dask task: what an errand found last, or Refused. Its progress is an event of the topic.

    Where the adapter can no longer be opened the worker gets no more, and the task goes to another.
    """
    try:
        errand: WorkItem = parcel.opened()
    except WebnormError as error:
        return ItemRefused(as_at_home(str(error)))
    task = _Task(topic, number)
    with task.turn(errand.alone), lab.Worker(time_limit_s=errand.time_limit_s) as own:
        card = task.opened(own)
        found: Any = None
        try:
            for event in errand.run(own, card.traits):
                task.live()
                if isinstance(event, Progress):
                    task.tell(event)
                else:
                    found = event
        except WebnormError as error:
            # What was asked for is no mistake where the adapter has gone meanwhile.
            task.opened(own)
            return ItemRefused(str(error))
        except _GivenUp:
            return None
    return found


class _Task:
    """The task that this thread runs, from the inside."""

    def __init__(self, topic: str, number: int) -> None:
        self._topic, self._number = topic, number
        self._worker = get_worker()
        self._key = self._worker.get_current_task()
        self._told = 0.0

    def live(self) -> None:
        """Raise _GivenUp if the task was cancelled."""
        if self._cancelled():
            raise _GivenUp

    def _cancelled(self) -> bool:
        """Return whether the task was cancelled, which Dask reports in its worker's state only."""
        state = self._worker.state.tasks.get(self._key)
        return state is None or state.state in ("cancelled", "released", "forgotten")

    def tell(self, progress: Progress) -> None:
        """Have whoever waits know where it stands."""
        now = time.monotonic()
        if now - self._told >= _BETWEEN_WORDS_S:
            self._told = now
            self._worker.log_event(self._topic, (self._number, str(progress), progress.share))

    def opened(self, own: lab.Worker) -> FleetAdapter:
        """The card; where it cannot be opened, or is another, no task comes here any more, and this one goes
        elsewhere.
        """
        known = self._worker.webnorm
        try:
            card = adapters.adapter_of(own)
            reason = f"the adapter is {card} now, which was {known}"
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
        """Wait until nothing else is timed on this adapter, by another worker of this user's."""
        if not alone:
            yield
            return
        from filelock import FileLock, Timeout

        card = self._worker.webnorm
        shared = "adapter"
        if isinstance(card, FleetAdapter):
            # Software adapters have the same processor.
            shared = f"{card.host}-{'cpu' if card.traits.software else card.index}"
        folder = atomic.cache_folder("fleet")
        folder.mkdir(parents=True, exist_ok=True)
        try:
            turn = FileLock(folder / f"{shared}.lock").acquire(cancel_check=self._cancelled)
        except Timeout:
            raise _GivenUp from None
        with turn:
            yield


def dask_setup(worker: Worker) -> None:
    """What Dask calls where this module is preloaded, before the worker joins: a terminal's Ctrl-C is for who
    started it, and one that its nanny starts again is given tasks before anybody has it look at its adapter.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _as_without_dask()
    if given := os.environ.get(_CARD_VARIABLE):
        worker.webnorm = pickle.loads(bytes.fromhex(given))


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Have Ctrl-C wait until the block ends: processes and threads that begin in it are never told of any."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # It is started with the first process, and lets Ctrl-C through again behind that.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def quieten() -> None:
    """Have Dask's loggers, here and in processes that are started, tell of no worker that comes or goes.

    Whoever waits for them does.
    """
    level = os.environ.setdefault(_LOGGING_VARIABLE, "critical")
    # These have levels of their own by default.
    for name in ("distributed", "distributed.client", "distributed.gc"):
        logging.getLogger(name).setLevel(level.upper())


def why(error: BaseException) -> str:
    """What somebody could not be reached or joined for, which stands behind Dask's errors, in a line."""
    if isinstance(error, RuntimeError):
        # "Nanny failed to start.", for "Worker failed to start.", for the reason.
        while error.__cause__ is not None:
            error = error.__cause__
    # Without the object in which it happened; a limit of time that was reached may have no words of its own.
    return sentence(re.sub(r"^in <.*?>: ", "", str(error.__cause__ or "") or str(error)), 200)


@contextmanager
def dask_failing(what: str) -> Iterator[None]:
    """Have a WebnormError say that something failed because Dask did, which raises all kinds of errors at
    settings that it cannot use.
    """
    try:
        yield
    except WebnormError:
        raise
    except Exception as error:
        signals.let_through(error)
        raise WebnormError(f"{what}: {type(error).__name__}: {why(error)}") from error


class PatientNanny(Nanny):  # type: ignore[misc]  # Dask has no types
    """A nanny that closes without an error where the process that it has killed takes long to end.

    On a busy machine it may take longer than Dask waits. The work was done by then.
    """

    async def close(self, timeout: float = 5, reason: str = "nanny-close") -> Literal["OK"]:
        """Close the worker process, or leave its end to the system."""
        with suppress(TimeoutError):
            await super().close(timeout, reason)
        return "OK"


def options(index: int, card: FleetAdapter, number: int = 0) -> dict[str, Any]:
    """What a nanny is given for a worker with the adapter of that index."""
    again = f"-{number}" if number else ""
    return {
        "nthreads": 1,
        "preload": [__name__],
        "name": f"{card.host}-{index}{again}",
        "resources": resources(card),
        "env": {ADAPTER_VARIABLE: str(index), _CARD_VARIABLE: pickle.dumps(card).hex()},
        # What is large lies in processes that a nanny does not count.
        "memory_limit": None,
        "dashboard": False,
        "dashboard_address": ":0",
        "security": Security(),
    }


def serve(address: str, cards: Mapping[int, FleetAdapter], ready: Callable[[], None]) -> None:
    """Work for the scheduler at an address, with the adapters of these indices, and return when it has gone.

    `ready` is called when all have joined. Ctrl-C raises KeyboardInterrupt when all have left. A SIGTERM or
    SIGHUP is passed on to the handler that it had before, when all have left. WebnormError where one cannot
    join.
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
        # A signal that is ignored, as under nohup, stays ignored.
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
            except Exception as error:  # Dask raises all kinds at settings that it cannot use
                signals.let_through(error)
                reason = why(error)
                if "name taken" in reason:
                    reason = f"a worker called {given['name']}, as its host and index say, is there already"
                raise WebnormError(f"adapter {index} cannot join {address}: {reason}") from error
        ready()
        await asyncio.gather(*(nanny.finished() for nanny in nannies))
