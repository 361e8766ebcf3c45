"""webnorm: a lab for WGSL kernels. It checks them against a float64 NumPy reference and times them.

`load_op` loads an op of your own. `check`, `bench` and `evaluate` check and time its kernels. `layer_norm`,
`rms_norm`, `group_norm`, `softmax` and others, their gradients and the modules replace torch's functions of
the same names. Scripts can also use the lab's own types: you render a `Variant` of a `Kernel` for a `Problem`
into a `Shader`, and bind the shader to buffers of a `Device` as a `Plan`.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from webnorm._version import __version__

if TYPE_CHECKING:
    from webnorm.calls.arrays import GpuArray as GpuArray
    from webnorm.calls.loaded_op import LoadedOp as LoadedOp
    from webnorm.calls.loaded_op import load_op as load_op
    from webnorm.calls.loaded_op import op_function as op_function
    from webnorm.choice.defaults import default_variant as default_variant
    from webnorm.engines.catalog import engine_names as engine_names
    from webnorm.errors import WebnormError as WebnormError
    from webnorm.functions.channel_modules import GroupNorm as GroupNorm
    from webnorm.functions.channel_modules import InstanceNorm1d as InstanceNorm1d
    from webnorm.functions.channel_modules import InstanceNorm2d as InstanceNorm2d
    from webnorm.functions.channel_modules import InstanceNorm3d as InstanceNorm3d
    from webnorm.functions.gradients import group_norm_backward as group_norm_backward
    from webnorm.functions.gradients import log_softmax_backward as log_softmax_backward
    from webnorm.functions.gradients import normalize_backward as normalize_backward
    from webnorm.functions.gradients import softmax_backward as softmax_backward
    from webnorm.functions.group_norms import group_norm as group_norm
    from webnorm.functions.group_norms import instance_norm as instance_norm
    from webnorm.functions.head_norms import qk_norm as qk_norm
    from webnorm.functions.microsoft_norms import embed_layer_normalization as embed_layer_normalization
    from webnorm.functions.microsoft_norms import group_norm_ms as group_norm_ms
    from webnorm.functions.microsoft_norms import (
        simplified_layer_normalization as simplified_layer_normalization,
    )
    from webnorm.functions.microsoft_norms import skip_group_norm as skip_group_norm
    from webnorm.functions.microsoft_norms import skip_layer_normalization as skip_layer_normalization
    from webnorm.functions.microsoft_norms import (
        skip_simplified_layer_normalization as skip_simplified_layer_normalization,
    )
    from webnorm.functions.onnx_norms import group_normalization as group_normalization
    from webnorm.functions.onnx_norms import instance_normalization as instance_normalization
    from webnorm.functions.onnx_norms import lp_normalization as lp_normalization
    from webnorm.functions.onnx_norms import mean_variance_normalization as mean_variance_normalization
    from webnorm.functions.row_functions import log_softmax as log_softmax
    from webnorm.functions.row_functions import normalize as normalize
    from webnorm.functions.row_functions import softmax as softmax
    from webnorm.gpu.buffers import Inputs as Inputs
    from webnorm.gpu.buffers import Outputs as Outputs
    from webnorm.gpu.device import Device as Device
    from webnorm.gpu.device import adapters as adapters
    from webnorm.gpu.device import find_adapter as find_adapter
    from webnorm.gpu.device import open_device as open_device
    from webnorm.gpu.pipelines import compile_shader as compile_shader
    from webnorm.gpu.schedule import Plan as Plan
    from webnorm.kernels.headers.kernel import Kernel as Kernel
    from webnorm.kernels.headers.library import discover as discover
    from webnorm.kernels.headers.library import select as select
    from webnorm.kernels.headers.variants import Variant as Variant
    from webnorm.kernels.headers.variants import all_variants as all_variants
    from webnorm.kernels.headers.variants import runnable_variants as runnable_variants
    from webnorm.kernels.rendering.render import Shader as Shader
    from webnorm.kernels.rendering.render import render_shader as render_shader
    from webnorm.lab.report.findings import Changes as Changes
    from webnorm.lab.report.findings import Findings as Findings
    from webnorm.lab.run.api import bench as bench
    from webnorm.lab.run.api import check as check
    from webnorm.lab.run.api import compare as compare
    from webnorm.lab.run.submission import Evaluation as Evaluation
    from webnorm.lab.run.submission import evaluate as evaluate
    from webnorm.lab.verify.accuracy import Accuracy as Accuracy
    from webnorm.lab.verify.accuracy import assess as assess
    from webnorm.lab.verify.accuracy import tolerance as tolerance
    from webnorm.op.op import make_inputs as make_inputs
    from webnorm.ops.norms.functional import layer_norm as layer_norm
    from webnorm.ops.norms.functional import layer_norm_backward as layer_norm_backward
    from webnorm.ops.norms.functional import rms_norm as rms_norm
    from webnorm.ops.norms.functional import rms_norm_backward as rms_norm_backward
    from webnorm.ops.norms.modules import LayerNorm as LayerNorm
    from webnorm.ops.norms.modules import RMSNorm as RMSNorm
    from webnorm.ops.norms.onnx_ops import layer_normalization as layer_normalization
    from webnorm.ops.norms.onnx_ops import rms_normalization as rms_normalization
    from webnorm.ops.norms.problem import NormOptions, NormProblem
    from webnorm.ops.norms.resolved import NormOutput as NormOutput

    Options, Problem = NormOptions, NormProblem

# Imported when first asked for: `webnorm --help` needs neither wgpu nor NumPy.
_HOME = {
    name: module
    for module, names in {
        "calls.arrays": "GpuArray",
        "calls.loaded_op": "LoadedOp load_op op_function",
        "functions.channel_modules": "GroupNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d",
        "functions.gradients": (
            "group_norm_backward log_softmax_backward normalize_backward softmax_backward"
        ),
        "functions.group_norms": "group_norm instance_norm",
        "functions.head_norms": "qk_norm",
        "functions.microsoft_norms": (
            "embed_layer_normalization group_norm_ms simplified_layer_normalization skip_group_norm "
            "skip_layer_normalization skip_simplified_layer_normalization"
        ),
        "functions.onnx_norms": (
            "group_normalization instance_normalization lp_normalization mean_variance_normalization"
        ),
        "functions.row_functions": "log_softmax normalize softmax",
        "ops.norms.functional": "layer_norm layer_norm_backward rms_norm rms_norm_backward",
        "ops.norms.modules": "LayerNorm RMSNorm",
        "ops.norms.onnx_ops": "layer_normalization rms_normalization",
        "ops.norms.resolved": "NormOutput",
        "choice.defaults": "default_variant",
        "errors": "WebnormError",
        "gpu.buffers": "Inputs Outputs",
        "engines.catalog": "engine_names",
        "gpu.device": "Device adapters find_adapter open_device",
        "gpu.pipelines": "compile_shader",
        "gpu.schedule": "Plan",
        "kernels.headers.kernel": "Kernel",
        "kernels.headers.library": "discover select",
        "kernels.rendering.render": "Shader render_shader",
        "kernels.headers.variants": "Variant all_variants runnable_variants",
        "lab.verify.accuracy": "Accuracy assess tolerance",
        "lab.report.findings": "Changes Findings",
        "lab.run.api": "bench check compare",
        "lab.run.submission": "Evaluation evaluate",
        "op.op": "make_inputs",
    }.items()
    for name in names.split()
}
# Those that are called otherwise where they are at home.
_HOME |= {"Options": "ops.norms.problem:NormOptions", "Problem": "ops.norms.problem:NormProblem"}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        module, _, own = _HOME[name].partition(":")
        found = getattr(importlib.import_module(f"webnorm.{module}"), own or name)
        # Who asks again finds it at once: to come here takes a microsecond of each call.
        globals()[name] = found
        return found
    raise AttributeError(f"module 'webnorm' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, imported or not, and the packages that are imported."""
    return sorted({*__all__, *(name for name in globals() if f"webnorm.{name}" in sys.modules)})
