"""`webnorm export --model`: one package for all norms of a model, verified in node and in Chromium."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import pytest

import axe
import dawn
from commands import webnorm
from headless import needs_browser, plainly_served, started
from patience import HANG_MS, HANG_S
from webnorm.cli.work.jobs import BAD_USAGE, INCONCLUSIVE, OK, WRONG
from webnorm.engines import node_webgpu
from webnorm.errors import WebnormError
from webnorm.models.scan import scan_model
from webnorm.web import verify
from webnorm.web.browser import launch
from webnorm.web.package import npm
from webnorm.web.package.model import NormRequest, model_norms
from webnorm.web.package.request import no_update

FILES = Path(__file__).parent / "files"
QWEN, HALF = FILES / "qwen3_dynamo.onnx", FILES / "llama_half_dynamo.onnx"
NAMES = ["rms_norm_32", "qk_norm_8x4x2x8_rms_norm", "softmax_8x8_mask", "rms_norm_32_residual"]
needs_dawn = pytest.mark.skipif(dawn.missing() is not None, reason=dawn.missing() or "")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "qwen"
    done = webnorm(["export", "--model", str(QWEN), "--out", str(folder)], folder.parent)
    assert done.returncode == OK, done.stderr
    assert "4 norms" in done.stdout and "rms_norm_32_residual: 4 times in the model" in done.stdout
    return folder


def test_the_listing_has_the_models_nodes(package: Path) -> None:
    listing = json.loads((package / "norms.json").read_text())
    assert [one["name"] for one in listing["norms"]] == NAMES
    uses = scan_model(QWEN).uses
    assert [one["nodes"] for one in listing["norms"]] == [list(use.nodes) for use in uses]
    assert [one["count"] for one in listing["norms"]] == [len(use.nodes) for use in uses]
    assert listing["norms"][0]["sizes"] == {"cols": 32} and listing["skipped"] == []
    written = {str(path.relative_to(package)) for path in package.rglob("*") if path.is_file()}
    assert written == {*listing["files"], "norms.json"}


def test_the_package_is_one_npm_package(package: Path) -> None:
    assert [*package.rglob("package.json")] == [package / "package.json"]
    assert json.loads((package / "package.json").read_text())["name"] == "qwen3-dynamo-norms"
    # An app loads the runtime once.
    runtimes = [path.read_text() for path in package.glob("norms/*/runtime.js")]
    assert {*runtimes} == {'export * from "../../runtime.js";\n'}
    # The pages of all norms share their modules.
    assert (package / "page" / "verify.js").is_file() and not [*package.glob("norms/*/page")]
    listed = json.loads((package / "package.json").read_text())["files"]
    assert {path.name for path in package.iterdir()} - {*listed} == {"package.json", "README.md"}
    types, readme = ((package / name).read_text() for name in ("index.d.ts", "README.md"))
    assert all(f"readonly {name}: " in types and f"`{name}`" in readme for name in NAMES)
    texts = [path.read_text() for path in package.rglob("*") if path.suffix in (".js", ".json", ".md", ".ts")]
    assert not any(str(QWEN.parent) in text for text in texts)


@needs_dawn
def test_all_norms_are_created_on_one_device(package: Path) -> None:
    driver = Path(__file__).with_name("norms.mjs")
    done = subprocess.run(
        ["node", str(driver), str(node_webgpu.webgpu()), str(package)],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
        env={**os.environ, **dawn.ENVIRONMENT},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["names"] == found["created"] == NAMES and found["sameDevice"]
    x = np.arange(96.0).reshape(3, 32) - 40
    expected = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-6) * (1 + np.arange(32) / 32)
    np.testing.assert_allclose(np.reshape(found["y"], (3, 32)), expected, rtol=1e-5)
    np.testing.assert_allclose(np.reshape(found["h"], (3, 32)), x + 0.5)
    name = "qwen3-dynamo-norms"
    assert found["unknown"].startswith(f"{name}: ") and "devise" in found["unknown"]
    assert "device" in found["wrong"] and "\n" not in found["wrong"]


@needs_dawn
def test_verify_checks_every_norm_in_node(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in dawn.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    done = webnorm(["verify", str(package), "--engine", "node", "--quick"], package)
    assert done.returncode == OK, done.stdout + done.stderr
    assert "pass  files: 4 norms with 12 shaders are as exported" in done.stdout
    assert re.findall(r"pass  node: (\w+): 3 of 3 shaders run here, 3 of them right", done.stdout) == NAMES
    assert "pass  node: createNorms: 4 of 4 norms are right on one device" in done.stdout


def swapped(code: str) -> str:
    """Return index.js with the code of two norms exchanged."""
    one, other = f'from "./norms/{NAMES[0]}/', f'from "./norms/{NAMES[3]}/'
    return code.replace(one, "from HERE").replace(other, one).replace("from HERE", other)


@needs_dawn
@pytest.mark.parametrize(
    ("change", "complaints"),
    [
        pytest.param(
            swapped,
            [f"{NAMES[0]}: ", f"{NAMES[3]}: ", "2 of 4 norms are right on one device"],
            id="norms exchanged",
        ),
        pytest.param(
            lambda code: code.replace(f"  {NAMES[1]}: create2,\n", ""),
            [f"{NAMES[1]}: createNorms does not create it", "3 of 4 norms are right on one device"],
            id="a norm left out",
        ),
        pytest.param(
            lambda code: code.replace("const make =", 'throw new Error("no norms today");\n  const make ='),
            ["createNorms fails", "no norms today"],
            id="an error",
        ),
    ],
)
def test_verify_finds_a_wrong_create_norms(
    change: Callable[[str], str],
    complaints: list[str],
    package: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The norms are right, but an app would not get them, since `createNorms` is wrong."""
    for name, value in dawn.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "copy"
    shutil.copytree(package, folder)
    code = (folder / "index.js").read_text()
    assert change(code) != code
    (folder / "index.js").write_text(change(code))
    listing = json.loads((folder / "norms.json").read_text())
    listing["files"]["index.js"] = hashlib.sha256(change(code).encode()).hexdigest()
    (folder / "norms.json").write_text(json.dumps(listing))
    done = webnorm(["verify", str(folder), "--engine", "node", "--quick"], tmp_path)
    assert done.returncode == WRONG, done.stdout + done.stderr
    assert re.findall(r"pass  node: (\w+): 3 of 3 shaders run here, 3 of them right", done.stdout) == NAMES
    failed = done.stdout.partition("FAIL  node: ")[2]
    assert all(text in failed for text in complaints), failed


