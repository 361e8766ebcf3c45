"""The values that options have, and what a shell completes: no adapter is asked."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from webnorm.kernels.headers.kernel import Kernel

Values = Callable[[], Sequence[str]]
# What the words before say, by the names of a verb's parameters.
Given = Mapping[str, Any]


@dataclass(frozen=True)
class Candidate:
    """A word that would do; typer asks for these three."""

    value: str
    help: str | None = None
    type: str = "plain"


def _listed(place: str) -> Values:
    """The values that a module has at `place`, as a function or as they are. It is imported when they are
    asked for, which takes longer than all else.
    """

    def values() -> Sequence[str]:
        # `webnorm --help` needs no values.
        import pkgutil

        found = pkgutil.resolve_name(place)
        return [*(found() if callable(found) else found)]

    return values


def _found(given: Given) -> list[Kernel]:
    """The kernels of the op that is given, if one is, and of the user's folders."""
    from webnorm.errors import WebnormError
    from webnorm.kernels.headers.library import survey
    from webnorm.op.registry import OPS
    from webnorm.op.selection import select_names

    try:
        kernels, _ = survey(given.get("wgsl") or ())
        ops = select_names(given.get("op") or "all", OPS, "op")
    except WebnormError:
        # The verb will say what is wrong with them.
        return []
    return [kernel for kernel in kernels if kernel.op.name in ops]


def _names(kernels: Sequence[Kernel]) -> Sequence[str]:
    return sorted({kernel.name for kernel in kernels})


def _kernels(given: Given) -> Sequence[str]:
    return _names(_found(given))


def _kernels_and_auto(given: Given) -> Sequence[str]:
    from webnorm.kernels.headers.library import AUTO

    return [AUTO, *_kernels(given)]


def _sources(given: Given) -> Sequence[str]:
    """What a new kernel can be a copy of."""
    return _names([kernel for kernel in _found(given) if not kernel.op.is_copy])


def _axes(given: Given) -> Sequence[str]:
    """The tune axes of the kernels that --kernel names, or of all."""
    from webnorm.op.selection import matches

    parts = [part for one in given.get("kernel") or () for part in one.split(",")]
    kernels = [one for one in _found(given) if not parts or any(matches(part, one.name) for part in parts)]
    return sorted({f"{axis}=" for kernel in kernels for axis in kernel.tune})


def _cases() -> Sequence[str]:
    from webnorm.op.corpus import fixed_cases

    return [case.name for case in fixed_cases()]


def _results() -> Sequence[str]:
    """Baselines, and files beside them: a shell that is offered some names looks for no files."""
    return [*_BASELINES(), *sorted(path.name for path in Path().glob("*.json"))]


_OPS = _listed("webnorm.op.registry:computing_ops")
_BASELINES = _listed("webnorm.lab.report.baselines:baseline_names")
# Few enough to be named in the help: the last of them, which no import is needed for, and all. What ops bring
# is in no text: None.
_FEW: dict[str, tuple[str | None, Values]] = {
    "op": (None, _OPS),
    "--op": (None, _OPS),
    "--option": (None, _listed("webnorm.op.registry:option_words")),
    "--dtype": ("bfloat16", _listed("webnorm.op.dtypes:STORAGE")),
    "--target": ("browser", _listed("webnorm.kernels.rendering.render:TARGETS")),
    "--distribution": ("row_scales", _listed("webnorm.op.registry:distributions")),
    "--preset": ("h200", _listed("webnorm.op.presets:presets")),
    "--format": ("github", _listed("webnorm.lab.report.history.formats:FORMATS")),
}
_COMPLETED: dict[str, Values] = {
    **{name: values for name, (_, values) in _FEW.items()},
    "kept": _BASELINES,
    "--case": _cases,
    "--save": _BASELINES,
    "--baseline": _results,
    "--cluster": lambda: ("local", "local:2", "tcp://"),
    "old": _results,
    "new": _results,
}
# Those that the words before narrow down.
_NARROWED: dict[str, Callable[[Given], Sequence[str]]] = {
    "names": _kernels,
    "kernel": _kernels_and_auto,
    "--kernel": _kernels_and_auto,
    "--diff": _kernels_and_auto,
    "--from": _sources,
    "--constant": _axes,
}


def unnamed(name: str, text: str) -> Sequence[str]:
    """The values of an option, or argument, that its help is to name and does not.

    A text that has the last has all, and their source need not be imported, which takes longer than all else.
    That of what ops bring always is.
    """
    last, values = _FEW.get(name, ("", tuple))
    return () if last is not None and last in text else values()


def complete(param: Any, name: str) -> None:
    """Have a parameter of typer's offer the values of the option that is called so; others offer files."""
    # What a verb takes its help says: the same option is a list with one, and a name with another.
    text = param.help or ""
    if name in _COMPLETED:
        values, more = _COMPLETED[name], ["all"] if "or all" in text else []
        param.shell_complete = partial(_candidates, lambda _: [*values(), *more], "a list" in text)
    elif name in _NARROWED:
        param.shell_complete = partial(_candidates, _NARROWED[name], "a list" in text)


def join_words() -> None:
    """Join what bash has broken at "=", for which typer has no care: NAME=VALUE comes as three words."""
    if not _in_bash():
        return
    words, at = os.environ["COMP_WORDS"].split("\n"), int(os.environ["COMP_CWORD"])
    joined: list[str] = []
    for word in words[: at + 1]:
        if joined and (word == "=" or (word and joined[-1].endswith("="))):
            joined[-1] += word
            at -= 1
        else:
            joined.append(word)
    os.environ.update(COMP_WORDS="\n".join(joined), COMP_CWORD=str(at))


def _in_bash() -> bool:
    return os.environ.get("_WEBNORM_COMPLETE") == "complete_bash"


def _candidates(
    values: Callable[[Given], Sequence[str]], lists: bool, ctx: Any, incomplete: str
) -> list[Candidate]:
    """The words that go on from an incomplete one; of a list its last part, with what stands before it."""
    *before, last = incomplete.split(",") if lists else [incomplete]
    known = (value for value in values(ctx.params) if value not in before)
    found = (",".join((*before, value)) for value in known if value.startswith(last))
    # Bash puts a candidate behind the "=", where its word begins.
    told = incomplete.rfind("=") + 1 if _in_bash() else 0
    return [Candidate(value[told:]) for value in found]
