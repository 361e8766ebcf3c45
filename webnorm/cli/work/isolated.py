"""Work that may crash, as where a driver is tried, in a forked process; one that crashes costs one line."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

from webnorm.errors import WebnormError, sentence

# A driver that opens a device, or compiles a probe, is given up after so long.
_SILENCE_S = 60.0


def run_isolated(work: Callable[[], Iterator[Any]]) -> Generator[Any]:
    """Yield what `work()` yields, in a forked process, as a driver may crash it; raises what it raises, and
    WebnormError where its process ends or hangs.

    A fork costs milliseconds, where a process of its own imports all anew. Where forking is not safe, `work`
    runs here: beside threads, or wgpu that is loaded already, and on systems other than Linux.
    """
    if not sys.platform.startswith("linux") or "wgpu" in sys.modules or threading.active_count() > 1:
        yield from work()
        return
    import multiprocessing

    context = multiprocessing.get_context("fork")
    answers, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_serve, args=(work, theirs), daemon=True)
    child.start()
    theirs.close()
    try:
        while True:
            if not answers.poll(_SILENCE_S):
                raise WebnormError(f"opening the adapter: no answer for {_SILENCE_S:g} s")
            kind, value = answers.recv()
            if kind == "end":
                return
            if kind == "raised":
                raise value
            yield value
    except EOFError:
        child.join()
        raise WebnormError(f"opening the adapter: the process {_end(child.exitcode or 0)}") from None
    finally:
        child.kill()
        child.join()


def _serve(work: Callable[[], Iterator[Any]], answers: Any) -> None:
    # The parent decides what Ctrl-C means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        for value in work():
            answers.send(("value", value))
    except WebnormError as error:
        answers.send(("raised", error))
    except Exception as error:  # of the driver, or what wraps it
        answers.send(("raised", WebnormError(sentence(f"{type(error).__name__}: {error}"))))
    else:
        answers.send(("end", None))


def _end(code: int) -> str:
    if code >= 0:
        return f"ended with exit status {code}"
    known = {each.value: each.name for each in signal.Signals}
    return f"crashed with {known.get(-code, f'signal {-code}')}"
