"""The commands bench, check and compare as functions, for scripts and notebooks."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, SupportsIndex, cast

from webnorm import signals
from webnorm.choice.tuning import Platform, Tuning, applicable
from webnorm.engines.catalog import selected_engines
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
    """The part of `load_op`'s result that the lab uses."""

    op: Op


Sizes = SupportsIndex | str | Iterable[SupportsIndex]
Constants = Mapping[str, int | Iterable[int]]
# Is called with the progress: str(progress) is text, progress.share the finished share of the work.
ProgressCallback = Callable[[Progress], object]


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
    progress: ProgressCallback | None = None,
) -> Findings:
    """Time kernels next to a copy, and check each against the float64 reference before and after.

    The function starts a process for the work, which ends with the call. Texts may be lists, as on the
    command line: op="rms*", dtype="all", cols="256..4k".

    Parameters
    ----------
    kernels : str or sequence of str, optional
        Names, patterns such as "welford*", or paths of .wgsl files. Default: all kernels.
    op : str, sequence of str or LoadedOp, default "layer_norm"
        The ops: layer_norm, rms_norm and their gradients, "all", or the result of `load_op`.
    rows, cols : int, str or iterable of int, optional
        The numbers of rows and columns. Default: some that suit the adapter.
    sizes : mapping of str to sizes, optional
        The sizes of an op of your own by name.
    preset : str, optional
        A named workload, which replaces op, rows and cols.
    dtype : str or sequence of str, optional
        The storage types. Default: float32, or the types of the preset.
    options : str or sequence of str, optional
        Options of the op, such as "residual" or "out_dtype=int8". "weight=false" leaves the weight out.
    distribution : str, default "normal"
        The distribution of x.
    eps : float, optional
        Number added to the variance. Default: the op's default.
    scale : float, default 1.0
        Factor that multiplies a float8 y before it is rounded.
    scalars : mapping of str to float, optional
        The scalars of an op of your own by name.
    seed : int, optional
        Seed of the inputs. Default: a random seed.
    constants : mapping of str to int or iterable of int, optional
        Values of tune axes by name. Default: the default of each kernel.
    all_constants : bool, default False
        Time every valid point of every kernel's tune axes.
    quick : bool, default False
        Use one shape and few samples.
    budget : float, optional
        Largest time for timing in seconds, per problem and run; 0.01 or more.
    runs : int, default 1
        The number of runs, each in a new process. `compare` needs 3 or more on both sides.
    at_once : bool, default False
        Time independent problems that may overlap on the device.
    wgsl : sequence of str or pathlib.Path, optional
        Folders of kernels of your own, `DIR/<op>/<kernel>.wgsl`.
    adapter : str or int, optional
        Index or part of the name. Default: $WEBNORM_ADAPTER, or the first adapter.
    time_limit : float, default 60.0
        Seconds that a kernel or its compiler may take without progress; 0.1 or more.
    progress : callable, optional
        A function that receives the progress: `str(progress)` in words, and `progress.share` from 0 to 1.

    Returns
    -------
    Findings
        The results of every kernel and of the copies, including wrong ones. `Findings.ok` is False if a
        result is wrong or a part of the request could not be checked; `Findings.unchecked` lists these parts.

    Raises
    ------
    WebnormError
        A name is unknown, a value is invalid, or there is no adapter.

    Examples
    --------
    >>> import webnorm
    >>> found = webnorm.bench("naive", rows=4, cols=8, quick=True, budget=0.01)
    >>> found.ok
    True
    >>> [result.kernel for result in found.best()]
    ['naive']
    """
    op = _names_of_ops(op)
    if preset is not None and (rows is not None or cols is not None):
        raise WebnormError("preset sets its own op and shapes; leave out op, rows and cols")
    work = requests.Workload(
        op=op,
        dtype=dtype,
        # `rows` and `cols` are sizes of the built-in ops.
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
        raise WebnormError(f"runs is {shown(runs)}; it must be an int of at least 1")
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
    adapter: str | int | None, time_limit_s: float, engine: str | None = None
) -> Iterator[tuple[Worker, Mapping[str, Any], Traits, Tuning | None]]:
    """Provide a worker with an open adapter, the adapter's description and traits, and its tuning."""
    check_seconds("time_limit", time_limit_s, LEAST_SILENCE)
    what, lists = "opening the adapter", "adapters"
    if engine is not None:
        selected_engines([engine])
        what, lists = f"starting {engine}", "engine_names"
    with Worker(None if adapter is None else str(adapter), time_limit_s, engine=engine) as worker:
        with explain_worker_failure(what, f"; webnorm.{lists}() lists them"):
            device, traits = benchmark.device_of(worker)
        tuning, _ = applicable(Platform.of(device))
        yield worker, device, traits, tuning


