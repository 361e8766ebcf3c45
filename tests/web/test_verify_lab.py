"""webnorm verifies a lab like a package: its files, its shaders, and its page's report."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from commands import webnorm
from headless import MISSING as NO_BROWSER
from webnorm.errors import WebnormError
from webnorm.web import tint
from webnorm.web.folder import LAB_INDEX
from webnorm.web.lab_site import LAB_PAGE, check_lab_report, read_lab, with_index
from webnorm.web.package.manifest import CouldNotCheck

MISSING = tint.tint_unavailable() or NO_BROWSER
needs_browser = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

SHADER = """@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    y[id.x] = 2.0;
}
"""
LINES = SHADER.split("\n")


def bundle(cols: int, kernels: Sequence[str]) -> dict[str, Any]:
    names = [f"{cols}-{kernel}" for kernel in kernels]
    return {
        "manifest": {
            "shaders": [
                {
                    "name": name,
                    "sha256": sha256(SHADER.encode()).hexdigest(),
                    "kernel": kernel,
                    "cols": cols,
                    "features": [],
                    "limits": {},
                    "bindings": [{"binding": 0, "type": "storage"}],
                    "overrides": {},
                    "passes": [{"entry_point": "main", "bindings": [0]}],
                }
                for name, kernel in zip(names, kernels, strict=True)
            ]
        },
        "texts": {name: [*range(len(LINES))] for name in names},
    }


def result(op: str, kernel: str, status: str = "pass", **more: Any) -> dict[str, Any]:
    return {"op": op, "kernel": kernel, "status": status, **more}


RIGHT = [result("rms_norm", "one"), result("rms_norm", "two"), result("copy", "plain")]


def report(*results: dict[str, Any]) -> dict[str, Any]:
    return {"schema": 1, "device": {"adapter": "an adapter"}, "results": list(results)}


def write(folder: Path, script: str = "") -> Path:
    """Write a lab of two problems, whose page runs a script."""
    bundles = [
        ("rms_norm", 8, bundle(8, ("one", "two"))),
        ("copy", 8, bundle(8, ("plain",))),
        ("rms_norm", 16, bundle(16, ("one",))),
    ]
    entries = [
        {
            "file": f"{op}-{cols}-float32.json",
            "lines": "lines.json",
            "op": op,
            "options": [],
            "cols": cols,
            "dtype": "float32",
        }
        for op, cols, _ in bundles
    ]
    page = '<!doctype html><title>lab</title><script type="module" src="./page.js"></script>'
    texts = {LAB_PAGE: page, "page.js": script, "bundles/lines.json": json.dumps(LINES)} | {
        f"bundles/{entry['file']}": json.dumps(data)
        for entry, (_, _, data) in zip(entries, bundles, strict=True)
    }
    index = json.dumps({"schema": 1, "webnorm": "0", "bundles": entries})
    files = with_index({name: text.encode() for name, text in {**texts, LAB_INDEX: index}.items()})
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


# --- the files -------------------------------------------------------------------------------------


def in_the_index(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        index = json.loads((folder / LAB_INDEX).read_text())
        change(index)
        (folder / LAB_INDEX).write_text(json.dumps(index))

    return changed


def other_text(folder: Path) -> None:
    """Change a text and the list of files, but not the bundle's manifest."""
    name = "bundles/copy-8-float32.json"
    changed = (folder / name).read_text().replace("[0, 1,", "[1, 1,").encode()
    (folder / name).write_bytes(changed)
    in_the_index(lambda index: index["files"].update({name: sha256(changed).hexdigest()}))(folder)


