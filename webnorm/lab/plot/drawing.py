"""Plots drawn by matplotlib in a child process.

A `matplotlibrc` in the working folder or the user's folder, `MPLBACKEND` and other variables change how
matplotlib draws, and can prevent its import. The child process ignores them, and the caller's own matplotlib
keeps its state.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webnorm import system
from webnorm.errors import WebnormError, sentence
from webnorm.lab.plot.style import SETTINGS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LIBRARY = "matplotlib"
# Only ends a hang: the first search for fonts on a machine can take a minute.
_LIMIT_S = 600.0
# Precedes the answer.
_MARK = b"\0webnorm draws\0"
# The child searches modules on this process' path and ignores warnings.
_FLAGS = ("-P", "-W", "ignore", "-c")
_CODE = "import sys; sys.path[:] = sys.argv[1:]; from webnorm.lab.plot.drawing import serve; serve()"


def is_installed() -> bool:
    """Return true if matplotlib is installed; it may be broken."""
    return system.is_installed(LIBRARY)


def check_drawing(form: str) -> None:
    """Raise WebnormError if matplotlib is missing or cannot draw in this format."""
    draw_in_process(form, _nothing)


def draw_in_process(
    form: str,
    figure: Callable[..., Figure],
    *arguments: Any,
    settings: Mapping[Any, Any] = SETTINGS,
    background: str | None = None,
) -> bytes:
    """Return the picture of `figure(*arguments)`, called in a child process, as "svg" or "png".

    `settings` apply on top of matplotlib's defaults. The background is transparent unless one is named.
    Raises WebnormError if matplotlib is missing or fails.
    """
    order = pickle.dumps((form, figure, arguments, dict(settings), background))
    own = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    try:
        done = subprocess.run(
            [sys.executable, *_FLAGS, _CODE, *map(_absolute, map(str, sys.path))],
            input=order,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # This folder has no matplotlibrc, which would take precedence over all others.
            cwd=Path(__file__).parent,
            env={**own, "MATPLOTLIBRC": os.devnull},
            timeout=_LIMIT_S,
            check=False,
        )
    except OSError as error:
        raise WebnormError(f"cannot start a process for {LIBRARY}: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        raise WebnormError(f"{LIBRARY} was stopped: it drew nothing for {_LIMIT_S:g} s") from None
    # Modules that Python imports at startup may have printed something before the mark.
    _, answered, answer = done.stdout.partition(_MARK)
    if answered:
        picture, reason = pickle.loads(answer)
    else:
        picture, reason = b"", f"{LIBRARY} ended its process with exit status {done.returncode}"
    if reason:
        raise WebnormError(reason)
    return bytes(picture)


def _absolute(path: str) -> str:
    """Return an entry of the module path for a process in another folder."""
    try:
        return path if os.path.isabs(path) else os.path.abspath(path)
    except FileNotFoundError:  # the working folder is gone
        return path


def serve() -> None:
    """Read an order from standard input in the child process, and answer with the picture or the error."""
    # The parent handles Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Libraries may print to standard output; that must not mix with the answer.
    sink = os.dup(1)
    os.dup2(2, 1)
    try:
        answer = _picture(*pickle.load(sys.stdin.buffer)), ""
    except WebnormError as error:
        answer = b"", str(error)
    except BaseException as error:
        answer = b"", sentence(f"{LIBRARY} failed: {type(error).__name__}: {error}")
    with open(sink, "wb") as stream:
        stream.write(_MARK + pickle.dumps(answer))


def _picture(
    form: str,
    figure: Callable[..., Figure],
    arguments: tuple[Any, ...],
    settings: dict[Any, Any],
    background: str | None,
) -> bytes:
    import io

    matplotlib = system.library(LIBRARY, "a plot", LIBRARY, "rc_context")
    system.library(f"{LIBRARY}.figure", "a plot", LIBRARY, "Figure")
    stream = io.BytesIO()
    # By default an SVG contains the date, and equal reports would give different files.
    metadata = {"Date": None} if form == "svg" else {}
    face = {"transparent": True} if background is None else {"facecolor": background}
    with matplotlib.rc_context(settings):
        figure(*arguments).savefig(stream, format=form, metadata=metadata, **face)
    return stream.getvalue()


def _nothing() -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(1, 1))
