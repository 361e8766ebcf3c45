"""webnorm: normalisation kernels in WGSL, checked against float64 and timed, from Python.

`layer_norm`, `rms_norm`, their gradients and the modules are the drop-in part. The lab's own types are here
for scripts: a `Problem` is computed by a `Variant` of a `Kernel`, rendered into a `Shader`, bound into a
`Plan` on a `Device`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from webnorm.accuracy import Accuracy as Accuracy
    from webnorm.accuracy import assess as assess
    from webnorm.accuracy import tolerance as tolerance
    from webnorm.arrays import GpuArray as GpuArray
    from webnorm.device import Device as Device
    from webnorm.device import adapters as adapters
    from webnorm.device import find_adapter as find_adapter
    from webnorm.device import open_device as open_device
    from webnorm.errors import WebnormError as WebnormError
    from webnorm.functional import NormOutput as NormOutput
    from webnorm.functional import layer_norm as layer_norm
    from webnorm.functional import layer_norm_backward as layer_norm_backward
    from webnorm.functional import rms_norm as rms_norm
    from webnorm.functional import rms_norm_backward as rms_norm_backward
    from webnorm.kernel import Kernel as Kernel
    from webnorm.kernel import Variant as Variant
    from webnorm.kernel import all_variants as all_variants
    from webnorm.kernel import default_variant as default_variant
    from webnorm.kernel import discover as discover
    from webnorm.kernel import runnable_variants as runnable_variants
    from webnorm.kernel import select as select
    from webnorm.modules import LayerNorm as LayerNorm
    from webnorm.modules import RMSNorm as RMSNorm
    from webnorm.onnx_ops import layer_normalization as layer_normalization
    from webnorm.onnx_ops import rms_normalization as rms_normalization
    from webnorm.ops import make_inputs as make_inputs
    from webnorm.plan import Inputs as Inputs
    from webnorm.plan import Outputs as Outputs
    from webnorm.plan import Plan as Plan
    from webnorm.plan import compile_shader as compile_shader
    from webnorm.problem import Options as Options
    from webnorm.problem import Problem as Problem
    from webnorm.render import Shader as Shader
    from webnorm.render import render_shader as render_shader

__version__ = "0.1.0"

# Imported when first asked for: `webnorm --help` needs neither wgpu nor NumPy.
_HOME = {
    "Accuracy": "accuracy",
    "Device": "device",
    "GpuArray": "arrays",
    "Inputs": "plan",
    "Kernel": "kernel",
    "LayerNorm": "modules",
    "NormOutput": "functional",
    "Options": "problem",
    "Outputs": "plan",
    "Plan": "plan",
    "Problem": "problem",
    "RMSNorm": "modules",
    "Shader": "render",
    "Variant": "kernel",
    "WebnormError": "errors",
    "adapters": "device",
    "all_variants": "kernel",
    "assess": "accuracy",
    "compile_shader": "plan",
    "default_variant": "kernel",
    "discover": "kernel",
    "find_adapter": "device",
    "layer_norm": "functional",
    "layer_norm_backward": "functional",
    "layer_normalization": "onnx_ops",
    "make_inputs": "ops",
    "open_device": "device",
    "render_shader": "render",
    "rms_norm": "functional",
    "rms_norm_backward": "functional",
    "rms_normalization": "onnx_ops",
    "runnable_variants": "kernel",
    "select": "kernel",
    "tolerance": "accuracy",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"webnorm.{_HOME[name]}"), name)
    raise AttributeError(f"module 'webnorm' has no attribute {name!r}")
