"""Problems from result files whose op is not loaded: only the recorded values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, make_dataclass
from functools import cache
from typing import Any, cast

from webnorm.errors import WebnormError, shown
from webnorm.op.dtypes import LARGEST_FLOAT32
from webnorm.op.options import Options, can_be_field
from webnorm.op.problem import NumberRule, Problem

_OWN = tuple(one.name for one in fields(Problem))
# A file may come from anyone, so the number of its names is limited.
_MOST_NAMES = 40


def recorded_problem(op_name: str, data: Mapping[str, Any]) -> Problem:
    """Return the problem that `Problem.as_json` described: whole numbers are sizes, others scalars.

    Raises
    ------
    WebnormError
        The data do not describe a problem.
    """
    if not isinstance(data, Mapping):
        raise WebnormError(f"a problem of {op_name} is {shown(data)}; expected its sizes by name")
    own = {name: value for name, value in data.items() if name not in _OWN}
    options = data.get("options", {})
    if not isinstance(options, Mapping) or len(own) + len(options) > _MOST_NAMES:
        raise WebnormError(f"a problem of {op_name} is invalid: {shown(data)}")
    for name, value in {**own, **options}.items():
        holders = (Problem, Options) if name in options else (Problem,)
        if not isinstance(name, str) or not can_be_field(name, *holders):
            raise WebnormError(f"a problem of {op_name} has {shown(name)}; expected a name")
        if name in own and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise WebnormError(f"{name} is {shown(value)}; expected a number")
        if name in options and not isinstance(value, bool | int | float | str):
            raise WebnormError(f"option {name} is {shown(value)}; expected a flag, a number or a text")
    sizes = tuple(name for name, value in own.items() if isinstance(value, int))
    scalars = tuple(name for name in own if name not in sizes)
    kinds = tuple((name, type(value)) for name, value in options.items())
    kind = _type(op_name, str(data.get("distribution")), sizes, scalars, kinds)
    names = {one.name for one in fields(kind)}
    given = {name: value for name, value in data.items() if name in names}
    return kind(**{**given, "options": kind.options_type()(**options)})


@cache
def _type(
    op_name: str,
    distribution: str,
    sizes: tuple[str, ...],
    scalars: tuple[str, ...],
    options: tuple[tuple[str, type], ...],
) -> type[Problem]:
    kinds = {bool: "bool", int: "int", float: "float", str: "str | None"}
    defaults: dict[type, Any] = {bool: False, int: 0, float: 0.0, str: None}
    own = make_dataclass(
        "RecordedOptions",
        [(name, kinds[kind], defaults[kind]) for name, kind in options],
        bases=(Options,),
        frozen=True,
        kw_only=True,
    )
    columns: list[Any] = [(name, "int") for name in sizes] + [(name, "float", 0.0) for name in scalars]
    return cast(
        type[Problem],
        make_dataclass(
            "RecordedProblem",
            [*columns, ("options", "Options", own())],
            bases=(Problem,),
            frozen=True,
            kw_only=True,
            namespace={
                "SIZES": dict.fromkeys(sizes, 0),
                # Only the op knows the meaning of the distribution.
                "DISTRIBUTIONS": {distribution: None},
                "AXIS": sizes[-1] if sizes else "seed",
                "SCALARS": {
                    name: NumberRule(name, True, "a number", -LARGEST_FLOAT32, LARGEST_FLOAT32)
                    for name in scalars
                },
                "__reduce__": lambda self: (recorded_problem, (op_name, self.as_json())),
            },
        ),
    )
