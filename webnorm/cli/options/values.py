"""Conversions of option values: numbers, constants, kernels, an op, an adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webnorm.cli.terminal.streams import complain
from webnorm.errors import WebnormError

if TYPE_CHECKING:
    from webnorm.choice.tuning import Tuning
    from webnorm.gpu.device import AdapterInfo
    from webnorm.kernels.headers.library import UnreadableKernel


def integers(text: str | None, option: str, least: int = 1) -> tuple[int, ...] | None:
    """Return the numbers of a list like "768,4k,256..2k" (see selection.sizes); None without a list."""
    from webnorm.op.selection import sizes

    return None if text is None else sizes(text, option, least)


def size_of(option: str, least: int = 1) -> Callable[[str | int], int]:
    """Return a parser for an option that takes one number, such as 1024 or 4k."""

    def size(given: str | int) -> int:
        if isinstance(given, int):
            return given
        found = integers(given, option, least) or ()
        if len(found) != 1:
            raise WebnormError(f"{option} is {given!r}; expected one number, such as 1024 or 4k")
        return found[0]

    return size


def size_lists(
    pairs: Sequence[str] | None, rows: str | None = None, cols: str | None = None, least: int = 1
) -> dict[str, tuple[int, ...] | None]:
    """Return the sizes of --size by name, together with the sizes of --rows and --cols.

    `least` is the smallest valid number of --rows and --cols. The op decides which other sizes may be 0.
    """
    found: dict[str, tuple[int, ...] | None] = {}
    for pair in pairs or ():
        name, equals, values = pair.partition("=")
        if not equals or not name:
            raise WebnormError(f"--size is {pair!r}; expected NAME=N[,N...]")
        if name in found:
            raise WebnormError(f"--size {name} is given twice; expected one list, such as {name}=256,1k")
        found[name] = integers(values, f"--size {name}", least=0)
    for name, given in (("rows", rows), ("cols", cols)):
        if given is not None and name in found:
            raise WebnormError(f"--{name} and --size {name} cannot be combined")
        if given is not None:
            found[name] = integers(given, f"--{name}", least)
    return found


def scalar_values(pairs: Sequence[str] | None, **own: float | None) -> dict[str, float | None]:
    """Return the scalars of --scalar by name, together with the scalars that have their own options."""
    found = dict(own)
    for pair in pairs or ():
        name, _, text = pair.partition("=")
        try:
            number = float(text)
        except ValueError as error:
            raise WebnormError(f"--scalar is {pair!r}; expected NAME=X, such as eps=1e-6") from error
        if found.get(name) is not None:
            raise WebnormError(f"scalar {name} is given twice; expected it once")
        found[name] = number
    return found


def given_scalars(pairs: Sequence[str] | None) -> dict[str, float]:
    """Return only the scalars of --scalar, by name."""
    return {name: value for name, value in scalar_values(pairs).items() if value is not None}


def option_pairs(pairs: Sequence[str] | None, no_weight: bool, no_bias: bool) -> list[str]:
    """Return the values of --option, --no-weight and --no-bias in the form of Options.changed."""
    left_out = [f"{name}=false" for name, absent in (("weight", no_weight), ("bias", no_bias)) if absent]
    return [*(pairs or ()), *left_out]


def constant_values(pairs: Sequence[str] | None) -> dict[str, tuple[int, ...]]:
    """Return the values of --constant by tune axis."""
    chosen: dict[str, tuple[int, ...]] = {}
    for pair in pairs or ():
        name, equals, values = pair.partition("=")
        if not equals:
            raise WebnormError(f"--constant is {pair!r}; expected NAME=VALUE[,VALUE...]")
        words = values.replace("true", "1").replace("false", "0")
        chosen[name] = integers(words, f"--constant {name}", least=0) or ()
    return chosen


def report_unreadable(broken: Iterable[UnreadableKernel]) -> None:
    """Print one line to stderr for each of the user's files that is not a kernel."""
    for one in broken:
        complain(f"left out: {one.reason}")


def kernel_files(names: Sequence[str] | None, roots: Sequence[Path] | None) -> list[Path]:
    """Return the files from which kernels and their snippets may be read."""
    from webnorm.kernels.headers.sources import is_wgsl

    named = [Path(name) for name in names or () if is_wgsl(name)]
    return [*named, *(path for root in roots or () for path in root.glob("*/*") if is_wgsl(path.name))]


def adapter_or_none(adapter: str | None) -> AdapterInfo | None:
    """Return the chosen adapter, or else the first one; None if the machine has no adapter."""
    from webnorm.gpu.device import adapters, find_adapter

    return find_adapter(adapter) if adapter is not None or adapters() else None


def recorded_tuning(description: Mapping[str, Any]) -> Tuning | None:
    """Return the recorded tuning of a device; a line on stderr reports a stale or broken tuning."""
    from webnorm.choice.tuning import Platform, applicable

    found, note = applicable(Platform.of(description))
    if note is not None:
        complain(note)
    return found
