"""Checked values of a model's `config.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webnorm.errors import WebnormError, shown
from webnorm.files import atomic

_MOST_BYTES = 16 << 20
# No model has more layers, or wider ones.
_MOST = 1 << 24
_TYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class ModelConfig:
    """The values of a config, with errors that name the file and the key."""

    place: str
    values: Mapping[str, Any]

    def number(self, *keys: str, default: int | None = None) -> int:
        """Return the whole number of the first key that exists."""
        for key in keys:
            value = self.values.get(key)
            if value is None:
                continue
            if type(value) is not int or not 0 < value <= _MOST:
                raise WebnormError(
                    f"{self.place}: {key} is {shown(value)}; expected a whole number from 1 to {_MOST}"
                )
            return value
        if default is None:
            raise WebnormError(f"{self.place}: it has no {' or '.join(keys)}; expected a whole number")
        return default

    def numbers(self, key: str, count: int | None = None, default: int | None = None) -> list[int]:
        """Return a list of whole numbers; one number stands for `count` equal ones."""
        value = self.values.get(key)
        if count is not None and (value is None or type(value) is int):
            return [self.number(key, default=default)] * count
        if (
            not isinstance(value, list)
            or not value
            or len(value) > 1000
            or len(value) != (count or len(value))
        ):
            expected = "a list" if count is None else f"a list of {count}"
            raise WebnormError(f"{self.place}: {key} is {shown(value)}; expected {expected} of whole numbers")
        return [ModelConfig(self.place, {key: one}).number(key) for one in value]

    def names(self, key: str) -> list[str]:
        """Return a list of strings."""
        value = self.values.get(key)
        if not isinstance(value, list) or len(value) > 1000 or not all(isinstance(one, str) for one in value):
            raise WebnormError(f"{self.place}: {key} is {shown(value)}; expected a list of names")
        return value

    def real(self, *keys: str, default: float) -> float:
        """Return the number of the first key that exists, such as eps."""
        for key in keys:
            value = self.values.get(key)
            if value is None:
                continue
            if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
                raise WebnormError(f"{self.place}: {key} is {shown(value)}; expected a number of 0 or more")
            return float(value)
        return default

    def text(self, *keys: str, default: str = "") -> str:
        """Return the string of the first key that exists."""
        for key in keys:
            value = self.values.get(key)
            if value is None:
                continue
            if not isinstance(value, str):
                raise WebnormError(f"{self.place}: {key} is {shown(value)}; expected a string")
            return value
        return default

    def flag(self, key: str, default: bool = False) -> bool:
        """Return a flag."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise WebnormError(f"{self.place}: {key} is {shown(value)}; expected true or false")
        return value

    def inner(self, key: str) -> ModelConfig | None:
        """Return the config of a part of the model, or None if there is none."""
        value = self.values.get(key)
        return ModelConfig(f"{self.place}: {key}", value) if isinstance(value, dict) else None

    @property
    def dtype(self) -> str:
        """The storage type of the model; "" if the config does not state it."""
        name = self.text("dtype", "torch_dtype").removeprefix("torch.")
        return name if name in _TYPES else ""


def read_config(path: Path) -> ModelConfig:
    """Read a config; raise WebnormError for anything but an object in JSON."""
    try:
        values = atomic.read_json(path, _MOST_BYTES)
    except OSError as error:
        raise WebnormError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise WebnormError(f"{path}: no valid JSON: {error}") from error
    if not isinstance(values, dict):
        raise WebnormError(f"{path}: it contains {shown(values)}; expected an object")
    return ModelConfig(str(path), values)
