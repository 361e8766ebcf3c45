"""`webnorm export`: write an npm package, or the lab as a site."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from webnorm.cli.options import shared
from webnorm.cli.options.values import given_scalars, integers, kernel_files, option_pairs, size_lists
from webnorm.cli.terminal.streams import complain, say
from webnorm.cli.work.jobs import INCONCLUSIVE, OK, WRONG
from webnorm.cli.work.model_norms import model_problems
from webnorm.errors import WebnormError

if TYPE_CHECKING:
    from webnorm.models.norm_use import NormUse
    from webnorm.web.folder import Files
    from webnorm.web.package.model import NormRequest

# Options such as --cols, --residual and --eps are the command line's names for sizes and options of the
# norms.


def export(
    op: Annotated[
        str | None, Argument(help="The op to export: a built-in op, or a folder with an op.py.")
    ] = None,
    out: Annotated[Path | None, Option(help="Write to this folder.")] = None,
    model: shared.Model = None,
    dim: shared.Dims = None,
    cols: Annotated[
        list[str] | None,
        Option(
            help="Set the columns of a row: a number, or a list such as 768,1024. Repeatable. Ops without a "
            "size named cols take --size."
        ),
    ] = None,
    dtype: shared.Dtype = None,
    residual: Annotated[
        bool, Option("--residual", help="Normalize h = x + residual, and return h too.")
    ] = False,
    no_weight: shared.NoWeight = False,
    no_bias: shared.NoBias = False,
    zero_centered_weight: Annotated[
        bool, Option("--zero-centered-weight", help="Multiply by 1 + weight instead of the weight.")
    ] = False,
    option: shared.Option = None,
    size: shared.Sizes = None,
    scalar: shared.Scalars = None,
    eps: shared.Eps = None,
    scale: shared.Scale = 1.0,
    kernel: Annotated[
        str,
        Option(
            "--kernel",
            "-k",
            help="Export this kernel: a name, or a .wgsl file. auto picks the best one per device.",
        ),
    ] = "auto",
    name: Annotated[str | None, Option(help="Set the npm package's name. Default: webnorm-OP.")] = None,
    minify: Annotated[
        bool, Option("--minify", help="Remove comments and white space from the shaders.")
    ] = False,
    force: Annotated[
        bool,
        Option(
            "--force",
            help="Write even if a kernel is wrong or unstable, or if the folder contains something else.",
        ),
    ] = False,
    partial: Annotated[
        bool,
        Option(
            "--partial",
            help="Write even if some devices get no shader, such as those without subgroups or with the "
            "default limits.",
        ),
    ] = False,
    lab: Annotated[
        bool, Option("--lab", help="Instead of OP, write a static site that checks and times every kernel.")
    ] = False,
    submit: Annotated[
        str | None,
        Option(
            help="Add a button to the lab's page that sends results to `webnorm collect` at URL. The page "
            "shows the data first and asks for confirmation."
        ),
    ] = None,
    wgsl: shared.Wgsl = None,
) -> None:
    """With --model, one package has all norms of the model, and `createNorms` creates them on one device.

    Run `webnorm verify` on the folder afterwards.
    """
    from webnorm.cli.terminal.screen import progress
    from webnorm.kernels.headers.library import AUTO
    from webnorm.web.folder import LAB, MODEL, PACKAGE, check_folder
    from webnorm.web.lab_site import check_submit, lab_files, with_index
    from webnorm.web.package import npm
    from webnorm.web.package.request import request_for

    if out is None:
        raise WebnormError("--out is missing; expected the folder to write, such as --out dist/norm")
    check_folder(out, force, kind=MODEL if model else LAB if lab else PACKAGE)
    if model is not None:
        raise typer.Exit(_export_model(model, dim, dtype, out, name, minify, force, partial))
    flags = {"residual": residual, "zero_centered_weight": zero_centered_weight}
    asked = [*(option or ()), *(flag for flag, given in flags.items() if given)]
    settings = {
        "--dtype": dtype,
        "--eps": eps,
        "--scale": None if scale == 1.0 else scale,
        "--name": name,
        "--minify": minify,
    }
    check_submit(submit, lab)
    with progress("reading kernels") as update:
        if lab:
            files = with_index(lab_files(tuple(wgsl or ()), update), submit)
        else:
            columns = tuple(n for text in cols or () for n in integers(text, "--cols") or ())
            own = option_pairs(asked, no_weight, no_bias)
            more = _of_own_op(size, scalar)
            request = request_for(
                op, columns, own, kernel, tuple(wgsl or ()), settings, force, partial, **more
            )
            files = npm.package_files(request, update)
    status = _write(files, out, kernel_files([kernel], wgsl), force)
    if status == OK and (lab or kernel == AUTO):
        _name_left_out(files, wgsl or (), out)
    raise typer.Exit(status)


def _export_model(
    model: Path,
    dim: Sequence[str] | None,
    dtype: str | None,
    out: Path,
    name: str | None,
    minify: bool,
    force: bool,
    partial: bool,
) -> int:
    """Write the package of a model's norms and return the exit status."""
    from webnorm.cli.terminal.screen import progress
    from webnorm.web.package.model import model_package

    norms = model_problems(model, dim, dtype)
    with progress("reading kernels") as update:
        found = model_package(
            [_request(one.use) for one in norms.found],
            model,
            name=name,
            skipped=norms.skipped,
            minify=minify,
            forced=force,
            partial=partial,
            update=update,
        )
    for line in found.skipped[len(norms.skipped) :]:
        complain(f"skipped: {line}")
    read = [model] if model.is_file() else []
    status = _write(found.files, out, read, force, found.summary(out))
    return INCONCLUSIVE if status == OK and found.skipped else status


