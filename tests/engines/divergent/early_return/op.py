"""The columns of each row in reverse order.

Why engines differ: the kernel `divergent` leaves the function before a barrier, in some invocations of a
workgroup only. Tint proves that all invocations reach a barrier together, and refuses a text for which it cannot.
naga has no such proof; then it depends on the driver whether the others wait for ever.
WGSL: "15.2. Uniformity", "17.11. Synchronization Built-in Functions".
"""

from webnorm.op import case, define_op, require, tensor

op = define_op(
    sizes={"rows": 64, "cols": 40},
    inputs=[tensor("x", "rows cols", dtype="float32")],
    outputs=[tensor("y", "rows cols", dtype="float32")],
    require=[require("cols <= 64", "a row has one invocation per column")],
    cases=[case("part-of-a-workgroup", {}, sizes={"rows": 5, "cols": 40})],
)


@op.reference
def reverse(x):
    """Return x with its columns in reverse order."""
    return x[:, ::-1]
