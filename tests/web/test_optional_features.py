"""Exports of kernels that declare optional features: browsers with a feature use it, others the fallback."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_export import NORMS, SETTINGS, request
from test_export_node import Engine
from test_verify_engines import driver, installed

import dawn
from commands import webnorm
from headless import needs_tint
from patience import HANG_S
from user_folders import write_op
from webnorm.errors import WebnormError
from webnorm.kernels.headers.library import discover
from webnorm.kernels.headers.traits import BROWSER, extended
from webnorm.kernels.rendering.render import render_shader
from webnorm.op.op import Task
from webnorm.op.registry import load_op
from webnorm.web import lab_site, tint, verify
from webnorm.web.browser.engine_visits import EngineVisitor
from webnorm.web.package import bundle
from webnorm.web.package.bundle import Bundle, BundledShader, bundle_of
from webnorm.web.package.manifest import CLASSES, LAB_CLASSES, unserved
from webnorm.web.package.reader import read_package, tint_source
from webnorm.web.package.request import no_update, request_for

__all__ = ["driver"]
LANGUAGE = ["buffer_view", "linear_indexing", "subgroup_uniformity"]
# Every optional feature, each with a fallback.
KERNEL = """// /// webnorm
// summary = "Every optional feature."
// [tune]
// linear = [0, 1]
// view = [0, 1]
// uniformity = [0, 1]
// half = [0, 1]
// size = [0, 4]
// [default]
// linear = "has_linear_indexing"
// view = "has_buffer_view"
// uniformity = "has_subgroup_uniformity"
// half = "has_f16"
// size = [["has_subgroup_size_control and subgroup_min_size <= 4", 4], 0]
// [features]
// linear_indexing = "linear"
// buffer_view = "view"
// subgroup_uniformity = "uniformity"
// shader-f16 = "half"
// [[pass]]
// entry_point = "main"
// workgroup_size = 64
// workgroup_count = "ceil_div(rows * cols, 64)"
// subgroup_size = "size"
// ///
{% include "lib/tensors.wgsl" %}

