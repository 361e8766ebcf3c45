"""Seven ops whose kernel uses a feature in the engines that have it, and a fallback in the others.

`optional/expected.toml` contains the feature of each op and the engines that have it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_check_engines import DRIVERS, missing
from test_divergent import ENGINES

import webnorm
from pages import ROOT, blocks
from testbed import GPU
from webnorm.choice.defaults import default_variant
from webnorm.gpu.device import Device
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.traits import DEVICE_FEATURES, KNOWN_FEATURES, Traits
from webnorm.kernels.rendering.render import TARGETS, Target, render_shader
from webnorm.op.registry import OPS as KNOWN_OPS

FOLDER = Path(__file__).parent / "optional"
EXPECTED = tomllib.loads((FOLDER / "expected.toml").read_text(encoding="utf-8"))
OPS = sorted(path.parent.name for path in FOLDER.glob("*/op.py"))
PAGE = ROOT / "docs" / "optional-features.md"
# The name of the kernels, and of their axis, which is 1 for the path with the feature.
KERNEL, AXIS = "with_fallback", "with_feature"
# The text in which a kernel uses its feature, unless that is the feature's directive alone.
USES = {
    "fixed_subgroups": "@subgroup_size(32)",
    "uniform_subgroups": "if (subgroup == 0u)",
    "linear_index": "@builtin(global_invocation_index)",
    "buffer_views": "bufferView<vec4<f32>>(&x,",
    "half_arithmetic": "alias Number = f16;",
    "packed_dot": "dot4I8Packed(",
}


@pytest.fixture(params=OPS)
def op(request: pytest.FixtureRequest) -> str:
    webnorm.load_op(FOLDER / request.param)
    return str(request.param)


def kernel(op: str) -> Kernel:
    return load(FOLDER / op / f"{KERNEL}.wgsl")


def rendered(op: str, traits: Traits, target: Target) -> tuple[frozenset[str], str]:
    """Return the features and the text of the default variant."""
    sizes: Any = dict.fromkeys(KNOWN_OPS[op].problem_type.SIZES, 64)
    problem = KNOWN_OPS[op].problem(**sizes)
    shader = render_shader(default_variant(kernel(op), problem, traits), problem, target, traits)
    return shader.features, shader.text


def paths(found: Any) -> set[tuple[int, str]]:
    """Return the paths that results took, and their verdicts."""
    return {(one.constants[AXIS], one.status) for one in found.results}


def features(device: Mapping[str, Any]) -> set[str]:
    """Return the features in the description of a device."""
    return {*device["features"], *device["language_features"]}


def test_the_table_has_all_ops_and_features() -> None:
    assert sorted(EXPECTED) == OPS
    assert {row["feature"] for row in EXPECTED.values()} <= {*KNOWN_FEATURES}
    assert all({*row["engines"]} <= ENGINES for row in EXPECTED.values())


def test_the_page_has_the_same_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    columns = (("wgpu",), ("deno",), ("firefox",), ("chromium", "dawn", "node"))
    rows = re.findall(r"^\| `([\w-]+)` \| \[.*?\]\(.*?\)((?: \| (?:yes|-)){4}) \|$", page, re.M)
    shown = {
        feature: sorted(
            engine
            for engines, cell in zip(columns, cells.split("|")[1:], strict=True)
            for engine in engines
            if cell.strip() == "yes"
        )
        for feature, cells in rows
    }
    # The kernels of norms test subgroups.
    del shown["subgroups"]
    assert shown == {row["feature"]: row["engines"] for row in EXPECTED.values()}


def test_the_pages_snippets_are_from_the_kernels() -> None:
    known = {
        line.strip()
        for path in FOLDER.glob("*/*.wgsl")
        for line in path.read_text(encoding="utf-8").splitlines()
    }
    snippets = [*blocks(PAGE, "wgsl"), *blocks(PAGE, "text")]
    assert len(snippets) >= len(OPS)
    assert [line for text in snippets for line in text.splitlines() if line.strip() not in known] == []


@pytest.mark.parametrize("target", TARGETS)
def test_a_kernel_uses_its_feature_where_it_exists(op: str, target: Target) -> None:
    feature = EXPECTED[op]["feature"]
    everything = replace(GPU, features=frozenset(KNOWN_FEATURES), subgroup_min_size=32, subgroup_max_size=32)
    without = replace(everything, features=everything.features - {feature})
    for traits in (everything, without):
        used, text = rendered(op, traits, target)
        assert (feature in used) == (feature in traits.features)
        assert op not in USES or (USES[op] in text) == (feature in used)


def test_both_paths_are_right_in_this_process(op: str, device: Device) -> None:
    case = f"{op}-normal"
    has_feature = int(EXPECTED[op]["feature"] in features(device.description()))
    assert paths(webnorm.check(KERNEL, op=op, cases=case)) == {(has_feature, "pass")}
    assert paths(webnorm.check(KERNEL, op=op, cases=case, constants={AXIS: 0})) == {(0, "pass")}


@pytest.mark.vulkan
@pytest.mark.slow
@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_both_paths_are_right_in_every_engine(engine: str) -> None:
    if reason := missing(engine):
        pytest.skip(reason)
    for op in OPS:
        webnorm.load_op(FOLDER / op)
    options: dict[str, Any] = {"op": OPS, "cases": [f"{op}-normal" for op in OPS], "engine": engine}
    found = webnorm.check(KERNEL, **options)
    there = features(found.report.device)
    took = {one.op: (one.constants[AXIS], one.status) for one in found.results}
    assert took == {op: (int(EXPECTED[op]["feature"] in there), "pass") for op in OPS}
    assert paths(webnorm.check(KERNEL, **options, constants={AXIS: 0})) == {(0, "pass")}
    driver = " ".join(map(str, found.report.device.values())).lower()
    is_known = engine == "firefox" or {"wgpu": "llvmpipe", **DRIVERS}[engine] in driver
    for row in EXPECTED.values():
        if is_known or row["feature"] not in DEVICE_FEATURES:
            assert (row["feature"] in there) == (engine in row["engines"]), row


@pytest.mark.slow
def test_both_paths_are_right_in_all_cases(op: str) -> None:
    found = webnorm.check(KERNEL, op=op)
    assert {one.status for one in found.results} == {"pass"}
