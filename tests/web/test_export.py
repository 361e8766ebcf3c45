"""Exports: their files, the folder, and refused requests."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16
from packages import MOST_CODE_BYTES

import broken
from commands import webnorm
from testbed import KERNELS
from webnorm import __version__
from webnorm.errors import WebnormError, unknown
from webnorm.gpu.device import Device
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.op.dtypes import DTYPES
from webnorm.op.op import Task
from webnorm.op.registry import OPS, computing_ops, not_computing
from webnorm.ops.norms.op import OPS as NORM_OPS
from webnorm.ops.norms.problem import NormOptions, NormProblem
from webnorm.play import api
from webnorm.web import folder, verify
from webnorm.web.package import bundle, native, npm
from webnorm.web.package.manifest import CLASSES
from webnorm.web.package.request import MOST_COLS, ExportRequest, no_update, request_for

SETTINGS: dict[str, Any] = {
    "--dtype": None,
    "--eps": None,
    "--scale": None,
    "--name": None,
    "--minify": False,
}
NORMS = [op.name for op in NORM_OPS]
COLS = (1, 61, 256, 768, 1024, 4096, 16385)


def request(
    op: str = "layer_norm",
    cols: tuple[int, ...] = (64,),
    options: tuple[str, ...] = (),
    kernel: str = "auto",
    **settings: object,
) -> ExportRequest:
    given = {f"--{name}": value for name, value in settings.items()}
    return request_for(op, cols, options, kernel, (), {**SETTINGS, **given})


@pytest.fixture(scope="module")
def package() -> folder.Files:
    return npm.package_files(request(cols=(64, 4096), dtype="float16"))


def manifest_of(files: folder.Files) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(files["manifest.json"])
    return manifest


# --- the files -------------------------------------------------------------------------------------


@pytest.mark.opengl
def test_the_manifest_matches_the_files(package: folder.Files, device: Device) -> None:
    manifest = manifest_of(package)
    assert manifest["schema"] == 1 and manifest["webnorm"] == __version__ and manifest["cols"] == [64, 4096]
    assert (
        manifest["command"] == "webnorm export layer_norm --cols 64 --cols 4096 --dtype float16 --out FOLDER"
    )
    index = package["index.js"].decode()
    for shader in manifest["shaders"]:
        text = package[shader["file"]]
        assert hashlib.sha256(text).hexdigest() == shader["sha256"]
        embedded = bundle.minified(text.decode())
        assert hashlib.sha256(embedded.encode()).hexdigest() == shader["embedded_sha256"]
        assert embedded in index
        native = shader["native"]
        assert "lacks" in native["reason"] if "reason" in native else native["verdict"] == "pass"
    for vector in manifest["vectors"]:
        assert hashlib.sha256(package[vector["file"]]).hexdigest() == vector["sha256"]
    assert len({shader["name"] for shader in manifest["shaders"]}) == len(manifest["shaders"])
    listed = json.loads(package["package.json"])["files"]
    assert {name.split("/")[0] for name in package} == {*listed, "package.json", "README.md"}


def test_a_text_begins_with_a_description(package: folder.Files) -> None:
    for shader in manifest_of(package)["shaders"]:
        text = package[shader["file"]].decode()
        opening = text[: text.index("\n\n")]
        assert all(line.startswith("// ") for line in opening.splitlines())
        parts = [
            shader["name"],
            "layer_norm",
            shader["kernel"],
            f"webnorm {__version__}",
            "webnorm export layer_norm",
        ]
        parts += [f"{name}={value}" for name, value in shader["constants"].items()]
        parts += [*shader["features"], str(shader["limits"]["maxComputeInvocationsPerWorkgroup"])]
        assert all(part in opening for part in parts)


@pytest.mark.parametrize("op", NORMS)
@pytest.mark.parametrize("cols", COLS)
def test_every_class_gets_a_shader_within_its_limits(op: str, cols: int) -> None:
    added = "residual_bias" if "backward" in op else "residual"
    # Over all columns and ops, each type meets each set of options.
    turn = NORMS.index(op) + COLS.index(cols)
    for options, dtype in zip(((), (added,)), np.roll(("float32", "bfloat16"), turn), strict=True):
        found = bundle.bundle_of(request(op, (cols,), options, dtype=str(dtype)))
        entries = {shader["name"]: shader for shader in found.manifest()["shaders"]}
        for one in found.shaders:
            traits, entry = CLASSES[one.adapter_class], entries[one.name]
            assert entry["limits"]["maxComputeInvocationsPerWorkgroup"] <= traits.max_invocations
            assert entry["limits"]["maxComputeWorkgroupStorageSize"] <= traits.workgroup_storage
            assert entry["limits"]["maxStorageBuffersPerShaderStage"] <= 8
            assert set(entry["features"]) <= traits.features
            assert entry.get("software", False) == traits.software
        # The last shader of each kind needs only the default features and limits.
        for software in (False, True):
            last = [e for e in entries.values() if e.get("software", False) == software][-1]
            assert not last["features"] and last["limits"]["maxComputeInvocationsPerWorkgroup"] <= 256


def test_long_rows_have_a_shader_for_adapters_that_grant_more() -> None:
    names = [one.name for one in bundle.bundle_of(request(cols=(16384,))).shaders]
    assert names == [
        "16384-software",
        "16384-subgroups-1024",
        "16384-subgroups",
        "16384-portable-1024",
        "16384-portable",
    ]


def test_names_of_an_expression_are_worked_out_but_for_the_rows() -> None:
    shaders = bundle.bundle_of(request("layer_norm_backward", (1000,))).manifest()["shaders"]
    words = set(re.findall(r'"(\w+)"', json.dumps([shader["passes"] for shader in shaders])))
    known = {"entry_point", "workgroup_size", "workgroup_count", "per", "bindings", "iterations", "call"}
    entry_points = {step["entry_point"] for shader in shaders for step in shader["passes"]}
    assert words <= known | entry_points | {"rows", "ceil_div", "min", "max", "if", "and", "or"}


def test_the_same_request_gives_the_same_bytes(package: folder.Files) -> None:
    assert npm.package_files(request(cols=(64, 4096), dtype="float16")) == package


@pytest.mark.parametrize("op", NORMS)
def test_minified_texts_have_the_same_tokens(op: str) -> None:
    for one in bundle.bundle_of(request(op, (61,), dtype="float16")).shaders:
        plain = re.sub(r"//[^\n]*", "", one.text)
        assert re.sub(r"\s", "", one.embedded) == re.sub(r"\s", "", plain)
        assert re.findall(r"\w+", one.embedded) == re.findall(r"\w+", plain)
        assert len(one.embedded) < 0.75 * len(one.text)
    (small,) = (
        one
        for one in bundle.bundle_of(request(op, (61,), minify=True)).shaders
        if one.adapter_class == "portable"
    )
    assert small.text.startswith("// ") and small.text.endswith(small.embedded)


def test_minified_signs_stay_apart() -> None:
    assert bundle.minified("let a = 1.0 - -b; // why\n\n  if (a < b) { /* x\n y */ return; }\n") == (
        "let a=1.0- -b;\nif(a<b){return;}\n"
    )


def test_types_and_readme_name_every_tensor() -> None:
    asked = request("layer_norm", (64,), ("residual", "return_stats", "out_dtype=int8"))
    files = npm.package_files(asked)
    for tensor in manifest_of(files)["tensors"]:
        assert f"  {tensor['name']}: " in files["index.d.ts"].decode()
        assert tensor["name"] in files["README.md"].decode()
    assert "createLayerNorm" in files["index.js"].decode()
    assert "/** The number of elements along `rows`. */" in files["index.d.ts"].decode()


@pytest.mark.parametrize(
    ("dtype", "options", "narrow"),
    [
        ("float32", (), set()),
        ("float32", ("out_dtype=bfloat16",), {"bfloat16"}),
        ("float16", ("out_dtype=float32",), {"float16"}),
    ],
)
def test_the_readme_names_the_types_that_are_passed_as_bits(
    dtype: str, options: tuple[str, ...], narrow: set[str]
) -> None:
    files = npm.package_files(request("layer_norm", (64,), options, dtype=dtype))
    assert set(re.findall(r"^Pass (\w+) as its bits", files["README.md"].decode(), re.M)) == narrow


def test_an_own_kernel_is_exported(tmp_path: Path) -> None:
    own = own_kernel(tmp_path, "rms_norm/workgroup")
    found = bundle.bundle_of(request("rms_norm", (96,), kernel=str(own)))
    assert {one.shader.variant.kernel.name for one in found.shaders} == {"mine"}


def own_kernel(folder: Path, label: str, **changes: str) -> Path:
    """Write a copy of a kernel as `mine.wgsl`, with lines inserted before a section of its header."""
    source = next(kernel for kernel in KERNELS if kernel.label == label).path
    own = folder / label.split("/")[0] / "mine.wgsl"
    own.parent.mkdir(exist_ok=True)
    text = source.read_text()
    for section, lines in changes.items():
        assert text.count(f"// [{section}]") == 1
        text = text.replace(f"// [{section}]", f"{lines}// [{section}]")
    own.write_text(text)
    return own


TWO_ROWS = "// [derive]\n// rows_per_workgroup = 2\n"


def test_fewer_invocations_are_tried_where_the_default_does_not_fit(tmp_path: Path) -> None:
    """Two rows of 256 invocations exceed the default limits; two rows of 128 do not."""
    own = own_kernel(tmp_path, "layer_norm/two_pass", accuracy=TWO_ROWS)
    found = bundle.bundle_of(request(cols=(768,), kernel=str(own)))
    assert found.absent == ()
    widths = {one.adapter_class: one.shader.passes[0].workgroup_size for one in found.shaders}
    assert widths["portable"] == 256 and widths["portable-1024"] == 512
    constants = {one.adapter_class: one.shader.variant.constants for one in found.shaders}
    assert constants["portable"]["threads_per_row"] == 128


def test_an_export_without_the_default_limits_is_refused_unless_partial(tmp_path: Path) -> None:
    """The kernel has only one number of invocations, so no smaller one can be chosen."""
    own = own_kernel(tmp_path, "layer_norm/two_pass", accuracy=TWO_ROWS)
    one_width = "// [default]\n// threads_per_row = 256\n// [tune]\n// threads_per_row = [256]"
    own.write_text(own.read_text().replace("// [tune]", one_width))
    asked = request(cols=(64, 768), kernel=str(own))
    limits = "devices with the default limits (256 invocations and 16384 bytes in a workgroup)"
    why = "needs 512 invocations per workgroup; the limit is 256"
    lacking = "; ".join(f"{limits} have no shader for {cols} columns: {why}" for cols in (64, 768))
    with pytest.raises(WebnormError) as raised:
        bundle.bundle_of(asked)
    assert str(raised.value) == f"kernel mine: {lacking}; use --partial to export the other shaders"
    found = bundle.bundle_of(replace(asked, partial=True))
    assert {one.adapter_class for one in found.shaders} == {"portable-1024"}
    assert found.manifest()["absent"] == [
        {"cols": cols, "devices": devices, "why": why}
        for cols in (64, 768)
        for devices in ("software", "subgroups", "portable")
    ]
    # The playground asks for a confirmation instead of --force.
    words = ("layer_norm", (64, 768), (), str(own), (), SETTINGS)
    assert list(api.pack(None, words)) == [f"kernel mine: {lacking}"]


@pytest.mark.slow
def test_a_kernel_that_needs_subgroups_names_the_devices_left_out(tmp_path: Path) -> None:
    command = ["export", "layer_norm", "--cols", "64", "-k", "welford_subgroup", "--out", "out"]
    lacking = (
        "devices without subgroups have no shader for 64 columns: needs the feature 'subgroups', which the "
        "adapter lacks"
    )
    done = webnorm(command, tmp_path)
    assert (done.returncode, done.stdout) == (2, "") and not (tmp_path / "out").exists()
    partial = "use --partial to export the other shaders"
    assert done.stderr == f"webnorm: kernel welford_subgroup: {lacking}; {partial}\n"
    done = webnorm([*command, "--partial"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"Left out: {lacking}\n" in done.stdout
    readme = (tmp_path / "out" / "README.md").read_text()
    assert "Devices without subgroups have no shader" in readme and "--partial --out FOLDER" in readme
    assert "absent" not in (tmp_path / "out" / "index.js").read_text()
    findings = list(verify.verify(tmp_path / "out", update=no_update))
    assert findings[0].remarks == (lacking,)
    assert not [one for one in findings if one.step == "devices"]


def test_a_loose_tolerance_is_reported(tmp_path: Path) -> None:
    """With a mean rounded to float32, any error passes once the mean is large enough."""
    files = npm.package_files(request(cols=(64,), kernel="naive"))
    manifest = manifest_of(files)
    for shader in manifest["shaders"]:
        remark = "the header's tolerance is loose ("
        assert shader["loose"].startswith(remark) and "mean rounded to float32" in shader["loose"]
        assert shader["native"]["allowed"] > shader["native"]["max_abs_error"] > 1e-3
    assert "Warning: 64-software: the header's tolerance is loose" in npm.package_summary(files, tmp_path)
    best = npm.package_files(request(cols=(64,)))
    assert not [one for one in manifest_of(best)["shaders"] if "loose" in one]
    assert "Warning" not in npm.package_summary(best, tmp_path)


@pytest.mark.parametrize("op", NORMS)
def test_every_device_gets_a_best_kernel(op: str) -> None:
    for cols in COLS:
        assert bundle.bundle_of(request(op, (cols,))).absent == ()


def test_a_kernel_that_takes_all_rows_at_once_is_not_exported() -> None:
    asked = request("rms_norm_backward", (256,), ("saved_stats",), kernel="one_dispatch")
    with pytest.raises(WebnormError, match="one_dispatch takes all rows at once; an export takes any"):
        bundle.bundle_of(asked)
    # The kernel could run these few elements, but other problems of the same page have more.
    found = bundle.bundle_of(request("rms_norm_backward", (4,), ("saved_stats",)))
    assert "registers" in {one.shader.variant.kernel.name for one in found.shaders}
    assert "one_dispatch" not in {one.shader.variant.kernel.name for one in found.shaders}


def test_an_own_kernel_that_compiles_rows_in_is_not_exported(tmp_path: Path) -> None:
    own = own_kernel(tmp_path, "rms_norm/workgroup", accuracy='// [derive]\n// all = "rows * cols"\n')
    own.write_text(f"{own.read_text()}\nconst EVERY = {{{{ all }}}}u;\n")
    with pytest.raises(WebnormError, match="mine compiles the number of rows in; an export takes any number"):
        bundle.bundle_of(request("rms_norm", (96,), kernel=str(own)))


def test_an_own_kernel_that_kills_the_compiler_costs_no_more_than_its_export(
    tmp_path: Path, device: Device
) -> None:
    deadly, died = broken.deadly(device)
    own = broken.write(tmp_path, deadly) / "layer_norm" / f"{deadly}.wgsl"
    with pytest.raises(WebnormError, match=f"the native run failed: {died}"):
        npm.package_files(request(kernel=str(own)))


WRONG = re.compile(
    r"webnorm: kernel wrong as 64-\w+ is wrong on .+: layer_norm of 64 columns, float32, vector normal: "
    r"y\[\d+, \d+\] is .+ off by [\d.]+, allowed .+; 1 of the other shaders is also wrong\. (?P<end>.+)\n"
)


def test_auto_names_the_users_kernels_that_it_left_out(tmp_path: Path, device: Device) -> None:
    for op in ("layer_norm", "rms_norm"):
        (tmp_path / "mine" / op).mkdir(parents=True)
        text = (wgsl_root() / "layer_norm" / "two_pass.wgsl").read_text()
        (tmp_path / "mine" / op / "mine.wgsl").write_text(text)
    export = ["export", "layer_norm", "--cols", "64", "--wgsl", "mine"]
    done = webnorm([*export, "--out", "o"], tmp_path)
    assert done.returncode == 0
    (said,) = done.stderr.splitlines()
    assert said.startswith("webnorm: o has no shader of layer_norm/mine: auto chose others; --kernel")
    done = webnorm([*export, "--kernel", "mine", "--out", "p"], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_kernels_of_a_lab_are_those_of_its_bundles() -> None:
    bundles = [{"op": "layer_norm", "kernels": ["a", "b"]}, {"op": "rms_norm", "kernels": ["b"]}]
    index = json.dumps({"bundles": bundles}).encode()
    found, ops = folder.kernels_of({folder.LAB_INDEX: index})
    assert found == {("layer_norm", "a"), ("layer_norm", "b"), ("rms_norm", "b")}
    assert ops == {"layer_norm", "rms_norm"}


def test_an_export_that_does_not_compile_names_the_line_of_the_kernels_file(tmp_path: Path) -> None:
    """The exported text is minified, so its lines are not the file's."""
    broken.write(tmp_path, "unparsable")
    lines = (tmp_path / "layer_norm" / "unparsable.wgsl").read_text().splitlines()
    (line,) = (number for number, text in enumerate(lines, 1) if "let mean = = " in text)
    kernel = "layer_norm/unparsable.wgsl"
    done = webnorm(["export", "layer_norm", "--cols", "64", "--kernel", kernel, "--out", "o"], tmp_path)
    assert f"unparsable.wgsl:{line}: " in done.stderr and done.returncode == 2
    assert not (tmp_path / "o").exists()


