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
from webnorm.errors import WebnormError, unknown

if TYPE_CHECKING:
    from webnorm.lab.check import CheckRequest
    from webnorm.lab.results import Result
    from webnorm.norms.case import Case


def check(
    kernel: options.Kernel = None,
    op: Annotated[
        str | None,
        Option(help="layer_norm (the default), layer_norm_backward, rms_norm, rms_norm_backward, or all."),
    ] = None,
    dtype: Annotated[str, Option(help="float32, float16, bfloat16, a list of them, or all.")] = "float32",
    option: options.Option = None,
    case: Annotated[list[str] | None, Option(help="Only this case; repeatable.")] = None,
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
) -> None:
    """The corpus has cases for every option; --option asks for the same options in every case instead, and
    --eps and --scale for the same values. Numbers are drawn anew in every run, and so are some shapes and
    options: the seed that is printed repeats them.
    """
    from webnorm.cli.overview import corpus_table
    from webnorm.cli.screen import Screen
    from webnorm.lab.check import dtypes_named
    from webnorm.norms.case import Changes
    from webnorm.norms.corpus import whole_corpus

    console = Screen(stderr=str(json) == "-")
    seed = arguments.seed_or_any(seed)
    corpus = whole_corpus(seed)
    if cases:
        console.print(corpus_table(corpus))
        return
    outputs = {"--json": json}
    check_outputs(outputs, [*([] if input is None else [input]), *arguments.kernel_files(kernel, wgsl)])
    asked = _request(kernel, op, wgsl, constant, all_constants)
    chosen = _chosen(case, corpus, input)
    request = replace(
        asked,
        cases=chosen,
        dtypes=dtypes_named(dtype) if input is None else (chosen[0].given or "",),
        changes=Changes(None if option is None else tuple(option), eps, scale),
        whole=not case and input is None and option is None,
    )
    if not request.count():
        request.refuse_options()
        raise WebnormError("nothing to check: no case has these options, or they are of other ops")
    job = _Check(
        outputs=outputs,
        console=console,
        seed=seed if input is None else None,
        allow_skipped=allow_skipped,
        wanted="verified",
        request=request,
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
    from webnorm.kernels.library import AUTO
    from webnorm.lab.check import NORMS, CheckRequest
    from webnorm.norms.ops import op_named

    home = op_named(op if op and op != "all" else "layer_norm")
    ops = NORMS if op == "all" else (home.name,)
    named = arguments.but_auto(names, constant, all_constants)
    kernels, copies, broken = arguments.kernels_asked(named, ops, roots)
    if not kernels and (named or home.exact):
        kernels = copies
    return CheckRequest(
        tuple(kernels),
        roots=tuple(roots or ()),
        chosen=arguments.constants(constant, kernels),
        every=all_constants,
        ladder=tuple(arguments.kernels_asked(None, ops, roots)[0] if names and AUTO in names else ()),
        broken=tuple(broken),
    )


def _chosen(names: Sequence[str] | None, corpus: tuple[Case, ...], path: Path | None) -> tuple[Case, ...]:
    """The cases of these names, all of the corpus where there are none, or a user's own array alone."""
    from webnorm.lab.check import own_case

    by_name = {one.name: one for one in corpus}
    for name in names or ():
        if name not in by_name:
            raise unknown("case", name, by_name)
    if path is not None:
        return (own_case(path),)
    return tuple(by_name[name] for name in names) if names else corpus


@dataclass(kw_only=True)
class _Check(Measuring):
    request: CheckRequest
    found: list[Result] = field(default_factory=list)

    def work(self, opened: Opened) -> None:
        from webnorm.lab import check

        request = self.request
        expected = request.count()
        if request.ladder:
            request = replace(request, tuning=arguments.recorded_tuning(self.device))
        for result in check.run(request, opened.worker, opened.traits):
            self.found.append(result)
            share = min(1.0, len(self.found) / expected)
            opened.update(f"{result.op}, {result.problem.dtype}, {result.case}: {result.kernel}", share)

    def results(self) -> Sequence[Result]:
        return self.found

    def show_results(self) -> None:
        from webnorm.cli import overview, report

        self.console.print(overview.device_line(self.device))
        self.console.print(report.check_table(self.found))
