"""Run a list of variants on this process's adapter and print the errors.

Mesa sets llvmpipe's subgroup size when it loads, so each size needs its own process.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

from testbed import FAMILIES, STABLE, covering, run, suited
from webnorm.choice.defaults import default_variant
from webnorm.gpu.device import Device, open_device
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.variants import Variant
from webnorm.ops.norms.problem import NormProblem

# The variants cover all pairs over all sizes together. Each process tries the part with its own size.
SIZES = (4, 8, 16)
LAYOUTS = ((4, 1), (4, 8), (8, 1), (8, 4), (16, 2), (32, 1), (64, 1), (64, 2), (128, 1))
# A number of invocations that is no power of two, for a row that it divides evenly.
UNEVEN_COLS, UNEVEN = 384, ((96, 1),)
# Options for every reduction of an output, for rows that share words, and for workgroups that loop over rows.
FORWARD = ("float32,", "float16,out_dtype=int8", "bfloat16,out_dtype=float8_e4m3fn,residual,max_workgroups=2")
BACKWARD = ("float32,saved_stats=false", "float16,residual_bias,dh")


def problems(kernel: Kernel, cols: int) -> Iterator[NormProblem]:
    for text in BACKWARD if kernel.op.gradient else FORWARD:
        dtype, *options = (word for word in text.split(",") if word)
        problem = NormProblem(
            rows=11,
            cols=cols,
            dtype=dtype,
            distribution="mean1000",
            options=kernel.op.defaults.changed(options),
        )
        yield suited(kernel, problem)


def variants(kernel: Kernel, problem: NormProblem, device: Device) -> Iterator[Variant]:
    base = default_variant(kernel, problem, device.traits).constants
    layouts = list(LAYOUTS)
    if problem.cols == UNEVEN_COLS:
        layouts = [layout for layout in UNEVEN if layout[0] in kernel.tune["threads_per_row"]]
    for (threads_per_row, rows_per_workgroup), vector_width in itertools.product(layouts, (1, 4)):
        chosen = {
            "threads_per_row": threads_per_row,
            "rows_per_workgroup": rows_per_workgroup,
            "vector_width": vector_width,
            "subgroups": 1,
        }
        variant = Variant(kernel, {name: chosen.get(name, value) for name, value in base.items()})
        if variant.refusal(problem, device.traits) is None:
            yield variant


def main() -> None:
    device = open_device()
    wrong = []
    tried = []
    for family in FAMILIES.values():
        trials = (
            (variant, problem, size)
            for size in SIZES
            for kernel in family
            if kernel in STABLE and "subgroups" in kernel.features
            for cols in (3, 61, 128, UNEVEN_COLS)
            for problem in problems(kernel, cols)
            for variant in variants(kernel, problem, device)
        )
        for variant, problem, size in covering(trials):
            if size != device.subgroup_size:
                continue
            _, accuracy = run(device, variant, problem)
            tried.append(variant.kernel.label)
            if not accuracy.ok:
                wrong.append(f"{variant} {problem}: {accuracy.reason}")
    print(
        json.dumps(
            {"adapter": device.adapter.name, "size": device.subgroup_size, "tried": tried, "wrong": wrong}
        )
    )


if __name__ == "__main__":
    main()
