"""The npm package of a model: a package for each of its norms, and a module that creates all of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from webnorm._version import __version__
from webnorm.errors import WebnormError, counted, path_argument, shell_command, shell_word
from webnorm.op.registry import OPS
from webnorm.web.folder import MANIFEST, MODEL_LISTING, NORMS, PAGE, Files, digests
from webnorm.web.package.npm import package_files
from webnorm.web.package.request import TO_A_FOLDER, ExportRequest, Update, checked_name, request_for
from webnorm.web.pages import json_text, page_files, render_model_asset

# Files that each norm's package has by itself, and that a part of a model's package does not need.
_ALONE = ("package.json", "README.md")
# A norm's runtime is the model's, so that an app loads it once.
_RUNTIME = b'export * from "../../runtime.js";\n'
# The modules of the pages are the model's, too.
_SHARED_FOLDER = "page/"
_NO_IDENTIFIER = re.compile(r"\W+")


@dataclass(frozen=True)
class NormRequest:
    """A norm of a model as a request: an op with all sizes, options and scalars, its count and its nodes."""

    op: str
    sizes: Mapping[str, int]
    dtype: str
    options: tuple[str, ...] = ()
    scalars: Mapping[str, float] = field(default_factory=dict)
    count: int = 1
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelNorm:
    """A norm of a model's package: norms that differ only in their batch are one.

    `use` has the count and the nodes of all of them.
    """

    name: str
    use: NormRequest

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes that are compiled in."""
        return _compiled_in(self.use)


@dataclass(frozen=True, kw_only=True)
class ModelExport:
    """The files of a model's package, its norms, and one line for each norm that it lacks."""

    files: Files
    norms: tuple[ModelNorm, ...]
    skipped: tuple[str, ...]

    def summary(self, folder: Path) -> str:
        """Return a summary of the written files, and the next steps."""
        size = sum(len(content) for content in self.files.values())
        place = folder if folder.is_absolute() else f"./{folder}"
        return "\n".join(
            (
                f"{folder}: {len(self.files)} files, {size // 1000} kB; {counted(len(self.norms), 'norm')}",
                *(f"  {one.name}: {counted(one.use.count, 'time')} in the model" for one in self.norms),
                f"Use it in an app: npm install {shell_word(str(place))}",
                f"Check it in a browser: webnorm verify {shell_word(path_argument(folder))}",
            )
        )


def _compiled_in(use: NormRequest) -> dict[str, int]:
    batch = OPS[use.op].problem_type.BATCH
    return {name: size for name, size in use.sizes.items() if name != batch}


def model_norms(uses: Sequence[NormRequest]) -> tuple[ModelNorm, ...]:
    """Return the norms of a package with readable names, which are JavaScript's identifiers."""
    found: dict[tuple[Any, ...], NormRequest] = {}
    for use in uses:
        scalars = tuple(sorted(use.scalars.items()))
        key = (use.op, *_compiled_in(use).items(), use.dtype, use.options, scalars)
        if key in found:
            before = found[key]
            use = replace(before, count=before.count + use.count, nodes=before.nodes + use.nodes)
        found[key] = use
    return tuple(ModelNorm(name, use) for name, use in _names([*found.values()]))


def _names(uses: Sequence[NormRequest]) -> Iterator[tuple[str, NormRequest]]:
    """Yield a name for each norm; norms whose names would be equal get their type or a number."""
    names = [_name(use) for use in uses]
    typed = [
        f"{name}_{use.dtype}" if names.count(name) > 1 else name
        for name, use in zip(names, uses, strict=True)
    ]
    names = typed if len({*typed}) > len({*names}) else names
    for at, (name, use) in enumerate(zip(names, uses, strict=True)):
        before = names[:at].count(name)
        yield (f"{name}_{before + 1}" if before else name), use


def _name(use: NormRequest) -> str:
    """Return an op with its sizes and options, such as rms_norm_4096_residual."""
    words = [use.op, "x".join(map(str, _compiled_in(use).values())), *map(_option_word, use.options)]
    return _NO_IDENTIFIER.sub("_", "_".join(word for word in words if word))


def _option_word(option: str) -> str:
    name, equals, value = option.partition("=")
    return f"no_{name}" if value == "false" else value if equals else name


