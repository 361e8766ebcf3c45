"""LayerNorm and RMSNorm, forward and backward, on dask arrays: larger than memory, or on many machines.

The functions have the names, arguments and errors of webnorm's functions. Arrays with rows are dask arrays,
with any chunks along their leading dimensions and one chunk along `normalized_shape`. weight, bias and
residual_bias are NumPy or dask arrays. The shapes, dtypes and options are checked at once. dask computes each
block with one call, in the process and on the device of its worker. `webnorm.ops.norms.dask_arrays` contains
the code.
"""

from __future__ import annotations

from webnorm.ops.norms.dask_arrays import layer_norm, layer_norm_backward, rms_norm, rms_norm_backward

__all__ = ["layer_norm", "layer_norm_backward", "rms_norm", "rms_norm_backward"]
