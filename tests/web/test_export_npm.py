"""Exports as npm packages: packing, types in TypeScript, a build with Vite, and the size."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from npm_tools import install, needs_npm, run, succeed
from packages import COVERING, MOST_CODE_BYTES, Export, block

from headless import needs_browser, needs_tint, started
from pages import ROOT
from patience import HANG_MS
from webnorm.op.dtypes import DTYPES, Array
from webnorm.op.registry import OPS
from webnorm.serving import serve_folder
from webnorm.web import tint
from webnorm.web.package import npm
from webnorm.web.package.bundle import bundle_of
from webnorm.web.package.manifest import CLASSES
from webnorm.web.package.reader import ExportedPackage

APP = Path(__file__).parent / "vite"

# All these tests run in one process, so that packages are installed once.
pytestmark = pytest.mark.xdist_group("npm")

EXPORTS = (
    Export("layer_norm", (768,), "float16"),
    Export("rms_norm", (1024,), options=("residual",)),
    Export("layer_norm_backward", (1024,), options=("bias=false",)),
    Export("rms_norm_backward", (61, 64), "bfloat16", name="@example/rms-gradient"),
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Write the packages by op, each into a folder with a foreign file."""
    root = tmp_path_factory.mktemp("packages")
    found = {export.op: export.write(root / export.op) for export in EXPORTS}
    for folder in found.values():
        (folder / "notes.txt").write_text("not part of it", encoding="utf-8")
    return found


def packed(folder: Path, where: Path) -> dict[str, Any]:
    """Return npm's description of the archive of a folder."""
    output = succeed(
        "npm", "pack", "--json", "--loglevel=error", "--pack-destination", where, folder, cwd=where
    )
    said = json.loads(output)
    (found,) = said.values() if isinstance(said, dict) else said
    result: dict[str, Any] = found
    return result


@pytest.fixture(scope="module")
def project(folders: Mapping[str, Path], apps: Path) -> Path:
    """Create the app with the packed packages. It uses the tools of the examples."""
    root = apps / "every-op"
    shutil.copytree(APP, root)
    archives = [f"./{packed(folder, root)['filename']}" for folder in folders.values()]
    install("npm", "install", *archives, cwd=root)
    return root


def tool(project: Path, name: str) -> Path:
    return project.parent / "node_modules" / ".bin" / name


@pytest.mark.slow
@needs_npm
@pytest.mark.parametrize("op", [export.op for export in EXPORTS])
def test_npm_packs_only_the_written_files(op: str, folders: Mapping[str, Path], tmp_path: Path) -> None:
    folder = folders[op]
    archive = packed(folder, tmp_path)
    files = {one["path"] for one in archive["files"]}
    on_disk = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert files == on_disk - {"notes.txt"}
    described = json.loads((folder / "package.json").read_text(encoding="utf-8"))
    assert (archive["name"], archive["version"]) == (described["name"], described["version"])
    named = {name.partition("/")[0] for name in files}
    assert named == {*described["files"], "package.json", "README.md"}
    exported = [described["types"], described["exports"]["."]["default"]]
    assert {path.removeprefix("./") for path in exported} <= files


# The code that the snippet for an app's own buffers assumes.
OWN = """import {{ {create} }} from "./index.js";
declare const ort: {{ readonly env: {{ readonly webgpu: {{ readonly device: Promise<GPUDevice> }} }} }};
declare const {names}: GPUBuffer;
declare const rows: number;
"""
OF_DOCS = (
    (ROOT / "README.md", "html", Export("layer_norm", (768,), options=("weight=false", "bias=false"))),
    (ROOT / "docs" / "export.md", "js", Export("layer_norm", (768,), "float16")),
)


