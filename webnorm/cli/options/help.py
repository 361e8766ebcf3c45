"""What `--help` shows: options in panels by purpose, what stands for a value, exit statuses, examples.

Verbs say what an option means. Here is, by its name, where it belongs and what is given to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from webnorm.cli.options import completion, conflicts
from webnorm.cli.work.jobs import BAD_USAGE, INCONCLUSIVE, INTERRUPTED, OK, WRONG

if TYPE_CHECKING:
    from rich.console import RenderableType

    from webnorm.cli.terminal.screen import Screen

# Panel by panel, in the order of the help: options and arguments, and what stands for their values. Their
# names are the command line's, those of the norms' sizes, scalars and flags among them.
_PANELS = {
    "Kernels and files": (
        "kernel=KERNEL names=NAME name=NAME file=FILE files=FILE folder=DIR old=OLD new=NEW kept=NAME "
        "--kernel=NAME --from=KERNEL --constant=NAME=N,... --all-constants --wgsl=DIR --input=FILE "
        "--case=NAME --cases --here --lab --schema"
    ),
    "The problem": (
        "op=OP --op=OP --preset=NAME --size=NAME=N,... --rows=N,... --cols=N,... --scalar=NAME=X "
        "--dtype=DTYPE --option=NAME[=VALUE] "
        "--no-weight --no-bias --residual --zero-centered-weight --scale=X --eps=X --distribution=NAME "
        "--seed=N"
    ),
    "How it is measured": (
        "--no-time --quick --budget=SECONDS --runs=N --at-once --profile --once --trace=RULE "
        "--without-subgroups "
        "--time-limit=SECONDS --again --any-device"
    ),
    "What fails": "--allow-skipped --fail-slower=PERCENT --fail-unclear --allow-missing",
    "Output": (
        "--target=NAME --diff=NAME --cost --verbose --web --json=FILE --csv=FILE --markdown=FILE "
        "--plot=FILE --save=NAME --baseline=NAME --out=PATH --name=NAME --minify --partial --submit=URL "
        "--force --screenshot=FILE --store=FILE --export=DIR --as=FORMAT --last=N --copies --list --forget"
    ),
    "The server": "--host=ADDRESS --port=N --origin=URL --behind-proxy --rate=N --rate-all=N --capacity=N",
    "Machine": "address=ADDRESS --adapter=ADAPTER --cluster=WHERE --browser=PATH|ADDRESS --mend",
    "Other": "--version --debug --install-completion --show-completion --help",
}
# By name: its panel, and what stands for a value.
_PLACES = {
    name: (panel, value)
    for panel, entries in _PANELS.items()
    for name, _, value in (entry.partition("=") for entry in entries.split())
}

# What 0 means, by verb, where it is more than that the command did its work.
_RIGHT = {
    "doctor": "nothing that was looked for is missing",
    "play": "with --once, every step was taken and the kernel is right; without it, the end",
    "check": "everything that was asked for was checked and is right",
    "judge": "the kernel is right",
    "bench": "everything that was asked for was checked, is right and was timed",
    "tune": "every problem has a choice",
    "export": "written; shaders that could not be run here are listed",
    "verify": "every step was taken and everything is right",
    "compare": "compared; with --fail-slower, nothing is slower",
    "store regressions": "every result was compared and nothing is slower",
}
# What 1 means, by verb; of the others it is never the status.
_WRONG = {
    "doctor": "what kernels need is missing, or with --browser what `webnorm verify` needs",
    "play": "with --once, the kernel is wrong",
    "check": "a kernel is wrong",
    "judge": "the kernel is wrong, or was refused",
    "bench": "a kernel is wrong",
    "export": "a shader that was written is wrong natively",
    "verify": "something in the folder is wrong",
    "compare": "with --fail-slower, something is slower or broken",
    "store regressions": "something is slower, or broken",
}
# What 2 means beside bad usage.
_LACKING = {
    "doctor": "something that could not be installed",
    "collect": "a port that is in use",
    "baselines": "no such baseline",
    "fleet": "nobody who answers",
    "store": "a store that is none",
}
# What 3 means, by verb: nothing was found to be wrong, and not everything is known.
_UNKNOWN = {
    "play": "with --once, nothing is wrong, and a step was skipped, failed or was stopped",
    "check": "something that was asked for was skipped, or lost with a cluster's workers",
    "judge": "no case of the corpus could be checked",
    "bench": "something that was asked for was skipped, or lost with a cluster's workers; with --baseline, "
    "everything is UNCLEAR",
    "tune": "a problem has no choice: nothing was right and timed, or a cluster's workers are gone",
    "verify": "nothing is wrong, and a step was skipped",
    "compare": "everything is UNCLEAR; with --fail-slower, something is missing, unclear or interrupted",
    "store regressions": "something is unclear, or nothing could be compared",
}
# Each is a command of a page of the docs, where a test runs it.
EXAMPLES = {
    "doctor": ("webnorm doctor", "webnorm doctor --json"),
    "list": ("webnorm list --op rms_norm", "webnorm list registers", "webnorm list 'welford*' --here"),
    "show": (
        "webnorm show registers --cols 768 --target browser",
        "webnorm show registers --cols 768 --diff two_pass",
        "webnorm show registers --cols 768 --cost",
    ),
    "new": ("webnorm new quads --op layer_norm --from two_pass",),
    "new-op": ("webnorm new-op softmax",),
    "play": ("webnorm play kernels/layer_norm/quads.wgsl --once --quick",),
    "check": (
        "webnorm check --kernel registers --kernel one_pass --case shift-1e4",
        "webnorm check --op rms_norm --dtype float16 --case residual-61",
    ),
    "judge": ("webnorm judge kernels/softmax/naive.wgsl --op kernels/softmax --json",),
    "bench": (
        "webnorm bench --quick --json out.json",
        "webnorm bench --kernel auto --rows 512 --cols 768 --budget 0.2",
    ),
    "tune": ("webnorm tune --quick --op rms_norm --budget 2", "webnorm tune --list"),
    "export": ("webnorm export layer_norm --cols 768 --out dist/ln",),
    "verify": ("webnorm verify dist/ln",),
    "collect": (
        "webnorm collect --store visits.sqlite",
        "webnorm collect --store visits.sqlite --export visits",
    ),
    "compare": ("webnorm compare out.json out.json",),
    "baselines": ("webnorm baselines", "webnorm baselines 'before*' --forget"),
    "fleet": (
        "webnorm fleet --cluster tcp://127.0.0.1:8786",
        "webnorm fleet worker tcp://127.0.0.1:8786 --adapter Vulkan",
    ),
    "store": (
        "webnorm store add out.json",
        "webnorm store history --kernel registers --csv history.csv",
        "webnorm store regressions --last 10",
        "webnorm store export out.json --as bencher --out bencher.json",
    ),
}

# As wide as that, names and what they mean stand side by side.
_LEAST_FOR_TWO = 60
_INDENT = 2


def assign_panel(param: Any) -> None:
    """Give an option, or an argument, its panel and what stands for its value."""
    # A test holds that none is forgotten; one that is costs no command.
    param.rich_help_panel, value = _PLACES.get(long_name(param), ("Other", "VALUE"))
    if getattr(param, "is_flag", False):
        value = ""
    elif param.type_descriptor.annotation is int:
        value = "N"
    # A verb may know better what to call it.
    param.metavar = param.metavar or value


def placeholder(name: str) -> str:
    """Return the placeholder for the value of an option or argument."""
    return _PLACES[name][1]


def panel_order(param: Any) -> int:
    """Where in the help its panel stands."""
    return [*_PANELS].index(param.rich_help_panel)


def long_name(param: Any) -> str:
    """The name that the tables here have: an option's long one."""
    return str(max(param.opts, key=len))


