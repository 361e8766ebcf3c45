"""The values that options have, and what a shell completes: no adapter is asked, and no kernel parsed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

Values = Callable[[], Sequence[str]]


@dataclass(frozen=True)
class Candidate:
    """A word that would do; typer asks for these three."""

    value: str
    help: str | None = None
    type: str = "plain"


def _ops() -> Sequence[str]:
    from webnorm.norms.ops import OPS

    return [name for name, op in OPS.items() if not op.exact]


def _dtypes() -> Sequence[str]:
    from webnorm.norms.problem import STORAGE

    return [*STORAGE]


def _targets() -> Sequence[str]:
    from webnorm.kernels.render import TARGETS

    return TARGETS


def _distributions() -> Sequence[str]:
    from webnorm.norms.problem import DISTRIBUTIONS

    return [*DISTRIBUTIONS]


def _presets() -> Sequence[str]:
    from webnorm.norms.presets import PRESETS

    return [*PRESETS]


def _options() -> Sequence[str]:
    from dataclasses import fields

    from webnorm.norms.problem import Options

    # --no-weight and --no-bias say these.
    return [field.name for field in fields(Options) if field.name not in ("weight", "bias")]


def _kernels() -> Sequence[str]:
    from webnorm.kernels.library import own_names

    return sorted(own_names())


def _kernels_and_auto() -> Sequence[str]:
    from webnorm.kernels.library import AUTO

    return [AUTO, *_kernels()]


def _cases() -> Sequence[str]:
    from webnorm.norms.corpus import CASES

    return [case.name for case in CASES]


def _baselines() -> Sequence[str]:
    from webnorm.lab import baselines

    return baselines.names()


def _results() -> Sequence[str]:
    """Baselines, and files beside them: a shell that is offered some names looks for no files."""
    return [*_baselines(), *sorted(path.name for path in Path().glob("*.json"))]


# Few enough to be named in the help: the last of them, and all.
_FEW: dict[str, tuple[str, Values]] = {
    "op": ("rms_norm_backward", _ops),
    "--op": ("rms_norm_backward", _ops),
    "--dtype": ("bfloat16", _dtypes),
    "--target": ("browser", _targets),
    "--distribution": ("row_scales", _distributions),
    "--preset": ("h200", _presets),
}
_COMPLETED = {
    **{name: values for name, (_, values) in _FEW.items()},
    "--option": _options,
    "names": _kernels,
    "kept": _baselines,
    "kernel": _kernels_and_auto,
    "--kernel": _kernels_and_auto,
    "--diff": _kernels_and_auto,
    "--from": _kernels,
    "--case": _cases,
    "--save": _baselines,
    "--baseline": _results,
    "old": _results,
    "new": _results,
}


def unnamed(name: str, text: str) -> Sequence[str]:
    """The values of an option, or argument, that its help is to name and does not.

    A text that has the last has all, and their source need not be imported, which takes longer than all else.
    """
    last, values = _FEW.get(name, ("", tuple))
    return () if last in text else values()


def complete(param: Any, name: str) -> None:
    """Have a parameter of typer's offer the values of the option that is called so; others offer files."""
    if name in _COMPLETED:
        # What a verb takes its help says: the same option is a list with one, and a name with another.
        text = param.help or ""
        values = _COMPLETED[name]
        known = partial(_and_all, values) if "or all" in text else values
        param.shell_complete = partial(_candidates, known, "a list" in text)


def _and_all(values: Values) -> Sequence[str]:
    from webnorm.norms.selection import ALL

    return [*values(), ALL]


def _candidates(values: Values, lists: bool, ctx: Any, incomplete: str) -> list[Candidate]:
    """The words that go on from an incomplete one; of a list its last part, with what stands before it."""
    *before, last = incomplete.split(",") if lists else [incomplete]
    known = (value for value in values() if value not in before)
    return [Candidate(",".join((*before, value))) for value in known if value.startswith(last)]
