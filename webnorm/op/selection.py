"""The notations for several values: "all", "float32,float16", "cols-*", "256..4k"."""

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
# A number with commas between thousands, and a group of its digits that begins with a zero.
_THOUSANDS = re.compile(r"[1-9]\d{0,2}(,\d{3}){1,4}", re.ASCII)
_PADDED = re.compile(r"\d,0\d\d(?!\d)", re.ASCII)
_RANGE = re.compile(r"(.+?)\.\.(.+?)(?:([+*])(.+))?")
# A longer list of problems would not finish in reasonable time, and is a typing mistake.
_MOST_SIZES = 10_000
# Characters of a pattern. Its translation takes time for each of them, and no name is nearly as long.
_LONGEST_PATTERN = 1000
# The suffix of gradients in other libraries.
_GRADIENT = re.compile(r"_?(?:grad|bwd)$")


def sizes(text: str, name: str, least: int | None = None) -> tuple[int, ...]:
    """Return the numbers of a list like "768,4k,256..4k", without duplicates.

    4k is 4096, and 1m is 1024 times 1024. A range doubles its start until it passes the end: 256..2k is 256,
    512, 1024, 2048. 256..1k+256 adds, and 1..1000*10 multiplies.

    Parameters
    ----------
    text
        The list.
    name
        The name of the value, for errors.
    least
        The smallest valid number, if there is one.

    Raises
    ------
    WebnormError
        The text is not such a list, or a number is below `least`.
    """
    _check_commas(text, name)
    found: dict[int, None] = {}
    for part in text.split(","):
        for size in _part(part.strip(), f"{name} is {text!r}"):
            if least is not None and size < least:
                which = "" if text.strip() == str(size) else f", which has {size}"
                lists = " (a comma separates values)" if "," in text else ""
                raise WebnormError(f"{name} is {text!r}{which}; expected {least} or more{lists}")
            found[size] = None
            if len(found) > _MOST_SIZES:
                raise WebnormError(f"{name} is {text!r}; expected at most {_MOST_SIZES} numbers")
    return tuple(found)


def _check_commas(text: str, name: str) -> None:
    """Raise WebnormError for a number with commas between thousands, such as "4,096", which is no list.

    A list such as "64,128" is ambiguous only if its digits without the comma are a power of two: "16,384".
    """
    whole = text.replace(",", "").strip() if _THOUSANDS.fullmatch(text.strip()) else ""
    given = f"{name} is {text!r}; a comma separates values, so write"
    if _PADDED.search(text):
        raise WebnormError(f"{given} {whole or 'thousands without a comma'}")
    if whole and int(whole).bit_count() == 1:
        spaced = ", ".join(text.strip().split(","))
        raise WebnormError(f"{given} {whole}, or {spaced!r} for a list")


def _part(part: str, given: str) -> Iterator[int]:
    ends = _RANGE.fullmatch(part)
    if ends is None:
        yield _size(part, given)
        return
    low, high = _size(ends[1], given), _size(ends[2], given)
    by = _size(ends[4], given) if ends[3] else 2
    adds = ends[3] == "+"
    # Other ranges would not end.
    if low > high or by < (1 if adds else 2) or (low < 1 and not adds):
        raise WebnormError(f"{given}; expected a range that grows, as 256..4k, 256..1k+256 or 1..1000*10")
    while low <= high:
        yield low
        low = low + by if adds else low * by


def _size(text: str, given: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    # No size has so many digits, and Python refuses to convert thousands of them.
    if found is None or len(found[1]) > 18:
        raise WebnormError(
            f"{given}; expected integers separated by commas, as 768,4k, or ranges of them, as 256..4k"
        )
    return int(found[1]) * _UNITS[found[2].lower()]


def select_names(
    selection: str | Sequence[str],
    known: Collection[str],
    what: str,
    everything: Sequence[str] | None = None,
    like: Callable[[str], str | None] = str,
    elsewhere: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Return the names that a list selects, in its order.

    The parts of the list are names, patterns such as "rms*", and "all".

    Parameters
    ----------
    selection
        The list.
    known
        The valid names.
    what
        The kind of name, for errors.
    everything
        The names that "all" and patterns select. Default: `known`.
    like
        A function that returns the name to suggest for an unknown name, or None.
    elsewhere
        As for `webnorm.errors.unknown`.

    Raises
    ------
    WebnormError
        selection is not a string, or a part matches no name.
    """
    every = tuple(known) if everything is None else tuple(everything)
    parts = split_names(selection, what)
    if not parts:
        raise WebnormError(f"{what} is {shown(selection)}; expected one name or more")
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
                    # One name does not stand for several, so the hint contains a pattern too.
                    near = nearest(like(part) or part, beginning, 0.0)
                    hint = f"did you mean {near!r}, or '{part}*' for {len(beginning)} of them?"
                    raise WebnormError(f"unknown {what} {shown(part)}; {hint}")
                # The list of ops shows every op, so "all" is not suggested among them.
                names = known if what == "op" else {*known, ALL}
                problem = f"no {what} matches {shown(part)}" if is_pattern(part) else None
                raise unknown(what, part, names, like(part), elsewhere, problem)
            found |= dict.fromkeys(fitting)
    return tuple(found)


def split_names(selection: str | Sequence[str], name: str) -> list[str]:
    """Return the parts of a list such as "rms*,layer_norm", or of several texts.

    Raises
    ------
    WebnormError
        selection is neither. The message contains `name`.
    """
    parts = selection.split(",") if isinstance(selection, str) else selection
    if isinstance(parts, Sequence) and all(isinstance(part, str) for part in parts):
        return list(parts)
    raise WebnormError(f"{name} is {shown(selection)}; expected a string, or a list of strings")


def is_pattern(name: str) -> bool:
    """Return True if a name has shell wildcards."""
    return any(sign in name for sign in "*?[")


def matches(selection: str, name: str) -> bool:
    """Return True if `name` equals `selection`, or matches it as a pattern. Case matters."""
    if selection == name or len(selection) > _LONGEST_PATTERN or not is_pattern(selection):
        return selection == name
    return fnmatchcase(name, selection)


def ops_named(selection: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the ops of a list (see `select_names`), or the default op for None. "all" excludes the copy."""
    if selection is None:
        return (default_op().name,)
    return select_names(
        selection, OPS, "op", computing_ops(), like=lambda name: _GRADIENT.sub("_backward", name)
    )


def dtypes_named(selection: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the storage types of a list (see `select_names`); none for None."""
    return (
        ()
        if selection is None
        else select_names(selection, STORAGE, "dtype", like=DTYPES_ELSEWHERE.get, elsewhere=OF_OUTPUTS)
    )
