"""The lab as a static site: writing it, reading it back, and checking its page's reports."""

from __future__ import annotations

import itertools
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from webnorm._version import __version__
from webnorm.choice.defaults import chosen_variants
from webnorm.errors import WebnormError, shell_command, shown
from webnorm.files.atomic import read_json
from webnorm.files.forms import Form
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.library import discover
from webnorm.kernels.headers.traits import Traits
from webnorm.kernels.headers.variants import Variant
from webnorm.op.dtypes import STORAGE
from webnorm.op.op import Op, Task
from webnorm.op.problem import Problem
from webnorm.op.registry import OPS, copy_op, options_of
from webnorm.web import tint
from webnorm.web.folder import (
    AGAIN,
    LAB_INDEX,
    Files,
    check_digest,
    check_digests,
    digests,
    keep_inside,
    read_listing,
)
from webnorm.web.package.bundle import (
    SCHEMA,
    Bundle,
    Chooser,
    bundle_shaders,
    extended_classes,
    named_variants,
)
from webnorm.web.package.manifest import (
    LAB_CLASSES,
    LabBundle,
    LabIndex,
    LabReport,
    LabResult,
    LabShaderText,
    parse_manifest,
    parse_report,
)
from webnorm.web.package.reader import tint_source
from webnorm.web.package.request import TO_A_FOLDER, Update, no_update
from webnorm.web.pages import json_text, page_files

# cols and rows are names of the lab's index, which pages and verify read, and of the page's address.

# The default rows of `webnorm bench` for each number of columns, so that results are comparable.
_GPU_ROWS, _SOFTWARE_ROWS = (
    {cols: rows for rows, cols in copy_op().problem_type.default_sizes(software, quick=False)}
    for software in (False, True)
)
_LAB_COLS = tuple(sorted({*_GPU_ROWS, *_SOFTWARE_ROWS}))
_LAB_DTYPES = tuple(STORAGE)
# Options that differ from an op's defaults need their own shaders, so they have a single, medium number of
# columns.
_OPTION_COLS = 1024
# Elements of a problem: several times the cache of a large GPU, and few enough for SwiftShader to take
# milliseconds.
LAB_ELEMENTS, LAB_SOFTWARE_ELEMENTS = 1 << 24, 1 << 17


@dataclass(frozen=True)
class LabOffer:
    """A selection on the page: an op, options as for --option, columns, a storage type."""

    op: Op
    options: tuple[str, ...]
    cols: int
    dtype: str

    @property
    def name(self) -> str:
        """The name of its file, without the extension."""
        words = [word.replace("=", "-") for word in self.options]
        return "-".join([self.op.name, str(self.cols), self.dtype, *words])

    @property
    def task(self) -> Task:
        """The op with a problem of one row."""
        options = options_of(self.op, self.options)
        return Task(self.op, self.op.problem(1, self.cols, dtype=self.dtype, options=options))

    @property
    def rows(self) -> Mapping[str, int]:
        """The suggested rows for each kind of adapter."""
        return {
            "gpu": _suggested(_GPU_ROWS, self.cols),
            "handheld": LAB_ELEMENTS // self.cols,
            "software": _suggested(_SOFTWARE_ROWS, self.cols),
        }

    def __str__(self) -> str:
        return ", ".join([self.op.name, f"{self.cols} columns", self.dtype, *self.options])


def _suggested(known: Mapping[int, int], cols: int) -> int:
    """Return the known rows, else the rows that give as many elements as the largest known problem."""
    return known.get(cols) or max(rows * own for own, rows in known.items()) // cols


def lab_offers() -> Iterator[LabOffer]:
    """Yield every selection that the page offers."""
    # The page computes the expected values of these ops only.
    for op in (one for one in OPS.values() if one.source is None):
        for options in ((), *(op.hook("lab_options") or ())):
            columns = [cols for cols in _LAB_COLS if cols == _OPTION_COLS or not options]
            for cols, dtype in itertools.product(columns, _LAB_DTYPES):
                yield LabOffer(op, options, cols, dtype)


