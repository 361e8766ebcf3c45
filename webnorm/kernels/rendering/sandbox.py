"""Rendering of a user's templates in a child process with limits of time and memory.

One child serves all renderings of this process, one after another. It receives requests as pickles and
replies in JSON, which cannot run code here. It ends with this process. On Windows Python has neither
`resource` nor process timers. There the only limit is the waiting time.
"""

from __future__ import annotations

import atexit
import dataclasses
import json
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import IO, Any

from webnorm import signals
from webnorm.errors import LimitReached, SourceLocation, WebnormError
from webnorm.kernels.rendering import templates
from webnorm.kernels.rendering.templates import Rendering, RenderRequest
from webnorm.kernels.source_map.markers import LineSegment

_START_LIMIT_S = 60.0
# Bytes of a reply: the longest text as JSON, with the origins of its lines.
_MOST_REPLY = 96 << 20
# Marks the begin of the replies, because modules that Python imports at its start may print text.
_READY = b"\0webnorm renders\0"
_MOST_PRINTED = 1 << 20
_LENGTH = struct.Struct("!Q")
# The signal of a timer of processor time, which ends the process.
_SPENT = getattr(signal, "SIGPROF", None)


@dataclasses.dataclass(frozen=True)
class RenderLimits:
    """Limits of a rendering: seconds of processor time, seconds to wait, bytes of memory, characters of text.

    webnorm's own kernels take milliseconds, and a fortieth of the text. The waiting time is longer than the
    processor time, because other processes may use the processor. It is below the callers' limit of a minute.
    """

    time_s: float = 10.0
    wait_s: float = 50.0
    memory: int = 512 << 20
    text: int = templates.MOST_TEXT


# The limits of this process's renderings, which callers may tighten.
limits = RenderLimits()


@signals.deferring
def render(request: RenderRequest) -> Rendering:
    """Render in the child within `limits`. Raises WebnormError with the template's file and line."""
    with _lock:
        used = _child is not None
        reply = _answer(request)
        if reply.get("spent"):
            stop()
            # Earlier templates may have used up the memory, so a new child tries once more.
            if used and (reply := _answer(request)).get("spent"):
                stop()
    if "error" in reply:
        raise WebnormError(
            reply["error"], None if reply["place"] is None else SourceLocation(*reply["place"])
        )
    files, places = reply["files"], reply["origins"]
    return Rendering(
        text=reply["text"],
        origins=tuple((files[at], line) for at, line in zip(places[::2], places[1::2], strict=True)),
        workgroup_bytes=reply["workgroup_bytes"],
        files={path: None if known is None else tuple(known) for path, known in reply["looked_at"].items()},
        names=frozenset(reply["names"]),
        runs=tuple(
            tuple(LineSegment(start, length, files[at], *there) for start, length, at, *there in line)
            for line in reply["runs"]
        ),
        callers=tuple(None if one is None else SourceLocation(*one) for one in reply["callers"]),
    )


def start() -> None:
    """Start the child now; otherwise the next rendering does."""
    global _child
    with _lock:
        try:
            _child = _child or _Child()
        except _Ended as end:
            raise WebnormError(str(end)) from end


def stop() -> None:
    """End the child; the next rendering starts another one."""
    global _child
    if _child is not None:
        _child.end()
        _child = None


def _answer(request: RenderRequest) -> Any:
    global _child
    if _child is not None and _child.process.poll() is not None:
        stop()
    place = templates.display_path(request.kernel, request.own)
    try:
        if _child is None:
            _child = _Child()
        reply = _child.receive(limits.wait_s, pickle.dumps((request, limits)))
        return json.loads(reply)
    except _Spent as end:
        stop()
        raise LimitReached(
            f"{place}: rendering was stopped after {limits.time_s:g} s of processor time; use loops and "
            "macros that end sooner"
        ) from end
    except _Late as end:
        stop()
        raise LimitReached(
            f"{place}: rendering was stopped after {limits.wait_s:g} s, with less than {limits.time_s:g} s "
            "of processor time; try again when the machine is less busy"
        ) from end
    except _Ended as end:
        stop()
        raise WebnormError(f"{place}: {end}") from end
    except BaseException:
        # After Ctrl-C the next request must not get this reply.
        stop()
        raise


