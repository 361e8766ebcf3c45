"""Record an adapter's results: every kernel beside the WGSL copy and, where torch has the card, its copy.

    python -m bench.record --out bench/results/NAME [--sweep] [--rows 65536 --cols 1024 ...]

writes NAME.json (readable by `webnorm compare`) and NAME.md. All variants of a shape and torch's copy are
sampled in turn, over buffers that are rotated past the cache.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from webnorm import bench, lab, presets, timing
from webnorm.device import Device, find_adapter, open_device
from webnorm.kernel import Variant, all_variants, chosen_variants, discover
from webnorm.problem import Problem
from webnorm.report import bench_table
from webnorm.results import Report, Result, to_json, to_markdown, write_text

_SWITCHED_OFF = (("hi_lo_mean", (0,)), ("subgroups", (0,)))


def torch_copy(problem: Problem, sets: int, dispatches: int) -> Callable[[], float] | None:
    """A sampler of torch's device-to-device copy of x, in ns; None where torch has no CUDA device."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    sources = [torch.randn(problem.rows, problem.cols, device="cuda") for _ in range(sets)]
    targets = [torch.empty_like(source) for source in sources]

    def sample() -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for index in range(dispatches):
            targets[index % sets].copy_(sources[index % sets])
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) * 1e6 / dispatches

    for _ in range(timing.WARM_UP_RUNS):
        sample()
    return sample


def swept(problem: Problem, device: Device) -> list[Variant]:
    """The copy, and the layouts worth a search of the two kernels that have a choice of them."""
    found: list[Variant] = []
    for kernel in discover():
        if kernel.name not in ("copy", "welford_subgroup", "registers"):
            continue
        for variant in all_variants(kernel):
            constants = variant.constants
            plain = constants.get("hi_lo_mean", 1) and constants.get("subgroups", 1)
            layout = (
                constants.get("threads_per_row", 32) >= 32 and constants.get("rows_per_workgroup", 1) <= 4
            )
            if plain and layout and constants.get("vector_width", 4) == 4:
                found.append(variant)
    return [variant for variant in found if variant.refusal(problem, device.traits) is None]


def asked(problem: Problem, device: Device) -> list[Variant]:
    """The copy in all its constants, every kernel at its defaults, and what the flagship's choices cost."""
    found: list[Variant] = []
    for kernel in discover():
        found += chosen_variants(kernel, problem, device.traits, {}, every=kernel.op.name == "copy")
        if kernel.name == "registers":
            for axis, values in (("threads_per_row", kernel.tune["threads_per_row"]), *_SWITCHED_OFF):
                found += chosen_variants(kernel, problem, device.traits, {axis: values})
    unlike = {str(variant): variant for variant in found}
    return [variant for variant in unlike.values() if variant.refusal(problem, device.traits) is None]


def measure(
    device: Device, problem: Problem, variants: list[Variant], rule: timing.Rule
) -> tuple[list[Result], float | None]:
    """The results in the order of the variants, and the median of torch's copy in nanoseconds."""
    sets = bench.sets_for(problem, device.traits)
    other = torch_copy(problem, sets, dispatches=max(sets, 8))
    job = lab.TimingJob(problem, tuple(lab.VariantSpec.of(v) for v in variants), (), sets, rule)
    results: dict[int, Result] = {}
    torch_samples: list[float] = []
    for event in lab.time_variants(device, job):
        match event:
            case lab.Round() if other is not None:
                torch_samples.append(other())
            case lab.Found(index, result):
                results[index] = result
    ordered = bench.against_copy([results[index] for index in sorted(results)], device.traits)
    return ordered, timing.statistics(torch_samples).median if torch_samples else None


def main() -> None:
    """Parse the arguments, measure, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="files to write, without suffix")
    parser.add_argument("--adapter")
    parser.add_argument("--rows", type=int, nargs="*")
    parser.add_argument("--cols", type=int, nargs="*")
    parser.add_argument(
        "--sweep", action="store_true", help="search the constants instead of taking the defaults"
    )
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    device = open_device(find_adapter(arguments.adapter))
    if arguments.rows:
        problems = tuple(Problem(rows=m, cols=n) for m, n in zip(arguments.rows, arguments.cols, strict=True))
    else:
        problems = presets.default_problems(device.traits.software, quick=False)
    rule = timing.Rule(least=arguments.rounds, most=arguments.rounds, budget_s=600)
    found: list[Result] = []
    lines = []
    for problem in problems:
        variants = swept(problem, device) if arguments.sweep else asked(problem, device)
        results, torch_ns = measure(device, problem, variants, rule)
        found += results
        best = max((r for r in results if r.op == "copy" and r.median_ns), key=lambda r: r.gbps or 0)
        assert best.median_ns is not None and best.bytes is not None
        if torch_ns is not None:
            ratio = torch_ns / best.median_ns
            lines.append(
                f"{problem}: WGSL copy {best.gbps:.0f} GB/s, torch copy {best.bytes / torch_ns:.0f} GB/s "
                f"(WGSL / torch = {ratio:.3f})"
            )
            print(lines[-1], flush=True)
        Console(width=160).print(bench_table(results, str(problem)))
    report = Report(device=device.description(), results=tuple(found))
    write_text(arguments.out.with_suffix(".json"), to_json(report))
    command = " ".join(["python -m bench.record", *sys.argv[1:]])
    header = f"Recorded {datetime.date.today()} with `{command}`.\n\n"
    write_text(
        arguments.out.with_suffix(".md"),
        header + "\n".join(f"- {line}" for line in lines) + "\n\n" + to_markdown(report),
    )


if __name__ == "__main__":
    main()