def lab_files(roots: tuple[Path, ...] = (), update: Update = no_update) -> Files:
    """Return the files of the lab: a page, and every kernel for several problems.

    `update` is called with the current action and its progress, from 0 to 1.
    """
    kernels = discover(roots)
    files = page_files("lab", "index.html")
    entries: list[dict[str, Any]] = []
    # The lines of each op's texts, stored once with their number: shaders of an op share most lines.
    lines: dict[str, dict[str, int]] = {name: {} for name in OPS}
    every = list(lab_offers())
    for done, offer in enumerate(every):
        update(str(offer), done / len(every))
        op, own = offer.op.name, lines[offer.op.name]
        bundle = _lab_bundle(offer, [kernel for kernel in kernels if kernel.op is offer.op], roots)
        read = bundle_as_json(bundle)
        texts = {
            name: [own.setdefault(line, len(own)) for line in text.split("\n")]
            for name, text in read["texts"].items()
        }
        files[f"bundles/{offer.name}.json"] = _compact({**read, "texts": texts})
        entries.append(
            {
                "file": f"{offer.name}.json",
                "lines": f"{op}-lines.json",
                "op": op,
                "options": list(offer.options),
                "cols": offer.cols,
                "dtype": offer.dtype,
                "rows": offer.rows,
                "kernels": sorted({one.shader.variant.kernel.name for one in bundle.shaders}),
            }
        )
    files |= {f"bundles/{op}-lines.json": _compact(list(own)) for op, own in lines.items()}
    usual = {"gpu": _GPU_ROWS, "handheld": _GPU_ROWS, "software": _SOFTWARE_ROWS}
    first = {machine: next(iter(rows)) for machine, rows in usual.items()}
    index = {"schema": SCHEMA, "webnorm": __version__, "first_cols": first, "bundles": entries}
    return files | {LAB_INDEX: json_text(index)}


def _compact(data: Any) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()


def bundle_as_json(bundle: Bundle) -> dict[str, Any]:
    """Return a bundle in the form that the lab's modules read; its texts keep their comments."""
    texts = {one.name: one.text for one in bundle.shaders}
    return {"manifest": {**bundle.manifest(), "vectors": []}, "texts": texts}


def _lab_bundle(offer: LabOffer, kernels: Sequence[Kernel], roots: tuple[Path, ...]) -> Bundle:
    """Return every kernel of an op that some class of adapters can run; of a copy every set of constants."""
    command = shell_command(["webnorm", "export", "--lab", *TO_A_FOLDER])
    task, widest = offer.task, LAB_CLASSES["portable-1024"]
    if not task.op.is_copy:
        return read_bundle(task, kernels, roots, command)
    # A page uses the fastest copy, as `webnorm bench` does.
    variants = [
        variant
        for kernel in kernels
        for variant in chosen_variants(kernel, task.problem, widest, {}, every=True)
    ]
    choosers: dict[str, Chooser] = {
        "-".join([one.kernel.name, *map(str, one.constants.values())]): Chooser.among(
            [one.kernel], partial(_only, one)
        )
        for one in variants
    }
    return _bundle(task, choosers, roots, command)


def _only(variant: Variant, problem: Problem, traits: Traits) -> tuple[Variant | None, str]:
    """Return the variant for all classes that can run it."""
    refusal = variant.refusal(problem, traits)
    return (variant, "") if refusal is None else (None, refusal)


def read_bundle(task: Task, kernels: Sequence[Kernel], roots: tuple[Path, ...], command: str) -> Bundle:
    """Return a bundle with every kernel, also an unstable one, that some class of adapters can run."""
    choosers = {kernel.name: named_variants(kernel) for kernel in kernels}
    able = {
        name: choose
        for name, choose in choosers.items()
        if any(choose.choose(task.problem, traits)[0] for _, traits in extended_classes(LAB_CLASSES, choose))
    }
    return _bundle(task, able, roots, command)


def _bundle(task: Task, choosers: Mapping[str, Chooser], roots: tuple[Path, ...], command: str) -> Bundle:
    """Return a bundle of the variants that each chooser selects, named after the choosers."""
    op, problem = task.op, task.problem
    return Bundle(
        name=f"{op.name}-{problem.axis}-{problem.dtype}",
        task=task,
        cols=(problem.axis,),
        command=command,
        shaders=tuple(
            one
            for name, choose in choosers.items()
            for one in bundle_shaders(
                problem, choose, command, prefix=name, classes=LAB_CLASSES, roots=roots
            )[0]
        ),
    )


