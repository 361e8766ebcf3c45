"""The square of each number, in a grid that may have two dimensions.

What the WGSL specification says:

- https://www.w3.org/TR/WGSL/#global-invocation-index-builtin-value
- https://www.w3.org/TR/WGSL/#language_extension-linear_indexing
"""

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"n": 65536},
    inputs=[tensor("x", "n", dtype="float32")],
    outputs=[tensor("y", "n", dtype="float32")],
)


@op.reference
def square(x):
    """Return x * x."""
    return x * x