@compute @workgroup_size(64)
{% if size %}
@subgroup_size({{ size }})
{% endif %}
fn main(
{% if linear %}
    @builtin(global_invocation_index) i: u32,
{% else %}
    @builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
    @builtin(local_invocation_index) invocation: u32,
{% endif %}
) {
{% if not linear %}
    let i = (group.y * groups.x + group.x) * 64u + invocation;
{% endif %}
    if (i < params.rows * cols) {
        store_y(i, {{ "f32(f16(2.0))" if half else "2.0" }} * load_x(i));
    }
}
"""
# With linear indexing it has narrow workgroups on every device; without it, the widest.
NARROW_OR_WIDE = """// /// webnorm
// summary = "Wide workgroups are the fallback."
// [tune]
// linear = [0, 1]
// workgroup_size = [64, 128, 512]
// [default]
// linear = "has_linear_indexing"
// workgroup_size = [["linear", 64], ["max_invocations >= 512", 512], 128]
// [features]
// linear_indexing = "linear"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "ceil_div(rows * cols, workgroup_size)"
// ///
{% include "lib/tensors.wgsl" %}

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x < params.rows * cols) {
        store_y(id.x, 2.0 * load_x(id.x));
    }
}
"""
NEEDS_F16 = (
    KERNEL.replace('shader-f16 = "half"', "shader-f16 = 1").replace('half = "has_f16"', "half = 1")
).replace("half = [0, 1]", "half = [1]")


def asked(folder: Path, kernel: str = KERNEL, **settings: Any) -> Any:
    op = load_op(write_op(folder / "doubled", mine=kernel))
    return request_for(op.name, [8], [], "auto", (), SETTINGS, **settings)


@pytest.fixture
def exported(tmp_path: Path) -> Bundle:
    return bundle_of(asked(tmp_path))


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    write_op(folder / "doubled", mine=KERNEL)
    done = webnorm(["export", "./doubled", "--size", "cols=8", "--out", "out"], folder)
    assert done.returncode == 0, done.stderr
    return folder / "out"


def needs(one: BundledShader) -> list[str]:
    return [part for part in ("language", "f16", "sizes") if part in one.name.split("-")]


# --- classes -----------------------------------------------------------------------------------------


def test_a_class_is_extended_by_declared_features_alone() -> None:
    assert list(extended(BROWSER, ["subgroups"])) == [("", BROWSER)]
    everything = ["subgroups", "shader-f16", "subgroup-size-control", *LANGUAGE]
    found = dict(extended(BROWSER, everything))
    names = ("language-f16-sizes", "language-f16", "language-sizes", "language", "f16-sizes", "f16", "sizes")
    assert list(found) == [*names, ""]
    assert found[""] == BROWSER
    assert found["language-f16-sizes"].features == {*everything}
    assert found["language"].features == {"subgroups", *LANGUAGE}
    portable = replace(BROWSER, features=frozenset())
    # The size of subgroups needs subgroups.
    assert "sizes" not in "".join(name for name, _ in extended(portable, everything))


def test_each_class_gets_its_features(exported: Bundle) -> None:
    names = [one.name for one in exported.shaders]
    software, sized = "8-software", "8-subgroups"
    assert names == [
        *(f"{software}-{name}" for name in ("language-f16", "language", "f16")),
        software,
        *(f"{sized}-{name}" for name in ("language-f16-sizes", "language-sizes", "f16-sizes", "sizes")),
        *(f"8-portable-{name}" for name in ("language-f16", "language", "f16")),
        "8-portable",
    ]
    for one, entry in zip(exported.shaders, exported.manifest()["shaders"], strict=True):
        parts = needs(one)
        of_device = ["shader-f16"] * ("f16" in parts)
        of_device += ["subgroup-size-control", "subgroups"] * ("sizes" in parts)
        language = LANGUAGE * ("language" in parts) + ["subgroup_id"] * ("sizes" in parts)
        assert (entry["features"], sorted(entry["language_features"])) == (of_device, sorted(language))
        assert entry.get("subgroup_sizes") == ([4] if "sizes" in parts else None)
        enabled = {"shader-f16": "f16", "subgroup-size-control": "subgroup_size_control"}
        for directive, listed in (("enable", of_device), ("requires", language)):
            written = re.findall(rf"^{directive} (\w+);", one.embedded, re.MULTILINE)
            assert sorted(written) == sorted(enabled.get(name, name) for name in listed)


def assert_each_class_gets_its_own_text(found: Bundle, request: Any) -> None:
    """Compare the first shader that serves a class with the shader rendered for it."""
    choose = bundle.automatic_variants(request.kernels)
    for _, traits in bundle.extended_classes(CLASSES, choose):
        batch = bundle._SOFTWARE_BATCH if traits.software else bundle._BATCH
        problem = request.task(8).problem.with_batch(batch)
        variant, why = choose.choose(problem, traits)
        assert variant is not None, why
        own = render_shader(variant, problem, "browser", traits)
        assert next(one for one in found.shaders if one.serves(traits)).shader.text == own.text


@pytest.mark.parametrize("kernel", [KERNEL, NARROW_OR_WIDE], ids=["every", "narrow"])
def test_a_device_gets_the_text_of_its_class(kernel: str, tmp_path: Path) -> None:
    request = asked(tmp_path, kernel)
    assert_each_class_gets_its_own_text(bundle_of(request), request)


def test_a_feature_that_depends_on_the_rows_is_not_exported(tmp_path: Path) -> None:
    kernel = KERNEL.replace('= "linear"', '= "linear and rows > 100"')
    with pytest.raises(WebnormError, match="kernel mine compiles the number of rows in"):
        bundle_of(asked(tmp_path, kernel))


@pytest.mark.parametrize("op", NORMS)
def test_kernels_without_optional_features_have_the_plain_classes(op: str) -> None:
    declared = frozenset().union(*(kernel.features for kernel in discover() if kernel.op.name == op))
    assert declared == {"subgroups"}
    asked = request(op, (61, 4096))
    for cols in asked.cols:
        choose = bundle.automatic_variants(asked.kernels)
        plain = replace(choose, features=frozenset())
        found, unextended = (
            bundle.bundle_shaders(asked.task(cols).problem, one, asked.command)[0] for one in (choose, plain)
        )
        digests = [
            [(one.name, hashlib.sha256(one.text.encode()).hexdigest()) for one in shaders]
            for shaders in (found, unextended)
        ]
        assert digests[0] == digests[1]
        assert {one.adapter_class for one in found} <= CLASSES.keys()


def test_devices_without_a_needed_feature_are_named(tmp_path: Path) -> None:
    request = asked(tmp_path, NEEDS_F16)
    lacking = (
        "all devices have no shader for 8 columns unless they have shader-f16: needs the feature "
        "'shader-f16', which the adapter lacks"
    )
    with pytest.raises(WebnormError, match=re.escape(lacking)):
        bundle_of(request)
    found = bundle_of(replace(request, partial=True))
    manifest = found.manifest()
    assert {one["devices"] for one in manifest["absent"]} == {*CLASSES}
    assert all(one["unless"] == ["shader-f16"] for one in manifest["absent"])
    assert [*unserved(manifest["shaders"])] == [*CLASSES]


def test_no_class_is_unserved_with_a_fallback(exported: Bundle) -> None:
    shaders = exported.manifest()["shaders"]
    assert [*unserved(shaders)] == []
    # Language features count as much as the device's.
    language = [one for one in shaders if "buffer_view" in one["language_features"] and not one["features"]]
    assert len(language) == 2 and [*unserved(language)] == [*CLASSES]


def test_a_lab_has_the_features_of_each_kernel(tmp_path: Path) -> None:
    op = load_op(write_op(tmp_path / "doubled", mine=KERNEL, plain=KERNEL.replace('"has_f16"', "0")))
    task = Task(op, op.problem(4, 8))
    kernels = [one for one in discover() if one.op == op]
    found = lab_site.read_bundle(task, kernels, (), "webnorm")
    names = {one.name: one for one in found.shaders}
    assert {"8-mine-portable-language-f16", "8-mine-software-subgroups-language-f16-sizes"} <= names.keys()
    assert not [name for name in names if "plain" in name and "f16" in name]
    assert {one.for_software for one in found.shaders} == {False, True}
    assert LAB_CLASSES.keys() >= {one.adapter_class for one in found.shaders if not needs(one)}


# --- engines -----------------------------------------------------------------------------------------


@needs_tint
def test_tint_compiles_each_shader_with_its_features(exported: Bundle) -> None:
    entries = exported.manifest()["shaders"]
    sources = [tint_source(one["name"], exported.texts[one["name"]], one) for one in entries]
    sources += [tint.source_of(one.name, one.shader) for one in exported.shaders]
    assert [one.messages for one in tint.check_shaders(sources) if not one.ok] == []
    # Without its features, a shader is refused.
    bare = [replace(one, features=()) for one in sources]
    refused = {one.name for one in tint.check_shaders(bare) if not one.ok}
    assert refused == {one.name for one in exported.shaders if {"f16", "sizes"} & {*needs(one)}}


def visited(folder: Path, engine: str, query: str = "?quick") -> Mapping[str, Any]:
    report: Mapping[str, Any] = EngineVisitor(installed(engine), HANG_S).visit(folder, query).report
    assert report["error"] is None
    wrong = [one["name"] for one in report["shaders"] if one["skipped"] is None and one["verdict"] != "pass"]
    assert wrong == []
    return report


def has(report: Mapping[str, Any], name: str) -> bool:
    """Return whether one of the report's shaders ran."""
    (entry,) = (one for one in report["shaders"] if one["name"] == name)
    return entry["skipped"] is None


