"""What the commands bench, check and compare do as functions, for scripts and notebooks."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, SupportsIndex, cast

from webnorm import signals
from webnorm.choice.tuning import Platform, Tuning, applicable
from webnorm.errors import WebnormError, shown
from webnorm.gpu import timing
from webnorm.gpu.seconds import LEAST_BUDGET, LEAST_SILENCE, check_seconds
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.traits import Traits
from webnorm.lab.process.worker import Worker, explain_worker_failure
from webnorm.lab.report import baselines
from webnorm.lab.report import comparison as comparing
from webnorm.lab.report.findings import Changes, Findings
from webnorm.lab.results.result import Report, Result, origin_of
from webnorm.lab.run import bench as benchmark
from webnorm.lab.run import check as checking
from webnorm.lab.run import requests
from webnorm.lab.run.bench import Progress
from webnorm.lab.run.requests import Coverage
from webnorm.op.corpus import Overrides as OfCases
from webnorm.op.corpus import whole_corpus
from webnorm.op.dtypes import Array
from webnorm.op.op import Op
from webnorm.op.selection import ops_named, split_names
from webnorm.op.selection import sizes as size_list

Names = str | Sequence[str]


class OpLike(Protocol):
    """What `load_op` returns, as far as the lab knows it."""

    op: Op


Sizes = SupportsIndex | str | Iterable[SupportsIndex]
Constants = Mapping[str, int | Iterable[int]]
# Told where work stands: str(progress) in words, progress.share of all of it.
Told = Callable[[Progress], object]


@signals.deferring
def bench(
    kernels: Names | None = None,
    *,
    op: Names | OpLike = "layer_norm",
    rows: Sizes | None = None,
    cols: Sizes | None = None,
    sizes: Mapping[str, Sizes] | None = None,
    preset: str | None = None,
    dtype: Names | None = None,
    options: Names = (),
    distribution: str = "normal",
    eps: float | None = None,
    scale: float = 1.0,
    scalars: Mapping[str, float] | None = None,
    seed: int | None = None,
    constants: Constants | None = None,
    all_constants: bool = False,
    quick: bool = False,
    budget: float | None = None,
    runs: int = 1,
    at_once: bool = False,
    wgsl: Sequence[str | Path] = (),
    adapter: str | int | None = None,
    time_limit: float = 60.0,
    progress: Told | None = None,
) -> Findings:
    """Time kernels side by side with a copy, each checked against float64 before and after.

    A text may be a list as of the command line: op="rms*", dtype="all", cols="256..4k". The work is done in a
    process of its own, which ends with the call.

    Args:
        kernels: names, patterns such as "welford*", or paths of .wgsl files; None for all.
        op: the operations: layer_norm, rms_norm and their gradients, "all", or what `load_op` returned.
        rows: the numbers of rows; None for some that suit the adapter.
        cols: the numbers of columns; None likewise.
        sizes: the sizes of an op of your own, by name.
        preset: a named workload in place of op, rows and cols.
        dtype: the storage types; None for float32, or a preset's own.
        options: those of the op, such as "residual" or "out_dtype=int8"; "weight=false" leaves it out.
        distribution: how x is drawn.
        eps: added to the variance; None for the op's default.
        scale: what y is multiplied by before it is rounded to a float8 type.
        scalars: the scalars of an op of your own, by name.
        seed: what the numbers are drawn from; None for any.
        constants: values of tune axes instead of the default, by name.
        all_constants: every admitted point of every kernel's tune axes.
        quick: one small shape, few samples.
        budget: seconds of timing per problem and run, at most; 0.01 or more.
        runs: so many runs, each in a fresh process; `compare` needs 3 or more on both sides.
        at_once: time independent problems that may overlap on the device.
        wgsl: folders of kernels of your own, DIR/<op>/<kernel>.wgsl.
        adapter: index or part of the name; None for $WEBNORM_ADAPTER, or the first.
        time_limit: seconds that a kernel or its compiler may be silent before it is given up; 0.1 or more.
        progress: is called with where the work stands.

    Returns:
        The results of every kernel and of the copies, wrong ones included. `Findings.ok` is False if there is
        a wrong one, or if something that was asked for could not be checked; `Findings.unchecked` lists that.

    Raises:
        WebnormError: an unknown name, a value that makes no sense, or no adapter.
    """
    op = _names_of_ops(op)
    if preset is not None and (rows is not None or cols is not None):
        raise WebnormError("preset names its own op and shapes; leave op, rows and cols out")
    work = requests.Workload(
        op=op,
        dtype=dtype,
        # Public arguments, whose names and default op are those of the ops that come with webnorm.
        sizes={
            name: _sizes(given, name)
            for name, given in {"rows": rows, "cols": cols, **(sizes or {})}.items()
            if given is not None
        },
        preset=preset,
        options=tuple(split_names(options, "options")),
        quick=quick,
        distribution=distribution,
        scalars={"eps": eps, "scale": None if scale == 1.0 else scale, **(scalars or {})},
        seed=requests.seed_or_random(seed),
    )
    if isinstance(runs, bool) or not isinstance(runs, int) or runs < 1:
        raise WebnormError(f"runs is {shown(runs)}; expected an int of 1 or more")
    if budget is not None:
        check_seconds("budget", budget, LEAST_BUDGET)
    request = requests.bench_request(
        _names(kernels),
        work.ops,
        roots=_folders(wgsl),
        chosen=_constants(constants),
        every=all_constants,
        rule=timing.QUICK if quick else timing.StoppingRule(),
        budget_s=budget,
    )
    request = replace(request, runs=runs, calls="at once" if at_once else "one by one")
    origin = origin_of("webnorm.bench")
    with _opened(adapter, time_limit) as (worker, device, traits, tuning):
        request = replace(request, tasks=work.tasks(traits), tuning=tuning)
        results = _last_of_each(benchmark.run(request, worker, traits), len(request.tasks), progress)
    report = Report(device=device, results=results, complete=True, origin=origin)
    coverage = Coverage.of(op, dtype, _names(kernels), timed=True)
    return _findings(report, (*request.kernels, *request.copies, *request.ladder), traits, coverage)


@contextmanager
def _opened(
    adapter: str | int | None, time_limit_s: float
) -> Iterator[tuple[Worker, Mapping[str, Any], Traits, Tuning | None]]:
    """A worker whose adapter is open, what is known of that, and the tuning that holds on it."""
    check_seconds("time_limit", time_limit_s, LEAST_SILENCE)
    with Worker(None if adapter is None else str(adapter), time_limit_s) as worker:
        with explain_worker_failure("opening the adapter", "; webnorm.adapters() lists them"):
            device, traits = benchmark.device_of(worker)
        tuning, _ = applicable(Platform.of(device))
        yield worker, device, traits, tuning


def _last_of_each(
    events: Iterable[Progress | list[Result]], tasks: int, progress: Told | None
) -> tuple[Result, ...]:
    """The results of each task, of which every run gives a list that has those before it."""
    found: list[list[Result]] = []
    for event in events:
        if isinstance(event, list):
            found.append(event)
        elif progress is not None:
            progress(event)
    return tuple(result for results in found[-tasks:] for result in results)


@signals.deferring
def check(
    kernels: Names | None = None,
    *,
    op: Names | OpLike = "layer_norm",
    dtype: Names | None = None,
    cases: Names | None = None,
    input: str | Path | Array | None = None,
    options: Names | None = None,
    eps: float | None = None,
    scale: float | None = None,
    scalars: Mapping[str, float] | None = None,
    seed: int | None = None,
    constants: Constants | None = None,
    all_constants: bool = False,
    wgsl: Sequence[str | Path] = (),
    adapter: str | int | None = None,
    time_limit: float = 60.0,
    progress: Callable[[Result], object] | None = None,
) -> Findings:
    """Hold every kernel against float64 on the inputs that broke other implementations.

    Arguments, results and errors are those of `bench`, except for these.

    Args:
        cases: names or patterns of the corpus, such as "cols-*"; None for all of it.
        dtype: the storage types; None for float32, or that of `input`. An `input` of another type is
            refused; bytes, as which NumPy's files keep bfloat16, are read so where that is among them.
        input: your own array in place of the corpus, or the .npy file that it is in: (..., cols), float32,
            float16 or bfloat16.
        options: for every case in place of its own; None for the cases' own.
        progress: is called with each result as soon as it is known.
    """
    op = _names_of_ops(op)
    seed = requests.seed_or_random(seed)
    request = requests.with_cases(
        requests.check_request(
            _names(kernels),
            ops_named(op),
            roots=_folders(wgsl),
            chosen=_constants(constants),
            every=all_constants,
        ),
        whole_corpus(seed),
        cases,
        Path(input) if isinstance(input, str) else input,
        dtype,
        OfCases(
            None if options is None else tuple(split_names(options, "options")),
            {"eps": eps, "scale": scale, **(scalars or {})},
        ),
    )
    origin, found = origin_of("webnorm.check"), list[Result]()
    with _opened(adapter, time_limit) as (worker, device, traits, tuning):
        for result in checking.run(replace(request, tuning=tuning), worker, traits):
            found.append(result)
            if progress is not None:
                progress(result)
    report = Report(device=device, results=tuple(found), complete=True, origin=origin)
    coverage = Coverage.of(op, dtype, _names(kernels), cases)
    return _findings(report, (*request.kernels, *request.ladder), traits, coverage)


def _findings(report: Report, kernels: Sequence[Kernel], traits: Traits, coverage: Coverage) -> Findings:
    unchecked = tuple(coverage.unchecked(report.results))
    return Findings(report, tuple(kernels), traits, unchecked)


@signals.deferring
def compare(
    old: Findings | Report | str | Path, new: Findings | Report | str | Path, *, any_device: bool = False
) -> Changes:
    """Say of each kernel and problem in two reports whether it is SAME, FASTER, SLOWER, UNCLEAR or BROKEN.

    Times are compared as multiples of the copy's and held against what moves between runs, of which there
    have to be three or more on both sides.

    Args:
        old: what `bench` gave, a JSON file of results, or the name of a baseline.
        new: the same, to be held against it.
        any_device: compare results of different devices all the same.

    Returns:
        A verdict for each pair. `Changes.known` is False where all are UNCLEAR; `Changes.advice` says what
        tells more.

    Raises:
        WebnormError: what cannot be read, and different devices unless `any_device`.
    """
    return Changes(comparing.compare(_report(old), _report(new), any_device=any_device))


def _report(given: Findings | Report | str | Path) -> Report:
    match given:
        case Findings():
            return given.report
        case Report():
            return given
        case str() | Path():
            return baselines.read_file_or_baseline(str(given))
    raise WebnormError(f"a report is {shown(given)}; expected what bench gave, a file, or a baseline's name")


def _names_of_ops(given: Names | OpLike) -> Names:
    """Return the names of the ops; for what `load_op` returned, its op's name."""
    op = getattr(given, "op", given)
    return op.name if isinstance(op, Op) else cast(Names, given)


