"""The columns of each row in reverse order.

Invocations of `divergent` that have no column return before a barrier. WGSL requires a proof that all
invocations of a workgroup reach a barrier together, and a text without this proof is an error. Tint checks
the proof. naga does not, and whether the remaining invocations wait forever depends on the driver.

What the WGSL specification says:

- https://www.w3.org/TR/WGSL/#uniformity
- https://www.w3.org/TR/WGSL/#sync-builtin-functions
"""

from webnorm.op import case, define_op, require, tensor

op = define_op(
    sizes={"rows": 64, "cols": 40},
    inputs=[tensor("x", "rows cols", dtype="float32")],
    outputs=[tensor("y", "rows cols", dtype="float32")],
    require=[require("cols <= 64", "a row has one invocation per column")],
    cases=[case("divergence", {}, sizes={"rows": 5, "cols": 40}, source="a part of a workgroup")],
)


@op.reference
def reverse(x):
    """Return x with its columns in reverse order."""
    return x[:, ::-1]
