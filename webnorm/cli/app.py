"""The `webnorm` command. It reads arguments, calls the lab and prints; nothing below it prints.

Heavy imports stand inside the commands, so that `webnorm --help` answers at once.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from webnorm._version import __version__
from webnorm.cli import streams
from webnorm.cli.streams import complain, emit, say
from webnorm.errors import WebnormError, unknown

if TYPE_CHECKING:
    from rich.console import Console

    from webnorm.choice.tuning import Platform, Tuning
    from webnorm.gpu.device import AdapterInfo
    from webnorm.kernels.kernel import Kernel
    from webnorm.kernels.library import Broken
    from webnorm.kernels.render import Shader
    from webnorm.kernels.traits import Traits
    from webnorm.lab.results import Report, Result
    from webnorm.norms.ops import Op
    from webnorm.norms.presets import Task
    from webnorm.system import Mend
    from webnorm.web.browser import Visit
    from webnorm.web.package import Package

# Options for which - is standard output.
_TO_STDOUT = ("--json", "--csv", "--markdown")
OK, WRONG, BAD_USAGE, INTERRUPTED = 0, 1, 2, 130
# Seeds that nobody gave: short enough to be typed.
_SEEDS = 10**6
# The longest time that may be waited for: the clocks of operating systems take it, and nobody means more.
_MOST_SECONDS = 1e6
# A slowdown that no clock tells from a run that hangs.
_MOST_PERCENT = 1e9

app = typer.Typer(
    name="webnorm",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A WebGPU kernel lab for LayerNorm, RMSNorm and their gradients: WGSL kernels, "
    "checked against float64 and timed.\n\n"
    "Start with [bold]webnorm doctor[/] to see your adapters, then [bold]webnorm bench --quick[/].",
    epilog="Exit status: 0 all right, 1 a kernel is wrong or slower than asked, or none was tried, 2 bad "
    "usage or no adapter.",
)


# What typer raises for arguments that it does not understand; it exports a kind of it alone.
_UsageError: Any = typer.BadParameter.__base__


class _Interrupted(Exception):
    """Ctrl-C, after what was finished has been shown and written. Typer would swallow a KeyboardInterrupt."""


def run() -> NoReturn:
    """The console script: any mistake of the user's is one line on stderr and exit status 2."""
    arguments = sys.argv[1:]
    debug = "--debug" in arguments
    status = BAD_USAGE
    told = []
    try:
        streams.prepare()
        status = _answered([argument for argument in arguments if argument != "--debug"])
    except (WebnormError, OSError, MemoryError) as error:
        if debug:
            raise
        told.append(_told(error))
    except _Interrupted:
        told.append("interrupted; what was finished is kept")
        status = INTERRUPTED
    lost = streams.lost()
    if lost is not None:
        told.append(lost)
        status = INTERRUPTED if status == INTERRUPTED else BAD_USAGE
    if told:
        complain("; ".join(told))
    sys.exit(status)


def _answered(arguments: list[str]) -> int:
    """The exit status of a command that ran to its end; WebnormError for arguments that typer refuses."""
    for before, word in pairwise(("", *arguments)):
        name, equals, value = word.partition("=")
        if not word:
            name = before if before.startswith("-") else "an argument"
        if not word or (name.startswith("--") and equals and not value):
            # It would count as not given, or as the working folder.
            raise WebnormError(f"{name} is ''; expected a value")
    try:
        status = app(arguments, prog_name="webnorm", standalone_mode=False)
    except _UsageError as error:
        if not arguments:
            # Typer's way to show the help.
            say(str(error))
            return BAD_USAGE
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "webnorm"
        said = [error.format_message().rstrip("."), *_given(error, arguments), f"see {command} --help"]
        raise WebnormError("; ".join(said)) from error
    return status if isinstance(status, int) else OK


def _given(error: Any, arguments: Sequence[str]) -> list[str]:
    """What was given for the option that an error of typer's is about; typer does not say."""
    names = getattr(getattr(error, "param", None), "opts", ())
    given = [value for word, value in pairwise((*arguments, "")) if word in names]
    given += [word.partition("=")[2] for word in arguments if word.partition("=")[0] in names and "=" in word]
    return [f"it is {given[-1]!r}"] if given else []


def _told(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "there is not enough memory for this"
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return str(error)


# --- options that several commands share -----------------------------------------------------------

OpOption = Annotated[
    str | None,
    typer.Option(
        "--op",
        help="layer_norm (the default), layer_norm_backward, rms_norm or rms_norm_backward.",
    ),
]
AdapterOption = Annotated[
    str | None,
    typer.Option(
        "--adapter",
        help="Index or part of the name, as `webnorm doctor` lists them. "
        "Default: $WEBNORM_ADAPTER, or the first.",
    ),
]
KernelOption = Annotated[
    list[str] | None,
    typer.Option(
        "--kernel",
        "-k",
        help="A kernel's name, a .wgsl file, or auto, the one that is chosen for the problem; repeatable. "
        "Default: all.",
    ),
]
WgslOption = Annotated[
    list[Path] | None,
    typer.Option("--wgsl", help="A folder of your own kernels, DIR/<op>/<kernel>.wgsl; repeatable."),
]
ConstantOption = Annotated[
    list[str] | None,
    typer.Option(
        "--constant",
        "-c",
        help="NAME=VALUE[,VALUE...]: values of a tune axis instead of the default; repeatable.",
    ),
]
AllConstantsOption = Annotated[
    bool, typer.Option("--all-constants", help="Every admitted point of every kernel's tune axes.")
]
EpsOption = Annotated[
    float | None,
    typer.Option(
        "--eps", help="Added to the variance. Default: 1e-5; for rms_norm float32's machine epsilon."
    ),
]
DtypeOption = Annotated[
    str | None, typer.Option("--dtype", help="Storage type: float32 (the default), float16 or bfloat16.")
]
OptionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        help="NAME[=VALUE]: zero_centered_weight, residual, residual_bias, return_stats, "
        "out_dtype=float8_e4m3fn|float8_e5m2|int8, weight_dtype=float32, max_workgroups=N; for gradients "
        "saved_stats and dh; repeatable.",
    ),
]
ScaleOption = Annotated[
    float, typer.Option("--scale", help="What y is multiplied by before it is rounded to a float8 type.")
]
NoWeightOption = Annotated[bool, typer.Option("--no-weight", help="Leave the weight out.")]
NoBiasOption = Annotated[bool, typer.Option("--no-bias", help="Leave the bias out.")]
AllowSkippedOption = Annotated[
    bool, typer.Option("--allow-skipped", help="Exit 0 even where everything was skipped.")
]
SeedOption = Annotated[
    int | None,
    typer.Option(
        "--seed",
        help="Repeats the draws of a run that printed it. Default: others each time.",
        min=0,
        max=2**64 - 1,
    ),
]
TimeLimitOption = Annotated[
    float,
    typer.Option(
        "--time-limit",
        help="Seconds that a kernel or its compiler may be silent before it is given up.",
        min=0.1,
        max=_MOST_SECONDS,
    ),
]


