"""Each number divided by the option `divisor`; 0 means that nothing is divided.

At run time x / 0u is x. If the zero is a constant expression, WGSL makes the division an error, even if
`select` drops its result. Tint and the naga of Firefox 153 refuse the text. The older naga of wgpu-native
and Deno computes x.

What the WGSL specification says:

- https://www.w3.org/TR/WGSL/#arithmetic-expr
"""

from webnorm.op import case, define_op, integers, option, tensor

op = define_op(
    sizes={"n": 4096},
    inputs=[tensor("x", "n", dtype="uint32", draw=integers(0, 100000))],
    outputs=[tensor("y", "n", dtype="uint32")],
    options=[option("divisor", "0", "7")],
    cases=[case("divergence", {"x": [0, 1, 6, 7, 99]}, source="the option divisor=0")],
)


@op.reference
def quotient(x, divisor):
    """Return the quotient, or x."""
    return x // int(divisor) if int(divisor) else x
