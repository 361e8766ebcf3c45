"""Write the shapes and arguments of torch's public samples into torch_samples.json; it needs torch.

python -m bench.meanings.torch_samples

The samples come from torch's OpInfo and ModuleInfo, for float32 on the CPU. The file has no
values: webnorm draws them from the number of the sample.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from webnorm.files.atomic import write_text

SAMPLES = Path(__file__).with_name("torch_samples.json")
FUNCTIONS = (
    "nn.functional.group_norm",
    "nn.functional.instance_norm",
    "nn.functional.batch_norm",
    "nn.functional.layer_norm",
    "nn.functional.rms_norm",
    "nn.functional.normalize",
    "softmax",
    "log_softmax",
)
MODULES = (
    "nn.GroupNorm",
    "nn.InstanceNorm1d",
    "nn.InstanceNorm2d",
    "nn.InstanceNorm3d",
    "nn.LayerNorm",
    "nn.RMSNorm",
    "nn.Softmax",
    "nn.Softmax2d",
    "nn.LogSoftmax",
)


def encoded(value: Any) -> Any:
    """Return an argument for JSON: {"shape": ...} for a tensor, {"dtype": ...} for a dtype."""
    import torch

    if isinstance(value, torch.Tensor):
        found = {"shape": list(value.shape)}
        # The order of the dimensions in memory, outermost first.
        order = sorted(range(value.ndim), key=lambda axis: -value.stride(axis))
        return found if value.is_contiguous() else {**found, "order": order}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, list | tuple | torch.Size):
        return [encoded(one) for one in value]
    return value


def encoded_call(args: Any, kwargs: Any) -> dict[str, Any]:
    """Return the arguments of a call for JSON."""
    return {"args": encoded(args), "kwargs": {name: encoded(value) for name, value in kwargs.items()}}


def of_functions() -> Iterator[dict[str, Any]]:
    """Yield the samples of OpInfo, also those that torch rejects."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        if op.name not in FUNCTIONS:
            continue
        name = {"function": op.name, "variant": op.variant_test_name}
        for sample in op.reference_inputs("cpu", torch.float32):
            yield {**name, **encoded_call((sample.input, *sample.args), sample.kwargs)}
        if op.error_inputs_func is not None:
            for one in op.error_inputs("cpu"):
                sample = one.sample_input
                call = encoded_call((sample.input, *sample.args), sample.kwargs)
                yield {**name, **call, "error": one.error_regex}


def of_modules() -> Iterator[dict[str, Any]]:
    """Yield the samples of ModuleInfo, for training and evaluation."""
    import torch
    from torch.testing._internal.common_modules import module_db

    for module in module_db:
        if module.name not in MODULES:
            continue
        for training in (True, False):
            for one in module.module_inputs_func(
                module, device="cpu", dtype=torch.float32, requires_grad=False, training=training
            ):
                made, forward = one.constructor_input, one.forward_input
                yield {
                    "module": module.name,
                    "variant": one.desc,
                    "training": training,
                    **encoded_call(made.args, made.kwargs),
                    "x": encoded(forward.args[0]),
                }


def main() -> None:
    """Write the file, one sample per line."""
    import torch

    lines = ",\n".join(json.dumps(one) for one in (*of_functions(), *of_modules()))
    version = json.dumps(torch.__version__.partition("+")[0])
    write_text(SAMPLES, f'{{"torch": {version}, "samples": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
