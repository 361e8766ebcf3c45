"""The library of kernels: webnorm's own and those in a user's folders, found by name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from webnorm import signals
from webnorm.errors import WebnormError, check_kind, sentence, shown, unknown
from webnorm.kernels.headers.header import load, load_all
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.sources import is_wgsl, wgsl_files, wgsl_root
from webnorm.op.op import Op
from webnorm.op.registry import OPS, default_op, is_op_folder, user_ops
from webnorm.op.selection import is_pattern, matches

# Stands for the automatic choice of a kernel (webnorm/choice/defaults.py).
AUTO = "auto"
# A name that is neither a pattern nor a path.
_PLAIN = re.compile(r"\w+", re.ASCII)


@dataclass(frozen=True)
class UnreadableKernel:
    """A user's kernel file that cannot be read, and the reason in one line, with file and line number."""

    op: Op
    name: str
    path: Path
    reason: str

    @property
    def label(self) -> str:
        """The name that the kernel would have."""
        return self.name if self.name == self.op.name else f"{self.op.name}/{self.name}"


@signals.deferring
def survey(
    extra: Sequence[Path] = (), own: Set[str] | None = None
) -> tuple[list[Kernel], list[UnreadableKernel]]:
    """Read all kernels of webnorm and of the user's folders (`DIR/<op>/<kernel>.wgsl`), by op and rung.

    A user's kernel replaces webnorm's kernel of the same op and name, even if it is broken.

    Parameters
    ----------
    extra
        The user's folders.
    own
        The names of webnorm's kernels to read; None for all.

    Returns
    -------
    kernels, broken
        The kernels, and the user's files that cannot be read.

    Raises
    ------
    WebnormError
        A folder does not exist or contains no kernel.
    """
    check_kind("extra", extra, Sequence, "a sequence of folders")
    for folder in extra:
        check_kind("one of extra", folder, Path)
    found: dict[tuple[str, str], Kernel | UnreadableKernel] = {}
    of_ops = [op.source.files for op in user_ops().values() if op.source is not None]
    for root in (wgsl_root(), *extra):
        for path in [*_kernel_files(root), *(path for folder in of_ops for path in wgsl_files(folder))]:
            if root == wgsl_root() and own is not None and path.stem not in own:
                continue
            try:
                served: Sequence[Kernel | UnreadableKernel] = load_all(path)
            except Exception as error:
                signals.let_through(error)
                if root == wgsl_root():
                    raise
                op = OPS[path.parent.name]
                served = [UnreadableKernel(op, sentence(path.stem), path, _reason(path, error))]
            for kernel in served:
                # Removed first, so that a replacement is listed with its own folder.
                found.pop((kernel.op.name, path.stem), None)
                found[kernel.op.name, path.stem] = kernel
    kernels = sorted((one for one in found.values() if isinstance(one, Kernel)), key=_place)
    return kernels, [one for one in found.values() if isinstance(one, UnreadableKernel)]


def _place(kernel: Kernel) -> tuple[int, int, str]:
    return list(OPS).index(kernel.op.name), kernel.rung, kernel.name


def _kernel_files(root: Path) -> list[Path]:
    try:
        if not root.is_dir():
            raise WebnormError(f"{root}: not a folder; expected a folder of kernels, <op>/<kernel>.wgsl")
        # A user's op that replaces a packaged one has kernels of its own.
        ops = [op for op in OPS if root != wgsl_root() or op not in user_ops()]
        paths = [path for op in ops for path in wgsl_files(root / op)]
    except (OSError, ValueError) as error:
        raise WebnormError(f"{root}: cannot read the folder of kernels: {error}") from error
    if not paths:
        raise WebnormError(
            f"{root}: contains no kernel; expected <op>/<kernel>.wgsl in it, for an op with an op.py or for "
            f"one of {', '.join(OPS)}"
        )
    return paths


def _reason(path: Path, error: Exception) -> str:
    if isinstance(error, WebnormError):
        return str(error)
    return sentence(f"{path}: cannot read the kernel: {type(error).__name__} {error}")


