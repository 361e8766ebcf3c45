"""Time wgpu and Dawn next to each other: the same shaders on the same card, in one run.

    python -m bench.backends --out DIR [--variants] [--write] [--op OP ...] [--quick]

Two worker processes, one per backend, prepare the variant that auto chooses on wgpu. They take turns: in each
round first one backend takes some samples and then the other, in the next round in reverse order. Times are
medians, and a ratio is the median of the rounds' ratios. Outputs are compared with float64 once.

--variants also times small shaders, and the problems whose times differ most, with parts of the compilers'
safety measures left out. A Vulkan layer, which needs a C compiler, saves the SPIR-V of both compilers. --out
writes backends.md and shaders.zip into DIR; --write writes bench/results/backends.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench import backend_jobs, markdown
from bench.arguments import bare_parser, command, positive, run
from bench.backend_jobs import SPIRV_VARIABLE, PrepareJob, Setting
from bench.backend_variants import VARIANTS, instruction_table
from bench.markdown import GrowingReport
from webnorm.choice.defaults import choose
from webnorm.errors import WebnormError
from webnorm.gpu.backend_names import BACKENDS, dawn_module
from webnorm.gpu.device import adapter_text
from webnorm.gpu.timing import statistics
from webnorm.kernels.headers.library import discover
from webnorm.kernels.headers.traits import DEVICE_FEATURES, Traits
from webnorm.lab.process.worker import Worker, explain_worker_failure
from webnorm.lab.run import bench
from webnorm.lab.run.jobs import VariantSpec
from webnorm.op.op import Task
from webnorm.op.registry import OPS, as_copy_problem, copy_op

_RESULTS = Path(__file__).with_name("results") / "backends.md"
_LAYER = Path(__file__).with_name("spirv_layer.c")
_LAYER_NAME = "VK_LAYER_WEBNORM_spirv"
_OPS = ("layer_norm", "rms_norm", "layer_norm_backward", "softmax")
_SHAPES = ((4096, 1024), (4096, 4096), (8192, 8192), (1, 4096), (65536, 256))
_QUICK_SHAPES = ((16, 256),)
# Ratios further from 1 need an explanation.
_DIFFERS = 0.02
# The most problems that are timed under every setting.
_EXPLAINED = 24
# The share of the time for the problems.
_PROBLEMS_SHARE = 0.6
_TOGGLES = ("disable_robustness", "disable_workgroup_init", "disable_polyfills_on_integer_div_and_mod")
PLAIN = (Setting("wgpu", "wgpu"), Setting("Dawn", "dawn"))
# WGPUShaderRuntimeChecks_BoundsChecks is bit 0, and _ForceLoopBounding is bit 1.
RELAXED = (
    Setting("wgpu, loops unguarded", "wgpu", checks=1),
    Setting("wgpu, indices unchecked", "wgpu", checks=2),
    Setting("wgpu, neither", "wgpu", checks=0),
    Setting("Dawn, indices unchecked", "dawn", _TOGGLES[:1]),
    Setting("Dawn, memory not zeroed", "dawn", _TOGGLES[1:2]),
    Setting("Dawn, divisors unchecked", "dawn", _TOGGLES[2:]),
    Setting("Dawn, none of these", "dawn", _TOGGLES),
)


@dataclass(frozen=True)
class Common:
    """The traits that both devices share, and a sentence for each thing that one of them lacks.

    `removed` are the features that only one of them has.
    """

    traits: Traits
    wgpu: Traits
    removed: frozenset[str]
    lacking: tuple[str, ...]

    @classmethod
    def of(cls, traits: Mapping[str, Traits]) -> Common:
        """Compare the traits of the backends."""
        one, other = traits["wgpu"], traits["dawn"]
        least = Traits(
            one.features & other.features,
            min(one.max_invocations, other.max_invocations),
            min(one.workgroup_storage, other.workgroup_storage),
            one.software or other.software,
        )
        lacking = [
            f"{name} lacks {feature}"
            for name, own in traits.items()
            for feature in sorted((one.features | other.features) - own.features)
            if feature in DEVICE_FEATURES
        ]
        for what, limit in (
            ("invocations per workgroup", "max_invocations"),
            ("bytes of workgroup memory", "workgroup_storage"),
        ):
            if getattr(one, limit) != getattr(other, limit):
                lacking.append(f"{what} are at most {getattr(least, limit)}")
        return cls(least, one, one.features ^ other.features, tuple(lacking))

    def job(self, setting: Setting, task: Task | None = None) -> PrepareJob:
        """Return the job of a setting, for auto's choice on wgpu if both devices can run it."""
        limits = (
            ("max-compute-invocations-per-workgroup", self.traits.max_invocations),
            ("max-compute-workgroup-storage-size", self.traits.workgroup_storage),
        )
        job = PrepareJob(setting, self.removed, limits)
        if task is None:
            return job
        variant = choose(discover(), task, self.wgpu).variant
        if variant.refusal(task.problem, self.traits) is not None:
            variant = choose(discover(), task, self.traits).variant
        sets = bench.sets_for(task, self.traits)
        return replace(job, task=task, spec=VariantSpec.of(variant), sets=sets, checked=setting in PLAIN)


