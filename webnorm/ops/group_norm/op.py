"""y = act((x - mean) / sqrt(var + eps) * weight + bias), with mean and var of a group of channels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import numpy as np

from webnorm.op import define_op, option, require, scalar, tensor, uniform
from webnorm.op.dtypes import STORAGE
from webnorm.op.op import Float64Array
from webnorm.ops.channel_groups import flat, group_rows, in_groups, per_channel
from webnorm.ops.group_norm.cases import CASES
from webnorm.ops.rows import (
    ACTIVATIONS,
    HI_LO_TOLERANCE,
    SUM_TOLERANCE,
    NormalizedRows,
    activated,
    activation_error,
    normalized_rows,
    rounded_sum,
)

op = define_op(
    sizes={"batch": 2, "channels": [320, 640], "spatial": 4096, "groups": 32},
    inputs=[
        tensor("x", "batch channels*spatial"),
        tensor("residual", "batch channels*spatial", option="residual"),
        tensor("weight", "channels", option="weight", dtype="weight_dtype", draw=uniform(0.5, 1.5)),
        tensor("bias", "channels", option="bias", dtype="weight_dtype", draw=uniform(-0.5, 0.5)),
    ],
    outputs=[
        tensor("y", "batch channels*spatial"),
        tensor("h", "batch channels*spatial", option="residual"),
    ],
    scalars=[scalar("eps", 1e-5)],
    options=[
        option("weight", default=True),
        option("bias", default=True),
        option("weight_dtype", None, *STORAGE),
        option("residual"),
        option("activation", *ACTIVATIONS),
        option("layout", "channels_first", "channels_last"),
    ],
    require=[require("channels % groups == 0", "groups must divide channels")],
    cases=CASES,
    batch="batch",
    derived={"cols": "channels // groups * spatial", "span": "channels // groups * spatial"},
)

Values = Float64Array | None
Outputs = Float64Array | tuple[Float64Array, Float64Array]


@dataclass(frozen=True)
class GroupNormInputs:
    """The inputs, scalars, options and sizes of a reference."""

    x: Float64Array
    residual: Values
    weight: Values
    bias: Values
    eps: float
    activation: str | None
    layout: str
    channels: int
    groups: int
    dtype: str

    @property
    def h(self) -> Float64Array:
        """The input of the norm: x, or the sum with the residual, rounded to its storage type."""
        return self.x if self.residual is None else rounded_sum(self.x, self.residual, self.dtype)

    @property
    def grouped(self) -> Float64Array:
        """The input of the norm as (batch, groups, channels of a group, spatial)."""
        return in_groups(self.h, self.channels, self.groups, self.layout)

    def rows(self) -> NormalizedRows:
        """Return the normalized groups."""
        return group_rows(self.grouped, self.eps)

    def affine(self, xhat: Float64Array) -> Float64Array:
        """Return xhat * weight + bias, for xhat of any shape with the size of x."""
        x = xhat.reshape(self.grouped.shape)
        return x * per_channel(self.weight, 1.0, self.groups) + per_channel(self.bias, 0.0, self.groups)

    def outputs(self, y: Float64Array) -> Outputs:
        """Return y, in the form of `affine`, and with a residual also h."""
        found = flat(y, self.layout)
        return found if self.residual is None else (found, self.h)

    def normalized(self, xhat: Float64Array) -> Outputs:
        """Return the outputs for a normalized h."""
        return self.outputs(activated(self.affine(xhat), self.activation))


@op.reference
def group_norm(
    x: Float64Array,
    residual: Values,
    weight: Values,
    bias: Values,
    eps: float,
    activation: str | None,
    layout: str,
    channels: int,
    groups: int,
    dtype: str,
) -> Outputs:
    """Return y, and with a residual h = x + residual. The norm reads the rounded h."""
    given = GroupNormInputs(x, residual, weight, bias, eps, activation, layout, channels, groups, dtype)
    return given.normalized(given.rows().xhat)


@op.allowed_error
@wraps(group_norm)
def allowed_error(**arguments: Any) -> Outputs:
    """Return the errors of y, for terms as large as max(1, |xhat|) * |weight| + |bias|; and of h."""
    given = GroupNormInputs(**arguments)
    xhat = given.rows().xhat
    sizes = replace(given, weight=_magnitude(given.weight), bias=_magnitude(given.bias))
    unit = HI_LO_TOLERANCE * sizes.affine(np.maximum(1.0, np.abs(xhat)))
    error = flat(activation_error(given.affine(xhat), unit, given.activation), given.layout)
    return error if given.residual is None else (error, SUM_TOLERANCE * np.abs(given.h))


def _magnitude(parameter: Values) -> Values:
    return None if parameter is None else np.abs(parameter)


def _mistake(what: str, wrong: Callable[[GroupNormInputs], Outputs]) -> None:
    """Register a mistake as a function of the reference's parameters."""

    @op.mistake(what)
    @wraps(group_norm)
    def outputs(**given: Any) -> Outputs:
        return wrong(GroupNormInputs(**given))


