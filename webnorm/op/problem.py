"""Problems: the sizes, storage type, scalars, options and inputs of one computation.

Each scalar has one rule, which Python, the command and exported packages share. A package's manifest contains
the rules as data, and its runtime raises the same messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import prod
from numbers import Real
from typing import Any, ClassVar, Self, cast

import numpy as np

from webnorm.errors import WebnormError, check_kind, shortened, shown, unknown
from webnorm.op.dtypes import DTYPES, DTYPES_ELSEWHERE, OF_OUTPUTS, STORAGE, Array
from webnorm.op.options import NO_OPTIONS, Options, refuse_kinds

# The smallest normal float32 number. WGSL allows a GPU to replace smaller numbers, denormals, by 0.
_LEAST = 2.0**-126
# The inverse of this number, and of larger ones, is a denormal float32.
_BELOW = 2.0**126


@dataclass(frozen=True)
class NumberRule:
    """The valid values of a scalar: `least` or more and less than `below`, and 0 if `zero` is True.

    Error messages put `expected` after the word "expected". A `whole` number has no fraction.
    """

    name: str
    zero: bool
    expected: str
    least: float = _LEAST
    below: float = _BELOW
    whole: bool = False

    def number(self, value: object, name: str | None = None) -> float:
        """Return the value as a float, or as an int if the rule is for whole numbers.

        Numbers are Python's and NumPy's scalars, and fractions. A bool, a string, a Decimal and an array are
        not.

        Raises
        ------
        WebnormError
            The value is not valid. The message contains `name`, or else the rule's name.
        """
        if not isinstance(value, bool) and isinstance(value, Real):
            try:
                found = float(value)
            except OverflowError:  # an int past float64's range
                found = math.inf
            inside = self.least <= found < self.below or (self.zero and found == 0)
            if inside and (not self.whole or found.is_integer()):
                return int(found) if self.whole else found
        raise WebnormError(f"{name or self.name} is {shown(value)}; expected {self.expected}")

    def as_json(self) -> dict[str, Any]:
        """Return the rule as a manifest contains it."""
        rule = {name: value for name, value in vars(self).items() if name not in ("name", "whole")}
        return {**rule, "whole": True} if self.whole else rule


# float64 does not represent all integers beyond this.
_MOST_SIZE = 1 << 53


@dataclass(frozen=True, kw_only=True)
class Problem:
    """The base class of problems.

    A subclass is a frozen dataclass that adds a field for each size and each scalar of the op. It sets these
    class attributes:

    - SIZES: the smallest value of each size by name, outermost first
    - BATCH: the size that may be cut into slices, since its elements do not depend on each other
    - AXIS: the size on the horizontal axis of plots
    - SCALARS: the rule of each scalar
    - DISTRIBUTIONS: the function that draws the main input, by name

    Attributes
    ----------
    dtype : str
        The storage type of the data.
    distribution : str
        The distribution of the inputs; "given" stands for the caller's arrays.
    seed : int
        Seed of the inputs, 0 or more.
    options : Options
        The options of the op.
    """

    dtype: str = "float32"
    distribution: str = "normal"
    seed: int = 0
    options: Options = NO_OPTIONS

    SIZES: ClassVar[Mapping[str, int]] = {}
    BATCH: ClassVar[str] = ""
    AXIS: ClassVar[str] = ""
    SCALARS: ClassVar[Mapping[str, NumberRule]] = {}
    DISTRIBUTIONS: ClassVar[Mapping[str, Callable[[np.random.Generator, Any], Array]]] = {}

    def __post_init__(self) -> None:
        refuse_kinds(self)
        check_kind("options", self.options, self.options_type(), "Options(...)")
        for name, least in self.SIZES.items():
            if getattr(self, name) < least:
                raise WebnormError(f"{name} is {shown(getattr(self, name))}; expected {least} or more")
        if self.dtype not in STORAGE:
            raise unknown("dtype", self.dtype, STORAGE, DTYPES_ELSEWHERE.get(self.dtype), OF_OUTPUTS)
        for name, rule in self.SCALARS.items():
            # Result files contain scalars as JSON, which has no NumPy scalars.
            object.__setattr__(self, name, rule.number(getattr(self, name)))
        if self.distribution not in self.DISTRIBUTIONS and self.distribution != "given":
            raise unknown("distribution", self.distribution, self.DISTRIBUTIONS)
        if self.seed < 0:
            raise WebnormError(f"seed is {shown(self.seed)}; expected 0 or more")

    @classmethod
    def options_type(cls) -> type[Options]:
        """Return the type of the options."""
        return type(next(cast(Options, one.default) for one in fields(cls) if one.name == "options"))

    @classmethod
    def default_sizes(cls, software: bool, quick: bool) -> tuple[tuple[int, ...], ...]:
        """Return the default sizes of a benchmark, in the order of SIZES."""
        return (tuple(max(1, least) for least in cls.SIZES.values()),)

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes by name, outermost first."""
        return {name: getattr(self, name) for name in self.SIZES}

    @property
    def counts(self) -> dict[str, int]:
        """The sizes, and the options that are flags or counts, by name, for expressions. A flag is 0 or 1."""
        options = {name: int(value) for name, value in vars(self.options).items() if isinstance(value, int)}
        return {**options, **self.sizes}

    @property
    def scalars(self) -> dict[str, float]:
        """The scalars by name."""
        return {name: getattr(self, name) for name in self.SCALARS}

    @property
    def batch_size(self) -> int:
        """The number of elements of the batch; 1 if no size may be cut."""
        return int(getattr(self, self.BATCH)) if self.BATCH else 1

    @property
    def batch_noun(self) -> str:
        """The noun for one element of the batch, such as "row" if the size is called rows."""
        return self.BATCH.removesuffix("s") or "input"

    @property
    def inner(self) -> int:
        """The product of all sizes but the batch."""
        return prod(size for name, size in self.sizes.items() if name != self.BATCH)

    @property
    def elements(self) -> int:
        """The product of all sizes."""
        return prod(self.sizes.values())

    @property
    def copied_bytes(self) -> int:
        """The approximate number of bytes that a copy next to this problem reads and writes."""
        return 2 * self.elements * DTYPES[self.dtype].itemsize

    @property
    def axis(self) -> int:
        """The size on the horizontal axis of plots."""
        return int(getattr(self, self.AXIS))

    def with_batch(self, count: int) -> Self:
        """Return the problem with a batch of `count` elements; itself if no size may be cut."""
        return self if not self.BATCH else replace(self, **cast(Any, {self.BATCH: count}))

    @property
    def shape_text(self) -> str:
        """The sizes as text, such as 4096x1024."""
        return "x".join(map(str, self.sizes.values()))

    @cached_property
    def signature(self) -> str:
        """A text that is equal for problems that differ only in scalars and inputs."""
        return repr((*self.sizes.values(), self.dtype, self.options))

    def storage(self, name: str) -> str:
        """Return a storage type by name.

        Parameters
        ----------
        name : str
            "dtype" for the problem's own type, an option that names a type, or the type itself.
        """
        if name in self.options.STORAGE_OF_TENSORS:
            return getattr(self.options, name) or self.dtype
        return self.dtype if name == "dtype" else name

    def as_json(self) -> dict[str, Any]:
        """Return the problem as results files contain it."""
        known = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**self.sizes, **known, "options": self.options.as_json()}

    @classmethod
    def takes(cls, data: Mapping[str, Any]) -> bool:
        """Return True if `data` has the fields of `as_json` of such a problem."""
        names, options = ({one.name for one in fields(kind)} for kind in (cls, cls.options_type()))
        given = data.get("options", {})
        return data.keys() <= names and isinstance(given, Mapping) and given.keys() <= options

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the problem that `as_json` described.

        Raises
        ------
        WebnormError
            The data do not describe such a problem, or a size is larger than 2^53.
        """
        try:
            problem = cls(**{**data, "options": cls.options_type()(**data["options"])})
        except (TypeError, KeyError) as error:
            raise WebnormError(f"the problem is invalid: {shortened(str(error), 500)}") from error
        counts = {name: value for name, value in vars(problem.options).items() if isinstance(value, int)}
        for name, size in {**problem.sizes, **counts}.items():
            if size > _MOST_SIZE:
                raise WebnormError(f"{name} is {shown(size)}; expected 0 to 2^53")
        return problem

    def __str__(self) -> str:
        options = str(self.options)
        return f"{self.shape_text} {self.dtype}" + (f", {options}" if options else "")
