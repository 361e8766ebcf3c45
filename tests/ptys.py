"""Commands on their own terminal, as a shell starts them, and tools for processes and their remains."""

from __future__ import annotations

import codecs
import os
import re
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from patience import HANG_S

SHOW, HIDE, LEAVE, ENTER = "\x1b[?25h", "\x1b[?25l", "\x1b[?1049l", "\x1b[?1049h"
# A minimal shell. It gives a command the terminal, reports its stops and its end, and continues it.
_SHELL = """
import fcntl, os, signal, sys, termios
channel, terminal = map(int, sys.argv[1:3])
fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
child = os.fork()
if not child:
    os.setpgid(0, 0)
    os.tcsetpgrp(terminal, os.getpid())
    # What started the suite may ignore some, as nohup does: on a terminal they end a command.
    for number in (signal.SIGTTOU, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    os.close(channel)
    os.close(terminal)
    os.execv(sys.executable, [sys.executable, *sys.argv[3:]])
os.close(terminal)
# Only a shell hears of a terminal that is closed; it notifies its jobs.
signal.signal(signal.SIGHUP, lambda *_: os.killpg(child, signal.SIGHUP))
os.write(channel, b"%d\\n" % child)
while True:
    _, status = os.waitpid(child, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        os.write(channel, b"%d\\n" % os.waitstatus_to_exitcode(status))
        break
    os.write(channel, b"stopped\\n")
    os.read(channel, 1)
    os.killpg(child, signal.SIGCONT)
"""


class Output:
    """The output of a process, which a thread reads as it arrives."""

    def __init__(self, number: int) -> None:
        self._number, self._text, self._ended, self._news = number, "", False, threading.Condition()
        self._left, self._leave = os.pipe()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        # A character may arrive in two pieces.
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        # On Linux, reading fails if the other end of a terminal is closed.
        with suppress(OSError):
            while self._left not in select.select([self._number, self._left], [], [])[0]:
                if not (content := os.read(self._number, 1 << 16)):
                    break
                with self._news:
                    self._text += decoder.decode(content)
                    self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()
        os.close(self._number)

    def close(self) -> None:
        """Stop reading."""
        os.write(self._leave, b"\n")
        self._thread.join()

    def until(self, mark: str, times: int = 1) -> str:
        """Return all output so far, once it contains the mark `times` times."""
        return self.once(lambda text: text.count(mark) >= times)

    def once(self, is_so: Callable[[str], bool]) -> str:
        """Return all output so far, once it meets a condition."""
        with self._news:
            assert self._news.wait_for(lambda: is_so(self._text), HANG_S), self._text[-2000:]
            return self._text

    def whole(self) -> str:
        """Return the whole output once all writers have closed it."""
        with self._news:
            assert self._news.wait_for(lambda: self._ended, HANG_S), self._text[-2000:]
            return self._text


class Terminal:
    """A command on a terminal. `screen` is its output there."""

    def __init__(self, words: Sequence[str], streams: Mapping[str, int], size: tuple[int, int]) -> None:
        self.ours, self._theirs = os.openpty()
        termios.tcsetwinsize(self._theirs, size)
        self.found = termios.tcgetattr(self._theirs)
        mine, its = socket.socketpair()
        # The test reads one line at a time, because each line arrives before the next is written.
        self._messages = mine.makefile("rw")
        self._socket = mine
        self._shell = subprocess.Popen(
            [sys.executable, "-c", _SHELL, str(its.fileno()), str(self._theirs), *words],
            stdin=streams.get("stdin", self._theirs),
            stdout=streams.get("stdout", self._theirs),
            stderr=streams.get("stderr", self._theirs),
            # readline, which pytest loads, puts a size into the environment without Python's knowledge.
            env=dict(os.environ),
            pass_fds=[its.fileno(), self._theirs],
            start_new_session=True,
        )
        its.close()
        self.pid = int(self._messages.readline())
        self.screen = Output(self.ours)

    @property
    def modes(self) -> list[object]:
        """The current modes of the terminal, such as echo."""
        return termios.tcgetattr(self._theirs)

    def resize(self, rows: int, cols: int) -> None:
        """Change the size of the terminal."""
        termios.tcsetwinsize(self._theirs, (rows, cols))

    def press(self, keys: str) -> None:
        """Send keys."""
        os.write(self.ours, keys.encode())

    def hang_up(self) -> None:
        """Close the terminal, as closing its window does."""
        os.close(self._theirs)
        self.screen.close()

    def stopped(self) -> None:
        """Wait for the command to stop."""
        assert self._messages.readline() == "stopped\n"

    def resume(self) -> None:
        """Continue the command in the foreground."""
        self._socket.send(b"\n")

    def status(self) -> int:
        """Wait for the end and return the exit status; negative for a signal."""
        return int(self._messages.readline())

    def all_shown(self) -> str:
        """Return all output, once the command has ended."""
        os.close(self._theirs)
        return self.screen.whole()

    def end(self) -> None:
        """Kill all processes and close all files."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._shell.kill()
        self._shell.wait()
        self._messages.close()
        self._socket.close()
        with suppress(OSError):
            os.close(self._theirs)


@contextmanager
def on_terminal(
    words: Sequence[str], streams: Mapping[str, int] | None = None, size: tuple[int, int] = (30, 100)
) -> Iterator[Terminal]:
    """Run Python with these words on a terminal. `streams` replaces some of its standard streams."""
    terminal = Terminal(words, streams or {}, size)
    try:
        yield terminal
    finally:
        terminal.end()


def as_found(shown: str) -> bool:
    """Return True if the last codes of a terminal show its cursor and main screen."""
    hidden, alternate = shown.rfind(HIDE) > shown.rfind(SHOW), shown.rfind(ENTER) > shown.rfind(LEAVE)
    return not hidden and not alternate


def animated(text: str) -> bool:
    """Return True if a text contains codes that move or hide the cursor, or erase."""
    return bool(re.search(r"\x1b\[[0-9;?]*[A-HJKSTfhlsu]|\x1b[78]|\r(?!\n)", text))


def children_of(pid: int) -> list[int]:
    """Return the ids of a process's descendants."""
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    own = [int(line) for line in found.stdout.split()]
    return own + [below for one in own for below in children_of(one)]