def exit_statuses(verb: str = "") -> Iterator[tuple[int, str]]:
    """What a verb, such as "store add", or any of them, ends with, and what that means."""
    yield OK, _RIGHT.get(verb, "done") if verb else "everything that was asked for was done, and is right"
    wrong = _WRONG.get(verb) if verb else "something is wrong: a kernel, a file, a time"
    if wrong:
        yield WRONG, wrong
    lacking = _LACKING.get(verb.partition(" ")[0], "no adapter")
    yield BAD_USAGE, f"bad usage, a file that cannot be read or written, or {lacking}"
    unknown = _UNKNOWN.get(verb) if verb else "nothing is wrong, and not everything could be checked"
    if unknown:
        yield INCONCLUSIVE, unknown
    yield INTERRUPTED, "interrupted by Ctrl-C"


def examples(verb: str) -> list[str]:
    """The commands that show a verb, those of a verb's own verb among the verb's."""
    return [line for line in EXAMPLES[verb.partition(" ")[0]] if f"{line} ".startswith(f"webnorm {verb} ")]


def panels(ctx: Any) -> dict[str, list[tuple[str, str]]]:
    """A command's options and arguments by panel: what each is called, and what it means."""
    found: dict[str, list[tuple[str, str]]] = {}
    verb = ctx.command_path.partition(" ")[2]
    for one in ctx.command.get_params(ctx):
        if not getattr(one, "hidden", False):
            found.setdefault(one.rich_help_panel, []).append((_heading(one), _meaning(one, verb)))
    return found


