"""A problem: the sizes, options and inputs that one kernel is asked to compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from numbers import Integral
from types import NoneType
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from webnorm.errors import WebnormError, check_kind, shortened, shown, unknown
from webnorm.norms.number_rules import EPS, SCALE
from webnorm.norms.row_blocks import converted, standard_normal

Array = npt.NDArray[Any]

DTYPES: Mapping[str, np.dtype[Any]] = {
    name: np.dtype(getattr(ml_dtypes, name, name))
    for name in ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8")
}
DTYPE_NAMES: Mapping[np.dtype[Any], str] = {dtype: name for name, dtype in DTYPES.items()}
# Rows and columns beyond this float64 does not count.
_MOST_SIZE = 1 << 53
# More than any count here takes; Python refuses to read some thousands of them.
_MOST_DIGITS = 15
# What x and the parameters may be stored as; all arithmetic is float32.
STORAGE = ("float32", "float16", "bfloat16")
# What others call them, where no likeness tells.
DTYPES_ELSEWHERE = {
    "half": "float16",
    "float": "float32",
    "single": "float32",
    # More than float32 nothing here stores, or computes.
    "float64": "float32",
    "double": "float32",
}
# What y may be turned into on its way out.
FP8 = ("float8_e4m3fn", "float8_e5m2")

# What JSON has for the types of the fields below, what else is taken for one of them, and how they are told.
_KINDS: Mapping[str, tuple[tuple[type, ...], type, str]] = {
    "bool": ((bool,), np.bool_, "True or False"),
    "int": ((int,), Integral, "an int"),
    "str": ((str,), str, "a text"),
    "str | None": ((str, NoneType), str, "a text, or None"),
}


def finfo(dtype: str) -> Any:
    """NumPy's finfo of a floating-point storage type, those of ml_dtypes included."""
    return ml_dtypes.finfo(DTYPES[dtype])  # type: ignore[no-untyped-call]


# The types that y alone may have, for who asks for another array's.
OF_OUTPUTS = {
    name: f"is a type of y alone: option out_dtype={name}" for name in DTYPES if name not in STORAGE
}


def read_back_from(dtype: np.dtype[Any], known: Sequence[str] = tuple(DTYPES)) -> tuple[str, ...]:
    """The storage types among those known whose arrays NumPy reads from an .npy file as `dtype`: its files
    have no bfloat16 and no float8, and keep their bytes as |V2 and |V1.
    """
    if dtype.kind != "V" or dtype.names is not None or dtype.subdtype is not None:
        return ()
    return tuple(
        name for name in known if hasattr(ml_dtypes, name) and DTYPES[name].itemsize == dtype.itemsize
    )


def expected_dtype(name: str, dtype: np.dtype[Any], known: Sequence[str], wanted: str = "") -> str:
    """The end of a message on the array called `name`, whose dtype is none of those known: what was expected,
    `wanted` where that has a name of its own, and what turns the array into that, if anything does.
    """
    expected = f"expected {wanted or ', '.join(known)}"
    if twins := read_back_from(dtype, known):
        views = " or ".join(f"{name}.view(ml_dtypes.{twin})" for twin in twins)
        return f"{expected}: NumPy's files keep {' and '.join(twins)} as {dtype}; pass {views}"
    if dtype.kind not in "biuf" and dtype not in DTYPE_NAMES:
        # A cast fails, or drops what the elements hold.
        return expected
    module = "ml_dtypes" if hasattr(ml_dtypes, known[0]) else "np"
    return f"{expected}: cast it, as with {name}.astype({module}.{known[0]})"


