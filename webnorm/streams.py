"""Standard output and standard error, which may be closed, full, a terminal, or read by nobody."""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO

from webnorm.errors import WebnormError
from webnorm.printable import one_line, printable


class NobodyReads(Exception):
    """What reads standard output has ended, as in `webnorm show ... | head`."""


def say(text: str) -> None:
    """Print lines that may hold names of anybody's."""
    print(printable(text))


def emit(text: str) -> None:
    """Print data as they are; a terminal gets escapes in place of control characters."""
    print(printable(text) if sys.stdout.isatty() else text)


def complain(text: str) -> None:
    """Print one line to standard error."""
    print(f"webnorm: {one_line(text)}", file=sys.stderr)


def prepare() -> None:
    """Make the standard streams fit for a command. WebnormError where standard output is closed.

    From now on standard output raises WebnormError where it cannot be written, and NobodyReads; what standard
    error cannot take is lost.
    """
    for number in range(3):
        _open(number)
    closed = sys.stdout is None
    # Streams that are not the process's own are their owner's business.
    if closed or _is(sys.stdout, 1):
        sys.stdout = _Output(_writer(sys.stdout, 1))
    if sys.stderr is None or _is(sys.stderr, 2):
        sys.stderr = _Errors(_writer(sys.stderr, 2))
    if closed:
        raise WebnormError("standard output is closed")


def _open(number: int) -> None:
    """Give a closed descriptor to /dev/null: else the next file to be opened takes it, perhaps the user's."""
    try:
        os.fstat(number)
    except OSError:
        null = os.open(os.devnull, os.O_RDWR)
        if null != number:
            os.dup2(null, number)
            os.close(null)
        os.set_inheritable(number, True)


def _is(stream: TextIO, number: int) -> bool:
    return type(stream) is io.TextIOWrapper and stream.fileno() == number


def _writer(stream: TextIO | None, number: int) -> io.TextIOWrapper:
    if isinstance(stream, io.TextIOWrapper):
        return stream
    return open(number, "w", encoding="utf-8", closefd=False)


class _Guarded(io.TextIOWrapper):
    """Writes where another stream does, whatever characters that cannot encode."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        super().__init__(
            stream.buffer,
            encoding=stream.encoding,
            errors="backslashreplace",
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        # It would close the buffer as it ends.
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self.failed(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self.failed(error)

    def failed(self, error: OSError) -> None:
        """Drop what is left to be written, which would fail again at exit."""
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.fileno())
        os.close(null)


class _Output(_Guarded):
    def failed(self, error: OSError) -> None:
        super().failed(error)
        if isinstance(error, BrokenPipeError):
            raise NobodyReads from error
        raise WebnormError(f"cannot write to standard output: {error.strerror or error}") from error


class _Errors(_Guarded):
    pass
