"""`webnorm check`: every kernel against float64."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from webnorm.cli.arguments import (
    but_auto,
    constants,
    kernel_files,
    kernels_asked,
    op_named,
    recorded_tunings,
    seed_or_any,
)
from webnorm.cli.options import (
    AdapterOption,
    AllConstantsOption,
    AllowSkippedOption,
    ConstantOption,
    EpsOption,
    KernelOption,
    OptionOption,
    SeedOption,
    TimeLimitOption,
    WgslOption,
)
from webnorm.cli.outputs import check_outputs, command_line, take_each, writing
from webnorm.cli.running import opened, status_of
from webnorm.cli.status import Interrupted
from webnorm.errors import WebnormError, unknown

if TYPE_CHECKING:
    from webnorm.lab.results import Result


def check(
    kernel: KernelOption = None,
    op: Annotated[
        str | None,
        typer.Option(
            "--op",
            help="layer_norm (the default), layer_norm_backward, rms_norm, rms_norm_backward, or all.",
        ),
    ] = None,
    dtype: Annotated[
        str, typer.Option("--dtype", help="float32, float16, bfloat16, a list of them, or all.")
    ] = "float32",
    option: OptionOption = None,
    case: Annotated[list[str] | None, typer.Option("--case", help="Only this case; repeatable.")] = None,
    seed: SeedOption = None,
    input: Annotated[
        Path | None,
        typer.Option("--input", help="Check your own array, an .npy file, in place of the corpus."),
    ] = None,
    eps: EpsOption = None,
    scale: Annotated[
        float | None, typer.Option("--scale", help="What y is multiplied by before it is rounded to float8.")
    ] = None,
    constant: ConstantOption = None,
    all_constants: AllConstantsOption = False,
    wgsl: WgslOption = None,
    adapter: AdapterOption = None,
    time_limit: TimeLimitOption = 60.0,
    allow_skipped: AllowSkippedOption = False,
    json: Annotated[
        Path | None, typer.Option("--json", help="Write the results, - for standard output.")
    ] = None,
    cases: Annotated[
        bool, typer.Option("--cases", help="List the corpus with its sources and exit.")
    ] = False,
) -> None:
    """Hold every kernel against float64 on the inputs that broke other implementations.

    The corpus has cases for every option; --option asks for the same options in every case instead, and
    --eps and --scale for the same values. Numbers are drawn anew in every run, and so are some shapes and
    options: the seed that is printed repeats them.
    """
    from dataclasses import replace as changed

    from webnorm.cli import overview, report
    from webnorm.cli.screen import Screen, progress
    from webnorm.kernels.library import AUTO
    from webnorm.lab import check as checking
    from webnorm.lab.origin import origin_of
    from webnorm.lab.results import Report
    from webnorm.lab.worker import Worker
    from webnorm.norms.case import Changes
    from webnorm.norms.corpus import whole_corpus

    console = Screen(stderr=str(json) == "-")
    seed = seed_or_any(seed)
    corpus = whole_corpus(seed)
    if cases:
        console.print(overview.corpus_table(corpus))
        return
    read = [] if input is None else [input]
    check_outputs({"--json": json}, [*read, *kernel_files(kernel, wgsl)])
    home = op_named(None if op == "all" else op)
    ops = checking.NORMS if op == "all" else (home.name,)
    named = but_auto(kernel, constant, all_constants)
    kernels, copies, broken = kernels_asked(named, ops, wgsl)
    if not kernels and (named or home.exact):
        kernels = copies
    ladder = kernels_asked(None, ops, wgsl)[0] if kernel and AUTO in kernel else []
    by_name = {one.name: one for one in corpus}
    for name in case or ():
        if name not in by_name:
            raise unknown("case", name, by_name)
    chosen_cases = tuple(by_name[name] for name in case) if case else corpus
    if input is not None:
        chosen_cases = (checking.own_case(input),)
    request = checking.CheckRequest(
        tuple(kernels),
        chosen_cases,
        checking.dtypes_named(dtype) if input is None else (chosen_cases[0].given or "",),
        Changes(None if option is None else tuple(option), eps, scale),
        tuple(wgsl or ()),
        constants(constant, kernels),
        all_constants,
        tuple(ladder),
        whole=not case and input is None and option is None,
        broken=tuple(broken),
    )
    expected = request.count()
    if not expected:
        request.refuse_options()
        raise WebnormError("nothing to check: no case has these options, or they are of other ops")
    origin = origin_of(command_line())
    results: list[Result] = []
    description: dict[str, Any] = {}
    interrupted = False
    with Worker(adapter, time_limit) as worker, progress("opening the adapter") as update:
        try:
            description, traits = opened(worker)
            if ladder:
                request = changed(request, tunings=recorded_tunings(description))
            for result in checking.run(request, worker, traits):
                results.append(result)
                share = min(1.0, len(results) / expected)
                update(f"{result.op}, {result.problem.dtype}, {result.case}: {result.kernel}", share)
        except KeyboardInterrupt:
            interrupted = True

    def show() -> None:
        console.print(overview.device_line(description))
        console.print(report.check_table(results))
        console.print(report.race_line(results, description.get("type") == "CPU"), soft_wrap=True)
        if input is None:
            console.print(f"drawn with --seed {seed}", soft_wrap=True)

    found = Report(device=description, results=tuple(results), complete=not interrupted, origin=origin)
    saved, printed = writing(found, json)
    take_each(*saved, show, *printed)
    if interrupted:
        raise Interrupted
    raise typer.Exit(status_of(results, allow_skipped, "verified"))