@dataclass
class Times:
    """The samples of several settings in nanoseconds: [setting][what is sampled][round][sample]."""

    names: tuple[str, ...]
    samples: dict[str, list[list[list[float]]]] = field(default_factory=dict)
    unsettled: set[str] = field(default_factory=set)

    def add(self, setting: str, found: Sequence[list[float]], settled: bool) -> None:
        """Add a setting's samples of one round."""
        rounds = self.samples.setdefault(setting, [[] for _ in self.names])
        for own, fresh in zip(rounds, found, strict=True):
            own.append(fresh)
        self.unsettled |= set() if settled else {setting}

    def median(self, setting: str, what: str) -> float:
        """Return the median of all samples."""
        return statistics(self._flat(setting, what)).median

    def spread(self, setting: str, what: str) -> float:
        """Return (p80 - p20) / median of all samples."""
        return statistics(self._flat(setting, what)).spread

    def ratios(self, what: str, setting: str = "Dawn", to: str = "wgpu") -> list[float]:
        """Return the ratio of the medians of each round."""
        at = self.names.index(what)
        pairs = zip(self.samples[setting][at], self.samples[to][at], strict=True)
        return [float(np.median(one) / np.median(other)) for one, other in pairs]

    def _flat(self, setting: str, what: str) -> list[float]:
        return [one for own in self.samples[setting][self.names.index(what)] for one in own]


def started(stack: ExitStack, adapter: str | None) -> dict[str, Worker]:
    """Return a worker for each backend, which ends with the stack."""
    return {name: stack.enter_context(Worker(adapter, engine=name)) for name in BACKENDS}


class Pair:
    """The two workers, which take turns."""

    def __init__(self, workers: Mapping[str, Worker], rounds: int, samples: int) -> None:
        self._workers, self._rounds, self._samples = workers, rounds, samples

    def ask(self, setting: Setting, work: Any, job: Any) -> list[Any]:
        """Return all that a task yields in the setting's worker."""
        with explain_worker_failure(setting.name):
            return list(self._workers[setting.backend].stream(work, job))

    def times(self, jobs: Sequence[PrepareJob], names: Sequence[str]) -> Times:
        """Prepare the jobs, then sample them in turn; every second round is in reverse order."""
        found = Times(tuple(names))
        try:
            for job in jobs:
                self.ask(job.setting, backend_jobs.prepare, job)
            for number in range(self._rounds):
                for job in jobs if number % 2 == 0 else reversed(jobs):
                    ((samples, settled),) = self.ask(
                        job.setting, backend_jobs.sample, (job.setting, self._samples)
                    )
                    found.add(job.setting.name, samples, settled)
        finally:
            for setting in PLAIN:
                self.ask(setting, backend_jobs.forget, None)
        return found


def problem_row(job: PrepareJob, times: Times) -> str:
    """Return a problem's line of the table."""
    assert job.task is not None and job.spec is not None
    task, spec = job.task, job.spec
    constants = " ".join(f"{axis}={value}" for axis, value in spec.constants.items())
    share = task.op.minimum_bytes(task.problem) / copy_op().minimum_bytes(as_copy_problem(task.problem))
    ratios, copies = statistics(times.ratios("kernel")), statistics(times.ratios("copy"))
    cells = [f"{task}", f"{spec.path.stem} {constants}"]
    cells += [f"{times.median(name, 'kernel') / 1000:.2f}" for name in ("wgpu", "Dawn")]
    cells += [f"{ratios.median:.3f}", f"{ratios.p20:.3f} to {ratios.p80:.3f}", f"{copies.median:.3f}"]
    cells += [
        f"{100 * share * times.median(name, 'copy') / times.median(name, 'kernel'):.1f}"
        for name in ("wgpu", "Dawn")
    ]
    cells += [f"{100 * times.spread(name, 'kernel'):.1f}" for name in ("wgpu", "Dawn")]
    cells.append(", ".join(f"{name} unsettled" for name in sorted(times.unsettled)))
    return markdown.row(cells)


