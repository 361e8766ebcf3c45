"""The values of options, for help and shell completion. No adapter is opened for them."""

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
# The values of the words before the one to complete, by the names of a verb's parameters.
Given = Mapping[str, Any]


@dataclass(frozen=True)
class Candidate:
    """A possible completion, with the three fields that typer reads."""

    value: str
    help: str | None = None
    type: str = "plain"


def _listed(place: str) -> Values:
    """Return a function that gives the values of the object at `place`, a sequence or a function.

    The module is imported when the function is called, since the import takes longer than anything else here.
    """

    def values() -> Sequence[str]:
        # `webnorm --help` needs no values, and so not this import.
        import pkgutil

        found = pkgutil.resolve_name(place)
        return [*(found() if callable(found) else found)]

    return values


def _found(given: Given) -> list[Kernel]:
    """Return the kernels of the given op, or of all ops, including those in the user's folders."""
    from webnorm.errors import WebnormError
    from webnorm.kernels.headers.library import survey
    from webnorm.op.registry import OPS
    from webnorm.op.selection import select_names

    try:
        kernels, _ = survey(given.get("wgsl") or ())
        ops = select_names(given.get("op") or "all", OPS, "op")
    except WebnormError:
        # The verb reports what is wrong with the options.
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
    """Return the kernels that a new kernel can be a copy of."""
    return _names([kernel for kernel in _found(given) if not kernel.op.is_copy])


def _axes(given: Given) -> Sequence[str]:
    """Return the tune axes of the kernels in --kernel, or of all kernels."""
    from webnorm.op.selection import matches

    parts = [part for one in given.get("kernel") or () for part in one.split(",")]
    kernels = [one for one in _found(given) if not parts or any(matches(part, one.name) for part in parts)]
    return sorted({f"{axis}=" for kernel in kernels for axis in kernel.tune})


def _options(given: Given) -> Sequence[str]:
    """Return the options of the given op, or of all ops."""
    from webnorm.errors import WebnormError
    from webnorm.op.registry import OPS, option_words
    from webnorm.op.selection import select_names

    try:
        return option_words(select_names(given.get("op") or "all", OPS, "op"))
    except WebnormError:
        return option_words(OPS)


def _cases() -> Sequence[str]:
    from webnorm.op.corpus import fixed_cases

    return [case.name for case in fixed_cases()]


def _results() -> Sequence[str]:
    """Return baselines and JSON files. A shell that gets names does not complete files by itself."""
    return [*_BASELINES(), *sorted(path.name for path in Path().glob("*.json"))]


_OPS = _listed("webnorm.op.registry:computing_ops")
_BASELINES = _listed("webnorm.lab.report.baselines:baseline_names")
# Options with so few values that the help lists them: the last value, and all values. The last value shows
# whether a help text lists them already, without an import. It is None for values that come from ops.
_FEW: dict[str, tuple[str | None, Values]] = {
    "op": (None, _OPS),
    "--op": (None, _OPS),
    "--option": (None, _listed("webnorm.op.registry:listed_option_words")),
    "--dtype": ("bfloat16", _listed("webnorm.op.dtypes:STORAGE")),
    "--backend": ("dawn", _listed("webnorm.gpu.backend_names:BACKENDS")),
    "--target": ("browser", _listed("webnorm.kernels.rendering.render:TARGETS")),
    "--distribution": ("row_scales", _listed("webnorm.op.registry:distributions")),
    "--preset": ("h200", _listed("webnorm.op.presets:presets")),
    "--format": ("github", _listed("webnorm.lab.report.history.formats:FORMATS")),
}
_COMPLETED: dict[str, Values] = {
    **{name: values for name, (_, values) in _FEW.items() if name != "--option"},
    "kept": _BASELINES,
    "--case": _cases,
    "--save": _BASELINES,
    "--baseline": _results,
    "--cluster": lambda: ("local", "local:2", "tcp://"),
    "old": _results,
    "new": _results,
}
# Options with values that depend on the words before.
_NARROWED: dict[str, Callable[[Given], Sequence[str]]] = {
    "names": _kernels,
    "kernel": _kernels_and_auto,
    "--kernel": _kernels_and_auto,
    "--diff": _kernels_and_auto,
    "--from": _sources,
    "--constant": _axes,
    "--option": _options,
}


def unnamed(name: str, text: str) -> Sequence[str]:
    """Return the values of an option or argument that the help must list but its `text` does not.

    A text that contains the last value contains all of them, and the module of the values is not imported.
    Values that come from ops always need the import.
    """
    last, values = _FEW.get(name, ("", tuple))
    return () if last is not None and last in text else values()


def complete(param: Any, name: str) -> None:
    """Make a parameter of typer complete the values of option `name`; other options complete files."""
    # The same option takes a list in one verb and a name in another. Its help text says which.
    text = param.help or ""
    if name in _COMPLETED:
        values, more = _COMPLETED[name], ["all"] if "or all" in text else []
        param.shell_complete = partial(_candidates, lambda _: [*values(), *more], "a list" in text)
    elif name in _NARROWED:
        param.shell_complete = partial(_candidates, _NARROWED[name], "a list" in text)


def join_words() -> None:
    """Join the words that bash splits at "=". Typer does not expect NAME=VALUE as three words."""
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
    """Return the completions of a word; in a list, of its last part, with the parts before it."""
    *before, last = incomplete.split(",") if lists else [incomplete]
    known = (value for value in values(ctx.params) if value not in before)
    found = (",".join((*before, value)) for value in known if value.startswith(last))
    # In bash the word begins behind the "=".
    start = incomplete.rfind("=") + 1 if _in_bash() else 0
    return [Candidate(value[start:]) for value in found]