def test_a_wrong_kernel_is_refused_unless_forced(tmp_path: Path, device: Device) -> None:
    """Export by name over an existing export, and by file into a new folder."""
    broken.write(tmp_path, "wrong")
    right = ["export", "layer_norm", "--cols", "64", "--out", "o"]
    assert webnorm(right, tmp_path).returncode == 0
    before = content(tmp_path)
    for words in (["wrong", "--wgsl", ".", "--out", "o"], ["layer_norm/wrong.wgsl", "--out", "new"]):
        done = webnorm(["export", "layer_norm", "--cols", "64", "--kernel", *words], tmp_path)
        found = WRONG.fullmatch(done.stderr)
        assert found and found["end"] == "Nothing was written; --force writes it anyway", done.stderr
        assert (done.returncode, done.stdout) == (1, "") and content(tmp_path) == before
    done = webnorm(["export", "layer_norm", "--cols", "64", "--kernel", *words, "--force"], tmp_path)
    found = WRONG.fullmatch(done.stderr)
    assert found and found["end"] == "It was written because of --force" and done.returncode == 0
    forced = content(tmp_path / "new")
    manifest = manifest_of(forced)
    assert {shader["native"]["verdict"] for shader in manifest["shaders"]} == {"fail"}
    assert manifest["command"].endswith("--kernel layer_norm/wrong.wgsl --out FOLDER")
    assert "**Its results are wrong.**" in forced["README.md"].decode()
    assert "Its answers" not in before["o/README.md"].decode()