def _version(wanted: bool) -> None:
    if wanted:
        say(f"webnorm {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    pass


# --- helpers ---------------------------------------------------------------------------------------


def _console(stderr: bool = False) -> Console:
    from webnorm.cli.screen import Screen

    return Screen(stderr=stderr)


def _integers(text: str | None, option: str) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise WebnormError(f"{option} is {text!r}; expected integers separated by commas") from None


def _constants(pairs: Sequence[str] | None, kernels: Sequence[Kernel]) -> dict[str, tuple[int, ...]]:
    chosen: dict[str, tuple[int, ...]] = {}
    axes = {axis for kernel in kernels for axis in kernel.tune}
    for pair in pairs or ():
        name, equals, values = pair.partition("=")
        if not equals:
            raise WebnormError(f"--constant is {pair!r}; expected NAME=VALUE[,VALUE...]")
        if name not in axes:
            raise unknown("constant", name, axes)
        words = values.replace("true", "1").replace("false", "0")
        chosen[name] = _integers(words, f"--constant {name}") or ()
    return chosen


def _kernels(
    names: Sequence[str] | None, ops: Sequence[str], roots: Sequence[Path] | None
) -> tuple[list[Kernel], list[Kernel], list[Broken]]:
    """The kernels asked for, those of the copy that they are measured against, and what of both is broken."""
    from webnorm.kernels.library import select_each

    found, broken = _survey(roots)
    chosen, failed = select_each(found, broken, names, ops)
    return (
        [kernel for kernel in chosen if not kernel.op.exact],
        [kernel for kernel in found if kernel.op.exact],
        failed,
    )


def _but_auto(
    names: Sequence[str] | None, constant: Sequence[str] | None, all_constants: bool = False
) -> list[str] | None:
    """The names of kernels, None where no name was given; WebnormError for constants with auto alone."""
    from webnorm.kernels.library import AUTO

    if not names:
        return None
    named = [name for name in names if name != AUTO]
    for flag, given in (("--constant", constant), ("--all-constants", all_constants)):
        if given and not named:
            raise WebnormError(f"{flag} goes with a kernel's name; auto chooses constants by itself")
    return named


def _drawn(seed: int | None) -> int:
    """The seed, or any where none was given: what a kernel knows of one says little of others."""
    import secrets

    return secrets.randbelow(_SEEDS) if seed is None else seed


def _op_named(name: str | None) -> Op:
    from webnorm.norms.ops import OPS

    if name is not None and name not in OPS:
        raise unknown("op", name, OPS)
    return OPS[name or "layer_norm"]


def _option_pairs(pairs: Sequence[str] | None, no_weight: bool, no_bias: bool) -> list[str]:
    left_out = [f"{name}=false" for name, absent in (("weight", no_weight), ("bias", no_bias)) if absent]
    return [*(pairs or ()), *left_out]


@contextmanager
def _progress(doing: str) -> Iterator[Callable[[str | None, float | None], None]]:
    """A progress bar on stderr, where that is a terminal: called with the work at hand and the share done.

    None for the work takes the bar away until the next call, so that a line can be printed in its place.
    """
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from webnorm.errors import one_line

    console = _console(stderr=True)
    with Progress(
        SpinnerColumn(),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task(doing, total=1.0)

        def update(text: str | None, share: float | None) -> None:
            if progress.disable:
                return
            if text is None:
                progress.stop()
            else:
                progress.update(task, description=one_line(text), completed=share)
                progress.start()

        yield update


def _command_line() -> str:
    """The command as a shell would take it."""
    return shlex.join(["webnorm", *sys.argv[1:]])


def _outputs(given: Mapping[str, Path | None], inputs: Iterable[Path] = ()) -> None:
    """Complain before the work begins about an output that cannot be written, or would cost another file.

    `given` has them by their options; - is standard output.
    """
    from webnorm.files import check_writable, same_place

    checked: dict[str, Path] = {}
    kept = list(inputs)
    for flag, path in given.items():
        if path is None:
            continue
        if str(path) != "-":
            _refuse_stream(flag, path)
            check_writable(path)
        for other, earlier in checked.items():
            named = "-" not in (str(path), str(earlier))
            if path == earlier or (named and same_place(path, earlier)):
                raise WebnormError(f"{flag} is {path}, and so is {other}; expected a place for each")
        if str(path) != "-" and any(one.exists() and same_place(path, one) for one in kept):
            raise WebnormError(f"{flag} is {path}, which is read; expected another file")
        checked[flag] = path


def _refuse_stream(flag: str, path: Path) -> None:
    """Complain about an output that standard output or standard error goes to: one would lose the other's."""
    for stream, name in ((sys.stdout, "standard output"), (sys.stderr, "standard error")):
        try:
            same = os.path.samestat(path.stat(), os.fstat(stream.fileno()))
        except (OSError, ValueError):
            continue
        if same and (stream.isatty() or not path.is_char_device()):
            hint = ", or - for standard output" if flag in _TO_STDOUT else ""
            raise WebnormError(f"{flag} is {path}, which is {name}; expected another file{hint}")


def _kernel_files(names: Sequence[str] | None, roots: Sequence[Path] | None) -> list[Path]:
    """The files that kernels and their snippets may be read from."""
    named = [Path(name) for name in names or () if name.endswith(".wgsl")]
    return [*named, *(path for root in roots or () for path in root.glob("*/*.wgsl"))]


def _writing(
    report: Report, json: Path | None, csv: Path | None = None, markdown: Path | None = None
) -> tuple[list[Callable[[], object]], list[Callable[[], object]]]:
    """The steps that write the files asked for, and those that print what - asks for."""
    from webnorm.lab import result_files, tables

    files: list[Callable[[], object]] = []
    printed: list[Callable[[], object]] = []
    for path, text in ((json, result_files.to_json), (csv, tables.to_csv), (markdown, tables.to_markdown)):
        if path is not None and str(path) == "-":
            printed.append(partial(_emit_report, report, text))
        elif path is not None:
            files.append(partial(_save_report, report, text, path))
    return files, printed


def _emit_report(report: Report, text: Callable[[Report], str]) -> None:
    emit(text(report))


def _save_report(report: Report, text: Callable[[Report], str], path: Path) -> None:
    from webnorm import files

    files.write_text(path, text(report))


def _each(*steps: Callable[[], object]) -> None:
    """Take every step; then WebnormError, of one line, for those that failed."""
    failed = []
    for step in steps:
        try:
            step()
        except WebnormError as error:
            failed.append(str(error))
    if failed:
        raise WebnormError("; ".join(dict.fromkeys(failed)))


# --- commands --------------------------------------------------------------------------------------


@app.command()
def doctor(
    adapter: AdapterOption = None,
    mend: Annotated[
        bool, typer.Option("--mend", help="Install what is missing; each command is printed before it runs.")
    ] = False,
    browser: Annotated[
        bool, typer.Option("--browser", help="Look also for what `webnorm verify` needs: a browser and Tint.")
    ] = False,
) -> None:
    """Adapters, driver, features, limits, the probed subgroup size, and what is missing."""
    from webnorm import system
    from webnorm.gpu.device import adapters, chosen_name, find_adapter
    from webnorm.web import browser as browsing
    from webnorm.web import tint

    console = _console()
    found = adapters()
    used = find_adapter(adapter) if found else None
    # Who chose an adapter is content with it.
    chosen = used is not None and chosen_name(adapter) is not None
    driver = None if chosen else system.adapter_mend(used)
    wanted = [driver, *([tint.mend(), *browsing.mends()] if browser else [])]
    missing = [one for one in wanted if one is not None]
    failed: Mapping[Mend, str] = {}
    if mend:
        failed = _mended(console, missing)
        needed = [reason for one, reason in failed.items() if not one.optional]
        if needed:
            raise WebnormError(" ".join(needed))
    elif missing:
        _show_missing(console, missing, f"webnorm doctor --mend{' --browser' if browser else ''}")
        if not all(one.optional for one in missing):
            raise typer.Exit(BAD_USAGE)
    if browser:
        console.print(f"browser: {browsing.find()}", soft_wrap=True)
        console.print(f"Tint: webgpu {tint.WEBGPU} in {tint.folder()}", soft_wrap=True)
    if mend and driver is not None and driver not in failed:
        _look_again()
    elif mend:
        console.print(f"{'going on with' if failed else 'adapter:'} {used}", soft_wrap=True)
    elif used is not None:
        _show_adapter(console, found, used)


def _show_missing(console: Console, missing: Sequence[Mend], command: str) -> None:
    for one in missing:
        console.print(one.missing, style="bold yellow", soft_wrap=True)
        for words in one.commands:
            console.print("  " + " ".join(words), soft_wrap=True)
    if any(one.commands for one in missing):
        console.print(f"`{command}` runs these commands.", soft_wrap=True)
    console.print()


def _mended(console: Console, missing: Sequence[Mend]) -> dict[Mend, str]:
    """Install what is missing; returns what could not be, with the reason."""
    from webnorm import system

    def say(text: str) -> None:
        console.print(text, style="bold yellow", soft_wrap=True)

    failed = {}
    for one in missing:
        if one.runs:
            say(one.missing)
        try:
            system.run_mend(one, lambda line: console.print(f"+ {line}", soft_wrap=True))
        except WebnormError as error:
            failed[one] = str(error)
            if one.optional:
                say(str(error))
    return failed


def _show_adapter(console: Console, found: Sequence[AdapterInfo], chosen: AdapterInfo) -> None:
    from webnorm.cli.overview import adapter_table, device_facts
    from webnorm.lab.bench import device_of
    from webnorm.lab.worker import TaskFailed, Worker, WorkerDied

    console.print(adapter_table(found, chosen))
    console.print()
    try:
        with Worker(str(chosen.index)) as worker:
            description, _ = device_of(worker)
    except (WorkerDied, TaskFailed) as death:
        raise WebnormError(f"{chosen}: opening it failed: {death}") from death
    console.print(chosen.name, style="bold")
    console.print(device_facts(description))


def _look_again() -> None:
    """What a new process sees: wgpu looks for drivers only when it is loaded."""
    import subprocess

    status = subprocess.run([sys.executable, "-m", "webnorm", "doctor"], check=False).returncode
    if status != OK:
        raise WebnormError("the packages are installed but wgpu still finds no adapter")


@app.command("list")
def list_kernels(
    op: Annotated[str | None, typer.Option("--op", help="Only this operation's kernels.")] = None,
    dtype: DtypeOption = None,
    option: OptionOption = None,
    wgsl: WgslOption = None,
    adapter: AdapterOption = None,
) -> None:
    """Ops and kernels: summary, what each changes, features needed, whether this adapter runs it.

    Asked with --dtype and --option it says so for such a problem, and leaves out the ops that have none.
    """
    from webnorm.cli.overview import kernel_table
    from webnorm.norms.ops import OPS

    if op is not None and op not in OPS:
        raise unknown("op", op, OPS)
    found, broken = _survey(wgsl)
    kernels = [kernel for kernel in found if op in (None, kernel.op.name)]
    traits = _traits_or_none(adapter)
    _console().print(kernel_table(kernels, traits, dtype or "float32", option or ()))
    _tell_broken(one for one in broken if op in (None, one.op.name))


def _survey(roots: Sequence[Path] | None) -> tuple[list[Kernel], list[Broken]]:
    from webnorm.kernels.library import survey

    return survey(roots or ())


def _tell_broken(broken: Iterable[Broken]) -> None:
    """A line for each file of the user's that is no kernel; the others are of use all the same."""
    for one in broken:
        complain(f"left out: {one.reason}")


def _traits_or_none(adapter: str | None) -> Traits | None:
    info = _adapter_or_none(adapter)
    return None if info is None else info.traits


def _adapter_or_none(adapter: str | None) -> AdapterInfo | None:
    from webnorm.gpu.device import adapters, find_adapter

    return find_adapter(adapter) if adapter is not None or adapters() else None


@app.command()
def show(
    kernel: Annotated[
        str, typer.Argument(help="A kernel's name, op/kernel, the path of a .wgsl file, or auto.")
    ],
    op: OpOption = None,
    rows: Annotated[int, typer.Option(help="Rows of the problem.")] = 1024,
    cols: Annotated[int, typer.Option(help="Columns of the problem.")] = 1024,
    dtype: DtypeOption = None,
    option: OptionOption = None,
    target: Annotated[
        str, typer.Option(help="native (naga, through wgpu) or browser (Tint and others).")
    ] = "native",
    constant: ConstantOption = None,
    no_weight: NoWeightOption = False,
    no_bias: NoBiasOption = False,
    diff: Annotated[
        str | None, typer.Option("--diff", help="Show what differs from this other kernel.")
    ] = None,
    cost: Annotated[
        bool, typer.Option("--cost", help="Count accesses, barriers and subgroup operations by running it.")
    ] = False,
    wgsl: WgslOption = None,
    adapter: AdapterOption = None,
) -> None:
    """The rendered WGSL of a kernel, for a problem, a target and constants."""
    from webnorm.choice.auto import choose
    from webnorm.choice.defaults import chosen_variants
    from webnorm.cli import overview
    from webnorm.kernels.library import AUTO, select
    from webnorm.kernels.render import TARGETS, render_shader
    from webnorm.kernels.traits import BROWSER

    if target not in TARGETS:
        raise unknown("target", target, TARGETS)
    found, broken = _survey(wgsl)
    home = _op_named(op)
    names = [name for name in (kernel, diff) if name is not None]
    named = _but_auto(names, constant) or ()
    asked = {name: select(found, name, home.name, (AUTO, "copy"), broken) for name in named}
    _tell_broken(broken)
    info = _adapter_or_none(adapter) if target == "native" else None
    traits = BROWSER if info is None else info.traits
    # A page runs on other adapters than this one, of which no tuning tells.
    tunings = _tunings(info.description()) if info is not None and AUTO in names else ()
    chosen = _constants(constant, list(asked.values()))
    shaders: list[Shader] = []
    for name in names:
        op_shown = asked[name].op if name in asked else home
        options = op_shown.defaults.changed(_option_pairs(option, no_weight, no_bias))
        problem = op_shown.problem(rows, cols, dtype, options=options)
        if name in asked:
            variant = chosen_variants(asked[name], problem, traits, chosen)[0]
        else:
            variant = choose(found, home, problem, traits, tunings).variant
        refusal = variant.refusal(problem, traits)
        if refusal:
            raise WebnormError(f"{variant} cannot run {problem}: {refusal}")
        shaders.append(render_shader(variant, problem, target, traits, roots=wgsl or ()))
    console = _console()
    if cost:
        _show_cost(console, shaders, wgsl or (), adapter)
        return
    text = overview.shader_diff(*shaders) if diff else overview.shader_text(shaders[0])
    if console.is_terminal:
        console.print(overview.highlighted(text, "diff" if diff else "wgsl"))
    else:
        emit(text)


def _show_cost(
    console: Console, shaders: Sequence[Shader], roots: Sequence[Path], adapter: str | None
) -> None:
    from webnorm.cli import overview
    from webnorm.lab.cost import CostJob, count_costs
    from webnorm.lab.jobs import VariantSpec
    from webnorm.lab.worker import TaskFailed, Worker, WorkerDied

    job = CostJob(tuple((shader.problem, VariantSpec.of(shader.variant)) for shader in shaders), tuple(roots))
    try:
        with Worker(adapter) as worker:
            costs = list(worker.stream(count_costs, job))
    except (WorkerDied, TaskFailed) as death:
        raise WebnormError(f"counting failed: {death}") from death
    console.print(
        overview.cost_table(dict(zip((str(shader.variant) for shader in shaders), costs, strict=True)))
    )


@app.command()
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
    from webnorm.kernels.library import AUTO
    from webnorm.lab import check as checking
    from webnorm.lab.origin import origin_of
    from webnorm.lab.results import Report
    from webnorm.lab.worker import Worker
    from webnorm.norms.case import Changes
    from webnorm.norms.corpus import whole_corpus

    console = _console(stderr=str(json) == "-")
    seed = _drawn(seed)
    corpus = whole_corpus(seed)
    if cases:
        console.print(overview.corpus_table(corpus))
        return
    read = [] if input is None else [input]
    _outputs({"--json": json}, [*read, *_kernel_files(kernel, wgsl)])
    home = _op_named(None if op == "all" else op)
    ops = checking.NORMS if op == "all" else (home.name,)
    named = _but_auto(kernel, constant, all_constants)
    kernels, copies, broken = _kernels(named, ops, wgsl)
    if not kernels and (named or home.exact):
        kernels = copies
    ladder = _kernels(None, ops, wgsl)[0] if kernel and AUTO in kernel else []
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
        _constants(constant, kernels),
        all_constants,
        tuple(ladder),
        whole=not case and input is None and option is None,
        broken=tuple(broken),
    )
    expected = request.count()
    if not expected:
        request.refuse_options()
        raise WebnormError("nothing to check: no case has these options, or they are of other ops")
    origin = origin_of(_command_line())
    results: list[Result] = []
    description: dict[str, Any] = {}
    interrupted = False
    with Worker(adapter, time_limit) as worker, _progress("opening the adapter") as update:
        try:
            description, traits = _opened(worker)
            if ladder:
                request = changed(request, tunings=_tunings(description))
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
    saved, printed = _writing(found, json)
    _each(*saved, show, *printed)
    if interrupted:
        raise _Interrupted
    raise typer.Exit(_status(results, allow_skipped, "verified"))


def _status(results: Sequence[Result], allow_skipped: bool, done: str) -> int:
    """The exit status for results, where something has to be `done`; a line on stderr where nothing was."""
    from webnorm.lab import bench

    if not allow_skipped and not bench.ran(results):
        complain(f"nothing was {done}: everything was skipped (--allow-skipped admits that)")
        return WRONG
    return WRONG if bench.failed(results) else OK


def _opened(worker: Any) -> tuple[dict[str, Any], Traits]:
    from webnorm.lab.bench import device_of
    from webnorm.lab.worker import TaskFailed, WorkerDied

    try:
        return device_of(worker)
    except (WorkerDied, TaskFailed) as death:
        raise WebnormError(f"opening the adapter failed: {death}; `webnorm doctor` lists them") from death


def _tunings(description: Mapping[str, Any]) -> tuple[Tuning, ...]:
    """The recorded tunings for a device; a line on stderr tells of one that does not hold, or is broken."""
    from webnorm.choice.tuning import Platform, applicable

    found, note = applicable(Platform.of(description))
    if note is not None:
        complain(note)
    return found


@app.command("bench")
def bench_command(
    kernel: KernelOption = None,
    op: OpOption = None,
    rows: Annotated[str | None, typer.Option(help="Rows, a list like 1024,4096.")] = None,
    cols: Annotated[str | None, typer.Option(help="Columns, a list like 768,1024.")] = None,
    preset: Annotated[
        str | None, typer.Option(help="A named workload in place of --rows and --cols; `help` lists them.")
    ] = None,
    dtype: DtypeOption = None,
    option: OptionOption = None,
    scale: ScaleOption = 1.0,
    distribution: Annotated[str, typer.Option(help="How x is drawn: normal, mean1e4, outlier...")] = "normal",
    eps: EpsOption = None,
    seed: SeedOption = None,
    no_weight: NoWeightOption = False,
    no_bias: NoBiasOption = False,
    constant: ConstantOption = None,
    all_constants: AllConstantsOption = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="One small shape, few samples: does it work?")
    ] = False,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget", help="Seconds of timing per shape and run, at most.", min=0.01, max=_MOST_SECONDS
        ),
    ] = None,
    runs: Annotated[
        int,
        typer.Option(
            "--runs",
            help="So many runs, each in a fresh process: `webnorm compare` needs 3 or more on both sides.",
            min=1,
        ),
    ] = 1,
    at_once: Annotated[
        bool,
        typer.Option(
            "--at-once",
            help="Time independent problems that may overlap on the device: its throughput. Default: each "
            "call waits for the one before, as a caller's do.",
        ),
    ] = False,
    wgsl: WgslOption = None,
    adapter: AdapterOption = None,
    time_limit: TimeLimitOption = 60.0,
    allow_skipped: AllowSkippedOption = False,
    json: Annotated[
        Path | None, typer.Option("--json", help="Write results as JSON, - for standard output.")
    ] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write results as CSV.")] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", help="Write results as Markdown tables.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw GB/s over columns into an .svg or .png file.")
    ] = None,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="Below each table, where the time goes with the fastest kernel: upload, dispatch, download, "
            "and the render, compile and pipeline of its first use.",
        ),
    ] = False,
) -> None:
    """Time kernels side by side with a copy, each checked against float64 before and after.

    Without --rows, --cols or --preset the shapes suit the adapter: large for a GPU, small for software.
    """
    from dataclasses import replace as changed

    from webnorm.calls.transfers import TransferJob, time_transfers
    from webnorm.cli import overview
    from webnorm.cli import plot as plotting
    from webnorm.cli import report as show_report
    from webnorm.gpu import timing
    from webnorm.kernels.library import AUTO
    from webnorm.lab import bench
    from webnorm.lab.origin import origin_of
    from webnorm.lab.profile import profiled
    from webnorm.lab.results import Report
    from webnorm.lab.worker import Worker

    if preset == "help":
        _console().print(overview.preset_table())
        return
    console = _console(stderr=any(str(path) == "-" for path in (json, csv, markdown)))
    if plot is not None:
        plotting.file_format(plot)
    _outputs(
        {"--json": json, "--csv": csv, "--markdown": markdown, "--plot": plot}, _kernel_files(kernel, wgsl)
    )
    if preset is not None and (rows or cols or op):
        raise WebnormError("--preset names its own op and shapes; leave --op, --rows and --cols out")
    home = _op_named(op)
    seed = _drawn(seed)
    changes = {"dtype": dtype, "eps": eps, "distribution": distribution, "seed": seed, "scale": scale}
    asked = _tasks(
        home,
        (_integers(rows, "--rows"), _integers(cols, "--cols")),
        preset,
        changes,
        _option_pairs(option, no_weight, no_bias),
    )
    ops = (
        (home.name,) if preset is None else tuple(dict.fromkeys(task.op.name for task in asked(None, quick)))
    )
    kernels, copies, broken = _kernels(_but_auto(kernel, constant, all_constants), ops, wgsl)
    rule = timing.QUICK if quick else timing.Rule()
    if budget is not None:
        rule = changed(rule, budget_s=budget)
    origin = origin_of(_command_line())
    finished: dict[int, list[Result]] = {}
    description: dict[str, Any] = {}

    def report(complete: bool = False) -> Report:
        found = tuple(result for results in finished.values() for result in results)
        return Report(device=description, results=found, complete=complete, origin=origin)

    def save() -> None:
        # A full disk may have room again; the last attempt tells.
        with suppress(WebnormError):
            _each(*_writing(report(), json, csv, markdown)[0])

    def show(number: int) -> None:
        console.print()
        console.print(show_report.bench_table(finished[number], str(tasks[number])))
        console.print(show_report.bar_chart(finished[number]))

    tasks: tuple[Task, ...] = ()
    shown = 0
    interrupted = False
    with Worker(adapter, time_limit) as worker, _progress("opening the adapter") as update:
        try:
            description, traits = _opened(worker)
            update(None, None)
            console.print(overview.device_line(description))
            tasks = asked(traits, quick)
            request = bench.BenchRequest(
                tasks,
                tuple(kernels),
                tuple(copies),
                rule,
                tuple(wgsl or ()),
                _constants(constant, [*kernels, *copies]),
                all_constants,
                ladder=tuple(_survey(wgsl)[0]),
                tunings=_tunings(description),
                with_auto=not kernel or AUTO in kernel,
                runs=runs,
                calls="at once" if at_once else "one by one",
                broken=tuple(broken),
            )
            done = 0
            for event in bench.run(request, worker, traits):
                if isinstance(event, bench.Progress):
                    run = f"run {event.run} of {runs}: " if runs > 1 else ""
                    update(f"{run}{event.task}: {event.doing}", done / (runs * len(tasks)))
                    continue
                number = done % len(tasks)
                done += 1
                finished[number] = event
                save()
                if done <= (runs - 1) * len(tasks):
                    continue
                update(None, None)
                show(number)
                shown = number + 1
                if profile:
                    finished[number] = profiled(
                        event,
                        lambda op, problem, called: worker.stream(
                            time_transfers, TransferJob(op, problem, called, rule)
                        ),
                    )
                    save()
                    console.print()
                    console.print(show_report.profile_table(finished[number], traits.software))
        except KeyboardInterrupt:
            interrupted = True

    def show_rest() -> None:
        for number in sorted(finished)[shown:]:
            show(number)
        console.print()
        software = description.get("type") == "CPU"
        console.print(show_report.race_line(report().results, software), soft_wrap=True)
        console.print(f"drawn with --seed {seed}", soft_wrap=True)

    drawn = [partial(plotting.plot, report(), plot)] if plot is not None and finished else []
    saved, printed = _writing(report(not interrupted), json, csv, markdown)
    _each(*saved, *drawn, show_rest, *printed)
    if interrupted:
        raise _Interrupted
    raise typer.Exit(_status(report().results, allow_skipped, "timed"))


