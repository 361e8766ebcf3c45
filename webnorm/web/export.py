"""Exports: the npm package of an op, and the lab as a static site."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from webnorm._version import __version__
from webnorm.errors import WebnormError, unknown
from webnorm.files import keep_mode, lies_in, read_bytes, read_json, resolved
from webnorm.gpu.device import Device, adapters, open_device
from webnorm.kernels.kernel import AUTO, Kernel, discover, select, wgsl_root
from webnorm.lab.worker import TaskFailed, Worker, WorkerDied
from webnorm.norms.ops import OPS, Op
from webnorm.norms.problem import FP8, Options, Problem
from webnorm.web.bundle import LAB_CLASSES, SCHEMA, Bundle, automatic, carry, named, opening_comment
from webnorm.web.native import try_natively
from webnorm.web.vectors import TestVector, draw

Files = dict[str, bytes]
Update = Callable[[str, float], None]

_MANIFEST, _LAB_INDEX = "manifest.json", "bundles/index.json"
# Rows several times as long as any model's; the test vectors of such an export take 25 MB.
MOST_COLS = 1 << 18

# The typed arrays that JavaScript sees, and what a 1 is in them.
_ARRAYS = {
    "float32": ("Float32Array", "1"),
    "float16": ("Uint16Array", "0x3c00"),
    "bfloat16": ("Uint16Array", "0x3f80"),
    "int8": ("Int8Array", "1"),
    "float8_e4m3fn": ("Uint8Array", "0x38"),
    "float8_e5m2": ("Uint8Array", "0x3c"),
}
# Options with a flag of their own.
_FLAGS = {
    "residual": "--residual",
    "zero_centered_weight": "--zero-centered-weight",
    "weight=false": "--no-weight",
    "bias=false": "--no-bias",
}
# The folder in a package's own command: where it was written is nobody's business.
_TO_A_FOLDER = ("--out", "FOLDER")
# A comment that has its lines to itself: index.d.ts describes the runtime to those who use it.
_JS_COMMENT = re.compile(r"^ *(?://.*|/\*\*(?:.|\n)*?\*/)\n", re.MULTILINE)
# What only people read, or only verify.html, is left out of index.js.
_FOR_PEOPLE = (
    "command",
    "webnorm",
    "summary",
    "differs",
    "rung",
    "file",
    "sha256",
    "embedded_sha256",
    "wgsl",
    "native",
)


def _silent(doing: str, share: float) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to export. `kernel` None chooses the best for each class of adapters.

    `words` are the arguments of `request_for` that made it, in which it can travel to another process.
    """

    op: Op
    cols: tuple[int, ...]
    kernels: tuple[Kernel, ...]
    kernel: Kernel | None = None
    dtype: str = "float32"
    eps: float | None = None
    scale: float = 1.0
    options: Options = field(default_factory=Options)
    name: str | None = None
    command: str = "webnorm export"
    roots: tuple[Path, ...] = ()
    minify: bool = False
    words: tuple[Any, ...] = ()

    @property
    def foreign(self) -> bool:
        """Whether a text may come from a file of the user's: it may hang a device or panic the compiler."""
        own = wgsl_root()
        paths = [*self.roots, *(one.path for one in (*self.kernels, self.kernel) if one)]
        return not all(lies_in(path, own) for path in paths)

    def problem(self, cols: int) -> Problem:
        """The problem for a number of columns."""
        eps = self.op.default_eps if self.eps is None else self.eps
        problem = Problem(
            rows=1, cols=cols, dtype=self.dtype, eps=eps, scale=self.scale, options=self.options
        )
        self.op.check(problem)
        return problem