def snippets(folder: Path, install: Path) -> Iterator[tuple[str, str]]:
    """Write the code of a package's README and of the command as modules next to the package's index.js."""
    readme = (folder / "README.md").read_text(encoding="utf-8")
    (script,) = re.findall(r'<script type="module">\n(.*?)</script>', readme, re.DOTALL)
    bundled, buffers = re.findall(r"^```js\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    (create,) = set(re.findall(r"import \{ (\w+)", readme))
    names = ": GPUBuffer, ".join(tensor["name"] for tensor in manifest["tensors"])
    yield "page", script
    yield "bundled", bundled
    yield "buffers", OWN.format(create=create, names=names) + buffers
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }
    printed = npm.package_summary(files, install)
    yield "printed", re.sub(r"^ {2}", "", "".join(re.findall(r"^ {2}.*\n", printed, re.M)), flags=re.M)


@pytest.mark.slow
@needs_npm
def test_strict_typescript_takes_the_types_and_every_snippet_that_users_see(
    folders: Mapping[str, Path], project: Path
) -> None:
    compiler, shown = tool(project, "tsc"), project / "shown"
    for op, folder in folders.items():
        (shown / op).mkdir(parents=True)
        for name in ("index.js", "index.d.ts"):
            shutil.copy(folder / name, shown / op)
        for name, text in snippets(folder, folder):
            assert "requestDevice(" in text or name == "buffers"
            (shown / op / f"{name}.ts").write_text(text, encoding="utf-8")
    for page, language, export in OF_DOCS:
        script = re.sub(
            r'.*<script type="module">\n?|</script>.*', "", block(page, language), flags=re.DOTALL
        )
        snippet, imports = re.subn(r'"\./[^"]*/index\.js"', '"./index.js"', script)
        assert imports == 1
        (export.write(shown / page.stem) / "shown.ts").write_text(snippet, encoding="utf-8")
    try:
        # TypeScript compiles the app and the file of expected mistakes together with them.
        assert succeed(compiler, "--pretty", "false", cwd=project) == ""
    finally:
        shutil.rmtree(shown)


@pytest.mark.slow
@needs_npm
def test_strict_typescript_finds_mistakes(project: Path) -> None:
    compiler = tool(project, "tsc")
    mistakes = project / "src" / "mistakes.ts"
    text = mistakes.read_text(encoding="utf-8")
    expected = [i + 1 for i, line in enumerate(text.splitlines(), 1) if "@ts-expect-error" in line]
    assert len(expected) > 10
    mistakes.write_text(text.replace("@ts-expect-error", "a mistake:"), encoding="utf-8")
    try:
        done = run(compiler, "--pretty", "false", cwd=project)
    finally:
        mistakes.write_text(text, encoding="utf-8")
    assert done.returncode != 0
    found = [int(line) for line in re.findall(r"^src/mistakes\.ts\((\d+),", done.stdout, re.MULTILINE)]
    assert sorted(set(found)) == expected


@pytest.fixture(scope="module")
def site(project: Path) -> Path:
    succeed(tool(project, "vite"), "build", "--logLevel", "warn", cwd=project)
    return project / "dist"


def ramp(shape: tuple[int, ...], step: int) -> Array:
    """Return the inputs of the app."""
    return ((np.arange(np.prod(shape)) * step % 61) / 8 - 3).reshape(shape)


STEPS = {"x": 7, "weight": 3, "bias": 5, "residual": 11, "dy": 11}


def expected_of(export: Export, eps: float | None) -> Iterator[tuple[str, str, Array, Array]]:
    """Return name, storage type, expected value and unit of each output of the app."""
    op = OPS[export.op]
    problem = replace(export.request.task(export.cols[0]).problem, rows=5)
    problem = problem if eps is None else replace(problem, eps=eps)
    arrays = {
        tensor.name: ramp(tensor.shape_in(problem), STEPS[tensor.name]).astype(DTYPES[tensor.dtype(problem)])
        for tensor in op.present(problem)
        if tensor.access == "read"
    }
    answers = op.reference(arrays, problem)
    for tensor in op.outputs(problem):
        answer = answers[tensor.name]
        unit = np.broadcast_to(answer.error_scale, answer.value.shape)
        if answer.abs_sum is not None:
            unit = unit + answer.abs_sum
        yield tensor.name, tensor.dtype(problem), answer.value, unit


@pytest.mark.slow
@needs_npm
@needs_browser
def test_a_build_with_vite_computes_the_right_numbers(site: Path) -> None:
    with serve_folder(site) as server, started() as browser:
        page = browser.new_page()
        page.goto(server.url)
        page.wait_for_function("() => window.found !== undefined", timeout=HANG_MS)
        found = page.evaluate("() => window.found")
        assert server.missing == []
    assert "error" not in found, found["error"]
    assert sorted(found) == sorted(export.op for export in EXPORTS)
    for export in EXPORTS:
        got = found[export.op]
        expected = list(expected_of(export, eps=1e-3 if export.op == "layer_norm" else None))
        assert list(got) == [name for name, *_ in expected]
        for name, dtype, value, unit in expected:
            stored = np.array(got[name])
            if dtype != "float32":
                stored = stored.astype(np.uint16).view(DTYPES[dtype])
            error = np.abs(stored.astype(np.float64).reshape(value.shape) - value)
            digits = {"float32": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
            assert (error <= 2e-6 * unit + digits * np.abs(value)).all(), f"{export} {name}: {error.max()}"


SMALL = (
    Export("layer_norm", (768,), "float16"),
    Export("rms_norm", (1024,)),
    Export("layer_norm_backward", (1024,)),
)


@pytest.mark.slow
@pytest.mark.parametrize("export", SMALL, ids=str)
def test_an_app_loads_little(export: Export, tmp_path: Path) -> None:
    folder = export.write(tmp_path / "package")
    sizes = {name: len(gzip.compress((folder / name).read_bytes())) for name in ("index.js", "runtime.js")}
    assert sum(sizes.values()) < MOST_CODE_BYTES, sizes


@pytest.mark.sampled(4)
@needs_tint
@pytest.mark.parametrize("export", COVERING, ids=str)
def test_chrome_takes_every_text_within_the_limits_that_it_names(export: Export) -> None:
    """This checks the text for people and the text that runs.

    Only the widest classes exceed the default limits.
    """
    bundle = bundle_of(export.request)
    wide = {one.name for one in bundle.shaders if CLASSES[one.adapter_class].max_invocations > 256}
    for texts in ({one.name: one.text for one in bundle.shaders}, bundle.texts):
        assert not [name for name, text in texts.items() if "diagnostic(" in text]
        package = ExportedPackage(Path(), bundle.manifest(), texts)  # type: ignore[arg-type]
        sources = [
            source if source.name in wide else replace(source, limits={}) for source in package.sources
        ]
        assert [verdict for verdict in tint.check_shaders(sources) if not verdict.ok] == []
    for cols in export.cols:
        classes = {one.adapter_class for one in bundle.shaders if one.shader.problem.cols == cols}
        assert {"portable", "software"} <= classes