def _refuse_kinds(one: Any) -> None:
    """Raise WebnormError for a value that is not of its field's kind; NumPy's numbers are numbers."""
    for field in fields(one):
        if str(field.type) not in _KINDS:
            continue
        kinds, abstract, words = _KINDS[str(field.type)]
        value = getattr(one, field.name)
        if type(value) not in kinds and (isinstance(value, bool) or not isinstance(value, abstract)):
            raise WebnormError(f"{field.name} is {shown(value)}; expected {words}")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a problem adds to, or leaves out of, the plain norm. Each op looks at those that concern it.

    Both directions: `weight` and `bias` say whether y is scaled and shifted, `zero_centered_weight` scales
    by 1 + weight, and `weight_dtype` is the parameters' storage type where that is not x's.

    Forward: `residual` normalises h = x + residual and gives h too; `residual_bias` adds a vector to h (the
    bias of the projection that made x). `return_stats` gives mean and rstd. `out_dtype` stores y as another
    type: float8 with a scale, int8 with a scale for each row. `max_workgroups` above 0 caps the number of
    workgroups, so that other work finds room.

    Backward: `saved_stats` takes mean and rstd from the forward pass instead of x; `dh` adds the gradient
    that reached h; `residual_bias` asks for that vector's gradient.
    """

    weight: bool = True
    bias: bool = True
    zero_centered_weight: bool = False
    weight_dtype: str | None = None
    residual: bool = False
    residual_bias: bool = False
    return_stats: bool = False
    out_dtype: str | None = None
    max_workgroups: int = 0
    saved_stats: bool = False
    dh: bool = False

    def __post_init__(self) -> None:
        _refuse_kinds(self)
        if self.weight_dtype is not None and self.weight_dtype not in STORAGE:
            raise unknown("weight_dtype", self.weight_dtype, STORAGE, elsewhere=OF_OUTPUTS)
        if self.out_dtype is not None and self.out_dtype not in DTYPES:
            raise unknown("out_dtype", self.out_dtype, DTYPES)
        if self.zero_centered_weight and not self.weight:
            raise WebnormError(
                "zero_centered_weight is True, but there is no weight; expected one to add 1 to"
            )
        if self.max_workgroups < 0:
            raise WebnormError(f"max_workgroups is {shown(self.max_workgroups)}; expected 0 (no cap) or more")

    def changed(self, pairs: Sequence[str]) -> Options:
        """These options with some set from text, NAME or NAME=VALUE.

        Raises WebnormError for a bad one, and for one that is set to two values.
        """
        known = {field.name: field.default for field in fields(self)}
        values: dict[str, Any] = {}
        for pair in pairs:
            name, _, text = pair.partition("=")
            if name not in known:
                raise unknown("option", name, known)
            if isinstance(known[name], bool):
                if text not in ("", "true", "false"):
                    raise WebnormError(f"option {name} is {text!r}; expected true or false")
                value: Any = text != "false"
            elif not text:
                raise WebnormError(f"option {name} needs a value: {name}=VALUE")
            elif isinstance(known[name], int):
                # Python takes digits of every script.
                if not (text.isascii() and text.isdecimal()) or len(text) > _MOST_DIGITS:
                    raise WebnormError(
                        f"option {name} is {text!r}; expected a whole number of {_MOST_DIGITS} digits at most"
                    )
                value = int(text)
            else:
                value = text
            if values.setdefault(name, value) != value:
                both = " and ".join(str(one).lower() for one in (values[name], value))
                raise WebnormError(f"option {name} is {both}; expected one of them")
        return replace(self, **values)

    def __str__(self) -> str:
        """What differs from the defaults, such as "no bias, residual, out_dtype=int8"."""
        words = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value == field.default:
                continue
            if isinstance(value, bool):
                words.append(field.name if value else f"no {field.name}")
            else:
                words.append(f"{field.name}={value}")
        return ", ".join(words)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Normalise `rows` rows of `cols` columns.

    `dtype` is what x is stored as. `distribution` names how x is drawn (see DISTRIBUTIONS) and `seed` fixes
    the draw. `scale` multiplies y before it is rounded to a float8 `out_dtype`.
    """

    rows: int
    cols: int
    dtype: str = "float32"
    eps: float = 1e-5
    distribution: str = "normal"
    seed: int = 0
    scale: float = 1.0
    options: Options = Options()

    def __post_init__(self) -> None:
        _refuse_kinds(self)
        check_kind("options", self.options, Options, "Options(...)")
        if self.rows < 0:
            raise WebnormError(f"rows is {shown(self.rows)}; expected 0 or more")
        if self.cols < 1:
            raise WebnormError(f"cols is {shown(self.cols)}; expected 1 or more")
        if self.dtype not in STORAGE:
            raise unknown("dtype", self.dtype, STORAGE, DTYPES_ELSEWHERE.get(self.dtype), OF_OUTPUTS)
        # Results files have them as JSON, which knows no scalar of NumPy's.
        object.__setattr__(self, "eps", EPS.number(self.eps))
        object.__setattr__(self, "scale", SCALE.number(self.scale))
        if self.distribution not in DISTRIBUTIONS and self.distribution != "given":
            raise unknown("distribution", self.distribution, DISTRIBUTIONS)
        if self.seed < 0:
            raise WebnormError(f"seed is {shown(self.seed)}; expected 0 or more")

    @cached_property
    def signature(self) -> str:
        """What problems share that differ in eps, scale and input alone; text, since that knows its hash."""
        return repr((self.rows, self.cols, self.dtype, self.options))

    @property
    def weight_dtype(self) -> str:
        """What weight, bias and their gradients are stored as."""
        return self.options.weight_dtype or self.dtype

    @property
    def out_dtype(self) -> str:
        """What y is stored as."""
        return self.options.out_dtype or self.dtype

    def as_json(self) -> dict[str, Any]:
        """The problem as it stands in a results file: options that are None are left out."""
        options = {name: value for name, value in asdict(self.options).items() if value is not None}
        return {**asdict(self), "options": options}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Problem:
        """The inverse of `as_json`; raises WebnormError for foreign data, sizes of no device included."""
        try:
            problem = cls(**{**data, "options": Options(**data["options"])})
        except (TypeError, KeyError) as error:
            raise WebnormError(f"a problem is not understood: {shortened(str(error), 500)}") from error
        sizes = {"rows": problem.rows, "cols": problem.cols, "max_workgroups": problem.options.max_workgroups}
        for name, size in sizes.items():
            if size > _MOST_SIZE:
                raise WebnormError(f"{name} is {shown(size)}; expected 0 to 2^53")
        return problem

    def __str__(self) -> str:
        options = str(self.options)
        return f"{self.rows}x{self.cols} {self.dtype}" + (f", {options}" if options else "")


