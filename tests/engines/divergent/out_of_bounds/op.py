"""The difference of each number to the one before it, and the first number itself.

Why engines differ: an index past the end of a buffer reads another element of it, or 0. wgpu uses the driver's
robustBufferAccess2, which gives 0. Tint clamps the index to the last element. The index -1 is 4294967295 here.
WGSL: "15.6.1. Out-of-bounds memory access" (invalid memory references).
"""

import numpy as np

from webnorm.op import define_op, tensor

op = define_op(
    sizes={"n": 4096},
    inputs=[tensor("x", "n", dtype="float32")],
    outputs=[tensor("y", "n", dtype="float32")],
)


@op.reference
def difference(x):
    """Return x minus x shifted by one element."""
    return x - np.concatenate([np.zeros(1), x[:-1]])