def linked_out(folder: Path) -> None:
    (folder / "bundles").rename(folder.parent / "outside")
    (folder / "bundles").symlink_to(folder.parent / "outside")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "page.js").write_text("1"), "{}/page.js: sha256 is 6b86b273ff34..., but "),
        (lambda folder: (folder / "page.js").unlink(), "{}/page.js: the file is missing; export again"),
        (
            in_the_index(lambda index: index.pop("files")),
            "{}/bundles/index.json: files is missing; export again",
        ),
        (
            in_the_index(lambda index: index["files"].update({"../outside": "0"})),
            "{}/bundles/index.json: '../outside' is outside of the folder; export again",
        ),
        (
            in_the_index(lambda index: index["bundles"][0].update(file="../../secret")),
            "{}/bundles/index.json: files lacks bundles/../../secret; export again",
        ),
        (
            in_the_index(lambda index: index["bundles"].clear()),
            "{}/bundles/index.json: index.html or the bundles are",
        ),
        (other_text, "{}/bundles/copy-8-float32.json: text of 8-plain: sha256 is "),
        (linked_out, "{}/bundles: this link leads out of the folder, or nowhere; export again"),
    ],
)
def test_a_damaged_lab_is_reported_in_one_line(
    damage: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    folder = write(tmp_path / "lab")
    damage(folder)
    with pytest.raises(WebnormError) as raised:
        read_lab(folder)
    assert str(raised.value).startswith(message.format(folder)) and "\n" not in str(raised.value)


def test_a_lab_lists_every_file_that_it_has(lab_folder: Path) -> None:
    lab = read_lab(lab_folder)
    assert {path for path in lab_folder.rglob("*") if path.is_file()} == set(lab.paths)
    assert {kernel for one in lab.problems for kernel in one.kernels.get("copy", ())} == {"copy"}


# --- the report ------------------------------------------------------------------------------------


COPY_OFF = result("copy", "plain", "fail", reason="y[0] is off")


@pytest.mark.parametrize(
    ("results", "right", "complaints"),
    [
        (RIGHT, 3, ()),
        ([*RIGHT, result("rms_norm", "more", "fail")], 3, ()),
        ([COPY_OFF, *RIGHT], 2, ("copy plain: y[0] is off", "copy: no kernel was right")),
        ([*RIGHT[1:], result("rms_norm", "one", "fail", reason="x", expected=True)], 2, ()),
        ([*RIGHT[1:], result("rms_norm", "one", "error")], 2, ("rms_norm one: error",)),
        (RIGHT[1:], 2, ("rms_norm one: index.html did not report on it",)),
        ([*RIGHT[:1], RIGHT[2], result("rms_norm", "two", "skip", reason="lacks x")], 2, ()),
        (
            [result("rms_norm", "one", "skip"), result("rms_norm", "two", "skip"), RIGHT[2]],
            1,
            ("rms_norm: no kernel was right",),
        ),
    ],
)
def test_complaints_about_a_report(
    results: list[dict[str, Any]], right: int, complaints: tuple[str, ...], tmp_path: Path
) -> None:
    problem, _ = read_lab(write(tmp_path / "lab")).problems
    found = check_lab_report(problem, report(*results))
    assert (found.kernels, found.right, found.complaints) == (3, right, complaints)
    skipped = [
        f"rms_norm {one['kernel']}: {one.get('reason', 'skip')}" for one in results if one["status"] == "skip"
    ]
    assert list(found.not_run) == skipped
    with pytest.raises(CouldNotCheck, match=r"^index\.html could not check: No WebGPU\.$"):
        check_lab_report(problem, {"error": "No WebGPU."})
    with pytest.raises(WebnormError, match=r"^the report of index\.html: device is missing; export again$"):
        check_lab_report(problem, {"results": results})


# --- the command -----------------------------------------------------------------------------------

REPORTING = """
const asked = new URLSearchParams(location.search);
const reports = %s;
const begun = asked.get("run") + asked.get("all") + asked.get("op") === "11rms_norm";
window.webnormReport = begun ? reports[asked.get("cols")] : { error: "?" };
if (asked.get("subgroups") === "0") window.webnormReport.device.adapter += " without subgroups";
"""


def verified(tmp_path: Path, *arguments: str, **reports: Any) -> tuple[int, list[str], str]:
    by_cols = {name.removeprefix("of"): one for name, one in reports.items()}
    folder = write(tmp_path / "lab", REPORTING % json.dumps(by_cols))
    done = webnorm(["verify", str(folder), *arguments], tmp_path)
    return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.mark.slow
@needs_browser
def test_every_problem_is_a_step(tmp_path: Path) -> None:
    picture = tmp_path / "lab.png"
    skip = result("rms_norm", "two", "skip", reason="needs subgroups")
    first, second = report(RIGHT[0], skip, RIGHT[2]), report(result("rms_norm", "one"))
    arguments = ("--without-subgroups", "--screenshot", str(picture))
    status, lines, said = verified(tmp_path, *arguments, of8=first, of16=second)
    assert (status, said) == (0, "")
    assert lines[:3] == [
        "pass  files: 4 shaders in 3 bundles are as exported",
        "pass  Tint: 4 shaders compile, and so do their pipelines",
        "pass  browser: 8 columns of float32: 2 of 3 kernels run here, 2 right",
    ]
    assert lines[3].endswith(", an adapter without subgroups")
    assert lines[4:] == [
        "rms_norm two: needs subgroups",
        "pass  browser: 16 columns of float32: 1 of 1 kernels run here, 1 right",
    ]
    assert picture.read_bytes().startswith(b"\x89PNG")


@needs_browser
def test_a_wrong_kernel_and_a_page_that_cannot_check(tmp_path: Path) -> None:
    wrong = report(result("rms_norm", "one", "fail", reason="y[0] is 2"), *RIGHT[1:])
    status, lines, said = verified(tmp_path, of8=wrong, of16={"error": "The browser lost the GPU."})
    assert status == 1 and said == "webnorm: skipped: browser\n"
    assert "FAIL  browser: 8 columns of float32: 3 of 3 kernels run here, 2 right" in lines
    assert "rms_norm one: y[0] is 2" in lines
    last = (
        "skip  browser: from 16 columns of float32 on: index.html could not check: The browser lost the GPU."
    )
    assert lines[-1] == last


@needs_browser
def test_a_shader_that_chrome_refuses_is_named_by_its_bundle(tmp_path: Path) -> None:
    folder = write(tmp_path / "lab")
    name = "bundles/rms_norm-16-float32.json"
    broken = SHADER.replace("2.0", "2.0 2.0")
    data = bundle(16, ("one",))
    data["texts"]["16-one"] = [*range(len(LINES), 2 * len(LINES))]
    data["manifest"]["shaders"][0]["sha256"] = sha256(broken.encode()).hexdigest()
    changed = {name: data, "bundles/lines.json": [*LINES, *broken.split("\n")]}
    contents = {one: json.dumps(content).encode() for one, content in changed.items()}
    for one, content in contents.items():
        (folder / one).write_bytes(content)
    hashes = {one: sha256(content).hexdigest() for one, content in contents.items()}
    in_the_index(lambda index: index["files"].update(hashes))(folder)
    done = webnorm(["verify", str(folder)], tmp_path)
    assert done.returncode == 1 and done.stderr == "webnorm: skipped: browser\n"
    assert f"{folder}/bundles/rms_norm-16-float32.json: 16-one:4:19: error: " in done.stdout


def test_a_lab_is_not_checked_quickly(tmp_path: Path, mistake: Callable[[list[str]], str]) -> None:
    folder = write(tmp_path / "lab")
    message = f"webnorm: --quick: {folder} is a lab, whose page always times kernels; leave --quick out\n"
    assert mistake(["verify", str(folder), "--quick"]) == message


@needs_browser
def test_the_page_of_a_lab_is_checked(lab_folder: Path, tmp_path: Path) -> None:
    """Check a lab with a single problem, of the op with the fewest kernels."""
    lab = tmp_path / "lab"
    shutil.copytree(lab_folder, lab)
    index = json.loads((lab / LAB_INDEX).read_text())
    kept = [
        one
        for one in index["bundles"]
        if one["file"] in ("rms_norm_backward-256-float16.json", "copy-256-float16.json")
    ]
    del index["files"]
    files = {path.relative_to(lab).as_posix(): path.read_bytes() for path in lab.rglob("*") if path.is_file()}
    (lab / LAB_INDEX).write_bytes(
        with_index({**files, LAB_INDEX: json.dumps({**index, "bundles": kept}).encode()})[LAB_INDEX]
    )
    done = webnorm(["verify", str(lab), "--without-subgroups"], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    last = [line for line in done.stdout.splitlines() if "browser" in line]
    assert len(last) == 1 and last[0].startswith(
        "pass  browser: 256 columns of float16: 5 of 5 kernels run here"
    )