@pytest.mark.parametrize("engine", ["chromium", "node"])
def test_dawn_uses_the_features(engine: str, package: Path, driver: None) -> None:
    report = visited(package, engine)
    half = "shader-f16" in report["features"]
    assert report["chosen"]["8"] == "8-software-language" + "-f16" * half
    assert has(report, "8-subgroups-language-sizes") and has(report, "8-portable")
    assert has(report, "8-portable-language-f16") == half
    without = visited(package, engine, "?quick&without=subgroups")
    assert not {"subgroups", "subgroup-size-control"} & {*without["features"]}
    assert not has(without, "8-subgroups-language-sizes") and has(without, "8-portable-language")


@pytest.mark.vulkan
@pytest.mark.parametrize("engine", ["firefox", "deno"])
def test_naga_gets_the_fallback(engine: str, package: Path) -> None:
    report = visited(package, engine)
    half = "shader-f16" in report["features"]
    assert report["chosen"]["8"] == "8-software" + "-f16" * half
    assert has(report, "8-portable") and has(report, "8-portable-f16") == half
    (entry,) = (one for one in report["shaders"] if one["name"] == "8-portable-language")
    assert entry["skipped"] == "needs WGSL's buffer_view, which this browser lacks"


@needs_tint
def test_a_package_passes_its_verification(package: Path, driver: None) -> None:
    installed("node")
    found = list(verify.verify(package, update=no_update, engines=["node"]))
    # Nothing here has both a Dawn and shader-f16, so some shaders may run nowhere.
    assert {one.step for one in found if one.passed is False} == set()
    assert {one.step for one in found if one.passed} >= {"files", "Tint", "node"}
    reasons = {one["native"].get("reason", "") for one in read_package(package).shaders}
    assert any("lacks" in reason for reason in reasons)


@pytest.mark.skipif(dawn.missing() is not None, reason=dawn.missing() or "")
def test_node_knows_the_language_of_its_gpu_object(package: Path, tmp_path: Path) -> None:
    engine = Engine(tmp_path / "engine")
    (engine.folder / "package").symlink_to(package)
    found = engine.drive("optional.mjs")
    half = "-f16" * found["half"]
    assert found["known"] == f"8-software-language{half}"
    # Without the GPU object, the features of its WGSL are unknown.
    assert found["unknown"] == f"8-software{half}"
    assert "needs WGSL's buffer_view, which this browser does not list" in found["reason"]
    assert found["y"] == [2, 4, 6, 8, 10, 12, 14, 16]
    assert json.dumps(found["requested"]).count("subgroup-size-control") == 1
