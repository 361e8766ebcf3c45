"""Each number divided by the option `divisor`; 0 stands for no division.

Why engines differ: x / 0u with a zero that is known when the shader is created is an error, even where `select` ignores
the result. Tint and Firefox's naga refuse it; the older naga of wgpu-native and Deno computes x.
WGSL: "8.7. Arithmetic Expressions" (integer division).
"""

from webnorm.op import define_op, integers, option, tensor

op = define_op(
    sizes={"n": 4096},
    inputs=[tensor("x", "n", dtype="uint32", draw=integers(0, 100000))],
    outputs=[tensor("y", "n", dtype="uint32")],
    options=[option("divisor", "0", "7")],
)


@op.reference
def quotient(x, divisor):
    """Return the quotient, or x."""
    return x // int(divisor) if int(divisor) else x
