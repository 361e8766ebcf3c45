"""A request for an export, made from the arguments of the command line, and its progress updates."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from webnorm.errors import WebnormError, shell_command, unknown
from webnorm.files.atomic import lies_in
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.library import AUTO, discover, select
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.op.op import Op, Task
from webnorm.op.options import Options
from webnorm.op.registry import OPS, computing_ops, not_computing

# Several times the row length of any model; the test vectors of such an export take 25 MB.
MOST_COLS = 1 << 18
# Called with the current action and its progress, from 0 to 1.
Update = Callable[[str, float], None]
# npm's rules for names ("package.json", name), except for the length.
_NAME = re.compile(r"(?:@[a-z0-9-~][a-z0-9-._~]*/)?[a-z0-9-~][a-z0-9-._~]*")
# Options that have their own flag in `webnorm export`; a package shows its command. cols, eps and scale are
# also names of its options.
_FLAGS = {
    "residual": "--residual",
    "zero_centered_weight": "--zero-centered-weight",
    "weight=false": "--no-weight",
    "bias=false": "--no-bias",
}
# A placeholder for the folder in a package's command, since the real path is private.
TO_A_FOLDER = ("--out", "FOLDER")


def no_update(doing: str, share: float) -> None:
    """Ignore an update."""


@dataclass(frozen=True, kw_only=True)
class ExportRequest:
    """A request for an export.

    `kernel` None chooses the best kernel for each class of adapters. `forced` allows an unstable kernel, and
    `partial` an export without shaders for some devices. `cols` are the values of the op's AXIS, and `sizes`
    the values of the other sizes except the batch. `words` are the arguments of `request_for`, which can be
    sent to another process.
    """

    op: Op
    cols: tuple[int, ...]
    kernels: tuple[Kernel, ...]
    kernel: Kernel | None = None
    dtype: str = "float32"
    scalars: Mapping[str, float | None] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    options: Any = field(default_factory=Options)
    name: str | None = None
    command: str = "webnorm export"
    roots: tuple[Path, ...] = ()
    minify: bool = False
    forced: bool = False
    partial: bool = False
    words: tuple[Any, ...] = ()

    @property
    def foreign(self) -> bool:
        """True if a text may come from a user's file, which may hang a device or panic the compiler."""
        own = wgsl_root()
        paths = [*self.roots, *(one.path for one in (*self.kernels, self.kernel) if one)]
        return not all(lies_in(path, own) for path in paths)

    @property
    def package_name(self) -> str:
        """The name of the package. Raises WebnormError if npm does not allow it."""
        return checked_name(f"webnorm-{self.op.name.replace('_', '-')}" if self.name is None else self.name)

    def task(self, cols: int) -> Task:
        """Return the op and its problem for a number of columns."""
        kind = self.op.problem_type
        named = {kind.BATCH: 1, **self.sizes, kind.AXIS: cols} if kind.AXIS != kind.BATCH else {kind.BATCH: 1}
        sizes = (named[name] for name in kind.SIZES)
        problem = self.op.problem(*sizes, dtype=self.dtype, options=self.options, **self.scalars)
        return Task(self.op, problem)


def checked_name(name: str) -> str:
    """Return a package's name; raise WebnormError if npm does not allow it."""
    if len(name) > 214 or not _NAME.fullmatch(name):
        raise WebnormError(
            f"--name is {name!r}; expected a name that npm allows: lower-case letters, digits, - . _ ~, "
            "such as my-norm or @scope/my-norm"
        )
    return name


def request_for(
    op_name: str | None,
    cols: Sequence[int],
    options: Sequence[str],
    kernel: str,
    roots: tuple[Path, ...],
    settings: Mapping[str, Any],
    forced: bool = False,
    partial: bool = False,
    sizes: Mapping[str, Sequence[int] | int] | None = None,
    scalars: Mapping[str, float] | None = None,
) -> ExportRequest:
    """Make a request from the arguments of the command line.

    Parameters
    ----------
    options
        As in Options.changed.
    settings
        The values of --dtype, --eps, --scale, --name and --minify; None or False if absent.
    sizes, scalars
        The sizes and scalars of a user's op; its axis may be among the sizes.

    Raises
    ------
    WebnormError
        If a value is unknown or missing.
    """
    op = _op(op_name)
    cols, fixed = _sizes(op, cols, sizes or {})
    for count in cols:
        if count > MOST_COLS:
            raise WebnormError(
                f"{_size_flag(op, op.problem_type.AXIS)} is {count}; expected at most {MOST_COLS}"
            )
    kernels = discover(roots)
    own = {"eps": settings["--eps"], "scale": settings["--scale"]}
    given = {name: one for name, one in {**own, **(scalars or {})}.items() if one is not None}
    defaults = op.hook("export_options") or op.defaults
    return ExportRequest(
        op=op,
        cols=tuple(dict.fromkeys(cols)),
        kernels=tuple(one for one in kernels if one.op == op),
        kernel=None if kernel == AUTO else select(kernels, kernel, op.name),
        dtype="float32" if settings["--dtype"] is None else settings["--dtype"],
        scalars=given,
        sizes=fixed,
        options=defaults.changed(options),
        name=settings["--name"],
        command=_command(
            op, cols, fixed, scalars or {}, options, kernel, roots, {**settings, "--partial": partial}
        ),
        roots=roots,
        minify=settings["--minify"],
        forced=forced,
        partial=partial,
        words=(op_name, cols, options, kernel, roots, settings, forced, partial, fixed, scalars),
    )