def _tasks(
    op: Op,
    shapes: tuple[tuple[int, ...] | None, tuple[int, ...] | None],
    preset: str | None,
    changes: dict[str, Any],
    options: Sequence[str],
) -> Callable[[Traits | None, bool], tuple[Task, ...]]:
    """The tasks asked for; shapes that nobody named depend on the adapter. Mistakes are found at once."""
    from webnorm.norms import presets

    if preset is not None:
        named = presets.preset_named(preset).changed(
            options, changes["dtype"], changes["eps"], changes["seed"]
        )
        return lambda traits, quick: (
            presets.quick_tasks(named, traits is not None and traits.software) if quick else named.tasks
        )
    rows, cols = shapes
    presets.check_rows(rows)

    def tasks(traits: Traits | None, quick: bool) -> tuple[Task, ...]:
        if rows or cols or traits is None:
            pairs = tuple((m, n) for m in rows or (1024,) for n in cols or (1024,))
        else:
            pairs = presets.default_shapes(traits.software, quick)
        return presets.tasks(op.name, pairs, op.defaults.changed(options), **changes)

    tasks(None, False)
    return tasks


@app.command("tune")
def tune_command(
    op: Annotated[str | None, typer.Option("--op", help="Only this operation. Default: all four.")] = None,
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", help="float32, float16, bfloat16, a list, or all. Default: the first two."),
    ] = None,
    rows: Annotated[
        str | None, typer.Option(help="Rows, a list. Default: as many as make x 64 MiB; few on software.")
    ] = None,
    cols: Annotated[str | None, typer.Option(help="Columns, a list. Default: 256, 512, ... 16384.")] = None,
    preset: Annotated[
        str | None, typer.Option(help="The tasks of a named workload instead; `help` lists them.")
    ] = None,
    option: OptionOption = None,
    no_weight: NoWeightOption = False,
    no_bias: NoBiasOption = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="One small float32 problem of each op, or a few of the preset; some seconds each.",
        ),
    ] = False,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            help="Seconds for each problem, beside what checking takes. Default: 20; with --quick 6.",
            min=0.1,
            max=_MOST_SECONDS,
        ),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Tune what is recorded already, too.")] = False,
    show_recorded: Annotated[bool, typer.Option("--list", help="Show what is recorded, and stop.")] = False,
    forget: Annotated[bool, typer.Option("--forget", help="Remove what is recorded, and stop.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="The tuning file. Default: one in the user's cache folder.")
    ] = None,
    adapter: AdapterOption = None,
    time_limit: TimeLimitOption = 60.0,
) -> None:
    """Find the fastest kernel and constants for problems on this adapter, and record them for kernel="auto".

    What is recorded is not tuned again: a run that was interrupted goes on where it stopped.
    """
    from webnorm.choice import tuning
    from webnorm.cli import overview
    from webnorm.gpu.device import find_adapter
    from webnorm.kernels.library import discover
    from webnorm.lab import check, tune
    from webnorm.lab.worker import Worker
    from webnorm.norms import presets

    console = _console()
    if op is not None and op not in tune.OPS:
        raise unknown("op", op, tune.OPS)
    if preset == "help":
        console.print(overview.preset_table())
        return
    if preset is not None and (rows or cols or op):
        raise WebnormError("--preset names its own op and shapes; leave --op, --rows and --cols out")
    if show_recorded and forget:
        raise WebnormError("--list shows what --forget removes; expected one of them")
    info = find_adapter(adapter)
    platform = tuning.Platform.of(info.description())
    path = out or tuning.path_of(platform)
    if forget:
        say(f"removed {path}" if tuning.forget(path) else f"there is no {path}")
        return
    if show_recorded:
        _show_tuning(console, path, platform)
        return
    recorded, note = tuning.resume(path, platform)
    if note is not None:
        complain(note)

    options = _option_pairs(option, no_weight, no_bias)
    dtypes = check.dtypes_named(dtype) if dtype else ()
    software = info.traits.software
    if preset is not None:
        tasks = tune.of_preset(presets.preset_named(preset), dtypes, options, software, quick)
    else:
        shapes = _integers(rows, "--rows"), _integers(cols, "--cols")
        tasks = tune.grid(op, dtypes, shapes, options, software, quick)
    left = tuple(task for task in tasks if again or not recorded.has(task.op, task.problem))
    if len(left) < len(tasks):
        console.print(f"{len(tasks) - len(left)} of {len(tasks)} problems are recorded: not tuned again")
    if not left:
        return
    tuning.prepare(path)
    request = tune.TuneRequest(left, tuple(discover()), budget or (6.0 if quick else 20.0))
    number = 0
    interrupted = False
    unsaved: list[tuning.Choice] = []

    def waiting() -> None:
        update(None, None)
        complain(f"waiting for another process that is writing {path}")

    with Worker(adapter, time_limit) as worker, _progress("opening the adapter") as update:
        try:
            description, traits = _opened(worker)
            update(None, None)
            console.print(overview.device_line(description))
            for event in tune.run(request, worker, traits):
                if not isinstance(event, tune.Tuned):
                    update(f"{number + 1} of {len(left)}: {event.task}: {event.doing}", number / len(left))
                    continue
                number += 1
                if event.choice is not None:
                    unsaved.append(event.choice)
                    # Where this fails the choice is shown all the same, and the next attempt tells.
                    with suppress(WebnormError):
                        recorded = tuning.record(unsaved, path, platform, waiting)
                        unsaved.clear()
                update(None, None)
                console.print(overview.tuned_lines(event), soft_wrap=True)
        except KeyboardInterrupt:
            interrupted = True
    if unsaved:
        recorded = tuning.record(unsaved, path, platform, waiting)
    if recorded.choices:
        count = len(recorded.choices)
        console.print(f"{count} {'choice is' if count == 1 else 'choices are'} in {path}", soft_wrap=True)
    if interrupted:
        raise _Interrupted


