"""The double of each number, in rows of any length.

What the WGSL specification says:

- https://www.w3.org/TR/WGSL/#language_extension-buffer_view
"""

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"rows": 4096, "cols": 1023},
    inputs=[tensor("x", "rows cols", dtype="float32")],
    outputs=[tensor("y", "rows cols", dtype="float32")],
)


@op.reference
def double(x):
    """Return 2 * x."""
    return 2 * x
