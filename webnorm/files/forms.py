"""Data from outside held against a declared form: what does not fit is named, and what was expected where."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from webnorm.errors import WebnormError, shown

Form = TypeVar("Form")
# Characters of a name, and of a reason or a command; files written before shortened texts had their length
# have a few words more.
MOST_TEXT = 50_000
Name = Annotated[str, Meta(max_length=1_000)]
Text = Annotated[str, Meta(max_length=MOST_TEXT + 100)]
# Beyond 2^53 float64 does not count, and no device has as many rows or bytes.
Size = Annotated[int, Meta(ge=0, le=1 << 53)]


def read(data: Any, form: type[Form], place: str = "") -> Form:
    """Data as `files.read_json` gives it, in a form: a class with annotated fields, a list or dict of such.

    Keys that the form does not have are passed over, unless it forbids them, and what is an object of a
    form's class already stays as it is. WebnormError names what does not fit; `place` leads up to the data.
    """
    try:
        return msgspec.convert(data, form, from_attributes=True)
    except (msgspec.ValidationError, UnicodeEncodeError):
        raise WebnormError(_complaint(data, form, place)) from None


@contextmanager
def at(place: str) -> Iterator[None]:
    """Have a WebnormError raised inside begin with its place."""
    try:
        yield
    except WebnormError as error:
        raise WebnormError(f"{place}: {error}") from error


def _misfit(data: Any, form: Any) -> Exception | None:
    """What msgspec says of data that does not fit a form."""
    try:
        msgspec.convert(data, form, from_attributes=True)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        return error
    return None


def _complaint(data: Any, form: Any, place: str) -> str:
    """What is wrong with data that does not fit a form: the smallest part that does not fit by itself."""
    for step, part, part_form in _parts(data, form):
        if _misfit(part, part_form):
            return _complaint(part, part_form, f"{place}{step}" if place else step.removeprefix("."))
    misfit = _misfit(data, form)
    if missing := re.search("missing required field `(.*?)`", str(misfit)):
        return f"{place}.{missing[1]}".removeprefix(".") + " is missing"
    if unknown := re.search("unknown field `(.*?)`", str(misfit), re.DOTALL):
        known = ", ".join(get_type_hints(_without_none(form)))
        return f"{place}.{shown(unknown[1])[1:-1]}".removeprefix(".") + f" is not known; expected {known}"
    expected = re.sub(r"^Expected |`| \| null|, got .*| - at .*", "", str(misfit))
    if get_origin(_without_none(form)) is Literal:
        expected = ", ".join(map(str, get_args(_without_none(form))))
    elif isinstance(misfit, UnicodeEncodeError):
        # Half of a surrogate pair.
        expected = "text that UTF-8 has"
    return f"{place or 'all of it'} is {shown(data)}; expected {expected}"


def _parts(data: Any, form: Any) -> Iterator[tuple[str, Any, Any]]:
    """The parts of data: how their place goes on, their value and their form."""
    form = _without_none(form)
    origin, inside = get_origin(form), get_args(form)
    if isinstance(data, list) and origin in (list, tuple):
        yield from ((f"[{index}]", part, inside[0]) for index, part in enumerate(data))
    elif isinstance(data, Mapping) and origin in (dict, Mapping):
        yield from (("'s key", name, inside[0]) for name in data)
        yield from ((f".{shown(name)[1:-1]}", part, inside[1]) for name, part in data.items())
    elif isinstance(data, Mapping) and isinstance(form, type):
        hints = get_type_hints(form, include_extras=True)
        yield from ((f".{name}", data[name], _required(hint)) for name, hint in hints.items() if name in data)


def _required(form: Any) -> Any:
    """The form of a field that may be left out, of one that is there."""
    return get_args(form)[0] if get_origin(form) is NotRequired else form


def _without_none(form: Any) -> Any:
    """The form of a value that is there, without its bounds."""
    if get_origin(form) in (Annotated, Union, UnionType):
        return _without_none(next(one for one in get_args(form) if one is not NoneType))
    return form