def _last_of_each(
    events: Iterable[Progress | list[Result]], tasks: int, progress: ProgressCallback | None
) -> tuple[Result, ...]:
    """Return the last list of results of each task; it contains the results of all runs."""
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
    engine: str | None = None,
    time_limit: float = 60.0,
    progress: Callable[[Result], object] | None = None,
) -> Findings:
    """Check every kernel against the float64 reference, on inputs that broke other implementations.

    Arguments that are not listed are as for `bench`.

    Parameters
    ----------
    cases : str or sequence of str, optional
        Names or patterns of cases of the corpus, such as "cols-*". Default: all cases.
    dtype : str or sequence of str, optional
        The storage types. Default: float32, or the type of `input`. `input` must have
        this type. NumPy's files store bfloat16 as bytes, which are read as bfloat16 if it is among the types.
    input : str, pathlib.Path or numpy.ndarray, optional
        An array of your own, or its .npy file, which replaces the corpus. Shape (..., cols); float32, float16
        or bfloat16.
    options : str or sequence of str, optional
        Options for every case, which replace the case's own. Default: the options of each case.
    engine : str, optional
        An engine of `webnorm.engine_names`, such as "firefox", which runs the kernels in place of an adapter.
        Default: an adapter of this process' WebGPU.
    progress : callable, optional
        A function that receives each Result as soon as it is known.

    Returns
    -------
    Findings
        The results of all cases, including wrong and skipped ones.

    Raises
    ------
    WebnormError
        A name is unknown, a value is invalid, the engine is missing, or there is no adapter.

    Examples
    --------
    >>> import webnorm
    >>> found = webnorm.check("naive", cases="cols-1")
    >>> found.ok
    True
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
        whole_corpus(seed, ops_named(op)),
        cases,
        Path(input) if isinstance(input, str) else input,
        dtype,
        OfCases(
            None if options is None else tuple(split_names(options, "options")),
            {"eps": eps, "scale": scale, **(scalars or {})},
        ),
    )
    if engine is not None and adapter is not None:
        raise WebnormError(f"engine is {shown(engine)}, which chooses its own adapter; leave adapter out")
    origin, found = origin_of("webnorm.check"), list[Result]()
    with _opened(adapter, time_limit, engine) as (worker, device, traits, tuning):
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
    """Compare two reports, kernel by kernel and problem by problem.

    Each verdict is SAME, FASTER, SLOWER, UNCLEAR or BROKEN. Times are compared as multiples of the copy's
    time. The threshold is the variation between runs, so both reports need three runs or more.

    Parameters
    ----------
    old : Findings, Report, str or pathlib.Path
        The result of `bench`, a JSON file of results, or the name of a baseline.
    new : Findings, Report, str or pathlib.Path
        The report to compare with it.
    any_device : bool, default False
        Compare results of different devices.

    Returns
    -------
    Changes
        One verdict per pair. `Changes.known` is False if all are UNCLEAR; `Changes.advice` then says what to
        measure next.

    Raises
    ------
    WebnormError
        A report cannot be read, or the devices differ and `any_device` is False.

    Examples
    --------
    >>> import webnorm
    >>> found = webnorm.bench("naive", rows=4, cols=8, quick=True, budget=0.01)
    >>> len(webnorm.compare(found, found).rows())
    1
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
    raise WebnormError(
        f"the report is {shown(given)}; it must be a result of bench, a file, or the name of a baseline"
    )


def _names_of_ops(given: Names | OpLike) -> Names:
    """Return the names of the ops; an op from `load_op` is replaced by its name."""
    op = getattr(given, "op", given)
    return op.name if isinstance(op, Op) else cast(Names, given)


def _names(given: Names | None) -> list[str] | None:
    if given is None:
        return None
    return requests.kernel_names([given] if isinstance(given, str) else split_names(given, "kernels"))


def _folders(given: Sequence[str | Path]) -> list[Path]:
    if isinstance(given, str | bytes) or not all(isinstance(folder, str | Path) for folder in given):
        raise WebnormError(f"wgsl is {shown(given)}; it must be a list of folders, such as ['wgsl']")
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
        f"{name} is {shown(given)}; it must be an integer, several integers, or a string such as '256..4k'"
    )


def _constants(given: Constants | None) -> dict[str, tuple[int, ...]]:
    if not isinstance(given or {}, Mapping):
        raise WebnormError(
            f"constants is {shown(given)}; it must map names to values, such as {{'threads': 64}}"
        )
    return {name: _sizes(value, f"constants[{name!r}]") or () for name, value in (given or {}).items()}
