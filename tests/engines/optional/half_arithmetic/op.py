"""A polynomial of each number, in float16 where the engine has it.

What the WGSL specification says:

- https://www.w3.org/TR/WGSL/#extension-f16
"""

from webnorm.op import define_op, require, tensor, uniform

# Six roundings to float16 of numbers below 4: of x, in four operations, and of y as it is stored.
op = define_op(
    sizes={"rows": 4096, "cols": 1024},
    inputs=[tensor("x", "rows cols", draw=uniform(-1.0, 1.0))],
    outputs=[tensor("y", "rows cols")],
    require=[require("cols % 4 == 0", "an invocation computes four numbers")],
    absolute_tolerance=6 * 2.0**-9,
)


@op.reference
def polynomial(x):
    """Return 1 + x + x**2 / 2."""
    return 1 + x * (1 + 0.5 * x)