def test_a_right_kernel_of_a_user_is_exported(tmp_path: Path, device: Device) -> None:
    own = tmp_path / "layer_norm" / "honest.wgsl"
    own.parent.mkdir()
    own.write_text(broken.HONEST)
    done = webnorm(["export", "layer_norm", "--cols", "64", "--kernel", str(own), "--out", "o"], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert {one["native"]["verdict"] for one in manifest_of(content(tmp_path / "o"))["shaders"]} == {"pass"}


def test_an_unstable_kernel_is_exported_only_by_force(tmp_path: Path, device: Device) -> None:
    """The kernel is wrong on the vector with large means, as its header states."""
    arguments = ["export", "layer_norm", "--cols", "64", "--kernel", "one_pass", "--out", "o", "--force"]
    done = webnorm(arguments, tmp_path)
    assert done.returncode == 0 and "vector mixed: y[" in done.stderr
    for shader in manifest_of(content(tmp_path / "o"))["shaders"]:
        assert shader["unstable"].startswith("E[x^2]")
        assert [name for name, one in shader["native"]["vectors"].items() if "reason" in one] == ["mixed"]


@pytest.mark.slow
def test_the_code_of_an_op_stays_small() -> None:
    for op, cols, dtype in (("layer_norm", 768, "float16"), ("layer_norm_backward", 1024, "float32")):
        files = npm.package_files(request(op, (cols,), dtype=dtype))
        code = files["index.js"] + files["runtime.js"]
        assert len(gzip.compress(code, 9)) < MOST_CODE_BYTES


def test_without_an_adapter_the_manifest_contains_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "adapters", lambda: [])
    files = npm.package_files(request())
    (entry, *_) = manifest_of(files)["shaders"]
    why = "the exporting machine has no WebGPU adapter"
    assert entry["native"] == {"reason": why}
    skipped = f"64-software, 64-subgroups, 64-portable: {why}\n"
    assert npm.native_fault(files) is None and f"Not checked here: {skipped}" in npm.package_summary(
        files, Path("o")
    )
    assert f"- {skipped}" in files["README.md"].decode()


