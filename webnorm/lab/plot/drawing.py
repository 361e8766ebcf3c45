"""Pictures, drawn by matplotlib in a process of its own.

A `matplotlibrc` in the working folder or the user's, `MPLBACKEND` and other variables decide how matplotlib
draws, and whether it can be imported at all. The process sees none of them, and a caller's own matplotlib
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
# Only ends a hang: to look through all fonts of a machine, for the first time, may take a minute.
_LIMIT_S = 600.0
# Comes before the answer.
_MARK = b"\0webnorm draws\0"
# It finds modules where this process does. A warning is no reason to draw nothing.
_FLAGS = ("-P", "-W", "ignore", "-c")
_CODE = "import sys; sys.path[:] = sys.argv[1:]; from webnorm.lab.plot.drawing import serve; serve()"


def is_installed() -> bool:
    """Whether matplotlib is there; it may be broken."""
    return system.is_installed(LIBRARY)


def check_drawing(form: str) -> None:
    """Raise WebnormError where matplotlib is missing, or cannot draw in this format."""
    draw_in_process(form, _nothing)


def draw_in_process(
    form: str,
    figure: Callable[..., Figure],
    *arguments: Any,
    settings: Mapping[Any, Any] = SETTINGS,
    background: str | None = None,
) -> bytes:
    """Return the picture of `figure(*arguments)`, which the process calls under matplotlib's own settings and
    these, as "svg" or "png"; without a background unless one is named.

    Raises WebnormError, in one line, where matplotlib is missing or fails.
    """
    order = pickle.dumps((form, figure, arguments, dict(settings), background))
    own = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    try:
        done = subprocess.run(
            [sys.executable, *_FLAGS, _CODE, *map(_absolute, map(str, sys.path))],
            input=order,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # It has no matplotlibrc, which would come before all others.
            cwd=Path(__file__).parent,
            env={**own, "MATPLOTLIBRC": os.devnull},
            timeout=_LIMIT_S,
            check=False,
        )
    except OSError as error:
        raise WebnormError(f"cannot start a process that draws: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        raise WebnormError(f"{LIBRARY} has drawn nothing for {_LIMIT_S:g} s: stopped") from None
    # Before it, what is imported when Python starts may have printed something.
    _, answered, answer = done.stdout.partition(_MARK)
    if answered:
        picture, reason = pickle.loads(answer)
    else:
        picture, reason = b"", f"{LIBRARY} ended its process with exit status {done.returncode}"
    if reason:
        raise WebnormError(reason)
    return bytes(picture)


def _absolute(path: str) -> str:
    """Where modules are found, for a process in another folder."""
    try:
        return path if os.path.isabs(path) else os.path.abspath(path)
    except FileNotFoundError:  # the working folder is gone
        return path


def serve() -> None:
    """Draw what standard input asks for, in the process; answer with the picture, or why there is none."""
    # The parent decides what Ctrl-C means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What a library prints does not belong to the answer.
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
    # An SVG contains the date of its making by default.
    metadata = {"Date": None} if form == "svg" else {}
    face = {"transparent": True} if background is None else {"facecolor": background}
    with matplotlib.rc_context(settings):
        figure(*arguments).savefig(stream, format=form, metadata=metadata, **face)
    return stream.getvalue()


def _nothing() -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(1, 1))