def _shifted(mean: float) -> Callable[[np.random.Generator, int, int], Array]:
    return lambda rng, rows, cols: standard_normal(rng, (rows, cols)) + mean


def _outlier(rng: np.random.Generator, rows: int, cols: int) -> Array:
    x = standard_normal(rng, (rows, cols))
    x[:, cols // 2] = 1e4
    return x


def _row_scales(rng: np.random.Generator, rows: int, cols: int) -> Array:
    scales = np.logspace(-6, 6, max(rows, 1))[:, None]
    return standard_normal(rng, (rows, cols)) * scales


# Every draw is float64 of shape (rows, cols), rounded to the problem's dtype by draw_x.
DISTRIBUTIONS: Mapping[str, Callable[[np.random.Generator, int, int], Array]] = {
    "normal": _shifted(0.0),
    "uniform": lambda rng, rows, cols: rng.random((rows, cols)),
    "mean100": _shifted(1e2),
    "mean1000": _shifted(1e3),
    "mean1e4": _shifted(1e4),
    "mean1e6": _shifted(1e6),
    "triton": lambda rng, rows, cols: -2.3 + 0.5 * standard_normal(rng, (rows, cols)),
    "outlier": _outlier,
    "row_scales": _row_scales,
}


def draw_x(problem: Problem) -> Array:
    """Draw x (rows, cols) in float64 from the problem's distribution and round it to its dtype."""
    rng = np.random.default_rng(problem.seed)
    x = DISTRIBUTIONS[problem.distribution](rng, problem.rows, problem.cols)
    return converted(x, DTYPES[problem.dtype])
