"""What the values of options mean: numbers, constants, kernels, an op, an adapter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webnorm.cli.streams import complain
from webnorm.errors import WebnormError, unknown

if TYPE_CHECKING:
    from webnorm.choice.tuning import Tuning
    from webnorm.gpu.device import AdapterInfo
    from webnorm.kernels.kernel import Kernel
    from webnorm.kernels.library import Broken


# Seeds that nobody gave: short enough to be typed.
_SEEDS = 10**6


def integers(text: str | None, option: str) -> tuple[int, ...] | None:
    """The numbers of a list like "768,1024"; None where none was given."""
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise WebnormError(f"{option} is {text!r}; expected integers separated by commas") from None


def seed_or_any(seed: int | None) -> int:
    """The seed, or any where none was given: what a kernel knows of one says little of others."""
    import secrets

    return secrets.randbelow(_SEEDS) if seed is None else seed


def option_pairs(pairs: Sequence[str] | None, no_weight: bool, no_bias: bool) -> list[str]:
    """What --option, --no-weight and --no-bias say, as Options.changed takes it."""
    left_out = [f"{name}=false" for name, absent in (("weight", no_weight), ("bias", no_bias)) if absent]
    return [*(pairs or ()), *left_out]


def refuse_beside_preset(preset: str | None, *given: str | None) -> None:
    """Complain about an op or a shape beside a preset, which has its own."""
    if preset is not None and any(given):
        raise WebnormError("--preset names its own op and shapes; leave --op, --rows and --cols out")


def constants(pairs: Sequence[str] | None, kernels: Sequence[Kernel]) -> dict[str, tuple[int, ...]]:
    """The values of --constant by the names of the kernels' tune axes."""
    chosen: dict[str, tuple[int, ...]] = {}
    axes = {axis for kernel in kernels for axis in kernel.tune}
    for pair in pairs or ():
        name, equals, values = pair.partition("=")
        if not equals:
            raise WebnormError(f"--constant is {pair!r}; expected NAME=VALUE[,VALUE...]")
        if name not in axes:
            raise unknown("constant", name, axes)
        words = values.replace("true", "1").replace("false", "0")
        chosen[name] = integers(words, f"--constant {name}") or ()
    return chosen


def but_auto(
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


def kernels_asked(
    names: Sequence[str] | None, ops: Sequence[str], roots: Sequence[Path] | None
) -> tuple[list[Kernel], list[Kernel], list[Broken]]:
    """The kernels asked for, those of the copy that they are measured against, and what of both is broken."""
    from webnorm.kernels.library import select_each, survey

    found, broken = survey(roots or ())
    chosen, failed = select_each(found, broken, names, ops)
    return (
        [kernel for kernel in chosen if not kernel.op.exact],
        [kernel for kernel in found if kernel.op.exact],
        failed,
    )


def complain_of(broken: Iterable[Broken]) -> None:
    """A line for each file of the user's that is no kernel; the others are of use all the same."""
    for one in broken:
        complain(f"left out: {one.reason}")


def kernel_files(names: Sequence[str] | None, roots: Sequence[Path] | None) -> list[Path]:
    """The files that kernels and their snippets may be read from."""
    named = [Path(name) for name in names or () if name.endswith(".wgsl")]
    return [*named, *(path for root in roots or () for path in root.glob("*/*.wgsl"))]


def adapter_or_none(adapter: str | None) -> AdapterInfo | None:
    """The adapter asked for, else the first; None where there is none at all."""
    from webnorm.gpu.device import adapters, find_adapter

    return find_adapter(adapter) if adapter is not None or adapters() else None


def recorded_tuning(description: Mapping[str, Any]) -> Tuning | None:
    """The recorded tuning for a device; a line on stderr tells of one that does not hold, or is broken."""
    from webnorm.choice.tuning import Platform, applicable

    found, note = applicable(Platform.of(description))
    if note is not None:
        complain(note)
    return found
