"""Standard output and standard error, which may be closed, full, a terminal, or read by nobody."""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO

from webnorm.errors import MOST, WebnormError, one_line, printable, shortened


def say(text: str) -> None:
    """Print lines that may hold names of anybody's."""
    print(printable(text))


def emit(text: str) -> None:
    """Print data as they are; a terminal gets escapes in place of control characters."""
    print(printable(text) if sys.stdout.isatty() else text)


def complain(text: str) -> None:
    """Print one line of bounded length to standard error; a terminal breaks it between words."""
    line = f"webnorm: {shortened(one_line(text), MOST)}"
    if sys.stderr.isatty():
        # Rich takes longer to import than all else that a mistake needs.
        from webnorm.cli.terminal.screen import Screen

        Screen(stderr=True).print(line, soft_wrap=True)
    else:
        print(line, file=sys.stderr)


def prepare() -> None:
    """Make the standard streams fit for a command. WebnormError where standard output is closed.

    From now on what they cannot take is lost, and whoever prints goes on: `lost` tells of it at the end.
    """
    for number in range(3):
        _open(number)
    closed = sys.stdout is None
    # Streams that are not the process's own are their owner's business.
    if closed or _is(sys.stdout, 1):
        sys.stdout = _Guarded(_writer(sys.stdout, 1))
    if sys.stderr is None or _is(sys.stderr, 2):
        sys.stderr = _Guarded(_writer(sys.stderr, 2))
    if closed:
        raise WebnormError("standard output is closed")


def unread() -> bool:
    """Whether what is printed goes nowhere: the reader of standard output has left, or a disk is full."""
    sys.stdout.flush()
    return isinstance(sys.stdout, _Guarded) and sys.stdout.error is not None


def lost() -> str | None:
    """Why standard output has not all that was printed; None where it has, or where its reader has left.

    That, as in `webnorm show ... | head`, is no mistake.
    """
    try:
        sys.stdout.flush()
        error = sys.stdout.error if isinstance(sys.stdout, _Guarded) else None
    except OSError as failure:
        error = failure
    if error is None or isinstance(error, BrokenPipeError):
        return None
    return f"cannot write to standard output: {error.strerror or error}"


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
    """Writes where another stream does, whatever characters that cannot encode.

    `error` is the first that it met; from there on all is dropped.
    """

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
        self.error: OSError | None = None

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._drop(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._drop(error)

    def _drop(self, error: OSError) -> None:
        """Drop what is left to be written, which would fail again at exit."""
        self.error = self.error or error
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.fileno())
        os.close(null)
