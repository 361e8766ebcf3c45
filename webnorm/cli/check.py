"""`webnorm check`: every kernel against float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from webnorm.cli import arguments, options
from webnorm.cli.outputs import check_outputs
from webnorm.cli.running import Measuring, Opened, run

if TYPE_CHECKING:
    from webnorm.lab.check import CheckRequest
    from webnorm.lab.results import Result


def check(
    kernel: options.Kernel = None,
    op: options.Ops = None,
    dtype: options.Dtypes = None,
    option: options.Option = None,
    case: Annotated[
        list[str] | None, Option(help="Only this case, a list, or a pattern such as 'cols-*'; repeatable.")
    ] = None,
    seed: options.Seed = None,
    input: Annotated[
        Path | None, Option(help="Check your own array, an .npy file, in place of the corpus.")
    ] = None,
    eps: options.Eps = None,
    scale: Annotated[
        float | None, Option(help="What y is multiplied by before it is rounded to float8.")
    ] = None,
    constant: options.Constant = None,
    all_constants: options.AllConstants = False,
    wgsl: options.Wgsl = None,
    adapter: options.Adapter = None,
    time_limit: options.TimeLimit = 60.0,
    allow_skipped: options.AllowSkipped = False,
    json: Annotated[Path | None, Option(help="Write the results, - for standard output.")] = None,
    cases: Annotated[bool, Option("--cases", help="List the corpus with its sources and exit.")] = False,
    verbose: options.Verbose = False,
) -> None:
    """The corpus has cases for every option; --option asks for the same options in every case instead, and
    --eps and --scale for the same values. Numbers are drawn anew in every run, and so are some shapes and
    options: the seed that is printed repeats them.
    """
    from webnorm.cli.overview import corpus_table
    from webnorm.cli.screen import Screen
    from webnorm.lab import asked
    from webnorm.norms.case import Changes
    from webnorm.norms.corpus import whole_corpus

    console = Screen(stderr=str(json) == "-")
    seed = asked.seed_or_any(seed)
    corpus = whole_corpus(seed)
    if cases:
        console.print(corpus_table(corpus))
        return
    outputs = {"--json": json}
    check_outputs(outputs, [*([] if input is None else [input]), *arguments.kernel_files(kernel, wgsl)])
    request = asked.with_cases(
        _request(kernel, op, wgsl, constant, all_constants),
        corpus,
        case and ",".join(case),
        input,
        dtype,
        Changes(None if option is None else tuple(option), eps, scale),
    )
    job = _Check(
        outputs=outputs,
        console=console,
        seed=seed if input is None else None,
        allow_skipped=allow_skipped,
        wanted="verified",
        request=request,
        verbose=verbose,
    )
    run(job, adapter, time_limit)


def _request(
    names: Sequence[str] | None,
    op: str | None,
    roots: Sequence[Path] | None,
    constant: Sequence[str] | None,
    all_constants: bool,
) -> CheckRequest:
    """The kernels to check; with what, other options say."""
    from webnorm.lab import asked
    from webnorm.norms.selection import ops_named

    arguments.refuse_beside_auto(names, constant, all_constants)
    return asked.check_request(
        asked.kernel_names(names),
        ops_named(op),
        roots=roots or (),
        chosen=arguments.constants(constant),
        every=all_constants,
    )


@dataclass(kw_only=True)
class _Check(Measuring):
    request: CheckRequest
    verbose: bool
    found: list[Result] = field(default_factory=list)

    def work(self, opened: Opened) -> None:
        from webnorm.lab import check

        request = self.request
        expected, wrong = request.count(), 0
        if request.ladder:
            request = replace(request, tuning=arguments.recorded_tuning(self.device))
        for result in check.run(request, opened.worker, opened.traits):
            self.found.append(result)
            share = min(1.0, len(self.found) / expected)
            wrong += result.status in ("fail", "error") and not result.expected
            failed = f"; {wrong} FAIL" if wrong else ""
            said = f"{result.op}, {result.problem.dtype}, {result.case}: {result.kernel}"
            opened.update(f"{len(self.found)} of {max(expected, len(self.found))}{failed}: {said}", share)

    def results(self) -> Sequence[Result]:
        return self.found

    def show_results(self) -> None:
        from webnorm.cli.check_view import CheckTable
        from webnorm.cli.mistakes import mistakes
        from webnorm.cli.overview import device_line

        self.console.print(device_line(self.device))
        for mistake in mistakes(self.found):
            self.console.print(mistake, soft_wrap=True)
        self.console.print(CheckTable(self.found, self.verbose))