def _show_tuning(console: Console, path: Path, platform: Platform) -> None:
    """What is in a tuning file, whether it holds here or not."""
    from webnorm.choice import tuning
    from webnorm.cli import overview

    if not path.exists():
        console.print(f"nothing is recorded: there is no {path}", soft_wrap=True)
        return
    recorded = tuning.read(path)
    objection = recorded.objection(platform)
    if objection is not None:
        complain(f"the tuning {path} does not hold here: {objection}")
    console.print(overview.tuning_table(recorded))


@app.command("export")
def export_command(
    op: Annotated[
        str | None,
        typer.Argument(help="layer_norm, rms_norm, layer_norm_backward or rms_norm_backward."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="The folder to write.")] = None,
    cols: Annotated[
        list[str] | None,
        typer.Option("--cols", help="Columns of a row; repeatable, or a list like 768,1024."),
    ] = None,
    dtype: DtypeOption = None,
    residual: Annotated[
        bool, typer.Option("--residual", help="Normalise h = x + residual, and give h too.")
    ] = False,
    no_weight: NoWeightOption = False,
    no_bias: NoBiasOption = False,
    zero_centered_weight: Annotated[
        bool, typer.Option("--zero-centered-weight", help="Scale by 1 + weight.")
    ] = False,
    option: OptionOption = None,
    eps: EpsOption = None,
    scale: ScaleOption = 1.0,
    kernel: Annotated[
        str,
        typer.Option(
            "--kernel", "-k", help="A kernel's name or a .wgsl file; auto: the best for each device."
        ),
    ] = "auto",
    name: Annotated[
        str | None, typer.Option("--name", help="The npm package's name. Default: webnorm-OP.")
    ] = None,
    minify: Annotated[
        bool, typer.Option("--minify", help="Shaders without comments and white space.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Write into a folder that holds something else, too.")
    ] = False,
    lab: Annotated[
        bool,
        typer.Option("--lab", help="In place of OP: a static site that checks and times every kernel."),
    ] = False,
    wgsl: WgslOption = None,
) -> None:
    """Write an npm package without dependencies: shaders for each class of adapters, host code, types, tests.

    Example: webnorm export layer_norm --cols 768 --dtype float16 --out dist/ln, then webnorm verify dist/ln.
    """
    from webnorm.files import lies_in, same_place
    from webnorm.web import folder, npm, site
    from webnorm.web.request import request_for

    if out is None:
        raise WebnormError("--out is missing; expected the folder to write, such as --out dist/norm")
    folder.check_folder(out, force, lab=lab)
    asked = [
        *(option or ()),
        *(["residual"] if residual else []),
        *(["zero_centered_weight"] if zero_centered_weight else []),
    ]
    settings = {
        "--dtype": dtype,
        "--eps": eps,
        "--scale": None if scale == 1.0 else scale,
        "--name": name,
        "--minify": minify,
    }
    given = [value is not None and value is not False for value in settings.values()]
    if lab and (op or cols or asked or no_weight or no_bias or kernel != "auto" or any(given)):
        raise WebnormError(
            "--lab carries every op and kernel; expected no more than --out, --wgsl and --force"
        )
    with _progress("reading kernels") as update:
        if lab:
            files = site.lab(tuple(wgsl or ()), update)
        else:
            request = request_for(
                op,
                tuple(n for text in cols or () for n in _integers(text, "--cols") or ()),
                _option_pairs(asked, no_weight, no_bias),
                kernel,
                tuple(wgsl or ()),
                settings,
            )
            files = npm.package(request, update)
    for path in _kernel_files([kernel], wgsl):
        if lies_in(path, out) and any(same_place(path, out / one) for one in files):
            raise WebnormError(f"--out {out}: {path} is read, and would be written; expected another folder")
    folder.write(files, out)
    say(npm.farewell(files, out))
    wrong = npm.wrong(files)
    for line in wrong:
        complain(line)
    raise typer.Exit(WRONG if wrong else OK)