def show_help(ctx: Any, verbs: Sequence[Any] = ()) -> None:
    """Print a command's help: usage, what it does, the `verbs` below it, panels, exit statuses, examples."""
    from rich.padding import Padding
    from rich.text import Text

    from webnorm.cli.terminal.screen import Screen

    console = Screen()
    console.print(ctx.command.get_usage(ctx), style="bold")
    for paragraph in (ctx.command.help or "").split("\n\n"):
        console.print()
        console.print(Padding(Text(" ".join(paragraph.split())), (0, 0, 0, _INDENT)))
    if verbs:
        _panel(console, "Verbs", [(verb.name, (verb.help or "").partition("\n\n")[0]) for verb in verbs])
    for title, rows in panels(ctx).items():
        _panel(console, title, rows)
    verb = ctx.command_path.partition(" ")[2]
    _panel(console, "Exit status", [(str(status), meaning) for status, meaning in exit_statuses(verb)])
    if verb:
        _panel(console, "Examples", [(line, "") for line in examples(verb)])


def _panel(console: Screen, title: str, rows: Sequence[tuple[str, str]]) -> None:
    """Names with what they mean: in a box on a terminal, below a heading elsewhere."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    body: RenderableType
    if console.width >= _LEAST_FOR_TWO and any(meaning for _, meaning in rows):
        body = table = Table.grid(padding=(0, 2))
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(overflow="fold")
        for name, meaning in rows:
            table.add_row(Text(name), Text(meaning))
    else:
        lines: list[RenderableType] = []
        for name, meaning in rows:
            lines.append(Text(name, "cyan"))
            if meaning:
                lines.append(Padding(Text(meaning), (0, 0, 0, 2 * _INDENT)))
        body = Group(*lines)
    if console.is_terminal:
        console.print(Panel(body, title=Text(title), title_align="left", border_style="dim"))
    else:
        console.print()
        console.print(f"{title}:")
        console.print(Padding(body, (0, 0, 0, _INDENT)))


def _heading(param: Any) -> str:
    """An option's names, the short one first, and what stands for its value."""
    names = param.opts if param.param_type_name == "option" else ()
    return " ".join(filter(None, (", ".join(sorted(names, key=len)), param.metavar)))


def _meaning(param: Any, verb: str) -> str:
    """What an option says of itself, the values that it does not name, its default, and what it excludes."""
    text = param.help or ""
    values = completion.unnamed(long_name(param), text)
    if values:
        # A value that is a number, such as max_workgroups=N.
        one_of = "webnorm's own" if long_name(param) in ("op", "--op") else "One of"
        text += f" {one_of}: {', '.join(f'{one}N' if one.endswith('=') else one for one in values)}."
    default = param.default
    if param.show_default and default is not None and default is not False:
        text += f" Default: {f'{default:g}' if isinstance(default, float) else default}."
    return " ".join((text, *conflicts.conflict_notes(verb, long_name(param))))