def request_for(
    op_name: str | None,
    cols: Sequence[int],
    options: Sequence[str],
    kernel: str,
    roots: tuple[Path, ...],
    settings: Mapping[str, Any],
) -> Request:
    """A request in the words of the command line.

    `options` are as in Options.changed, `settings` maps --dtype, --eps, --scale, --name and --minify to what
    was given, None or False where nothing was. Raises WebnormError for what is unknown or missing.
    """
    ops = [name for name, op in OPS.items() if not op.exact]
    if op_name is None:
        raise WebnormError(f"OP is missing; expected one of {', '.join(ops)}, or --lab")
    if op_name not in ops:
        raise unknown("op", op_name, ops)
    if not cols:
        raise WebnormError("--cols is missing; expected the columns of a row, such as --cols 768")
    for count in cols:
        if count > MOST_COLS:
            raise WebnormError(f"--cols is {count}; expected at most {MOST_COLS}")
    op = OPS[op_name]
    kernels = discover(roots)
    words = ["webnorm", "export", op_name]
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
    words += _TO_A_FOLDER
    # A page that trains has no statistics unless its forward pass was asked for them.
    defaults = replace(op.defaults, saved_stats=False)
    return Request(
        op=op,
        cols=tuple(dict.fromkeys(cols)),
        kernels=tuple(one for one in kernels if one.op == op),
        kernel=None if kernel == AUTO else select(kernels, kernel, op_name),
        dtype="float32" if settings["--dtype"] is None else settings["--dtype"],
        eps=settings["--eps"],
        scale=1.0 if settings["--scale"] is None else settings["--scale"],
        options=defaults.changed(options),
        name=settings["--name"],
        command=shlex.join(words),
        roots=roots,
        minify=settings["--minify"],
        words=(op_name, cols, options, kernel, roots, settings),
    )


# --- the package -----------------------------------------------------------------------------------


def bundle_of(request: Request) -> Bundle:
    """The shaders and the manifest; raises WebnormError for what cannot be exported."""
    if request.op.exact:
        raise WebnormError(f"{request.op.name} only measures; expected a norm or its gradient")
    kernel = request.kernel
    if kernel is not None and kernel.unstable is not None:
        raise WebnormError(f"kernel {kernel.name} is not exported: it is unstable ({kernel.unstable})")
    if kernel is not None and kernel.op != request.op:
        raise WebnormError(
            f"kernel {kernel.name} computes {kernel.op.name}; expected one of {request.op.name}"
        )
    chooser = automatic(request.kernels) if kernel is None else named(kernel)
    opening = opening_comment(request.command)
    return Bundle(
        name=_package_name(request),
        op=request.op,
        problem=request.problem(request.cols[0]),
        cols=request.cols,
        command=request.command,
        carried=tuple(
            one
            for cols in request.cols
            for one in carry(
                request.problem(cols), chooser, opening, roots=request.roots, minify=request.minify
            )
        ),
    )


def package(request: Request, update: Update = _silent) -> Files:
    """The files of the package by their path in it. `update` hears what is done, and which share of it is."""
    update("shaders", 0.0)
    bundle = bundle_of(request)
    vectors = _vectors(request)
    manifest = bundle.manifest()
    for at, (entry, found) in enumerate(
        zip(manifest["shaders"], _native_entries(request, bundle, vectors), strict=True)
    ):
        update(f"{entry['name']}, natively", 0.3 + 0.7 * at / len(bundle.carried))
        entry["native"] = found
    encoded = {vector.file: vector.encoded() for vector in vectors}
    manifest["vectors"] = [_vector_entry(vector, encoded[vector.file]) for vector in vectors]
    context = _context(bundle, manifest)
    files = {name: _rendered(f"{name}.jinja", context) for name in ("index.js", "index.d.ts", "README.md")}
    files["package.json"] = _package_json(manifest)
    files |= {f"shaders/{one.name}.wgsl": one.text.encode() for one in bundle.carried}
    files |= encoded | _pages("verify")
    manifest["files"] = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    files[_MANIFEST] = _json(manifest)
    return files


def _package_name(request: Request) -> str:
    name = f"webnorm-{request.op.name.replace('_', '-')}" if request.name is None else request.name
    # npm's rules for names ("package.json", name).
    if len(name) > 214 or not re.fullmatch(r"(?:@[a-z0-9-~][a-z0-9-._~]*/)?[a-z0-9-~][a-z0-9-._~]*", name):
        raise WebnormError(
            f"--name is {name!r}; expected a name that npm takes: lower-case letters, digits, - . _ ~, "
            "such as my-norm or @scope/my-norm"
        )
    return name


def _vectors(request: Request) -> list[TestVector]:
    return [vector for cols in request.cols for vector in draw(request.op, request.problem(cols))]


