"""The newest snapshot for everybody who listens, as server-sent events."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import suppress

import msgspec

from webnorm.play.playground import Playground

# A stream that says nothing for so long is taken for broken by the page.
HEARTBEAT_S = 5.0
_HEARTBEAT = b": still here\n\n"
# How long the thread that waits for snapshots goes on after it is told to end.
_GLANCE_S = 0.1


class SnapshotStream:
    """One thread waits for the playground; streams wait for that in the server's loop.

    A reader that is slow finds the newest snapshot when it is ready for one, and none of those in between.
    """

    def __init__(self, playground: Playground) -> None:
        self._playground = playground
        self._event = b""
        self._number = 0
        self._ended = False
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._watch, name="webnorm play: events", daemon=True)
        self._thread.start()

    async def stream(self) -> AsyncIterator[bytes]:
        """The newest snapshot, then each that is the newest when the reader is ready; until `end`."""
        told = 0
        while not self._ended:
            if told != self._number:
                told = self._number
                yield self._event
                continue
            try:
                # Not wait_for: its own task would begin to wait after the news of this moment.
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._news.wait()
            except TimeoutError:
                yield _HEARTBEAT

    def end(self) -> None:
        """End all streams. For the loop's thread."""
        self._ended = True
        self._news.set()

    def _watch(self) -> None:
        try:
            self._publish_each()
        finally:
            # Where this thread fails the page has to see that nothing comes any more.
            with suppress(RuntimeError):  # the loop has ended before
                self._loop.call_soon_threadsafe(self.end)

    def _publish_each(self) -> None:
        snapshot = self._playground.snapshot()
        while True:
            # JSON has no line feeds of its own, so it is one line of data.
            event = b"data: " + msgspec.json.encode(snapshot) + b"\n\n"
            self._loop.call_soon_threadsafe(self._publish, event)
            newer = None
            while newer is None:
                if self._ended:
                    return
                newer = self._playground.wait(snapshot["revision"], _GLANCE_S)
            snapshot = newer

    def _publish(self, event: bytes) -> None:
        self._event = event
        self._number += 1
        # Who waits is woken; who comes later waits for the next.
        self._news.set()
        if not self._ended:
            self._news.clear()
