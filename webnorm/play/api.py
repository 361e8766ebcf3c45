"""The methods that the page's server calls: JSON values, and kernels by name."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from webnorm.errors import WebnormError, one_line
from webnorm.files.atomic import shipped
from webnorm.kernels.headers.drafts import draft
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.library import discover
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.op.op import Task
from webnorm.op.registry import OPS, as_copy_problem, default_op
from webnorm.play.lessons import goal_statuses, lesson_named, lessons
from webnorm.play.session import PlaygroundSession
from webnorm.play.stages import timed_problem
from webnorm.play.state import KernelUnfit, Snapshot, snapshot_as_json
from webnorm.web.folder import Files
from webnorm.web.lab_site import LAB_ELEMENTS, LAB_SOFTWARE_ELEMENTS, bundle_as_json, read_bundle
from webnorm.web.package import npm
from webnorm.web.package.bundle import PartialBundle
from webnorm.web.package.request import request_for


class PlaygroundApi:
    """Implement webnorm.play.server.Playground for a session."""

    def __init__(self, session: PlaygroundSession) -> None:
        self._session = session
        self._kernels = [kernel for kernel in discover() if not kernel.op.is_copy]
        # The text that a lesson replaced, and the number of the last attempt before the lesson.
        self._before: str | None = None
        self._since = 0

    def snapshot(self) -> dict[str, Any]:
        """Return the newest snapshot."""
        return self._json(self._session.state.now)

    def wait(self, revision: int, timeout: float) -> dict[str, Any] | None:
        """Return the newest snapshot once it is newer than `revision`; None after `timeout` seconds."""
        now = self._session.state.wait(revision, timeout)
        return None if now is None else self._json(now)

    def save(self, text: str, base: str) -> str:
        """Write the file; SaveConflict if its text is no longer the one with digest `base`."""
        return self._session.save(text, base)

    def run(self) -> None:
        """Start an attempt at the current text."""
        self._session.run()

    def change(self, settings: dict[str, Any]) -> None:
        """Change settings."""
        changes = {
            name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()
        }
        self._session.change(**changes)

    def trace(self, filter: str | None) -> None:
        """Trace the records that a filter keeps; None disables tracing."""
        self._session.trace(filter)

    def fork(self, op: str, kernel: str) -> None:
        """Replace the file's text with a copy of a built-in kernel."""
        self._session.put(self._draft(op, kernel), constants={}, trace=None)

    def lessons(self) -> list[dict[str, Any]]:
        """List the lessons, in order."""
        return [{"name": one.name, "title": one.title} for one in lessons()]

    def lesson(self, name: str | None) -> None:
        """Start a lesson with a copy of its kernel; None ends the lesson and restores the earlier text."""
        now = self._session.state.now
        if name is None:
            before = now.file.text if self._before is None else self._before
            self._before = None
            self._session.put(before, lesson=None, x=None)
            return
        found = lesson_named(name)
        if now.settings.lesson is None:
            self._before = now.file.text
        self._session.put(
            self._draft(default_op().name, found.source, advice=False),
            lesson=name,
            x=found.x,
            constants={},
            trace=None,
        )
        self._since = max((one.number for one in self._session.state.now.history), default=0)

    def guide(self) -> str:
        """Return the guide to kernel files, as HTML."""
        return guide()

    def source(self, hash: str) -> str:
        """Return the text of an earlier attempt."""
        return self._session.store.source(hash)

    def kernels(self) -> list[dict[str, Any]]:
        """List the built-in kernels, in the order of the ladder."""
        return [
            {
                "op": one.op.name,
                "kernel": one.name,
                "summary": one.summary,
                "differs": one.differs,
                "rung": one.rung,
            }
            for one in self._kernels
        ]

    def kernel(self, op: str, name: str) -> str:
        """Return the text of a built-in kernel."""
        return self._named(op, name).path.read_text(encoding="utf-8")

    def export(self, force: bool) -> bytes:
        """Return the npm package of the file, for the timed columns and the current type and options."""
        now = self._session.state.now
        if now.file.op is None:
            raise WebnormError(f"{now.file.name} has not been checked yet; save a kernel that passes first")
        # request_for takes the names of the command's options.
        settings = {
            "--dtype": now.settings.dtype,
            "--eps": None,
            "--scale": None,
            "--name": None,
            "--minify": False,
        }
        op = OPS[now.file.op]
        sizes = timed_problem(op, now.settings, now.device.get("type") == "CPU").sizes
        axis = sizes.pop(op.problem_type.AXIS)
        # A package accepts any batch size.
        sizes.pop(op.problem_type.BATCH, None)
        path = self._session.path
        words = (
            op.name,
            (axis,),
            now.settings.options,
            str(path),
            (self._session.root,),
            settings,
            force,
            force,
            sizes,
            now.settings.scalars,
        )
        (found,) = self._session.ask(pack, words, LIMIT_S)
        if isinstance(found, str):
            raise KernelUnfit(f"{found}. Nothing was exported")
        return bytes(found)

    def here(self) -> dict[str, Any]:
        """Return the shaders with which a browser runs the timed problem, and the copy kernels next to it."""
        now = self._session.state.now
        if now.file.op is None:
            raise WebnormError(f"{now.file.name} has not been checked yet; save a kernel that compiles first")
        op = OPS[now.file.op]
        problem = timed_problem(op, now.settings, now.device.get("type") == "CPU").with_batch(1)
        job = BrowserBundleJob(self._session.path, Task(op, problem), (self._session.root,))
        (found,) = self._session.ask(browser_bundles, job, LIMIT_S)
        return dict(found)

    def _draft(self, op: str, kernel: str, advice: bool = True) -> str:
        """Return a copy of a built-in kernel, adapted to the file's folder."""
        session = self._session
        roots = [session.root, wgsl_root()]
        return draft(self._named(op, kernel), roots, session.path.parent.name, advice)

    def _named(self, op: str, name: str) -> Kernel:
        for kernel in self._kernels:
            if (kernel.op.name, kernel.name) == (op, name):
                return kernel
        raise WebnormError(f"unknown kernel {op}/{name}; /api/kernels lists them")

    def _json(self, now: Snapshot) -> dict[str, Any]:
        found: dict[str, Any] = snapshot_as_json(now)
        name = now.settings.lesson
        if name is not None:
            lesson = lesson_named(name)
            marks = goal_statuses(
                lesson, now.attempt, [one for one in now.history if one.number > self._since]
            )
            about = {"name": name, "title": lesson.title, "text": lesson.text}
            found["lesson"] = {
                **about,
                "marks": snapshot_as_json(marks),
                "passed": all(one.met for one in marks),
            }
        return found


