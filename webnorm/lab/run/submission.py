"""Evaluation of one kernel's text: compiled, checked, explained and timed, as one typed result."""

from __future__ import annotations

import inspect
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast
from uuid import uuid4

import msgspec
from filelock import FileLock, Timeout

from webnorm import signals
from webnorm._version import __version__
from webnorm.choice.defaults import chosen_variants, fitting_variant
from webnorm.errors import SourceLocation, WebnormError, check_kind, shown
from webnorm.files.atomic import cache_folder
from webnorm.gpu import timing
from webnorm.gpu.device import Device
from webnorm.gpu.seconds import LEAST_BUDGET, LEAST_SILENCE, check_seconds
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.library import discover
from webnorm.kernels.headers.sources import MOST_BYTES
from webnorm.kernels.headers.traits import Traits
from webnorm.kernels.headers.variants import Variant
from webnorm.lab.diagnose.examination import examine
from webnorm.lab.process.worker import TaskFailed, Worker, WorkerDied, explain_worker_failure
from webnorm.lab.results.result import Result
from webnorm.lab.run import bench, check, jobs, requests
from webnorm.lab.run.evaluation import EvaluationJob, other_constants
from webnorm.lab.run.evaluation import evaluate as compile_and_try
from webnorm.lab.verify.problem_buffers import ProblemBuffers
from webnorm.op.corpus import Overrides, whole_corpus
from webnorm.op.op import Op, Task
from webnorm.op.registry import is_op_folder, load_op, op_named, options_of

SCHEMA = 1
# The file name of a text without a file, which messages show.
_FILE = Path("submission.wgsl")
_MOST_EXAMPLES = 5

EvaluationStatus = Literal["pass", "fail", "error", "unknown"]


