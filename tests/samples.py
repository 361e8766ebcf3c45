"""Results, tunings and tables of them, which several tests use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from webnorm._version import __version__
from webnorm.choice.tuning import Platform, TunedChoice, Tuning
from webnorm.lab.results.result import Origin, Report, Result
from webnorm.op.registry import OPS
from webnorm.ops.norms.problem import NormOptions, NormProblem

# All options of a forward pass that are on or off are on here.
EVERY_FLAG = NormOptions(
    **dict.fromkeys({*NormOptions.flags()} & {*OPS["layer_norm"].options}, True)  # type: ignore[arg-type]
)
PROBLEM = NormProblem(rows=64, cols=768, options=NormOptions(bias=False, out_dtype="int8"))


FULL = Result(
    op="layer_norm",
    kernel="registers",
    constants={"threads_per_row": 64, "vector_width": 4},
    problem=PROBLEM,
    status="pass",
    case="normal",
    max_abs_error=1.5e-6,
    max_rel_error=1.25e-6,
    tolerance=2e-6,
    non_finite=0,
    deterministic=True,
    median_ns=2000.0,
    p20_ns=1900.0,
    p80_ns=2100.0,
    samples_ns=(1900.0, 2000.0, 2100.0),
    runs=(1, 2),
    dispatches_per_sample=8,
    timing_method="timestamp",
    cache="cold",
    bytes=393216,
    gbps=196.6,
    percent_of_copy=80.0,
    flags=("noisy", "throttled"),
    render_ns=2e7,
    compile_ns=3e5,
    pipeline_ns=4e6,
    upload_ns=5e4,
    download_ns=6e4,
    upload_bytes=196608,
    download_bytes=196608,
)


BARE = Result(op="layer_norm", kernel="naive", constants={}, problem=PROBLEM, status="skip", reason="no room")
REPORT = Report(device={"adapter": "llvmpipe", "limits": {"max-buffer-size": 1}}, results=(FULL, BARE))


def timed(kernel: str, median: float, **changes: Any) -> Result:
    samples = tuple(median * (1 + 0.01 * (i % 3 - 1)) for i in range(9))
    time = {"median_ns": median, "samples_ns": samples, "runs": None, "gbps": 393216 / median}
    return replace(FULL, kernel=kernel, **{**time, "flags": (), **changes})


ORIGIN = Origin(
    run="0f", recorded="2026-11-22T08:00:00Z", command="webnorm bench", host="here", commit="ab-dirty"
)


PLATFORM = Platform(
    adapter="Some GPU (x/y)", backend="Vulkan", driver="1.2", wgpu="0.32.0", webnorm=__version__
)
TUNED_PROBLEM = NormProblem(rows=1000, cols=64)


def choice(problem: NormProblem = TUNED_PROBLEM, **changes: Any) -> TunedChoice:
    base = TunedChoice(
        op="layer_norm",
        problem=problem,
        kernel="two_pass",
        constants={"threads_per_row": 16, "hi_lo_mean": 1},
        speedup=1.25,
        percent_of_copy=90.5,
        tried=12,
    )
    return replace(base, **changes)


def tuned(*choices: TunedChoice, platform: Platform = PLATFORM) -> Tuning:
    return Tuning(platform=platform, date="2026-01-31", choices=choices or (choice(),))


COPIES = [replace(timed(name, 900.0 + at), op="copy") for at, name in enumerate(("copy", "copy_vec4"))]
MIXED_PROBLEM = NormProblem(rows=4096, cols=1024)


def result(kernel: str, gbps: float | None = None, **changes: Any) -> Result:
    size = 2 * 4 * 4096 * 1024
    timing: dict[str, Any] = {}
    if gbps is not None:
        median = size / gbps
        timing = {"median_ns": median, "gbps": gbps, "timing_method": "timestamp", "cache": "cold"}
        timing |= {"p20_ns": 0.9 * median, "p80_ns": 1.2 * median}
    base = Result(
        op="copy" if kernel == "copy" else "layer_norm",
        kernel=kernel,
        constants={"threads_per_row": 256, "rows_per_workgroup": 4, "vector_width": 4},
        problem=MIXED_PROBLEM,
        status="pass",
        bytes=size,
        max_abs_error=1.2e-6,
        max_rel_error=1.2e-6,
        **timing,
    )
    return replace(base, **changes)


MIXED = [
    result("one_pass", status="fail", expected=True, reason="[0, 3] is nan", max_abs_error=math.nan),
    result("welford_subgroup", 150.0, percent_of_copy=75.0),
    result("copy", 180.0),
    result("copy", 200.0, percent_of_copy=100.0),
    result("registers", 190.0, percent_of_copy=95.0, flags=("noisy",)),
    result("registers", 100.0, percent_of_copy=50.0),
    result("naive", status="skip", reason="[red]too long[/red]"),
    result("split_row", status="fail", reason="[1, 2] is 3, expected 4", max_abs_error=1.0),
]

KEPT_PROBLEM = NormProblem(rows=64, cols=768)
CARD = {
    "adapter": "Some GPU",
    "vendor": "Some",
    "backend": "Vulkan",
    "type": "DiscreteGPU",
    "driver": "1.2",
    "wgpu": "0.32.0",
}


def kept_run(at: int, kernels: Mapping[str, float], copy: float | None = 900.0, **changes: Any) -> Report:
    """Return the report of run number `at`, with a result per kernel. A copy with a time also has one."""
    times = kernels if copy is None else {"copy": copy, **kernels}
    results = tuple(
        timed(
            name,
            time,
            **{"op": "copy"} if name == "copy" else {},
            problem=KEPT_PROBLEM,
            case=None,
            # All samples of a round are slow together, and all runs differ.
            samples_ns=tuple(time * (1 + 0.01 * ((7 * round_ + at) % 5 - 2)) for round_ in range(15)),
        )
        for name, time in times.items()
    )
    moment = datetime(2026, 11, 1, tzinfo=UTC) + timedelta(days=at)
    origin = replace(ORIGIN, run=f"{at:032x}", recorded=moment.strftime("%Y-%m-%dT%H:%M:%SZ"))
    return replace(
        Report(device=CARD, results=results, complete=True, origin=origin),
        **changes,
    )
