"""What leaves the playground, made in the worker: a package as `webnorm export` writes it and npm packs it,
and the texts for the browser that shows the page.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from webnorm.errors import WebnormError, one_line
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.library import discover
from webnorm.op.op import Task
from webnorm.op.registry import as_copy_problem
from webnorm.web.folder import Files
from webnorm.web.lab_site import LAB_ELEMENTS, LAB_SOFTWARE_ELEMENTS, bundle_as_json, read_bundle
from webnorm.web.package import npm
from webnorm.web.package.bundle import PartialBundle
from webnorm.web.package.request import request_for

# Seconds; the shaders of a package are run, too.
LIMIT_S = 120.0


def pack(device: Any, words: tuple[Any, ...]) -> Iterator[bytes | str]:
    """The package of a request, given as request_for takes it, in a .tgz; or, unless that is forced, what is
    wrong with the kernel. WebnormError as request_for raises it.
    """
    request = request_for(*words)
    kernel = request.kernel
    if kernel is not None and kernel.unstable is not None and not request.forced:
        yield f"kernel {kernel.name} is unstable ({kernel.unstable})"
        return
    for root in request.roots:
        # The path above the folder stays private. The command contains it as a shell writes it.
        above = one_line(f"{root.parent}{os.sep}".replace("'", "'\"'\"'"))
        request = replace(request, command=request.command.replace(above, ""))
    try:
        files = npm.package_files(request)
    except PartialBundle as lacking:
        yield lacking.lacking
        return
    fault = None if request.forced else npm.native_fault(files)
    yield archive(files) if fault is None else fault


@dataclass(frozen=True)
class BrowserBundleJob:
    """A kernel's file, and the problem that a browser is to compute with it."""

    path: Path
    task: Task
    roots: tuple[Path, ...]


def browser_bundles(device: Any, job: BrowserBundleJob) -> Iterator[dict[str, Any]]:
    """The bundles of the file and of the copy, as the lab's modules take them; WebnormError where the kernel
    runs in no browser.
    """
    kernel = load(job.path, job.task.op.name)
    copies = [one for one in discover() if one.op.is_copy]
    copied = Task(copies[0].op, as_copy_problem(job.task.problem))
    bundle = read_bundle(job.task, [kernel], job.roots, "webnorm play --web")
    if not bundle.carried:
        raise WebnormError(f"{kernel.label} runs in no browser; `webnorm export` says why")
    cols = job.task.problem.inner
    yield {
        "bundle": bundle_as_json(bundle),
        "copies": bundle_as_json(read_bundle(copied, copies, (), "webnorm play --web")),
        "rows": {"gpu": LAB_ELEMENTS // cols, "software": LAB_SOFTWARE_ELEMENTS // cols},
    }


def archive(files: Files) -> bytes:
    """A package's files as `npm install` takes them: in a folder called package, without anybody's name."""
    found = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=found, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name, content in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    return found.getvalue()
