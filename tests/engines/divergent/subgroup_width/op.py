"""The sum of the eight columns of each row.

Why engines differ: the number of invocations in a subgroup is the driver's choice. It is 8 on llvmpipe with AVX
and 4 on SwiftShader. Firefox and Deno have no subgroups yet.
WGSL: "17.12. Subgroup Built-in Functions", "13.3.1.1. subgroup_size".
"""

from webnorm.op import define_op, integers, tensor

op = define_op(
    sizes={"rows": 64},
    inputs=[tensor("x", "rows 8", dtype="uint32", draw=integers(0, 1000))],
    outputs=[tensor("y", "rows", dtype="uint32")],
)


@op.reference
def total(x):
    """Return the sum over the columns."""
    return x.sum(-1)