@app.command("verify")
def verify_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `webnorm export OP` wrote.")],
    browser: Annotated[
        Path | None,
        typer.Option(
            "--browser", help="Chromium, Chrome or Edge. Default: $WEBNORM_BROWSER, or the first installed."
        ),
    ] = None,
    without_subgroups: Annotated[
        bool, typer.Option("--without-subgroups", help="As in a browser that has no subgroups.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Only check the answers, time nothing.")] = False,
    screenshot: Annotated[
        Path | None, typer.Option("--screenshot", help="Save a picture of the page as a .png file.")
    ] = None,
    time_limit: Annotated[
        float,
        typer.Option(
            "--time-limit",
            help="Seconds the browser has for starting, and for the page.",
            min=0.1,
            max=_MOST_SECONDS,
        ),
    ] = 120.0,
) -> None:
    """Prove an export: its files, its shaders in Chrome's compiler, its answers and times in a browser.

    A step that lacks something is skipped: `webnorm doctor --mend --browser` brings Tint, Chromium and
    Playwright.
    """
    import logging

    from webnorm.cli import report
    from webnorm.web import browser as browsing
    from webnorm.web import tint, verify
    from webnorm.web.package import read_package

    # Ctrl-C ends Playwright's own process too, and asyncio would tell of the broken connection.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL + 1)
    if screenshot is not None and screenshot.suffix.lower() != ".png":
        raise WebnormError(f"--screenshot is {screenshot}; expected a .png file")
    _outputs({"--screenshot": screenshot})
    no_tint, no_browser = tint.mend(), browsing.mends(browser)
    console = _console()
    right = True
    try:
        with _progress("reading the files") as update:
            package = read_package(folder)
            _outputs({"--screenshot": screenshot}, package.paths)
            shaders, vectors = len(package.shaders), len(package.manifest["vectors"])
            console.print(
                report.step_line(True, f"files: {shaders} shaders and {vectors} vectors are as exported")
            )
            if no_tint is not None:
                console.print(report.step_line(None, f"Tint: {no_tint.missing}"), soft_wrap=True)
            else:
                update("compiling the shaders", 0.1)
                right = _ask_tint(console, package)
        for one in no_browser:
            console.print(report.step_line(None, f"browser: {one.missing}"), soft_wrap=True)
        if right and not no_browser:
            without = ("subgroups",) if without_subgroups else ()
            with browsing.Browser(browser, time_limit) as opened, _progress(f"running {opened.path.name}"):
                visit = opened.visit(
                    folder, verify.page_query(without, quick), screenshot=screenshot is not None
                )
            right = _judge_visit(console, package, visit, screenshot)
    except KeyboardInterrupt:
        raise _Interrupted from None
    if right and (no_tint or no_browser):
        raise WebnormError(
            "not every step could be taken: `webnorm doctor --mend --browser` brings what is missing"
        )
    raise typer.Exit(OK if right else WRONG)