def _native_entries(
    request: Request, bundle: Bundle, vectors: Sequence[TestVector]
) -> Iterator[dict[str, Any]]:
    """What each shader does natively; in a process of its own where a text may be foreign."""
    if not adapters():
        yield from ({"reason": "no WebGPU adapter where this was exported"} for _ in bundle.carried)
    elif request.foreign:
        try:
            with Worker() as worker:
                yield from worker.stream(try_in_worker, request.words)
        except (WorkerDied, TaskFailed) as death:
            raise WebnormError(f"{bundle.name}: running it natively failed: {death}") from death
    else:
        yield from _try_all(open_device(), bundle, vectors)


def try_in_worker(device: Device, words: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    """The worker's side: the request is made anew there."""
    request = request_for(*words)
    yield from _try_all(device, bundle_of(request), _vectors(request))


def _try_all(device: Device, bundle: Bundle, vectors: Sequence[TestVector]) -> Iterator[dict[str, Any]]:
    for one in bundle.carried:
        own = [vector for vector in vectors if vector.problem.cols == one.shader.problem.cols]
        yield try_natively(device, one, own)


def _vector_entry(vector: TestVector, encoded: bytes) -> dict[str, Any]:
    return {
        "name": vector.name,
        "file": vector.file,
        "sha256": hashlib.sha256(encoded).hexdigest(),
        "cols": vector.problem.cols,
        "rows": vector.problem.rows,
        "what": vector.what,
    }


def _context(bundle: Bundle, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What the templates of the package see."""
    facts = {key: value for key, value in manifest.items() if key not in (*_FOR_PEOPLE, "vectors")}
    facts["shaders"] = [_less(entry) for entry in manifest["shaders"]]
    tensors = manifest["tensors"]
    return {
        "manifest": manifest,
        "facts": json.dumps(facts),
        "texts": {
            name: text.replace("\\", "\\\\").replace("`", "\\`").replace("${", "\\${")
            for name, text in bundle.texts.items()
        },
        "summary": bundle.op.summary,
        "create": "create" + "".join(part.capitalize() for part in bundle.op.name.split("_")),
        "tensors": tensors,
        "inputs": [tensor for tensor in tensors if tensor["access"] == "read"],
        "outputs": [tensor for tensor in tensors if tensor["access"] == "write"],
        "arrays": {dtype: array for dtype, (array, _) in _ARRAYS.items()},
        "takes": {dtype: array for dtype, (array, _) in _ARRAYS.items()}
        | {"float16": "Uint16Array | Float16ArrayLike"},
        "dtypes": {tensor["dtype"] for tensor in tensors},
        "contents": _contents(bundle),
        "ones": {dtype: one for dtype, (_, one) in _ARRAYS.items()},
        "has_scale": bundle.problem.out_dtype in FP8,
        "many_cols": f", {{ cols: {bundle.cols[0]} }}" if len(bundle.cols) > 1 else "",
    }


def _contents(bundle: Bundle) -> dict[str, str]:
    """What the columns of a tensor hold, where its name does not say."""
    stats = "the mean in two words whose sum it is, and rstd" if bundle.op.has_mean else "rstd"
    known = {"stats": f": {stats}", "amax": ": of y before it is scaled, and 1 / scale"}
    return {tensor.name: known.get(tensor.name, "") for tensor in bundle.op.tensors}


def _less(entry: Mapping[str, Any]) -> dict[str, Any]:
    short = {key: value for key, value in entry.items() if key not in _FOR_PEOPLE}
    short["bindings"] = [
        {key: value for key, value in binding.items() if key not in _FOR_PEOPLE}
        for binding in entry["bindings"]
    ]
    return short


def _package_json(manifest: Mapping[str, Any]) -> bytes:
    op = OPS[manifest["op"]]
    return _json(
        {
            "name": manifest["name"],
            "version": __version__,
            "description": f"{op.summary} WebGPU, {manifest['problem']['dtype']}.",
            "license": "MIT",
            "type": "module",
            "sideEffects": False,
            "types": "./index.d.ts",
            "exports": {
                ".": {"types": "./index.d.ts", "default": "./index.js"},
                "./manifest.json": "./manifest.json",
                "./shaders/*": "./shaders/*",
                "./package.json": "./package.json",
            },
            "files": [
                "index.js",
                "index.d.ts",
                "runtime.js",
                "manifest.json",
                "shaders",
                "vectors",
                "verify.html",
                "page",
            ],
            "keywords": ["webgpu", "wgsl", op.name.replace("_", "-")],
        }
    )


def _json(data: Any) -> bytes:
    return (json.dumps(data, indent=2, allow_nan=False) + "\n").encode()


def _assets() -> Path:
    return Path(str(resources.files("webnorm.web"))) / "assets"


def _rendered(template: str, context: Mapping[str, Any]) -> bytes:
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    source = (_assets() / "package" / template).read_text(encoding="utf-8")
    return environment.from_string(source).render(context).encode()


def _pages(page: str, index: str | None = None) -> Files:
    """The runtime, and a page with the modules that it shares."""
    root = _assets()
    other = {"verify": "lab", "lab": "verify"}[page]
    files = {
        f"page/{path.name}": path.read_bytes()
        for path in sorted((root / "page").iterdir())
        if not path.name.startswith(other)
    }
    files["runtime.js"] = _JS_COMMENT.sub("", (root / "runtime.js").read_text(encoding="utf-8")).encode()
    files[index or f"{page}.html"] = (root / f"{page}.html").read_bytes()
    return files


# --- the lab ---------------------------------------------------------------------------------------

# What the lab's page offers: short, middling and long rows, wide and narrow elements.
_LAB_COLS = (256, 1024, 4096)
_LAB_DTYPES = ("float32", "float16")
# Elements of a problem: several times the cache of a large GPU, and what SwiftShader does in milliseconds.
_LAB_ELEMENTS, _LAB_SOFTWARE_ELEMENTS = 1 << 24, 1 << 17


def lab(roots: tuple[Path, ...] = (), update: Update = _silent) -> Files:
    """The files of the lab: a page, and every kernel for several problems. `update` as in `package`."""
    kernels = discover(roots)
    files = _pages("lab", "index.html")
    entries: list[dict[str, Any]] = []
    problems = list(itertools.product(OPS.values(), _LAB_COLS, _LAB_DTYPES))
    for op, cols, dtype in problems:
        update(f"{op.name}, {cols} columns, {dtype}", len(entries) / len(problems))
        bundle = _lab_bundle(op, cols, dtype, [kernel for kernel in kernels if kernel.op == op], roots)
        file = f"{bundle.name}.json"
        # The lab is read: its texts keep their comments.
        texts = {one.name: one.text for one in bundle.carried}
        data = {"manifest": {**bundle.manifest(), "vectors": []}, "texts": texts}
        files[f"bundles/{file}"] = json.dumps(data).encode()
        entries.append(
            {
                "file": file,
                "op": op.name,
                "cols": cols,
                "dtype": dtype,
                "rows": _LAB_ELEMENTS // cols,
                "software_rows": _LAB_SOFTWARE_ELEMENTS // cols,
            }
        )
    index = {"schema": SCHEMA, "webnorm": __version__, "bundles": entries}
    return files | {_LAB_INDEX: _json(index)}


def _lab_bundle(op: Op, cols: int, dtype: str, kernels: Sequence[Kernel], roots: tuple[Path, ...]) -> Bundle:
    """Every kernel of an op that can run the problem on some class of adapters."""
    command = shlex.join(["webnorm", "export", "--lab", *_TO_A_FOLDER])
    problem = Problem(
        rows=1,
        cols=cols,
        dtype=dtype,
        eps=op.default_eps,
        options=replace(op.defaults, saved_stats=False),
    )
    able = [k for k in kernels if any(named(k)(problem, traits)[0] for traits in LAB_CLASSES.values())]
    return Bundle(
        name=f"{op.name}-{cols}-{dtype}",
        op=op,
        problem=problem,
        cols=(cols,),
        command=command,
        carried=tuple(
            one
            for kernel in able
            for one in carry(
                problem,
                named(kernel),
                opening_comment(command),
                prefix=kernel.name,
                classes=LAB_CLASSES,
                roots=roots,
            )
        ),
    )


# --- writing ---------------------------------------------------------------------------------------


def farewell(files: Files, folder: Path) -> str:
    """What was written, and what to do with it."""
    size = sum(len(content) for content in files.values())
    what = f"{folder}: {len(files)} files, {size // 1000} kB"
    if _MANIFEST not in files:
        return f"{what}; serve it and open index.html"
    shaders = json.loads(files[_MANIFEST])["shaders"]
    names = ", ".join(shader["name"] for shader in shaders)
    return f"{what}; shaders {names}\nProve it in a browser: webnorm verify {shlex.quote(str(folder))}"


def wrong(files: Files) -> list[str]:
    """A line for each shader of a package that was wrong natively."""
    found = []
    for shader in json.loads(files[_MANIFEST])["shaders"] if _MANIFEST in files else ():
        reasons = [vector.get("reason") for vector in shader["native"].get("vectors", {}).values()]
        reason = next(filter(None, reasons), None)
        if reason:
            found.append(f"{shader['name']} is wrong natively: {reason}")
    return found


def check_folder(folder: Path, force: bool = False, *, lab: bool = False) -> None:
    """Raise WebnormError for a folder that cannot be written, or holds something else than such an export."""
    try:
        parent = next((one for one in resolved(folder).parents if one.exists()), None)
        if parent is not None and not parent.is_dir():
            raise WebnormError(f"--out {folder}: {parent.name} is a file; expected a folder")
        if not folder.exists():
            return
        if not folder.is_dir():
            raise WebnormError(f"--out {folder}: is a file; expected a folder")
        if not force and any(folder.iterdir()) and not _is_export(folder, lab):
            what = "lab" if lab else "package"
            raise WebnormError(
                f"--out {folder}: exists and is no exported {what}; choose another folder, or --force to "
                "write into it (files of other names stay)"
            )
    except OSError as error:
        raise WebnormError(f"--out {folder}: cannot be read: {error.strerror or error}") from error


def _is_export(folder: Path, lab: bool) -> bool:
    try:
        data = read_json(folder / (_LAB_INDEX if lab else _MANIFEST))
    except (OSError, ValueError):
        return False
    return isinstance(data, dict) and "webnorm" in data and "schema" in data


def write(files: Files, folder: Path) -> None:
    """Write the files into a folder: beside it first, then each by a rename.

    What an older export left, as it was written, goes; files of other names stay. Raises WebnormError for a
    folder that cannot be written, and leaves it as it was.
    """
    try:
        # Beside a link's target: a rename does not cross file systems.
        target = resolved(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        with _staging(target if target.exists() else target.parent) as staging:
            for name, content in files.items():
                path = staging / "new" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            if target.exists():
                _replace(staging, target, [*files, *(name for name in _left(target) if name not in files)])
            else:
                os.rename(staging / "new", target)
    except OSError as error:
        raise WebnormError(f"--out {folder}: cannot be written: {error.strerror or error}") from error


def _replace(staging: Path, folder: Path, names: Sequence[str]) -> None:
    """Put new files in the place of old ones, or take old ones away; all of it or, when it fails, nothing."""
    moves: list[tuple[Path, Path]] = []
    try:
        for name in names:
            for source, target in (
                (folder / name, staging / "old" / name),
                (staging / "new" / name, folder / name),
            ):
                if os.path.lexists(source):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    if source.is_relative_to(staging / "new"):
                        keep_mode(source, staging / "old" / name)
                    os.rename(source, target)
                    moves.append((source, target))
    except BaseException:
        for source, target in reversed(moves):
            os.rename(target, source)
        raise


def _left(folder: Path) -> Iterator[str]:
    """Files of the export that is there, as far as they are as it wrote them."""
    try:
        listed = read_json(folder / _MANIFEST)["files"]
        for name, digest in listed.items():
            path = folder / name
            if (
                lies_in(path, folder)
                and path.is_file()
                and hashlib.sha256(read_bytes(path)).hexdigest() == digest
            ):
                yield name
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return


@contextmanager
def _staging(parent: Path) -> Iterator[Path]:
    staging = Path(tempfile.mkdtemp(prefix=".webnorm-", dir=parent))
    try:
        (staging / "new").mkdir(mode=0o755)
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)