def _names(given: Names | None) -> list[str] | None:
    if given is None:
        return None
    return requests.kernel_names([given] if isinstance(given, str) else split_names(given, "kernels"))


def _folders(given: Sequence[str | Path]) -> list[Path]:
    if isinstance(given, str | bytes) or not all(isinstance(folder, str | Path) for folder in given):
        raise WebnormError(f"wgsl is {shown(given)}; expected a list of folders, such as ['wgsl']")
    return [Path(folder) for folder in given]


def _sizes(given: Sizes | None, name: str) -> tuple[int, ...] | None:
    if given is None or isinstance(given, str):
        return None if given is None else size_list(given, name)
    if not isinstance(given, bool | bytes | bytearray):
        with suppress(TypeError, ValueError):
            return (operator.index(given),)  # type: ignore[arg-type]
        with suppress(TypeError, ValueError):
            return tuple(operator.index(size) for size in given)  # type: ignore[union-attr]
    raise WebnormError(
        f"{name} is {shown(given)}; expected an integer, some of them, or a text like '256..4k'"
    )


def _constants(given: Constants | None) -> dict[str, tuple[int, ...]]:
    if not isinstance(given or {}, Mapping):
        raise WebnormError(f"constants is {shown(given)}; expected values by name, as {{'threads': 64}}")
    return {name: _sizes(value, f"constants[{name!r}]") or () for name, value in (given or {}).items()}