@dataclass(frozen=True, kw_only=True)
class WrongCase:
    """A case that the kernel failed: its name, the problem, the constants and the reason."""

    case: str
    problem: str
    constants: Mapping[str, int]
    reason: str


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The evaluation of one kernel's text.

    Attributes
    ----------
    schema : int
        The version of the JSON schema.
    webnorm : str
        The version of webnorm.
    op : str
        The name of the op.
    dtype : str
        The storage type.
    device : str
        The name of the adapter.
    seed : int
        Seed of the inputs. Pass it to `evaluate` to repeat them.
    status : {"pass", "fail", "error", "unknown"}
        "pass": every case that could be checked is right. "fail": a case is wrong. "error": the text was
        rejected by the header's reader, the template, the compiler or the driver, or ended its process.
        "unknown": no case could be checked.
    message : str or None
        The reason of the status.
    line : int or None
        The line of the mistake in the text, from 1.
    column : int or None
        The column of the mistake in characters, from 1.
    passed : int
        The number of right cases. Some cases run with several constants.
    failed : int
        The number of wrong cases.
    skipped : int
        The number of cases that could not be checked.
    wrong : tuple of WrongCase
        The first runs that failed.
    hint : str or None
        The likely mistake, if the first wrong output fits one.
    max_rel_error : float or None
        The largest relative error of all cases.
    timed : str or None
        The problem that was timed. It and all times are None unless the status is "pass".
    median_ns : float or None
        The median time in nanoseconds.
    p20_ns : float or None
        The 20th percentile of the time in nanoseconds.
    p80_ns : float or None
        The 80th percentile of the time in nanoseconds.
    gbps : float or None
        The throughput in GB/s.
    gflops : float or None
        The throughput in GFLOP/s.
    percent_of_copy : float or None
        Speed in percent of a copy of as many bytes.
    best_kernel : str or None
        The fastest other kernel of the op. A kernel with the same text does not count.
    time_over_best : float or None
        The median divided by the median of `best_kernel`.
    device_shared : bool or None
        True if another evaluation used the adapter at the same time. The times are then unreliable.
    flags : tuple of str
        Remarks on the times, such as "noisy".
    """

    schema: int
    webnorm: str
    op: str
    dtype: str
    seed: int
    device: str
    status: EvaluationStatus
    message: str | None = None
    line: int | None = None
    column: int | None = None
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    wrong: tuple[WrongCase, ...] = ()
    hint: str | None = None
    max_rel_error: float | None = None
    timed: str | None = None
    median_ns: float | None = None
    p20_ns: float | None = None
    p80_ns: float | None = None
    gbps: float | None = None
    gflops: float | None = None
    percent_of_copy: float | None = None
    best_kernel: str | None = None
    time_over_best: float | None = None
    device_shared: bool | None = None
    flags: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the evaluation as the JSON schema describes it. Unknown values are null."""
        return cast(dict[str, Any], msgspec.to_builtins(self))


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of an evaluation."""
    schema: dict[str, Any] = json.loads(json.dumps(msgspec.json.schema(Evaluation)))
    for defined in schema["$defs"].values():
        # msgspec removes the indentation of docstrings since 0.23, and Python since 3.13.
        if "description" in defined:
            defined["description"] = inspect.cleandoc(defined["description"])
    return schema


@dataclass(frozen=True, kw_only=True)
class _Submission:
    """A kernel's text to evaluate: its file, the file's name in messages, and the requested problem."""

    path: Path
    known: Path
    op: Op
    dtype: str
    options: tuple[str, ...]
    scalars: Mapping[str, float]
    constants: Mapping[str, Sequence[int]]
    sizes: Mapping[str, int]
    seed: int
    budget_s: float | None


@signals.deferring
def evaluate(
    text: str | Path,
    op: str | Path | Any,
    *,
    dtype: str = "float32",
    sizes: Mapping[str, int] | None = None,
    options: Sequence[str] = (),
    scalars: Mapping[str, float] | None = None,
    constants: Mapping[str, int | Sequence[int]] | None = None,
    seed: int | None = None,
    budget: float | None = 2.0,
    adapter: str | int | None = None,
    time_limit: float = 30.0,
) -> Evaluation:
    """Compile, check and time the text of one kernel.

    The function starts a process for the work, which ends with the call. Several evaluations may run at once:
    they take turns to measure time.

    Parameters
    ----------
    text : str or pathlib.Path
        The kernel: WGSL with or without a header, or the path of a file.
    op : str, pathlib.Path, LoadedOp or Op
        The name of an op, its folder, or the result of `load_op`.
    dtype : str, default "float32"
        The storage type of the problem: float32, float16 or bfloat16.
    sizes : mapping of str to int, optional
        Sizes of the problem that is timed. Default: the op's own.
    options : sequence of str, optional
        Options in the form of `--option`, such as "residual".
    scalars : mapping of str to float, optional
        Scalars by name. Default: the op's own.
    constants : mapping of str to int or sequence of int, optional
        Values of the kernel's tune axes. Default: the kernel's own.
    seed : int, optional
        Seed of the inputs. Default: a random seed.
    budget : float, optional
        Largest time for timing in seconds; 2.0 by default, 0.01 or more. None skips the timing.
    adapter : str or int, optional
        Index or part of the name. Default: $WEBNORM_ADAPTER, or the first adapter.
    time_limit : float, default 30.0
        Seconds that a compiler or a dispatch may take without progress; 0.1 or more.

    Returns
    -------
    Evaluation
        The verdict. Mistakes in the text are part of it, and raise no exception.

    Raises
    ------
    WebnormError
        The op is unknown, it does not have the sizes, a value is invalid, or there is no adapter.

    Examples
    --------
    >>> import webnorm
    >>> found = webnorm.evaluate("fn main() {", "layer_norm", budget=None)
    >>> found.status, found.line
    ('error', 1)
    """
    check_seconds("time_limit", time_limit, LEAST_SILENCE)
    if budget is not None:
        check_seconds("budget", budget, LEAST_BUDGET)
    found = _op(op)
    found.check_sizes(sizes or {})
    found.problem(*found.sizes_of({}), dtype=dtype, options=options_of(found, options), **(scalars or {}))
    if isinstance(text, str) and text.endswith(".wgsl") and "\n" not in text:
        text = Path(text)
    known = text if isinstance(text, Path) else _FILE
    with tempfile.TemporaryDirectory(prefix="webnorm-") as folder:
        path = Path(folder) / found.name / known.name
        path.parent.mkdir()
        path.write_text(_text_of(text), encoding="utf-8")
        if isinstance(text, Path) and (header := text.with_suffix(".toml")).is_file():
            # Plain WGSL has its header in a file of its own.
            path.with_suffix(".toml").write_text(_text_of(header), encoding="utf-8")
        submission = _Submission(
            path=path,
            known=known,
            op=found,
            dtype=dtype,
            options=tuple(options),
            scalars=scalars or {},
            constants={
                name: (value,) if isinstance(value, int) else tuple(value)
                for name, value in (constants or {}).items()
            },
            sizes=sizes or {},
            seed=requests.seed_or_random(seed),
            budget_s=budget,
        )
        return _evaluated(submission, adapter, time_limit)


def _op(given: Any) -> Op:
    if isinstance(given, Op):
        return given
    if isinstance(getattr(given, "op", None), Op):
        return cast(Op, given.op)
    if isinstance(given, Path) or (isinstance(given, str) and is_op_folder(Path(given))):
        return load_op(given)
    check_kind("op", given, str, "the name of an op, or its folder")
    return op_named(given)


def _text_of(text: str | Path) -> str:
    if isinstance(text, Path):
        try:
            if text.stat().st_size > MOST_BYTES:
                raise WebnormError(f"{text} has more than {MOST_BYTES} bytes, too many for a kernel's text")
            return text.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise WebnormError(
                f"{text}: cannot be read: {getattr(error, 'strerror', None) or error}"
            ) from error
    if not isinstance(text, str):
        raise WebnormError(f"text is {shown(text)}; it must be a kernel's text or a Path")
    return text


def _evaluated(submission: _Submission, adapter: str | int | None, time_limit_s: float) -> Evaluation:
    with ExitStack() as stack:
        worker = stack.enter_context(Worker(None if adapter is None else str(adapter), time_limit_s))
        with explain_worker_failure("opening the adapter", "; `webnorm doctor` lists them"):
            device, traits = bench.device_of(worker)
        name = str(device.get("adapter", ""))
        presence = stack.enter_context(_present(name))
        known = Evaluation(
            schema=SCHEMA,
            webnorm=__version__,
            op=submission.op.name,
            dtype=submission.dtype,
            seed=submission.seed,
            device=name,
            status="unknown",
        )
        try:
            kernel = load(submission.path, submission.op.name)
            hint = _first_hint(submission, worker)
        except (WorkerDied, TaskFailed, WebnormError) as error:
            return _refused(known, error, submission)
        return _checked(known, submission, kernel, worker, traits, hint, presence)


def _refused(known: Evaluation, error: Exception, submission: _Submission) -> Evaluation:
    place: SourceLocation | None = getattr(error, "place", None)
    own = place is not None and Path(place.file).name == submission.path.name
    return replace(
        known,
        status="error",
        message=_shortened(str(error), submission),
        line=place.line if place is not None and own else None,
        column=place.column if place is not None and own else None,
    )


def _shortened(message: str, submission: _Submission) -> str:
    """Return a message with the user's name of the file instead of the temporary one."""
    for path in (submission.path.resolve(), submission.path):
        message = message.replace(str(path), str(submission.known))
    return message


