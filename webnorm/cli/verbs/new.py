"""`webnorm new`: create a kernel file to start from."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from webnorm.cli.options import shared
from webnorm.cli.terminal.screen import Screen, escaped_line
from webnorm.errors import WebnormError, path_argument, shell_command, unknown

if TYPE_CHECKING:
    from webnorm.kernels.headers.kernel import Kernel
    from webnorm.op.op import Op

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


def new(
    name: Annotated[str, Argument(help="The kernel's name: letters, digits and _, starting with a letter.")],
    op: shared.Op = None,
    source: Annotated[
        str | None,
        Option(
            "--from",
            metavar="KERNEL",
            help="Copy this kernel, a built-in one or one of DIR. Default: the op's starter kernel, such as "
            "two_pass of layer_norm.",
        ),
    ] = None,
    out: Annotated[
        Path, Option(metavar="DIR", help="Set the folder of your kernels. The file is DIR/OP/NAME.wgsl.")
    ] = Path("kernels"),
) -> None:
    """The command prints the commands to run next."""
    from webnorm.files.atomic import unwritable, write_text
    from webnorm.kernels.headers.drafts import draft, lesson_kernel
    from webnorm.kernels.headers.header import check_name
    from webnorm.kernels.headers.sources import wgsl_root
    from webnorm.op.registry import default_op, op_named

    home = op_named(op or default_op().name)
    path = out / home.name / f"{name}.wgsl"
    check_name(path)
    source = source or lesson_kernel(home)
    try:
        kernel = _source(name, path, home, source, out)
        text = draft(kernel, (out, wgsl_root()))
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error
    write_text(path, text)
    console = Screen()
    console.print(escaped_line(f"wrote {path}, a copy of {kernel.label}."))
    console.print("Edit it while this command checks every save:")
    _print_command(console, ("play",), (path_argument(path),))
    console.print("Then print its text, check it in every case, and time it:")
    where = [*([] if home is default_op() else [("--op", home.name)]), ("--wgsl", path_argument(out))]
    own = "--kernel", name
    for command in ([("show", name)], [("check",), own], [("bench",), own, ("--kernel", source)]):
        _print_command(console, *command, *where)


def _print_command(console: Screen, *parts: Sequence[str]) -> None:
    """Print a webnorm command, in lines that fit the console and that a shell joins again.

    An option and its value are one part, which is not split.
    """
    lines = ["  webnorm"]
    for part in map(shell_command, parts):
        if len(lines[-1]) + len(part) + len("  \\") > console.width:
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += f" {part}"
    for line in lines:
        console.print(line, soft_wrap=True)


def _source(name: str, path: Path, op: Op, source: str, out: Path) -> Kernel:
    """Return the kernel to copy; raise WebnormError if it is of another op or if the new name is taken."""
    from webnorm.kernels.headers.library import AUTO, select, survey
    from webnorm.kernels.headers.sources import wgsl_files
    from webnorm.op.registry import OPS, computing_ops, not_computing

    if op.is_copy:
        raise unknown("op", op.name, computing_ops(), elsewhere=not_computing())
    if not _NAME.fullmatch(name):
        raise WebnormError(
            f"NAME is {name!r}; expected at most 64 letters, digits and _, starting with a letter"
        )
    if os.path.lexists(path):
        raise WebnormError(f"{path} already exists; expected another NAME, or another folder with --out")
    found, broken = survey([out] if any(any(wgsl_files(out / one)) for one in OPS) else [])
    if name in (AUTO, *OPS, *(kernel.name for kernel in found if kernel.op is op)):
        raise WebnormError(f"NAME is {name!r}, which is taken; expected another name")
    kernel = select(found, source, op.name, (), broken)
    if kernel.op is not op:
        own = ", ".join(one.name for one in found if one.op is op)
        raise WebnormError(f"--from is {source}, of {kernel.op.name}; expected a kernel of {op.name}: {own}")
    return kernel
