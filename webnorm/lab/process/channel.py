"""Messages between two processes; either process may hang or die in the middle of a message."""

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
# The longest time limit that sockets accept.
_LONGEST_S = 1e8


class ChannelClosed(Exception):
    """The other end is closed, perhaps in the middle of a message."""


class ChannelSilent(Exception):
    """The other end exists, but does not read or write."""


class Channel:
    """One end of a pair of connected sockets. A message arrives as a whole or not at all.

    A `limit` is in seconds; ChannelSilent is raised after it. The channel is unusable after ChannelSilent or
    ChannelClosed.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    @classmethod
    def pair(cls) -> tuple[Self, Self]:
        """Return both ends of a new channel."""
        one, other = socket.socketpair()
        return cls(one), cls(other)

    @classmethod
    def inherited(cls, handle: int) -> Self:
        """Return the end whose `handle` the parent process passed on."""
        return cls(socket.socket(fileno=handle))

    def for_child(self) -> tuple[int, dict[str, Any]]:
        """Return the handle, and the arguments of `subprocess.Popen` that pass it on."""
        self._socket.set_inheritable(True)
        handle = self._socket.fileno()
        return handle, {"pass_fds": (handle,)} if os.name == "posix" else {"close_fds": False}

    def send(self, message: bytes, limit: float | None = None) -> None:
        """Send a message; return when the system has accepted it."""
        self._limit(limit)
        with _channel_errors():
            self._socket.sendall(_LENGTH.pack(len(message)))
            self._socket.sendall(message)

    def receive(self, limit: float | None = None) -> bytes:
        """Return the next message; the limit applies to silence between any two parts of it."""
        self._limit(limit)
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        return bytes(self._read(length))

    def waits(self) -> bool:
        """Return true if a message has begun to arrive, or the other end is closed."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def _read(self, count: int) -> memoryview:
        found = memoryview(bytearray(count))
        at = 0
        while at < count:
            with _channel_errors():
                size = self._socket.recv_into(found[at:])
            if size == 0:
                raise ChannelClosed
            at += size
        return found

    def _limit(self, limit: float | None) -> None:
        self._socket.settimeout(None if limit is None else min(limit, _LONGEST_S))

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def end_with_it(self) -> None:
        """End this process as soon as the other end is closed, even in the middle of work."""
        if not hasattr(select, "poll"):
            return
        poll = select.poll()
        # No events are requested: a hang-up is always reported.
        poll.register(self._socket.fileno(), 0)

        def wait() -> None:
            poll.poll()
            os._exit(0)

        threading.Thread(target=wait, daemon=True).start()


@contextmanager
def _channel_errors() -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise ChannelSilent from error
    except OSError as error:
        raise ChannelClosed from error
