"""Verification of a package gives its result, or a one-line error, and always ends within the time limit.

The packages here are handmade, small, and wrong on purpose.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import io
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from rich.console import Console

from commands import heeding_interrupts, webnorm, webnorm_process
from headless import MISSING as NO_BROWSER
from patience import HANG_S, all_end, until
from webnorm import system
from webnorm.cli import app as cli
from webnorm.cli.verbs.verify import VerifyTable
from webnorm.cli.work.jobs import INCONCLUSIVE
from webnorm.engines import node_webgpu
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.serving import serve_folder
from webnorm.web import tint, verify
from webnorm.web.browser import launch
from webnorm.web.browser import visits as browsing
from webnorm.web.browser.visits import PageVisit, PageVisitor
from webnorm.web.package.reader import read_package

MISSING = tint.tint_unavailable() or NO_BROWSER
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

SHADER = """@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    y[id.x] = 2.0 * x[id.x];
}
"""
PAGE = """<!doctype html><html lang="en"><title>page</title><link rel="stylesheet" href="./style.css">
<body><p>A page.</p><script type="module" src="./page.js"></script></body></html>"""
SKIPPED = "webnorm: skipped: {}; `webnorm doctor --fix --browser` installs what is missing\n"
VECTOR = b"not read by these pages"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def shader_entry(name: str, text: str) -> dict[str, Any]:
    return {
        "name": name,
        "file": f"shaders/{name}.wgsl",
        "sha256": sha256(text.encode()),
        "embedded_sha256": sha256(text.encode()),
        "cols": 8,
        "features": [],
        "language_features": [],
        "limits": {"maxComputeInvocationsPerWorkgroup": 64},
        "bindings": [{"binding": 0, "type": "read-only-storage"}, {"binding": 1, "type": "storage"}],
        "overrides": {},
        "passes": [{"entry_point": "main", "bindings": [0, 1]}],
        "native": {
            "adapter": "one",
            "verdict": "pass",
            "max_abs_error": 1e-7,
            "max_rel_error": 1e-7,
            "vectors": {"mixed": {"verdict": "pass", "max_abs_error": 1e-7, "max_rel_error": 1e-7}},
        },
    }


def report(**changes: Any) -> dict[str, Any]:
    """Return a page's report of two right shaders; `changes` apply to the first shader's entry."""
    entry = {
        "name": "first",
        "cols": 8,
        "skipped": None,
        "verdict": "pass",
        "max_abs_error": 2e-7,
        "max_rel_error": 2e-7,
        "vectors": [{"name": "mixed", "verdict": "pass", "max_abs_error": 2e-7, "reason": None}],
        "timing": {"gbps": 12.5, "percent_of_copy": 62.5},
    }
    return {
        "error": None,
        "adapter": {"vendor": "unknown", "description": "An adapter", "software": True},
        "features": ["subgroups"],
        "chosen": {"8": "first"},
        "reasons": {"8": "first fits"},
        "shaders": [entry | changes, entry | {"name": "second", "timing": None}],
    }


def write(folder: Path, script: str = "", shader: str = SHADER) -> Path:
    """Write a package of two shaders, whose page runs a script."""
    texts = {"first": shader, "second": f"// The second.\n{SHADER}"}
    manifest = {
        "schema": 1,
        "webnorm": "0",
        "op": "double",
        "has_mean": False,
        "problem": {"dtype": "float32", "eps": 0.0, "options": {}},
        "tensors": [],
        "cols": [8],
        "shaders": [shader_entry(name, text) for name, text in texts.items()],
        "vectors": [
            {
                "name": "mixed",
                "file": "vectors/mixed.safetensors",
                "sha256": sha256(VECTOR),
                "cols": 8,
                "rows": 1,
            }
        ],
    }
    files = {
        "index.js": f"export const texts = {json.dumps(texts)};",
        "package.json": '{"type": "module"}',
        "verify.html": PAGE,
        "page.js": script,
        "style.css": "body { color: green; }",
        **{f"shaders/{name}.wgsl": text for name, text in texts.items()},
    }
    manifest["files"] = {name: sha256(text.encode()) for name, text in files.items()}
    files["manifest.json"] = json.dumps(manifest)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "vectors").mkdir()
    (folder / "vectors" / "mixed.safetensors").write_bytes(VECTOR)
    return folder


def reporting(data: dict[str, Any]) -> str:
    return f"window.webnormReport = {json.dumps(data)};"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "package", reporting(report()))


@pytest.fixture(scope="module")
def browser() -> Iterator[PageVisitor]:
    with PageVisitor() as opened:
        yield opened


# --- The files


def change(name: str, old: str, new: str) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return changed


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def written(name: str, text: str) -> Callable[[Path], None]:
    def write_it(folder: Path) -> None:
        (folder / name).write_text(text)

    return write_it


def unlisted(name: str, damage: Callable[[Path], None]) -> Callable[[Path], None]:
    """Damage a file that the list of files does not contain."""

    def damage_it(folder: Path) -> None:
        manifest = json.loads((folder / "manifest.json").read_text())
        del manifest["files"][name]
        (folder / "manifest.json").write_text(json.dumps(manifest))
        damage(folder)

    return damage_it


def listed(name: str) -> Callable[[Path], None]:
    def list_it(folder: Path) -> None:
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["files"][name] = "0"
        (folder / "manifest.json").write_text(json.dumps(manifest))

    return list_it


def a_folder_for_a_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    (folder / "manifest.json").mkdir()


def linked_out(name: str) -> Callable[[Path], None]:
    """Move the file away and link to it."""

    def link_it(folder: Path) -> None:
        outside = folder.parent / "outside"
        (folder / name).rename(outside)
        (folder / name).symlink_to(outside)

    return link_it


CHANGED_SHADER = sha256(SHADER.replace("2.0", "3.0").encode())[:12]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            without("manifest.json"),
            "{}: manifest.json is missing, so this is not an exported package; expected a folder "
            "that `webnorm export OP` wrote",
        ),
        (a_folder_for_a_manifest, "{}/manifest.json: cannot be read: Is a directory"),
        (
            written("manifest.json", '{"schema": 1'),
            "{}/manifest.json: not JSON (Expecting ',' delimiter: line 1 column 13 (char 12)); export again",
        ),
        (
            written("manifest.json", "[]"),
            "{}/manifest.json: the data is []; expected object; export again",
        ),
        (written("manifest.json", "{}"), "{}/manifest.json: schema is missing; export again"),
        (
            change("manifest.json", '"schema": 1', '"schema": 2'),
            "{}/manifest.json: schema is 2; expected 1; export again",
        ),
        (
            change("manifest.json", '"sha256"', '"md5"'),
            "{}/manifest.json: shaders[0].sha256 is missing; export again",
        ),
        (
            change("manifest.json", '"cols": [8]', '"cols": "8"'),
            "{}/manifest.json: cols is '8'; expected array; export again",
        ),
        (
            change("manifest.json", '"cols": [8]', '"cols": []'),
            "{}/manifest.json: cols is empty; export again",
        ),
        (
            change("manifest.json", '"bindings": [0, 1]', '"bindings": [0, null]'),
            "{}/manifest.json: shaders[0].passes[0].bindings[1] is None; expected int; export again",
        ),
        (
            change("manifest.json", '"bindings": [0, 1]', '"bindings": [0, 7]'),
            "{}/manifest.json: first binds buffers that it does not declare; export again",
        ),
        (
            change("manifest.json", '"verdict": "pass"', '"verdict": ["pass"]'),
            "{}/manifest.json: shaders[0].native.verdict is ['pass']; expected pass, fail, skip; "
            "export again",
        ),
        (written("manifest.json", "[" * 200_000), "{}/manifest.json: not JSON"),
        (listed("../../secret"), "{}/manifest.json: '../../secret' is outside of the folder; export again"),
        (listed("nul\0"), "{}/manifest.json: 'nul\\x00' is outside of the folder; export again"),
        (
            change("page.js", "first", "third"),
            "{}/page.js: sha256 is ",
        ),
        (without("shaders/first.wgsl"), "{}/shaders/first.wgsl: the file is missing; export again"),
        (
            change("shaders/first.wgsl", "2.0", "3.0"),
            f"{{}}/shaders/first.wgsl: sha256 is {CHANGED_SHADER}..., but manifest.json expects "
            f"{sha256(SHADER.encode())[:12]}...: changed since the export; export again",
        ),
        (
            written("vectors/mixed.safetensors", ""),
            "{}/vectors/mixed.safetensors: sha256 is e3b0c44298fc..., but manifest.json expects "
            f"{sha256(VECTOR)[:12]}...: changed since the export; export again",
        ),
        (without("verify.html"), "{}/verify.html: the file is missing; export again"),
        *(
            (damage, f"{{}}/{name}: this link leads out of the folder, or nowhere; export again")
            for name, damage in (
                ("manifest.json", linked_out("manifest.json")),
                ("index.js", unlisted("index.js", linked_out("index.js"))),
                ("verify.html", unlisted("verify.html", linked_out("verify.html"))),
            )
        ),
        (without("index.js"), "{}/index.js: the file is missing; export again"),
        (
            unlisted("index.js", change("index.js", "2.0", "3.0")),
            f"{{}}/index.js: text of first: sha256 is {CHANGED_SHADER}..., but manifest.json expects "
            f"{sha256(SHADER.encode())[:12]}...: changed since the export; export again",
        ),
        (
            unlisted("index.js", change("index.js", '"first"', '"1st"')),
            "{}/index.js: text of first: sha256 is missing, but manifest.json expects "
            f"{sha256(SHADER.encode())[:12]}...: changed since the export; export again",
        ),
        (
            unlisted("index.js", written("index.js", "export const = 1;")),
            "{}/index.js: node cannot load it: SyntaxError: Unexpected token '='; export again",
        ),
    ],
)
def test_a_damaged_package_is_reported_in_one_line(
    damage: Callable[[Path], None], message: str, folder: Path
) -> None:
    damage(folder)
    with pytest.raises(WebnormError) as raised:
        read_package(folder)
    # The test compares only the beginning of other software's messages.
    whole = message.endswith((")", ";", "export again", "webnorm", "wrote", "directory"))
    got, expected = str(raised.value), message.replace("{}", str(folder))
    assert got == expected if whole else got.startswith(expected)
    assert "\n" not in got


def test_no_folder(tmp_path: Path) -> None:
    nowhere, file = tmp_path / "nowhere", tmp_path / "file"
    file.touch()
    for path, message in (
        (nowhere, "no such folder; expected one that `webnorm export OP` wrote"),
        (file, "is a file; expected the folder of an export"),
    ):
        with pytest.raises(WebnormError) as raised:
            read_package(path)
        assert str(raised.value) == f"{path}: {message}"


@pytest.mark.skipif(sys.platform != "linux", reason="names are text here")
def test_a_folder_whose_name_is_not_utf_8(folder: Path) -> None:
    odd = folder.with_name("\udcff")
    folder.rename(odd)
    folder.symlink_to(odd)
    for path in (odd, folder):
        with pytest.raises(WebnormError, match="the path is not UTF-8, so node cannot load it"):
            read_package(path)


def test_a_name_that_is_longer_than_any() -> None:
    with pytest.raises(WebnormError, match=r"manifest.json: cannot be read: File name too long$"):
        read_package(Path("x" * 5000))


def test_a_folder_that_may_not_be_read(folder: Path) -> None:
    if system.is_root():
        pytest.skip("root may read everything")
    folder.chmod(0)
    with pytest.raises(WebnormError, match=r"manifest.json: cannot be read: Permission denied$"):
        read_package(folder)
    folder.chmod(0o755)


def test_files_outside_of_the_folder_are_not_served(folder: Path) -> None:
    linked_out("page.js")(folder)
    with serve_folder(folder) as server:
        with urlopen(f"{server.url}/verify.html", timeout=HANG_S) as answer:
            assert answer.read().decode() == PAGE
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"{server.url}/page.js", timeout=HANG_S)


def test_a_missing_file_is_listed_and_no_404_page_hides_it(folder: Path) -> None:
    (folder / "404.html").write_text(PAGE, encoding="utf-8")
    (folder / "circular.js").symlink_to("circular.js")
    with serve_folder(folder) as server:
        for name in ("circular.js", "nowhere.js"):
            with pytest.raises(HTTPError, match="404"):
                urlopen(f"{server.url}/{name}?again", timeout=HANG_S)
        assert server.missing == ["/circular.js", "/nowhere.js"]


def test_a_whole_package_is_read(folder: Path) -> None:
    package = read_package(folder)
    assert package.texts == {"first": SHADER, "second": f"// The second.\n{SHADER}"}


# --- The shaders


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("2.0 *", "2.0 * *", ":5:"),
        (
            "    y",
            "    if (x[id.x] > 0.0) { workgroupBarrier(); }\n    y",
            ":5:26: error: 'workgroupBarrier'",
        ),
        ("64", "512", ": error: pipeline of main: Entry-point uses workgroup_size(512, 1, 1)"),
        ("fn main", "fn other", ": error: pipeline of main: "),
        ("read>", "read_write>", ": error: pipeline of main: "),
        ("", "diagnostic(off, derivative_uniformity);\n", ":1:1: error: diagnostics may not be turned off"),
    ],
)
def test_a_shader_that_chrome_refuses(old: str, new: str, said: str, tmp_path: Path) -> None:
    assert old in SHADER
    folder = write(tmp_path / "package", reporting(report()), SHADER.replace(old, new, 1))
    done = webnorm(["verify", str(folder)], tmp_path)
    assert done.returncode == 1, done.stderr
    assert f"{folder}/shaders/first.wgsl{said}" in done.stdout
    assert "1 of 2 shaders refused" in done.stdout and "second.wgsl" not in done.stdout


def test_limits_and_features_of_the_manifest_are_granted(tmp_path: Path) -> None:
    shader = "enable subgroups;\n" + SHADER.replace("64", "512").replace("2.0 *", "subgroupAdd(1.0) *")
    folder = write(tmp_path / "package", shader=shader)
    assert [refused.name for refused in verify.refused_by_tint(read_package(folder))] == ["first"]
    change("manifest.json", '"features": []', '"features": ["subgroups"]')(folder)
    assert [refused.name for refused in verify.refused_by_tint(read_package(folder))] == ["first"]
    limits = '"limits": {"maxComputeWorkgroupSizeX": 512, "maxComputeInvocationsPerWorkgroup": '
    change("manifest.json", '"limits": {"maxComputeInvocationsPerWorkgroup": 64', f"{limits}512")(folder)
    assert verify.refused_by_tint(read_package(folder)) == ()


def test_a_package_that_tint_refuses_is_not_opened(tmp_path: Path, browser: PageVisitor) -> None:
    folder = write(tmp_path / "package", shader="fn main(")
    files, shaders, skipped = verify.verify(folder, str(browser.opener), update=lambda *_: None)
    assert files.passed and not shaders.passed
    assert skipped.passed is None and skipped.text == "not opened, since Tint refuses shaders"
    assert [refused.name for refused in shaders.refused] == ["first"]


# --- The page


def failed(reason: str) -> dict[str, Any]:
    vector = {"name": "mixed", "verdict": "fail", "max_abs_error": 1.0, "reason": reason}
    return report(verdict="fail", max_abs_error=1.0, vectors=[vector])


def findings_of(folder: Path, data: Any) -> verify.BrowserFindings:
    return verify.compare_report(read_package(folder), PageVisit("a browser", data, ()))


def test_a_right_package(folder: Path) -> None:
    seen = findings_of(folder, report())
    assert seen.complaints == ()
    first, second = seen.lines
    assert (first.chosen, first.gbps, first.percent_of_copy) == (True, 12.5, 62.5)
    assert first.native == verify.SideResult("pass", 1e-7) and first.browser == verify.SideResult(
        "pass", 2e-7
    )
    assert not second.chosen and second.gbps is None
    assert seen.choices == ("8 columns: first fits",)


def test_a_shader_that_no_vector_is_for_is_not_right(folder: Path) -> None:
    change("manifest.json", '"cols": 8', '"cols": 9')(folder)
    seen = findings_of(folder, report())
    assert "first: no vector has 9 columns" in seen.complaints


def test_a_shader_that_ran_nowhere_is_a_skipped_step(folder: Path) -> None:
    change("manifest.json", NATIVE, '"native": {"adapter": "one", "reason": "needs x"')(folder)
    package = read_package(folder)
    entry = {**report()["shaders"][1], "skipped": None}
    skipped = {**entry, "name": "first", "skipped": "needs x", "vectors": [], "verdict": "skip"}
    data = {**report(), "shaders": [skipped, entry], "chosen": {"8": "second"}}
    (finding,) = verify._run_nowhere(package, findings_of(folder, data))
    assert finding.passed is None and finding.text.startswith("first: not run, neither natively")
    assert not [*verify._run_nowhere(package, findings_of(folder, report()))]


def test_a_vector_that_could_not_be_compared_neither_passes_nor_fails(folder: Path) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["vectors"].append({**manifest["vectors"][0], "name": "far"})
    path.write_text(json.dumps(manifest))
    vectors = report()["shaders"][0]["vectors"]
    far = {"name": "far", "verdict": "skip", "max_abs_error": 0.4, "reason": "not compared: it is too loose"}
    for data, right in ((report(vectors=[*vectors, far]), True), (report(vectors=[far]), False)):
        data["shaders"] = [{**one, "vectors": data["shaders"][0]["vectors"]} for one in data["shaders"]]
        seen = findings_of(folder, data)
        assert (seen.lines[0].browser.verdict == "pass") == right == (seen.complaints == ())


NATIVE = '"native": {"adapter": "one", "verdict": "pass"'


@pytest.mark.parametrize(
    ("native", "data", "complaints"),
    [
        (
            NATIVE,
            failed("y[0, 1] is off"),
            ("first: mixed (natively it passes): y[0, 1] is off", "8 columns: no chosen shader passed"),
        ),
        (
            NATIVE.replace("pass", "fail"),
            report(),
            ("first: it failed natively at the export",),
        ),
        # Without a native run of the shader, only the browser's verdict counts.
        ('"native": {"reason": "no adapter", "_": 0', report(), ()),
        (
            NATIVE,
            report(vectors=[]),
            ("first: mixed was not run", "8 columns: no chosen shader passed"),
        ),
        (NATIVE, report(skipped="needs subgroups"), ("8 columns: no chosen shader passed",)),
        (
            NATIVE,
            report() | {"shaders": report()["shaders"][:1]},
            ("second: verify.html did not report on it",),
        ),
        (NATIVE, report() | {"chosen": {"8": None}}, ("8 columns: no chosen shader passed",)),
        (NATIVE, report(skipped="needs subgroups") | {"chosen": {"8": "second"}}, ()),
    ],
)
def test_complaints_about_a_report(
    native: str, data: dict[str, Any], complaints: tuple[str, ...], folder: Path
) -> None:
    change("manifest.json", NATIVE, native)(folder)
    assert findings_of(folder, data).complaints == complaints


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"error": "No WebGPU here: use Chrome.", "engine": "x"},
            "verify.html could not check: No WebGPU here: use Chrome.",
        ),
        (
            {"error": None},
            "the report of verify.html: adapter is missing; export again",
        ),
        (7, "the report of verify.html: the data is 7; expected object; export again"),
    ],
)
def test_a_report_that_says_nothing(data: Any, message: str, folder: Path) -> None:
    with pytest.raises(WebnormError) as raised:
        findings_of(folder, data)
    assert str(raised.value) == message


def test_a_loose_tolerance_is_shown_with_its_error(folder: Path) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["shaders"][0]["loose"] = "the tolerance is loose"
    path.write_text(json.dumps(manifest))
    seen = findings_of(folder, report(max_abs_error=2.9e-2, allowed=0.41))
    console = Console(width=120, file=io.StringIO())
    console.print(VerifyTable(seen))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    first = next(line for line in shown.splitlines() if line.startswith("first"))
    assert (
        first.split()[-4:-2] == ["2.9e-02", "4.1e-01"] and "warning: first: the tolerance is loose" in shown
    )


def begun(folder: Path) -> list[verify.StepFinding]:
    """Return the first two steps, which open no browser."""
    return list(islice(verify.verify(folder, update=lambda *_: None), 2))


def test_missing_shaders_are_reported(tmp_path: Path) -> None:
    """A missing shader that the export did not declare is an error."""
    wide = {"maxComputeInvocationsPerWorkgroup": 512}
    limits = "devices with the default limits (256 invocations and 16384 bytes in a workgroup)"
    folder = write(tmp_path / "package")
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    for shader in manifest["shaders"]:
        shader["limits"] = wide
    path.write_text(json.dumps(manifest))
    _, found = begun(folder)
    assert (found.step, found.passed) == ("devices", False)
    undeclared = "the manifest gives no reason; export again"
    assert found.text == f"{limits} have no shader for 8 columns: {undeclared}"
    why = "needs 512 invocations per workgroup; the limit is 256"
    classes = ("software", "subgroups", "portable")
    manifest["absent"] = [{"cols": 8, "devices": devices, "why": why} for devices in classes]
    path.write_text(json.dumps(manifest))
    first, second = begun(folder)
    assert first.remarks == (f"{limits} have no shader for 8 columns: {why}",)
    assert second.step == "Tint"


@pytest.mark.slow
def test_a_visit_of_a_page(folder: Path, browser: PageVisitor) -> None:
    script = f"console.error('oh\\nno'); console.warn('well'); {reporting(report())}"
    (folder / "page.js").write_text(
        f"{script} window.webnormReport.features = [location.search, String(matchMedia('all').matches),"
        "String(isSecureContext), getComputedStyle(document.body).color];"
    )
    visit = browser.visit(folder, verify.page_query(("subgroups", "f16"), True), screenshot=True)
    assert visit.report["features"] == ["?without=subgroups,f16&quick", "true", "true", "rgb(0, 128, 0)"]
    assert visit.remarks == ("oh",)
    assert visit.screenshot is not None and visit.screenshot.startswith(b"\x89PNG")
    assert struct.unpack(">II", visit.screenshot[16:24])[0] == 1280


@pytest.mark.slow
def test_one_browser_serves_many_pages_that_know_nothing_of_each_other(
    folder: Path, browser: PageVisitor
) -> None:
    (folder / "page.js").write_text(
        "const before = localStorage.length; localStorage.setItem('a', 'b'); window.webnormReport = before;"
    )
    assert [browser.visit(folder).report for _ in range(2)] == [0, 0]


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("throw new TypeError('no\\nway');", r"verify.html failed: TypeError: no \(page.js:1:7\)"),
        ("let = = 3;", "verify.html failed: SyntaxError: .*"),
        ("Promise.reject(new Error('late'));", r"verify.html failed: Error: late \(page.js:1:16\)"),
        ("import './gone.js';", "verify.html requests /gone.js, which is missing; export again"),
        ("await fetch('./shaders/');", "verify.html requests /shaders/, which is missing; export again"),
        ("", "verify.html did not report within 2 s: stopped"),
        (
            "window.webnormReport = 1; setTimeout(() => { for (;;); });",
            "verify.html did not report within 2 s: stopped",
        ),
        ("for (let i = 0; ; i++) location.hash = i;", "verify.html did not report within 2 s: stopped"),
        ("location.reload();", "verify.html did not report within 2 s: stopped"),
        # The server's policy is as strict as the strictest site.
        ("eval('1');", "verify.html failed: EvalError: .*"),
        (
            "await fetch('https://example.com/').catch(() => { throw new Error('refused'); });",
            r"verify.html failed: Error: refused.*",
        ),
    ],
)
def test_a_page_that_does_not_report(
    script: str, message: str, tmp_path: Path, browser: PageVisitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser.visit(write(tmp_path / "right", "window.webnormReport = 1;"))
    process = process_of(browser)
    waits = re.search(r"within (\d) s", message)
    limit = float(waits[1]) if waits else HANG_S
    monkeypatch.setattr(browser, "time_limit_s", limit)
    with pytest.raises(WebnormError, match=f"^{message}$"):
        browser.visit(write(tmp_path / "wrong", script), screenshot=True)
    all_end([process])
    # Starting a browser again may take longer than the limit of this page.
    monkeypatch.setattr(browser, "time_limit_s", HANG_S)
    assert browser.visit(tmp_path / "right").report == 1


@pytest.mark.slow
def test_console_errors_are_reported_with_a_timeout(
    tmp_path: Path, browser: PageVisitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser.visit(write(tmp_path / "right", "window.webnormReport = 1;"))
    process = process_of(browser)
    time_is_over_once_heard(browser, monkeypatch)
    with pytest.raises(WebnormError, match=r"^verify.html did not report within \d+ s: stopped; wait$"):
        browser.visit(write(tmp_path / "wrong", "console.error('wait'); for (;;);"))
    all_end([process])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("throw new Error('gone');", r"failed: Error: gone.*"),
        ("console.error('wait');", r"did not report within \d+ s: stopped; wait"),
    ],
)
def test_a_page_fails_in_time_when_playwright_does_not_answer(
    script: str, message: str, tmp_path: Path, browser: PageVisitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Playwright may wait for the report of a page that hangs beyond its own limit."""
    from playwright.async_api import Page

    async def silent(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    time_is_over_once_heard(browser, monkeypatch)
    monkeypatch.setattr(Page, "wait_for_function", silent)
    with pytest.raises(WebnormError, match=f"^verify.html {message}$"):
        browser.visit(write(tmp_path / "wrong", script))


@pytest.mark.slow
def test_a_browser_that_ends_by_itself(
    tmp_path: Path, browser: PageVisitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser.visit(write(tmp_path / "right", "window.webnormReport = 1;"))
    process = process_of(browser)
    monkeypatch.setattr(browsing._Listener, "_console", lambda *_: os.kill(process, signal.SIGKILL))
    with pytest.raises(WebnormError, match=rf"^{browser.opener} ended while it ran verify.html$"):
        browser.visit(write(tmp_path / "runs", "console.error('it runs');"))
    assert browser.visit(tmp_path / "right").report == 1


@pytest.mark.slow
def test_a_browser_may_end_at_any_moment(tmp_path: Path, browser: PageVisitor) -> None:
    """A browser may also end while a page opens, when Playwright itself waits forever."""
    right, silent = write(tmp_path / "right", "window.webnormReport = 1;"), write(tmp_path / "silent")
    for seconds in (0.0, 0.04, 0.07, 0.1, 0.15):
        browser.visit(right)
        end = threading.Timer(seconds, os.kill, (process_of(browser), signal.SIGKILL))
        end.start()
        with pytest.raises(WebnormError, match=rf"^{browser.opener} ended while it ran verify.html$"):
            browser.visit(silent)
        end.join()


@pytest.mark.slow
def test_a_browser_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.platform == "win32":
        pytest.skip("processes cannot be stopped there")
    monkeypatch.setattr(browsing, "_GRACE_S", 1.0)
    with PageVisitor() as own:
        own.visit(write(tmp_path / "right", "window.webnormReport = 1;"))
        process = process_of(own)
        # The browser first hangs before the visit, and then at its end.
        os.killpg(process, signal.SIGSTOP)
        own.time_limit_s = 1.0
        with pytest.raises(WebnormError, match=r"^verify.html did not report within 1 s: stopped$"):
            own.visit(tmp_path / "right")
        all_end([process])
        own.time_limit_s = HANG_S
        own.visit(tmp_path / "right")
        process = process_of(own)
        os.killpg(process, signal.SIGSTOP)
    all_end([process])


def time_is_over_once_heard(browser: PageVisitor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the clock, so that the limit expires once the page writes to its console."""
    now = 0.0
    monkeypatch.setattr(browsing, "monotonic", lambda: now)
    listen = browsing._Listener._console

    def heard(self: Any, message: Any) -> None:
        nonlocal now
        listen(self, message)
        now = 2.0 * browser.time_limit_s

    monkeypatch.setattr(browsing._Listener, "_console", heard)


def process_of(browser: PageVisitor) -> int:
    """Return the process id of an installed browser."""
    assert browser._opened is not None and isinstance(browser._opened.end, partial)
    process: int = browser._opened.end.args[0]
    return process


# --- The command


def test_the_command_reports_its_results(folder: Path, tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    arguments = ["verify", str(folder), "--screenshot", str(picture), "--time-limit", str(HANG_S)]
    done = webnorm_process(arguments, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("pass  files: 2 shaders and 1 vectors")
    assert lines[1].startswith("pass  Tint: 2 shaders")
    assert lines[2].startswith("pass  browser: 2 of 2 shaders run here, 2 of them right")
    rows = [" ".join(line.split()) for line in lines]
    assert "first yes pass 1.0e-07 pass 2.0e-07 - 12.5 62" in rows
    assert "second pass 1.0e-07 pass 2.0e-07 - - -" in rows
    assert "8 columns: first fits" in lines
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["package", "page.png"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_table_keeps_names_and_verdicts_on_one_line(
    width: int, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = webnorm(["verify", str(folder)], tmp_path).stdout.splitlines()
    table = lines[next(at for at, line in enumerate(lines) if line.startswith("shader")) :][:3]
    assert max(map(len, table)) <= width
    assert [line.split()[0] for line in table] == ["shader", "first", "second"]
    assert "browser" in table[0].split() and all("pass" in row.split() for row in table[1:])
    assert ("GB/s" in table[0]) == (width > 40)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("script", "status", "said"),
    [
        (reporting(failed("y[3, 7] is 2, expected 1")), 1, "first: mixed (natively it passes): y[3, 7] is 2"),
        (reporting({"error": "No GPU."}), 3, "skip  browser: verify.html could not check: No GPU."),
        (reporting({"error": "No GPU."}), 3, "webnorm: skipped: browser\n"),
        ("throw new Error('x');", 2, "webnorm: verify.html failed: Error: x (page.js:1:7)"),
        # The time limit applies to a page that hangs.
        pytest.param(
            "for (;;);", 2, "webnorm: verify.html did not report within 60 s: stopped", marks=pytest.mark.slow
        ),
    ],
)
def test_exit_statuses(
    script: str, status: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "within" in said:
        # Each reading of the clock is ten seconds later.
        monkeypatch.setattr(browsing, "monotonic", map(float, count(0, 10)).__next__)
    folder = write(tmp_path / "package", script)
    limit = "60" if "within" in said else str(HANG_S)
    done = webnorm(["verify", str(folder), "--time-limit", limit], tmp_path)
    assert done.returncode == status, done.stdout + done.stderr
    assert said in (done.stderr if said.startswith("webnorm: ") else done.stdout)
    assert done.stderr.count("\n") == (status > 1)


def a_part(folder: Path) -> Path:
    return folder / "shaders"


def above(folder: Path) -> Path:
    return folder.parent


def an_empty_one(folder: Path) -> Path:
    (folder.parent / "empty").mkdir()
    return folder.parent / "empty"


def kernels(folder: Path) -> Path:
    (folder.parent / "own" / "rms_norm").mkdir(parents=True)
    (folder.parent / "own" / "rms_norm" / "mine.wgsl").touch()
    return folder.parent / "own"


def something(*names: str) -> Callable[[Path], Path]:
    def made(folder: Path) -> Path:
        own = folder.parent / "something"
        own.mkdir()
        for name in names:
            (own / name).touch()
        return own

    return made


@pytest.mark.parametrize(
    ("made", "looks"),
    [
        (a_part, "a part of the export {folder}"),
        (above, "a folder that contains exports: package"),
        (an_empty_one, "an empty folder"),
        (kernels, "a folder of kernels; check it with `webnorm check --wgsl {own}`"),
        (something("package.json", "a.js"), "an npm package that webnorm did not write"),
        (something("d", "c", "b", "a"), "not an export: it contains a, b, c and 1 more"),
        (lambda folder: folder / "index.js", "a file, not a folder"),
        (lambda folder: folder.parent / "none", "no such folder"),
    ],
)
def test_a_folder_that_is_not_an_export_is_described(
    made: Callable[[Path], Path], looks: str, folder: Path, mistake: Callable[[list[str]], str]
) -> None:
    own = made(folder)
    expected = "expected a folder that `webnorm export` wrote (manifest.json, or bundles/index.json of a lab)"
    description = looks.format(folder=folder, own=own)
    assert mistake(["verify", str(own)]) == f"webnorm: {own}: {description}; {expected}\n"


def test_without_subgroups_reaches_the_page(tmp_path: Path) -> None:
    script = f"{reporting(report())} window.webnormReport.features = [`got:${{location.search}}`];"
    folder = write(tmp_path / "package", script)
    done = webnorm(["verify", str(folder), "--without-subgroups"], tmp_path)
    assert "got:?without=subgroups" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--browser", "/nonexistent"], "/nonexistent: no such browser; expected the path of Chromium"),
        (["--browser", "Makefile"], "Makefile: no such browser; expected the path of Chromium"),
        (["--browser", "/bin/true"], "/bin/true does not start as a browser: it ended at once"),
        (["--browser", "./says"], "says does not start as a browser: I am no browser"),
        (["--browser", "./sleeps", "--time-limit", "2"], "sleeps did not start within 2 s: stopped"),
        (["--screenshot", "none/a.png"], "cannot write none/a.png: the folder none does not exist"),
        (["--screenshot", "a.gif"], "--screenshot is a.gif; expected a .png file"),
    ],
)
def test_mistakes(arguments: list[str], message: str, folder: Path, tmp_path: Path) -> None:
    for name, body in (("says", "echo I am no browser >&2; exit 3"), ("sleeps", "trap '' TERM; sleep 300")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    done = webnorm(["verify", str(folder), *arguments], tmp_path)
    assert done.returncode == 2, done.stdout
    assert done.stderr.startswith("webnorm: ") and message in done.stderr
    assert done.stderr.count("\n") == 1
    if "--screenshot" in arguments:
        assert done.stdout == "", "refused before work began"


@pytest.mark.skipif(shutil.which("ps") is None, reason="ps is not installed: it lists the processes")
def test_ctrl_c_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    folder = write(tmp_path / "package", "")
    command = [sys.executable, "-m", "webnorm", "verify", str(folder), "--time-limit", str(HANG_S)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    while "Tint" not in process.stdout.readline():
        assert process.poll() is None

    def renders() -> bool:
        assert process.poll() is None
        return any("--type=renderer" in line for line in children(process.pid).values())

    until(renders)
    browsers = children(process.pid)
    # The test sends the signal to the whole group, as a terminal does.
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=HANG_S)
    assert process.returncode == 130, stderr
    assert stderr == "webnorm: interrupted; finished results are shown\n"
    assert browsers
    all_end(browsers)


@pytest.mark.skipif(shutil.which("ps") is None, reason="ps is not installed: it lists the processes")
def test_a_signal_ends_a_browser_that_does_not_start(tmp_path: Path) -> None:
    """The test sends the signal only to the command, as a batch system does."""
    folder, browser, begun = write(tmp_path / "package", ""), tmp_path / "browser", tmp_path / "begun"
    browser.write_text(f'#!/bin/sh\n: >"{begun}"\nexec sleep {HANG_S}\n')
    browser.chmod(0o755)
    command = [sys.executable, "-m", "webnorm", "verify", str(folder), "--browser", str(browser)]
    process = subprocess.Popen(
        [*command, "--time-limit", str(HANG_S)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    until(begun.exists)
    started = children(process.pid)
    process.terminate()
    _, stderr = process.communicate(timeout=HANG_S)
    assert (process.returncode, stderr) == (
        -signal.SIGTERM,
        "webnorm: ended by SIGTERM; finished results are shown\n",
    )
    assert started
    all_end(started)


def children(process: int) -> dict[int, str]:
    """Return the descendants of a process, with their command lines."""
    command = ["ps", "-e", "-ww", "-o", "pid=,ppid=,args="]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line.split(maxsplit=2) for line in listed.stdout.splitlines()]
    found = {process: ""}
    for _ in lines:
        found |= {int(pid): more[0] if more else "" for pid, of, *more in lines if int(of) in found}
    del found[process]
    return found


def test_doctor_checks_the_requirements_of_verify(
    tmp_path: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = webnorm(["doctor", "--browser"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert (
        f"browser: {launch.find_browser()}" in done.stdout
        and f"Tint: webgpu {node_webgpu.WEBGPU} in" in done.stdout
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    done = webnorm(["doctor", "--browser"], tmp_path)
    assert done.returncode == 1
    assert f"No Tint: the npm package webgpu {node_webgpu.WEBGPU} is not installed." in done.stdout
    assert f"npm install --prefix {node_webgpu.tint_folder()} " in done.stdout
    assert "`webnorm doctor --fix --browser` runs these commands." in done.stdout
    assert "Tint: none" in done.stdout.splitlines() and f"in {node_webgpu.tint_folder()}" not in done.stdout
    monkeypatch.setattr(launch, "find_browser", lambda named=None: None)
    assert "browser: none" in webnorm(["doctor", "--browser"], tmp_path).stdout.splitlines()
    assert webnorm(["doctor"], tmp_path).returncode == 0
    assert not node_webgpu.tint_folder().exists()


def test_a_skipped_check_does_not_look_passed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    done = webnorm(["verify", str(folder), "--quick"], tmp_path)
    assert done.returncode == 3
    assert done.stderr == SKIPPED.format("Tint")
    files, without_tint, browser, *_ = done.stdout.splitlines()
    assert files.startswith("pass  files: 2 shaders")
    assert without_tint.startswith("skip  Tint: the npm package webgpu")
    assert browser.startswith("pass  browser: 2 of 2 shaders run here")


def test_without_a_browser_the_files_and_the_shaders_are_checked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = [system.Fix("No Playwright: x.", (("y",),)), system.Fix("No browser: z.")]
    monkeypatch.setattr(launch, "browser_fixes", lambda named: missing)
    monkeypatch.setattr(sys, "argv", ["webnorm", "verify", str(folder)])
    with heeding_interrupts(), pytest.raises(SystemExit) as exited:
        cli.run()
    assert exited.value.code == INCONCLUSIVE
    said = capsys.readouterr()
    files, compiled, *others = said.out.splitlines()
    assert files.startswith("pass  files: ") and compiled.startswith("pass  Tint: ")
    assert others == ["skip  browser: No Playwright: x.", "skip  browser: z."]
    assert said.err == SKIPPED.format("browser")


def test_a_shader_wrong_at_the_export_fails_without_a_browser(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change("manifest.json", NATIVE, NATIVE.replace("pass", "fail"))(folder)
    monkeypatch.setattr(launch, "browser_fixes", lambda named: [system.Fix("No browser: z.", (("y",),))])
    done = webnorm(["verify", str(folder)], tmp_path)
    assert done.returncode == 1 and done.stderr == SKIPPED.format("browser")
    wrong = "FAIL  natively: 1 of 2 shaders were wrong on the machine that exported this"
    assert wrong in done.stdout.splitlines()


def test_without_node_the_files_are_checked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert read_package(folder).texts == {}
    (folder / "index.js").write_text("export const texts = {};")
    with pytest.raises(WebnormError, match=r"index\.js: sha256 is"):
        read_package(folder)


def test_the_browser_of_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBNORM_BROWSER", "/nonexistent")
    with pytest.raises(WebnormError, match=r"^/nonexistent: no such browser"):
        PageVisitor()
    monkeypatch.delenv("WEBNORM_BROWSER")
    monkeypatch.setenv("PATH", "")
    if launch.find_browser() is None:
        with pytest.raises(WebnormError, match="Debian's package is chromium; `webnorm doctor --fix --br"):
            PageVisitor()


@pytest.mark.parametrize("name", ["firefox", "firefox-esr", "Firefox.exe", "Safari"])
def test_a_browser_that_playwright_cannot_drive(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Playwright would wait three minutes for its answer."""
    browser = tmp_path / name
    browser.write_text("#!/bin/sh\nexit 1\n")
    browser.chmod(0o755)
    engine = "safari" if name == "Safari" else "firefox"
    message = f"^{re.escape(str(browser))}: expected Chromium, Chrome or Edge; .* --engine {engine}$"
    with pytest.raises(WebnormError, match=message):
        PageVisitor(browser)
    monkeypatch.setenv("WEBNORM_BROWSER", str(browser))
    with pytest.raises(WebnormError, match=message):
        launch.browser_fixes()


def test_without_chromium_an_installed_firefox_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "find_browser", lambda named=None: None)
    monkeypatch.setattr(launch, "engine_fix", lambda name: None)
    (fix,) = launch.browser_fixes()
    assert fix.missing.endswith(" `webnorm verify --engine firefox` works.")
    monkeypatch.setattr(launch, "engine_fix", lambda name: system.Fix(f"No {name}."))
    (fix,) = launch.browser_fixes()
    assert "--engine" not in fix.missing


@pytest.mark.parametrize(
    ("code", "said", "fixable"),
    (
        (
            "raise ModuleNotFoundError(name='playwright')",
            r"is not installed: .* -m pip install playwright",
            True,
        ),
        ("raise RuntimeError('broken')", r"cannot be imported \(RuntimeError: broken\)", False),
    ),
)
def test_a_playwright_that_is_missing_or_broken(
    code: str, said: str, fixable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "playwright.py").write_text(code)
    for name in [one for one in sys.modules if one.partition(".")[0] == "playwright"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(system, "is_installed", lambda _: not fixable)
    with pytest.raises(WebnormError, match=said):
        PageVisitor()
    fix = launch.browser_fixes()[0]
    assert fix.commands == fixable * ((sys.executable, "-m", "pip", "install", "playwright"),)
    # The error offers a command only if a package is missing.
    findings = verify.verify(write(tmp_path / "package"), update=lambda *_: None)
    (lacking,) = (one for one in findings if one.step == "browser")
    assert lacking.passed is None and lacking.fixable == fixable


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_a_node_that_runs_nothing_is_no_fault_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = write(tmp_path / "package")
    monkeypatch.setenv("NODE_OPTIONS", "--require=/nonexistent")
    with pytest.raises(
        WebnormError, match=r"^node cannot run an empty script: .*/nonexistent.* NODE_OPTIONS$"
    ):
        read_package(package)


@pytest.mark.parametrize("program", ("", "exit 1", "exec >&-; sleep 0.3"))
def test_a_playwright_whose_program_fails(
    program: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program is missing, or ends at once, or closes its output and ends later; no process is left."""
    path = tmp_path / "node"
    if program:
        path.write_text(f"#!/bin/sh\n{program}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PLAYWRIGHT_NODEJS_PATH", str(path))
    monkeypatch.setattr(browsing, "_GRACE_S", HANG_S)
    with PageVisitor() as own, pytest.raises(WebnormError, match=r"^Playwright does not start: ") as raised:
        own.visit(folder)
    assert "\n" not in str(raised.value)
    # asyncio's leftovers of a process would warn when they are collected.
    del own
    gc.collect()


def test_a_browser_without_a_sandbox_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not system.is_root():
        pytest.skip("Chromium refuses its sandbox to root only")
    monkeypatch.setattr(system, "is_root", lambda: False)
    with PageVisitor() as own, pytest.raises(WebnormError, match=r"does not start as a browser: .*sandbox"):
        own.visit(folder)
