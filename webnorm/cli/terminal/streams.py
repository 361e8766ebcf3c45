"""Standard output and standard error, which may be closed, full, a terminal, or a pipe without a reader."""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO

from webnorm.errors import MOST, WebnormError, one_line, printable, shortened


def say(text: str) -> None:
    """Print lines, with escapes in place of control characters."""
    print(printable(text))


def emit(text: str) -> None:
    """Print data unchanged; a terminal gets escapes in place of control characters."""
    print(printable(text) if sys.stdout.isatty() else text)


def complain(text: str) -> None:
    """Print one line of bounded length to standard error; a terminal breaks it between words."""
    line = f"webnorm: {shortened(one_line(text), MOST)}"
    if sys.stderr.isatty():
        # Imported here, because rich takes longer to import than everything else that an error needs.
        from webnorm.cli.terminal.screen import Screen

        Screen(stderr=True).print(line, soft_wrap=True)
    else:
        print(line, file=sys.stderr)


def complain_lines(text: str) -> None:
    """Print lines to standard error, such as a traceback."""
    print(printable(text), end="", file=sys.stderr)


def prepare() -> None:
    """Prepare the standard streams for a command. Raises WebnormError if standard output is closed.

    After this, text that a stream cannot take is dropped and printing continues. `lost` reports it at the
    end.
    """
    for number in range(3):
        _open(number)
    closed = sys.stdout is None
    # Streams that a caller has replaced are left alone.
    if closed or _is(sys.stdout, 1):
        sys.stdout = _Guarded(_writer(sys.stdout, 1))
    if sys.stderr is None or _is(sys.stderr, 2):
        sys.stderr = _Guarded(_writer(sys.stderr, 2))
    if closed:
        raise WebnormError("standard output is closed")


def unread() -> bool:
    """Return whether printed text is lost, because the reader of standard output is gone or a disk is
    full.
    """
    sys.stdout.flush()
    return isinstance(sys.stdout, _Guarded) and sys.stdout.error is not None


def lost() -> str | None:
    """Return why printed text was lost; None if all was written or the reader of standard output is gone.

    A reader that stops early, as in `webnorm show ... | head`, is not an error.
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
    """Open /dev/null for a closed descriptor; otherwise the next opened file, perhaps the user's, gets it."""
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
    """A stream that writes to another stream's buffer and escapes characters that it cannot encode.

    `error` is the first error. Everything after it is dropped.
    """

    def __init__(self, stream: io.TextIOWrapper) -> None:
        super().__init__(
            stream.buffer,
            encoding=stream.encoding,
            errors="backslashreplace",
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        # This reference keeps the other stream alive, which would close the buffer.
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
        """Drop the remaining text, which would fail again at exit."""
        self.error = self.error or error
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.fileno())
        os.close(null)