def _first_hint(submission: _Submission, worker: Worker) -> str | None:
    """Compile the text and run it on two small problems; return a hint at the bug in a wrong output.

    Raises WebnormError for a text that is rejected, and the worker's exceptions.
    """
    job = EvaluationJob(
        submission.path,
        submission.op.name,
        (),
        submission.dtype,
        submission.options,
        submission.constants,
        scalars=submission.scalars,
    )
    events = [*worker.stream(compile_and_try, job)]
    hints = getattr(events[-1], "hints", ()) if events else ()
    return hints[0].text if hints else None


def _checked(
    known: Evaluation,
    submission: _Submission,
    kernel: Kernel,
    worker: Worker,
    traits: Traits,
    hint: str | None,
    presence: _Presence,
) -> Evaluation:
    overrides = Overrides(submission.options or None, submission.scalars)
    request = check.CheckRequest(
        (kernel,),
        cases=whole_corpus(submission.seed, [kernel.op.name]),
        dtypes=(submission.dtype,),
        changes=overrides,
        chosen=submission.constants,
        whole=True,
    )
    # Unstable kernels count as wrong here, even if their header declares the instability.
    results = [*check.case_results(request, worker, traits)]
    wrong = [one for one in results if one.status in ("fail", "error")]
    passed = [one for one in results if one.status == "pass"]
    cases, failed = {one.case for one in results}, {one.case for one in wrong}
    right = {one.case for one in passed} - failed
    found = replace(
        known,
        status="fail" if wrong else "pass" if passed else "unknown",
        passed=len(right),
        failed=len(failed),
        skipped=len(cases - right - failed),
        wrong=tuple(_wrong_case(one, submission) for one in wrong[:_MOST_EXAMPLES]),
        max_rel_error=max(
            (one.max_rel_error for one in passed if one.max_rel_error is not None), default=None
        ),
    )
    if wrong:
        place = wrong[0].place
        message = _shortened(wrong[0].reason or "wrong", submission)
        own = chosen_variants(kernel, wrong[0].problem, traits, submission.constants)[0]
        message += other_constants(wrong[0], own)
        if hint is None:
            hint = _hint_of(request, kernel, wrong[0], worker)
        return replace(found, message=message, hint=hint, line=place.line if place else None)
    if not passed:
        reason = next((one.reason for one in results if one.reason), "it supports no case of the corpus")
        return replace(found, message=_shortened(reason, submission))
    if submission.budget_s is None:
        return found
    return _timed(found, submission, kernel, worker, traits, presence)


def _wrong_case(one: Result, submission: _Submission) -> WrongCase:
    reason = _shortened(one.reason or "wrong", submission)
    return WrongCase(
        case=one.case or "", problem=str(one.problem), constants=dict(one.constants), reason=reason
    )


