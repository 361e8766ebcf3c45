"""Checks of external data against declared classes. Errors name the part that does not fit."""

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
# Characters of a reason or a command. The margin below is for older files, whose texts are slightly longer.
MOST_TEXT = 50_000
Name = Annotated[str, Meta(max_length=1_000)]
Text = Annotated[str, Meta(max_length=MOST_TEXT + 100)]
# float64 cannot represent every integer beyond 2^53, and no device has that many rows or bytes.
Size = Annotated[int, Meta(ge=0, le=1 << 53)]


def read(data: Any, form: type[Form], place: str = "") -> Form:
    """Convert parsed JSON to a form: a class with annotated fields, or a list or dict of them.

    Parameters
    ----------
    data
        Data from `atomic.read_json`. Objects that are already instances of the form's class stay unchanged.
    form
        The type to convert to. Unknown keys are ignored unless the class forbids them.
    place
        The path to the data, with which an error begins.

    Raises
    ------
    WebnormError
        The data does not fit. The message names the smallest part that does not.
    """
    try:
        return msgspec.convert(data, form, from_attributes=True)
    except (msgspec.ValidationError, UnicodeEncodeError):
        raise WebnormError(_complaint(data, form, place)) from None


@contextmanager
def at(place: str) -> Iterator[None]:
    """Prefix the message of every WebnormError raised inside with a place."""
    try:
        yield
    except WebnormError as error:
        raise WebnormError(f"{place}: {error}") from error


def _misfit(data: Any, form: Any) -> Exception | None:
    """Return msgspec's error if data does not fit a form."""
    try:
        msgspec.convert(data, form, from_attributes=True)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        return error
    return None


def _complaint(data: Any, form: Any, place: str) -> str:
    """Describe the smallest part of the data that does not fit the form."""
    for step, part, part_form in _parts(data, form):
        if _misfit(part, part_form):
            return _complaint(part, part_form, f"{place}{step}" if place else step.removeprefix("."))
    misfit = _misfit(data, form)
    if missing := re.search("missing required field `(.*?)`", str(misfit)):
        return f"{place}.{missing[1]}".removeprefix(".") + " is missing"
    if unknown := re.search("unknown field `(.*?)`", str(misfit), re.DOTALL):
        known = ", ".join(get_type_hints(_without_none(form)))
        return f"{place}.{shown(unknown[1])[1:-1]}".removeprefix(".") + f" is unknown; expected {known}"
    expected = re.sub(r"^Expected |`| \| null|, got .*| - at .*", "", str(misfit))
    if get_origin(_without_none(form)) is Literal:
        expected = ", ".join(map(str, get_args(_without_none(form))))
    elif isinstance(misfit, UnicodeEncodeError):
        # A lone surrogate.
        expected = "text that UTF-8 can encode"
    return f"{place or 'the data'} is {shown(data)}; expected {expected}"


def _parts(data: Any, form: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the parts of the data: the last step of their path, their value, and their form."""
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
    """Return the form of a field without its NotRequired."""
    return get_args(form)[0] if get_origin(form) is NotRequired else form


def _without_none(form: Any) -> Any:
    """Return a form without None and without its bounds."""
    if get_origin(form) in (Annotated, Union, UnionType):
        return _without_none(next(one for one in get_args(form) if one is not NoneType))
    return form
