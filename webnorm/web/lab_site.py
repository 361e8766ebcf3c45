"""The lab's page as a static site, with a bundle for each op, its options, length and type; and that site
read back: its files are checked against the index, and what its page reports against its kernels.
"""

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

# cols and rows: names of the lab's index, which pages and verify read, and of the page's address.

# The rows of each number of columns that `webnorm bench` takes where none is named, so that results compare.
_GPU_ROWS, _SOFTWARE_ROWS = (
    {cols: rows for rows, cols in copy_op().problem_type.default_sizes(software, quick=False)}
    for software in (False, True)
)
_LAB_COLS = tuple(sorted({*_GPU_ROWS, *_SOFTWARE_ROWS}))
_LAB_DTYPES = tuple(STORAGE)
# Other options than an op's own take shaders of their own: there is one number of columns for them, of
# middling length.
_OPTION_COLS = 1024
# Elements of a problem: several times the cache of a large GPU, and what SwiftShader does in milliseconds.
LAB_ELEMENTS, LAB_SOFTWARE_ELEMENTS = 1 << 24, 1 << 17


@dataclass(frozen=True)
class LabOffer:
    """What can be chosen on the page: an op, options in the words of --option, columns, a storage type."""

    op: Op
    options: tuple[str, ...]
    cols: int
    dtype: str

    @property
    def name(self) -> str:
        """What its file is called."""
        words = [word.replace("=", "-") for word in self.options]
        return "-".join([self.op.name, str(self.cols), self.dtype, *words])

    @property
    def task(self) -> Task:
        """The op, and a problem of one row."""
        options = options_of(self.op, self.options)
        return Task(self.op, self.op.problem(1, self.cols, dtype=self.dtype, options=options))

    @property
    def rows(self) -> Mapping[str, int]:
        """How many suit a kind of adapter."""
        return {
            "gpu": _suggested(_GPU_ROWS, self.cols),
            "handheld": LAB_ELEMENTS // self.cols,
            "software": _suggested(_SOFTWARE_ROWS, self.cols),
        }

    def __str__(self) -> str:
        return ", ".join([self.op.name, f"{self.cols} columns", self.dtype, *self.options])


def _suggested(known: Mapping[int, int], cols: int) -> int:
    """The rows that are known, else as many elements as the largest of those have."""
    return known.get(cols) or max(rows * own for own, rows in known.items()) // cols


def lab_offers() -> Iterator[LabOffer]:
    """All that there is to choose."""
    for op in OPS.values():
        for options in ((), *(op.hook("lab_options") or ())):
            columns = [cols for cols in _LAB_COLS if cols == _OPTION_COLS or not options]
            for cols, dtype in itertools.product(columns, _LAB_DTYPES):
                yield LabOffer(op, options, cols, dtype)


def lab_files(roots: tuple[Path, ...] = (), update: Update = no_update) -> Files:
    """The files of the lab: a page, and every kernel for several problems. `update` as in `package`."""
    kernels = discover(roots)
    files = page_files("lab", "index.html")
    entries: list[dict[str, Any]] = []
    # The places of the lines of an op's texts, each once: most of what shaders say others say, too.
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
                "kernels": sorted({one.shader.variant.kernel.name for one in bundle.carried}),
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
    """A bundle as the lab's modules take it; its texts keep their comments."""
    texts = {one.name: one.text for one in bundle.carried}
    return {"manifest": {**bundle.manifest(), "vectors": []}, "texts": texts}


def _lab_bundle(offer: LabOffer, kernels: Sequence[Kernel], roots: tuple[Path, ...]) -> Bundle:
    """Every kernel of an op that can run the problem on some class of adapters; of a copy all constants."""
    command = shell_command(["webnorm", "export", "--lab", *TO_A_FOLDER])
    task, widest = offer.task, LAB_CLASSES["portable-1024"]
    if not task.op.is_copy:
        return read_bundle(task, kernels, roots, command)
    # A page takes the fastest, as `webnorm bench` does.
    variants = [
        variant
        for kernel in kernels
        for variant in chosen_variants(kernel, task.problem, widest, {}, every=True)
    ]
    choosers: dict[str, Chooser] = {
        "-".join([one.kernel.name, *map(str, one.constants.values())]): partial(_only, one)
        for one in variants
    }
    return _bundle(task, choosers, roots, command)


def _only(variant: Variant, problem: Problem, traits: Traits) -> tuple[Variant | None, str]:
    """Return the variant for all classes that can run it."""
    refusal = variant.refusal(problem, traits)
    return (variant, "") if refusal is None else (None, refusal)


def read_bundle(task: Task, kernels: Sequence[Kernel], roots: tuple[Path, ...], command: str) -> Bundle:
    """A bundle with every kernel that can run a problem on some class of adapters, unstable ones, too."""
    choosers = {kernel.name: named_variants(kernel) for kernel in kernels}
    able = {
        name: choose
        for name, choose in choosers.items()
        if any(choose(task.problem, traits)[0] for traits in LAB_CLASSES.values())
    }
    return _bundle(task, able, roots, command)


