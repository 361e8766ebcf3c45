"""Options: additions to, and omissions from, the plain computation of an op."""

from __future__ import annotations

import keyword
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from numbers import Integral
from types import NoneType
from typing import Any, ClassVar, Self

import numpy as np

from webnorm.errors import WebnormError, shown, unknown

# More digits than any count needs. Python refuses to convert thousands of digits.
_MOST_DIGITS = 15

# For the annotations of fields: the types of JSON, the abstract type of accepted values, and a description.
_KINDS: Mapping[str, tuple[tuple[type, ...], type, str]] = {
    "bool": ((bool,), np.bool_, "True or False"),
    "int": ((int,), Integral, "an int"),
    "str": ((str,), str, "a string"),
    "str | None": ((str, NoneType), str, "a string, or None"),
}


def can_be_field(name: str, *holders: type) -> bool:
    """Return True if a dataclass accepts a field of this name, and it hides no attribute of `holders`."""
    is_word = name.isidentifier() and not keyword.iskeyword(name)
    return is_word and not any(hasattr(holder, name) for holder in holders)


def refuse_kinds(one: Any) -> None:
    """Raise WebnormError if a value does not have its field's type. NumPy's scalars count as numbers."""
    for field in fields(one):
        if str(field.type) not in _KINDS:
            continue
        kinds, abstract, words = _KINDS[str(field.type)]
        value = getattr(one, field.name)
        if type(value) not in kinds and (isinstance(value, bool) or not isinstance(value, abstract)):
            raise WebnormError(f"{field.name} is {shown(value)}; expected {words}")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The base class of an op's options, and the options of an op without any.

    A subclass is a frozen dataclass with a field for each option: a flag (bool), a count (int), a number
    (float), or a choice (str | None). It sets these class attributes:

    - STORAGE_OF_TENSORS: the options whose value is the storage type of a tensor; None is the problem's own
      type
    - IGNORABLE: the flags that may be False for an op that does not use them
    - VALUES: the valid values of each choice
    """

    STORAGE_OF_TENSORS: ClassVar[frozenset[str]] = frozenset()
    IGNORABLE: ClassVar[frozenset[str]] = frozenset()
    VALUES: ClassVar[Mapping[str, Sequence[str]]] = {}

    def __post_init__(self) -> None:
        refuse_kinds(self)

    @classmethod
    def flags(cls) -> tuple[str, ...]:
        """Return the names of the options that are flags."""
        return tuple(field.name for field in fields(cls) if isinstance(field.default, bool))

    @classmethod
    def plain(cls) -> Self:
        """Return options without any tensor that may be left out."""
        return cls(**dict.fromkeys(cls.IGNORABLE, False))

    @property
    def set_names(self) -> frozenset[str]:
        """The names of the options whose values differ from their defaults."""
        return frozenset(field.name for field in fields(self) if getattr(self, field.name) != field.default)

    def changed(self, pairs: Sequence[str]) -> Self:
        """Return the options with some of them set from text, NAME or NAME=VALUE.

        Raises
        ------
        WebnormError
            A name or value is invalid, or an option is set to two values.
        """
        known = {field.name: field.default for field in fields(self)}
        values: dict[str, Any] = {}
        for pair in pairs:
            name, _, text = pair.partition("=")
            if name not in known:
                raise unknown_option(name, known, self.VALUES)
            value = _value_of(name, text, known[name])
            if values.setdefault(name, value) != value:
                both = " and ".join(str(one).lower() for one in (values[name], value))
                raise WebnormError(f"option {name} is {both}; expected one of them")
        return replace(self, **values)

    def as_json(self) -> dict[str, Any]:
        """Return the options as results files contain them. Options that are None are left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def __str__(self) -> str:
        """Return the differences from the defaults, such as "no bias, residual, out_dtype=int8"."""
        return self.differences({field.name: field.default for field in fields(self)})

    def differences(self, usual: Mapping[str, Any]) -> str:
        """Return the options that differ from other values, in words as in `str`."""
        words = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value == usual[field.name]:
                continue
            if isinstance(value, bool):
                words.append(field.name if value else f"no {field.name}")
            else:
                text = repr(value).removesuffix(".0") if isinstance(value, float) else value
                words.append(f"{field.name}={text}")
        return ", ".join(words)


def _value_of(name: str, text: str, default: object) -> Any:
    """Return the value of an option from its text, in the type of its default."""
    if isinstance(default, bool):
        if text not in ("", "true", "false"):
            raise WebnormError(f"option {name} is {text!r}; expected true or false")
        return text != "false"
    if not text:
        raise WebnormError(f"option {name} needs a value: {name}=VALUE")
    if isinstance(default, int):
        # int() accepts digits of every script.
        if not (text.isascii() and text.isdecimal()) or len(text) > _MOST_DIGITS:
            raise WebnormError(
                f"option {name} is {text!r}; expected a whole number of {_MOST_DIGITS} digits at most"
            )
        return int(text)
    if isinstance(default, float):
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise WebnormError(f"option {name} is {text!r}; expected a number")
        return value
    return text


def unknown_option(
    name: str, known: Iterable[str], values: Mapping[str, Sequence[str | None]]
) -> WebnormError:
    """Return the error for an unknown option.

    `values` contains the values of the choices. If the name is one of them, the error suggests that choice.
    """
    meant = [f"{choice}={name}" for choice, found in values.items() if name in found]
    if meant:
        return WebnormError(f"unknown option {shown(name)}; did you mean {' or '.join(meant)}?")
    return unknown("option", name, known)


NO_OPTIONS = Options()
