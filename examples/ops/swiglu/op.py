"""A gated linear unit: activation(gate) times the other half, as in SwiGLU, GEGLU and ReGLU."""

import numpy as np

from webnorm.op import case, define_op, option, tensor

_VEC4 = "an option, at sizes for vec4"

op = define_op(
    sizes={"rows": 4096, "cols": 4096},
    inputs=[tensor("gate", "rows cols"), tensor("up", "rows cols")],
    outputs=[tensor("y", "rows cols")],
    options=[option("activation", "silu", "gelu_tanh", "relu")],
    cases=[
        case(f"{name}-vec4", {}, sizes={"rows": 5, "cols": 132}, options=[f"activation={name}"], source=_VEC4)
        for name in ("gelu_tanh", "relu")
    ],
)


def _activation(x, activation):
    """Return the activation of x; exp in the logistic function cannot overflow."""
    if activation == "relu":
        return np.maximum(x, 0)
    if activation == "gelu_tanh":
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    e = np.exp(-np.abs(x))
    return x * np.where(x < 0, e, 1) / (1 + e)


@op.reference
def swiglu(gate, up, activation):
    """Return activation(gate) * up."""
    return _activation(gate, activation) * up


@op.mistake("takes the activation of up, not of gate")
def swapped(gate, up, activation):
    """Return activation(up) * gate."""
    return _activation(up, activation) * gate


@op.mistake("computes the logistic function of gate times up: the factor gate is missing")
def without_gate(gate, up):
    """Return sigmoid(gate) * up."""
    return up / (1 + np.exp(-gate))


@op.mistake("applies the activation to the product of gate and up")
def activated_product(gate, up, activation):
    """Return activation(gate * up)."""
    return _activation(gate * up, activation)


@op.mistake("leaves the activation out")
def product(gate, up):
    """Return gate * up."""
    return gate * up
