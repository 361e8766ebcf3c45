"""What to export, in the words of the command line, and who hears how far it is."""

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

# Rows several times as long as any model's; the test vectors of such an export take 25 MB.
MOST_COLS = 1 << 18
# Hears what is being done, and which share of it is.
Update = Callable[[str, float], None]
# npm's rules for names ("package.json", name), but for their length.
_NAME = re.compile(r"(?:@[a-z0-9-~][a-z0-9-._~]*/)?[a-z0-9-~][a-z0-9-._~]*")
# Options with a flag of their own in `webnorm export`, whose command a package shows. cols, eps and scale are
# names of its options, too.
_FLAGS = {
    "residual": "--residual",
    "zero_centered_weight": "--zero-centered-weight",
    "weight=false": "--no-weight",
    "bias=false": "--no-bias",
}
# The folder in a package's own command: where it was written is nobody's business.
TO_A_FOLDER = ("--out", "FOLDER")


def no_update(doing: str, share: float) -> None:
    """Tell nobody what is done."""


@dataclass(frozen=True, kw_only=True)
class ExportRequest:
    """What to export. `kernel` None chooses the best for each class of adapters; `forced` admits one that is
    unstable, and `partial` an export that has no shader for some devices.

    `words` are the arguments of `request_for` that made it, in which it can travel to another process.
    """

    op: Op
    cols: tuple[int, ...]
    kernels: tuple[Kernel, ...]
    kernel: Kernel | None = None
    dtype: str = "float32"
    eps: float | None = None
    scale: float = 1.0
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
        """Whether a text may come from a file of the user's: it may hang a device or panic the compiler."""
        own = wgsl_root()
        paths = [*self.roots, *(one.path for one in (*self.kernels, self.kernel) if one)]
        return not all(lies_in(path, own) for path in paths)

    @property
    def package_name(self) -> str:
        """The name of the package; raises WebnormError for one that npm does not take."""
        name = f"webnorm-{self.op.name.replace('_', '-')}" if self.name is None else self.name
        if len(name) > 214 or not _NAME.fullmatch(name):
            raise WebnormError(
                f"--name is {name!r}; expected a name that npm takes: lower-case letters, digits, - . _ ~, "
                "such as my-norm or @scope/my-norm"
            )
        return name

    def task(self, cols: int) -> Task:
        """What is computed, for a number of columns."""
        numbers = {"eps": self.eps, "scale": self.scale}
        return Task(self.op, self.op.problem(1, cols, dtype=self.dtype, options=self.options, **numbers))


def request_for(
    op_name: str | None,
    cols: Sequence[int],
    options: Sequence[str],
    kernel: str,
    roots: tuple[Path, ...],
    settings: Mapping[str, Any],
    forced: bool = False,
    partial: bool = False,
) -> ExportRequest:
    """A request in the words of the command line.

    `options` are as in Options.changed, `settings` maps --dtype, --eps, --scale, --name and --minify to what
    was given, None or False where nothing was. Raises WebnormError for what is unknown or missing.
    """
    op = _op(op_name)
    if not cols:
        raise WebnormError("--cols is missing; expected the columns of a row, such as --cols 768")
    for count in cols:
        if count > MOST_COLS:
            raise WebnormError(f"--cols is {count}; expected at most {MOST_COLS}")
    kernels = discover(roots)
    defaults = op.hook("export_options") or op.defaults
    return ExportRequest(
        op=op,
        cols=tuple(dict.fromkeys(cols)),
        kernels=tuple(one for one in kernels if one.op == op),
        kernel=None if kernel == AUTO else select(kernels, kernel, op.name),
        dtype="float32" if settings["--dtype"] is None else settings["--dtype"],
        eps=settings["--eps"],
        scale=1.0 if settings["--scale"] is None else settings["--scale"],
        options=defaults.changed(options),
        name=settings["--name"],
        command=_command(op, cols, options, kernel, roots, {**settings, "--partial": partial}),
        roots=roots,
        minify=settings["--minify"],
        forced=forced,
        partial=partial,
        words=(op_name, cols, options, kernel, roots, settings, forced, partial),
    )


def _op(name: str | None) -> Op:
    if name is None:
        raise WebnormError(f"OP is missing; expected one of {', '.join(computing_ops())}, or --lab")
    if name not in computing_ops():
        raise unknown("op", name, computing_ops(), elsewhere=not_computing())
    return OPS[name]


def _command(
    op: Op,
    cols: Sequence[int],
    options: Sequence[str],
    kernel: str,
    roots: Sequence[Path],
    settings: Mapping[str, Any],
) -> str:
    """The command that asks for the same, as a line that a shader's comment and a page can hold."""
    words = ["webnorm", "export", op.name]
    for root in roots:
        words += ["--wgsl", str(root)]
    for count in cols:
        words += ["--cols", str(count)]
    for option in options:
        words += [_FLAGS[option]] if option in _FLAGS else ["--option", option]
    if kernel != AUTO:
        words += ["--kernel", kernel]
    for flag, value in settings.items():
        if value is not None and value is not False:
            words += [flag] if value is True else [flag, str(value)]
    return shell_command([*words, *TO_A_FOLDER])