LAB_PAGE = "index.html"
# A few rows are enough to check a kernel, and are fast in a browser without a GPU.
_ROWS = 64
# The module that sends results; only a lab exported with --submit contains it.
_SUBMITTING = "page/lab_submit.js"


def with_index(files: Files, submit: str | None = None) -> Files:
    """Return a lab's files, with the SHA-256 of every other file and the URL for results in the index.

    Without a URL the lab contains no code that sends results.
    """
    left_out = (LAB_INDEX,) if submit else (LAB_INDEX, _SUBMITTING)
    others = {name: content for name, content in files.items() if name not in left_out}
    index = {**json.loads(files[LAB_INDEX]), **({"submit": submit} if submit else {})}
    return others | {LAB_INDEX: json_text({**index, "files": digests(others)})}


def check_submit(url: str | None, lab: bool) -> None:
    """Raise WebnormError unless `url` is None, or a URL to which a lab's page may send results."""
    if url is None:
        return
    if not lab:
        raise WebnormError("--submit needs --lab: the page of a package sends nothing")
    wanted = (
        f"--submit is {shown(url)}; expected the URL of `webnorm collect`: https://, or http:// "
        "on this machine"
    )
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise WebnormError(wanted) from None
    # Browsers treat a loopback address as safe as HTTPS.
    safe = parts.scheme == "https" or (parts.scheme == "http" and host in ("127.0.0.1", "localhost", "::1"))
    plain = re.fullmatch(r"[!-~]{1,2000}", url) and not parts.fragment and parts.username is None
    if not (safe and host and plain):
        raise WebnormError(wanted)


@dataclass(frozen=True)
class LabProblem:
    """A problem that a lab's page runs in one go, with the kernels of each op."""

    cols: int
    dtype: str
    options: tuple[str, ...]
    kernels: Mapping[str, frozenset[str]]

    def __str__(self) -> str:
        return ", ".join([f"{self.cols} columns of {self.dtype}", *self.options])

    def query(self, subgroups: bool) -> str:
        """Return the query that makes the page run every op; see web/assets/page/lab_address.js."""
        op = next((op for op in self.kernels if op != copy_op().name), copy_op().name)
        asked: dict[str, Any] = {"run": 1, "all": 1, "op": op, "cols": self.cols, "dtype": self.dtype}
        asked |= {"rows": _ROWS, **({"options": ",".join(self.options)} if self.options else {})}
        return "?" + urlencode(asked if subgroups else {**asked, "subgroups": 0})


@dataclass(frozen=True)
class ExportedLab:
    """A lab whose files match its index."""

    folder: Path
    index: LabIndex
    shaders: Mapping[str, Mapping[str, tuple[LabShaderText, str]]]
    """The shaders and their texts, by the bundle's file and by name."""

    @property
    def paths(self) -> Sequence[Path]:
        """The files that were read."""
        return [self.folder / name for name in (LAB_INDEX, *self.index["files"])]

    @property
    def what(self) -> str:
        """A description of the contents."""
        return f"{len(self.sources)} shaders in {len(self.shaders)} bundles"

    @property
    def sources(self) -> list[tint.TintSource]:
        """The shaders as requests to Tint, named by their bundle and their name in it."""
        return [
            tint_source(f"{file}: {name}", text, one)
            for file, shaders in self.shaders.items()
            for name, (one, text) in shaders.items()
        ]

    def place(self, shader: str) -> str:
        """Return the place of a shader's text, for messages."""
        return str((self.folder / LAB_INDEX).parent / shader)

    @property
    def problems(self) -> list[LabProblem]:
        """The problems that the page can run."""
        found: dict[tuple[int, str, tuple[str, ...]], dict[str, set[str]]] = {}
        for entry in self.index["bundles"]:
            problem = entry["cols"], entry["dtype"], tuple(entry["options"])
            kernels = {one["kernel"] for one, _ in self.shaders[entry["file"]].values()}
            found.setdefault(problem, defaultdict(set))[entry["op"]] |= kernels
        return [
            LabProblem(*problem, {op: frozenset(names) for op, names in kernels.items()})
            for problem, kernels in found.items()
        ]