PROBLEM_HEAD = (
    "| problem | kernel | us, wgpu | us, Dawn | ratio | p20 to p80 of rounds | copy's ratio "
    "| % of copy, wgpu | % of copy, Dawn | spread %, wgpu | spread %, Dawn | |",
    "|---|---|" + "---:|" * 9 + "---|",
)


def settings_table(times: Times, settings: Sequence[Setting]) -> list[str]:
    """Return a Markdown table of microseconds under each setting."""
    lines = markdown.head("", [*(one.name for one in settings), "Dawn / wgpu"])
    for what in times.names:
        cells = [f"{times.median(one.name, what) / 1000:.2f}" for one in settings]
        lines.append(markdown.row([what, *cells, f"{statistics(times.ratios(what)).median:.3f}"]))
    return lines


@contextmanager
def _layer() -> Iterator[str | None]:
    """Build the layer and have new processes load it; provide the reason if that is not possible."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        yield "there is no C compiler"
        return
    with tempfile.TemporaryDirectory() as place:
        folder, modules = Path(place), Path(place, "modules")
        modules.mkdir()
        library = folder / "spirv_layer.so"
        built = subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(_LAYER)], capture_output=True
        )
        if built.returncode:
            yield f"{compiler} cannot build {_LAYER.name}"
            return
        about = {"name": _LAYER_NAME, "type": "GLOBAL", "library_path": str(library), "api_version": "1.3.0"}
        about |= {"implementation_version": "1", "description": "writes SPIR-V modules to files"}
        manifest = {"file_format_version": "1.0.0", "layer": about}
        (folder / "layer.json").write_text(json.dumps(manifest), encoding="utf-8")
        added = {"VK_LAYER_PATH": place, "VK_INSTANCE_LAYERS": _LAYER_NAME, SPIRV_VARIABLE: str(modules)}
        before = dict(os.environ)
        os.environ.update(added)
        try:
            yield None
        finally:
            os.environ.clear()
            os.environ.update(before)


def save_shaders(
    common: Common, tasks: Sequence[Task | None], adapter: str | None, out: Path
) -> Iterator[str]:
    """Save the WGSL and SPIR-V of tasks to a ZIP file; yield lines about what differs.

    Workers of their own load the layer, so that the timed ones run without it.
    """
    with _layer() as reason, ExitStack() as stack:
        if reason is not None:
            yield f"The SPIR-V is not compared: {reason}."
            return
        pair = Pair(started(stack, adapter), 0, 0)
        archive = stack.enter_context(zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED))
        for task in tasks:
            found: dict[str, dict[str, tuple[bytes, ...]]] = {}
            for setting in (*PLAIN, RELAXED[2], RELAXED[-1]):
                job = common.job(setting, task)
                for name, text, modules in pair.ask(setting, backend_jobs.compile_shaders, job):
                    found.setdefault(name, {})[setting.name] = modules
                    archive.writestr(f"{name}/{setting.name}.wgsl", text)
                    for number, module in enumerate(modules):
                        archive.writestr(f"{name}/{setting.name}.{number}.spv", module)
            for name, modules in found.items():
                yield from (f"\n### Instructions of {name}\n", *instruction_table(modules))


def problems(ops: Sequence[str], quick: bool) -> list[Task]:
    """Return the problems, in an order in which the time limit leaves out whole shapes."""
    shapes = _QUICK_SHAPES if quick else _SHAPES
    dtypes = ("float32", "float16")
    return [
        Task(OPS[op], OPS[op].problem(*_sizes(op, shape), dtype=dtype))
        for shape in shapes
        for dtype in dtypes
        for op in ops
    ]


def _sizes(op: str, shape: tuple[int, int]) -> tuple[int, ...]:
    """Return the sizes of an op for rows and columns. A softmax has one row per batch element."""
    return (shape[0], 1, shape[1]) if op == "softmax" else shape


def compare(
    pair: Pair, common: Common, tasks: Sequence[Task], until: float, report: GrowingReport
) -> list[Task]:
    """Report the times of all problems; return those whose times differ, the most different first."""
    report.add("", *PROBLEM_HEAD)
    found: dict[Task, float] = {}
    failures: list[str] = []
    for at, task in enumerate(tasks):
        if time.monotonic() > until:
            failures.append(f"The time limit left out {', '.join(map(str, tasks[at:]))}.")
            break
        try:
            jobs = [common.job(setting, task) for setting in PLAIN]
            times = pair.times(jobs, ("copy", "kernel"))
        except WebnormError as error:
            failures.append(f"{task}: {error}")
            continue
        report.add(problem_row(jobs[0], times))
        difference = abs(statistics(times.ratios("kernel")).median - 1)
        if difference > _DIFFERS:
            found[task] = difference
    report.add("", *failures)
    return sorted(found, key=lambda task: -found[task])


def explain(pair: Pair, common: Common, tasks: Sequence[Task], until: float, report: GrowingReport) -> None:
    """Report the times of the small shaders, and of some problems, under every setting."""
    settings = (*PLAIN, *RELAXED)
    names = [one.name for one in VARIANTS]
    small = pair.times([common.job(one) for one in settings], names)
    report.add("\n## Small shaders, microseconds\n", *settings_table(small, settings))
    for task in tasks:
        if time.monotonic() > until:
            return
        try:
            times = pair.times([common.job(one, task) for one in settings], ("copy", "kernel"))
        except WebnormError as error:
            report.add(f"\n{task}: {error}")
            continue
        report.add(f"\n## {task}, microseconds\n", *settings_table(times, settings))


def arguments() -> argparse.Namespace:
    """Parse the arguments."""
    found = bare_parser(__doc__)
    found.add_argument("--out", type=Path, metavar="DIR", help="write backends.md and shaders.zip into DIR")
    found.add_argument("--write", action="store_true", help="write bench/results/backends.md")
    found.add_argument("--variants", action="store_true", help="look for the causes of differences")
    found.add_argument("--quick", action="store_true", help="small problems and few samples")
    found.add_argument("--op", choices=_OPS, nargs="+", default=list(_OPS))
    found.add_argument("--adapter", help="an adapter that both backends have")
    found.add_argument("--seconds", type=positive, default=420, help="start nothing new after these seconds")
    return found.parse_args()


def main() -> None:
    """Compare the backends, and report what was found."""
    asked, began = arguments(), time.monotonic()
    dawn_module()
    paths = [_RESULTS] if asked.write else []
    if asked.out is not None:
        asked.out.mkdir(parents=True, exist_ok=True)
        paths.append(asked.out / "backends.md")
    tasks = problems(asked.op, asked.quick)
    with ExitStack() as stack:
        workers = started(stack, asked.adapter)
        pair = Pair(workers, *((2, 2) if asked.quick else (6, 5)))
        with explain_worker_failure("opening the adapters"):
            devices = {name: bench.device_of(worker) for name, worker in workers.items()}
        common = Common.of({name: traits for name, (_, traits) in devices.items()})
        report = GrowingReport(paths)
        described = {name: about for name, (about, _) in devices.items()}
        report.add(*heading(described, common, asked.out))
        share = _PROBLEMS_SHARE if asked.variants else 1.0
        differing = compare(pair, common, tasks, began + share * asked.seconds, report)[:_EXPLAINED]
        if asked.variants:
            explain(pair, common, differing, began + asked.seconds, report)
    if asked.variants and asked.out is not None:
        saved = asked.out / "shaders.zip"
        report.add("\n## Generated code\n", *save_shaders(common, [None, *differing], asked.adapter, saved))


def heading(described: Mapping[str, Mapping[str, Any]], common: Common, out: Path | None) -> list[str]:
    """Return the beginning of the report: adapters, the command, and what the devices lack."""
    found = [f"# wgpu and Dawn on {described['wgpu']['adapter']}", ""]
    found += [f"- {name} {one['wgpu'].split()[-1]}: {adapter_text(one)}" for name, one in described.items()]
    if described["wgpu"]["adapter"] != described["dawn"]["adapter"]:
        found.append("- **The adapters differ**, so that the ratios do not compare the backends.")
    found += [f"- {one}; both devices are opened alike" for one in common.lacking]
    return [*found, "", f"Recorded {datetime.date.today()} with `{command('bench.backends', out)}`."]


if __name__ == "__main__":
    run(main)
