"""The pages of `--help`: options in panels by purpose, placeholders of values, exit statuses, examples.

Each verb describes its own options. The tables here give an option's panel and the placeholder of its value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from webnorm.cli.options import completion, conflicts
from webnorm.cli.work.jobs import BAD_USAGE, INCONCLUSIVE, INTERRUPTED, OK, WRONG

if TYPE_CHECKING:
    from rich.console import RenderableType

    from webnorm.cli.terminal.screen import Screen

# The options and arguments of each panel with the placeholders of their values, in the order of the help.
_PANELS = {
    "Kernels and files": (
        "kernel=KERNEL names=NAME name=NAME file=FILE files=FILE model=MODEL folder=DIR old=OLD new=NEW "
        "kept=NAME "
        "--kernel=NAME --from=KERNEL --constant=NAME=N,... --all-constants --wgsl=DIR --input=FILE "
        "--case=NAME --cases --supported --lab --schema"
    ),
    "Problem": (
        "op=OP --op=OP --preset=NAME --model=MODEL --dim=NAME=N --size=NAME=N,... --rows=N,... --cols=N,... "
        "--scalar=NAME=X --dtype=DTYPE --option=NAME[=VALUE] "
        "--no-weight --no-bias --residual --zero-centered-weight --scale=X --eps=X --distribution=NAME "
        "--seed=N"
    ),
    "Measurement": (
        "--accuracy --no-time --quick --budget=SECONDS --runs=N --at-once --profile --once --trace=RULE "
        "--without-subgroups "
        "--time-limit=SECONDS --retune --any-device"
    ),
    "Pass or fail": "--allow-skipped --fail-slower=PERCENT --fail-unclear --allow-missing",
    "Output": (
        "--target=NAME --diff=NAME --cost --verbose --web --json=FILE --csv=FILE --markdown=FILE "
        "--plot=FILE --save=NAME --baseline=NAME --out=PATH --name=NAME --minify --partial --submit=URL "
        "--force --screenshot=FILE --store=FILE --export=DIR --page=DIR --format=FORMAT --last=N --copies "
        "--list --remove"
    ),
    "Server": "--lan --host=ADDRESS --port=N --origin=URL --behind-proxy --rate=N --rate-all=N --capacity=N",
    "Machine": (
        "address=ADDRESS --adapter=ADAPTER --backend=NAME --cluster=WHERE --browser=PATH|ADDRESS "
        "--engine=NAME --fix"
    ),
    "Other": "--version --debug --install-completion --show-completion --help",
}
# The panel and the placeholder of each option and argument.
_PLACES = {
    name: (panel, value)
    for panel, entries in _PANELS.items()
    for name, _, value in (entry.partition("=") for entry in entries.split())
}

# The meaning of status 0, for verbs where it is more than that the command succeeded.
_RIGHT = {
    "doctor": "Nothing is missing.",
    "play": "You ended the command. With --once: every step ran and the kernel is correct.",
    "check": "Every check that you asked for ran and passed.",
    "scan": "The model was read. It may have no norms.",
    "evaluate": "The kernel is correct.",
    "bench": "Every kernel that you asked for was checked and timed, and is correct.",
    "tune": "Every problem has a recorded choice.",
    "export": "The folder was written. Shaders that could not run on this machine are listed.",
    "verify": "Every step ran and passed.",
    "compare": "The results were compared. With --fail-slower: nothing is slower.",
    "store regressions": "Every result was compared and nothing is slower.",
}
# The meaning of status 1. Other verbs never exit with it.
_WRONG = {
    "doctor": "Something that kernels need is missing. With --browser: or something for `webnorm verify`.",
    "play": "With --once: the kernel is wrong.",
    "check": "A kernel is wrong.",
    "evaluate": "The kernel is wrong or was refused.",
    "bench": "A kernel is wrong.",
    "export": "A shader is wrong on this machine's adapter, and nothing was written.",
    "verify": "Something in the folder is wrong.",
    "compare": "With --fail-slower: something is slower or broken.",
    "store regressions": "Something is slower or broken.",
}
# Another meaning of status 2, by verb.
_LACKING = {
    "doctor": "something could not be installed",
    "scan": "the file is no model",
    "collect": "the port is in use",
    "baselines": "there is no such baseline",
    "cluster": "the cluster does not answer",
    "store": "the file is not a store",
}
# The meaning of status 3: nothing was found to be wrong, but not everything is known.
_UNKNOWN = {
    "play": "With --once: nothing is wrong, but a step was skipped, failed or was stopped.",
    "check": "Something that you asked for was skipped, or was lost with a cluster's workers.",
    "evaluate": "No case of the corpus could be checked.",
    "scan": "Something is not known, such as the architecture of the config or the shape of a norm.",
    "bench": "Something that you asked for was skipped, or was lost with a cluster's workers. "
    "With --baseline: everything is UNCLEAR.",
    "export": "With --model: the folder was written without norms that this version cannot export.",
    "collect": "With --page: a visit could not be read, and the page was written without it.",
    "tune": "A problem has no choice: no kernel was correct and timed, or the cluster's workers are gone.",
    "verify": "Nothing is wrong, but a step was skipped.",
    "compare": "Everything is UNCLEAR. With --fail-slower: something is missing, unclear or interrupted.",
    "store regressions": "Something is unclear, or nothing could be compared.",
}
# Each command is also on a page of the docs, where a test runs it.
EXAMPLES = {
    "doctor": ("webnorm doctor", "webnorm doctor --json"),
    "list": ("webnorm list --op rms_norm", "webnorm list registers", "webnorm list 'welford*' --supported"),
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
    "scan": (
        "webnorm scan config.json --dim sequence=512",
        "webnorm scan unet.onnx",
        "webnorm scan unet.onnx --accuracy",
    ),
    "evaluate": ("webnorm evaluate kernels/softmax/naive.wgsl --op kernels/softmax --json",),
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
        "webnorm collect --store visits.sqlite --page site",
    ),
    "compare": ("webnorm compare out.json out.json",),
    "baselines": ("webnorm baselines", "webnorm baselines 'before*' --remove"),
    "cluster": (
        "webnorm cluster --cluster tcp://127.0.0.1:8786",
        "webnorm cluster worker tcp://127.0.0.1:8786 --adapter Vulkan",
    ),
    "store": (
        "webnorm store add out.json",
        "webnorm store history --kernel registers --csv history.csv",
        "webnorm store regressions --last 10",
        "webnorm store export out.json --format bencher --out bencher.json",
    ),
}

# The least width at which names and their meanings are printed side by side.
_LEAST_FOR_TWO = 60
_INDENT = 2


def assign_panel(param: Any) -> None:
    """Set the panel of an option or argument, and the placeholder of its value."""
    # A test finds options that the table lacks; the command still works with them.
    param.rich_help_panel, value = _PLACES.get(long_name(param), ("Other", "VALUE"))
    if getattr(param, "is_flag", False):
        value = ""
    elif param.type_descriptor.annotation is int:
        value = "N"
    # A verb may set a placeholder of its own.
    param.metavar = param.metavar or value


def placeholder(name: str) -> str:
    """Return the placeholder for the value of an option or argument."""
    return _PLACES[name][1]


def panel_order(param: Any) -> int:
    """Return the position of a parameter's panel in the help."""
    return [*_PANELS].index(param.rich_help_panel)


