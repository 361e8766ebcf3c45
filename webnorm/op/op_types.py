"""The problem and option types of an op that an `op.py` defines. A pickled value contains its source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, fields, make_dataclass
from itertools import product
from math import prod
from typing import Any, cast

from webnorm.errors import unknown
from webnorm.op import expression
from webnorm.op.definition import OpDefinition
from webnorm.op.dtypes import LARGEST_FLOAT32
from webnorm.op.op import OpSource
from webnorm.op.options import Options
from webnorm.op.problem import NumberRule, Problem

# The batch of a quick benchmark.
_QUICK_BATCH = 256
# The distribution that every op has: the `draw` of each input.
USUAL = "normal"


def options_type(definition: OpDefinition, source: OpSource) -> type[Options]:
    """Return the type of the op's options, with a field for each."""
    kinds: list[tuple[str, Any, Any]] = []
    for one in definition.options:
        kind = "bool" if not one.values else ("str | None" if None in one.values else "str")
        kinds.append((one.name, kind, field(default=one.default)))

    def check(self: Any) -> None:
        Options.__post_init__(self)
        for name, values in type(self).VALUES.items():
            if getattr(self, name) not in values:
                raise unknown(name, getattr(self, name), [str(value) for value in values])

    storage = {one.dtype for one in definition.named.values()}
    return cast(
        type[Options],
        make_dataclass(
            f"{source.name}_Options",
            kinds,
            bases=(Options,),
            frozen=True,
            kw_only=True,
            namespace={
                "__post_init__": check,
                "__reduce__": lambda self: (_options_again, (source, dict(vars(self)))),
                "VALUES": {one.name: one.values for one in definition.options if one.values},
                "STORAGE_OF_TENSORS": frozenset(
                    one.name for one in definition.options if one.name in storage
                ),
                "__module__": __name__,
            },
        ),
    )


def _options_again(source: OpSource, values: Mapping[str, Any]) -> Options:
    return cast(Options, type(source.op().defaults)(**values))


def _problem_again(source: OpSource, values: Mapping[str, Any]) -> Problem:
    return source.op().problem_type(**values)


def problem_type(
    definition: OpDefinition,
    source: OpSource,
    batch: str,
    options: type[Options],
    hostile: Mapping[str, Any],
    copied_bytes: Callable[[Any], int],
) -> type[Problem]:
    """Return the type of the op's problems, with a field for each size and scalar."""
    kinds: list[tuple[str, Any, Any]] = [(name, "int", field()) for name in definition.sizes]
    kinds += [(one.name, "float", field(default=one.default)) for one in definition.scalars]
    kinds.append(("options", "Options", field(default=options())))
    names = [*definition.sizes]
    return cast(
        type[Problem],
        make_dataclass(
            f"{source.name}_Problem",
            kinds,
            bases=(Problem,),
            frozen=True,
            kw_only=True,
            namespace={
                **_of_sizes(definition, batch),
                "copied_bytes": property(copied_bytes),
                "SIZES": {name: definition.least(name) for name in names},
                "BATCH": batch,
                "AXIS": next((name for name in reversed(names) if name != batch), names[-1]),
                "SCALARS": {one.name: _rule(one.name, one.whole) for one in definition.scalars},
                "DISTRIBUTIONS": {USUAL: None, **hostile},
                "__reduce__": lambda self: (
                    _problem_again,
                    (source, {one.name: getattr(self, one.name) for one in fields(self)}),
                ),
                "__module__": __name__,
            },
        ),
    )


def _of_sizes(definition: OpDefinition, batch: str) -> dict[str, Any]:
    """Return the attributes that depend on the sizes: default sizes, and the size of the largest tensor."""
    names = [*definition.sizes]
    shapes = [
        [expression.parse(part) for part in one.shape]
        for one in definition.named.values()
        if one.option is None
    ]

    def largest(self: Any) -> int:
        return max(prod(expression.evaluate(part, self.counts) for part in shape) for shape in shapes)

    def default_sizes(cls: Any, software: bool, quick: bool) -> tuple[tuple[int, ...], ...]:
        lists = [[given] if isinstance(given, int) else [*given] for given in definition.sizes.values()]
        found = [*product(*lists)]
        if not quick:
            return tuple(found)
        first = dict(zip(names, found[0], strict=True))
        if batch:
            first[batch] = min(first[batch], _QUICK_BATCH)
        return (tuple(first.values()),)

    return {
        "default_sizes": classmethod(default_sizes),
        "elements": property(largest),
        "inner": property(lambda self: max(1, largest(self) // max(1, self.batch_size))),
    }


def _rule(name: str, whole: bool) -> NumberRule:
    if whole:
        return NumberRule(name, True, "an int of 32 bits", -(2.0**31), 2.0**31, whole=True)
    return NumberRule(name, True, "a number that float32 holds", -LARGEST_FLOAT32, LARGEST_FLOAT32)
