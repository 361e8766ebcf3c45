"""The gradients of act((x - mean) / sqrt(var + eps) * weight + bias), normalized by groups of channels."""

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
    GRADIENT_TOLERANCE,
    HI_LO_TOLERANCE,
    NormalizedRows,
    activation_slope,
    activation_slope_error,
    row_gradient,
    sum_error,
)

op = define_op(
    sizes={"batch": 2, "channels": [320, 640], "spatial": 4096, "groups": 32},
    inputs=[
        tensor("x", "batch channels*spatial"),
        tensor("dy", "batch channels*spatial"),
        tensor("weight", "channels", option="weight", dtype="weight_dtype", draw=uniform(0.5, 1.5)),
        tensor("bias", "channels", option="bias", dtype="weight_dtype", draw=uniform(-0.5, 0.5)),
    ],
    outputs=[
        tensor("dx", "batch channels*spatial"),
        tensor("dweight", "channels", option="weight", dtype="weight_dtype"),
        tensor("dbias", "channels", option="bias", dtype="weight_dtype"),
    ],
    scalars=[scalar("eps", 1e-5)],
    options=[
        option("weight", default=True),
        option("bias", default=True),
        option("weight_dtype", None, *STORAGE),
        option("activation", *ACTIVATIONS),
        option("layout", "channels_first", "channels_last"),
    ],
    require=[require("channels % groups == 0", "groups must divide channels")],
    cases=CASES,
    batch=None,
    derived={"cols": "channels // groups * spatial", "span": "channels // groups * spatial"},
)

Values = Float64Array | None
Outputs = Float64Array | tuple[Float64Array, ...]
# Axes of (batch, groups, channels of a group, spatial) over which a parameter's gradient is a sum.
_SUMMED = (0, 3)


@dataclass(frozen=True)
class GroupGradientInputs:
    """The inputs, scalars, options and sizes of a reference."""

    x: Float64Array
    dy: Float64Array
    weight: Values
    bias: Values
    eps: float
    activation: str | None
    layout: str
    channels: int
    groups: int

    def grouped(self, x: Float64Array) -> Float64Array:
        """Return x or dy as (batch, groups, channels of a group, spatial)."""
        return in_groups(x, self.channels, self.groups, self.layout)

    def rows(self) -> NormalizedRows:
        """Return the normalized groups."""
        return group_rows(self.grouped(self.x), self.eps)

    @property
    def factor(self) -> Float64Array:
        """The weight of each channel."""
        return per_channel(self.weight, 1.0, self.groups)

    @property
    def offset(self) -> Float64Array:
        """The bias of each channel."""
        return per_channel(self.bias, 0.0, self.groups)

    def dz(self, rows: NormalizedRows) -> Float64Array:
        """Return the gradient of xhat * weight + bias."""
        dy = self.grouped(self.dy)
        z = rows.xhat.reshape(dy.shape) * self.factor + self.offset
        return dy * activation_slope(z, self.activation)

    def outputs(self, dx: Float64Array, dweight: Float64Array, dbias: Float64Array) -> Outputs:
        """Return the outputs that the op has: dx by groups, and sums for the parameters that exist."""
        sums = [
            one.reshape(-1)
            for one, parameter in ((dweight, self.weight), (dbias, self.bias))
            if parameter is not None
        ]
        found = flat(dx.reshape(self.grouped(self.x).shape), self.layout)
        return (found, *sums) if sums else found

    def gradients(self, rows: NormalizedRows, dz: Float64Array) -> Outputs:
        """Return the gradients from dz."""
        dx, _ = row_gradient((dz * self.factor).reshape(rows.xhat.shape), rows)
        return self.outputs(dx, (dz * rows.xhat.reshape(dz.shape)).sum(_SUMMED), dz.sum(_SUMMED))