def discover(extra: Sequence[Path] = ()) -> list[Kernel]:
    """List every kernel of webnorm, of the user ops, and of some folders.

    Parameters
    ----------
    extra : sequence of pathlib.Path, optional
        Folders of kernels of your own, `DIR/<op>/<kernel>.wgsl`. They replace webnorm's kernels of the same
        op and name.

    Returns
    -------
    list of Kernel
        The kernels, sorted by op and rung.

    Raises
    ------
    WebnormError
        A kernel is broken, or a folder contains none.

    Examples
    --------
    >>> import webnorm
    >>> "naive" in {kernel.name for kernel in webnorm.discover()}
    True
    """
    kernels, broken = survey(extra)
    for one in broken:
        raise WebnormError(one.reason)
    return kernels


def own_names() -> frozenset[str]:
    """Return the names of webnorm's own kernels without reading them."""
    return frozenset(path.stem for path in _kernel_files(wgsl_root()))


def own_kernels(op: str) -> list[Kernel]:
    """Return webnorm's own kernels of one op; for a user's op, the kernels in its folder."""
    if op in user_ops():
        return [kernel for kernel in discover() if kernel.op.name == op]
    found = (kernel for path in _kernel_files(wgsl_root()) for kernel in load_all(path, op))
    return sorted(found, key=_place)


def own_kernel(op: str, name: str) -> Kernel | None:
    """Return the kernel of that name among `own_kernels`, or None, without reading other files."""
    if op in user_ops():
        # Not cached, because a user's files may change while the process runs.
        return next((kernel for kernel in own_kernels(op) if kernel.name == name), None)
    return _own_kernel(op, name)


@lru_cache(maxsize=64)
def _own_kernel(op: str, name: str) -> Kernel | None:
    paths = (path for path in _kernel_files(wgsl_root()) if path.stem == name)
    return next((kernel for path in paths for kernel in load_all(path, op)), None)


def select_for(kernels: Sequence[Kernel], names: Sequence[str] | None, ops: Sequence[str]) -> list[Kernel]:
    """Return the kernels of some ops that match one of `names` (names or patterns); None selects all."""
    if names is None:
        return [kernel for kernel in kernels if kernel.op.name in ops]
    found: dict[tuple[Path, str], Kernel] = {}
    for name in names:
        own = [kernel for kernel in kernels if kernel.op.name in ops and matches(name, kernel.name)]
        for kernel in own or [select(kernels, name, ops[0], also=(AUTO, "copy"))]:
            found[kernel.path, kernel.op.name] = kernel
    return list(found.values())


def select_each(
    kernels: Sequence[Kernel],
    broken: Sequence[UnreadableKernel],
    names: Sequence[str] | None,
    ops: Sequence[str],
) -> tuple[list[Kernel], list[UnreadableKernel]]:
    """Do `select_for`, and return the requested ones among the broken kernels as well.

    Raises WebnormError for an unknown name, and if all requested kernels are broken.
    """
    own = [one for one in broken if one.op.name in ops]
    if names is None:
        return select_for(kernels, None, ops), own
    found: list[Kernel] = []
    failed = [one for one in own if one.label in names or any(matches(name, one.name) for name in names)]
    for name in names:
        meant = any(name == one.label or matches(name, one.name) for one in failed)
        if meant and not is_pattern(name):
            continue
        try:
            found += select_for(kernels, [name], ops)
        except WebnormError as error:
            if meant:
                continue
            if not is_wgsl(name):
                raise
            failed.append(UnreadableKernel(OPS[ops[0]], sentence(Path(name).stem), Path(name), str(error)))
    if failed and not found:
        raise WebnormError(failed[0].reason)
    return list({(kernel.path, kernel.op.name): kernel for kernel in found}.values()), failed