def examine_case(device: Device, job: jobs.CheckJob) -> Iterator[Any]:
    """Yield the examination of a variant's wrong output on a case, as a task of the worker."""
    board = ProblemBuffers(device, job.task, job.arrays, job.roots, narrow=job.narrow)
    yield examine(board, board.prepare(job.variants[0].variant()))


def _hint_of(request: check.CheckRequest, kernel: Kernel, wrong: Result, worker: Worker) -> str | None:
    for case, task in request.tasks:
        if case.name == wrong.case and task.problem == wrong.problem:
            spec = jobs.VariantSpec(kernel.path, kernel.op.name, dict(wrong.constants))
            job = jobs.CheckJob(case.name, task, case.draw(task), (spec,), (), case.narrow)
            with suppress(WorkerDied, TaskFailed, WebnormError):
                (examination,) = worker.stream(examine_case, job)
                return examination.hints[0].text if examination.hints else None
    return None


def _timed(
    found: Evaluation,
    submission: _Submission,
    kernel: Kernel,
    worker: Worker,
    traits: Traits,
    presence: _Presence,
) -> Evaluation:
    op = submission.op
    workload = requests.Workload(
        op=op.name,
        dtype=submission.dtype,
        sizes={name: (size,) for name, size in submission.sizes.items()},
        options=submission.options,
        quick=True,
        scalars=submission.scalars,
        seed=submission.seed,
    )
    task = workload.tasks(traits)[0]
    own = chosen_variants(kernel, task.problem, traits, submission.constants)[0]
    asked = [*_copies(task, traits), *_others(submission, task, traits), own]
    rule = replace(timing.QUICK, budget_s=submission.budget_s or timing.QUICK.budget_s)
    shared = presence.others()
    with presence.turn():
        *_, results = bench.measure(task, asked, rule, (), worker, traits)
    shared = shared or presence.others()
    assert isinstance(results, list)
    mine = results[-1]
    if not mine.timed:
        return replace(found, status="fail", message=mine.reason, device_shared=shared)
    others = [one for one in results[:-1] if one.timed and not one.roofline]
    best = min(others, key=lambda one: one.median_ns or 0.0, default=None)
    return replace(
        found,
        timed=str(task),
        median_ns=mine.median_ns,
        p20_ns=mine.p20_ns,
        p80_ns=mine.p80_ns,
        gbps=mine.gbps,
        gflops=mine.gflops,
        percent_of_copy=mine.percent_of_copy,
        best_kernel=None if best is None else best.kernel,
        time_over_best=None if best is None else (mine.median_ns or 0.0) / (best.median_ns or 1.0),
        device_shared=shared,
        flags=mine.flags,
    )


def _copies(task: Task, traits: Traits) -> list[Variant]:
    copies = [kernel for kernel in discover() if kernel.op.is_copy]
    return bench.copies_of(copies, task.problem, traits)


def _others(submission: _Submission, task: Task, traits: Traits) -> list[Variant]:
    """Return the op's own stable kernels with other texts for the problem, with default constants."""
    own = _files_of(submission.path)
    found = (
        fitting_variant(kernel, task.problem, traits)[0]
        for kernel in discover()
        if kernel.op is submission.op and kernel.unstable is None and _files_of(kernel.path) != own
    )
    return [one for one in found if one is not None]


def _files_of(kernel: Path) -> list[str]:
    """Return the text of a kernel's file, and the text of its header file if there is one."""
    files = [path for path in (kernel, kernel.with_suffix(".toml")) if path.is_file()]
    return [path.read_text(encoding="utf-8") for path in files]


# --- Several evaluations on one adapter.


class _Presence:
    """The presence of an evaluation on an adapter, which finds other evaluations and waits for its turn.

    Each evaluation locks its own file while it runs. The lock ends with the process.
    """

    def __init__(self, folder: Path, own: Path) -> None:
        self._folder, self._own = folder, own

    def others(self) -> bool:
        """Return true if another evaluation is running."""
        for path in self._folder.glob("*.active"):
            if path == self._own:
                continue
            lock = FileLock(path)
            try:
                with lock.acquire(timeout=0):
                    path.unlink(missing_ok=True)
            except Timeout:
                return True
            except OSError:
                continue
        return False

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait until no other evaluation times anything."""
        with FileLock(self._folder / "turn.lock"):
            yield


@contextmanager
def _present(adapter: str) -> Iterator[_Presence]:
    name = "".join(sign if sign.isalnum() else "-" for sign in adapter)[:80] or "adapter"
    folder = cache_folder("evaluations") / name
    folder.mkdir(parents=True, exist_ok=True)
    own = folder / f"{uuid4().hex}.active"
    with FileLock(own):
        yield _Presence(folder, own)
    own.unlink(missing_ok=True)
