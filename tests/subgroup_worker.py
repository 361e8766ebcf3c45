"""Run a list of variants on this process's adapter, natively and as browser text, and print what was wrong.

The subgroup size of llvmpipe is fixed when Mesa is loaded: hence a process for each.
"""

from __future__ import annotations

import json
from dataclasses import replace

from lab import kernel_named, run_shader
from webnorm.device import open_device
from webnorm.kernel import Variant
from webnorm.problem import Problem, make_inputs
from webnorm.render import render_shader

LAYOUTS = ((4, 1), (4, 8), (8, 1), (8, 4), (16, 2), (32, 1), (64, 1), (64, 2), (128, 1))


def variants() -> list[Variant]:
    found = []
    for threads_per_row, rows_per_workgroup in LAYOUTS:
        layout = {"threads_per_row": threads_per_row, "rows_per_workgroup": rows_per_workgroup}
        for vector_width in (1, 4):
            width = {"vector_width": vector_width}
            found.append(Variant(kernel_named("welford_subgroup"), {**layout, **width}))
            for subgroups in (1, 0) if vector_width == 4 else (1,):
                constants = {**layout, **width, "subgroups": subgroups, "hi_lo_mean": 1}
                found.append(Variant(kernel_named("registers"), constants))
    return found


def main() -> None:
    device = open_device()
    wrong = []
    tried = 0
    for cols in (3, 61, 128):
        problem = Problem(rows=11, cols=cols, distribution="mean1000")
        arrays = make_inputs(problem)
        for variant in variants():
            if variant.refusal(problem, device.traits) is not None:
                continue
            for target in ("native", "browser") if cols != 3 else ("native",):
                shader = render_shader(variant, problem, target, device.traits)
                # naga has subgroups without asking and does not know the line that Tint needs.
                shader = replace(shader, text=shader.text.replace("enable subgroups;", ""))
                _, accuracy = run_shader(device, shader, arrays)
                tried += 1
                if not accuracy.ok:
                    wrong.append(f"{target} {variant} {problem}: {accuracy.reason}")
    print(
        json.dumps(
            {"adapter": device.adapter.name, "size": device.subgroup_size, "tried": tried, "wrong": wrong}
        )
    )


if __name__ == "__main__":
    main()
