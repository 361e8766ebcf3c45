"""The product of a matrix and a vector of 8-bit integers.

What the WGSL specification says:

- https://www.w3.org/TR/WGSL/#dot4I8Packed-builtin
- https://www.w3.org/TR/WGSL/#language_extension-packed_4x8_integer_dot_product
"""

from webnorm.op import define_op, integers, require, tensor

op = define_op(
    sizes={"rows": 4096, "cols": 1024},
    inputs=[
        tensor("x", "rows cols", dtype="int8", draw=integers(-128, 128)),
        tensor("w", "cols", dtype="int8", draw=integers(-128, 128)),
    ],
    outputs=[tensor("y", "rows", dtype="int32")],
    require=[require("cols % 4 == 0", "a word has four numbers")],
)


@op.reference
def product(x, w):
    """Return the products, summed over the columns."""
    return x @ w