def read_lab(folder: Path) -> ExportedLab:
    """Read a lab. Raises WebnormError if a file is missing or differs from the export."""
    path = folder / LAB_INDEX
    keep_inside(path.parent, folder)
    index = parse_manifest(read_listing(folder, LAB_INDEX), LabIndex, str(path))
    check_digests(folder, LAB_INDEX, index["files"])
    if LAB_PAGE not in index["files"] or not index["bundles"]:
        raise WebnormError(f"{path}: {LAB_PAGE} or the bundles are missing; {AGAIN}")
    lines: dict[str, list[str]] = {}
    shaders = {}
    for entry in index["bundles"]:
        for name in (entry["file"], entry["lines"]):
            if f"bundles/{name}" not in index["files"]:
                raise WebnormError(f"{path}: files lacks bundles/{name}; {AGAIN}")
        if entry["lines"] not in lines:
            lines[entry["lines"]] = _read(path.parent / entry["lines"], list[str])
        shaders[entry["file"]] = _shaders(path.parent / entry["file"], lines[entry["lines"]])
    return ExportedLab(folder, index, shaders)


def _shaders(path: Path, lines: Sequence[str]) -> dict[str, tuple[LabShaderText, str]]:
    bundle = _read(path, LabBundle)
    found = {}
    for one in bundle["manifest"]["shaders"]:
        places = bundle["texts"].get(one["name"])
        text = "\n".join(lines[at] for at in places or () if at < len(lines))
        content = None if places is None else text.encode()
        check_digest(path, content, one["sha256"], "its manifest", f"text of {one['name']}: ")
        found[one["name"]] = one, text
    return found


def _read(path: Path, form: type[Form]) -> Form:
    try:
        return parse_manifest(read_json(path), form, str(path))
    except ValueError as error:
        raise WebnormError(f"{path}: not JSON ({error}); {AGAIN}") from error


@dataclass(frozen=True)
class LabRunSummary:
    """The results of a lab's page on a problem.

    `not_run` lists kernels with the reason. `complaints` are sentences; the list is empty if every kernel is
    right.
    """

    adapter: str
    kernels: int
    ran: int
    right: int
    not_run: tuple[str, ...]
    complaints: tuple[str, ...]


def check_lab_report(problem: LabProblem, report: Any) -> LabRunSummary:
    """Compare the page's report on a problem with the lab's kernels.

    Raises CouldNotCheck if the page reports that it could not check.
    """
    found: dict[tuple[str, str], LabResult] = {}
    said = parse_report(report, LabReport, LAB_PAGE)
    for one in said["results"]:
        key = one["op"], one["kernel"]
        # The copy runs with every op, so it is reported several times.
        if key not in found or found[key]["status"] == "pass":
            found[key] = one
    right = {key for key, one in found.items() if one["status"] == "pass"}
    kernels = [(op, kernel) for op, names in problem.kernels.items() for kernel in sorted(names)]
    not_run, complaints = [], []
    for op, kernel in kernels:
        result = found.get((op, kernel))
        if result is None:
            complaints.append(f"{op} {kernel}: {LAB_PAGE} did not report on it")
            continue
        message = f"{op} {kernel}: {result.get('reason', result['status'])}"
        if result["status"] == "skip":
            not_run.append(message)
        elif result["status"] != "pass" and not result.get("expected", False):
            complaints.append(message)
    # A page that ran nothing has checked nothing.
    proved = {op for op, _ in right}
    complaints += [f"{op}: no kernel was right" for op in problem.kernels if op not in proved]
    return LabRunSummary(
        adapter=said["device"]["adapter"],
        kernels=len(kernels),
        ran=len(kernels) - len(not_run) - sum(key not in found for key in kernels),
        right=len(right.intersection(kernels)),
        not_run=tuple(not_run),
        complaints=tuple(complaints),
    )
