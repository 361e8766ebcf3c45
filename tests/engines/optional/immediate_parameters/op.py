"""A line through each number. Slope and offset change from call to call.

What the WGSL specification says:

- https://www.w3.org/TR/WGSL/#language_extension-immediate_address_space
"""

from webnorm.op import define_op, scalar, tensor

op = define_op(
    sizes={"n": 65536},
    inputs=[tensor("x", "n", dtype="float32")],
    outputs=[tensor("y", "n", dtype="float32")],
    scalars=[scalar("slope", 0.5), scalar("offset", 1.5)],
)


@op.reference
def line(x, slope, offset):
    """Return slope * x + offset."""
    return slope * x + offset