def _ask_tint(console: Console, package: Package) -> bool:
    """Whether Chrome's compiler takes every shader."""
    from webnorm.cli import report
    from webnorm.web import verify

    refused = verify.refused_by_tint(package)
    shaders = len(package.shaders)
    if refused:
        console.print(report.step_line(False, f"Tint: {len(refused)} of {shaders} shaders refused"))
        console.print(report.refusal_lines(package, refused), soft_wrap=True)
    else:
        console.print(report.step_line(True, f"Tint: {shaders} shaders compile, and so do their pipelines"))
    return not refused


def _judge_visit(console: Console, package: Package, visit: Visit, screenshot: Path | None) -> bool:
    """Whether a browser found every shader right that it ran."""
    from webnorm import files
    from webnorm.cli import report
    from webnorm.web import verify

    if screenshot is not None and visit.screenshot is not None:
        with files.replacing(screenshot) as beside:
            beside.write_bytes(visit.screenshot)
    seen = verify.judged(package, visit)
    right = sum(line.browser.verdict == "pass" for line in seen.lines)
    ran = sum(line.browser.verdict != "skip" for line in seen.lines)
    shaders = len(package.shaders)
    console.print(
        report.step_line(
            not seen.complaints, f"browser: {ran} of {shaders} shaders run here, {right} of them right"
        )
    )
    console.print()
    console.print(report.verify_table(seen))
    for complaint in seen.complaints:
        console.print(complaint, style="red", soft_wrap=True)
    return not seen.complaints