def test_a_wrong_text_has_a_wrong_verdict(device: Device) -> None:
    asked = request(cols=(64,))
    one = next(one for one in bundle.bundle_of(asked).shaders if one.adapter_class == "portable")
    drawn = list(native.draw_vectors(asked.task(64)))
    assert native.try_natively(device, one, drawn)["verdict"] == "pass"
    text = one.shader.text.replace("inverseSqrt(", "0.99 * inverseSqrt(")
    broken = bundle.BundledShader(
        one.name, one.adapter_class, type(one.shader)(**{**vars(one.shader), "text": text}), text, text
    )
    outcome = native.try_natively(device, broken, drawn)
    assert outcome["verdict"] == "fail" and "off by" in outcome["vectors"]["normal"]["reason"]


# --- vectors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_vectors_are_safetensors_with_the_answers(dtype: str) -> None:
    op = OPS["layer_norm"]
    problem = NormProblem(rows=1, cols=70, dtype=dtype, options=NormOptions(residual=True))
    for vector in native.draw_vectors(Task(op, problem)):
        raw = vector.encoded()
        size = int.from_bytes(raw[:8], "little")
        header, data = json.loads(raw[8 : 8 + size]), raw[8 + size :]
        assert size % 8 == 0 and header.pop("__metadata__") == {"what": vector.what}
        types = {"F32": np.float32, "F16": np.float16, "BF16": bfloat16}
        arrays = {
            name: np.frombuffer(data[slice(*one["data_offsets"])], types[one["dtype"]]).reshape(one["shape"])
            for name, one in header.items()
        }
        assert arrays["x"].dtype == DTYPES[dtype] and arrays["x"].shape == (vector.problem.rows, 70)
        answers = op.reference({name: a for name, a in arrays.items() if "." not in name}, vector.problem)
        for name, answer in answers.items():
            assert np.array_equal(arrays[f"expected.{name}"], answer.value.astype(np.float32), equal_nan=True)


