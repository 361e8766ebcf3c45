"""The sum of each row, with subgroups of a size that the kernel chooses.

What the WGSL specification says:

- https://www.w3.org/TR/WGSL/#attribute-subgroup_size
- https://www.w3.org/TR/WGSL/#subgroups
"""

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"rows": 4096, "cols": 256},
    inputs=[tensor("x", "rows cols", dtype="float32")],
    outputs=[tensor("y", "rows", dtype="float32")],
)


@op.reference
def total(x):
    """Return the sum over the columns."""
    return x.sum(-1)
