"""Work that may crash, such as opening a driver, in a forked process. A crash becomes an error message."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

from webnorm.errors import WebnormError, sentence

# The longest wait for a driver that opens a device or compiles a probe, in seconds.
_SILENCE_S = 60.0


def run_isolated(work: Callable[[], Iterator[Any]]) -> Generator[Any]:
    """Run `work` in a forked process, which a driver may crash, and yield the values of `work`.

    Raises the errors of `work`, and WebnormError if the process ends or hangs. A fork takes milliseconds,
    while a new process would import everything again. `work` runs in this process if a fork is not safe:
    with other threads, with wgpu loaded, or on systems other than Linux.
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
    # The parent handles Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        for value in work():
            answers.send(("value", value))
    except WebnormError as error:
        answers.send(("raised", error))
    except Exception as error:  # an error of the driver or of wgpu-py
        answers.send(("raised", WebnormError(sentence(f"{type(error).__name__}: {error}"))))
    else:
        answers.send(("end", None))


def _end(code: int) -> str:
    if code >= 0:
        return f"ended with exit status {code}"
    known = {each.value: each.name for each in signal.Signals}
    return f"crashed with {known.get(-code, f'signal {-code}')}"
