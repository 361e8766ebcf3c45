"""Dask workers of this machine, one for each adapter that is asked for, until they are told to end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress

from webnorm import signals
from webnorm.errors import WebnormError
from webnorm.fleet.adapters import FleetAdapter
from webnorm.fleet.worker import PatientNanny, interrupts_held, options, quieten, why

# Whoever stops a service, a batch system for one, sends the first; a terminal that closes, the second.
_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


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