def test_vectors_contain_hard_inputs_and_stay_small() -> None:
    for cols in (1, 768, 8192, MOST_COLS):
        drawn = {
            v.name: v for v in native.draw_vectors(Task(OPS["layer_norm"], NormProblem(rows=1, cols=cols)))
        }
        assert np.isnan(drawn["nan"].arrays["x"][1]).sum() == 1
        assert drawn["normal"].problem.rows % 2 == 1 and drawn["one_row"].problem.rows == 1
        assert sum(v.arrays["x"].size for v in drawn.values()) <= max(80_000, 12 * cols)
    mixed = next(
        v
        for v in native.draw_vectors(Task(OPS["layer_norm"], NormProblem(rows=1, cols=768)))
        if v.name == "mixed"
    )
    means = np.abs(mixed.arrays["x"].mean(axis=1))
    assert means.max() > 9e5 and (mixed.arrays["x"].std(axis=1) == 0).sum() == 3


# --- the lab ---------------------------------------------------------------------------------------


def test_the_lab_carries_every_kernel(lab_folder: Path) -> None:
    files = content(lab_folder)
    index = json.loads(files["bundles/index.json"])
    assert {entry["op"] for entry in index["bundles"]} == {op.name for op in (OPS["copy"], *NORM_OPS)}
    found = set()
    for entry in index["bundles"]:
        data = json.loads(files[f"bundles/{entry['file']}"])
        assert set(data["texts"]) == {shader["name"] for shader in data["manifest"]["shaders"]}
        found |= {(entry["op"], shader["kernel"]) for shader in data["manifest"]["shaders"]}
    assert found == {(kernel.op.name, kernel.name) for kernel in KERNELS if kernel.takes_slices}
    assert "index.html" in files and "page/lab.js" in files and "page/verify.js" not in files