def _scaled(given: GroupNormInputs, deviation: Callable[[Float64Array, int], Float64Array]) -> Outputs:
    """Return the outputs if h - mean is divided by a function of the variance and the length of a group."""
    rows = given.rows()
    variance = np.maximum(1.0 / rows.rstd**2 - given.eps, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return given.normalized(rows.xhat / rows.rstd / deviation(variance, rows.xhat.shape[-1]))


def _regrouped(given: GroupNormInputs, channels: int, groups: int, layout: str) -> Outputs:
    """Return the outputs if other groups have the statistics."""
    x = in_groups(given.h, channels, groups, layout)
    xhat = flat(group_rows(x, given.eps).xhat.reshape(x.shape), layout)
    return given.normalized(in_groups(xhat, given.channels, given.groups, given.layout))


def _other_layout(given: GroupNormInputs) -> Outputs:
    other = "channels_last" if given.layout == "channels_first" else "channels_first"
    return _regrouped(given, given.channels, given.groups, other)


def _late_residual(given: GroupNormInputs) -> Outputs:
    if given.residual is None:
        return given.normalized(given.rows().xhat)
    y = replace(given, residual=None)
    found = flat(activated(y.affine(y.rows().xhat), given.activation), given.layout)
    return found + given.residual, given.h


def _weight_of_group(given: GroupNormInputs) -> Outputs:
    repeats = given.channels // given.groups
    parameters = (
        None if one is None else np.repeat(one[: given.groups], repeats) for one in (given.weight, given.bias)
    )
    weight, bias = parameters
    return replace(given, weight=weight, bias=bias).normalized(given.rows().xhat)


_mistake(
    "divides the sum of squares by N - 1",
    lambda given: _scaled(given, lambda variance, n: np.sqrt(variance * n / max(n - 1, 0.5) + given.eps)),
)
_mistake(
    "adds eps to the standard deviation",
    lambda given: _scaled(given, lambda variance, _: np.sqrt(variance) + given.eps),
)
_mistake("leaves eps out", lambda given: _scaled(given, lambda variance, _: np.sqrt(variance)))
_mistake(
    "does not subtract the mean",
    lambda given: given.normalized(
        normalized_rows(given.grouped.reshape(*given.grouped.shape[:2], -1), given.eps, has_mean=False).xhat
    ),
)
_mistake(
    "normalizes every channel on its own",
    lambda given: _regrouped(given, given.channels, given.channels, given.layout),
)
_mistake(
    "normalizes all channels together",
    lambda given: _regrouped(given, given.channels, 1, given.layout),
)
_mistake("takes channels first for channels last, or the reverse", _other_layout)
_mistake("takes the parameters of a channel by the number of its group", _weight_of_group)
_mistake(
    "swaps weight and bias",
    lambda given: replace(given, weight=given.bias, bias=given.weight).normalized(given.rows().xhat),
)
_mistake(
    "applies the activation before weight and bias",
    lambda given: given.outputs(given.affine(activated(given.rows().xhat, given.activation))),
)
_mistake("adds the residual after the norm", _late_residual)
