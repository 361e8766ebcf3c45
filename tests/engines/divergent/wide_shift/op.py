"""The bits of each word, rotated to the left by the option `by`.

Why engines differ: at run time a shift by 32 is a shift by 0, so that the usual rotation is right for `by` 0 too. A
shift by a constant expression of 32 is an error. A `let` is no constant expression, but naga computes it when the
shader is created, and refuses the shift.
WGSL: "8.9. Bit Expressions" (shifts), "8.1. Early Evaluation Expressions".
"""

from webnorm.op import define_op, option, tensor

op = define_op(
    sizes={"n": 4096},
    inputs=[tensor("x", "n", dtype="uint32")],
    outputs=[tensor("y", "n", dtype="uint32")],
    options=[option("by", "0", "7")],
)


@op.reference
def rotated(x, by):
    """Return the rotated words."""
    return ((x << int(by)) | (x >> (32 - int(by)))) & 0xFFFFFFFF
