"""Races on workgroup memory, seen on any adapter."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import KERNELS, needs, suited
from webnorm.device import Device
from webnorm.kernel import Kernel, Variant, default_variant, load, wgsl_root
from webnorm.ops import make_inputs
from webnorm.problem import Problem
from webnorm.races import Unwatchable, race

TWO_PASS = (wgsl_root() / "layer_norm" / "two_pass.wgsl").read_text()
START = "{{ swept_moments() }}"
# What a row's invocations do to memory that all of them see, and what is said of it.
USES = {
    "one writes, others read": ("array<f32, 64>", "if (thread == 0u) { shared_words[0] = 1.0; }", True),
    "with a barrier between": (
        "array<f32, 64>",
        "if (thread == 0u) { shared_words[0] = 1.0; }\n    workgroupBarrier();",
        False,
    ),
    "everyone has a place": ("array<f32, 1024>", "shared_words[place] = 1.0;", False),
    "two have one place": ("array<f32, 1024>", "shared_words[place / 2u] = 1.0;", True),
    "a number, no array": ("f32", "shared_words = f32(place);", True),
    "more is added": ("array<u32, 4>", "shared_words[1] += 1u;", True),
    "an index of memory": (
        "array<u32, 1024>",
        "shared_words[place] = place;\n    shared_words[shared_words[place]] = place;",
        False,
    ),
    "atomics do not race": ("array<atomic<u32>, 4>", "atomicAdd(&shared_words[0], 1u);", False),
}
UNCLEAR = {
    "by its address": ("array<f32, 4>", "let where_it_is = &shared_words;\n    (*where_it_is)[0] = 1.0;"),
    "component by component": ("array<vec2<f32>, 4>", "shared_words[0].x = 1.0;"),
    "arrays of arrays": ("array<array<f32, 2>, 4>", "shared_words[0][1] = 1.0;"),
}


def using(folder: Path, kind: str, use: str) -> Kernel:
    """`two_pass` with more workgroup memory, which is read wherever it is a number for each row."""
    read = "" if "atomic" in kind or "array<array" in kind else READ.get(kind, "")
    text = TWO_PASS.replace("@compute", f"var<workgroup> shared_words: {kind};\n\n@compute")
    text = text.replace(START, f"\n    {use}\n{read}{START}")
    assert text.count("shared_words") >= 2
    path = folder / "layer_norm" / "used.wgsl"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return load(path)


READ = {"array<f32, 64>": "    let seen = shared_words[0];\n"}


def default_of(kernel: Kernel, device: Device, cols: int) -> tuple[Variant, Problem]:
    problem = suited(kernel, Problem(rows=7, cols=cols, options=kernel.op.defaults))
    variant = default_variant(kernel, problem, device.traits)
    needs(device, variant.features(problem, device.traits))
    return variant, problem


def race_of(kernel: Kernel, device: Device, cols: int) -> str | None:
    variant, problem = default_of(kernel, device, cols)
    return race(device, variant, problem, make_inputs(kernel.op, problem), ())


@pytest.mark.opengl
@pytest.mark.parametrize("use", USES)
def test_what_races_is_seen_and_nothing_else(use: str, device: Device, tmp_path: Path) -> None:
    kind, text, races = USES[use]
    found = race_of(using(tmp_path, kind, text), device, 256)
    assert (found is not None) == races
    if found is not None:
        assert "used.wgsl:" in found and "shared_words[" in found


@pytest.mark.parametrize("use", UNCLEAR)
def test_what_is_not_understood_is_not_vouched_for(use: str, device: Device, tmp_path: Path) -> None:
    kind, text = UNCLEAR[use]
    with pytest.raises(Unwatchable):
        race_of(using(tmp_path, kind, text), device, 256)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.label)
def test_webnorms_kernels_do_not_race(kernel: Kernel, device: Device) -> None:
    assert race_of(kernel, device, 768) is None