def model_package(
    uses: Sequence[NormRequest],
    source: Path,
    *,
    name: str | None = None,
    skipped: Sequence[str] = (),
    minify: bool = False,
    forced: bool = False,
    partial: bool = False,
    update: Update,
) -> ModelExport:
    """Return the package of a model's norms.

    Norms that no kernel of an export can run are left out, with the reason in `skipped`.

    Raises
    ------
    WebnormError
        No norm can be exported, or npm does not allow the name.
    """
    package = checked_name(name or _package_name(source))
    norms = model_norms(uses)
    files: Files = {}
    kept: list[ModelNorm] = []
    left = [*skipped]
    for at, norm in enumerate(norms):

        def inside(doing: str, share: float, at: int = at, norm: ModelNorm = norm) -> None:
            update(f"{norm.name}: {doing}", (at + share) / len(norms))

        try:
            own = package_files(_request(norm, minify, forced, partial), inside)
        except WebnormError as error:
            left.append(f"{norm.name}: {error}")
            continue
        files |= _placed(norm, own)
        kept.append(norm)
    if not kept:
        raise WebnormError(f"{source}: none of its norms can be exported ({left[0]})")
    flags = [flag for flag, given in (("--minify", minify), ("--partial", partial)) if given]
    named = ["--name", name] if name else []
    command = shell_command(["webnorm", "export", "--model", source.name, *named, *flags, *TO_A_FOLDER])
    files |= _shared(package, source.name, command, kept, left, files)
    return ModelExport(files=files, norms=tuple(kept), skipped=tuple(left))


def _package_name(source: Path) -> str:
    """Return the default name of the package: of the model's file, or of the folder of a config."""
    stem = source.stem
    if source.is_dir() or stem in ("config", "model", "model_index"):
        stem = (source if source.is_dir() else source.absolute().parent).name
    word = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")
    return f"{word[:200] or 'model'}-norms"


def _request(norm: ModelNorm, minify: bool, forced: bool, partial: bool) -> ExportRequest:
    use = norm.use
    settings = {"--dtype": use.dtype, "--eps": None, "--scale": None, "--name": None, "--minify": minify}
    op = OPS[use.op]
    # Sizes that the model does not have, such as gaps between rows, have the op's defaults.
    every = dict(zip(op.problem_type.SIZES, op.sizes_of(use.sizes), strict=True))
    sizes = {name: size for name, size in every.items() if name != op.problem_type.BATCH}
    return request_for(
        use.op, (), use.options, "auto", (), settings, forced, partial, sizes, dict(use.scalars)
    )


def _placed(norm: ModelNorm, files: Files) -> Files:
    """Return a norm's files at their place in the model's package."""
    own = {
        name: content
        for name, content in files.items()
        if name not in _ALONE and not name.startswith(_SHARED_FOLDER)
    }
    own["runtime.js"] = _RUNTIME
    own[PAGE] = own[PAGE].replace(b'="page/', b'="../../page/')
    manifest = json.loads(own.pop(MANIFEST))
    manifest["files"] = {name: one for name, one in digests(own).items() if name in manifest["files"]}
    own[MANIFEST] = json_text(manifest)
    return {f"{NORMS}/{norm.name}/{name}": content for name, content in own.items()}


def _shared(
    package: str, model: str, command: str, norms: Sequence[ModelNorm], skipped: Sequence[str], files: Files
) -> Files:
    """Return the files of the whole package."""
    described = [_described(norm, json.loads(files[f"{NORMS}/{norm.name}/{MANIFEST}"])) for norm in norms]
    context = {
        "name": package,
        "model": model,
        "webnorm": __version__,
        "command": command,
        "norms": described,
        "skipped": skipped,
    }
    own = {
        name: render_model_asset(f"{name}.jinja", context) for name in ("index.js", "index.d.ts", "README.md")
    }
    own["package.json"] = _package_json(package, model)
    own |= page_files("model", PAGE)
    listing = {
        "schema": 1,
        "webnorm": __version__,
        "name": package,
        "model": model,
        "command": command,
        "norms": [{"name": norm.name, **_entry(norm)} for norm in norms],
        "skipped": list(skipped),
        "files": digests({**files, **own}),
    }
    return {**own, MODEL_LISTING: json_text(listing)}


def _entry(norm: ModelNorm) -> dict[str, Any]:
    return {**asdict(norm.use), "sizes": norm.sizes}


def _described(norm: ModelNorm, manifest: Mapping[str, Any]) -> dict[str, Any]:
    use = norm.use
    scalars = (f"{name}={value:g}" for name, value in use.scalars.items())
    sizes = (f"{name}={size}" for name, size in norm.sizes.items())
    return {
        "name": norm.name,
        "summary": f"{' '.join((use.op, *sizes, *use.options, *scalars))}, {use.dtype}",
        "count": counted(use.count, "time"),
        "batch": manifest.get("batch", "rows"),
        "inputs": [one["name"] for one in manifest["tensors"] if one["access"] == "read"],
        "outputs": [one["name"] for one in manifest["tensors"] if one["access"] == "write"],
    }


def _package_json(name: str, model: str) -> bytes:
    return json_text(
        {
            "name": name,
            "version": __version__,
            "description": f"The norms of {model} in WebGPU.",
            "license": "MIT",
            "type": "module",
            "sideEffects": False,
            "types": "./index.d.ts",
            "exports": {
                ".": {"types": "./index.d.ts", "default": "./index.js"},
                "./norms/*": "./norms/*",
                "./norms.json": "./norms.json",
                "./package.json": "./package.json",
            },
            "files": ["index.js", "index.d.ts", "runtime.js", MODEL_LISTING, NORMS, PAGE, "page"],
            "keywords": ["webgpu", "wgsl", "normalization"],
        }
    )
