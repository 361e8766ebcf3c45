"""The problems and options of the norms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from webnorm.errors import WebnormError, shown, unknown
from webnorm.op.dtypes import NARROWING, OF_OUTPUTS, STORAGE
from webnorm.op.options import Options
from webnorm.op.problem import NumberRule
from webnorm.ops.copy.problem import RowProblem

# The value of the option `rounding`.
BEFORE_WEIGHT: Final = "before_weight"
# The columns that share a scale; 0 for all columns of a row.
SCALE_BLOCKS = (0, 32, 64, 128)
# Sums with a weight must not overflow float32.
_MOST_OFFSET = 2.0**64
WEIGHT_OFFSET = NumberRule(
    "weight_offset",
    True,
    "a number from -1.8e+19 to 1.8e+19",
    least=-_MOST_OFFSET,
    below=_MOST_OFFSET,
)


@dataclass(frozen=True, kw_only=True)
class NormOptions(Options):
    """The options of a norm: additions to, and omissions from, the plain formula.

    `webnorm.Options` is its public name. Each op reads the options that concern it.

    Attributes
    ----------
    weight : bool
        Both directions: scale y. Default: True.
    bias : bool
        Both directions: shift y. Default: True.
    zero_centered_weight : bool
        Both directions: multiply by 1 + weight. It is `weight_offset` 1 under another name.
    weight_offset : float
        Both directions: multiply by weight_offset + weight. Default: 0.
    rounding : str or None
        Forward: "before_weight" rounds the normalized x to x's type, then the product with weight, then the
        sum with bias. None rounds once, at the end.
    weight_dtype : str or None
        Both directions: the storage type of the parameters; None for x's.
    residual : bool
        Forward: normalize h = x + residual, and return h.
    residual_dtype : str or None
        Forward: the storage type of residual and h; None for x's.
    residual_bias : bool
        Forward: add a vector to h, the bias of the projection that made x. Backward: return its gradient.
    return_stats : bool
        Forward: return mean and rstd.
    out_dtype : str or None
        Forward: the storage type of y; None for x's. float8 has one scale, and int8 has a scale per row.
    scale_block : int
        Forward: the columns of y that share a scale of int8: 32, 64 or 128; 0 for a scale per row.
    max_workgroups : int
        Both directions: the largest number of workgroups, which leaves room for other work; 0 for no limit.
    saved_stats : bool
        Backward: read mean and rstd from the forward pass instead of computing them.
    dh : bool
        Backward: add the gradient that reaches h from elsewhere.

    Examples
    --------
    >>> import webnorm
    >>> str(webnorm.Options(bias=False, out_dtype="int8"))
    'no bias, out_dtype=int8'
    """

    weight: bool = True
    bias: bool = True
    zero_centered_weight: bool = False
    weight_offset: float = 0.0
    rounding: str | None = None
    weight_dtype: str | None = None
    residual: bool = False
    residual_dtype: str | None = None
    residual_bias: bool = False
    return_stats: bool = False
    out_dtype: str | None = None
    scale_block: int = 0
    max_workgroups: int = 0
    saved_stats: bool = False
    dh: bool = False

    STORAGE_OF_TENSORS: ClassVar[frozenset[str]] = frozenset({"weight_dtype", "residual_dtype", "out_dtype"})
    VALUES: ClassVar[Mapping[str, Sequence[str]]] = {
        "out_dtype": NARROWING,
        "weight_dtype": STORAGE,
        "residual_dtype": STORAGE,
        "rounding": (BEFORE_WEIGHT,),
    }
    IGNORABLE: ClassVar[frozenset[str]] = frozenset({"weight", "bias"})

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("weight_dtype", "residual_dtype"):
            if getattr(self, name) not in (None, *STORAGE):
                raise unknown(name, getattr(self, name), STORAGE, elsewhere=OF_OUTPUTS)
        if self.out_dtype is not None and self.out_dtype not in NARROWING:
            raise unknown("out_dtype", self.out_dtype, NARROWING)
        # A number as text, and results as JSON, have no NumPy scalars and no ints.
        object.__setattr__(self, "weight_offset", WEIGHT_OFFSET.number(self.weight_offset))
        self._check_weight()
        if self.rounding not in (None, BEFORE_WEIGHT):
            raise unknown("rounding", self.rounding, (BEFORE_WEIGHT,))
        if self.scale_block not in SCALE_BLOCKS:
            known = ", ".join(map(str, SCALE_BLOCKS[1:]))
            raise WebnormError(
                f"scale_block is {shown(self.scale_block)}; expected {known}, or 0 for a scale per row"
            )
        if self.max_workgroups < 0:
            raise WebnormError(f"max_workgroups is {shown(self.max_workgroups)}; expected 0 (no cap) or more")

    @property
    def offset(self) -> float:
        """The number that is added to weight, which is `weight_offset`, or 1 with `zero_centered_weight`."""
        return 1.0 if self.zero_centered_weight else self.weight_offset

    def _check_weight(self) -> None:
        """Raise WebnormError for an offset without a weight, and for two offsets."""
        if self.zero_centered_weight and not self.weight:
            raise WebnormError(
                "zero_centered_weight is True, but there is no weight; pass a weight, or set it to False"
            )
        if self.weight_offset and not self.weight:
            raise WebnormError(
                f"weight_offset is {self.weight_offset}, but there is no weight; pass a weight, "
                "or set it to 0"
            )
        if self.zero_centered_weight and self.weight_offset:
            raise WebnormError(
                f"weight_offset is {self.weight_offset} and zero_centered_weight is True, which means an "
                "offset of 1; set one of them"
            )


@dataclass(frozen=True, kw_only=True)
class NormProblem(RowProblem):
    """A norm of `rows` rows of `cols` columns. `webnorm.Problem` is its public name.

    Attributes
    ----------
    rows : int
        The number of rows, 0 or more.
    cols : int
        The number of columns, 1 or more.
    dtype : str
        The storage type of x: float32 (default), float16 or bfloat16.
    distribution : str
        The distribution of x: a name in DISTRIBUTIONS. Default: "normal".
    seed : int
        Seed of the inputs, 0 or more. Default: 0.
    eps : float
        Number added to the variance. Default: 1e-5.
    scale : float
        Factor that multiplies y before it is rounded to a float8 `out_dtype`. Default: 1.0.
    options : NormOptions
        The options.

    Raises
    ------
    WebnormError
        A value is invalid.

    Examples
    --------
    >>> import webnorm
    >>> problem = webnorm.Problem(rows=4096, cols=1024, dtype="float16")
    >>> str(problem), problem.elements
    ('4096x1024 float16', 4194304)
    """

    options: NormOptions = NormOptions()

    @property
    def weight_dtype(self) -> str:
        """The storage type of weight, bias and their gradients."""
        return self.storage("weight_dtype")

    @property
    def out_dtype(self) -> str:
        """The storage type of y."""
        return self.storage("out_dtype")

    @property
    def input_dtype(self) -> str:
        """The storage type of the norm's input, which is h with a residual, or else x."""
        return self.storage("residual_dtype") if self.options.residual else self.dtype

    @property
    def rounds_before_weight(self) -> bool:
        """True if the normalized x is rounded before weight multiplies it; float32 needs no rounding."""
        return self.options.rounding is not None and self.dtype != "float32"

    @property
    def product_dtype(self) -> str:
        """The type of x̂ * weight if x̂ is rounded first, which is float32 if the two types differ."""
        return self.dtype if self.weight_dtype == self.dtype else "float32"