@pytest.mark.slow
@needs_browser
def test_the_page_of_a_model(package: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(package, folder)
    with started() as chromium, plainly_served(folder) as url:
        page = chromium.new_page()
        page.goto(f"{url}/verify.html")
        page.wait_for_function("window.webnormReport", timeout=HANG_MS)
        assert page.inner_text("#verdict") == "4 of 4 norms are right here"
        assert page.locator("#norms a").all_inner_texts() == NAMES
        page.evaluate(axe.rules())
        assert axe.violations(page) == []
        (folder / "index.js").write_text(swapped((folder / "index.js").read_text()))
        page = chromium.new_page()
        page.goto(f"{url}/verify.html")
        page.wait_for_function("window.webnormReport", timeout=HANG_MS)
        assert page.inner_text("#verdict") == "2 of 4 norms failed"
        page.locator("#norms a").first.click()
        page.wait_for_function("window.webnormReport", timeout=HANG_MS)
        assert page.inner_text("#verdict") == "All 3 shaders are right here"


@pytest.mark.slow
@pytest.mark.skipif(bool(launch.browser_fixes()), reason="a browser is missing")
def test_verify_checks_every_norm_in_chromium(package: Path, tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    done = webnorm(["verify", str(package), "--quick", "--screenshot", str(picture)], tmp_path)
    assert done.returncode == OK, done.stdout + done.stderr
    assert re.findall(r"pass  browser: (\w+): ", done.stdout) == [*NAMES, "createNorms"]
    assert picture.read_bytes().startswith(b"\x89PNG")
    # One norm can be verified alone, with the model's runtime.
    done = webnorm(["verify", str(package / "norms" / NAMES[0]), "--quick"], tmp_path)
    assert done.returncode == OK, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("index.js", "sha256"),
        (f"norms/{NAMES[1]}/index.js", "sha256"),
        (f"norms/{NAMES[2]}/manifest.json", "sha256"),
    ],
)
def test_verify_finds_a_changed_file(name: str, message: str, package: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(package, folder)
    (folder / name).write_text((folder / name).read_text() + "\n")
    done = webnorm(["verify", str(folder)], tmp_path)
    assert done.returncode == BAD_USAGE and done.stderr.count("\n") == 1, done.stderr
    assert name in done.stderr and message in done.stderr


def test_verify_refuses_a_damaged_listing(package: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(package, folder)
    listing = json.loads((folder / "norms.json").read_text())
    for norms in ([], [{"name": "../../x"}], [{"name": 3}], 3):
        (folder / "norms.json").write_text(json.dumps({**listing, "norms": norms}))
        done = webnorm(["verify", str(folder)], tmp_path)
        assert done.returncode == BAD_USAGE and done.stderr.count("\n") == 1, done.stderr
        assert "norms.json" in done.stderr


def test_a_model_with_lacking_norms(tmp_path: Path, lacking: None) -> None:
    done = webnorm(["export", "--model", str(HALF), "--out", "half", "--name", "my-norms"], tmp_path)
    assert done.returncode == INCONCLUSIVE, done.stderr
    assert "skipped: rms_norm of rows=8 cols=32 round_sideways, float16" in done.stderr
    listing = json.loads((tmp_path / "half" / "norms.json").read_text())
    assert listing["name"] == "my-norms" and [one["name"] for one in listing["norms"]] == ["softmax_8x8_mask"]
    assert len(listing["skipped"]) == 2
    assert listing["skipped"][0] in (tmp_path / "half" / "README.md").read_text()


def test_nothing_is_written_for_a_wrong_shader(tmp_path: Path, lacking: None) -> None:
    with patch.object(npm, "_faults", lambda manifest: [f"{manifest['op']} is wrong"]):
        done = webnorm(["export", "--model", str(HALF), "--out", "half"], tmp_path)
    assert done.returncode == WRONG and not [*tmp_path.iterdir()]
    assert done.stderr.endswith("softmax is wrong. Nothing was written; --force writes it anyway\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "none.onnx"], "none.onnx: cannot be read: No such file or directory"),
        (["--model", str(QWEN), "--name", "No Name"], "--name is 'No Name'; expected a name that npm allows"),
        (["--model", str(FILES / "no_norms_script.onnx")], "it has no norm that this version can run"),
        (["--model", str(HALF), "--cols", "8"], "--model and --cols cannot be combined"),
    ],
)
def test_wrong_requests_are_one_line(words: list[str], message: str, tmp_path: Path) -> None:
    done = webnorm(["export", *words, "--out", "out"], tmp_path)
    assert done.returncode == BAD_USAGE and message in done.stderr and done.stderr.count("\n") == 1
    assert not [*tmp_path.iterdir()]


def test_another_kind_of_folder_is_not_overwritten(package: Path, tmp_path: Path) -> None:
    part = tmp_path / "part"
    shutil.copytree(package / "norms" / NAMES[0], part)
    done = webnorm(["export", "--model", str(HALF), "--out", str(part)], tmp_path)
    assert done.returncode == BAD_USAGE and "exists and is not an exported model" in done.stderr


def test_names_are_unique_identifiers() -> None:
    sizes = {"rows": 8, "cols": 64}
    uses = [
        NormRequest("rms_norm", sizes, "float32", (), {"eps": 1e-6}, 2, ("a", "b")),
        NormRequest("rms_norm", {**sizes, "rows": 99}, "float32", (), {"eps": 1e-6}, 1, ("c",)),
        NormRequest("rms_norm", sizes, "float16", (), {"eps": 1e-6}),
        NormRequest("rms_norm", sizes, "float16", (), {"eps": 1e-5}),
        NormRequest("layer_norm", sizes, "float32", ("bias=false", "out_dtype=int8")),
        NormRequest("group_norm", {"batch": 1, "channels": 8, "spatial": 4, "groups": 2}, "float32"),
    ]
    found = model_norms(uses)
    assert [one.name for one in found] == [
        "rms_norm_64_float32",
        "rms_norm_64_float16",
        "rms_norm_64_float16_2",
        "layer_norm_64_no_bias_int8",
        "group_norm_8x4x2",
    ]
    # Norms that differ only in their batch are one.
    assert found[0].use.nodes == ("a", "b", "c") and found[0].use.count == 3


def test_the_local_network_gets_one_norm(package: Path) -> None:
    with pytest.raises(WebnormError, match="has a page for each norm; name one, such as"):
        list(verify.verify(package, update=no_update, lan=cast(Any, object())))