def _bundle(task: Task, choosers: Mapping[str, Chooser], roots: tuple[Path, ...], command: str) -> Bundle:
    """What each of these choose, under their names."""
    op, problem = task.op, task.problem
    return Bundle(
        name=f"{op.name}-{problem.axis}-{problem.dtype}",
        task=task,
        cols=(problem.axis,),
        command=command,
        carried=tuple(
            one
            for name, choose in choosers.items()
            for one in bundle_shaders(
                problem, choose, command, prefix=name, classes=LAB_CLASSES, roots=roots
            )[0]
        ),
    )


LAB_PAGE = "index.html"
# Whether a kernel is right shows in few rows, which take a browser without a GPU no time.
_ROWS = 64
# What a page sends results with, where its exporter asked for that.
_SUBMITTING = "page/lab_submit.js"


def with_index(files: Files, submit: str | None = None) -> Files:
    """A lab's files, with the SHA-256 of every other file in the index, and where results may be sent.

    Where that is nowhere, a page has no code that could.
    """
    left_out = (LAB_INDEX,) if submit else (LAB_INDEX, _SUBMITTING)
    others = {name: content for name, content in files.items() if name not in left_out}
    index = {**json.loads(files[LAB_INDEX]), **({"submit": submit} if submit else {})}
    return others | {LAB_INDEX: json_text({**index, "files": digests(others)})}


def check_submit(url: str | None, lab: bool) -> None:
    """Raise WebnormError for what is no URL that a page may send results to, or a page that is no lab's."""
    if url is None:
        return
    if not lab:
        raise WebnormError("--submit goes with --lab: a package's page sends nothing")
    wanted = (
        f"--submit is {shown(url)}; expected where `webnorm collect` receives: an https:// URL, or http:// "
        "of this machine"
    )
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise WebnormError(wanted) from None
    # Browsers take a loopback address for as safe as HTTPS.
    safe = parts.scheme == "https" or (parts.scheme == "http" and host in ("127.0.0.1", "localhost", "::1"))
    plain = re.fullmatch(r"[!-~]{1,2000}", url) and not parts.fragment and parts.username is None
    if not (safe and host and plain):
        raise WebnormError(wanted)


@dataclass(frozen=True)
class LabProblem:
    """What a lab's page runs in one go, and the kernels of each op that it has for it."""

    cols: int
    dtype: str
    options: tuple[str, ...]
    kernels: Mapping[str, frozenset[str]]

    def __str__(self) -> str:
        return ", ".join([f"{self.cols} columns of {self.dtype}", *self.options])

    def query(self, subgroups: bool) -> str:
        """The query that has the page run every op at once; see web/assets/page/lab_address.js."""
        op = next((op for op in self.kernels if op != copy_op().name), copy_op().name)
        asked: dict[str, Any] = {"run": 1, "all": 1, "op": op, "cols": self.cols, "dtype": self.dtype}
        asked |= {"rows": _ROWS, **({"options": ",".join(self.options)} if self.options else {})}
        return "?" + urlencode(asked if subgroups else {**asked, "subgroups": 0})


@dataclass(frozen=True)
class ExportedLab:
    """A lab whose files are what its index says."""

    folder: Path
    index: LabIndex
    shaders: Mapping[str, Mapping[str, tuple[LabShaderText, str]]]
    """By the bundle's file and by name, each with its text."""

    @property
    def paths(self) -> Sequence[Path]:
        """The files that were read."""
        return [self.folder / name for name in (LAB_INDEX, *self.index["files"])]

    @property
    def what(self) -> str:
        """What it holds."""
        return f"{len(self.sources)} shaders in {len(self.shaders)} bundles"

    @property
    def sources(self) -> list[tint.TintSource]:
        """The shaders as Tint is asked about them, named by their bundle and their name in it."""
        return [
            tint_source(f"{file}: {name}", text, one)
            for file, shaders in self.shaders.items()
            for name, (one, text) in shaders.items()
        ]

    def place(self, shader: str) -> str:
        """Where people read a shader's text."""
        return str((self.folder / LAB_INDEX).parent / shader)

    @property
    def problems(self) -> list[LabProblem]:
        """What there is to run."""
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
    """Read a lab; WebnormError if a file is missing or is not what `webnorm export --lab` wrote."""
    path = folder / LAB_INDEX
    keep_inside(path.parent, folder)
    index = parse_manifest(read_listing(folder, LAB_INDEX), LabIndex, str(path))
    check_digests(folder, LAB_INDEX, index["files"])
    if LAB_PAGE not in index["files"] or not index["bundles"]:
        raise WebnormError(f"{path}: lists no {LAB_PAGE} or no bundles; {AGAIN}")
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
    """What a lab's page made of a problem: how many kernels ran and were right, what was not run and why, and
    `complaints`, sentences; none if all is well.
    """

    adapter: str
    kernels: int
    ran: int
    right: int
    not_run: tuple[str, ...]
    complaints: tuple[str, ...]


def check_lab_report(problem: LabProblem, report: Any) -> LabRunSummary:
    """Hold the page's report on a problem against the kernels that there are; raises CouldNotCheck."""
    found: dict[tuple[str, str], LabResult] = {}
    said = parse_report(report, LabReport, LAB_PAGE)
    for one in said["results"]:
        key = one["op"], one["kernel"]
        # The copy runs beside every op.
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
        told = f"{op} {kernel}: {result.get('reason', result['status'])}"
        if result["status"] == "skip":
            not_run.append(told)
        elif result["status"] != "pass" and not result.get("expected", False):
            complaints.append(told)
    # A page that ran nothing has proved nothing.
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
