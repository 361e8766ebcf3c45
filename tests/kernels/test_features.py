"""Features that a kernel declares: the directives, the fallback, and the reason why it cannot run."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from testbed import GPU
from webnorm.choice.defaults import default_variant
from webnorm.errors import WebnormError
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.traits import (
    BROWSER,
    DEVICE_FEATURES,
    KNOWN_FEATURES,
    LANGUAGE_FEATURES,
    Traits,
    name_in_expressions,
)
from webnorm.kernels.headers.variants import Variant, header_names
from webnorm.kernels.rendering.render import Shader, Target, render_shader
from webnorm.op import definition
from webnorm.op.registry import OPS

HEADER = """// /// webnorm
// summary = "A test."
// differs = "Nothing."
// layout = "row_per_workgroup"
// [tune]
// wanted = [1, 0]
// fixed = [0, 8, 16, 32]
// [default]
// wanted = "{has}"
// fixed = [["has_subgroup_size_control and subgroup_min_size <= 16 and 16 <= subgroup_max_size", 16], 0]
// [derive]
// subgroups = 0
// [features]
// {feature} = "wanted"
// [[pass]]
// entry_point = "main"
// workgroup_size = "workgroup_size"
// workgroup_count = "rows"
// subgroup_size = "fixed"
// ///
{{% include "lib/norm.wgsl" %}}
{{% if fixed %}}@subgroup_size({{{{ fixed }}}}){{% endif %}}
@compute @workgroup_size({{{{ workgroup_size }}}})
fn main(
    {{% include "lib/builtins.wgsl" %}}
) {{
    {{% if wanted %}}
    // fast
    {{% endif %}}
}}
"""
PROBLEM = OPS["layer_norm"].problem(3, 256)


def kernel(folder: Path, feature: str = "linear_indexing", text: str = HEADER) -> Kernel:
    path = folder / "layer_norm" / "mine.wgsl"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text.format(feature=feature, has=name_in_expressions(feature)))
    return load(path)


def rendered(kernel: Kernel, traits: Traits, target: Target = "browser", **constants: int) -> Shader:
    variant = default_variant(kernel, PROBLEM, traits)
    return render_shader(Variant(kernel, {**variant.constants, **constants}), PROBLEM, target, traits)


def directives(shader: Shader) -> list[str]:
    return re.findall(r"^(?:enable|requires) \w+;", shader.text, re.MULTILINE)


@pytest.mark.parametrize("feature", [*LANGUAGE_FEATURES, "shader-f16"])
def test_a_feature_is_used_where_it_exists(feature: str, tmp_path: Path) -> None:
    mine = kernel(tmp_path, feature)
    there = replace(BROWSER, features=BROWSER.features | {feature})
    directive = "enable f16;" if feature == "shader-f16" else f"requires {feature};"
    with_feature, without = rendered(mine, there), rendered(mine, BROWSER)
    assert directives(with_feature) == [directive] and "// fast" in with_feature.text
    assert with_feature.features == {feature}
    assert directives(without) == [] and "// fast" not in without.text
    # naga has language features without a directive.
    assert directives(rendered(mine, there, "native")) == [directive] * (feature == "shader-f16")


@pytest.mark.parametrize(
    "feature, lacks",
    [
        ("buffer_view", "needs the feature 'buffer_view', which the engine's WGSL lacks"),
        ("shader-f16", "needs the feature 'shader-f16', which the adapter lacks"),
    ],
)
def test_a_variant_without_its_feature_says_which(feature: str, lacks: str, tmp_path: Path) -> None:
    mine = kernel(tmp_path, feature)
    variant = default_variant(mine, PROBLEM, BROWSER)
    assert variant.refusal(PROBLEM, BROWSER) is None
    assert Variant(mine, {**variant.constants, "wanted": 1}).refusal(PROBLEM, BROWSER) == lacks


def controlled(least: int, most: int) -> Traits:
    features = GPU.features | {"subgroup-size-control"}
    return replace(GPU, features=features, subgroup_min_size=least, subgroup_max_size=most)


def test_wgsls_name_of_a_feature_leads_to_webgpus(tmp_path: Path) -> None:
    text = HEADER.replace("{feature}", "f16").replace("{has}", "1")
    message = r"mine.wgsl:\d+: unknown feature 'f16'; did you mean 'shader-f16'\?"
    with pytest.raises(WebnormError, match=message):
        kernel(tmp_path, text=text)


def test_a_subgroup_size_needs_the_feature_and_the_size(tmp_path: Path) -> None:
    mine = kernel(tmp_path)
    shader = rendered(mine, controlled(8, 32))
    assert directives(shader) == [
        "enable subgroup_size_control;",
        "enable subgroups;",
        "requires subgroup_id;",
    ]
    assert "@subgroup_size(16)" in shader.text and shader.passes[0].subgroup_size == 16
    for traits in (GPU, controlled(32, 32)):
        assert rendered(mine, traits).passes[0].subgroup_size == 0
    refused = Variant(mine, {**default_variant(mine, PROBLEM, GPU).constants, "fixed": 32})
    assert refused.refusal(PROBLEM, GPU) == (
        "needs the feature 'subgroup-size-control', which the adapter lacks"
    )
    assert refused.refusal(PROBLEM, controlled(64, 64)) == (
        "needs subgroups of 32 invocations; the adapter has subgroups of 64"
    )
    assert refused.refusal(PROBLEM, controlled(32, 64)) is None
    odd = Variant(mine, {**refused.constants, "threads_per_row": 16})
    assert odd.refusal(PROBLEM, controlled(8, 32)) == (
        "has subgroups of 32 invocations; workgroup_size must be a multiple of that"
    )


def test_a_subgroup_size_without_its_attribute_is_an_error(tmp_path: Path) -> None:
    text = HEADER.replace("@subgroup_size({{{{ fixed }}}})", "")
    with pytest.raises(WebnormError, match=r"pass main has subgroup_size 16, but its function has no @sub"):
        rendered(kernel(tmp_path, text=text), controlled(8, 32))


@pytest.mark.parametrize(
    "attribute, found",
    [
        ("// @subgroup_size(16)\n", "no @subgroup_size(16)"),
        ("/* @subgroup_size(16) */", "no @subgroup_size(16)"),
        ("@subgroup_size(16) @compute @workgroup_size(16) fn other() {{}}\n", "no @subgroup_size(16)"),
        ("@subgroup_size(8)", "@subgroup_size(8)"),
    ],
)
def test_another_attribute_than_that_of_the_pass_is_an_error(
    attribute: str, found: str, tmp_path: Path
) -> None:
    text = HEADER.replace("@subgroup_size({{{{ fixed }}}})", attribute)
    with pytest.raises(WebnormError) as raised:
        rendered(kernel(tmp_path, text=text), controlled(8, 32))
    expected = f"pass main has subgroup_size 16, but its function has {found}; "
    assert expected in str(raised.value)


def test_an_attribute_that_the_header_lacks_is_an_error(tmp_path: Path) -> None:
    text = HEADER.replace(
        "{{% if fixed %}}@subgroup_size({{{{ fixed }}}}){{% endif %}}", "@subgroup_size(16)"
    )
    assert rendered(kernel(tmp_path, text=text), controlled(8, 32)).subgroup_sizes == [16]
    with pytest.raises(WebnormError, match=r"pass main has subgroup_size 0, .* has @subgroup_size\(16\)"):
        rendered(kernel(tmp_path, text=text), GPU)


@pytest.mark.parametrize(
    "attribute",
    ["@subgroup_size (16)", "@subgroup_size( 16i, )", "const LANES = 2u * 8u; @subgroup_size(LANES)"],
)
def test_the_attribute_may_have_any_form(attribute: str, tmp_path: Path) -> None:
    text = HEADER.replace("@subgroup_size({{{{ fixed }}}})", attribute)
    assert rendered(kernel(tmp_path, text=text), controlled(8, 32)).subgroup_sizes == [16]


@pytest.mark.parametrize("size, number", [("3", 3), ("-4", -4), ('"4 - 8"', -4), ('"6 * 8"', 48)])
def test_a_subgroup_size_is_a_power_of_two(size: str, number: int, tmp_path: Path) -> None:
    text = HEADER.replace('subgroup_size = "fixed"', f"subgroup_size = {size}")
    message = rf"mine.wgsl:\d+: subgroup_size is {number}; expected a power of two, or 0"
    with pytest.raises(WebnormError, match=message):
        kernel(tmp_path, text=text)


def test_immediates_without_their_feature_are_an_error(tmp_path: Path) -> None:
    comment = "{{% if wanted %}} var<immediate> own: u32; {{% endif %}} // var<immediate> none: u32;\n"
    mine = kernel(tmp_path, text=HEADER.replace("{{% if fixed", comment + "{{% if fixed"))
    line = mine.path.read_text().splitlines().index(comment.strip().format()) + 1
    message = rf"mine.wgsl:{line}: var<immediate> own is in a variant without the feature immediate_address_"
    with pytest.raises(WebnormError, match=message):
        rendered(mine, GPU, wanted=1)
    assert rendered(mine, GPU, wanted=0).text


@pytest.mark.parametrize(
    "size, required",
    [("16", True), ('"2 * 8"', True), ("0", False), ('"fixed"', False), ('"16 // 0"', False)],
)
def test_a_feature_is_required_if_no_variant_is_without_it(size: str, required: bool, tmp_path: Path) -> None:
    text = HEADER.replace('subgroup_size = "fixed"', f"subgroup_size = {size}")
    found = kernel(tmp_path, text=text).required_features
    assert found == ({"subgroups", "subgroup-size-control"} if required else set())


def test_the_feature_for_subgroup_sizes_follows_from_the_pass(tmp_path: Path) -> None:
    with pytest.raises(WebnormError, match=r"mine.wgsl:\d+: feature .* set it in \[\[pass\]\] instead"):
        kernel(tmp_path, "subgroup-size-control")


def test_no_op_can_use_a_name_of_headers() -> None:
    names = {name_in_expressions(feature) for feature in KNOWN_FEATURES}
    assert names <= header_names(OPS["layer_norm"], PROBLEM, BROWSER).keys()
    assert names | {"subgroup_min_size", "subgroup_max_size", "requires"} <= definition._TAKEN
    assert not {*DEVICE_FEATURES} & {*LANGUAGE_FEATURES}
