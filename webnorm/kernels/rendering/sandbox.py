"""Templates of the user's, rendered in a child process with bounds of time and memory.

One child serves all renderings of this process, one after another. It is told what to render as a pickle, and
answers in JSON, which runs nothing here. It ends when this process does. On Windows, where Python has neither
`resource` nor timers of a process, memory and processor time have no bound but that of waiting.
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
# Of a reply: the longest text as JSON, and its lines' origins.
_MOST_REPLY = 96 << 20
# What is imported when Python starts may print something before it.
_READY = b"\0webnorm renders\0"
_MOST_PRINTED = 1 << 20
_LENGTH = struct.Struct("!Q")
# What a timer of processor time ends a process with.
_SPENT = getattr(signal, "SIGPROF", None)


@dataclasses.dataclass(frozen=True)
class RenderLimits:
    """What a rendering may take: seconds of processor time, seconds that it is waited for, bytes of memory,
    and characters of text.

    webnorm's own kernels take milliseconds, and a fortieth of the text. Others may have the processor
    meanwhile, which is no fault of the template's; who waits for a worker has less than a minute's patience.
    """

    time_s: float = 10.0
    wait_s: float = 50.0
    memory: int = 512 << 20
    text: int = templates.MOST_TEXT


# Of this process's renderings; who wants tighter ones sets them.
limits = RenderLimits()


@signals.holding
def render(request: RenderRequest) -> Rendering:
    """Render in the child within `limits`; raises WebnormError with the template's file and line."""
    with _lock:
        used = _child is not None
        reply = _answer(request)
        if reply.get("spent"):
            stop()
            # What other templates left there may have been too much.
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
    """Have the child ready for the next rendering, which otherwise starts it."""
    global _child
    with _lock:
        try:
            _child = _child or _Child()
        except _Ended as end:
            raise WebnormError(str(end)) from end


def stop() -> None:
    """End the child; the next rendering starts another."""
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
            f"{place}: rendering took longer than {limits.time_s:g} s of processor time: stopped; expected "
            "loops and macros that end sooner"
        ) from end
    except _Late as end:
        stop()
        raise LimitReached(
            f"{place}: rendering was not done within {limits.wait_s:g} s, though it had less than "
            f"{limits.time_s:g} s of processor time: stopped; try again when the machine is less busy"
        ) from end
    except _Ended as end:
        stop()
        raise WebnormError(f"{place}: {end}") from end
    except BaseException:
        # Ctrl-C: whoever asks next must not get this answer.
        stop()
        raise


@contextmanager
def killed_after(limit_s: float, process: subprocess.Popen[Any]) -> Iterator[threading.Event]:
    """Kill a process that is asked for something and does not answer in so many seconds: the event tells."""
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
    """Why there is no answer."""


class _Spent(_Ended):
    """It took all of its processor time."""


class _Late(_Ended):
    """It was waited for long enough."""


class _Child:
    """The process, from the parent's side."""

    def __init__(self) -> None:
        # Nothing is imported before the path is this process's: a folder may hold a json.py.
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
            raise _Ended(f"cannot start the process that renders: {error.strerror}") from error
        try:
            self.receive(_START_LIMIT_S)
        except _Late as late:
            self.end()
            raise _Ended(f"the process that renders did not start within {_START_LIMIT_S:g} s") from late
        except BaseException:
            self.end()
            raise

    def receive(self, limit_s: float, message: bytes | None = None) -> bytes:
        """Send a message and wait for the answer, or for the child's start where there is none; raises _Ended
        where nothing comes in time.
        """
        assert self.process.stdin is not None and self.process.stdout is not None
        with signals.waiting(), killed_after(limit_s, self.process) as expired:
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
        raise _Ended(f"the process that renders ended with {how}")

    def end(self) -> None:
        """End it, and leave nothing of it."""
        self.process.kill()
        self.process.wait()
        self.leave()

    def leave(self) -> None:
        """Close what leads to it."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


_child: _Child | None = None
_lock = threading.Lock()


def _forget() -> None:
    """In a process that was forked: the child is the parent's, and so is whoever held the lock."""
    global _child, _lock
    _lock = threading.Lock()
    if _child is not None:
        _child.leave()
        # It is no child of this process, which must neither wait for it nor warn of it.
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
    """The next message; None where the other end is gone, or speaks no sense."""
    head = _exactly(pipe, _LENGTH.size)
    if head is None or (size := _LENGTH.unpack(head)[0]) > _MOST_REPLY:
        return None
    return _exactly(pipe, size)


def _skipped(pipe: IO[bytes]) -> bytes | None:
    """What comes up to the sign that the child is ready; None where that does not come."""
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
    """The child's loop: render what is asked for until nothing more is."""
    # The parent decides what Ctrl-C means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What else writes there does not belong to the answers.
    answers = os.dup(1)
    os.dup2(2, 1)
    with (
        open(0, "rb", buffering=0, closefd=False) as source,
        open(answers, "wb", buffering=0) as sink,
    ):
        set_limit("RLIMIT_CORE", 0)
        sink.write(_READY)
        # Read beside the work, so that the end of the parent is noticed at once.
        messages: SimpleQueue[bytes] = SimpleQueue()
        threading.Thread(target=_read, args=(source, messages), daemon=True).start()
        while True:
            request, within = pickle.loads(messages.get())
            set_limit("RLIMIT_AS", within.memory)
            _end_after(within.time_s)
            _send(sink, json.dumps(_reply(request, within)).encode())
            _end_after(0.0)


def _end_after(time_s: float) -> None:
    """End this process after so many seconds of its processor time from now on; 0 for never."""
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
        message = f"{what}: expected at most {within.memory >> 20} MiB"
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
    """Take no more than that, where the system knows such a limit."""
    try:
        import resource

        kind = getattr(resource, name)
        most = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (value if most == resource.RLIM_INFINITY else min(value, most), most))
    except (ImportError, AttributeError, ValueError, OSError):
        return