# --- the guide to kernel files: the part of docs/kernel-file.md about header and body

# The guide is the text between these two headings.
_FROM, _UNTIL = "The file", "Names of production kernels"


@cache
def guide() -> str:
    """Return the guide as HTML, with headings from the third level on.

    Links are removed, because they lead to pages that the server does not have.
    """
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    text = (shipped("docs") / "kernel-file.md").read_text(encoding="utf-8")
    tokens = [*reader.parse(_ops()), *reader.parse(_example()), *_between(reader.parse(text))]
    for token in tokens:
        token.children = [one for one in token.children or () if one.type not in ("link_open", "link_close")]
    html: str = reader.renderer.render(tokens, reader.options, {})
    return html


def _between(tokens: list[Token]) -> list[Token]:
    """Return the tokens between the two headings."""
    titles = [one.content if before.type == "heading_open" else "" for before, one in pairwise(tokens)]
    # A heading is three tokens.
    return tokens[titles.index(_FROM) + 3 : titles.index(_UNTIL)]


def _example() -> str:
    """Return the whole text of a kernel that shares a row among the invocations of a workgroup."""
    # The workgroup kernel of this op fits on one page.
    text = (wgsl_root() / "rms_norm" / "workgroup.wgsl").read_text(encoding="utf-8")
    return f"`rms_norm`'s kernel `workgroup`, whole:\n\n```wgsl\n{text}```\n"


def _ops() -> str:
    """Return a Markdown table of the ops' formulas."""
    rows = (f"| `{op.name}` | `{op.summary}` |" for op in OPS.values() if not op.is_copy)
    return "\n".join(("| op | what it computes |", "|---|---|", *rows)) + "\n"


# --- tasks of the worker: a package, and bundles for the browser

# Seconds. The limit is long, because the shaders of a package also run.
LIMIT_S = 120.0


def pack(device: Any, words: tuple[Any, ...]) -> Iterator[bytes | str]:
    """Yield the .tgz of a package, or the reason why an unforced request is refused.

    `words` are the arguments of request_for, whose WebnormErrors are raised here.
    """
    request = request_for(*words)
    kernel = request.kernel
    if kernel is not None and kernel.unstable is not None and not request.forced:
        yield f"kernel {kernel.name} is unstable ({kernel.unstable})"
        return
    for root in request.roots:
        # The path above the folder stays private. In the command it is quoted for a shell.
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
    """A kernel file, and the problem that a browser runs with it."""

    path: Path
    task: Task
    roots: tuple[Path, ...]


def browser_bundles(device: Any, job: BrowserBundleJob) -> Iterator[dict[str, Any]]:
    """Yield the bundles of the file and of the copy kernels, in the form of the lab's JavaScript modules.

    Raises WebnormError if the kernel runs in no browser.
    """
    kernel = load(job.path, job.task.op.name)
    copies = [one for one in discover() if one.op.is_copy]
    copied = Task(copies[0].op, as_copy_problem(job.task.problem))
    bundle = read_bundle(job.task, [kernel], job.roots, "webnorm play --web")
    if not bundle.shaders:
        raise WebnormError(f"{kernel.label} runs in no browser; `webnorm export` says why")
    inner = job.task.problem.inner
    # The page reads the batch size by the name "rows".
    yield {
        "bundle": bundle_as_json(bundle),
        "copies": bundle_as_json(read_bundle(copied, copies, (), "webnorm play --web")),
        "rows": {"gpu": LAB_ELEMENTS // inner, "software": LAB_SOFTWARE_ELEMENTS // inner},
    }


def archive(files: Files) -> bytes:
    """Return a .tgz for `npm install`: the files in a folder `package`, without a user name."""
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