def long_name(param: Any) -> str:
    """Return the name that the tables here use: the long name of an option."""
    return str(max(param.opts, key=len))


def exit_statuses(verb: str = "") -> Iterator[tuple[int, str]]:
    """Yield the exit statuses of a verb such as "store add", or of any verb, with their meanings."""
    done = "The command did everything that you asked for, and nothing is wrong."
    yield OK, _RIGHT.get(verb, "The command succeeded.") if verb else done
    wrong = _WRONG.get(verb) if verb else "A kernel is wrong, a file is wrong, or something became slower."
    if wrong:
        yield WRONG, wrong
    lacking = _LACKING.get(verb.partition(" ")[0], "there is no adapter")
    yield BAD_USAGE, f"The arguments are wrong, a file cannot be read or written, or {lacking}."
    unknown = _UNKNOWN.get(verb) if verb else "Nothing is wrong, but not everything could be checked."
    if unknown:
        yield INCONCLUSIVE, unknown
    yield INTERRUPTED, "Ctrl-C interrupted the command."


def examples(verb: str) -> list[str]:
    """Return the example commands of a verb, including the examples of its own verbs."""
    return [line for line in EXAMPLES[verb.partition(" ")[0]] if f"{line} ".startswith(f"webnorm {verb} ")]


def panels(ctx: Any) -> dict[str, list[tuple[str, str]]]:
    """Return the headings and meanings of a command's options and arguments, by panel."""
    found: dict[str, list[tuple[str, str]]] = {}
    verb = ctx.command_path.partition(" ")[2]
    for one in ctx.command.get_params(ctx):
        if not getattr(one, "hidden", False):
            found.setdefault(one.rich_help_panel, []).append((_heading(one), _meaning(one, verb)))
    return found


def show_help(ctx: Any, verbs: Sequence[Any] = ()) -> None:
    """Print a command's help: usage, description, its `verbs`, panels, exit statuses and examples."""
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
    """Print names and their meanings: in a box on a terminal, below a heading elsewhere."""
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
    """Return an option's names, the short one first, and the placeholder of its value."""
    names = param.opts if param.param_type_name == "option" else ()
    return " ".join(filter(None, (", ".join(sorted(names, key=len)), param.metavar)))


# The words before a list of values, for options that also have other values.
_LISTS = {
    "op": "Built-in ops",
    "--op": "Built-in ops",
    "--option": "Choices for layer_norm, rms_norm and their gradients",
}


def _meaning(param: Any, verb: str) -> str:
    """Return the help of an option: its text, further values, default and conflicts."""
    text = param.help or ""
    values = completion.unnamed(long_name(param), text)
    if values:
        # N stands for a number, as in max_workgroups=N.
        one_of = _LISTS.get(long_name(param), "Choices")
        text += f" {one_of}: {', '.join(f'{one}N' if one.endswith('=') else one for one in values)}."
    default = param.default
    if param.show_default and default is not None and default is not False:
        text += f" Default: {f'{default:g}' if isinstance(default, float) else default}."
    return " ".join((text, *conflicts.conflict_notes(verb, long_name(param))))