def _size_flag(op: Op, name: str) -> str:
    """Return the option for the values of a size."""
    return "--cols" if name == "cols" == op.problem_type.AXIS else f"--size {name}"


def _missing(op: Op, names: Sequence[str]) -> WebnormError:
    """Return the error that names all sizes without a value."""
    flags = [_size_flag(op, name) for name in names]
    usual = dict(zip(op.problem_type.SIZES, op.problem_type.default_sizes(False, False)[0], strict=True))
    example = " ".join(
        f"{flag}{' ' if flag == '--cols' else '='}{usual[name]}"
        for flag, name in zip(flags, names, strict=True)
    )
    verb, what = ("is", "a size that is") if len(flags) == 1 else ("are", "sizes that are")
    return WebnormError(
        f"{' and '.join(flags)} {verb} missing; expected {what} compiled in, such as {example}"
    )


def _sizes(
    op: Op, cols: Sequence[int], sizes: Mapping[str, Sequence[int] | int]
) -> tuple[tuple[int, ...], dict[str, int]]:
    """Return the values of the op's axis, and one value for each other size except the batch.

    Raises WebnormError for a missing size, and for several values of a size other than the axis.
    """
    kind = op.problem_type
    given = {name: (found,) if isinstance(found, int) else tuple(found) for name, found in sizes.items()}
    op.check_sizes(given)
    if kind.BATCH in given and kind.BATCH:
        raise WebnormError(
            f"--size {kind.BATCH} cannot be set: a package takes any number of {kind.BATCH}; leave it out"
        )
    if kind.AXIS == kind.BATCH:
        # The batch is the only size, so one shader serves every problem.
        return (1,), {}
    own = tuple(dict.fromkeys((*cols, *given.pop(kind.AXIS, ()))))
    values = {**given, kind.AXIS: own}
    inner = [name for name in kind.SIZES if name != kind.BATCH]
    if missing := [name for name in inner if not values.get(name)]:
        raise _missing(op, missing)
    fixed = [name for name in inner if name != kind.AXIS]
    for name in fixed:
        if len(given[name]) != 1:
            raise WebnormError(
                f"--size {name} has {len(given[name])} values; expected one: only {kind.AXIS} takes several"
            )
    return own, {name: given[name][0] for name in fixed}


def _op(name: str | None) -> Op:
    if name is None:
        raise WebnormError(f"OP is missing; expected one of {', '.join(computing_ops())}, or --lab")
    if name not in computing_ops():
        raise unknown("op", name, computing_ops(), elsewhere=not_computing())
    return OPS[name]


def _command(
    op: Op,
    cols: Sequence[int],
    sizes: Mapping[str, int],
    scalars: Mapping[str, float],
    options: Sequence[str],
    kernel: str,
    roots: Sequence[Path],
    settings: Mapping[str, Any],
) -> str:
    """Return the command for this export, as a line for shaders' comments and pages."""
    # A package does not show the path of the op's folder.
    words = ["webnorm", "export", f"./{op.name}" if op.is_users else op.name]
    for root in roots:
        words += ["--wgsl", str(root)]
    kind = op.problem_type
    if kind.AXIS == "cols":
        for count in cols:
            words += ["--cols", str(count)]
    elif kind.AXIS != kind.BATCH:
        words += ["--size", f"{kind.AXIS}={','.join(map(str, cols))}"]
    for name, size in sizes.items():
        words += ["--size", f"{name}={size}"]
    for name, value in scalars.items():
        words += ["--scalar", f"{name}={value:g}"]
    for option in options:
        words += [_FLAGS[option]] if option in _FLAGS else ["--option", option]
    if kernel != AUTO:
        words += ["--kernel", kernel]
    for flag, value in settings.items():
        if value is not None and value is not False:
            words += [flag] if value is True else [flag, str(value)]
    return shell_command([*words, *TO_A_FOLDER])
