"""Write bench/results/engines.md: the built-in kernels in every engine, with errors and arithmetic.

    python -m bench.engines [--engine NAME]...            measure and print
    python -m bench.engines [--engine NAME]... --write    write the page

Without --engine all installed engines run, one after another. It takes 5 to 15 minutes on two cores without
a GPU. Kernels are timed only where the adapter is a GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.arguments import bare_parser, run
from bench.engine_page import CASES, TIMED_COLS, TIMED_ROWS, EngineRun, page
from bench.engine_probes import EngineDescription, describe, measure_arithmetic
from webnorm.engines.catalog import ALL, selected_engines
from webnorm.errors import WebnormError
from webnorm.files.atomic import write_text
from webnorm.gpu import timing
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.library import discover
from webnorm.kernels.headers.traits import Traits
from webnorm.lab.process.worker import Worker, explain_worker_failure
from webnorm.lab.results.result import Result
from webnorm.lab.run import bench, check
from webnorm.op.corpus import Case, fixed_cases
from webnorm.op.op import Task
from webnorm.ops.norms.op import OPS as NORM_OPS

# SwiftShader compiles for seconds, and on a busy machine for minutes.
TIME_LIMIT_S = 600.0
PAGE = Path(__file__).parent / "results" / "engines.md"


def measure(names: Sequence[str], missing: dict[str, str]) -> list[EngineRun]:
    """Measure in each engine, in order. Engines that do not start become `missing`, with the reason."""
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(Worker(time_limit_s=TIME_LIMIT_S, engine=name)) for name in names
        }
        described: dict[str, EngineDescription] = {}
        for name, worker in workers.items():
            try:
                with explain_worker_failure(f"starting {name}"):
                    (described[name],) = worker.stream(describe, None)
            except WebnormError as error:
                missing[name] = str(error)
        runs = []
        for name, own in described.items():
            runs.append(_measured(name, workers[name], own))
            workers[name].stop()
        return runs


def _measured(name: str, worker: Worker, described: EngineDescription) -> EngineRun:
    """Measure in one engine."""
    say(f"{name}: arithmetic")
    with explain_worker_failure(f"measuring the arithmetic of {name}"):
        arithmetic = dict(worker.stream(measure_arithmetic, None))
    kernels, traits = discover(), described.traits
    results = [one for dtype in CASES for one in _checked(name, dtype, kernels, worker, traits)]
    times = [] if traits.software else _timed(name, kernels, worker, traits)
    return EngineRun(name, described, arithmetic, results, times)


def selected_cases(dtype: str) -> tuple[Case, ...]:
    """Return the cases of a storage type."""
    known = {case.name: case for case in fixed_cases()}
    return tuple(known[name] for name in CASES[dtype])


def _checked(
    engine: str, dtype: str, kernels: Sequence[Kernel], worker: Worker, traits: Traits
) -> Iterator[Result]:
    """Yield the results of all kernels on the cases of a type, and print the progress."""
    request = check.CheckRequest(tuple(kernels), selected_cases(dtype), (dtype,), whole=True)
    shown = ""
    for done, result in enumerate(check.case_results(request, worker, traits)):
        current = f"{result.op}, {result.case}"
        if current != shown:
            shown = current
            say(f"{engine}: {dtype}, {done} of about {request.count()} checks: {current}")
        yield result


def _timed(engine: str, kernels: Sequence[Kernel], worker: Worker, traits: Traits) -> list[Result]:
    """Return the times of all kernels, each next to the copy."""
    ops = NORM_OPS
    request = bench.BenchRequest(
        tasks=tuple(Task(op, op.problem(TIMED_ROWS, TIMED_COLS)) for op in ops),
        kernels=tuple(kernel for kernel in kernels if not kernel.op.is_copy),
        copies=tuple(kernel for kernel in kernels if kernel.op.is_copy),
        rule=timing.StoppingRule(),
    )
    found: list[Result] = []
    for event in bench.run(request, worker, traits):
        if isinstance(event, list):
            found += event
            say(f"{engine}: {event[-1].op} timed")
    return found


def say(text: str) -> None:
    """Print a line about the progress."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Measure in the engines, and print or write the page."""
    parser = bare_parser(__doc__)
    parser.add_argument("--engine", action="append", help="an engine, as of `webnorm check`. Repeatable.")
    parser.add_argument("--write", action="store_true", help="write the page into bench/results/")
    given = parser.parse_args()
    names, missing = selected_engines(given.engine or [ALL])
    runs = measure(names, missing)
    for name, why in missing.items():
        say(f"not measured in {name}: {why}")
    if not runs:
        raise WebnormError("no engine started; `webnorm doctor --engine all` shows what is missing")
    text = page(runs, missing)
    if given.write:
        write_text(PAGE, text)
    else:
        print(text, end="")


if __name__ == "__main__":
    run(main)
