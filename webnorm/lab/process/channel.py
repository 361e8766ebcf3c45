"""Messages between two processes, each of which may hang or die in the middle of one."""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

_LENGTH = struct.Struct("!Q")
# A limit that sockets take; nobody waits longer.
_LONGEST_S = 1e8


class ChannelClosed(Exception):
    """The other end is gone, perhaps in the middle of a message."""


class ChannelSilent(Exception):
    """The other end does not read, or does not write, although it is there."""


class Channel:
    """One end of a pair of connected sockets: what is sent there arrives here, whole or not at all.

    A `limit` is in seconds; ChannelSilent is raised after it. After that, or ChannelClosed, the channel is of
    no use.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    @classmethod
    def pair(cls) -> tuple[Self, Self]:
        """Both ends."""
        one, other = socket.socketpair()
        return cls(one), cls(other)

    @classmethod
    def inherited(cls, handle: int) -> Self:
        """The end whose `handle` the parent process handed on."""
        return cls(socket.socket(fileno=handle))

    def for_child(self) -> tuple[int, dict[str, Any]]:
        """The handle, and how `subprocess.Popen` hands it on."""
        self._socket.set_inheritable(True)
        handle = self._socket.fileno()
        return handle, {"pass_fds": (handle,)} if os.name == "posix" else {"close_fds": False}

    def send(self, message: bytes, limit: float | None = None) -> None:
        """Send a message; returns when the system has taken it over."""
        self._limit(limit)
        with _told():
            self._socket.sendall(_LENGTH.pack(len(message)))
            self._socket.sendall(message)

    def receive(self, limit: float | None = None) -> bytes:
        """The next message; the limit is one of silence, between any two parts of it."""
        self._limit(limit)
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        return bytes(self._read(length))

    def waits(self) -> bool:
        """Whether a message has begun to arrive, or the other end is gone."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def _read(self, count: int) -> memoryview:
        found = memoryview(bytearray(count))
        at = 0
        while at < count:
            with _told():
                size = self._socket.recv_into(found[at:])
            if size == 0:
                raise ChannelClosed
            at += size
        return found

    def _limit(self, limit: float | None) -> None:
        self._socket.settimeout(None if limit is None else min(limit, _LONGEST_S))

    def close(self) -> None:
        """Let go of this end."""
        self._socket.close()

    def end_with_it(self) -> None:
        """End this process as soon as the other end is closed, whatever it is at."""
        if not hasattr(select, "poll"):
            return
        poll = select.poll()
        # Nothing but that it hung up, which is told in any case.
        poll.register(self._socket.fileno(), 0)

        def wait() -> None:
            poll.poll()
            os._exit(0)

        threading.Thread(target=wait, daemon=True).start()


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise ChannelSilent from error
    except OSError as error:
        raise ChannelClosed from error