def _request(use: NormUse) -> NormRequest:
    """Return a norm of a scan as a norm of a package."""
    from webnorm.web.package.model import NormRequest

    return NormRequest(use.op, use.sizes, use.dtype, use.options, use.scalars or {}, use.count, use.nodes)


def _of_own_op(size: Sequence[str] | None, scalar: Sequence[str] | None) -> dict[str, Any]:
    """Return the sizes and scalars of --size and --scalar in the form of request_for."""
    sizes = {name: found for name, found in size_lists(size).items() if found}
    return {"sizes": sizes, "scalars": given_scalars(scalar)}


def _name_left_out(files: Files, roots: Sequence[Path], out: Path) -> None:
    """Print the user's kernels of exported ops that were left out, and the user's ops that a lab leaves
    out.
    """
    from webnorm.files.atomic import lies_in
    from webnorm.kernels.headers.library import discover
    from webnorm.op.registry import user_ops
    from webnorm.web.folder import MANIFEST, kernels_of

    exported, ops = kernels_of(files)
    for name in user_ops() if MANIFEST not in files else ():
        complain(
            f"{out} does not contain {name}: the lab's page computes expected values for built-in ops only; "
            f"`webnorm export` writes a package of {name} with a page that checks it"
        )
    why = (
        "auto chose others; --kernel exports the one that you name"
        if MANIFEST in files
        else "no class of devices runs it with the lab's columns; `webnorm show` names what it needs"
    )
    for one in discover(roots) if roots else ():
        own = any(lies_in(one.path, root) for root in roots)
        if own and one.op.name in ops and (one.op.name, one.name) not in exported:
            complain(f"{out} has no shader of {one.label}: {why}")


def _write(files: Files, out: Path, read: Sequence[Path], force: bool, summary: str = "") -> int:
    """Write a folder, print a summary and return the exit status. A wrong package needs --force.

    Raises WebnormError if this would overwrite a file that was `read`.
    """
    from webnorm.files.atomic import lies_in, same_place
    from webnorm.web import folder
    from webnorm.web.package import npm

    for path in read:
        if lies_in(path, out) and any(same_place(path, out / one) for one in files):
            raise WebnormError(
                f"--out {out}: {path} is an input and would be overwritten; expected another folder"
            )
    fault = npm.native_fault(files)
    if fault is not None and not force:
        complain(f"{fault}. Nothing was written; --force writes it anyway")
        return WRONG
    folder.write_folder(files, out)
    say(summary or npm.package_summary(files, out))
    if fault is not None:
        complain(f"{fault}. It was written because of --force")
    return OK