@op.reference
def group_norm_backward(
    x: Float64Array,
    dy: Float64Array,
    weight: Values,
    bias: Values,
    eps: float,
    activation: str | None,
    layout: str,
    channels: int,
    groups: int,
) -> Outputs:
    """Return dx, dweight and dbias: the gradients of the sum of y * dy."""
    given = GroupGradientInputs(x, dy, weight, bias, eps, activation, layout, channels, groups)
    rows = given.rows()
    return given.gradients(rows, given.dz(rows))


@op.allowed_error
@wraps(group_norm_backward)
def allowed_error(**arguments: Any) -> Outputs:
    """Return the errors of dx, dweight and dbias.

    Normalized values have the error of a forward kernel, which changes the slope of the activation, too.
    """
    given = GroupGradientInputs(**arguments)
    rows = given.rows()
    dz = given.dz(rows)
    xhat = rows.xhat.reshape(dz.shape)
    size = np.maximum(1.0, np.abs(xhat))
    factor, offset = np.abs(given.factor), np.abs(given.offset)
    slope_error = activation_slope_error(
        xhat * given.factor + given.offset, HI_LO_TOLERANCE * (size * factor + offset), given.activation
    )
    # In units of GRADIENT_TOLERANCE.
    error = np.abs(dz) + np.abs(given.grouped(given.dy)) * slope_error / GRADIENT_TOLERANCE
    _, dx = row_gradient((error * factor).reshape(rows.xhat.shape), rows)
    dweight, dbias = sum_error(dz * xhat, error * size, _SUMMED), sum_error(dz, error, _SUMMED)
    return given.outputs(GRADIENT_TOLERANCE * dx, dweight, dbias)


def _mistake(what: str, wrong: Callable[[GroupGradientInputs, NormalizedRows], Outputs]) -> None:
    """Register a mistake as a function of the reference's parameters and the normalized groups."""

    @op.mistake(what)
    @wraps(group_norm_backward)
    def outputs(**arguments: Any) -> Outputs:
        given = GroupGradientInputs(**arguments)
        return wrong(given, given.rows())


def _with_dx(given: GroupGradientInputs, rows: NormalizedRows, left: str) -> Outputs:
    """Return the outputs if dx lacks a term."""
    dz = given.dz(rows)
    g = (dz if left == "weight" else dz * given.factor).reshape(rows.xhat.shape)
    dx, _ = row_gradient(g, rows)
    if left == "mean":
        dx = dx + g.mean(-1, keepdims=True) * rows.rstd
    elif left == "product":
        dx = dx + rows.xhat * (g * rows.xhat).mean(-1, keepdims=True) * rows.rstd
    return given.outputs(dx, (dz * rows.xhat.reshape(dz.shape)).sum(_SUMMED), dz.sum(_SUMMED))


def _with_sums(
    given: GroupGradientInputs, rows: NormalizedRows, change: Callable[[Float64Array], Float64Array]
) -> Outputs:
    """Return the outputs if the sums are sums of changed terms."""
    dz = given.dz(rows)
    dx, _ = row_gradient((dz * given.factor).reshape(rows.xhat.shape), rows)
    dweight, dbias = (change(one).sum(_SUMMED) for one in (dz * rows.xhat.reshape(dz.shape), dz))
    return given.outputs(dx, dweight, dbias)


_mistake("leaves the mean of g out of dx", lambda given, rows: _with_dx(given, rows, "mean"))
_mistake("leaves the mean of g * xhat out of dx", lambda given, rows: _with_dx(given, rows, "product"))
_mistake("leaves the weight out of dx", lambda given, rows: _with_dx(given, rows, "weight"))
_mistake(
    "takes dy for the gradient before the activation",
    lambda given, rows: given.gradients(rows, given.grouped(given.dy)),
)
_mistake(
    "leaves the bias out of the activation's argument",
    lambda given, rows: given.gradients(rows, replace(given, bias=None).dz(rows)),
)
_mistake(
    "sums dweight and dbias over one batch element only",
    lambda given, rows: _with_sums(given, rows, lambda terms: terms[:1]),
)
_mistake(
    "divides the sums over pixels by their number",
    lambda given, rows: _with_sums(given, rows, lambda terms: terms / terms.shape[-1]),
)
