"""LayerNorm and RMSNorm, forward and backward, on dask arrays: arrays larger than memory, on many machines.

The public name of `webnorm.ops.norms.dask_arrays`.
"""

from __future__ import annotations

from webnorm.ops.norms.dask_arrays import layer_norm, layer_norm_backward, rms_norm, rms_norm_backward

__all__ = ["layer_norm", "layer_norm_backward", "rms_norm", "rms_norm_backward"]
