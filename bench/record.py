"""Record an adapter's results: every kernel beside the WGSL copy and, where torch has the card, torch.

    python -m bench.record --out bench/results/NAME [--op OP --dtype DTYPE --rows 65536 --cols 1024 ...]

writes NAME.json (readable by `webnorm compare`) and NAME.md. All variants of a shape, torch's copy and
torch's own function are sampled in turn, over buffers that are rotated past the cache. Without --op, --rows
and --cols it takes the shapes that suit the adapter, forward and gradient, float32 and float16.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from dataclasses import dataclass

from rich.console import Console

from bench.arguments import ops_and_dtypes, parser
from bench.torch_ops import samplers
from webnorm import bench, lab, presets, timing
from webnorm.device import Device, find_adapter, open_device
from webnorm.kernel import Kernel, Variant, chosen_variants, discover
from webnorm.ops import plain
from webnorm.presets import Task
from webnorm.report import bench_table
from webnorm.results import Report, Result, to_json, to_markdown, write_text

# What the flagship's choices cost, one at a time.
_CHOICES = {
    "hi_lo_mean": (0,),
    "subgroups": (0,),
    "native_f16": (1,),
    "groups": (132, 264, 528, 1056),
}


@dataclass(frozen=True)
class Other:
    """What something that is not webnorm took: the median of its runs in ns, and GB/s."""

    name: str
    median_ns: float
    gbps: float


def asked(task: Task, device: Device) -> list[Variant]:
    """The copy with one to four accesses, every kernel at its defaults, and the flagship's choices."""
    found: list[Variant] = []
    for kernel in discover():
        if kernel.op.exact:
            accesses = {"accesses": kernel.tune["accesses"]}
            found += chosen_variants(kernel, plain(task.problem), device.traits, accesses)
        elif kernel.op is task.op:
            found += chosen_variants(kernel, task.problem, device.traits, {})
            if kernel.name == "registers":
                found += _choices(kernel, task, device)
    unlike = {str(variant): variant for variant in found}
    return [
        variant
        for variant in unlike.values()
        if variant.refusal(plain(task.problem) if variant.kernel.op.exact else task.problem, device.traits)
        is None
    ]


def _choices(kernel: Kernel, task: Task, device: Device) -> list[Variant]:
    found: list[Variant] = []
    (default,) = chosen_variants(kernel, task.problem, device.traits, {})
    threads = default.constants["threads_per_row"]
    near = tuple(n for n in kernel.tune["threads_per_row"] if threads // 2 <= n <= 2 * threads)
    for axis, values in {"threads_per_row": near, **_CHOICES}.items():
        if axis in kernel.tune:
            found += chosen_variants(kernel, task.problem, device.traits, {axis: values})
    return found


def measure(
    device: Device, task: Task, variants: list[Variant], rule: timing.Rule
) -> tuple[list[Result], list[Other]]:
    """The results in the order of the variants, and what torch took."""
    sets = bench.sets_for(task.op, task.problem, device.traits)
    others = samplers(task, sets)
    job = lab.TimingJob(task.problem, tuple(lab.VariantSpec.of(v) for v in variants), (), sets, rule)
    results: dict[int, Result] = {}
    samples: dict[str, list[float]] = {name: [] for name in others}
    for event in lab.time_variants(device, job):
        match event:
            case lab.Round():
                for name, (sample, _) in others.items():
                    samples[name].append(sample())
            case lab.Found(index, result):
                results[index] = result
    ordered = bench.against_copy([results[index] for index in sorted(results)], device.traits)
    medians = {name: timing.statistics(own).median for name, own in samples.items()}
    return ordered, [Other(name, medians[name], size / medians[name]) for name, (_, size) in others.items()]


def summary(task: Task, results: list[Result], others: list[Other]) -> str:
    """The shape in a line: the best copy, the fastest kernel, torch."""
    copy = max(r.gbps or 0.0 for r in results if r.roofline)
    best = max((r for r in results if not r.roofline and r.gbps), key=lambda r: r.gbps or 0.0)
    words = [f"{task}: WGSL copy {copy:.0f} GB/s"]
    words.append(f"{best.kernel} {best.gbps:.0f} ({100 * (best.gbps or 0) / copy:.1f} % of it)")
    words += [f"{other.name} {other.gbps:.0f} ({100 * other.gbps / copy:.1f} %)" for other in others]
    return ", ".join(words)


def tasks(arguments: argparse.Namespace, device: Device) -> list[Task]:
    """What the arguments ask for."""
    if arguments.rows:
        shapes = tuple(zip(arguments.rows, arguments.cols, strict=True))
    else:
        shapes = presets.default_shapes(device.traits.software, quick=False)
    ops, dtypes = ops_and_dtypes(arguments)
    return [task for op in ops for dtype in dtypes for task in presets.tasks(op, shapes, dtype=dtype)]


def main() -> None:
    """Parse the arguments, measure, write."""
    arguments = parser(__doc__, "files to write, without suffix").parse_args()
    device = open_device(find_adapter(arguments.adapter))
    rule = timing.Rule(least=arguments.rounds, most=arguments.rounds, budget_s=600)
    found: list[Result] = []
    lines = []
    for task in tasks(arguments, device):
        results, others = measure(device, task, asked(task, device), rule)
        found += results
        lines.append(summary(task, results, others))
        print(lines[-1], flush=True)
        Console(width=160).print(bench_table(results, str(task)))
        # After every shape: a run that is cut short keeps what it has.
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
