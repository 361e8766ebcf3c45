"""Whether what a kernel's text is made of has changed."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

from webnorm.errors import WebnormError, sentence
from webnorm.files.atomic import absolute, resolved
from webnorm.kernels.headers.sources import Stamp, stamp

# For the kernels that `revision` was asked about: what it said last, and the files that the text was made of.
_made_of: OrderedDict[Path, tuple[int, Mapping[str, Stamp]]] = OrderedDict()
_revisions = itertools.count()
_MOST_FOLLOWED = 256


def revision(path: Path) -> int:
    """A number for what a kernel's file and its snippets hold, which changes when one of them has changed
    since it was last rendered.

    It costs a look at each place that a snippet was looked for in, and none at what the files hold.
    """
    real = resolved(path)
    number, files = _made_of.get(real, (None, {}))
    if number is None or any(stamp(file) != known for file, known in files.items()):
        number = next(_revisions)
        _made_of[real] = (number, {})
        while len(_made_of) > _MOST_FOLLOWED:
            _made_of.popitem(last=False)
    return number


def note_files(path: Path, made_of: Mapping[str, Stamp]) -> None:
    """Have `revision` know what a kernel's text was made of."""
    if path in _made_of:
        number, files = _made_of[path]
        if any(made_of.get(file, known) != known for file, known in files.items()):
            number = next(_revisions)
        _made_of[path] = (number, {**files, **made_of})


def identity(path: Path) -> tuple[str, int]:
    """Where a kernel's file lies, links as they are, and its revision; WebnormError where there is none."""
    try:
        place = absolute(path)
        place.stat()
        return str(place), revision(place)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise WebnormError(f"{sentence(str(path))}: cannot read the kernel: {why}") from error