@contextmanager
def killed_after(limit_s: float, process: subprocess.Popen[Any]) -> Iterator[threading.Event]:
    """Kill a process unless the block ends within `limit_s` seconds; the event is set if it was killed."""
    expired = threading.Event()

    def give_up() -> None:
        expired.set()
        process.kill()

    timer = threading.Timer(limit_s, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield expired
    finally:
        timer.cancel()
        timer.join()


class _Ended(Exception):
    """The child ended without a reply; the message is the reason."""


class _Spent(_Ended):
    """The child used all of its processor time."""


class _Late(_Ended):
    """The waiting time is over."""


class _Child:
    """The child process, from the parent's side."""

    def __init__(self) -> None:
        # Sets the path before any import, because the working folder may contain a json.py.
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            "from webnorm.kernels.rendering import sandbox; sandbox.serve()"
        )
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            raise _Ended(f"cannot start the rendering process: {error.strerror}") from error
        try:
            self.receive(_START_LIMIT_S)
        except _Late as late:
            self.end()
            raise _Ended(f"the rendering process did not start within {_START_LIMIT_S:g} s") from late
        except BaseException:
            self.end()
            raise

    def receive(self, limit_s: float, message: bytes | None = None) -> bytes:
        """Send a message and wait for the reply; without a message, wait for the child's start.

        Raises _Ended if there is no reply in time.
        """
        assert self.process.stdin is not None and self.process.stdout is not None
        with signals.interruptible(), killed_after(limit_s, self.process) as expired:
            try:
                if message is not None:
                    _send(self.process.stdin, message)
                    reply = _receive(self.process.stdout)
                else:
                    reply = _skipped(self.process.stdout)
            except OSError as error:
                signals.let_through(error)
                reply = None
        if reply is not None:
            return reply
        if expired.is_set():
            raise _Late
        self.process.kill()
        code = self.process.wait()
        if -code == _SPENT:
            raise _Spent
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        raise _Ended(f"the rendering process ended with {how}")

    def end(self) -> None:
        """End the child and close its pipes."""
        self.process.kill()
        self.process.wait()
        self.leave()

    def leave(self) -> None:
        """Close the pipes to the child."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


_child: _Child | None = None
_lock = threading.Lock()


def _forget() -> None:
    """Reset the state after a fork: the child belongs to the parent, and so does a locked lock."""
    global _child, _lock
    _lock = threading.Lock()
    if _child is not None:
        _child.leave()
        # Marks it as ended, so that this process neither waits for it nor warns about it.
        _child.process.returncode = 0
        _child = None


atexit.register(stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _send(pipe: IO[bytes], message: bytes) -> None:
    left = memoryview(_LENGTH.pack(len(message)) + message)
    while left:
        left = left[pipe.write(left) :]


def _receive(pipe: IO[bytes]) -> bytes | None:
    """Return the next message; None if the other end is closed or the length is invalid."""
    head = _exactly(pipe, _LENGTH.size)
    if head is None or (size := _LENGTH.unpack(head)[0]) > _MOST_REPLY:
        return None
    return _exactly(pipe, size)


def _skipped(pipe: IO[bytes]) -> bytes | None:
    """Read up to the mark that the child is ready; None if the mark does not arrive."""
    printed = bytearray()
    while not printed.endswith(_READY):
        byte = pipe.read(1)
        if not byte or len(printed) > _MOST_PRINTED:
            return None
        printed += byte
    return bytes(printed)


def _exactly(pipe: IO[bytes], size: int) -> bytes | None:
    parts = []
    while size:
        part = pipe.read(min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


# --- the child -------------------------------------------------------------------------------------


def serve() -> None:
    """Render requests in a loop until the parent closes the pipe. This runs in the child."""
    # The parent handles Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Replies get their own descriptor, so that other output to stdout does not mix with them.
    answers = os.dup(1)
    os.dup2(2, 1)
    with (
        open(0, "rb", buffering=0, closefd=False) as source,
        open(answers, "wb", buffering=0) as sink,
    ):
        set_limit("RLIMIT_CORE", 0)
        sink.write(_READY)
        # A thread reads the requests, so that the child notices the end of the parent at once.
        messages: SimpleQueue[bytes] = SimpleQueue()
        threading.Thread(target=_read, args=(source, messages), daemon=True).start()
        while True:
            request, within = pickle.loads(messages.get())
            set_limit("RLIMIT_AS", within.memory)
            _end_after(within.time_s)
            _send(sink, json.dumps(_reply(request, within)).encode())
            _end_after(0.0)


def _end_after(time_s: float) -> None:
    """End this process after `time_s` more seconds of its processor time; 0 for never."""
    if _SPENT is not None:
        signal.signal(_SPENT, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, time_s)


def _read(source: IO[bytes], messages: SimpleQueue[bytes]) -> None:
    while (message := _receive(source)) is not None:
        messages.put(message)
    os._exit(0)


def _reply(request: RenderRequest, within: RenderLimits) -> dict[str, Any]:
    try:
        found = templates.render(request, within.text)
    except (templates.OutOfMemory, MemoryError) as error:
        what = str(error) or "rendering takes too much memory"
        place = getattr(error, "place", None)
        message = f"{what}; the limit is {within.memory >> 20} MiB"
        return {"error": message, "place": place and dataclasses.astuple(place), "spent": True}
    except WebnormError as error:
        return {"error": str(error), "place": error.place and dataclasses.astuple(error.place)}
    named = (*(file for file, _ in found.origins), *(run.file for line in found.runs for run in line))
    files = list(dict.fromkeys(named))
    places = {file: at for at, file in enumerate(files)}
    return {
        "text": found.text,
        "files": files,
        "origins": [number for file, line in found.origins for number in (places[file], line)],
        "workgroup_bytes": found.workgroup_bytes,
        "looked_at": dict(found.files),
        "names": list(found.names),
        "runs": [[(*run[:2], places[run.file], *run[3:]) for run in line] for line in found.runs],
        "callers": [None if one is None else dataclasses.astuple(one) for one in found.callers],
    }


def set_limit(name: str, value: int) -> None:
    """Lower a resource limit of this process, if the system supports it."""
    try:
        import resource

        kind = getattr(resource, name)
        most = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (value if most == resource.RLIM_INFINITY else min(value, most), most))
    except (ImportError, AttributeError, ValueError, OSError):
        return
