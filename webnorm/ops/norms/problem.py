"""The problems of the norms, and the options that they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from webnorm.errors import WebnormError, shown, unknown
from webnorm.op.dtypes import NARROWING, OF_OUTPUTS, STORAGE
from webnorm.op.options import Options
from webnorm.ops.copy.problem import RowProblem


@dataclass(frozen=True, kw_only=True)
class NormOptions(Options):
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

    STORAGE_OF_TENSORS: ClassVar[frozenset[str]] = frozenset({"weight_dtype", "out_dtype"})
    VALUES: ClassVar[Mapping[str, Sequence[str]]] = {"out_dtype": NARROWING, "weight_dtype": STORAGE}
    IGNORABLE: ClassVar[frozenset[str]] = frozenset({"weight", "bias"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weight_dtype is not None and self.weight_dtype not in STORAGE:
            raise unknown("weight_dtype", self.weight_dtype, STORAGE, elsewhere=OF_OUTPUTS)
        if self.out_dtype is not None and self.out_dtype not in NARROWING:
            raise unknown("out_dtype", self.out_dtype, NARROWING)
        if self.zero_centered_weight and not self.weight:
            raise WebnormError(
                "zero_centered_weight is True, but there is no weight; expected one to add 1 to"
            )
        if self.max_workgroups < 0:
            raise WebnormError(f"max_workgroups is {shown(self.max_workgroups)}; expected 0 (no cap) or more")


@dataclass(frozen=True, kw_only=True)
class NormProblem(RowProblem):
    """Normalise `rows` rows of `cols` columns.

    `dtype` is what x is stored as. `distribution` names how x is drawn (see DISTRIBUTIONS) and `seed` fixes
    the draw. `scale` multiplies y before it is rounded to a float8 `out_dtype`.
    """

    options: NormOptions = NormOptions()

    @property
    def weight_dtype(self) -> str:
        """What weight, bias and their gradients are stored as."""
        return self.storage("weight_dtype")

    @property
    def out_dtype(self) -> str:
        """What y is stored as."""
        return self.storage("out_dtype")
