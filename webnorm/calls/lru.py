"""Values that are kept up to a number, by their last use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

V = TypeVar("V")


class LRU(Generic[V]):
    """The values used last, at most `most` of them; `let_go` is told of each that goes, and its key."""

    def __init__(self, most: int, let_go: Callable[[Any, V], object] | None = None) -> None:
        self.most, self._let_go = most, let_go
        self._values: OrderedDict[Hashable, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._values

    def peek(self, key: Hashable) -> V | None:
        """The value of a key, if it is there; that does not count as a use."""
        return self._values.get(key)

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value of a key, made when it is not there."""
        try:
            self._values.move_to_end(key)
            return self._values[key]
        except KeyError:
            pass
        value = self._values[key] = make()
        while len(self._values) > self.most:
            self.drop(next(iter(self._values)))
        return value

    def touch(self, key: Hashable) -> None:
        """Count a use of a key that is there."""
        self._values.move_to_end(key)

    def drop(self, key: Hashable) -> None:
        """Let a key go that is there."""
        value = self._values.pop(key)
        if self._let_go is not None:
            self._let_go(key, value)
