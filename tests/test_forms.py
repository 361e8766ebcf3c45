"""Errors about data that do not fit a form name the value, its place, and the expected type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import pytest
from msgspec import Struct

from webnorm.errors import WebnormError
from webnorm.files import forms
from webnorm.files.forms import Name, Size


class Part(TypedDict, total=False):
    kind: Literal["a", "b"]
    sizes: list[Size]


@dataclass(frozen=True, kw_only=True)
class Whole:
    name: Name
    parts: tuple[Part, ...] = ()
    numbers: Mapping[Name, int] | None = None
    ratio: float | None = None


def test_data_of_a_form() -> None:
    data = {"name": "x", "parts": [{"kind": "a", "later": 1}], "numbers": {"n": 1 << 100}, "ratio": 1}
    whole = Whole(name="x", parts=({"kind": "a"},), numbers={"n": 1 << 100}, ratio=1.0)
    assert forms.read(data, Whole) == whole
    assert forms.read({"one": whole}, dict[str, Whole])["one"] is whole


class Strict(Struct, forbid_unknown_fields=True):
    name: Name
    more: list[Strict] = []


def test_a_key_that_a_form_forbids_is_named() -> None:
    with pytest.raises(WebnormError, match=r"^more\[1\]\.na\\nme is unknown; expected name, more$"):
        forms.read({"name": "", "more": [{"name": ""}, {"name": "", "na\nme": 1}]}, Strict)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (7, "the data is 7; expected object"),
        ({}, "name is missing"),
        ({"name": None}, "name is None; expected str"),
        ({"name": "x" * 1001}, f"name is '{'x' * 47}...{'x' * 48}'; expected str of length <= 1000"),
        ({"name": "", "ratio": True}, "ratio is True; expected float"),
        ({"name": "", "parts": {"a": {}}}, "parts is {'a': {}}; expected array"),
        ({"name": "", "parts": [{"kind": {"a": 1}}]}, "parts[0].kind is {'a': 1}; expected a, b"),
        ({"name": {"a": 1}}, "name is {'a': 1}; expected str"),
        ({"name": [1]}, "name is [1]; expected str"),
        ({"name": "", "ratio": {"a": 1}}, "ratio is {'a': 1}; expected float"),
        ({"name": "", "parts": [{}, 3]}, "parts[1] is 3; expected object"),
        ({"name": "", "parts": [{"kind": "c"}]}, "parts[0].kind is 'c'; expected a, b"),
        ({"name": "", "parts": [{"kind": []}]}, "parts[0].kind is []; expected a, b"),
        ({"name": "", "parts": [{"sizes": [0, -1]}]}, "parts[0].sizes[1] is -1; expected int >= 0"),
        ({"name": "", "parts": [{"kind": "\ud800"}]}, "parts[0].kind is '\\ud800'; expected a, b"),
        (
            {"name": "", "parts": [{"\ud800": 1}]},
            "parts[0] is {'\\ud800': 1}; expected text that UTF-8 can encode",
        ),
        ({"name": "", "numbers": [1]}, "numbers is [1]; expected object"),
        ({"name": "", "numbers": {"a": 1, "b\n": 1.0}}, "numbers.b\\n is 1.0; expected int"),
    ],
)
def test_data_that_do_not_fit_are_named(data: Any, complaint: str) -> None:
    with pytest.raises(WebnormError) as caught:
        forms.read(data, Whole)
    assert str(caught.value) == complaint
    with pytest.raises(WebnormError) as caught, forms.at("FILE"):
        forms.read([data], list[Whole], "here")
    assert str(caught.value) == f"FILE: here[0]{'' if complaint.startswith('the data') else '.'}" + (
        complaint.removeprefix("the data")
    )
