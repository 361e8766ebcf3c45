"""The sum of each row. The last step needs one subgroup of the workgroup.

What the WGSL specification says:

- https://www.w3.org/TR/WGSL/#uniformity
- https://www.w3.org/TR/WGSL/#language_extension-subgroup_uniformity
"""

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"rows": 4096, "cols": 1024},
    inputs=[tensor("x", "rows cols", dtype="float32")],
    outputs=[tensor("y", "rows", dtype="float32")],
)


@op.reference
def total(x):
    """Return the sum over the columns."""
    return x.sum(-1)