# --- folders ---------------------------------------------------------------------------------------

TEXTS: folder.Files = {"shaders/a.wgsl": b"a", "shaders/c.wgsl": b"c", "index.js": b"1"}


def exported(texts: folder.Files, listing: str = folder.MANIFEST) -> folder.Files:
    manifest = {"schema": 1, "webnorm": "0", "files": folder.digests(texts)}
    return {**texts, listing: json.dumps(manifest).encode()}


FILES = exported(TEXTS)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("listing", [folder.MANIFEST, folder.LAB_INDEX])
def test_an_export_replaces_an_older_one_and_nothing_else(listing: str, tmp_path: Path) -> None:
    out = tmp_path / "new" / "dist"
    kind = folder.LAB if listing == folder.LAB_INDEX else folder.PACKAGE
    first = exported({**TEXTS, "vectors/64/x": b"x", "vectors/y": b"y"}, listing)
    folder.write_folder(first, out)
    assert content(out) == first
    (out / "shaders" / "notes.txt").write_bytes(b"mine")
    (out / "shaders" / "c.wgsl").write_bytes(b"changed")
    (out / "node_modules").mkdir()
    folder.check_folder(out, kind=kind)
    newer = exported({"shaders/b.wgsl": b"b", "index.js": b"2"}, listing)
    folder.write_folder(newer, out)
    # Files of the older export are removed, but not files that someone wrote or changed.
    assert content(out) == {**newer, "shaders/notes.txt": b"mine", "shaders/c.wgsl": b"changed"}
    assert (out / "node_modules").is_dir() and not (out / "vectors").exists()
    assert [path.name for path in out.parent.iterdir()] == ["dist"]