def select(
    kernels: Sequence[Kernel],
    name: str,
    op: str | None = None,
    also: Sequence[str] = (AUTO,),
    broken: Sequence[UnreadableKernel] = (),
) -> Kernel:
    """Find a kernel by name or by path.

    Parameters
    ----------
    kernels : sequence of Kernel
        The kernels to search, such as those from `webnorm.discover`.
    name : str
        `op/kernel`, the name of a kernel of `op`, or the path of a .wgsl file.
    op : str, optional
        The name of the op. Default: layer_norm.
    also : sequence of str, optional
        Other names that the error for an unknown name may suggest.
    broken : sequence of UnreadableKernel, optional
        Kernels whose names raise the reason why they are broken.

    Returns
    -------
    Kernel
        The kernel.

    Raises
    ------
    WebnormError
        The name or the op is unknown, or the file cannot be read as a kernel.

    Examples
    --------
    >>> import webnorm
    >>> kernels = webnorm.discover()
    >>> webnorm.select(kernels, "naive").label
    'layer_norm/naive'
    >>> webnorm.select(kernels, "rms_norm/naive").op.name
    'rms_norm'
    """
    check_kind("kernels", kernels, Sequence, "a sequence of kernels")
    for one in kernels:
        check_kind("one of kernels", one, Kernel)
    check_kind("name", name, str, "a text")
    op = default_op().name if op is None else op
    if not isinstance(op, str) or op not in OPS:
        raise unknown("op", op, OPS)
    if is_wgsl(name):
        return load(Path(name), op)
    by_label = {kernel.label: kernel for kernel in kernels}
    reasons = {one.label: one.reason for one in broken}
    for label in (f"{op}/{name}", name):
        if label in reasons:
            raise WebnormError(reasons[label])
        if label in by_label:
            return by_label[label]
    raise unknown_kernel(name, kernels, [op], also)


def unknown_kernel(
    name: str, kernels: Iterable[Kernel], ops: Sequence[str], also: Sequence[str] = ()
) -> WebnormError:
    """Return the error for a name or pattern without a kernel in these ops.

    It names other ops with such a kernel, the option that finds such a file or op, or the nearest name.
    """
    others = dict.fromkeys(
        kernel.op.name for kernel in kernels if matches(name, kernel.name) and kernel.op.name not in ops
    )
    if others:
        return WebnormError(f"kernel {shown(name)} is for {', '.join(others)}, not for {', '.join(ops)}")
    for path in _nearby_files(name):
        return WebnormError(f"unknown kernel {shown(name)}; --wgsl {path.parent.parent} finds {path}")
    if is_op_folder(Path(name)):
        return WebnormError(f"kernel {shown(name)} is the folder of an op; did you mean --op {name}?")
    if os.path.isfile(name):
        return WebnormError(f"kernel {shown(name)} is a file without the suffix .wgsl; expected a .wgsl file")
    known = {*also, *(kernel.name for kernel in kernels if kernel.op.name in ops)}
    problem = f"no kernel of {', '.join(ops)} matches {shown(name)}" if is_pattern(name) else None
    return unknown("kernel", name, known, problem=problem)


def _nearby_files(name: str) -> list[Path]:
    """Return files in the working folder, or one level below, that would be kernels of that name."""
    if not _PLAIN.fullmatch(name):
        return []
    return sorted(path for op in OPS for at in ("", "*/") for path in Path().glob(f"{at}{op}/{name}.wgsl"))


def without_auto(names: Sequence[str] | None) -> list[str] | None:
    """Return the names of kernels without "auto"; None if no name was given."""
    return [name for name in names if name != AUTO] if names else None


def check_axes(names: Iterable[str], kernels: Sequence[Kernel]) -> None:
    """Raise WebnormError if none of the kernels has a tune axis of a name."""
    axes = {axis for kernel in kernels for axis in kernel.tune}
    for name in names:
        if name not in axes:
            others = (axis for kernel in survey()[0] for axis in kernel.tune)
            elsewhere = dict.fromkeys(others, "belongs to other kernels")
            raise unknown("constant", name, axes, elsewhere=elsewhere)