@app.command("compare")
def compare_command(
    old: Annotated[Path, typer.Argument(help="Results of `webnorm bench --json`.")],
    new: Annotated[Path, typer.Argument(help="Results to hold against them.")],
    fail_slower: Annotated[
        float | None,
        typer.Option(
            "--fail-slower",
            help="Exit 1 if anything is slower by more than so many percent, broken or missing, if a run was "
            "interrupted, or if nothing could be compared.",
            min=0.0,
            max=_MOST_PERCENT,
        ),
    ] = None,
    fail_unclear: Annotated[
        bool, typer.Option("--fail-unclear", help="With --fail-slower: exit 1 if anything is UNCLEAR, too.")
    ] = False,
    allow_missing: Annotated[
        bool,
        typer.Option(
            "--allow-missing",
            help="With --fail-slower: results missing in NEW, and interrupted runs, are no failure.",
        ),
    ] = False,
    any_device: Annotated[
        bool, typer.Option("--any-device", help="Compare results of different devices all the same.")
    ] = False,
) -> None:
    """SAME, FASTER, SLOWER, UNCLEAR or BROKEN for each kernel and problem, from the samples of several runs.

    Times are compared as multiples of the copy's, and held against what moves between runs: take both with
    webnorm bench --runs 5, or more on a busy machine.
    """
    from webnorm.cli.report import compare_table
    from webnorm.lab import result_files
    from webnorm.lab.compare import compare, objections

    if fail_slower is None and (fail_unclear or allow_missing):
        raise WebnormError("--fail-unclear and --allow-missing go with --fail-slower PERCENT")
    verdicts = compare(result_files.read(old), result_files.read(new), any_device=any_device)
    console = _console()
    console.print(compare_table(verdicts))
    if fail_slower is None:
        return
    against = objections(verdicts, fail_slower, allow_missing=allow_missing, fail_unclear=fail_unclear)
    for line in against or [f"passed: nothing is slower by more than {fail_slower:g} %"]:
        console.print(f"webnorm: {line}", soft_wrap=True)
    console.print(f"{verdicts.unclear} of {len(verdicts.comparisons)} are unclear")
    raise typer.Exit(WRONG if against else OK)