def test_an_export_of_another_kind_stays(tmp_path: Path) -> None:
    """Only --force writes a lab over a package, and the package's files stay."""
    folder.write_folder(FILES, tmp_path)
    lab = exported({"index.html": b"h"}, folder.LAB_INDEX)
    folder.write_folder(lab, tmp_path)
    assert content(tmp_path) == {**FILES, **lab}


def test_a_listing_that_names_outside_files_removes_none(tmp_path: Path) -> None:
    out, outside = tmp_path / "dist", tmp_path / "notes.txt"
    outside.write_bytes(b"a")
    folder.write_folder(exported({"../notes.txt": b"a"}, folder.LAB_INDEX) | {"../notes.txt": b"a"}, out)
    folder.write_folder(exported({"index.html": b"h"}, folder.LAB_INDEX), out)
    assert outside.read_bytes() == b"a"


def test_a_folder_that_is_not_an_export_is_refused_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"x")
    with pytest.raises(
        WebnormError, match=r"exists and is not an exported package; choose another folder, or use --force"
    ):
        folder.check_folder(tmp_path)
    folder.check_folder(tmp_path, force=True)
    folder.write_folder(FILES, tmp_path)
    assert content(tmp_path) == {**FILES, "photo.jpg": b"x"}
    with pytest.raises(WebnormError, match="not an exported lab"):
        folder.check_folder(tmp_path, kind=folder.LAB)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    folder.write_folder(FILES, tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and content(tmp_path / "target") == FILES


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=repr)
def test_a_failed_write_leaves_the_old_files(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "dist"
    folder.write_folder(FILES, out)
    real: Callable[..., None] = os.replace

    def failing(source: Path, target: Path) -> None:
        if Path(target) == out / "manifest.json" and Path(source).parent.name == "new":
            raise error
        real(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(
        (WebnormError, KeyboardInterrupt), match=r"cannot be written: No space left on device|^$"
    ):
        folder.write_folder({**FILES, "index.js": b"2", "manifest.json": b"{}"}, out)
    assert content(out) == FILES
    assert [path.name for path in tmp_path.iterdir()] == ["dist"]


KILLED = """
import os, signal, sys
from pathlib import Path
from webnorm.web import folder
real, left = os.replace, int(sys.argv[2])
def replace(*paths):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    real(*paths)
os.replace = replace
files = {name: b"new" for name in ("index.js", "manifest.json", "shaders/b.wgsl")}
folder.write_folder(files, Path(sys.argv[1]))
"""


@pytest.mark.parametrize("changed", [0, 2])
def test_a_killed_export_leaves_every_file_whole(changed: int, tmp_path: Path) -> None:
    out = tmp_path / "dist"
    folder.write_folder(FILES, out)
    ended = subprocess.run([sys.executable, "-c", KILLED, str(out), str(changed)], check=False)
    assert ended.returncode == -signal.SIGKILL
    found = {name: (out / name).read_bytes() for name in FILES}
    assert {name for name in FILES if found[name] != FILES[name]} == {
        *["index.js", "manifest.json"][:changed]
    }
    # The next export can write the folder.
    folder.check_folder(out, force=bool(changed))
    folder.write_folder(FILES, out)
    assert all((out / name).read_bytes() == text for name, text in FILES.items())


def test_exports_into_one_folder_take_turns(tmp_path: Path) -> None:
    """In the end the folder contains one complete export."""
    out = tmp_path / "dist"
    texts = [exported({f"{n % 2}-{at}.js": b"%d" % n for at in range(40)}) for n in range(3)]
    with ThreadPoolExecutor(3) as threads:
        for _ in threads.map(lambda at: folder.write_folder(texts[at % 3], out), range(45)):
            pass
    assert content(out) in texts
    assert [path.name for path in tmp_path.iterdir()] == ["dist"]


# --- mistakes --------------------------------------------------------------------------------------


MISTAKES = {
    "layer_norm --cols 64": "--out is missing; expected the folder to write, such as --out dist/norm",
    "--out out": f"OP is missing; expected one of {', '.join(computing_ops())}, or --lab",
    "layernorm --cols 64 --out out": "unknown op 'layernorm'; did you mean 'layer_norm'?",
    "copy --cols 64 --out out": str(unknown("op", "copy", computing_ops(), elsewhere=not_computing())),
    "layer_norm --out out": "--cols is missing; expected a size that is compiled in, such as --cols 1024",
    "layer_norm --cols 0 --out out": "--cols is '0'; expected 1 or more",
    "layer_norm --cols 64,x --out out": "--cols is '64,x'; expected integers separated by commas, "
    "as 768,4k, or ranges of them, as 256..4k",
    "layer_norm --cols 262145 --out out": "--cols is 262145; expected at most 262144",
    "layer_norm --cols 64 --out file": "--out file: is a file; expected a folder",
    "layer_norm --cols 64 --out file/in": "--out file/in: file is a file; expected a folder",
    "layer_norm --cols 64 --out full": "--out full: exists and is not an exported package; choose another "
    "folder, or use --force to write into it (files of other names stay)",
    "layer_norm --cols 64 --out out --dtype f16": "unknown dtype 'f16'; did you mean 'float16'?",
    "layer_norm --cols 64 --out out --name Norm": "--name is 'Norm'; expected a name that npm allows: "
    "lower-case letters, digits, - . _ ~, such as my-norm or @scope/my-norm",
    "layer_norm --cols 64 --out out --kernel one_pass": "kernel one_pass is unstable (E[x^2] - "
    "E[x]^2 cancels: with a mean of 1000 standard deviations float32 has no digits left); use --force to "
    "export it",
    "layer_norm --cols 64 --out out --kernel copy": "kernel copy computes copy; expected one of layer_norm",
    "layer_norm --cols 64 --out out --option dh": "layer_norm has no option dh; its options are weight, "
    "bias, zero_centered_weight, weight_offset, rounding, weight_dtype, residual, residual_dtype, "
    "residual_bias, return_stats, out_dtype, scale_block, max_workgroups",
    "--lab layer_norm --out out": "--lab cannot be combined with OP: the lab contains every op and kernel",
    "layer_norm --cols 8 --out out --submit https://a.example": "--submit needs --lab: only the "
    "lab's page can send results",
    **{
        f"--lab --out out --submit {url}": f"--submit is {url!r}; expected the URL of `webnorm collect`: "
        "https://, or http:// on this machine"
        for url in (
            "a.example",
            "http://a.example/",
            "ftp://127.0.0.1",
            "https://",
            "https://me:it@a.example",
            "javascript:alert(1)",
            "https://a.example/#top",
            "https://a.example:x",
        )
    },
}


@pytest.mark.parametrize("arguments", MISTAKES)
def test_a_mistake_is_one_line(arguments: str, mistake: Callable[[list[str]], str], tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "photo.jpg").write_bytes(b"")
    before = content(tmp_path)
    assert mistake(["export", *arguments.split()]) == f"webnorm: {MISTAKES[arguments]}\n"
    assert content(tmp_path) == before and not (tmp_path / "out").exists()


def test_too_many_buffers_are_refused() -> None:
    everything = ("residual", "residual_bias", "return_stats", "out_dtype=int8")
    with pytest.raises(WebnormError, match=r"has more than 8 buffers in a pass, the default limit of pages"):
        bundle.bundle_of(request(options=everything))


def test_the_command_reports_the_written_files(tmp_path: Path, device: Device) -> None:
    done = webnorm(["export", "rms_norm", "--cols", "64,96", "--no-weight", "--out", "dist/rms"], tmp_path)
    assert done.returncode == 0 and done.stderr == ""
    assert "64-portable" in done.stdout and done.stdout.endswith("webnorm verify dist/rms\n")
    manifest = json.loads((tmp_path / "dist" / "rms" / "manifest.json").read_text())
    assert manifest["command"] == "webnorm export rms_norm --cols 64 --cols 96 --no-weight --out FOLDER"
    # The printed command runs, and writes the same.
    again = webnorm(manifest["command"].split()[1:], tmp_path)
    assert again.returncode == 0
    assert content(tmp_path / "FOLDER") == content(tmp_path / "dist" / "rms")
