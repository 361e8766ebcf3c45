"""What people write who mean several things: "all", "float32,float16", "cols-*", "256..4k"."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from webnorm.errors import WebnormError, nearest, shown, unknown
from webnorm.op.dtypes import DTYPES_ELSEWHERE, OF_OUTPUTS, STORAGE
from webnorm.op.registry import OPS, computing_ops, default_op

ALL = "all"
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20}
_SIZE = re.compile(r"(-?\d+)([km]?)", re.ASCII | re.IGNORECASE)
_RANGE = re.compile(r"(.+?)\.\.(.+?)(?:([+*])(.+))?")
# More problems than anybody waits for, and a slip of the finger.
_MOST_SIZES = 10_000
# Characters. To translate a pattern takes time for each of them, and no name is nearly as long.
_LONGEST_PATTERN = 1000
# What other libraries call a gradient.
_GRADIENT = re.compile(r"_?(?:grad|bwd)$")


def sizes(text: str, name: str, least: int | None = None) -> tuple[int, ...]:
    """The numbers of a list like "768,4k,256..4k", without those that come again. `name` is whose they are.

    4k is 4096, and 1m 1024 of that. A range doubles what it begins with until its end is passed: 256..2k is
    256, 512, 1024, 2048. 256..1k+256 adds, 1..1000*10 multiplies. Raises WebnormError for anything else, and
    for a number below `least`, where that is given.
    """
    found: dict[int, None] = {}
    for part in text.split(","):
        for size in _part(part.strip(), f"{name} is {text!r}"):
            if least is not None and size < least:
                which = "" if text.strip() == str(size) else f", which has {size}"
                raise WebnormError(f"{name} is {text!r}{which}; expected {least} or more")
            found[size] = None
            if len(found) > _MOST_SIZES:
                raise WebnormError(f"{name} is {text!r}; expected at most {_MOST_SIZES} numbers")
    return tuple(found)


def _part(part: str, given: str) -> Iterator[int]:
    ends = _RANGE.fullmatch(part)
    if ends is None:
        yield _size(part, given)
        return
    low, high = _size(ends[1], given), _size(ends[2], given)
    by = _size(ends[4], given) if ends[3] else 2
    adds = ends[3] == "+"
    # Else it would have no end.
    if low > high or by < (1 if adds else 2) or (low < 1 and not adds):
        raise WebnormError(f"{given}; expected a range that grows, as 256..4k, 256..1k+256 or 1..1000*10")
    while low <= high:
        yield low
        low = low + by if adds else low * by


def _size(text: str, given: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    # No size has so many digits, and Python refuses to read thousands of them.
    if found is None or len(found[1]) > 18:
        raise WebnormError(
            f"{given}; expected integers separated by commas, as 768,4k, or ranges of them, as 256..4k"
        )
    return int(found[1]) * _UNITS[found[2].lower()]


def select_names(
    asked: str | Sequence[str],
    known: Collection[str],
    what: str,
    everything: Sequence[str] | None = None,
    like: Callable[[str], str | None] = str,
    elsewhere: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """The names that a list asks for, in its order: "all" of `everything` (what is known unless that is
    given), each by itself, or those that a pattern like "rms*" fits.

    Raises WebnormError for what is no text, and for a name, or a pattern, that fits none of those known;
    `what` says of what they are, and `like` what would be called so here; `elsewhere` is that of `unknown`.
    """
    every = tuple(known) if everything is None else tuple(everything)
    parts = split_names(asked, what)
    if not parts:
        raise WebnormError(f"{what} is {shown(asked)}; expected one name or more")
    found: dict[str, None] = {}
    for part in (part.strip() for part in parts):
        if part in known:
            found[part] = None
        elif part == ALL:
            found |= dict.fromkeys(every)
        else:
            fitting = [name for name in every if matches(part, name)]
            if not fitting:
                beginning = [one for one in every if part and one.startswith(part)]
                if len(beginning) > 1:
                    # Several are not described by one of them.
                    near = nearest(like(part) or part, beginning, 0.0)
                    hint = f"did you mean {near!r}, or '{part}*' for {len(beginning)} of them?"
                    raise WebnormError(f"unknown {what} {shown(part)}; {hint}")
                # "all" is no op, where all that can be computed is listed.
                raise unknown(what, part, known if what == "op" else {*known, ALL}, like(part), elsewhere)
            found |= dict.fromkeys(fitting)
    return tuple(found)


def split_names(asked: str | Sequence[str], name: str) -> list[str]:
    """The texts of a list such as "rms*,layer_norm", or several texts; WebnormError for what is neither, and
    called `name`.
    """
    parts = asked.split(",") if isinstance(asked, str) else asked
    if isinstance(parts, Sequence) and all(isinstance(part, str) for part in parts):
        return list(parts)
    raise WebnormError(f"{name} is {shown(asked)}; expected a text, or a list of texts")


def is_pattern(name: str) -> bool:
    """Whether a name has a shell's wildcards."""
    return any(sign in name for sign in "*?[")


def matches(asked: str, name: str) -> bool:
    """Whether a name is the one asked for, or the pattern asked for fits it, upper and lower case apart."""
    if asked == name or len(asked) > _LONGEST_PATTERN or not is_pattern(asked):
        return asked == name
    return fnmatchcase(name, asked)


def ops_named(asked: str | Sequence[str] | None) -> tuple[str, ...]:
    """The ops of a list: see `named`. The default op where none is asked for; a copy only by its name."""
    if asked is None:
        return (default_op().name,)
    return select_names(asked, OPS, "op", computing_ops(), like=lambda name: _GRADIENT.sub("_backward", name))


def dtypes_named(asked: str | Sequence[str] | None) -> tuple[str, ...]:
    """The storage types of a list: see `named`; none where none is asked for."""
    return (
        ()
        if asked is None
        else select_names(asked, STORAGE, "dtype", like=DTYPES_ELSEWHERE.get, elsewhere=OF_OUTPUTS)
    )
