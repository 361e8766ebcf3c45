"""The bits of each word, rotated to the left by the option `by`.

At run time a shift by 32 is a shift by 0, so the usual formula for a rotation is right if `by` is 0. If 32
is a constant expression, WGSL makes the shift an error. A `let` is not a constant expression. Nevertheless
naga evaluates it when it creates the shader, and refuses the text.

What the WGSL specification says:

- https://www.w3.org/TR/WGSL/#bit-expr
- https://www.w3.org/TR/WGSL/#const-expr
"""

from webnorm.op import case, define_op, option, tensor

op = define_op(
    sizes={"n": 4096},
    inputs=[tensor("x", "n", dtype="uint32")],
    outputs=[tensor("y", "n", dtype="uint32")],
    options=[option("by", "0", "7")],
    cases=[case("divergence", {"x": [0, 1, 0x80000001, 0xFFFFFFFF]}, source="the option by=0")],
)


@op.reference
def rotated(x, by):
    """Return the rotated words."""
    return ((x << int(by)) | (x >> (32 - int(by)))) & 0xFFFFFFFF
