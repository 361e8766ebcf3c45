"""`webnorm check`: check every kernel against float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from webnorm.cli.options import shared, values
from webnorm.cli.terminal.screen import Screen
from webnorm.cli.work.engine_runs import run_in_engines
from webnorm.cli.work.jobs import MeasuringJob, OpenWorker
from webnorm.cli.work.model_norms import model_problems
from webnorm.cli.work.outputs import check_outputs
from webnorm.errors import counted

if TYPE_CHECKING:
    from webnorm.fleet.work_items import WorkItem
    from webnorm.kernels.headers.traits import Traits
    from webnorm.lab.results.result import Result
    from webnorm.lab.run.check import CheckRequest
    from webnorm.lab.run.requests import Coverage

# The parts of the work per worker of a cluster. Fewer parts would leave workers idle at the end, and more
# parts would open the adapter more often. The second number is the fewest cases of a part.
_PARTS, _FEWEST_CASES = 4, 4


def check(
    kernel: shared.Kernel = None,
    op: shared.Ops = None,
    model: shared.Model = None,
    dim: shared.Dims = None,
    dtype: shared.Dtypes = None,
    option: shared.Option = None,
    case: Annotated[
        list[str] | None,
        Option(help="Run only these cases: a name, a list, or a pattern such as 'cols-*'. Repeatable."),
    ] = None,
    seed: shared.Seed = None,
    input: Annotated[
        Path | None,
        Option(
            help="Check the array of an .npy file, in its own type, instead of the corpus. For "
            "bfloat16, which .npy files do not name, add --dtype bfloat16."
        ),
    ] = None,
    eps: shared.Eps = None,
    scalar: shared.Scalars = None,
    scale: Annotated[
        float | None, Option(help="Multiply y by X before rounding it to a float8 type.")
    ] = None,
    constant: shared.Constant = None,
    all_constants: shared.AllConstants = False,
    wgsl: shared.Wgsl = None,
    adapter: shared.Adapter = None,
    engine: shared.Engines = None,
    backend: shared.Backend = None,
    cluster: shared.Cluster = None,
    time_limit: shared.TimeLimit = 60.0,
    allow_skipped: shared.AllowSkipped = False,
    json: Annotated[
        Path | None, Option(help="Write the results to FILE as JSON; - is standard output.")
    ] = None,
    cases: Annotated[
        bool,
        Option("--cases", help="List the cases with their sources and exit; --op selects an op's cases."),
    ] = False,
    verbose: shared.Verbose = False,
) -> None:
    """The corpus has cases for every option. --option, --eps and --scale use the same options and values in
    every case instead. Random numbers, and some shapes and options, change in every run. Pass the printed
    seed to --seed to repeat them.

    With --model, every kernel runs on the model's own shapes, with the usual and the hostile draws of each
    op. A smaller batch limits a case to about a million elements; sizes that are compiled in stay.
    """
    from webnorm.cli.work.overview import corpus_table
    from webnorm.lab.run import requests
    from webnorm.lab.run.requests import Coverage
    from webnorm.op.corpus import Overrides, cases_of, whole_corpus
    from webnorm.op.selection import ops_named

    console = Screen(stderr=str(json) == "-")
    seed = requests.seed_or_random(seed)
    norms, names = model_problems(model, dim, dtype), requests.kernel_names(kernel)
    ops = norms.ops or ops_named(op)
    corpus = whole_corpus(seed, ops)
    if cases:
        console.print(corpus_table(corpus if op is None else cases_of(corpus, ops)))
        return
    outputs = {"--json": json}
    check_outputs(outputs, [*filter(None, [input]), *values.kernel_files(kernel, wgsl)])
    chosen = case and ",".join(case)
    scalars = values.scalar_values(scalar, eps=eps, scale=scale)
    changes = Overrides(None if option is None else tuple(option), scalars)
    constants = values.constant_values(constant)
    request = requests.check_request(names, ops, roots=wgsl or (), chosen=constants, every=all_constants)
    job = _Check(
        outputs=outputs,
        console=console,
        seed=seed if input is None else None,
        allow_skipped=allow_skipped,
        skipped=norms.skipped,
        request=requests.with_model(request, norms.tasks, seed)
        if norms.tasks
        else requests.with_cases(request, corpus, chosen, input, dtype, changes),
        named=Coverage.of(op, dtype, names, chosen),
        names=names,
        input=input,
        given={"ops": ops, "cases": chosen, "seed": seed, "dtype": dtype, "model": norms.tasks},
        verbose=verbose,
    )
    run_in_engines(engine or (), job, adapter, cluster, time_limit)


@dataclass(kw_only=True)
class _Check(MeasuringJob):
    """The work of `webnorm check`.

    `found` maps parts of the request to their results, and `overall` are results about the whole corpus.
    `names` are the kernels of --kernel. A CheckItem also gets `given`.
    """

    request: CheckRequest
    named: Coverage
    names: Sequence[str] | None
    input: Path | None
    given: Mapping[str, Any]
    verbose: bool
    found: dict[int, list[Result]] = field(default_factory=dict, init=False)
    overall: list[Result] = field(default_factory=list, init=False)
    parts: list[tuple[int, int]] = field(default_factory=list, init=False)
    left_to_gpus: Sequence[str] = field(default=(), init=False)
    times = False
    done = "checked"

    @property
    def coverage(self) -> Coverage:
        model = self.given["model"]
        # Each norm of a model needs a checked result, and so each of its cases.
        return (
            replace(self.named, cases=tuple(one.name for one in self.request.cases)) if model else self.named
        )

    def begin(self, traits: Traits) -> None:
        self.left_to_gpus = self.request.left_to_gpus(traits)
        if self.request.ladder:
            self.request = replace(self.request, tuning=values.recorded_tuning(self.device))

    def work(self, opened: OpenWorker) -> None:
        from webnorm.lab.run import check

        self.begin(opened.traits)
        expected, wrong = self.request.count(), 0
        found = self.found.setdefault(0, [])
        for result in check.case_results(self.request, opened.worker, opened.traits):
            found.append(result)
            share = min(1.0, len(found) / expected)
            wrong += result.status in ("fail", "error") and not result.expected
            failed = f"; {wrong} FAIL" if wrong else ""
            current = f"{result.op}, {result.problem.dtype}, {result.case}: {result.kernel}"
            opened.update(f"{len(found)} of {max(expected, len(found))}{failed}: {current}", share)

    def work_items(self, time_limit_s: float, workers: int) -> Sequence[WorkItem]:
        from webnorm.fleet.shipped_files import ShippedFiles
        from webnorm.fleet.work_items import CheckItem

        count = len(self.request.tasks)
        size = max(_FEWEST_CASES, -(-count // (_PARTS * workers)))
        self.parts = [(at, min(count, at + size)) for at in range(0, count, size)]
        request = self.request
        item = partial(
            CheckItem,
            time_limit_s=time_limit_s,
            files=ShippedFiles.of(self.names, request.roots, self.input),
            chosen=request.chosen or {},
            every=request.every,
            changes=request.changes,
            tuning=request.tuning,
            **self.given,
        )
        return [item(part=part) for part in self.parts]

    def record(self, at: int, found: list[Result]) -> None:
        self.found[at] = found

    def record_missing(self, at: int, reason: str, lost: bool) -> None:
        from webnorm.lab.run import bench

        tasks = self.request.tasks[slice(*self.parts[at])]
        self.lost += len(tasks) if lost else 0
        kernels = self.request.kernels
        gone = (bench.unrun_results(kernels, task, reason, case.name, lost) for case, task in tasks)
        self.record(at, [result for results in gone for result in results])

    def finish(self, complete: bool) -> None:
        """Save and show the results; a complete corpus adds results about all of them."""
        from webnorm.lab.run import check

        if complete:
            self.overall = list(check.corpus_results(self.request, self.results()))
        super().finish(complete)

    def results(self) -> Sequence[Result]:
        found = [result for at in sorted(self.found) for result in self.found[at]]
        return [*found, *self.overall]

    def show_results(self) -> None:
        from webnorm.cli.verbs.check_view import CheckTable
        from webnorm.cli.work.compile_errors import compile_error_lines
        from webnorm.cli.work.overview import device_line
        from webnorm.op.model_cases import MOST_ELEMENTS, limited

        found = self.results()
        self.console.print(device_line(self.device))
        for mistake in compile_error_lines(found):
            self.console.print(mistake, soft_wrap=True)
        self.console.print(CheckTable(found, self.verbose))
        limits = sum(limited(task) != task.problem for task in self.given["model"])
        if limits:
            most = f"{counted(limits, 'norm')} ran with a smaller batch than the model's: at most about "
            self.console.print(f"{most}{MOST_ELEMENTS} elements for a case")
        if self.left_to_gpus:
            self.console.print(f"too large for a software adapter, not run: {', '.join(self.left_to_gpus)}")
